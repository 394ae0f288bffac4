//! What holds altq up does not hold packets up: a log that nobody reads, and a worker that is long
//! in starting. The tests are skipped with a message where the host does not allow them.

mod supervised;
mod unread;
#[path = "../../dataplane/tests/world/mod.rs"]
mod world;

use std::io::pipe;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use supervised::{ONE, Running, signal, until};
use unread::{check_lost, fill, there};
use world::world;

const SUPERVISED: &[&str] = &["--supervise", "--user", "nobody"];
const WITHIN: Duration = Duration::from_secs(20);

/// A folder with the policy.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("altq-held-up-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("p.altq"), ONE).unwrap();
    folder
}

/// Kills the worker, and waits until another one shapes. `None`, with a message, if the worker's
/// process cannot be found.
fn replace(running: &Running<'_>) -> Option<u32> {
    let Some(worker) = running.worker() else {
        eprintln!("SKIPPED: this kernel does not list the children of a process");
        return None;
    };
    signal(worker, "-KILL");
    let next = another(running, worker);
    until("it shapes", WITHIN, || running.ask(&["status"]).status.code() == Some(0));
    Some(next)
}

/// Waits for another worker than this one.
fn another(running: &Running<'_>, worker: u32) -> u32 {
    let mut next = None;
    until("another worker", WITHIN, || {
        next = running.worker().filter(|next| *next != worker);
        next.is_some()
    });
    next.unwrap()
}

/// Supervisor and worker both have lines to say all the time.
#[test]
fn a_log_that_nobody_reads_holds_nothing_up() {
    let Some(world) = world() else { return };
    world.answer_in_the_middle();
    let (mut reader, mut writer) = pipe().unwrap();
    fill(&mut writer);
    let to = writer.try_clone().unwrap();
    let change = |command: &mut Command| _ = command.stderr(to);
    let Some(running) = Running::start_as(&world, folder("log"), SUPERVISED, change) else { return };
    if replace(&running).is_none() {
        return;
    }
    // A client changes something, and the policy is read again.
    assert_eq!(running.ask(&["link", "set", "up", "rate", "50Mbit/s"]).status.code(), Some(0));
    signal(running.child.id(), "-HUP");
    replace(&running);
    assert!(world.middle_answers());
    let before = there(&mut reader);
    assert!(before.bytes().all(|byte| byte == b'.'), "there was no room: {before}");
    // Now somebody reads.
    replace(&running);
    let mut said = String::new();
    until("what is missing is said", WITHIN, || {
        said += &there(&mut reader);
        said.contains("lost because standard error was not read\n")
    });
    check_lost(&said, "altq run: ");
    // Nobody reads once more, and it ends when it is asked to.
    fill(&mut writer);
    running.end();
}

/// While a worker is set up, here while a program that it runs does not end, nobody would let
/// packets go on that wait for it.
#[test]
fn a_worker_that_is_long_in_starting_holds_no_packets() {
    let Some(world) = world() else { return };
    world.answer_in_the_middle();
    let folder = folder("start");
    let (slow, tools) = (folder.join("slow"), folder.join("tools"));
    std::fs::create_dir(&tools).unwrap();
    // altq asks `ip` what an interface is when it has a queue for it.
    let script = format!(
        "#!/bin/sh\nwhile [ -e '{}' ]; do sleep 0.1; done\nPATH=${{PATH#*:}}\nexec ip \"$@\"\n",
        slow.display()
    );
    std::fs::write(tools.join("ip"), script).unwrap();
    std::fs::set_permissions(tools.join("ip"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap_or_default());
    let change = |command: &mut Command| _ = command.env("PATH", path);
    let Some(running) = Running::start_as(&world, folder, SUPERVISED, change) else { return };
    let Some(worker) = running.worker() else {
        return eprintln!("SKIPPED: this kernel does not list the children of a process");
    };
    std::fs::write(&slow, "").unwrap();
    signal(worker, "-KILL");
    another(&running, worker);
    let queues = || running.said("cat", &["/proc/thread-self/net/netfilter/nfnetlink_queue"]);
    until("it has a queue", WITHIN, || !queues().is_empty());
    for _ in 0..5 {
        assert!(world.middle_answers(), "{}", running.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(running.ask(&["status"]).status.code(), Some(4), "it waits still");
    std::fs::remove_file(&slow).unwrap();
    until("it shapes", WITHIN, || running.ask(&["status"]).status.code() == Some(0));
    assert!(world.middle_answers());
    running.end();
}
