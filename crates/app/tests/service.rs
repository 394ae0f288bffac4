//! The files for service managers.

use std::path::Path;
use std::process::Command;

fn file(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist").join(name)
}

/// systemd's own judgement, without the service running: 0 is safe, 10 is not.
#[test]
fn the_units_are_exposed_little() {
    for name in ["altq.service", "altq-rsvpd.service"] {
        let mut command = Command::new("systemd-analyze");
        command.args(["security", "--offline=true", "--no-pager", "--threshold=20"]).arg(file(name));
        let Ok(output) = command.output() else { return eprintln!("SKIPPED: no systemd-analyze here") };
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        if !said.contains("Overall exposure level") {
            return eprintln!("SKIPPED: this systemd-analyze cannot judge a file ({said})");
        }
        // The exit code says whether it is at most 2.0.
        let level = said.lines().find(|line| line.contains("Overall")).unwrap_or("");
        assert!(output.status.success(), "{name}: {level}");
    }
}

/// What would go wrong without a line of the unit, and is seen only months later.
#[test]
fn the_unit_starts_again_and_leaves_what_is_not_its_own() {
    let text = std::fs::read_to_string(file("altq.service")).unwrap();
    let section = |name: &str| {
        let behind = text.split_once(&format!("[{name}]\n")).unwrap().1;
        behind.split("\n[").next().unwrap().lines().map(str::to_owned).collect::<Vec<String>>()
    };
    // Five starts in ten seconds would be the last: the limit is one of [Unit] (systemd.unit(5)).
    assert!(section("Unit").contains(&"StartLimitIntervalSec=0".to_owned()));
    for line in [
        "Restart=always",
        // The folder has the notes of links that `altq run --detach` has set up.
        "RuntimeDirectoryPreserve=yes",
        // 2: the policy is wrong. No other code may keep systemd from starting altq again: an
        // interface that is not there yet is 7 (exit_codes.rs).
        "RestartPreventExitStatus=2",
        // A worker that ends at a signal of systemd's own looks like one that has failed.
        "KillMode=mixed",
    ] {
        assert!(section("Service").contains(&line.to_owned()), "{line}");
    }
}

/// A policy with errors must not keep altq from starting: it runs the last good one. And what ends
/// is started again (supervise-daemon(8)).
#[test]
fn the_script_starts_again_whatever_the_policy_says() {
    let text = std::fs::read_to_string(file("altq.openrc")).unwrap();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    for line in ["supervisor=\"supervise-daemon\"", "respawn_delay=1", "respawn_max=0"] {
        assert!(lines.contains(&line), "{line}");
    }
    assert!(!lines.iter().any(|line| line.contains(" check ") || line.starts_with("command_background")));
}

/// Five starts in ten seconds are the last ones of a unit without this line (systemd.unit(5),
/// DefaultStartLimitBurst= and DefaultStartLimitIntervalSec= of systemd-system.conf(5)).
#[test]
fn no_unit_gives_up() {
    for name in ["altq.service", "altq-rsvpd.service", "altq-schedule.service", "altq-web.service"] {
        let text = std::fs::read_to_string(file(name)).unwrap();
        let unit = text.split("[Service]").next().unwrap();
        let pause = text.lines().find_map(|line| line.strip_prefix("RestartSec=")).unwrap();
        let is_slow = pause.parse::<u32>().unwrap() > 2;
        assert!(text.contains("Restart=always") && (is_slow || unit.contains("\nStartLimitIntervalSec=0\n")), "{name}");
    }
}

/// The last good policy is kept from the start on only where its folder is there. systemd makes it
/// (`StateDirectory=`), the scripts do so themselves.
#[test]
fn the_folder_of_the_last_good_policy_is_there() {
    for (name, makes) in [
        ("altq.service", "\nStateDirectory=altq\n"),
        ("altq.openrc", "\tcheckpath --directory --mode 0700 /var/lib/altq\n"),
        ("altq.procd", "\tmkdir -p -m 0700 /etc/altq/state\n"),
    ] {
        assert!(std::fs::read_to_string(file(name)).unwrap().contains(makes), "{name}");
    }
}

/// Each of them runs a supervisor, with options that there are.
#[test]
fn the_files_run_a_supervisor() {
    let help = Command::new(env!("CARGO_BIN_EXE_altq")).args(["run", "--help"]).output().unwrap();
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    for name in ["altq.service", "altq.openrc", "altq.procd"] {
        let text = std::fs::read_to_string(file(name)).unwrap();
        let starts = |line: &&str| {
            ["ExecStart=", "command_args=", "procd_set_param command"].iter().any(|word| line.contains(word))
        };
        let line = text.lines().find(starts).unwrap();
        let options: Vec<&str> = line.split([' ', '"']).filter(|word| word.starts_with("--")).collect();
        assert!(options.contains(&"--supervise"), "{name}: {options:?}");
        for option in options {
            assert!(help.contains(option), "{name}: {option}");
        }
    }
}
