//! `altq sweep`: the same table whatever is killed, however many runs go at once and whichever host
//! does them; rows for runs that fail; rules; messages.
#![cfg(feature = "sweep")]

#[path = "schema/mod.rs"]
mod schema;
mod swept;

use std::time::{Duration, Instant};

use swept::{CASE, Folder, children, kill, said, until};

/// A sweep of 60 points and 600 runs.
const WORDS: &str = "case.toml --set rate=1..3Mbit/s:5 --set load=100kbit/s,400kbit/s,800kbit/s --set limit=5..20:4 \
                     --samples 10";

/// Numbers that look random, the same each time.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

#[test]
fn the_table_does_not_depend_on_how_it_came_about() {
    let folder = Folder::new("same");
    let done = folder.sweep(&format!("{WORDS} -o one --jobs 1"));
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    assert!(said(&done).contains("600 runs of 60 points are in one/table.parquet"), "{}", said(&done));
    let results = folder.results("one");
    // Several at once; again, where all is there; other tasks.
    for words in ["-o two --jobs 3", "-o one", "-o chunks --chunk 3", "-o more --chunk 25 --jobs 2"] {
        let done = folder.sweep(&format!("{WORDS} {words}"));
        assert_eq!(done.status.code(), Some(0), "{}", said(&done));
        let out = words.split(' ').nth(1).unwrap();
        assert_eq!(folder.results(out), results, "{words}");
    }
    // Shards, into one folder as hosts do that share it, and the whole command at the end.
    for shard in ["2/3", "1/3", "3/3"] {
        let done = folder.sweep(&format!("{WORDS} --chunk 7 -o shards --shard {shard} --jobs 2"));
        assert_eq!(done.status.code(), Some(0), "{}", said(&done));
        assert!(said(&done).contains(&format!("shard {} of 3 is done", &shard[..1])), "{}", said(&done));
        assert!(!folder.0.join("shards/table.parquet").exists());
    }
    let parts = std::fs::read_dir(folder.0.join("shards/parts")).unwrap().count();
    assert_eq!(parts, 120, "60 points of 10 samples, 7 at once");
    let done = folder.sweep(&format!("{WORDS} --chunk 7 -o shards"));
    assert_eq!((done.status.code(), folder.results("shards")), (Some(0), results));
}

#[test]
fn killed_workers_and_killed_drivers_change_nothing() {
    let folder = Folder::new("killed");
    let words = format!("{WORDS} --chunk 5");
    let begun = std::time::Instant::now();
    assert_eq!(folder.sweep(&format!("{words} -o whole")).status.code(), Some(0));
    // A run that dies three times by itself is given up, so deaths are rarer than runs, also on a
    // busy host: some twenty in the whole sweep.
    let apart = (begun.elapsed().as_millis() as u64 / 10).max(2);
    let results = folder.results("whole");
    let mut state = 7;
    // Workers die at random times.
    let mut driver = folder.begin(&format!("{words} -o workers --jobs 3"));
    let mut killed = 0;
    while driver.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(random(&mut state) % apart));
        let workers = children(driver.id());
        if let Some(one) = workers.get((random(&mut state) as usize) % workers.len().max(1)) {
            kill(*one);
            killed += 1;
        }
    }
    assert!(killed > 3, "{killed} workers were killed");
    assert!(folder.results("workers") == results, "after {killed} deaths of workers");
    // The driver dies at random times, until it comes to the end.
    let mut drivers: u64 = 0;
    loop {
        let mut driver = folder.begin(&format!("{words} -o drivers --jobs 2"));
        // On a busy host a driver needs longer to get on at all.
        std::thread::sleep(Duration::from_millis(50 + 5 * drivers + random(&mut state) % 150));
        if let Some(status) = driver.try_wait().unwrap() {
            assert!(status.success());
            break;
        }
        kill(driver.id());
        driver.wait().unwrap();
        drivers += 1;
        assert!(drivers < 100, "it does not get on");
    }
    assert!(drivers > 0);
    assert!(folder.results("drivers") == results, "after {drivers} deaths of drivers");
    // What dead drivers had not finished may lie there for hours: it could be another driver's.
    let left = std::fs::read_dir(folder.0.join("drivers/parts")).unwrap().flatten();
    let names = left.map(|entry| entry.file_name().into_string().unwrap());
    let strange: Vec<String> =
        names.filter(|name| !name.ends_with(".parquet") && !name.contains(".parquet.unfinished-")).collect();
    assert!(strange.is_empty(), "{strange:?}");
}

#[test]
fn workers_do_not_outlive_their_driver() {
    let folder = Folder::new("orphans");
    folder.write("case.toml", &CASE.replace("\"1s\"", "\"1000000s\""));
    let mut driver = folder.begin("case.toml -o long --jobs 2 --samples 2 --chunk 1");
    let mut workers = Vec::new();
    until("two workers", || {
        workers = children(driver.id());
        workers.len() == 2
    });
    std::thread::sleep(Duration::from_millis(300));
    kill(driver.id());
    driver.wait().unwrap();
    let begun = Instant::now();
    // A process that has ended may still be listed until its new parent asks for it.
    let lives = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    };
    until("the end of the workers", || !workers.iter().any(lives));
    // They see it within 100 ms; a busy machine may take longer.
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn an_interrupt_ends_all_and_the_next_call_goes_on() {
    let folder = Folder::new("interrupt");
    folder.write("case.toml", &CASE.replace("\"1s\"", "\"20s\""));
    let words = "case.toml --set rate=1..3Mbit/s:5 --samples 40 --chunk 1 --jobs 2";
    let driver = folder.begin(&format!("{words} -o out"));
    let parts = folder.0.join("out/parts");
    until("the first results", || std::fs::read_dir(&parts).is_ok_and(|entries| entries.count() > 3));
    let pid = rustix::process::Pid::from_raw(driver.id().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let begun = Instant::now();
    let done = driver.wait_with_output().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(done.status.code(), Some(1));
    assert_eq!(said(&done), "altq sweep: interrupted; the same command goes on where it was\n");
    assert!(!folder.0.join("out/table.parquet").exists());
    assert_eq!(folder.sweep(&format!("{words} -o out")).status.code(), Some(0));
    assert_eq!(folder.sweep(&format!("{words} -o whole")).status.code(), Some(0));
    assert_eq!(folder.results("out"), folder.results("whole"));
}

/// A source of 800 kbit/s on a link of 1 Mbit/s sends 1000 bytes each 10 ms: 100 packets in a
/// second, each of 8 ms, so none waits. On 500 kbit/s each takes 16 ms: of the second 62 begin.
#[test]
fn figures_by_hand() {
    let folder = Folder::new("hand");
    let words = "case.toml --set rate=1Mbit/s,500kbit/s --set shape=constant --set limit=1000 --format csv -o out";
    let done = folder.sweep(&format!("{words} --samples 2 --json"));
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    schema::check_lines(&done.stdout);
    let column = |name| folder.column("out", name);
    assert_eq!(column("rate"), ["1Mbit/s", "1Mbit/s", "500kbit/s", "500kbit/s"]);
    assert_eq!(column("rate_bit_s"), ["1000000", "1000000", "500000", "500000"]);
    assert_eq!(column("limit"), ["1000"; 4]);
    assert_eq!(column("sample"), ["0", "1", "0", "1"]);
    assert_eq!(column("seed"), ["1", "2", "1", "2"]);
    assert_eq!(column("error"), [""; 4]);
    assert_eq!(column("all.arrived"), ["100"; 4]);
    assert_eq!(column("all.p99"), ["0", "0", column("all.p99")[2].as_str(), column("all.p99")[2].as_str()]);
    assert_eq!(column("all.sent"), ["100", "100", "63", "63"]);
    assert_eq!(column("wan.rate"), ["800000", "800000", "504000", "504000"]);
    // The packet sent as number n from 0 began at 16n ms and had come at 10n ms: 6n ms of waiting.
    // The last of 63 is n = 62; the 99th percentile of 63 is the 63rd.
    assert_eq!(column("all.p99")[2], "372000000");
    let summary: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&summary["schema"], &summary["runs"]), (&"altq.sweep/1".into(), &4.into()));
    let point = &summary["points"][1];
    assert_eq!(point["values"]["rate"], "500kbit/s");
    // The median of 63 is the 32nd: 6 * 31 ms. Equal runs have no interval.
    let figure = &point["figures"][0];
    assert_eq!((figure["name"].as_str(), figure["mean"].as_f64()), (Some("expect.wait"), Some(186e6)));
    assert_eq!(figure["half_width"].as_f64(), Some(0.0));
    // The same run, alone.
    let sim = std::process::Command::new(env!("CARGO_BIN_EXE_altq"))
        .args([
            "sim",
            "case.toml",
            "--set",
            "rate=500kbit/s",
            "--set",
            "shape=constant",
            "--set",
            "limit=1000",
            "--json",
        ])
        .current_dir(&folder.0)
        .output()
        .unwrap();
    let result: serde_json::Value = serde_json::from_slice(&sim.stdout).unwrap();
    assert_eq!(result["expectations"][0]["measured"], 186_000_000);
}

#[test]
fn a_point_ends_when_its_mean_is_known() {
    let folder = Folder::new("until");
    let words = "case.toml --set load=200kbit/s,800kbit/s --samples 200 --chunk 10 --format csv";
    let rule = "ci95(expect.wait) < 20%";
    let run = |out: &str, jobs: &str| {
        let done = folder.command(&format!("{words} -o {out} --jobs {jobs} --until")).arg(rule).output().unwrap();
        assert_eq!(done.status.code(), Some(0), "{}", said(&done));
        (folder.read(&format!("{out}/table.csv")), folder.read(&format!("{out}/summary.json")))
    };
    let one = run("one", "1");
    assert_eq!(run("four", "4"), one);
    assert_eq!(run("four", "2"), one, "all of it was there");
    // The same from shards, of which each has whole points.
    for shard in ["1/2", "2/2"] {
        let done = folder.command(&format!("{words} -o shards --shard {shard} --until")).arg(rule).output().unwrap();
        assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    }
    assert_eq!(run("shards", "1"), one);
    // Low load: most packets do not wait, so the median is 0 at every seed, and ten samples are
    // enough. High load: the median varies; the rule holds at its end, and not ten samples before.
    let loads = folder.column("one", "load");
    let waits: Vec<f64> = folder.column("one", "expect.wait").iter().map(|cell| cell.parse().unwrap()).collect();
    let of = |load: &str| -> Vec<f64> {
        loads.iter().zip(&waits).filter(|(own, _)| *own == load).map(|(_, wait)| *wait).collect()
    };
    assert_eq!(of("200kbit/s"), [0.0; 10]);
    let high = of("800kbit/s");
    assert!(high.len() > 10 && high.len() < 200 && high.len().is_multiple_of(10), "{}", high.len());
    let relative = |samples: &[f64]| {
        let n = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / n;
        let deviation = (samples.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
        // The normal quantile is below Student's, by less than a sixth from ten samples on.
        1.96 * deviation / n.sqrt() / mean
    };
    assert!(relative(&high) < 0.2, "{}", relative(&high));
    assert!(relative(&high[..high.len() - 10]) > 0.2 / 1.17);
}

#[test]
fn a_table_of_links_is_a_sweep() {
    let folder = Folder::new("table");
    folder.write("links.csv", "rate,load\n1Mbit/s,100kbit/s\n2Mbit/s,\"200kbit/s\"\n");
    let done = folder.sweep("case.toml --table links.csv --set shape=constant --set limit=5,6 --format csv -o out");
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    assert_eq!(folder.column("out", "load"), ["100kbit/s", "100kbit/s", "200kbit/s", "200kbit/s"]);
    assert_eq!(folder.column("out", "limit"), ["5", "6", "5", "6"]);
    // 1000 bytes each 80 ms, and each 40 ms.
    assert_eq!(folder.column("out", "flow.call.sent"), ["13", "13", "25", "25"]);
}

#[test]
fn what_fails_is_a_row_with_its_error() {
    let folder = Folder::new("fails");
    // Such a queue is refused by the policy's language; the case itself is in order.
    let words = "case.toml --set limit=5,5000000000000,6 --samples 2 --format csv";
    let done = folder.sweep(&format!("{words} -o out"));
    assert_eq!(done.status.code(), Some(3), "{}", said(&done));
    assert!(said(&done).contains("2 of them failed; the table has the reasons. The first: "), "{}", said(&done));
    let text = String::from_utf8(folder.read("out/table.csv")).unwrap();
    assert!(text.contains("small (policy)") && !text.contains(folder.0.to_str().unwrap()), "{text}");
    let summary: serde_json::Value = serde_json::from_slice(&folder.read("out/summary.json")).unwrap();
    let failed: Vec<_> = (0..3).map(|at| summary["points"][at]["failed"].as_u64().unwrap()).collect();
    assert_eq!(failed, [0, 2, 0]);
    let other = folder.sweep(&format!("{words} -o other --jobs 1 --chunk 1"));
    assert_eq!(other.status.code(), Some(3));
    assert_eq!(folder.read("out/table.csv"), folder.read("other/table.csv"));
    // Too many events, at the same one each time.
    let done = folder.sweep("case.toml --events 50 --format csv -o events");
    assert_eq!(done.status.code(), Some(3));
    assert!(folder.column("events", "error")[0].starts_with("the run has more than 50 events"));
}

#[test]
fn a_run_that_takes_too_long_or_kills_its_process_is_a_row() {
    let folder = Folder::new("poison");
    let case =
        CASE.replace("duration = \"1s\"", "duration = \"${long}\"").replace("[values]", "[values]\nlong = \"1s\"");
    folder.write("case.toml", &case);
    let words = "case.toml --set long=1s,10000000s,2s --samples 1 --format csv --jobs 1";
    let done = folder.sweep(&format!("{words} --timeout 2s -o late"));
    assert_eq!(done.status.code(), Some(3), "{}", said(&done));
    assert_eq!(folder.column("late", "error"), ["", "it took longer than 2 s", ""]);
    // Three workers die of the same run.
    let mut driver = folder.begin(&format!("{words} -o dead"));
    let mut last = 0;
    for _ in 0..3 {
        let mut worker = 0;
        until("a worker that is at the long run", || {
            let now = children(driver.id());
            worker = now.first().copied().unwrap_or(0);
            // The first run takes milliseconds, the long one hours.
            worker != 0 && worker != last && {
                std::thread::sleep(Duration::from_millis(700));
                true
            }
        });
        kill(worker);
        last = worker;
    }
    assert_eq!(driver.wait().unwrap().code(), Some(3));
    assert_eq!(folder.column("dead", "error"), ["", "it killed its worker process 3 times: signal 9", ""]);
    assert_eq!(folder.column("dead", "all.sent"), folder.column("late", "all.sent"));
}

#[test]
fn what_failed_is_done_again_if_that_is_asked_for() {
    let folder = Folder::new("again");
    // Some 100,000 packets.
    folder.write("case.toml", &CASE.replace("\"1s\"", "\"1000s\""));
    let words = "case.toml --samples 2 --format csv -o out";
    let late = folder.sweep(&format!("{words} --timeout 2ms"));
    assert_eq!(late.status.code(), Some(3), "{}", said(&late));
    assert_eq!(folder.column("out", "error"), ["it took longer than 0.002 s"; 2]);
    assert_eq!(folder.sweep(words).status.code(), Some(3), "what is there is not run again");
    assert_eq!(folder.sweep(&format!("{words} --again")).status.code(), Some(0));
    assert_eq!(folder.column("out", "error"), [""; 2]);
}

#[test]
fn what_makes_no_sense_is_said_and_nothing_runs() {
    let folder = Folder::new("wrong");
    folder.write("short.csv", "rate,load\n1Mbit/s\n");
    folder.write("bad.csv", "load\n1Mbit/s\nfast\n");
    folder.write("other.csv", "speed\n1Mbit/s\n");
    for (words, message) in [
        (
            "case.toml -o out --set rtae=1Mbit/s",
            "altq sweep: case.toml: it has no value \"rtae\"; did you mean \"rate\"? [values] has: limit, load, rate, \
             shape\n",
        ),
        ("case.toml -o out --set load=1..2Mbits/s:3", "altq sweep: case.toml:22:8: "),
        ("case.toml -o out --set rate=1Mbit/s --table other.csv", "altq sweep: case.toml: it has no value \"speed\""),
        (
            "case.toml -o out --table short.csv",
            "altq sweep: short.csv:2:1: this line has 1 values, and the header has 2\n",
        ),
        ("case.toml -o out --table bad.csv", "altq sweep: bad.csv:3: case.toml:22:8: "),
        ("case.toml -o out --table none.csv", "altq sweep: none.csv: No such file"),
        ("case.toml -o out --row 5", "altq sweep: case.toml: it has no row \"5\", and no rows at all\n"),
        (
            "case.toml -o out --set rate=1Mbit/s --set rate=2Mbit/s",
            "altq sweep: rate is given twice; give each value once\n",
        ),
        ("none.toml -o out", "altq sweep: none.toml: it cannot be read: "),
        (
            "case.toml -o out --shard 4/3",
            "error: invalid value '4/3' for '--shard <K/N>': \"4/3\" is no shard: 17/400 is ",
        ),
        ("case.toml -o out --set rate", "error: invalid value 'rate' for '--set <NAME=VALUES>': \"rate\" has no =;"),
    ] {
        let done = folder.sweep(words);
        let code = if words.contains("none.csv") { 1 } else { 2 };
        assert_eq!(done.status.code(), Some(code), "{words}: {}", said(&done));
        assert!(said(&done).starts_with(message), "{words}: {}", said(&done));
        assert!(!folder.0.join("out").exists(), "{words}");
    }
    // The figure is in bit/s, and the limit is a time. One sample has no interval.
    for (samples, rule, message) in [
        (
            "40",
            "ci95(all.rate) < 2ms",
            "altq sweep: case.toml: the limit of ci95(all.rate) is a time, and all.rate is a rate; give a rate, or a \
             percentage of the mean\n",
        ),
        (
            "1",
            "ci95(all.p99) < 1%",
            "altq sweep: ci95(all.p99) needs at least 2 samples of a point; give more, or no rule\n",
        ),
    ] {
        let done = folder.command(&format!("case.toml -o out --samples {samples} --until")).arg(rule).output().unwrap();
        assert_eq!((done.status.code(), said(&done).as_str()), (Some(2), message));
        assert!(!folder.0.join("out").exists(), "{rule}");
    }
    let misspelt = folder.command("case.toml -o out --samples 40 --until").arg("ci95(al.p99) < 1%").output().unwrap();
    assert_eq!(misspelt.status.code(), Some(2));
    let message = "altq sweep: case.toml: its runs have no figure \"al.p99\"; did you mean `all.p99`?\n";
    assert_eq!(said(&misspelt), message);
}

#[test]
fn what_does_not_come_out_as_asked_is_told() {
    let folder = Folder::new("told");
    // Two samples of a random source are not the same to a millionth.
    let rule = "ci95(expect.wait) < 0.0001%";
    let words = "case.toml --set load=700kbit/s,800kbit/s --samples 2 --json -o out";
    let done = folder.command(&format!("{words} --figures expect.*,al.* --until")).arg(rule).output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    assert!(said(&done).contains("altq sweep: the rule does not hold at 2 of 2 points\n"), "{}", said(&done));
    assert!(said(&done).contains("altq sweep: no run has a figure \"al.*\"; "), "{}", said(&done));
    let summary: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(summary["missing"], serde_json::json!(["al.*"]));
    assert_eq!((&summary["points"][0]["met"], &summary["points"][1]["met"]), (&false.into(), &false.into()));
    // A plot has four figures at most.
    let plot = folder.sweep("case.toml --set load=700kbit/s,800kbit/s --show all.* --plot p.svg -o plot");
    assert_eq!(plot.status.code(), Some(0), "{}", said(&plot));
    assert!(said(&plot).contains("the plot has the first 4 of "), "{}", said(&plot));
}
