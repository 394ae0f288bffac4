//! The hooks of examples/hooks, each with the arguments and the environment that its daemon gives,
//! and with nothing else in the environment but where hooks.conf is. Skipped with a message where
//! the host does not allow it.
//!
//! The names of the variables are those of the daemons' documentation and code: FreeRADIUS 3
//! (src/main/exec.c), Kea's guide (ext-run-script), accel-ppp (pppd_compat.c), pppd(8).

mod supervised;
#[path = "../../dataplane/tests/world/mod.rs"]
mod world;

use std::path::{Path, PathBuf};
use std::process::Command;

use supervised::Running;
use world::world;

const POLICY: &str = "link down { device bridge a b  rate 500Mbit/s  scheduler htb
        class subscribers { rate 400Mbit/s  ceil 500Mbit/s }
        class rest { rate 100Mbit/s  ceil 500Mbit/s  default } }
    link up { device bridge b a  rate 100Mbit/s  scheduler htb
        class subscribers { rate 90Mbit/s  ceil 100Mbit/s }
        class rest { rate 10Mbit/s  ceil 100Mbit/s  default } }";

struct Hooks<'w> {
    running: Running<'w>,
    conf: PathBuf,
}

impl Hooks<'_> {
    fn start<'w>(world: &'w world::World, name: &str) -> Option<Hooks<'w>> {
        let running = Running::start(world, name, POLICY, &["--subscribers", "10"])?;
        let folder = &running.folder;
        // The command of hooks.conf, for a socket that is not the usual one.
        let wrapper = folder.join("altq");
        let socket = folder.join("altq.sock");
        let text = format!("#!/bin/sh\nexec {} \"$@\" --socket {}\n", env!("CARGO_BIN_EXE_altq"), socket.display());
        std::fs::write(&wrapper, text).unwrap();
        let shown = wrapper.display();
        assert!(Command::new("chmod").arg("+x").arg(&wrapper).status().unwrap().success());
        let conf = folder.join("hooks.conf");
        let given = std::fs::read_to_string(hook("hooks.conf")).unwrap();
        let given = given.replace("altq=/usr/bin/altq", &format!("altq={shown}"));
        let given = given.replace("radattr=/var/run/radattr", &format!("radattr={}", folder.join("radattr").display()));
        assert!(given.contains(&format!("altq={shown}")) && given.contains("/radattr\n"), "{given}");
        std::fs::write(&conf, given).unwrap();
        Some(Hooks { running, conf })
    }

    /// Runs a hook as its daemon does.
    fn run(&self, name: &str, arguments: &[&str], environment: &[(&str, &str)]) {
        let mut command = Command::new(hook(name));
        command.args(arguments).env_clear().envs(environment.iter().copied()).env("ALTQ_HOOKS", &self.conf);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{name} {arguments:?} {environment:?}: {said}");
    }

    /// The subscribers, in the words of `altq subscriber list`.
    fn list(&self) -> Vec<String> {
        let output = self.running.ask(&["subscriber", "list"]);
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    }
}

fn hook(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/hooks").join(name)
}

#[test]
fn freeradius_accounting() {
    let Some(world) = world() else { return };
    let Some(hooks) = Hooks::start(&world, "freeradius") else { return };
    let packet = |kind: &'static str, address: &'static str| {
        [
            ("USER_NAME", "\"bob@example.org\""),
            ("ACCT_STATUS_TYPE", kind),
            ("FRAMED_IP_ADDRESS", address),
            ("NAS_PORT", "17"),
            ("ACCT_SESSION_ID", "\"5D2\""),
        ]
    };
    let bob = "bob_example.org addr=10.64.0.17 down=50Mbit/s up=10Mbit/s";
    // Some versions quote names of values, some do not; packets are sent again.
    for kind in ["Start", "\"Start\"", "Interim-Update"] {
        hooks.run("freeradius/altq", &[], &packet(kind, "10.64.0.17"));
        assert_eq!(hooks.list(), [bob], "{kind}");
    }
    // With rates of the server's.
    hooks.run("freeradius/altq", &["20000000", ""], &packet("Interim-Update", "10.64.0.18"));
    assert_eq!(hooks.list(), ["bob_example.org addr=10.64.0.18 down=20Mbit/s up=10Mbit/s"]);
    // The end of a session before, and of this one, twice.
    hooks.run("freeradius/altq", &[], &packet("Stop", "10.64.0.17"));
    assert_eq!(hooks.list().len(), 1);
    for _ in 0..2 {
        hooks.run("freeradius/altq", &[], &packet("Stop", "10.64.0.18"));
        assert_eq!(hooks.list(), Vec::<String>::new());
    }
    // A NAS that starts has no user and no address.
    hooks.run("freeradius/altq", &[], &[("ACCT_STATUS_TYPE", "Accounting-On"), ("NAS_IP_ADDRESS", "192.0.2.1")]);
    hooks.running.end();
}

#[test]
fn kea_leases() {
    let Some(world) = world() else { return };
    let Some(hooks) = Hooks::start(&world, "kea") else { return };
    let committed = [
        ("QUERY4_TYPE", "DHCPREQUEST"),
        ("LEASES4_SIZE", "2"),
        ("DELETED_LEASES4_SIZE", "0"),
        ("LEASES4_AT0_ADDRESS", "10.64.1.5"),
        ("LEASES4_AT0_HWADDR", "02:00:00:00:00:05"),
        ("LEASES4_AT0_VALID_LIFETIME", "3600"),
        ("LEASES4_AT1_ADDRESS", "10.64.1.6"),
        ("LEASES4_AT1_HWADDR", ""),
    ];
    let both = [
        "02-00-00-00-00-05 addr=10.64.1.5 down=50Mbit/s up=10Mbit/s",
        "10.64.1.6 addr=10.64.1.6 down=50Mbit/s up=10Mbit/s",
    ];
    for _ in 0..2 {
        hooks.run("kea/altq", &["leases4_committed"], &committed);
        assert_eq!(hooks.list(), both);
    }
    // The client gets another address; the lease of the old one goes with the same request, and
    // may expire later as well.
    let moved = [
        ("LEASES4_SIZE", "1"),
        ("DELETED_LEASES4_SIZE", "1"),
        ("DELETED_LEASES4_AT0_ADDRESS", "10.64.1.5"),
        ("DELETED_LEASES4_AT0_HWADDR", "02:00:00:00:00:05"),
        ("LEASES4_AT0_ADDRESS", "10.64.1.7"),
        ("LEASES4_AT0_HWADDR", "02:00:00:00:00:05"),
    ];
    hooks.run("kea/altq", &["leases4_committed"], &moved);
    let lease = |address: &'static str| [("LEASE4_ADDRESS", address), ("LEASE4_HWADDR", "02:00:00:00:00:05")];
    hooks.run("kea/altq", &["lease4_expire"], &lease("10.64.1.5"));
    assert_eq!(hooks.list()[0], "02-00-00-00-00-05 addr=10.64.1.7 down=50Mbit/s up=10Mbit/s");
    for point in ["lease4_release", "lease4_expire"] {
        hooks.run("kea/altq", &[point], &lease("10.64.1.7"));
        assert_eq!(hooks.list(), both[1..]);
    }
    // What it has nothing to do with.
    hooks.run("kea/altq", &["lease4_renew"], &lease("10.64.1.9"));
    assert_eq!(hooks.list(), both[1..]);
    hooks.running.end();
}

#[test]
fn ppp_sessions() {
    let Some(world) = world() else { return };
    let Some(hooks) = Hooks::start(&world, "ppp") else { return };
    for (daemon, tty, more) in [("accel-ppp", ["none", "0"], true), ("pppd", ["/dev/pts/3", "115200"], false)] {
        let arguments = |address| ["ppp0", tty[0], tty[1], "10.64.0.1", address, "02:00:00:00:00:07"];
        let mut environment = vec![("PEERNAME", "alice@dsl"), ("CALLING_SID", "02:00:00:00:00:07")];
        if more {
            environment.push(("IPV6_DELEGATED_PREFIX", "2001:db8:7::/56"));
        }
        let (up, down) = (format!("{daemon}/ip-up"), format!("{daemon}/ip-down"));
        let prefix = if more { ",2001:db8:7::/56" } else { "" };
        for _ in 0..2 {
            hooks.run(&up, &arguments("10.64.2.2"), &environment);
            let alice = format!("alice_dsl addr=10.64.2.2{prefix} down=50Mbit/s up=10Mbit/s");
            assert_eq!(hooks.list(), [alice], "{daemon}");
        }
        // She dials again; the end of the session before comes late.
        let given = "Framed-IP-Address 10.64.2.3\nWISPr-Bandwidth-Max-Down 30000000\n";
        std::fs::write(hooks.running.folder.join("radattr.ppp0"), given).unwrap();
        hooks.run(&up, &arguments("10.64.2.3"), &environment);
        std::fs::remove_file(hooks.running.folder.join("radattr.ppp0")).unwrap();
        environment.push(("CONNECT_TIME", "60"));
        hooks.run(&down, &arguments("10.64.2.2"), &environment);
        let alice = format!("alice_dsl addr=10.64.2.3{prefix} down=30Mbit/s up=10Mbit/s");
        assert_eq!(hooks.list(), [alice], "{daemon}");
        for _ in 0..2 {
            hooks.run(&down, &arguments("10.64.2.3"), &environment);
            assert_eq!(hooks.list(), Vec::<String>::new(), "{daemon}");
        }
        // Without a name the interface is one.
        hooks.run(&up, &arguments("10.64.2.4"), &[]);
        assert_eq!(hooks.list(), ["ppp0 addr=10.64.2.4 down=50Mbit/s up=10Mbit/s"], "{daemon}");
        hooks.run(&down, &arguments("10.64.2.4"), &[]);
        assert_eq!(hooks.list(), Vec::<String>::new(), "{daemon}");
    }
    hooks.running.end();
}

/// The end of a session that altq has not heard of must not look as if it was noted: a daemon may
/// tell it again.
#[test]
fn an_end_without_an_answer_is_a_failure() {
    let folder = std::env::temp_dir().join(format!("altq-hooks-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    // As the command where no altq answers.
    let conf = folder.join("hooks.conf");
    std::fs::write(&conf, "altq=false\ndown=down=1Mbit/s\nup=up=1Mbit/s\n").unwrap();
    let session = ["ppp0", "none", "0", "10.64.0.1", "10.64.2.2", "02:00:00:00:00:07"];
    let stop = [("USER_NAME", "bob"), ("ACCT_STATUS_TYPE", "Stop"), ("FRAMED_IP_ADDRESS", "10.64.2.2")];
    let lease = [("LEASE4_ADDRESS", "10.64.2.2"), ("LEASE4_HWADDR", "02:00:00:00:00:07")];
    /// A hook, its arguments and its environment.
    type Call<'a> = (&'a str, &'a [&'a str], &'a [(&'a str, &'a str)]);
    let cases: [Call<'_>; 4] = [
        ("accel-ppp/ip-down", &session, &[]),
        ("pppd/ip-down", &session, &[]),
        ("freeradius/altq", &[], &stop),
        ("kea/altq", &["lease4_release"], &lease),
    ];
    for (name, arguments, environment) in cases {
        let mut command = Command::new(hook(name));
        command.args(arguments).env_clear().envs(environment.iter().copied()).env("ALTQ_HOOKS", &conf);
        assert_eq!(command.status().unwrap().code(), Some(1), "{name}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
