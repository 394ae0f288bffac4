//! Looks for a policy and traffic that break a promise, for as long as it is told.
//!
//! ```text
//! cargo run --release -p altq-engine --example adversary -- --minutes 60 [--seed N] [--scheduler NAME] \
//!     [--threads N] [--out FOLDER] [--violations N] [--deep 1|2|3] \
//!     [--without WORDS] [--among NAME,NAME]
//! ```
//!
//! Prints how many pairs of a policy and its traffic were tried, and how near each scheduler came
//! to its bounds. What breaks a law is made small, printed, and with `--out` written as NAME.altq
//! and NAME.csv for `altq check` and `altq replay`; the exit code is 1 then. `--deep 1` leaves
//! nesting out; `--without WORDS`, which may be given more than once, passes over violations whose
//! message has these words; `--among` makes policies of these schedulers only.

#[path = "../tests/support/adversary/mod.rs"]
mod adversary;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use adversary::random::Random;
use adversary::{Found, all, minimise, schedulers, search};
use altq_engine::schedule;

struct Options {
    minutes: f64,
    seed: u64,
    scheduler: Option<&'static str>,
    /// Of which schedulers policies are made.
    among: Vec<&'static str>,
    threads: u64,
    out: Option<PathBuf>,
    /// How many violations end it.
    violations: usize,
    /// How deep schedulers are nested at most.
    deep: usize,
    /// Violations with one of these words in their message are passed over.
    without: Vec<String>,
}

fn named(name: &str) -> Result<&'static str, String> {
    schedule::find(name).map(|entry| entry.name).ok_or_else(|| format!("there is no scheduler `{name}`"))
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        minutes: 1.0,
        seed: 1,
        scheduler: None,
        among: all(),
        threads: 1,
        out: None,
        violations: 20,
        deep: 3,
        without: Vec::new(),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{word} takes a whole number, not `{value}`"));
        match word.as_str() {
            "--minutes" => {
                options.minutes = value.parse().map_err(|_| format!("--minutes takes a number, not `{value}`"))?;
            }
            "--seed" => options.seed = number()?,
            "--threads" => options.threads = number()?.max(1),
            "--violations" => options.violations = number()? as usize,
            "--without" => options.without.push(value),
            "--among" => options.among = value.split(',').map(named).collect::<Result<_, _>>()?,
            "--deep" => options.deep = number()?.clamp(1, 3) as usize,
            "--out" => options.out = Some(PathBuf::from(value)),
            "--scheduler" => options.scheduler = Some(named(&value)?),
            _ => return Err(format!("unknown option {word}")),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}");
            eprintln!(
                "usage: adversary [--minutes N] [--seed N] [--scheduler NAME] [--threads N] [--out FOLDER] \
                 [--violations N] [--deep 1|2|3] [--without WORDS] [--among NAME,NAME]"
            );
            return ExitCode::from(2);
        }
    };
    let begin = Instant::now();
    let end = begin + Duration::from_secs_f64(options.minutes * 60.0);
    let mut found = Found::default();
    std::thread::scope(|scope| {
        let hunt = |thread: u64| {
            let random = Random::new(options.seed.wrapping_mul(1_000_003).wrapping_add(thread));
            let (mut found, mut turn) = (Found::default(), 0);
            while Instant::now() < end && found.violations.len() < options.violations {
                let about = options.scheduler.unwrap_or(options.among[turn % options.among.len()]);
                found.add(search(
                    &random,
                    &schedulers(&random, &options.among, Some(about), options.deep),
                    &options.without,
                ));
                turn += 1;
            }
            found
        };
        let threads: Vec<_> = (0..options.threads).map(|thread| scope.spawn(move || hunt(thread))).collect();
        threads.into_iter().for_each(|thread| found.add(thread.join().expect("a search")));
    });
    let seconds = begin.elapsed().as_secs_f64();
    let speed = found.pairs as f64 / seconds;
    println!("{} pairs in {seconds:.0} s, {speed:.0} a second; seed {}", found.pairs, options.seed);
    let mut alone: BTreeMap<&str, f64> = BTreeMap::new();
    let mut within: BTreeMap<String, f64> = BTreeMap::new();
    for (path, near) in &found.nearest {
        match path[..] {
            [one] => {
                alone.insert(one, *near);
            }
            _ => {
                within.insert(path.join(" > "), *near);
            }
        }
    }
    println!("nearest to the bound, alone: {alone:.3?}");
    for (path, near) in &within {
        println!("  {path}: {near:.3}");
    }
    // One of each kind.
    let mut seen = Vec::new();
    for violation in found.violations {
        let small = minimise::minimise(violation);
        println!("BROKEN {}: {}", small.path.join(" > "), small.what);
        let name = format!("{}-{}-{}", small.path.join("-"), options.seed, seen.len());
        match &options.out {
            Some(folder) => {
                let write = |end: &str, text: String| {
                    let file = folder.join(format!("{name}.{end}"));
                    if let Err(error) = std::fs::write(&file, text) {
                        eprintln!("{}: {error}", file.display());
                    }
                };
                write("altq", small.policy_text());
                write("csv", small.trace());
            }
            None => println!("{}{}", small.policy_text(), small.trace()),
        }
        seen.push(name);
    }
    if seen.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) }
}
