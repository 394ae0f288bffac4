//! `altq bench`: the line that other programs read (docs/bench.md), and usage errors.

use std::process::{Command, Output};

fn altq(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_altq")).args(args).output().expect("altq runs")
}

#[test]
fn one_json_line_a_configuration() {
    for scheduler in ["cbq", "fifo"] {
        let out = altq(&["bench", "engine", "--scheduler", scheduler, "--classes", "10", "--runs", "5", "--json"]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let text = String::from_utf8(out.stdout).expect("UTF-8");
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let modes: Vec<_> = lines.iter().map(|line| line["mode"].as_str().unwrap_or_default()).collect();
        assert_eq!(modes, ["saturated", "one-at-a-time"]);
        for line in &lines {
            assert_eq!(line["schema"], "altq.bench/1");
            assert_eq!(line["scheduler"], scheduler);
            assert_eq!((line["classes"].as_u64(), line["depth"].as_u64()), (Some(10), Some(3)));
            assert_eq!(line["classify"], true);
            let number = |name: &str| line[name].as_f64().unwrap_or_else(|| panic!("{name} in {line}"));
            let ns = number("ns_per_packet");
            assert!(
                ns > 1.0 && number("fastest_ns_per_packet") <= ns && ns <= number("slowest_ns_per_packet"),
                "{line}"
            );
            // Both figures state the same speed, up to rounding to a tenth.
            assert!((number("packets_per_s") * ns / 1e9 - 1.0).abs() < 0.05 / ns + 1e-6, "{line}");
            // A class takes at least the bytes of its counters, and no more than the engine's
            // tables can hold.
            assert!((64.0..1000.0).contains(&number("bytes_per_class")), "{line}");
        }
    }
}

#[test]
fn another_build_is_run_in_turn() {
    // The other build is this one, so that the test needs no second one; what it compares is not
    // judged, as tests do not time.
    let other = env!("CARGO_BIN_EXE_altq");
    let words = ["bench", "engine", "--classes", "10", "--mode", "saturated", "--runs", "5", "--rounds", "2"];
    let out = altq(&[&words[..], &["--against", other, "--json"]].concat());
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let line: serde_json::Value = serde_json::from_slice(&out.stdout).expect("one line of JSON");
    assert_eq!((&line["schema"], line["rounds"].as_u64()), (&"altq.bench_against/1".into(), Some(2)));
    let number = |side: &str, name: &str| line[side][name].as_f64().unwrap_or_else(|| panic!("{name} in {line}"));
    let [this, against] = ["this", "against"].map(|side| number(side, "least_ns_per_packet"));
    assert!(this > 1.0 && this <= number("this", "median_ns_per_packet"), "{line}");
    let ratio = line["least_ratio"].as_f64().expect("a ratio");
    assert!((ratio - this / against).abs() < 0.001, "{line}");
}

#[test]
fn a_program_that_is_no_altq_is_named() {
    for (other, says) in [("/nowhere/altq", "/nowhere/altq could not be started"), ("/bin/true", "/bin/true does not")]
    {
        let out = altq(&["bench", "engine", "--classes", "10", "--mode", "saturated", "--against", other]);
        assert_eq!(out.status.code(), Some(1), "{other}");
        let text = String::from_utf8_lossy(&out.stderr);
        assert!(text.contains(says), "{other}: {text}");
    }
}

#[test]
fn what_is_kept_for_those_who_watch_is_measured_too() {
    for watch in ["delays", "flows"] {
        let mode = ["--mode", "one-at-a-time", "--watch", watch];
        let out = altq(&[&["bench", "engine", "--classes", "10", "--runs", "5", "--json"][..], &mode].concat());
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let line: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
        assert_eq!((&line["schema"], &line["watch"]), (&"altq.bench/1".into(), &watch.into()));
    }
}

#[test]
fn meters_are_measured_too() {
    for meter in ["bucket", "srtcm", "trtcm", "tswtcm", "chain"] {
        let mode = ["--scheduler", "drr", "--mode", "saturated", "--meter", meter];
        let out = altq(&[&["bench", "engine", "--classes", "10", "--runs", "5", "--json"][..], &mode].concat());
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let line: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
        assert_eq!((&line["schema"], &line["meter"]), (&"altq.bench/1".into(), &meter.into()));
    }
}

#[test]
fn the_simulator_is_measured_too() {
    let out = altq(&["bench", "sim", "--mbit", "10", "--seconds", "5", "--tcp", "200", "--json"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let line: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!((&line["schema"], line["rate_bit_s"].as_u64()), (&"altq.bench_simulator/1".into(), Some(10_000_000)));
    let number = |name: &str| line[name].as_f64().unwrap_or_else(|| panic!("{name} in {line}"));
    // 10 Mbit/s for 5 s, full except at the start: 4166 packets of 1500 bytes, or a few more
    // because some are shorter.
    assert!((3500.0..6000.0).contains(&number("bottleneck_packets")), "{line}");
    assert!(
        (number("packets_per_cpu_s") * number("cpu_s") / number("bottleneck_packets") - 1.0).abs() < 0.01,
        "{line}"
    );
    assert!(number("bytes_per_flow") < 100_000.0, "{line}");
}

#[test]
fn wrong_usage_is_said_and_exits_2() {
    for (args, says) in [
        (&["bench"][..], "Usage"),
        (&["bench", "engine", "--scheduler", "cbqq"], "cbq"),
        (&["bench", "engine", "--classes", "0"], "--classes"),
        (&["bench", "engine", "--classes", "many"], "--classes"),
        (&["bench", "engine", "--depth", "1"], "--depth"),
        (&["bench", "engine", "--mode", "both"], "one-at-a-time"),
        (&["bench", "engine", "--runs", "4"], "--runs"),
        (&["bench", "engine", "--rounds", "3"], "--against"),
        (&["bench", "engine", "--watch", "all"], "delays"),
        (&["bench", "engine", "--meter", "none"], "trtcm"),
    ] {
        let out = altq(args);
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        let text = String::from_utf8_lossy(&out.stderr);
        assert!(text.contains(says) && out.stdout.is_empty(), "{args:?}: {text}");
    }
}
