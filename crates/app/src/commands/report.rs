//! `altq report`: pages of results (docs/report.md).

use std::path::{Path, PathBuf};

use altq_simulator::html::{self, Source, text::slug};
use anyhow::Context as _;

use crate::exit::Exit;
use crate::output;
use crate::report::flent::{self, Test};
use crate::report::load::{self, Loaded};

/// Options of `altq report`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Results as `altq sim --json` and `altq lab --json` print them; `-`: stdin. Those of one case stand together
    #[arg(value_name = "RESULT", required = true)]
    results: Vec<PathBuf>,
    /// Where the page goes [default: stdout]
    #[arg(short, long, value_name = "FILE.html")]
    output: Option<PathBuf>,
    /// A page a case and an index.html instead, in this folder
    #[arg(long, value_name = "DIR", conflicts_with = "output")]
    each: Option<PathBuf>,
    /// Writes the run as a file of flent's instead of a page, which `flent -i` opens, prints and plots
    #[arg(long, value_name = "FILE.flent.gz", conflicts_with_all = ["output", "each"])]
    flent: Option<PathBuf>,
    /// The test of flent's that it stands for
    #[arg(long, value_enum, default_value_t = Test::TcpNup, requires = "flent")]
    flent_test: Test,
    /// The column of it
    #[arg(long, value_name = "NAME", requires = "flent")]
    column: Option<String>,
    /// The row of it
    #[arg(long, value_name = "NAME", requires = "flent")]
    row: Option<String>,
    /// The heading where there are several cases
    #[arg(long, value_name = "TEXT", default_value = "altq report")]
    title: String,
}

/// Runs it.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let mut loaded: Vec<Loaded> = Vec::new();
    for path in &args.results {
        match load::load(path) {
            Ok(results) => loaded.extend(results),
            Err(error) => {
                eprintln!("altq report: {error}");
                return Ok(Exit::Usage);
            }
        }
    }
    if let Some(path) = &args.flent {
        return as_flent(args, path, &loaded);
    }
    let sources: Vec<Source<'_>> = loaded.iter().map(Loaded::source).collect();
    if let Some(folder) = &args.each {
        std::fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
        let pages = each(&args.title, &sources);
        for (name, page) in &pages {
            write(&folder.join(name), page)?;
        }
        eprintln!("altq report: {} pages in {}", pages.len(), folder.display());
        return Ok(Exit::Ok);
    }
    let title = match sources.as_slice() {
        [one] => one.result.case.clone(),
        _ => args.title.clone(),
    };
    let page = html::page(&title, &sources);
    match &args.output {
        Some(path) => write(path, &page)?,
        None => output::print(&page)?,
    }
    Ok(Exit::Ok)
}

/// Writes a run as a file of flent's.
fn as_flent(args: &Args, path: &Path, loaded: &[Loaded]) -> anyhow::Result<Exit> {
    let [one] = loaded else {
        eprintln!("altq report: a file of flent is of one result; there are {}", loaded.len());
        return Ok(Exit::Usage);
    };
    if !path.to_string_lossy().ends_with(".flent.gz") {
        eprintln!("altq report: {}: flent tells its files by their names; end it with .flent.gz", path.display());
        return Ok(Exit::Usage);
    }
    match flent::pick(&one.result, args.column.as_deref(), args.row.as_deref()) {
        Ok(run) => {
            let bytes = flent::file(&one.result, run, args.flent_test)?;
            std::fs::write(path, bytes).with_context(|| format!("{} cannot be written", path.display()))?;
            Ok(Exit::Ok)
        }
        Err(message) => {
            eprintln!("altq report: {message}");
            Ok(Exit::Usage)
        }
    }
}

/// A page a case, by file name, and the index.
fn each(title: &str, sources: &[Source<'_>]) -> Vec<(String, String)> {
    let name = |case: &str| format!("{}.html", slug(case));
    let page = |(case, own): (&str, Vec<&Source<'_>>)| {
        let own: Vec<Source<'_>> = own.into_iter().map(|s| Source { result: s.result, json: s.json, file: s.file }).collect();
        (name(case), html::page(case, &own))
    };
    let mut pages: Vec<(String, String)> = html::cases(sources).into_iter().map(page).collect();
    pages.push(("index.html".into(), html::index(title, "", sources, &name)));
    pages
}

/// Writes a file, or says which one could not be written.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))
}
