//! `altq report`: pages of results, of measurements, and of what a running altq has kept
//! (docs/report.md).

mod past;

use std::path::{Path, PathBuf};

use altq_pages::flent;
use altq_pages::html::{self, PolicyText, Source, text::slug};
use altq_pages::load::{self, Loaded};
use altq_pages::measured::Measured;
use anyhow::Context as _;

use crate::clock;
use crate::exit::Exit;
use crate::export::Export;
use crate::output;
use crate::policy::{load_policy, shown};
use crate::socket::Socket;

/// Options of `altq report`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Results, as `altq sim --json` and `altq lab --json` print them, and measurements, as
    /// `altq traffic --json` and `altq run --json` print them; `-` reads stdin. Several results of
    /// one case are put together, and so are measurements
    #[arg(value_name = "RESULT", required_unless_present = "last")]
    results: Vec<PathBuf>,
    /// Makes a page of what a running altq did in the last 15m, 1h or 2d instead, as far as it has
    /// kept that
    #[arg(long, value_name = "TIME", value_parser = last, conflicts_with_all = ["results", "each", "flent", "policy"])]
    last: Option<u64>,
    /// With --last: this link only [default: all links]
    #[arg(long, value_name = "NAME", requires = "last")]
    link: Option<String>,
    #[command(flatten)]
    socket: Socket,
    /// File for the page [default: stdout]
    #[arg(
        short,
        long,
        visible_alias = "out",
        value_name = "FILE.html",
        value_parser = html_file,
        conflicts_with = "flent"
    )]
    output: Option<PathBuf>,
    /// Writes a page for each case and an index.html to this folder instead
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "flent"])]
    each: Option<PathBuf>,
    #[command(flatten)]
    export: Export,
    /// The column of the run that the flent file is about
    #[arg(long, value_name = "NAME", requires = "flent")]
    column: Option<String>,
    /// The row of the run that the flent file is about
    #[arg(long, value_name = "NAME", requires = "flent")]
    row: Option<String>,
    /// The heading of a page of measurements, of several cases, or of what a running altq did
    /// [default: Measurement, altq report, or What altq did]
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// The policy that was in force during a measurement, for the page
    #[arg(long, value_name = "FILE", conflicts_with_all = ["flent", "each"])]
    policy: Option<PathBuf>,
}

/// A time that is not over yet, in seconds, of a year at most.
fn last(word: &str) -> Result<u64, String> {
    let seconds = clock::span(word).filter(|seconds| (1..=366 * 86_400).contains(seconds));
    seconds.ok_or_else(|| "a time, such as 90s, 15m, 1h or 2d; a year at most".to_owned())
}

/// The name of the page's file. A name that promises another format than HTML is refused.
fn html_file(name: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(name);
    match path.extension().and_then(|extension| extension.to_str()) {
        Some(extension) if !["html", "htm"].iter().any(|known| extension.eq_ignore_ascii_case(known)) => {
            Err(format!("pages are HTML, not {extension}; name it {}", path.with_extension("html").display()))
        }
        _ => Ok(path),
    }
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    if let Some(seconds) = args.last {
        return past::run(args, seconds);
    }
    if args.socket.is_given() {
        eprintln!("altq report: --socket is for --last, which asks a running altq; results are read from files");
        return Ok(Exit::Usage);
    }
    let (mut loaded, mut measured, mut notes): (Vec<Loaded>, _, _) = (Vec::new(), Measured::default(), Vec::new());
    for path in &args.results {
        match load::contents(path) {
            Ok(contents) => {
                loaded.extend(contents.results);
                measured.add(&path.display().to_string(), contents.measured);
                if let Some(error) = contents.error {
                    eprintln!("altq report: {error}");
                    notes.push(format!("{}; the page shows what comes before", first_line(&error.to_string())));
                }
            }
            Err(error) => {
                eprintln!("altq report: {error}");
                return Ok(Exit::Usage);
            }
        }
    }
    if !measured.is_empty() {
        return of_measurement(args, &measured, &loaded, &notes);
    }
    if args.policy.is_some() {
        eprintln!("altq report: --policy belongs to a measurement, and none was given; results name their policies");
        return Ok(Exit::Usage);
    }
    if args.export.flent.is_some() {
        return as_flent(args, &loaded);
    }
    let sources: Vec<Source<'_>> = loaded.iter().map(Loaded::source).collect();
    if let Some(folder) = &args.each {
        std::fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
        let pages = each(args.title.as_deref().unwrap_or(TITLE), &sources);
        for (name, page) in &pages {
            write(&folder.join(name), page)?;
        }
        eprintln!("altq report: {} pages in {}", pages.len(), folder.display());
        return Ok(Exit::Ok);
    }
    let title = match sources.as_slice() {
        [one] => one.result.case.clone(),
        _ => args.title.clone().unwrap_or_else(|| TITLE.into()),
    };
    give(args, &html::page(&title, &sources))
}

/// The heading of several cases.
const TITLE: &str = "altq report";

/// The page of measurements, with results of cases below them. If a file could be read in part
/// only, the page shows that part, and the exit code is [`Exit::Failed`].
fn of_measurement(args: &Args, measured: &Measured, loaded: &[Loaded], notes: &[String]) -> anyhow::Result<Exit> {
    if args.export.flent.is_some() || args.each.is_some() {
        eprintln!("altq report: a measurement becomes one page; --flent and --each take results of cases");
        return Ok(Exit::Usage);
    }
    let mut policy = None;
    if let Some(path) = &args.policy {
        let Some(read) = load_policy(path, None) else { return Ok(Exit::Usage) };
        let text = read.sources.texts.first().map_or(String::new(), |(_, text)| text.clone());
        policy = Some((shown(path), text));
    }
    let policy = policy.as_ref().map(|(name, text)| PolicyText { name, text });
    let sources: Vec<Source<'_>> = loaded.iter().map(Loaded::source).collect();
    let title = args.title.as_deref().unwrap_or("Measurement");
    let exit = give(args, &html::measured_page(title, measured, policy, notes, &sources))?;
    Ok(if notes.is_empty() { exit } else { Exit::Failed })
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or(text)
}

/// Writes the page to its file, or to standard output.
fn give(args: &Args, page: &str) -> anyhow::Result<Exit> {
    match &args.output {
        Some(path) => {
            write(path, page)?;
            eprintln!("altq report: the page is in {}", path.display());
        }
        None => output::print(page)?,
    }
    Ok(Exit::Ok)
}

/// Writes one run as a flent file.
fn as_flent(args: &Args, loaded: &[Loaded]) -> anyhow::Result<Exit> {
    let [one] = loaded else {
        eprintln!("altq report: a flent file takes one result; {} were given", loaded.len());
        return Ok(Exit::Usage);
    };
    let (column, row) = (args.column.as_deref(), args.row.as_deref());
    let known = || flent::run(&one.result, column, row).map(|_| ()).map_err(|error| error.to_string());
    if let Err(message) = args.export.check_path().and_then(|()| known()) {
        eprintln!("altq report: {message}");
        return Ok(Exit::Usage);
    }
    args.export.write(&one.result, column, row)?;
    Ok(Exit::Ok)
}

/// A page for each case, with its file name, and the index.
fn each(title: &str, sources: &[Source<'_>]) -> Vec<(String, String)> {
    let name = |case: &str| format!("{}.html", slug(case));
    let page = |(case, own): (&str, Vec<&Source<'_>>)| {
        let own: Vec<Source<'_>> =
            own.into_iter().map(|s| Source { result: s.result, json: s.json, file: s.file }).collect();
        (name(case), html::page(case, &own))
    };
    let mut pages: Vec<(String, String)> = html::cases(sources).into_iter().map(page).collect();
    pages.push(("index.html".into(), html::index(title, sources, &name)));
    pages
}

/// Writes a file; the error names the file.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        assert_eq!(["90s", "15m", "1h", "2d", "366d"].map(last), [90, 900, 3600, 172_800, 31_622_400].map(Ok));
        for word in ["", "1", "0s", "h", "-1h", "1.5h", "367d", "1w", "99999999999999999999d"] {
            assert!(last(word).is_err(), "{word}");
        }
    }
}
