//! `altq experiments`: runs many cases and collects their results (docs/experiments.md).

pub mod documents;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use altq_cases::built_in;
use altq_cases::case::CaseFile;
use altq_cases::find::{self, FindError};
use altq_cases::result::World;
use altq_cases::task::{Outcome, Task};
use altq_dataplane::signal::Watch;
use altq_dataplane::stop::Stop;
use altq_lab::Options;
use altq_lab::side_by_side::{self, Bound, InLab};
use altq_pages::document::{self, Missing};
use altq_pages::results::{self, Results, page_name};
use altq_pages::stat::tc;
use altq_simulator::pool::{self, Seeds};
use anyhow::Context as _;

use crate::exit::Exit;
use crate::output;
use crate::progress::Tasks;
use documents::{FailingSeed, Verdict};

/// Options of `altq experiments`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Runs cases side by side, and writes results, pages, an index and EXPERIMENTS.md
    Run(Run),
    /// Lists the cases
    List(List),
}

/// Options of `altq experiments run`.
#[derive(Debug, clap::Args)]
struct Run {
    /// Only cases whose names contain one of these texts
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
    /// Folders and files of cases, on the disk or else inside altq [default: cases/published]
    #[arg(long, value_name = "PATH")]
    cases: Vec<PathBuf>,
    /// Where to run: in virtual time (sim), in network namespaces with the kernel's own TCP (lab,
    /// needs root), or both
    #[arg(long, value_enum, default_value_t = Where::Sim)]
    world: Where,
    /// Folder for the results; results of cases that are not run now stay there
    #[arg(long, value_name = "DIR", default_value = "experiments")]
    out: PathBuf,
    /// How many cases run at once in virtual time [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// How many runs of the lab go at once; 1: one after another [default: 8 per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    lab_jobs: Option<u16>,
    /// How often a run of the lab is repeated that the host disturbed: other machines took its
    /// processors, or its timers were late
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(..=100))]
    lab_again: u32,
    /// Seed of every random choice [default: each case's own]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Runs of each case in virtual time, each with a seed of its own: promises are judged by the
    /// mean, and the seeds at which a case alone fails are named [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    samples: Option<u32>,
    /// Only cases that have no valid result in the folder yet, made by this version from the case
    /// as it is now: goes on after an interruption, and repeats what was INVALID
    #[arg(long)]
    missing: bool,
    /// Also writes EXPERIMENTS.md to this file, with links to the case files instead of the pages
    #[arg(long, value_name = "FILE.md")]
    document: Option<PathBuf>,
    /// Prints a summary as JSON
    #[arg(long)]
    json: bool,
}

/// Options of `altq experiments list`.
#[derive(Debug, clap::Args)]
struct List {
    /// Only cases whose names contain one of these texts
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
    /// Folders and files of cases, on the disk or else inside altq [default: cases/published]
    #[arg(long, value_name = "PATH")]
    cases: Vec<PathBuf>,
    /// Also shows what the lab can run of each case, and how long that takes
    #[arg(long)]
    lab: bool,
    /// Prints the list as JSON
    #[arg(long)]
    json: bool,
}

/// Where cases run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Where {
    Sim,
    Lab,
    Both,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let (places, filters) = match &args.what {
        What::Run(run) => (&run.cases, &run.filters),
        What::List(list) => (&list.cases, &list.filters),
    };
    let (cases, folders) = match find::find(places, filters) {
        Ok(found) => found,
        Err(error) => {
            eprintln!("altq experiments: {error}");
            return Ok(if matches!(error, FindError::Missing(..)) { Exit::Failed } else { Exit::Usage });
        }
    };
    match &args.what {
        What::List(list) => listed(&cases, list),
        What::Run(run) => experiments(run, cases, &folders),
    }
}

/// Prints the list of cases.
fn listed(cases: &[CaseFile], args: &List) -> anyhow::Result<Exit> {
    if args.json {
        let whole = || documents::WholeLab { seconds: alone(cases), side_by_side_seconds: together(cases) };
        output::print_json(&documents::List {
            cases: cases.iter().map(|case| described(case, args.lab)).collect(),
            lab: args.lab.then(whole),
            schema: "altq.experiments_list/1",
        })?;
        return Ok(Exit::Ok);
    }
    let mut rows = vec![["case", "rows", "columns", "runs", "published in"].map(str::to_owned).to_vec()];
    if args.lab {
        rows[0].push("in the lab".into());
    }
    for case in cases {
        let columns = if case.columns.is_empty() { "-".into() } else { case.columns.join(" ") };
        let published = case.published_in.clone().unwrap_or("-".into());
        let mut row =
            vec![case.name.clone(), case.rows.len().to_string(), columns, case.runs.len().to_string(), published];
        if args.lab {
            row.push(match in_lab(case) {
                (0, why) => format!("no: {}", why.join("; ")),
                (seconds, why) if why.is_empty() => format!("{seconds} s"),
                (seconds, why) => format!("{seconds} s, not all: {}", why.join("; ")),
            });
        }
        rows.push(row);
    }
    let mut text = output::table(&rows);
    if args.lab {
        let (one, many) = (alone(cases), together(cases));
        text += &format!(
            "\nAll of it in the lab: about {} side by side, {} one run after another.\n",
            time(many),
            time(one)
        );
    }
    output::print(&text)?;
    Ok(Exit::Ok)
}

/// A case as `--json` lists it.
fn described(case: &CaseFile, lab: bool) -> documents::Listed<'_> {
    let in_lab = || {
        let (seconds, left_out) = in_lab(case);
        documents::InLab { left_out, seconds }
    };
    documents::Listed {
        columns: &case.columns,
        description: case.description.trim(),
        file: &case.path,
        lab: lab.then(in_lab),
        name: &case.name,
        published_in: case.published_in.as_deref(),
        rows: case.rows.len(),
        runs: case.runs.len(),
    }
}

/// Seconds as a text for people.
fn time(seconds: u64) -> String {
    match (seconds / 3600, seconds.div_ceil(60)) {
        (0, _) if seconds < 100 => format!("{seconds} s"),
        (0, minutes) => format!("{minutes} min"),
        (hours, _) => format!("{hours} h {} min", seconds % 3600 / 60),
    }
}

/// The path of each case file relative to the document, by the case's name, for links.
fn links(document: &Path, cases: &[CaseFile]) -> anyhow::Result<BTreeMap<String, String>> {
    let folder = match document.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if cases.iter().any(|case| built_in::is_inside(&case.path)) {
        let why = "--document links to the files of cases, and these are inside altq";
        anyhow::bail!("{why}; `altq examples --out DIR` writes them out, then --cases DIR/cases/published names them");
    }
    let link = |case: &CaseFile| Ok((case.name.clone(), document::relative(folder, &case.path)?));
    cases
        .iter()
        .map(link)
        .collect::<std::io::Result<_>>()
        .with_context(|| format!("{} cannot be written", document.display()))
}

/// How many seconds the lab takes for a case, 0 if it can run nothing of it, and the reasons for
/// what it leaves out.
fn in_lab(case: &CaseFile) -> (u64, Vec<String>) {
    let mut file = case.clone();
    let options = Options::of_case(case, None, tc::measured);
    let left_out = altq_lab::retain_possible(&mut file, &options);
    (side_by_side::time(&file, &options).div_ceil(1000), left_out.reasons)
}

/// How many seconds the lab takes for all cases if runs go one after another.
fn alone(cases: &[CaseFile]) -> u64 {
    cases.iter().map(|case| in_lab(case).0).sum()
}

/// The number of processors of this host.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// How many seconds the lab takes for all cases if as many runs go side by side as this host can
/// carry.
fn together(cases: &[CaseFile]) -> u64 {
    let task = |case: &CaseFile| Task { file: Arc::new(case.clone()), world: World::Lab };
    let in_lab =
        InLab::new(cases.iter().map(task).collect(), None, 0, Bound::new(processors(), None), tc::measured, |_, _| {});
    in_lab.time().div_ceil(1000)
}

fn experiments(args: &Run, cases: Vec<CaseFile>, folders: &[PathBuf]) -> anyhow::Result<Exit> {
    let worlds: &[World] = match args.world {
        Where::Sim => &[World::Sim],
        Where::Lab => &[World::Lab],
        Where::Both => &[World::Sim, World::Lab],
    };
    if args.samples.is_some() && !worlds.contains(&World::Sim) {
        eprintln!("altq experiments: --samples is about seeds, and the lab runs in real time; leave it out");
        return Ok(Exit::Usage);
    }
    if worlds.contains(&World::Lab)
        && let Err(lacking) = altq_lab::topology::possible()
    {
        eprintln!("altq experiments: {lacking:#}; --world sim needs none of it");
        return Ok(Exit::of(&lacking));
    }
    // The summary has all cases of these folders, whether they run now or ran earlier.
    let (all, _) = find::find(&args.cases, &[]).map_err(|error| anyhow::anyhow!("{error}"))?;
    // Checked before anything runs: a document that cannot be written is an error.
    let files = args.document.as_deref().map(|path| links(path, &all)).transpose()?.unwrap_or_default();
    let mut results = Results::open(&args.out, &all, |told| eprintln!("altq experiments: {told}"))?;
    let stop = Stop::new().context("signals cannot be watched")?;
    let watch = Watch::new().context("signals cannot be watched")?;
    watch.stop_on_signal(stop.clone()).context("signals cannot be watched")?;

    let cases: Vec<Arc<CaseFile>> = cases.into_iter().map(Arc::new).collect();
    let tasks: Vec<Task> =
        worlds.iter().flat_map(|world| cases.iter().map(|file| Task { file: file.clone(), world: *world })).collect();
    // A result that is valid stays, whatever it says: a promise that was broken is not tried again
    // until it holds.
    let there = |task: &Task| results.has_valid(&task.file.name, task.world);
    let tasks: Vec<Task> = tasks.into_iter().filter(|task| !(args.missing && there(task))).collect();
    if args.missing && tasks.is_empty() {
        eprintln!("altq experiments: {} has a valid result of each case; nothing runs", args.out.display());
    }
    let lab = Bound::new(processors(), args.lab_jobs.map(usize::from));
    let jobs = args.jobs.map_or_else(processors, usize::from);
    let (wanted, mut rows, mut missing, mut failed) = (tasks.len(), Vec::new(), Vec::new(), None);
    let (mut differ, mut broken) = (false, false);
    let mut verdicts = std::collections::BTreeMap::<&str, u32>::new();
    let mut finished = |task: Task, outcome: Outcome| {
        let name = &task.file.name;
        let mut fails_at = None;
        let (word, why) = match outcome {
            Outcome::Done(result) => {
                let kept = result.expectations.iter().filter(|outcome| outcome.pass).count();
                let word = if !result.valid {
                    "INVALID"
                } else if result.passed() {
                    "PASS"
                } else {
                    "FAIL"
                };
                let mut text = format!("{kept} of {} promises", result.expectations.len());
                if !result.seeds.is_empty() {
                    text += &format!(" by the mean of {} seeds", result.seeds.len());
                }
                let alone = result.seeds_that_fail();
                if !alone.is_empty() {
                    let each: Vec<String> =
                        alone.iter().map(|(seed, promises)| format!("{seed} ({promises})")).collect();
                    text += &format!("; alone fail seed (promises) {}", each.join(", "));
                }
                let seeds = alone.iter().map(|(seed, promises)| FailingSeed { promises: *promises, seed: *seed });
                fails_at = (!result.seeds.is_empty()).then(|| seeds.collect());
                differ |= !result.passed();
                if let Err(error) = results.add(*result) {
                    failed.get_or_insert(error);
                }
                (word, text)
            }
            Outcome::Cannot(why) => {
                missing.push(Missing { case: name.clone(), world: task.world, why: why.clone() });
                ("SKIP", why)
            }
            Outcome::Failed(why) => {
                broken = true;
                missing.push(Missing { case: name.clone(), world: task.world, why: format!("it failed: {why}") });
                ("ERROR", why)
            }
        };
        *verdicts.entry(word).or_default() += 1;
        let world = task.world.name();
        if args.json {
            rows.push(Verdict { case: name.clone(), note: why, seeds_that_fail: fails_at, verdict: word, world });
        } else {
            // Each outcome is printed as soon as it is known.
            let _ = output::print(&format!("{word:8} {world}  {name}: {why}\n"));
        }
    };
    let (simulated, in_lab): (Vec<Task>, Vec<Task>) = tasks.into_iter().partition(|task| task.world == World::Sim);
    let in_lab = InLab::new(in_lab, args.seed, args.lab_again, lab, tc::measured, &mut finished);
    let seeds = Seeds { first: args.seed, samples: args.samples.unwrap_or(1) };
    let simulation = simulated.iter().map(|task| pool::time(&task.file)).sum::<u64>() * u64::from(seeds.samples);
    let mut progress = Tasks::new(simulation, in_lab.time(), stop.clone(), finished);
    let stopped = pool::run(simulated, jobs, seeds, tc::measured, &mut progress) || {
        progress.next();
        in_lab.run(&mut progress)
    };
    progress.clear();
    drop(progress);
    if let Some(error) = failed {
        return Err(error.into());
    }
    // Cases that none of these worlds can run are listed even if the filters left them out.
    let said: Vec<String> = missing.iter().map(|one| one.case.clone()).collect();
    for case in all.iter().filter(|case| !said.contains(&case.name)) {
        let why = worlds.iter().map(|world| Some((*world, case.elsewhere(*world)?))).collect::<Option<Vec<_>>>();
        let known = results.sources().iter().any(|source| source.result.case == case.name);
        for (world, why) in why.into_iter().flatten().filter(|_| !known) {
            missing.push(Missing { case: case.name.clone(), world, why: why.to_owned() });
        }
    }
    missing.sort_by(|a, b| (&a.case, a.world as u8).cmp(&(&b.case, b.world as u8)));
    let text = |link: &dyn Fn(&str) -> String| document::document(folders, &results.sources(), &missing, link);
    results.finish(&text(&page_name)?)?;
    if let Some(path) = &args.document {
        results::write(path, &text(&|case| files.get(case).cloned().unwrap_or_default())?)?;
    }
    if args.json {
        output::print_json(&documents::Ran { interrupted: stopped, results: rows, schema: "altq.experiments/1" })?;
    }
    if stopped {
        eprintln!("altq experiments: interrupted; what was finished of {wanted} is in {}", args.out.display());
        return Ok(Exit::Failed);
    }
    let said: Vec<String> = verdicts.iter().map(|(word, n)| format!("{n} {word}")).collect();
    if !said.is_empty() {
        eprintln!("altq experiments: {}", said.join(", "));
    }
    eprintln!(
        "altq experiments: index.html, EXPERIMENTS.md, a page and the results of each case are in {}",
        args.out.display()
    );
    if !verdicts.is_empty() && verdicts.keys().all(|word| *word == "SKIP") {
        return Ok(Exit::Unsupported);
    }
    Ok(match (broken, differ) {
        (true, _) => Exit::Failed,
        (false, true) => Exit::Differs,
        (false, false) => Exit::Ok,
    })
}
