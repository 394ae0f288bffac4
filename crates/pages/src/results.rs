//! Results in a folder: each result's JSON and the page of its case as soon as it is there, and at
//! the end the index and EXPERIMENTS.md.

use std::path::{Path, PathBuf};

use altq_cases::case::CaseFile;
use altq_cases::made;
use altq_cases::result::{CaseResult, World};

use crate::html::{self, Source, text::slug};
use crate::load::{self, Loaded};

/// Why results cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// The folder does not exist and cannot be made.
    #[error("{} cannot be made (--out names another folder)", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The path ends in `..` or is the root of the file system.
    #[error("{} is no name of a file", .0.display())]
    NoFileName(PathBuf),
    /// A file cannot be written.
    #[error("{} cannot be written", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A result cannot be written as JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// The folder of the results.
pub struct Results {
    folder: PathBuf,
    /// The results in it, by file name.
    kept: Vec<(String, Loaded)>,
}

impl Results {
    /// Opens a folder, or makes it. Of the results in it, those of `cases` that were made from the
    /// case files as they are now are kept, so that a run of some cases, or of one world, adds to
    /// earlier runs. `warn` is called with the reason why a result is left out.
    /// # Errors
    /// If the folder does not exist and cannot be made.
    pub fn open(folder: &Path, cases: &[CaseFile], mut warn: impl FnMut(String)) -> Result<Results, ResultsError> {
        std::fs::create_dir_all(folder).map_err(|source| ResultsError::Folder { folder: folder.to_owned(), source })?;
        let mut kept = Vec::new();
        for case in cases {
            for world in [World::Sim, World::Lab] {
                let name = file_name(&case.name, world);
                let path = folder.join(&name);
                if !path.exists() {
                    continue;
                }
                match load::load(&path) {
                    Err(error) => warn(format!("left out: {error}")),
                    Ok(loaded) => {
                        let Some(loaded) = loaded.into_iter().next() else { continue };
                        let now = made::made(case).files;
                        let same = |made: &altq_cases::result::Made| {
                            made.version == env!("CARGO_PKG_VERSION")
                                && now.iter().all(|file| made.files.iter().any(|f| f.sha256 == file.sha256))
                        };
                        if loaded.result.made.as_ref().is_some_and(same) {
                            kept.push((name, loaded));
                        } else {
                            warn(format!("{}: left out: it was made from another version of the case", path.display()));
                        }
                    }
                }
            }
        }
        Ok(Results { folder: folder.to_owned(), kept })
    }

    /// True if a case has a valid result in a world, whether it kept its promises or not.
    pub fn has_valid(&self, case: &str, world: World) -> bool {
        let name = file_name(case, world);
        self.kept.iter().any(|(own, loaded)| *own == name && loaded.result.valid)
    }

    /// Writes a result and the page of its case.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn add(&mut self, result: CaseResult) -> Result<(), ResultsError> {
        let name = file_name(&result.case, result.world);
        let json = serde_json::to_string(&result)?;
        self.write(&name, &(json.clone() + "\n"))?;
        self.kept.retain(|(other, _)| *other != name);
        let case = result.case.clone();
        self.kept.push((name, Loaded { result, json }));
        self.kept.sort_by(|(a, _), (b, _)| a.cmp(b));
        let own: Vec<Source<'_>> = self.sources().into_iter().filter(|source| source.result.case == case).collect();
        self.write(&page_name(&case), &html::page(&case, &own))
    }

    /// All results by case, those of the simulator first.
    pub fn sources(&self) -> Vec<Source<'_>> {
        let mut all: Vec<Source<'_>> =
            self.kept.iter().map(|(name, loaded)| Source { file: Some(name), ..loaded.source() }).collect();
        all.sort_by(|a, b| (&a.result.case, a.result.world as u8).cmp(&(&b.result.case, b.result.world as u8)));
        all
    }

    /// Writes the index and EXPERIMENTS.md.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn finish(&self, document: &str) -> Result<(), ResultsError> {
        self.write("index.html", &html::index("altq experiments", &self.sources(), &page_name))?;
        self.write("EXPERIMENTS.md", document)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), ResultsError> {
        write(&self.folder.join(name), text)
    }
}

/// Writes a file under another name and then renames it. So after an interruption the file is
/// either the old or the new one, never a part of it.
///
/// # Errors
/// If the path names no file, or the file cannot be written.
pub fn write(path: &Path, text: &str) -> Result<(), ResultsError> {
    let name = path.file_name().ok_or_else(|| ResultsError::NoFileName(path.to_owned()))?;
    let draft = path.with_file_name(format!(".{}.new", name.to_string_lossy()));
    std::fs::write(&draft, text)
        .and_then(|()| std::fs::rename(&draft, path))
        .map_err(|source| ResultsError::Write { path: path.to_owned(), source })
}

/// The file name of a case's page.
pub fn page_name(case: &str) -> String {
    format!("{}.html", slug(case))
}

fn file_name(case: &str, world: World) -> String {
    format!("{}.{}.json", slug(case), world.name())
}
