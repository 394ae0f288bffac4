//! `altq examples`: lists the cases and examples inside the program, prints one, or writes them to
//! a folder (docs/cases.md).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use altq_cases::built_in::{self, MARK};
use altq_cases::case::CaseFile;
use altq_cases::made;
use altq_config::suggest::nearest;
use anyhow::Context as _;

use crate::exit::Exit;
use crate::output;

/// Options of `altq examples`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A case by its name, or a file or folder of the list by its path [default: all]
    name: Option<String>,
    /// Writes the files into this folder instead, which is made if it is not there; of a case also
    /// the files that it names. A file that is there and differs is not replaced
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Runs the command. The exit code is 2 if there is nothing of that name, and 5 if a file of the
/// folder would have to be replaced.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let chosen = match &args.name {
        None => built_in::files().map(|(path, _)| path).collect(),
        Some(name) => match chosen(name) {
            Some(paths) => paths,
            None => {
                eprintln!("altq examples: {}", unknown(name));
                return Ok(Exit::Usage);
            }
        },
    };
    if let Some(folder) = &args.out {
        return write(folder, &with_their_files(&chosen)?);
    }
    let one = args.name.is_some().then(|| chosen.iter().next().filter(|_| chosen.len() == 1)).flatten();
    match one {
        Some(path) => output::print(&built_in::read_to_string(&inside(path))?)?,
        None => output::print(&list(&chosen))?,
    }
    Ok(Exit::Ok)
}

/// The files that a name means: one, or those of a folder.
fn chosen(name: &str) -> Option<BTreeSet<&'static str>> {
    let name = name.strip_prefix(MARK).unwrap_or(name);
    let place = built_in::case(name).or_else(|| built_in::place(Path::new(name)))?;
    let place = place.to_str()?.strip_prefix(MARK)?.to_owned();
    let below = |path: &str| path.strip_prefix(place.as_str()).is_some_and(|rest| rest.starts_with('/'));
    Some(built_in::files().map(|(path, _)| path).filter(|path| *path == place || below(path)).collect())
}

fn unknown(name: &str) -> String {
    let words: Vec<&str> = built_in::cases().map(|(name, _)| name).chain(built_in::files().map(|(p, _)| p)).collect();
    let hint =
        nearest(name, words).map_or("`altq examples` lists them".to_owned(), |near| format!("did you mean `{near}`?"));
    format!("there is no case, file or folder {name:?} inside altq: {hint}")
}

fn inside(path: &str) -> PathBuf {
    PathBuf::from(format!("{MARK}{path}"))
}

/// One line for each file: its path, and if it is a case the name by which commands take it.
fn list(paths: &BTreeSet<&str>) -> String {
    let names: BTreeMap<PathBuf, &str> = built_in::cases().map(|(name, path)| (path, name)).collect();
    let width = paths.iter().map(|path| path.len()).max().unwrap_or(0);
    let line = |path: &&str| match names.get(&inside(path)) {
        Some(name) => format!("{path:width$}  {name}\n"),
        None => format!("{path}\n"),
    };
    paths.iter().map(line).collect()
}

/// The files and contents, and the files that the cases among them name.
fn with_their_files(paths: &BTreeSet<&'static str>) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let mut all = BTreeMap::new();
    for path in paths {
        all.insert((*path).to_owned(), built_in::read(&inside(path))?);
        if path.ends_with(".toml") {
            let case = CaseFile::load(&inside(path))?;
            for file in made::made(&case).files {
                if let Some(path) = built_in::normal(Path::new(&file.file)) {
                    let content = built_in::read(Path::new(&file.file))?;
                    all.insert(path, content);
                }
            }
        }
    }
    Ok(all)
}

/// Writes the files below a folder. Nothing is written if one of them is there with other content.
fn write(folder: &Path, files: &BTreeMap<String, Vec<u8>>) -> anyhow::Result<Exit> {
    let (mut differ, mut wanted) = (Vec::new(), Vec::new());
    for (name, content) in files {
        let path = folder.join(name);
        match std::fs::read(&path) {
            Ok(there) if there == *content => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => wanted.push((path, content)),
            Ok(_) | Err(_) => differ.push(path.display().to_string()),
        }
    }
    if !differ.is_empty() {
        let (list, count) = (differ.join(", "), differ.len());
        eprintln!("altq examples: {count} of the files are there and are not the same, so nothing is written: {list}");
        eprintln!("altq examples: name another folder, or move them away");
        return Ok(Exit::Refused);
    }
    for (path, content) in &wanted {
        let whose = || format!("{} cannot be written", path.display());
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).with_context(whose)?;
        }
        // Scripts are there to be run.
        let mode = if content.starts_with(b"#!") { 0o777 } else { 0o666 };
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path).with_context(whose)?;
        file.write_all(content).with_context(whose)?;
    }
    let (new, all) = (wanted.len(), files.len());
    eprintln!("altq examples: {all} files are in {}, {new} of them new", folder.display());
    Ok(Exit::Ok)
}
