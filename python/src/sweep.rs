//! Sweeps: many runs of a case. `altq/sweeps.py` has what programs call, and drives Ray.

use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use altq_cases::task::Progress;
use altq_sweep::driver::{self, Hand, Options};
use altq_sweep::gather::{self, Format};
use altq_sweep::grid::Axis;
use altq_sweep::run::{Job, Limit, Outcome, Runs};
use altq_sweep::table::{self, Line};
use altq_sweep::until::Until;
use altq_sweep::worker::{self, Answer, Names};
use altq_sweep::{Left, Plan, Request, Shard, SweepError, store};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::errors;
use crate::table::Table;

/// How often a caller is told how far a sweep has come.
const TELL: Duration = Duration::from_millis(200);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The exception for a sweep that cannot be done.
fn failed(error: SweepError) -> PyErr {
    match error {
        SweepError::Wrong(why) => errors::case_use(why),
        SweepError::Io { .. } | SweepError::Worker(_) => PyOSError::new_err(error.to_string()),
        error => PyRuntimeError::new_err(error.to_string()),
    }
}

/// Values of a name: a text such as `2..20Mbit/s:10`, or one by one.
#[derive(FromPyObject)]
enum Values {
    /// As `altq sweep --set` takes them.
    Text(String),
    /// One by one.
    List(Vec<String>),
}

/// A table of values: a CSV file, or names and values line by line.
#[derive(FromPyObject)]
enum Lines {
    /// A CSV file.
    File(PathBuf),
    /// Lines of names and values.
    List(Vec<Vec<(String, String)>>),
}

/// A sweep: what is to be done, and where its results are.
#[pyclass(frozen, module = "altq._altq")]
pub struct Sweep {
    plan: Plan,
    folder: PathBuf,
    shard: Option<Shard>,
    again: bool,
    timeout: Option<Duration>,
    left: Mutex<Option<Arc<Left>>>,
}

/// The command of a worker: this interpreter, which imports the package.
fn command(interpreter: &str) -> Command {
    let mut command = Command::new(interpreter);
    // -P: what lies in this folder is no module of ours.
    command.args(["-P", "-c", "from altq import _altq; _altq.sweep_worker()"]);
    command
}

/// The interpreter that runs.
fn interpreter(py: Python<'_>) -> PyResult<String> {
    let executable: Option<String> = py.import("sys")?.getattr("executable")?.extract()?;
    executable.filter(|path| !path.is_empty()).ok_or_else(|| {
        PyRuntimeError::new_err("sys.executable names no interpreter, and a sweep starts processes of it")
    })
}

impl Sweep {
    fn left(&self) -> PyResult<Arc<Left>> {
        lock(&self.left).clone().ok_or_else(|| PyRuntimeError::new_err("begin() comes first"))
    }
}

#[pymethods]
impl Sweep {
    #[new]
    #[pyo3(signature = (
        case, text, axes, folder, *, table=None, samples=1, seed=None, until=vec![], figures=vec![], row=None,
        column=None, chunk=None, shard=None, again=false, timeout_s=None, most_events=None
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        case: PathBuf,
        text: Option<String>,
        axes: Vec<(String, Values)>,
        folder: PathBuf,
        table: Option<Lines>,
        samples: u32,
        seed: Option<u64>,
        until: Vec<String>,
        figures: Vec<String>,
        row: Option<String>,
        column: Option<String>,
        chunk: Option<u32>,
        shard: Option<&str>,
        again: bool,
        timeout_s: Option<f64>,
        most_events: Option<u64>,
    ) -> PyResult<Sweep> {
        if samples == 0 || chunk == Some(0) || most_events == Some(0) {
            return Err(PyValueError::new_err("samples, chunk and most_events are at least 1"));
        }
        let timeout = timeout_s.map(Duration::try_from_secs_f64).transpose();
        let timeout = match timeout {
            Ok(timeout) if timeout.is_none_or(|timeout| !timeout.is_zero()) => timeout,
            _ => return Err(PyValueError::new_err("timeout_s is a number of seconds above 0")),
        };
        let axes = axes.into_iter().map(|(name, values)| match values {
            Values::Text(word) => Axis::parse(&format!("{name}={word}")),
            Values::List(values) => Axis::list(&name, values),
        });
        let table = match table {
            None => None,
            Some(Lines::File(path)) => Some(table::read(&path).map(|lines| (path, lines)).map_err(failed)?),
            Some(Lines::List(lines)) => Some((PathBuf::from("table"), checked(lines).map_err(errors::case_use)?)),
        };
        let request = Request {
            case,
            text,
            axes: axes.collect::<Result<_, _>>().map_err(errors::case_use)?,
            table,
            samples,
            seed,
            chunk,
            until: until.iter().map(|word| Until::parse(word)).collect::<Result<_, _>>().map_err(errors::case_use)?,
            figures,
            limit: Limit { events: most_events, time: None },
            row,
            column,
        };
        let plan = py.detach(|| Plan::new(request)).map_err(failed)?;
        // Its runs would fail, and as their rows stay, `altq sweep` would find them in the folder.
        if plan.reads_counters() {
            return Err(errors::case_use(format!(
                "{}: the case has a figure or an expectation of counters as `tc -s` prints them, which this package \
                 does not read; sweep it with the command altq sweep",
                plan.path.display()
            )));
        }
        let shard = shard.map(Shard::parse).transpose().map_err(PyValueError::new_err)?;
        Ok(Sweep { plan, folder, shard, again, timeout, left: Mutex::default() })
    }

    /// Does what is missing, by processes of this host. `progress` is told the runs that are done,
    /// and all runs.
    #[pyo3(signature = (jobs, progress=None))]
    fn run(&self, py: Python<'_>, jobs: usize, progress: Option<Py<PyAny>>) -> PyResult<()> {
        let interpreter = interpreter(py)?;
        let count = Arc::new(Progress::default());
        let (interrupted, told) = (Mutex::new(None), Mutex::new(Instant::now()));
        // It is asked in this thread, each 20 ms.
        let stopped = || {
            let look = |py: Python<'_>| -> PyResult<()> {
                py.check_signals()?;
                if let Some(progress) = progress.as_ref().filter(|_| lock(&told).elapsed() >= TELL) {
                    *lock(&told) = Instant::now();
                    let (done, whole, _) = count.read();
                    progress.call1(py, (done, whole))?;
                }
                Ok(())
            };
            let mut interrupted = lock(&interrupted);
            if interrupted.is_none() {
                *interrupted = Python::attach(look).err();
            }
            interrupted.is_some()
        };
        let options = Options {
            jobs,
            shard: self.shard,
            again: self.again,
            timeout: self.timeout,
            worker: &|| command(&interpreter),
            progress: &count,
            stopped: &stopped,
        };
        let done = py.detach(|| driver::run(&self.plan, &self.folder, &options));
        if let Some(error) = lock(&interrupted).take() {
            return Err(error);
        }
        let counts = done.map_err(failed)?;
        progress.map_or(Ok(()), |progress| progress.call1(py, (counts.runs, counts.runs)).map(|_| ()))
    }

    /// Begins to hand out what is missing: the runs that are there, and all runs.
    fn begin(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let left = py.detach(|| Left::new(&self.plan, &self.folder, self.shard, self.again)).map_err(failed)?;
        let counts = left.counts();
        *lock(&self.left) = Some(Arc::new(left));
        Ok((counts.runs_there, counts.runs))
    }

    /// The next task: its place, the number of its runs, and True if nobody needs it any more.
    fn next(&self) -> PyResult<Option<(usize, u64, bool)>> {
        let left = self.left()?;
        let Some(at) = left.next() else { return Ok(None) };
        Ok(Some((at, left.task(at).map_or(0, |task| task.runs()), left.is_in_vain(at))))
    }

    /// What runs of this sweep need beside what is in [`Sweep::runs`].
    #[getter]
    fn job(&self) -> PyResult<String> {
        json(&Job::of(&self.plan))
    }

    /// The runs of a task. Each text is some runs of one point.
    fn runs(&self, at: usize) -> PyResult<Vec<String>> {
        let left = self.left()?;
        left.task(at).into_iter().flat_map(|task| self.plan.runs_of(task)).map(|runs| json(&runs)).collect()
    }

    /// Keeps what `sweep_runs` has answered for the runs of a task: texts with a line for each run.
    fn put(&self, py: Python<'_>, at: usize, answers: Vec<String>) -> PyResult<()> {
        let (left, mut names) = (self.left()?, Names::default());
        let mut outcomes: Vec<Outcome> = Vec::with_capacity(answers.len());
        for line in answers.iter().flat_map(|text| text.lines()) {
            let answer: Option<Answer> = serde_json::from_str(line).ok();
            match answer.and_then(|answer| names.outcome(answer)) {
                Some(outcome) => outcomes.push(outcome),
                None => return Err(PyRuntimeError::new_err(format!("this is no answer of a worker: {line}"))),
            }
        }
        let runs = left.task(at).map_or(0, |task| task.runs());
        if outcomes.len() as u64 != runs {
            let message = format!("{} answers came for {runs} runs", outcomes.len());
            return Err(PyRuntimeError::new_err(message));
        }
        py.detach(|| left.put(&self.plan, &self.folder, at, outcomes)).map_err(failed)
    }

    /// Writes the table and the summary; the document `altq.sweep/1` as JSON.
    fn gather(&self, py: Python<'_>, show: Vec<String>) -> PyResult<String> {
        let summary = py.detach(|| gather::gather(&self.plan, &self.folder, Format::Parquet, &show));
        json(&summary.map_err(failed)?)
    }

    /// The table that was gathered.
    fn table(&self, py: Python<'_>) -> PyResult<Table> {
        let path = gather::table(&self.folder, Format::Parquet);
        let rows = py.detach(|| store::read(&path, |_| true)).map_err(failed)?;
        Table::of_rows(rows)
    }

    /// How many points there are.
    #[getter]
    fn points(&self) -> usize {
        self.plan.points.len()
    }
}

/// Checks lines of a table, each of which must have the names of the first one.
fn checked(lines: Vec<Vec<(String, String)>>) -> Result<Vec<Line>, String> {
    let names: Vec<String> = lines.first().into_iter().flatten().map(|(name, _)| name.clone()).collect();
    if names.is_empty() {
        return Err("a table has a line for each point, and a value in each line".into());
    }
    let mut all = Vec::with_capacity(lines.len());
    for (at, mut line) in lines.into_iter().enumerate() {
        // The names may stand in any order; they come from a dict, so each is there once.
        let place = |name: &String| names.iter().position(|own| own == name);
        if line.len() != names.len() || line.iter().any(|(name, _)| place(name).is_none()) {
            return Err(format!("line {at} of the table does not have the names of line 0: {}", names.join(", ")));
        }
        line.sort_by_key(|(name, _)| place(name));
        all.push(Line { number: at, values: line });
    }
    Ok(all)
}

fn json(value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|error| PyRuntimeError::new_err(error.to_string()))
}

fn read<T: serde::de::DeserializeOwned>(text: &str) -> PyResult<T> {
    serde_json::from_str(text).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// A worker process: takes runs on standard input until that ends.
#[pyfunction]
pub fn sweep_worker(py: Python<'_>) -> PyResult<()> {
    py.detach(|| worker::serve(io::BufReader::new(io::stdin()), io::stdout(), None))
        .map_err(|error| PyOSError::new_err(error.to_string()))
}

/// The worker process that this process has, for the job that it does.
static HAND: Mutex<Option<(String, Hand)>> = Mutex::new(None);

/// Does runs of a sweep in a process of their own, which is kept for the next call. Returns a text
/// for each of `runs`, with a line for each run. A run that kills its process is tried again, and
/// is an error in the end.
#[pyfunction]
#[pyo3(signature = (job, runs, timeout_s=None))]
pub fn sweep_runs(py: Python<'_>, job: String, runs: Vec<String>, timeout_s: Option<f64>) -> PyResult<Vec<String>> {
    let interpreter = interpreter(py)?;
    let timeout = timeout_s.map(Duration::try_from_secs_f64).transpose();
    let timeout = timeout.map_err(|error| PyValueError::new_err(error.to_string()))?;
    let all: Vec<Runs> = runs.iter().map(|text| read(text)).collect::<PyResult<_>>()?;
    let own: Job = read(&job)?;
    let mut interrupted = None;
    let texts = py.detach(|| {
        let mut kept = lock(&HAND);
        let mut hand = match kept.take() {
            Some((text, hand)) if text == job => hand,
            _ => Hand::new(own),
        };
        let texts = hand.run(&all, timeout, &|| command(&interpreter), &mut || {
            interrupted = Python::attach(|py| py.check_signals()).err();
            interrupted.is_some()
        });
        *kept = Some((job, hand));
        texts
    });
    if let Some(error) = interrupted {
        return Err(error);
    }
    texts.map_err(failed)
}

/// The answer for a run that has no figures, for this reason.
#[pyfunction]
pub fn sweep_error(why: String) -> PyResult<String> {
    json(&Answer::error(why))
}

/// Some runs of one point, one by one.
#[pyfunction]
pub fn sweep_split(runs: &str) -> PyResult<Vec<String>> {
    let runs: Runs = read(runs)?;
    let one = |at: u32| Runs { seed: runs.seed.wrapping_add(u64::from(at)), count: 1, point: runs.point.clone() };
    (0..runs.count).map(|at| json(&one(at))).collect()
}
