//! Results on disk: JSON as soon as there is some, the page of its case, and at the end the index
//! and EXPERIMENTS.md.

use std::path::{Path, PathBuf};

use altq_cases::case::CaseFile;
use altq_cases::made;
use altq_cases::result::{CaseResult, World};
use anyhow::Context as _;

use crate::html::{self, Source, text::slug};
use crate::load::{self, Loaded};

/// The folder that results go to.
pub struct Results {
    folder: PathBuf,
    /// What is in it, by file name.
    kept: Vec<(String, Loaded)>,
}

impl Results {
    /// Opens or makes a folder, and reads the results of `cases` that lie in it and were made from
    /// the very files that lie there now: a run of some cases, or of one world, adds to the runs
    /// before. What does not fit is told to `told`.
    pub fn open(folder: &Path, cases: &[CaseFile], mut told: impl FnMut(String)) -> anyhow::Result<Results> {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("{} cannot be made (--out names another folder)", folder.display()))?;
        let mut kept = Vec::new();
        for case in cases {
            for world in [World::Sim, World::Lab] {
                let name = file_name(&case.name, world);
                let path = folder.join(&name);
                if !path.exists() {
                    continue;
                }
                match load::load(&path) {
                    Err(error) => told(format!("left out: {error}")),
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
                            told(format!("{}: left out: it was made from another version of the case", path.display()));
                        }
                    }
                }
            }
        }
        Ok(Results { folder: folder.to_owned(), kept })
    }

    /// Writes a result and the page of its case.
    pub fn add(&mut self, result: CaseResult) -> anyhow::Result<()> {
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

    /// All results, by case, the simulator's first.
    pub fn sources(&self) -> Vec<Source<'_>> {
        let mut all: Vec<Source<'_>> =
            self.kept.iter().map(|(name, loaded)| Source { file: Some(name), ..loaded.source() }).collect();
        all.sort_by(|a, b| (&a.result.case, a.result.world as u8).cmp(&(&b.result.case, b.result.world as u8)));
        all
    }

    /// Writes the index and EXPERIMENTS.md.
    pub fn finish(&self, note: &str, document: &str) -> anyhow::Result<()> {
        self.write("index.html", &html::index("altq experiments", note, &self.sources(), &page_name))?;
        self.write("EXPERIMENTS.md", document)
    }

    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        write(&self.folder.join(name), text)
    }
}

/// Writes a file; who interrupts finds the old one or the new one, never half of it.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let name = path.file_name().with_context(|| format!("{} is no name of a file", path.display()))?;
    let draft = path.with_file_name(format!(".{}.new", name.to_string_lossy()));
    std::fs::write(&draft, text)
        .and_then(|()| std::fs::rename(&draft, path))
        .with_context(|| format!("{} cannot be written", path.display()))
}

/// The page of a case.
pub fn page_name(case: &str) -> String {
    format!("{}.html", slug(case))
}

fn file_name(case: &str, world: World) -> String {
    let world = match world {
        World::Sim => "sim",
        World::Lab => "lab",
    };
    format!("{}.{world}.json", slug(case))
}
