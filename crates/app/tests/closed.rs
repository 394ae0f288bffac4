//! `altq run --fail closed`: while nobody shapes, nothing passes but what was excepted. The tests
//! are skipped with a message where the host does not allow them.

mod supervised;
#[path = "../../dataplane/tests/world/mod.rs"]
mod world;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use supervised::{BRIDGE, ONE, Running, refuses, rules, signal, until};
use world::{World, ip, round_trips, world};

const CLOSED: &[&str] = &["--supervise", "--user", "nobody", "--fail", "closed"];
/// A port that is not excepted, and the one that is where nobody says another one (ssh's).
const OTHER: &str = "10.7.0.9:1";
const SSH: &str = "10.7.0.9:22";

/// The world with addresses at `a`; those of IPv6 without neighbour entries.
fn with_addresses() -> Option<World> {
    let world = world()?;
    world.answer_in_the_middle();
    ip(&world.middle, "addr add fd07::9/64 dev a nodad\n").unwrap();
    ip(&world.left, "addr add fd07::1/64 dev eth0 nodad\n").unwrap();
    Some(world)
}

/// Forgets where the neighbours are.
fn forget(world: &World) {
    for (namespace, device) in [(&world.left, "eth0"), (&world.middle, "a")] {
        ip(namespace, &format!("neigh flush dev {device}\n")).unwrap();
    }
}

#[test]
fn nothing_passes_but_the_exceptions_while_no_worker_runs() {
    let Some(world) = with_addresses() else { return };
    let Some(mut running) = Running::start(&world, "closed", ONE, CLOSED) else { return };
    assert!(refuses(&world, OTHER) && refuses(&world, SSH) && refuses(&world, "[fd07::9]:1"), "it shapes");
    if !running.keep_killing() {
        return;
    }
    let said = running.ask(&["status"]);
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(text.contains("link up: BLOCKED") && text.contains("signal 9"), "{text}");
    assert_eq!((said.status.code(), &running.json("status")["links"][1]["state"]), (Some(4), &"blocked".into()));
    assert!(!refuses(&world, OTHER), "{}", rules(&world));
    assert!(refuses(&world, SSH), "{}", rules(&world));
    forget(&world);
    assert!(refuses(&world, "[fd07::9]:22"), "neighbours find each other: {}", rules(&world));
    assert!(!refuses(&world, "[fd07::9]:1"));
    running.says("BLOCKED: nothing passes but the ports 22");
    // The next worker shapes again, and lets packets pass.
    until("the next worker", Duration::from_secs(20), || running.ask(&["status"]).status.code() == Some(0));
    until("packets pass", Duration::from_secs(5), || refuses(&world, OTHER));
    // Without supervisor and worker it stays so until somebody lifts it.
    let worker = running.worker().unwrap();
    signal(running.child.id(), "-STOP");
    signal(worker, "-KILL");
    signal(running.child.id(), "-KILL");
    running.child.wait().unwrap();
    until("the worker is gone", Duration::from_secs(5), || !Path::new(&format!("/proc/{worker}/exe")).exists());
    assert!(!refuses(&world, OTHER) && refuses(&world, SSH), "{}", rules(&world));
    let stop = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
        command.arg("stop").args(arguments);
        let output = world.middle.run(|| command.output().unwrap()).unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = stop(&["nowhere"]);
    assert!(code == Some(2) && said.contains("these do: a\n"), "{said}");
    let (code, said) = stop(&["a"]);
    assert!(code == Some(0) && said.contains("what leaves by a passes unshaped"), "{said}");
    assert!(refuses(&world, OTHER) && !rules(&world).contains("altq"), "{}", rules(&world));
}

#[test]
fn an_end_that_was_asked_for_opens() {
    let Some(world) = with_addresses() else { return };
    // Without a supervisor, and with two ports of its own.
    let options = ["--fail", "closed", "--except", "80,443"];
    let Some(mut running) = Running::start(&world, "alone", ONE, &options) else { return };
    running.says("the ports 80, 443");
    assert!(refuses(&world, OTHER));
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    let passes = [OTHER, SSH, "10.7.0.9:80", "10.7.0.9:443"].map(|to| refuses(&world, to));
    assert_eq!(passes, [false, false, true, true], "{}", rules(&world));
    drop(running);
    for options in [&CLOSED[3..], CLOSED] {
        let Some(running) = Running::start(&world, "again", ONE, options) else { panic!("it ran before") };
        assert!(refuses(&world, OTHER));
        running.end();
        assert!(refuses(&world, OTHER) && !rules(&world).contains("altq"), "{options:?}: {}", rules(&world));
    }
}

#[test]
fn a_bridge_is_not_handed_to_the_kernel() {
    let Some(world) = world() else { return };
    let Some(running) = Running::start(&world, "bridge", BRIDGE, CLOSED) else { return };
    round_trips(&world, "10.9.0.2:7", 5);
    if !running.keep_killing() {
        return;
    }
    let links = running.said("ip", &["link", "show"]);
    assert!(!links.contains("altqbr"), "{links}");
    running.says("bridges forward nothing at all");
    until("the next worker", Duration::from_secs(20), || running.ask(&["status"]).status.code() == Some(0));
    round_trips(&world, "10.9.0.2:7", 5);
    running.end();
}

#[test]
fn exceptions_belong_to_links_that_fail_closed() {
    let folder = std::env::temp_dir().join(format!("altq-closed-{}.altq", std::process::id()));
    std::fs::write(&folder, ONE).unwrap();
    for (options, why) in [
        (&["--except", "22"][..], "write --fail closed too"),
        (&["--fail", "closed", "--detach"], "--fail closed concerns altq"),
        (&["--fail", "closed", "--except", "0"], "0 is not in 1..=65535"),
        (&["--fail", "shut"], "possible values: open, closed"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
        let output = command.arg("run").arg(&folder).args(options).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(why), "{options:?}: {said}");
    }
    std::fs::remove_file(folder).unwrap();
}
