use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};

use super::*;

/// What the test below does in a process of its own, once it is confined.
const VARIABLE: &str = "ALTQ_CONFINED";

/// Runs [`confined`] in another process, with this to do.
fn child(what: &str) -> (ExitStatus, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "confine::tests::confined", "--nocapture"]).env(VARIABLE, what);
    let output = command.env("MALLOC_ARENA_MAX", "1").output().unwrap();
    (output.status, String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
}

/// Does nothing unless another test has started this process.
#[test]
fn confined() {
    let Ok(what) = std::env::var(VARIABLE) else { return };
    let status = File::open("/proc/thread-self/status").unwrap();
    let needs = Needs { verdicts: true, ..Needs::default() };
    // Only root can change to another user.
    let user = rustix::process::geteuid().is_root().then_some(User { user: 12_345, group: 23_456 });
    if what == "orphan" {
        // The number of the first process, which is not the parent.
        println!("{}\nalive", confine(user, needs, Some(Pid::INIT)).unwrap_err());
        return;
    }
    let notes = confine(user, needs, getppid()).unwrap();
    let lines = |text: String| -> Vec<String> {
        let wanted = ["Uid:", "Gid:", "Groups:", "CapPrm:", "CapEff:", "CapInh:", "NoNewPrivs:", "Seccomp:"];
        text.lines().filter(|line| wanted.iter().any(|name| line.starts_with(name))).map(str::to_owned).collect()
    };
    match what.as_str() {
        "show" => {
            let mut text = vec![0; 8192];
            let count = std::os::unix::fs::FileExt::read_at(&status, &mut text, 0).unwrap();
            text.truncate(count);
            println!("\n{}\nnotes: {}", lines(String::from_utf8(text).unwrap()).join("\n"), notes.join("; "));
        }
        "open" => println!("{:?}", File::open("/dev/null").map(drop)),
        "run" => println!("{:?}", Command::new("/bin/true").exec()),
        "wait" => {
            println!("\nit waits");
            let _ = std::io::stdin().read(&mut [0]);
        }
        "socket" => println!("{:?}", std::net::UdpSocket::bind("127.0.0.1:0").map(drop)),
        // What loops do: threads with names and timers, memory, descriptors, time.
        "work" => {
            let work = || {
                let _ = crate::sys::thread::exact_timers();
                let _ = crate::sys::thread::prompt();
                let stop = crate::stop::Stop::new().unwrap();
                stop.for_loop().unwrap().wake();
                std::thread::sleep(std::time::Duration::from_millis(1));
                let _ = std::collections::hash_map::RandomState::new();
                vec![1_u8; 4 << 20].len()
            };
            let threads: Vec<_> =
                (0..12).map(|at| std::thread::Builder::new().name(format!("t{at}")).spawn(work).unwrap()).collect();
            let sum: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
            let (one, other) = std::os::unix::net::UnixStream::pair().map_or((None, None), |(a, b)| (Some(a), Some(b)));
            assert!(one.is_none() && other.is_none(), "no new sockets");
            println!("sum {sum}");
        }
        other => panic!("{other}"),
    }
    println!("alive");
}

/// The number of SIGSYS, which the kernel kills with.
const SIGSYS: i32 = libc::SIGSYS;

#[test]
fn a_confined_process_has_no_other_rights_than_it_needs() {
    let (status, said) = child("show");
    assert!(status.success(), "{status} {said}");
    let field = |name: &str| {
        let line = said.lines().find(|line| line.starts_with(name));
        line.map(|line| line[name.len()..].split_whitespace().map(str::to_owned).collect::<Vec<_>>())
            .unwrap_or_default()
    };
    if rustix::process::geteuid().is_root() {
        assert_eq!(
            (field("Uid:"), field("Gid:")),
            (vec!["12345".to_owned(); 4], vec!["23456".to_owned(); 4]),
            "{said}"
        );
        assert!(field("Groups:").is_empty(), "{said}");
        // CAP_NET_ADMIN is bit 12 (capabilities(7)).
        assert_eq!((field("CapEff:"), field("CapPrm:")), (vec!["0000000000001000".to_owned()], field("CapEff:")));
    } else {
        eprintln!("SKIPPED: the user changes as root only");
    }
    assert_eq!((field("CapInh:"), field("NoNewPrivs:")), (vec!["0000000000000000".to_owned()], vec!["1".to_owned()]));
    if said.contains("not filtered") {
        return eprintln!("SKIPPED: {said}");
    }
    assert_eq!(field("Seccomp:"), ["2"], "2 is a filter (proc_pid_status(5))");
}

#[test]
fn a_confined_process_that_opens_a_file_or_starts_a_program_is_killed() {
    if child("show").1.contains("not filtered") {
        return eprintln!("SKIPPED: no filters of system calls here");
    }
    for what in ["open", "run"] {
        let (status, said) = child(what);
        assert!(status.signal() == Some(SIGSYS) && !said.contains("alive"), "{what}: {status} {said}");
    }
    let (status, said) = child("socket");
    assert!(status.success() && said.contains("Err(") && said.contains("alive"), "{status} {said}");
}

#[test]
fn a_confined_process_can_do_what_loops_do() {
    let (status, said) = child("work");
    assert!(status.success() && said.contains(&format!("sum {}", 12 * (4 << 20))), "{status} {said}");
}

/// A stopped one as well, because SIGKILL ends also those.
#[test]
fn a_confined_process_ends_with_the_thread_that_has_started_it() {
    let start = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "confine::tests::confined", "--nocapture"]).env(VARIABLE, "wait");
        command.env("MALLOC_ARENA_MAX", "1").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // Then it is confined.
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(said.any(|line| line.unwrap() == "it waits"));
        child
    };
    let mut child = std::thread::spawn(start).join().unwrap();
    // One that lives would find the end of its input here, and end by itself.
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGKILL), "{status}");
}

#[test]
fn a_process_whose_parent_has_ended_is_not_confined() {
    let (status, said) = child("orphan");
    assert!(status.success() && said.contains("the supervisor") && said.contains("alive"), "{status} {said}");
}
