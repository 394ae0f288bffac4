//! Cases of the simulator.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use altq_cases::case::{CaseFile, Given};
use altq_cases::result::CaseResult;
use altq_simulator::sim::{self, Limits, RunOptions, SimError, Watch};
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;

use crate::errors;

/// How long a run goes on until it is looked whether the user wants it to end.
const LOOK: Duration = Duration::from_millis(50);

/// A case, read and checked.
#[pyclass(frozen, module = "altq._altq")]
pub struct Case {
    file: Arc<CaseFile>,
    text: Arc<str>,
    path: PathBuf,
}

impl Case {
    fn read(py: Python<'_>, text: Arc<str>, path: &Path, given: &Given) -> PyResult<Case> {
        match CaseFile::parse_with(&text, path, given) {
            Ok(file) => Ok(Case { file: Arc::new(file), text, path: path.to_owned() }),
            Err(error) => Err(errors::case(py, &error)),
        }
    }

    /// The place of a row or a column, by its name.
    fn place(
        &self,
        what: &str,
        name: Option<&str>,
        find: impl Fn(&CaseFile, &str) -> Option<usize>,
        all: &[&str],
    ) -> PyResult<Option<usize>> {
        let Some(name) = name else { return Ok(None) };
        match find(&self.file, name) {
            Some(at) => Ok(Some(at)),
            None if all.is_empty() => {
                Err(errors::case_use(format!("case {} has no {what}s; leave {what} out", self.file.name)))
            }
            None => Err(errors::case_use(format!(
                "case {} has no {what} {name:?}; {what}s: {}",
                self.file.name,
                all.join(", ")
            ))),
        }
    }
}

/// The exception for a run that has no result.
fn failed(py: Python<'_>, case: &CaseFile, error: SimError) -> PyErr {
    match error {
        SimError::Policy(failed) => errors::policy(py, &failed),
        SimError::Named(error) => errors::case(py, &error),
        SimError::Io { .. } => PyOSError::new_err(error.to_string()),
        SimError::TooManyEvents { .. } | SimError::TooLong { .. } | SimError::Stopped => {
            errors::limit(format!("case {}: {error}", case.name))
        }
        error => errors::case_use(format!("case {}: {error}", case.name)),
    }
}

#[pymethods]
impl Case {
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Case> {
        let text = CaseFile::text(&path).map_err(|error| errors::case(py, &error))?;
        Case::read(py, text.into(), &path, &Given::new())
    }

    #[staticmethod]
    #[pyo3(signature = (text, name="case.toml"))]
    fn parse(py: Python<'_>, text: String, name: &str) -> PyResult<Case> {
        Case::read(py, text.into(), Path::new(name), &Given::new())
    }

    /// The same case with other usual values, each as a text.
    fn given(&self, py: Python<'_>, values: Vec<(String, String)>) -> PyResult<Case> {
        let mut given = self.file.given.clone();
        given.extend(values);
        Case::read(py, self.text.clone(), &self.path, &given)
    }

    #[getter]
    fn name(&self) -> &str {
        &self.file.name
    }

    #[getter]
    fn description(&self) -> &str {
        self.file.description.trim()
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.file.seed
    }

    #[getter]
    fn rows(&self) -> Vec<&str> {
        self.file.rows.iter().map(|row| row.name.as_str()).collect()
    }

    #[getter]
    fn columns(&self) -> Vec<&str> {
        self.file.columns.iter().map(String::as_str).collect()
    }

    #[getter]
    fn values(&self) -> Vec<(String, String)> {
        self.file.given.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// Its text, and the path that it was read from.
    #[getter]
    fn source(&self) -> (String, PathBuf) {
        (self.text.to_string(), self.path.clone())
    }

    /// Runs the case; the document `altq.result/1` as JSON.
    #[pyo3(signature = (*, seed=None, row=None, column=None, jobs=1, series=false, most_events=None))]
    #[allow(clippy::too_many_arguments)]
    fn run(
        &self,
        py: Python<'_>,
        seed: Option<u64>,
        row: Option<&str>,
        column: Option<&str>,
        jobs: usize,
        series: bool,
        most_events: Option<u64>,
    ) -> PyResult<String> {
        let row = self.place("row", row, CaseFile::row, &self.rows())?;
        let column = self.place("column", column, CaseFile::column, &self.columns())?;
        if column.is_some() && !self.file.is_table() {
            let message = format!("all columns of case {} run together; leave column out", self.file.name);
            return Err(errors::case_use(message));
        }
        let options = RunOptions { seed, row, column, jobs: Some(jobs) };
        let stop = Arc::new(AtomicBool::new(false));
        let limits = Limits { stop: Some(stop.clone()), events: most_events, ..Limits::default() };
        let mut watch = Watch { series: series.then(Vec::new), limits, ..Watch::default() };
        let ran = py.detach(|| stoppable(&stop, || sim::run_file(&self.file, &options, None, &mut watch)));
        let result: CaseResult = ran?.map_err(|error| failed(py, &self.file, error))?;
        serde_json::to_string(&result).map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }

    fn __repr__(&self) -> String {
        format!("<altq.Case {}>", self.file.name)
    }
}

/// Runs something in a thread of its own, while this one looks whether the user wants it to end.
fn stoppable<T: Send>(stop: &AtomicBool, run: impl FnOnce() -> T + Send) -> PyResult<T> {
    let (sender, receiver) = sync_channel(1);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // Nobody else takes it, and there is room for it.
            let _ = sender.send(run());
        });
        let mut interrupted = None;
        loop {
            match receiver.recv_timeout(LOOK) {
                Ok(done) => return interrupted.map_or(Ok(done), Err),
                Err(RecvTimeoutError::Timeout) if interrupted.is_none() => {
                    interrupted = Python::attach(|py| py.check_signals()).err();
                    stop.store(interrupted.is_some(), Ordering::Relaxed);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(PyRuntimeError::new_err("the run ended without a result; this is an error of altq"));
                }
            }
        }
    })
}
