//! `altq status` lists what differs from what was asked for. The tests are skipped with a message
//! where the host does not allow them.

mod supervised;
#[path = "../../dataplane/tests/world/mod.rs"]
mod world;

use std::time::Duration;

use supervised::{ONE, Running, rules, said, signal, until};
use world::world;

/// The next look comes within five seconds, and takes a moment on a busy host.
const LOOK: Duration = Duration::from_secs(20);

/// Waits until a line of what differs contains each of these words, and returns the lines.
fn differs(running: &Running<'_>, link: usize, words: &[&str]) -> Vec<String> {
    let has = |lines: &[String], word: &str| lines.iter().any(|line| line.contains(word));
    until(&format!("{words:?}"), LOOK, || {
        let lines = running.drift(link);
        words.iter().all(|word| has(&lines, word))
    });
    running.drift(link)
}

#[test]
fn a_supervisor_sees_what_was_changed_behind_its_back() {
    let Some(world) = world() else { return };
    let options = ["--supervise", "--user", "nobody", "--subscribers", "10"];
    let Some(running) = Running::start(&world, "drift", ONE, &options) else { return };
    let sh = |command: &str| said(&world, "sh", &["-c", command]);
    // The files come last in a look: with what is seen of them, the first look is over.
    std::fs::write(running.folder.join("p.altq"), ONE.to_owned() + "\n# edited\n").unwrap();
    let file = "p.altq is another one than what runs; SIGHUP has it read";
    assert_eq!(differs(&running, 0, &[file]).len(), 1);
    sh("ip link set dev a txqueuelen 500");
    let was = "the queue of a itself has room for 500 packets, and had for 1000 (txqueuelen)";
    assert_eq!(differs(&running, 0, &["txqueuelen"])[1..], [was]);
    sh("ip link set dev a txqueuelen 1000");
    until("it is as before", LOOK, || running.drift(0).len() == 1 && running.drift(1).len() == 1);
    let (missing, front) = if rules(&world).contains("table inet altq-out-a") {
        sh("nft flush chain inet altq-out-a behind; nft add table inet ids; \
            nft add chain inet ids c '{ type filter hook prerouting priority -200; }'; \
            nft add rule inet ids c queue num 5 bypass");
        ("jump write", "table inet ids, chain c, queues packets before altq does")
    } else {
        sh("iptables -w -t mangle -D FORWARD -o a -j altq-out-a; \
            iptables -w -t mangle -I PREROUTING -j NFQUEUE --queue-num 5 --queue-bypass");
        ("`-A FORWARD -o a -j altq-out-a` is missing", "a rule of iptables queues packets before altq does")
    };
    let out = differs(&running, 0, &[file, "the rules for what leaves by a were changed", missing, front]);
    assert_eq!(out.len(), 3, "{out:?}");
    let back = differs(&running, 1, &[file, front]);
    assert_eq!(back.len(), 2, "{back:?}");
    let printed = String::from_utf8_lossy(&running.ask(&["status"]).stdout).into_owned();
    assert!(printed.contains("    differs: the policy "), "{printed}");

    // What clients have set is told at once.
    assert_eq!(running.ask(&["link", "set", "down", "rate", "50Mbit/s"]).status.code(), Some(0));
    let rate = "its rate was set to 50Mbit/s while it runs; the policy says 100Mbit/s";
    assert_eq!(running.drift(1).last().map(String::as_str), Some(rate));
    assert_eq!(running.ask(&["subscriber", "set", "a", "addr=10.7.0.1", "up="]).status.code(), Some(0));
    assert_eq!(running.drift(0).last().unwrap(), "a subscriber has a class that the policy does not have");
    assert_eq!(running.ask(&["subscriber", "del", "a"]).status.code(), Some(0));

    // The file is read; a new worker puts the rules back, and is told what differs still.
    signal(running.child.id(), "-HUP");
    until("the file is read", LOOK, || !running.drift(0).iter().any(|line| line.contains("p.altq")));
    assert_eq!(running.drift(0).len(), 2, "what is missing still is: {:?}", running.drift(0));
    assert!(!running.drift(1).iter().any(|line| line.contains("its rate")), "the file's rate holds");
    if let Some(worker) = running.worker() {
        signal(worker, "-KILL");
        until("another worker", LOOK, || running.worker().is_some_and(|next| next != worker));
        until("it shapes", LOOK, || running.ask(&["status"]).status.code() == Some(0));
        until("it is told", LOOK, || {
            let lines = running.drift(0);
            lines.len() == 1 && lines[0].contains(front)
        });
    }
    running.end();
}

/// Packets pass unshaped until then, and `status` says so. At the end nothing is left.
/// Another worker would have another queue, and so other rules.
#[test]
fn rules_that_another_program_takes_away_are_set_again() {
    let Some(world) = world() else { return };
    for (name, options) in
        [("drift-again", &["--supervise", "--user", "nobody", "--watchdog", "10s"][..]), ("drift-again-alone", &[])]
    {
        let Some(running) = Running::start(&world, name, ONE, options) else { return };
        let sh = |command: &str| said(&world, "sh", &["-c", command]);
        // The files come last in a look: with what is seen of them, the first look is over.
        std::fs::write(running.folder.join("p.altq"), ONE.to_owned() + "\n# edited\n").unwrap();
        differs(&running, 0, &["p.altq is another one"]);
        // Chains may be listed in another order. `-s`: without counters.
        let listed = || {
            let list = "iptables -t mangle -S; ip6tables -t mangle -S; nft -s list ruleset";
            let mut lines: Vec<String> = sh(list).lines().map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        };
        let before = listed();
        let flush = if before.iter().any(|line| line.starts_with("table inet altq-out-a")) {
            ["nft flush ruleset", "nft flush chain inet altq-out-a hold; nft flush chain inet altq-in-a hold"]
                .map(str::to_owned)
        } else {
            let both = |options: &str| format!("iptables -w -t mangle {options}; ip6tables -w -t mangle {options}");
            [format!("{}; {}", both("-F"), both("-X")), both("-F")]
        };
        // Without a supervisor the thread is the same.
        for command in &flush[..if options.is_empty() { 1 } else { 2 }] {
            sh(command);
            assert_ne!(listed(), before, "{command}");
            until(command, 2 * LOOK, || listed() == before);
            until("it says so", LOOK, || running.ask(&["status"]).status.code() == Some(0));
            let log = running.log();
            for words in [
                "link up: packets pass unshaped: the rules that hand what leaves by a to altq are gone",
                "the rules for what leaves by a are set again",
                "the rules for what comes in at a are set again",
                "link down: packets pass unshaped: the rules that hand what comes in at a",
                "link up: packets are shaped again",
                "link down: packets are shaped again",
            ] {
                assert!(log.contains(words), "{command}: {words}: {log}");
            }
            std::fs::write(running.folder.join("log"), "").unwrap();
        }
        running.end();
        assert!(!rules(&world).contains("altq"), "{}", rules(&world));
    }
}

#[test]
fn without_a_supervisor_it_is_seen_as_well() {
    let Some(world) = world() else { return };
    let Some(running) = Running::start(&world, "drift-alone", ONE, &[]) else { return };
    assert_eq!(running.drift(0), Vec::<String>::new());
    std::fs::remove_file(running.folder.join("p.altq")).unwrap();
    differs(&running, 1, &["p.altq cannot be looked at any more"]);
    running.end();
}

/// A file that was changed and then applied is what runs, also to whoever has read another text of
/// it at the start.
#[test]
fn a_file_that_was_applied_is_no_difference() {
    let Some(world) = world() else { return };
    for (name, options) in [("drift-file", &[][..]), ("drift-file-both", &["--supervise", "--unconfined"])] {
        let Some(running) = Running::start(&world, name, ONE, options) else { return };
        let file = running.folder.join("p.altq");
        std::fs::write(&file, ONE.replace("100Mbit/s", "90Mbit/s")).unwrap();
        differs(&running, 0, &["p.altq is another one than what runs; SIGHUP has it read"]);
        let applied = running.ask(&["apply", file.to_str().unwrap()]);
        assert_eq!(applied.status.code(), Some(0), "{}", String::from_utf8_lossy(&applied.stderr));
        assert_eq!(running.drift(0), Vec::<String>::new());
        // The next look, which finds the file as well.
        said(&world, "ip", &["link", "set", "dev", "a", "txqueuelen", "500"]);
        assert_eq!(differs(&running, 0, &["txqueuelen"]).len(), 1);
        said(&world, "ip", &["link", "set", "dev", "a", "txqueuelen", "1000"]);
        // The text of the start is another one now.
        std::fs::write(&file, ONE).unwrap();
        differs(&running, 0, &["p.altq is another one than what runs"]);
        running.end();
    }
}

/// Nobody but root and the user that runs altq tells it what differs.
#[test]
fn a_supervisors_word_is_a_supervisors() {
    let Some(world) = world() else { return };
    let Some(running) = Running::start(&world, "drift-told", ONE, &[]) else { return };
    use std::io::{BufRead, BufReader, Write};
    let socket = std::os::unix::net::UnixStream::connect(running.folder.join("altq.sock")).unwrap();
    let mut lines = BufReader::new(socket.try_clone().unwrap());
    let mut ask = |line: &str| {
        (&socket).write_all(line.as_bytes()).unwrap();
        let mut reply = String::new();
        lines.read_line(&mut reply).unwrap();
        reply
    };
    let told = ask("{\"op\":\"drift.tell\",\"links\":[{\"link\":\"up\",\"drift\":[\"a test\"]}]}\n");
    assert!(told.contains("\"ok\":true"), "{told}");
    let wrong = ask("{\"op\":\"drift.tell\",\"links\":[{\"link\":\"up\"}]}\n");
    assert!(wrong.contains("\"code\":2") && wrong.contains("drift"), "{wrong}");
    running.end();
}
