//! Finds the cases in folders.

use std::path::{Path, PathBuf};

use crate::built_in;
use crate::case::{CaseError, CaseFile};

/// The folder in which cases are looked for by default.
pub const DEFAULT: &str = "cases/published";

/// Why no cases can be run.
#[derive(Debug)]
pub enum FindError {
    /// A folder or file does not exist.
    Missing(PathBuf, std::io::Error),
    /// The folders contain no case.
    Empty(Vec<PathBuf>),
    /// No case has one of these texts in its name; the second list has the names of all cases.
    NoMatch(Vec<String>, Vec<String>),
    /// Two files have cases with the same name.
    Twice(String, PathBuf, PathBuf),
    /// A case has an error.
    Case(Box<CaseError>),
}

impl std::fmt::Display for FindError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let list =
            |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        match self {
            FindError::Missing(path, error) if path.as_os_str() == DEFAULT => {
                write!(
                    f,
                    "{DEFAULT} is not here ({error}), and this altq has no cases inside: go to its source folder, \
                     which has the published cases, or name cases with --cases FOLDER"
                )
            }
            FindError::Missing(path, error) if built_in::files().next().is_some() => {
                write!(f, "{}: {error}; nor is it inside altq (`altq examples` lists what is)", path.display())
            }
            FindError::Missing(path, error) => write!(f, "{}: {error}", path.display()),
            FindError::Empty(paths) => write!(f, "there is no case (a .toml file, docs/cases.md) in {}", list(paths)),
            FindError::NoMatch(filters, names) => {
                write!(f, "no case has {} in its name; cases: {}", filters.join(" or "), names.join(", "))
            }
            FindError::Twice(name, one, two) => {
                write!(
                    f,
                    "{} and {} are both called {name}: results are told apart by name",
                    one.display(),
                    two.display()
                )
            }
            FindError::Case(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for FindError {}

/// The cases in these folders, at any depth, and in these files, sorted by name. A folder, file or
/// case that is not on the disk may be [inside the program](built_in). If there are
/// `filters`, the name must contain one of them. The second list has the folders, which may hold
/// text that belongs to the cases.
pub fn find(places: &[PathBuf], filters: &[String]) -> Result<(Vec<CaseFile>, Vec<PathBuf>), FindError> {
    let usual = [PathBuf::from(DEFAULT)];
    let places = if places.is_empty() { &usual[..] } else { places };
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    for place in places {
        let missing = |error| FindError::Missing(place.clone(), error);
        match std::fs::metadata(place) {
            Ok(kind) if kind.is_dir() => {
                folders.push(place.clone());
                collect(place, &mut files).map_err(missing)?;
            }
            Ok(_) => files.push(place.clone()),
            // What is not on the disk may be inside the program.
            Err(error) => match inside(place).filter(|_| error.kind() == std::io::ErrorKind::NotFound) {
                Some(path) if path.extension().is_some() => files.push(path),
                Some(folder) => {
                    files.extend(built_in::cases_of(&folder));
                    folders.push(folder);
                }
                None => return Err(missing(error)),
            },
        }
    }
    files.sort();
    files.dedup();
    if files.is_empty() {
        return Err(FindError::Empty(places.to_vec()));
    }
    let mut cases: Vec<CaseFile> = Vec::new();
    for path in &files {
        let case = CaseFile::load(path).map_err(|error| FindError::Case(Box::new(error)))?;
        if let Some(other) = cases.iter().find(|other| other.name == case.name) {
            return Err(FindError::Twice(case.name.clone(), other.path.clone(), case.path));
        }
        cases.push(case);
    }
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    if !filters.is_empty() {
        let names: Vec<String> = cases.iter().map(|case| case.name.clone()).collect();
        cases.retain(|case| filters.iter().any(|filter| case.name.contains(filter.as_str())));
        if cases.is_empty() {
            return Err(FindError::NoMatch(filters.to_vec(), names));
        }
    }
    Ok((cases, folders))
}

/// A folder, file or case inside the program, by its path or by the case's name.
fn inside(place: &Path) -> Option<PathBuf> {
    let name = place.to_str()?;
    let name = name.strip_prefix(built_in::MARK).unwrap_or(name);
    built_in::place(Path::new(name)).or_else(|| built_in::case(name))
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    Ok(())
}
