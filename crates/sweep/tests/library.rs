//! What a program does that spreads a sweep over hosts of its own: list the tasks, run each of them
//! anywhere, keep the results, gather them.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use altq_sweep::driver::Hand;
use altq_sweep::gather::{Format, gather, missing};
use altq_sweep::grid::Axis;
use altq_sweep::plan::{Plan, Request, Shard, Task};
use altq_sweep::run::{Job, Limit, Runner, run_task};
use altq_sweep::until::{Below, Until};
use altq_sweep::{Left, SweepError, store};

const CASE: &str = r#"
name = "library"
description = "A random source on a link, and one at a constant pace in another column."
duration = "500ms"
policy = "link wan { rate ${rate} scheduler fifo class all { default } }"
hosts = [{ name = "a" }, { name = "b" }]
links = [{ name = "wan", from = "a", to = "b", policy = "wan" }]
rows = [{ name = "500", values = { size = 500 } }, { name = "1000", values = { size = 1000 } }]

[values]
rate = "1Mbit/s"

[[columns]]
name = "random"
values = { shape = "poisson" }

[[columns]]
name = "steady"
values = { shape = "constant" }

[[flows]]
name = "f"
kind = "udp"
from = "a"
to = "b"
shape = "${shape}"
size = "${size}"
rate = "800kbit/s"

[[figures]]
name = "rate"
measure = "offered"
flow = "f"
unit = "packets/s"
"#;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("altq-sweep-library-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("case.toml"), CASE).unwrap();
        Folder(path)
    }

    fn request(&self) -> Request {
        let axes = vec![Axis::parse("rate=1Mbit/s,2Mbit/s").unwrap()];
        Request { case: self.0.join("case.toml"), axes, samples: 6, ..Request::default() }
    }

    fn out(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn runner(plan: &Plan) -> Runner {
    Runner::new(Job::of(plan), None, Arc::new(AtomicBool::new(false)))
}

fn done(plan: &Plan, folder: &std::path::Path, tasks: &[Task]) {
    let mut runner = runner(plan);
    for task in tasks {
        let table = run_task(plan, task, &mut runner).unwrap();
        store::put(folder, task, &table).unwrap();
    }
}

#[test]
fn tasks_in_any_order_and_of_any_size_are_one_table() {
    let folder = Folder::new("order");
    let mut tables = Vec::new();
    for (name, chunk) in [("one", 1), ("four", 4), ("all", 100)] {
        let plan = Plan::new(Request { chunk: Some(chunk), ..folder.request() }).unwrap();
        // Two rates, two rows, two columns.
        assert_eq!((plan.points.len(), plan.runs()), (8, 48));
        let mut tasks = plan.tasks();
        assert_eq!(tasks.len(), [48, 16, 1][tables.len()], "{chunk}");
        tasks.reverse();
        let out = folder.out(name);
        let (last, rest) = tasks.split_last().unwrap();
        done(&plan, &out, rest);
        assert_eq!(missing(&plan, &out).unwrap(), 1);
        assert!(matches!(gather(&plan, &out, Format::Parquet, &[]), Err(SweepError::Missing(1))));
        done(&plan, &out, std::slice::from_ref(last));
        let summary = gather(&plan, &out, Format::Parquet, &[]).unwrap();
        assert_eq!((summary.runs, summary.failed, summary.points.len()), (48, 0, 8));
        // The second column of the first row: 500 bytes each 5 ms.
        let steady = &summary.points[1];
        assert_eq!((steady.row.as_deref(), steady.column.as_deref()), (Some("500"), Some("steady")));
        assert_eq!((steady.figures[0].name.as_str(), steady.figures[0].mean), ("figure.rate", Some(200.0)));
        assert_eq!(steady.figures[0].half_width, Some(0.0));
        tables.push(std::fs::read(out.join("table.parquet")).unwrap());
    }
    assert!(tables.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn the_name_of_a_task_is_that_of_everything_it_depends_on() {
    let folder = Folder::new("names");
    let ids = |request: Request| -> Vec<String> {
        Plan::new(request).unwrap().tasks().into_iter().map(|task| task.id).collect()
    };
    let small = |request: Request| Request { chunk: Some(3), ..request };
    let usual = ids(small(folder.request()));
    assert_eq!(ids(small(folder.request())), usual);
    // More samples, and more values: what was there has the same names.
    let more = ids(small(Request { samples: 9, ..folder.request() }));
    let axes = vec![Axis::parse("rate=1Mbit/s,2Mbit/s,3Mbit/s").unwrap()];
    let wider = ids(small(Request { axes, ..folder.request() }));
    assert!(usual.iter().all(|id| more.contains(id) && wider.contains(id)));
    assert!(more.len() > usual.len() && wider.len() > usual.len());
    // Anything else that changes results changes all names.
    let changed = |ids: Vec<String>| ids.iter().all(|id| !usual.contains(id));
    assert!(changed(ids(small(Request { seed: Some(2), ..folder.request() }))));
    assert!(changed(ids(small(Request { figures: vec!["figure.*".into()], ..folder.request() }))));
    let limit = Limit { events: Some(5), time: None };
    assert!(changed(ids(small(Request { limit, ..folder.request() }))));
    std::fs::write(folder.0.join("case.toml"), CASE.replace("500ms", "501ms")).unwrap();
    assert!(changed(ids(small(folder.request()))));
    // The same case elsewhere has the same names.
    let other = Folder::new("elsewhere");
    assert_eq!(ids(small(other.request())), usual);
}

#[test]
fn a_policy_in_a_file_counts_by_its_contents() {
    let folder = Folder::new("policies");
    let policy = "link wan { rate 1Mbit/s scheduler fifo class all { default } }";
    let text =
        CASE.replace(&format!("policy = \"{}\"", policy.replace("1Mbit/s", "${rate}")), "policy_file = \"${rate}\"");
    assert!(text.contains("policy_file"));
    std::fs::write(folder.0.join("case.toml"), text.replace("rate = \"1Mbit/s\"", "rate = \"a.altq\"")).unwrap();
    for name in ["a.altq", "b.altq"] {
        std::fs::write(folder.0.join(name), policy).unwrap();
    }
    let ids = || -> Vec<String> {
        let axes = vec![Axis::parse("rate=a.altq,b.altq").unwrap()];
        let plan = Plan::new(Request { axes, chunk: Some(6), ..folder.request() }).unwrap();
        plan.tasks().into_iter().map(|task| task.id).collect()
    };
    let before = ids();
    std::fs::write(folder.0.join("b.altq"), policy.replace("1Mbit/s", "2Mbit/s")).unwrap();
    let after = ids();
    // Four points have each policy; those with the other one stay.
    assert_eq!((&before[..4], before.len()), (&after[..4], 8));
    assert!(before[4..].iter().zip(&after[4..]).all(|(before, after)| before != after));
}

/// Does what is left, task by task in one thread.
fn done_in_order(plan: &Plan, folder: &std::path::Path) -> Result<(), SweepError> {
    let (left, mut runner) = (Left::new(plan, folder, None, false)?, runner(plan));
    while let Some(at) = left.next() {
        if left.is_in_vain(at) {
            continue;
        }
        let mut outcomes = Vec::new();
        for runs in plan.runs_of(left.task(at).unwrap()) {
            let seeds = runs.seed..runs.seed + u64::from(runs.count);
            outcomes.extend(seeds.map(|seed| runner.run(&runs.point, seed).map_err(Option::unwrap)));
        }
        left.put(plan, folder, at, outcomes)?;
    }
    Ok(())
}

#[test]
fn a_point_may_lack_a_figure_that_others_have() {
    let folder = Folder::new("lack");
    let case = CASE.replace("class all", "class ${who}").replace("rate = \"1Mbit/s\"", "who = \"voice\"");
    std::fs::write(folder.0.join("case.toml"), case.replace("${rate}", "1Mbit/s")).unwrap();
    let request = |figures: &[&str], rule: &str| Request {
        axes: vec![Axis::parse("who=data,voice").unwrap()],
        row: Some("500".into()),
        column: Some("steady".into()),
        samples: 40,
        chunk: Some(20),
        figures: figures.iter().map(|form| form.to_string()).collect(),
        until: vec![Until::parse(rule).unwrap()],
        ..folder.request()
    };
    // The point without such a class comes first. It has all its samples; the other one, whose
    // samples are equal, ends after a task.
    let kept: [(&str, &[&str]); 2] = [("all", &[]), ("some", &["voice.*"])];
    for (out, figures) in kept {
        let plan = Plan::new(request(figures, "ci95(voice.rate) < 1%")).unwrap();
        done_in_order(&plan, &folder.out(out)).unwrap();
        let summary = gather(&plan, &folder.out(out), Format::Csv, &[]).unwrap();
        let points: Vec<_> = summary.points.iter().map(|point| (point.samples, point.met)).collect();
        assert_eq!((points, summary.missing), (vec![(40, Some(false)), (20, Some(true))], Vec::new()));
        // All of it is there.
        done_in_order(&plan, &folder.out(out)).unwrap();
    }
    // A word that fits nothing is told once each point has been looked at, and not only in the end.
    let plan = Plan::new(request(&["voice.*", "vioce.*"], "ci95(voice.rate) < 1%")).unwrap();
    let wrong = done_in_order(&plan, &folder.out("wrong")).unwrap_err().to_string();
    assert!(wrong.contains(": its runs have no figure \"vioce.*\""), "{wrong}");
    assert_eq!(std::fs::read_dir(folder.out("wrong").join("parts")).unwrap().count(), 2);
}

#[test]
fn a_limit_is_compared_in_the_unit_of_its_figure() {
    let folder = Folder::new("units");
    let figures = CASE.replace("measure = \"offered\"", "measure = \"goodput\"").replace("packets/s", "Mbit/s");
    std::fs::write(folder.0.join("case.toml"), figures).unwrap();
    let plan = |rule| Plan::new(Request { until: vec![Until::parse(rule).unwrap()], ..folder.request() });
    assert_eq!(plan("ci95(figure.rate) < 100kbit/s").unwrap().until[0].below, Below::Number(0.1));
    assert_eq!(plan("ci95(f.p99) < 2ms").unwrap().until[0].below, Below::Number(2e6));
    for rule in ["ci95(figure.rate) < 2ms", "ci95(f.p99) < 2Mbit/s", "ci95(f.sent) < 1s"] {
        assert!(matches!(plan(rule), Err(SweepError::Wrong(_))), "{rule}");
    }
}

#[test]
fn each_shard_has_as_many_tasks_as_another() {
    let folder = Folder::new("shards");
    let shards = |request: Request, of: u32| -> Vec<Vec<bool>> {
        let plan = Plan::new(request).unwrap();
        (1..=of).map(|number| plan.of_shard(&plan.tasks(), Shard { number, of })).collect()
    };
    let counts = |shards: &[Vec<bool>]| -> Vec<usize> {
        shards.iter().map(|own| own.iter().filter(|own| **own).count()).collect()
    };
    let once = |shards: &[Vec<bool>]| (0..shards[0].len()).all(|at| shards.iter().filter(|own| own[at]).count() == 1);
    // 8 points of 6 samples, 3 at once: 16 tasks.
    let small = || Request { chunk: Some(3), ..folder.request() };
    let all = shards(small(), 16);
    assert!(once(&all) && counts(&all) == [1; 16]);
    let some = shards(small(), 5);
    assert!(once(&some) && counts(&some) == [4, 3, 3, 3, 3]);
    // With a rule the 8 points are dealt out, with both tasks of each.
    let until = vec![Until::parse("ci95(figure.rate) < 1%").unwrap()];
    let points = shards(Request { until, ..small() }, 4);
    assert!(once(&points) && counts(&points) == [4; 4]);
    assert!(points.iter().all(|own| own.chunks(2).all(|pair| pair[0] == pair[1])));
}

#[test]
fn what_is_asked_for_and_not_there_is_said() {
    let folder = Folder::new("asked");
    let path = folder.0.join("case.toml");
    let plan = Plan::new(Request { samples: 2, ..folder.request() }).unwrap();
    done(&plan, &folder.out("out"), &plan.tasks());
    let wrong = gather(&plan, &folder.out("out"), Format::Csv, &["figure.rat".into()]).unwrap_err().to_string();
    assert_eq!(
        wrong,
        format!("{}: its runs have no figure \"figure.rat\"; did you mean `figure.rate`?", path.display())
    );
    // A rule whose figure is not there, in tasks that have whole points.
    let until = vec![Until::parse("ci95(figure.rat) < 1%").unwrap()];
    let plan = Plan::new(Request { samples: 2, until, ..folder.request() }).unwrap();
    let summary = gather(&plan, &folder.out("out"), Format::Csv, &[]).unwrap();
    assert_eq!(summary.missing, ["figure.rat"]);
    assert!(summary.points.iter().all(|point| point.met == Some(false)));
    let stop = Arc::new(AtomicBool::new(true));
    let mut stopped = Runner::new(Job::of(&plan), None, stop);
    assert_eq!(run_task(&plan, &plan.tasks()[0], &mut stopped), None);
    let lines = |column: &str| Plan::new(Request { column: Some(column.into()), ..folder.request() });
    assert_eq!(lines("steady").unwrap().points.len(), 4);
    let unknown = format!("{}: it has no column \"stead\"; columns: random, steady", path.display());
    assert_eq!(lines("stead").unwrap_err().to_string(), unknown);
}

/// A worker that is not ready yet when all is to end is killed, and not started again.
#[test]
fn what_is_stopped_at_its_start_starts_nothing_more() {
    let folder = Folder::new("stopped");
    let plan = Plan::new(Request { samples: 2, ..folder.request() }).unwrap();
    let starts = AtomicU32::new(0);
    let worker = || {
        starts.fetch_add(1, Ordering::Relaxed);
        let mut command = Command::new("sleep");
        command.arg("100");
        command
    };
    let stopped = &mut || starts.load(Ordering::Relaxed) > 0;
    let done = Hand::new(Job::of(&plan)).run(&plan.runs_of(&plan.tasks()[0]), None, &worker, stopped);
    assert!(matches!(done, Err(SweepError::Stopped)));
    assert_eq!(starts.load(Ordering::Relaxed), 1);
}
