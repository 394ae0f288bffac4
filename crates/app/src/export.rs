//! The options that write a run as a flent file, the same for `altq report`, `altq sim` and
//! `altq lab`.

use std::path::PathBuf;

use altq_cases::case::CaseFile;
use altq_cases::result::CaseResult;
use altq_pages::flent::{self, Test};
use anyhow::Context as _;

/// The flent test as which a file is written; flent opens the file with this test's plots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum FlentTest {
    /// N uploads and a ping
    #[value(name = "tcp_nup")]
    TcpNup,
    /// Up and down in four classes of service, and pings
    Rrul,
    /// Backlog, drops, marks and delay of a link's queues
    QdiscStats,
}

impl From<FlentTest> for Test {
    fn from(test: FlentTest) -> Test {
        match test {
            FlentTest::TcpNup => Test::TcpNup,
            FlentTest::Rrul => Test::Rrul,
            FlentTest::QdiscStats => Test::QdiscStats,
        }
    }
}

/// The options.
#[derive(Debug, clap::Args)]
pub struct Export {
    /// Writes a run as a flent file, which `flent -i` opens, prints and plots
    #[arg(long, value_name = "FILE.flent.gz")]
    pub flent: Option<PathBuf>,
    /// The flent test as which the file is written
    #[arg(long, value_enum, default_value_t = FlentTest::TcpNup, requires = "flent")]
    flent_test: FlentTest,
}

impl Export {
    /// Checks the options before a case is run: the file's path, and that the options name exactly
    /// one of the case's runs.
    pub fn check(&self, file: &CaseFile, column: Option<&str>, row: Option<&str>) -> Result<(), String> {
        let Some(_) = &self.flent else { return Ok(()) };
        self.check_path()?;
        let mut runs: Vec<flent::Name<'_>> = Vec::new();
        for run in &file.runs {
            let row = run.case.row.as_deref();
            for column in &run.case.columns {
                let name = flent::Name { column: column.name.as_deref(), row };
                // Several samples are runs with one name.
                if !runs.contains(&name) {
                    runs.push(name);
                }
            }
        }
        flent::choose(&runs, flent::Name { column, row }).map(|_| ()).map_err(|error| error.to_string())
    }

    /// Checks the file's path before a long run: flent requires its ending, and the folder must
    /// exist.
    pub fn check_path(&self) -> Result<(), String> {
        let Some(path) = &self.flent else { return Ok(()) };
        if !path.to_string_lossy().ends_with(".flent.gz") {
            return Err(format!("{}: flent tells its files by their names; end it with .flent.gz", path.display()));
        }
        match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
                Err(format!("{}: there is no folder {}", path.display(), folder.display()))
            }
            _ => Ok(()),
        }
    }

    /// Writes the file, if one is asked for.
    pub fn write(&self, result: &CaseResult, column: Option<&str>, row: Option<&str>) -> anyhow::Result<()> {
        let Some(path) = &self.flent else { return Ok(()) };
        let run = flent::run(result, column, row)?;
        let bytes = flent::file(result, run, self.flent_test.into())?;
        std::fs::write(path, bytes).with_context(|| format!("{} cannot be written", path.display()))
    }
}
