//! Which cases there are.

use std::path::{Path, PathBuf};

use crate::case::{CaseError, CaseFile};

/// Where cases are looked for when nothing is said.
pub const DEFAULT: &str = "cases/published";

/// Why there is nothing to run.
#[derive(Debug)]
pub enum FindError {
    /// A folder or file is not there.
    Missing(PathBuf, std::io::Error),
    /// There is no case in them.
    Empty(Vec<PathBuf>),
    /// No case has such a name.
    NoMatch(Vec<String>, Vec<String>),
    /// Two files have a case of one name.
    Twice(String, PathBuf, PathBuf),
    /// A case is wrong.
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
                    "{DEFAULT} is not here ({error}): go to altq's source folder, which has the published cases, or \
                     name cases with --cases FOLDER"
                )
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

/// The cases of these folders (whatever lies in them, however deep) and files, sorted by name; of
/// several `filters` one must be part of the name, none: all. The second list holds the folders,
/// where text that goes with the cases may lie.
pub fn find(places: &[PathBuf], filters: &[String]) -> Result<(Vec<CaseFile>, Vec<PathBuf>), FindError> {
    let usual = [PathBuf::from(DEFAULT)];
    let places = if places.is_empty() { &usual[..] } else { places };
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    for place in places {
        let kind = std::fs::metadata(place).map_err(|error| FindError::Missing(place.clone(), error))?;
        if kind.is_dir() {
            folders.push(place.clone());
            collect(place, &mut files).map_err(|error| FindError::Missing(place.clone(), error))?;
        } else {
            files.push(place.clone());
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
