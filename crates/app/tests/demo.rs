//! `altq demo`: it runs for everybody, fits the screen, and its figures are those of the policy.

use std::process::Command;
use std::time::{Duration, Instant};

fn demo(columns: &str, ordinary: bool) -> Option<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
    command.arg("demo").env("COLUMNS", columns);
    let root = std::fs::read_to_string("/proc/self/status").unwrap().contains("\nUid:\t0\t");
    if ordinary && root {
        use std::os::unix::process::CommandExt;
        command.uid(65534).gid(65534);
    }
    let begun = Instant::now();
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("SKIPPED: the program cannot be started without root: {error}");
            return None;
        }
    };
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(begun.elapsed() < Duration::from_secs(10), "it took {:?}", begun.elapsed());
    Some(String::from_utf8(output.stdout).unwrap())
}

/// The numbers in the line of a class, in the first table.
fn row(text: &str, class: &str) -> Vec<f64> {
    let line = text.lines().find(|line| line.trim_start().starts_with(class) && line.contains('.')).unwrap();
    line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn its_figures_are_the_policys() {
    let Some(text) = demo("80", true) else { return };
    // Columns: sends; through the FIFO got, p50, p99, lost; through altq asked, got, borrowed, p50,
    // p99, lost. Worked out by hand from line.altq and traffic.rs: phone and orders send less than
    // their shares; backup borrows what they leave of acme's 6 Mbit/s.
    for (class, asked, got, borrowed) in [
        ("phone", 0.5, 0.4, 0.0),
        ("orders", 2.5, 2.0, 0.0),
        ("backup", 3.0, 3.6, 0.6),
        ("web", 1.0, 1.0, 0.0),
        ("video", 3.0, 3.0, 0.0),
    ] {
        let row = row(&text, class);
        assert_eq!(row.len(), 11, "{class}: {row:?}");
        for (at, expected) in [(5, asked), (6, got), (7, borrowed)] {
            assert!((row[at] - expected).abs() <= 0.03, "{class}: {expected} at {at} of {row:?}");
        }
    }
    let (phone, link) = (row(&text, "phone"), 10.0);
    // A packet of phone waits for at most one packet of 1500 bytes and the rest of another call's
    // packets, at 10 Mbit/s.
    assert!(phone[9] <= (1500.0 + 400.0) * 8.0 / (link * 1000.0), "phone waits {} ms", phone[9]);
    // A full FIFO of 100 packets delays each packet by about 100 ms, and drops what exceeds the
    // link's rate.
    assert!(phone[2] > 50.0 && phone[4] > 20.0, "{phone:?}");
    // The compiled BSD code of 1997 gives 8.40 and 9.77 Mbit/s; altq must be within 2 %. The exact
    // estimator gives the full 10.
    let rate = |line: &str| -> f64 {
        let line = text.lines().find(|l| l.trim_start().starts_with(line)).unwrap();
        line.split_whitespace().rev().nth(1).unwrap().parse().unwrap()
    };
    assert!((rate("estimator classic, 100 Hz") / 8.40 - 1.0).abs() <= 0.02);
    assert!((rate("estimator classic, 1000 Hz") / 9.77 - 1.0).abs() <= 0.02);
    assert!((rate("estimator exact, 100 Hz") / 10.0 - 1.0).abs() <= 0.005);
    assert!(text.contains("root"), "an ordinary user is told what is left out: {text}");
}

#[test]
fn it_fits_the_screen_and_has_no_colour_in_a_pipe() {
    for columns in ["80", "60", "50"] {
        let Some(text) = demo(columns, true) else { return };
        let width: usize = columns.parse().unwrap();
        for line in text.lines() {
            assert!(line.chars().count() <= width, "{columns}: {line}");
        }
        assert!(!text.contains('\x1b'));
    }
}

#[test]
fn root_sees_real_packets_or_is_told_why_not() {
    let Some(text) = demo("80", false) else { return };
    assert!(["kernel TCP", "Skipped", "INVALID"].iter().any(|word| text.contains(word)), "{text}");
}
