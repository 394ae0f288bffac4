//! Exit codes 6 and 7 of every command that can meet them: a missing right is 6, what the host or
//! its kernel lacks is 7 (README.md). Each is told in one line that says what to do.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// What the process may do.
#[derive(Clone, Copy, Debug, PartialEq)]
enum As {
    /// Whatever the test may.
    Tester,
    /// What an ordinary user may.
    User,
    /// Root without CAP_NET_ADMIN, as in many containers.
    RootWithoutNet,
}

const POLICY: &str = "link wan { device bridge lo nowhere rate 10Mbit/s scheduler fifo class all { default } }";

fn case(more: &str) -> String {
    format!(
        "name = 'c'\ndescription = 'd'\nduration = '1s'\n\
         policy = 'link wan {{ rate 10Mbit/s scheduler fifo class all {{ default }} }}'\n\
         hosts = [{{ name = 'a' }}, {{ name = 'b' }}]\n\
         links = [{{ name = 'l', from = 'a', to = 'b', policy = 'wan' }}]\n\
         flows = [{{ name = 'f', kind = 'udp', from = 'a', to = 'b', size = 1000, rate = '1Mbit/s' {more} }}]\n"
    )
}

fn is_root() -> bool {
    fs::read_to_string("/proc/self/status").unwrap().contains("\nUid:\t0\t")
}

/// Runs the command; `None` if this host cannot start it so.
fn run(who: As, folder: &PathBuf, args: &[&str]) -> Option<Output> {
    let program = env!("CARGO_BIN_EXE_altq");
    let mut command = match who {
        As::RootWithoutNet => {
            let mut command = Command::new("setpriv");
            command.args(["--bounding-set=-net_admin", "--inh-caps=-net_admin", program]);
            command
        }
        _ => Command::new(program),
    };
    command.args(args).current_dir(folder).stdin(Stdio::null());
    if who == As::User && is_root() {
        command.uid(65534).gid(65534);
    }
    if who == As::RootWithoutNet && !is_root() {
        return None;
    }
    command.output().ok()
}

/// Nothing can be written to standard error: the exit code is what it would have been.
#[test]
fn a_full_disk_under_the_log_is_no_panic() {
    let Ok(full) = fs::OpenOptions::new().write(true).open("/dev/full") else {
        return eprintln!("SKIPPED: this host has no /dev/full");
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
    command.args(["check", "no-such-policy.altq"]).stdin(Stdio::null()).stderr(full);
    assert_eq!(command.status().unwrap().code(), Some(2));
}

#[test]
fn a_missing_right_is_6_and_a_missing_capability_7() {
    let folder = std::env::temp_dir().join(format!("altq-exit-codes-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    // Other users write their results there.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let lab_only = case("").replace("duration", "only = { world = 'lab', reason = 'it needs a kernel' }\nduration");
    let half = case("").replace("policy = 'wan' }", "policy = 'wan', medium = 'ethernet', duplex = 'half' }");
    for (name, text) in [("p.altq", POLICY), ("c.toml", &case("")), ("lab.toml", &lab_only), ("half.toml", &half)] {
        fs::write(folder.join(name), text).unwrap();
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o644)).unwrap();
    }
    let bulk = ["traffic", "bulk", "127.0.0.1:9", "--token", "00112233445566778899aabbccddeeff"];
    let table: [(As, &[&str], i32, &str); 11] = [
        (As::User, &["lab", "c.toml"], 6, "run it with sudo"),
        (As::RootWithoutNet, &["lab", "c.toml"], 6, "CAP_NET_ADMIN"),
        (As::User, &["experiments", "run", "--cases", "c.toml", "--world", "lab"], 6, "--world sim needs none of it"),
        (As::User, &["traffic", "server", "--listen", "127.0.0.1:1", "--for", "1s"], 6, "run it with sudo"),
        (As::User, &["web", "--listen", "127.0.0.1:1"], 6, "ports below 1024 are for root"),
        (As::User, &["top", "--interface", "lo", "--once"], 6, "run it with sudo"),
        (As::Tester, &["sim", "lab.toml"], 7, "`altq lab`"),
        (As::Tester, &["lab", "half.toml"], 7, "half-duplex"),
        (As::Tester, &["run", "p.altq"], 7, "no interface `nowhere`"),
        // What looks alike and is neither.
        (As::Tester, &["lab", "none.toml"], 2, "none.toml"),
        (As::Tester, &bulk, 1, "does `altq traffic server` run there?"),
    ];
    let ports = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap_or_default();
    for (who, args, code, said) in table {
        if args.contains(&"127.0.0.1:1") && ports.trim().parse().is_ok_and(|first: u32| first <= 1) {
            eprintln!("SKIPPED: every user may listen on port 1 here");
            continue;
        }
        let Some(output) = run(who, &folder, args) else {
            eprintln!("SKIPPED: {args:?} cannot be started as {who:?} here");
            continue;
        };
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{who:?} {args:?}: {error}");
        assert!(error.contains(said) && error.lines().count() == 1, "{who:?} {args:?}: {error}");
    }
    let _ = fs::remove_dir_all(folder);
}

#[test]
fn words_of_run_that_are_out_of_range_are_2() {
    let folder = std::env::temp_dir();
    for (word, said) in [("--spin=21us", "at most 20us"), ("--spin=5", "unit"), ("--processors=two", "invalid digit")] {
        let Some(output) = run(As::Tester, &folder, &["run", "p.altq", word]) else { return };
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && text.contains(said), "{word}: {text}");
    }
}
