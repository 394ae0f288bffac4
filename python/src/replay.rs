//! `altq.replay`: a table of packets through the engine of one link, in virtual time.

use std::io;
use std::sync::Arc;

use altq_cases::limits::tick;
use altq_engine::account::DropReason;
use altq_engine::spec::{ClassId, Timer};
use altq_engine::units::{Nanos, Rate};
use altq_engine::{Departure, Drop};
use altq_simulator::replay::{self as list, Arrivals, Columns, Observer, Options, ReplayError, flow_hash};
use arrow_array::types::UInt64Type;
use arrow_array::{Array, ArrayRef, RecordBatch, StringArray, cast::AsArray};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::DataType;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use pyo3_arrow::input::AnyRecordBatch;

use crate::names::Names;
use crate::policy::Policy;
use crate::table::{self, Table};
use crate::{columns, errors};

/// After so many packets a run looks whether the user wants it to end.
pub const PACKETS_PER_LOOK: u64 = 1 << 16;

/// The columns that a list of packets may have.
const COLUMNS: [&str; 10] = ["time_ns", "class", "bytes", "id", "flow", "dscp", "ecn", "high", "segments", "tx_queue"];

/// A list of packets as it was given.
struct Given {
    columns: Columns,
    ids: Option<Vec<u64>>,
}

/// Where columns come from.
enum Source<'a, 'py> {
    Dict(&'a Bound<'py, PyDict>),
    Batches(Vec<RecordBatch>),
}

impl Source<'_, '_> {
    fn names(&self) -> PyResult<Vec<String>> {
        match self {
            Source::Dict(dict) => dict.keys().extract(),
            Source::Batches(batches) => Ok(batches
                .first()
                .map(|batch| batch.schema().fields().iter().map(|field| field.name().clone()).collect())
                .unwrap_or_default()),
        }
    }

    fn numbers(&self, name: &'static str) -> PyResult<Option<Vec<u64>>> {
        match self {
            Source::Dict(dict) => columns::optional(name, dict.get_item(name)?.as_ref()),
            Source::Batches(batches) => {
                let mut all = Vec::new();
                for batch in batches {
                    let Some(array) = batch.column_by_name(name) else { return Ok(None) };
                    let array = without_nulls(name, array)?;
                    if !array.data_type().is_integer() {
                        return Err(errors::packet(format!(
                            "column {name} is of type {}; its values are whole numbers, so cast it to int64",
                            array.data_type()
                        )));
                    }
                    let options = CastOptions { safe: false, ..CastOptions::default() };
                    let wide = cast_with_options(array, &DataType::UInt64, &options)
                        .map_err(|error| errors::packet(format!("column {name}: {error}")))?;
                    all.extend_from_slice(wide.as_primitive::<UInt64Type>().values());
                }
                Ok(Some(all))
            }
        }
    }

    fn classes(&self, names: &Names, count: usize) -> PyResult<Vec<ClassId>> {
        let each = |text: &str| names.find(text);
        match self {
            Source::Dict(dict) => match dict.get_item("class")? {
                Some(given) => columns::classes(names, &given, count),
                None => Err(missing("class")),
            },
            Source::Batches(_) => match self.texts("class", each)? {
                Some(classes) => Ok(classes),
                None => match self.numbers("class")? {
                    Some(numbers) => numbers.into_iter().map(|class| names.number(class)).collect(),
                    None => Err(missing("class")),
                },
            },
        }
    }

    fn flows(&self) -> PyResult<Option<Vec<u32>>> {
        match self {
            Source::Dict(dict) => dict.get_item("flow")?.map(|given| columns::flows(&given)).transpose(),
            Source::Batches(_) => match self.texts("flow", |text| Ok(flow_hash(text)))? {
                Some(flows) => Ok(Some(flows)),
                None => self.numbers("flow")?.map(|numbers| columns::narrow("flow", numbers)).transpose(),
            },
        }
    }

    /// What each text of a column stands for; `None` if the column is not there or has no texts.
    fn texts(&self, name: &'static str, each: impl Fn(&str) -> PyResult<u32>) -> PyResult<Option<Vec<u32>>> {
        let Source::Batches(batches) = self else { return Ok(None) };
        let mut all = Vec::new();
        for batch in batches {
            let Some(array) = batch.column_by_name(name) else { return Ok(None) };
            let text = |kind: &DataType| matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
            let array = without_nulls(name, array)?;
            let wrong = |error| errors::packet(format!("column {name}: {error}"));
            let plain =
                |array: &dyn Array| cast_with_options(array, &DataType::Utf8, &CastOptions::default()).map_err(wrong);
            match array.data_type() {
                // Without values it has no rows.
                DataType::Dictionary(_, value) if text(value) && array.is_empty() => {}
                DataType::Dictionary(_, value) if text(value) => {
                    // Each name is looked up once.
                    let words = array.as_any_dictionary();
                    let values = plain(words.values().as_ref())?;
                    let stand: Vec<u32> = used(words.keys(), values.as_string::<i32>(), &each)?;
                    let keys = words.normalized_keys();
                    all.extend(keys.into_iter().map(|key| stand.get(key).copied().unwrap_or_default()));
                }
                kind if text(kind) => {
                    let values = plain(array)?;
                    for value in values.as_string::<i32>().iter() {
                        all.push(each(value.unwrap_or_default())?);
                    }
                }
                _ => return Ok(None),
            }
        }
        Ok(Some(all))
    }
}

/// What each value of a dictionary stands for. Values that no row uses may be anything.
fn used(keys: &dyn Array, values: &StringArray, each: impl Fn(&str) -> PyResult<u32>) -> PyResult<Vec<u32>> {
    let keys = cast_with_options(keys, &DataType::UInt64, &CastOptions::default())
        .map_err(|error| errors::packet(error.to_string()))?;
    let mut seen = vec![false; values.len()];
    for key in keys.as_primitive::<UInt64Type>().values() {
        if let Some(seen) = seen.get_mut(*key as usize) {
            *seen = true;
        }
    }
    let one = |(value, seen): (Option<&str>, bool)| if seen { each(value.unwrap_or_default()) } else { Ok(0) };
    values.iter().zip(seen).map(one).collect()
}

fn without_nulls<'a>(name: &str, array: &'a ArrayRef) -> PyResult<&'a ArrayRef> {
    match array.logical_null_count() {
        0 => Ok(array),
        nulls => Err(errors::packet(format!(
            "column {name} has {nulls} rows without a value; fill them, or leave those rows out"
        ))),
    }
}

/// Whether pandas has made this column of the index of a frame, as it does after rows were left
/// out.
fn is_index(name: &str) -> bool {
    name.starts_with("__index_level_") && name.ends_with("__")
}

fn missing(column: &str) -> PyErr {
    errors::packet(format!("the column {column} is missing; a list of packets has time_ns, class and bytes"))
}

fn read(names: &Names, given: &Bound<'_, PyAny>) -> PyResult<Given> {
    let source = match given.cast::<PyDict>() {
        Ok(dict) => Source::Dict(dict),
        Err(_) if given.hasattr("__arrow_c_stream__")? || given.hasattr("__arrow_c_array__")? => {
            let table = given.extract::<AnyRecordBatch>()?.into_table()?;
            let (batches, schema) = table.into_inner();
            match batches.is_empty() {
                true => Source::Batches(vec![RecordBatch::new_empty(schema)]),
                false => Source::Batches(batches),
            }
        }
        Err(_) => {
            return Err(errors::packet(format!(
                "packets are given as a dict of arrays, or as a table with the Arrow C stream (pandas, polars, DuckDB, \
                 pyarrow), and not as {}",
                given.get_type().name()?
            )));
        }
    };
    for name in source.names()?.into_iter().filter(|name| !is_index(name)) {
        if !COLUMNS.contains(&name.as_str()) {
            return Err(errors::packet(format!(
                "there is no column {name:?}; leave it out, or rename it to one of {}",
                COLUMNS.join(", ")
            )));
        }
    }
    let times = source.numbers("time_ns")?.ok_or_else(|| missing("time_ns"))?;
    let columns = Columns {
        classes: source.classes(names, times.len())?,
        bytes: source.numbers("bytes")?.ok_or_else(|| missing("bytes"))?,
        flows: source.flows()?,
        hosts: None,
        dscp: source.numbers("dscp")?,
        ecn: source.numbers("ecn")?,
        high: source.numbers("high")?,
        segments: source.numbers("segments")?,
        tx_queues: source.numbers("tx_queue")?,
        times,
    };
    let ids = source.numbers("id")?;
    match &ids {
        Some(ids) if ids.len() != columns.times.len() => Err(errors::packet(format!(
            "column id has {} values, and time_ns has {}; each packet needs one of each",
            ids.len(),
            columns.times.len()
        ))),
        _ => Ok(Given { columns, ids }),
    }
}

/// Keeps what leaves and what is lost.
#[derive(Default)]
struct Kept {
    ids: Option<Vec<u64>>,
    times: Vec<Nanos>,
    classes: Vec<ClassId>,
    bytes: Vec<u32>,
    sent: Vec<u64>,
    delays: Vec<Nanos>,
    ends: Vec<Nanos>,
    dscp: Option<Vec<u8>>,
    lost: Lost,
    looked: u64,
    interrupted: Option<PyErr>,
}

/// Columns of packets that were dropped.
#[derive(Default)]
pub struct Lost {
    times: Vec<Nanos>,
    classes: Vec<ClassId>,
    bytes: Vec<u32>,
    ids: Vec<u64>,
    reasons: Vec<i32>,
}

impl Lost {
    /// Adds a packet.
    pub fn push(&mut self, id: u64, drop: &Drop) {
        self.times.push(drop.at);
        // Only where rules find classes are there packets without one, and here they do not.
        self.classes.push(drop.class.unwrap_or_default());
        self.bytes.push(drop.packet.len);
        self.ids.push(id);
        self.reasons.push(DropReason::ALL.iter().position(|reason| *reason == drop.reason).unwrap_or_default() as i32);
    }

    /// The table.
    pub fn table(self, names: &Names) -> PyResult<Table> {
        let reasons = Arc::new(DropReason::ALL.iter().map(|reason| Some(reason.name())).collect::<StringArray>());
        table::Columns::default()
            .u64("time_ns", self.times)
            .classes("class", self.classes, &names.texts)?
            .u32("bytes", self.bytes)
            .u64("id", self.ids)
            .words("reason", self.reasons, reasons)?
            .table()
    }
}

impl Kept {
    fn id(&self, at: usize) -> u64 {
        self.ids.as_ref().and_then(|ids| ids.get(at).copied()).unwrap_or(at as u64)
    }

    /// Ends the run if the user has pressed Ctrl-C.
    fn look(&mut self) -> io::Result<()> {
        self.looked += 1;
        if self.looked.is_multiple_of(PACKETS_PER_LOOK)
            && let Err(error) = Python::attach(|py| py.check_signals())
        {
            self.interrupted = Some(error);
            return Err(io::ErrorKind::Interrupted.into());
        }
        Ok(())
    }
}

impl Observer for Kept {
    fn sent(&mut self, now: Nanos, at: usize, departure: &Departure, wire_end: Nanos) -> io::Result<()> {
        self.times.push(now);
        self.classes.push(departure.class);
        self.bytes.push(departure.packet.len);
        self.sent.push(self.id(at));
        self.delays.push(now - departure.packet.arrived);
        self.ends.push(wire_end);
        if let Some(dscp) = &mut self.dscp {
            dscp.push(departure.packet.dscp);
        }
        self.look()
    }

    fn dropped(&mut self, at: usize, drop: &Drop) -> io::Result<()> {
        self.lost.push(self.id(at), drop);
        self.look()
    }
}

/// When timers fire: at any time (`exact`), or at ticks, so many a second.
pub fn timer(word: &Bound<'_, PyAny>) -> PyResult<Timer> {
    if let Ok(text) = word.cast::<PyString>()
        && text.to_str()? == "exact"
    {
        return Ok(Timer::Exact);
    }
    match word.extract::<u64>() {
        Ok(hz) => tick(hz).map_err(PyValueError::new_err),
        Err(_) => Err(PyValueError::new_err("a timer is \"exact\" or a number of ticks a second")),
    }
}

/// Replays a list of packets. Returns departures, drops, and the document `altq.replay/1` as JSON.
#[pyfunction]
#[pyo3(signature = (
    policy, packets, *, link=None, wire_rate_bit_s=None, timer=None, tx_ring=1, tx_queues=1, from_ns=0, to_ns=None,
    seed=1
))]
#[allow(clippy::too_many_arguments)]
pub fn replay(
    py: Python<'_>,
    policy: &Policy,
    packets: &Bound<'_, PyAny>,
    link: Option<&str>,
    wire_rate_bit_s: Option<u64>,
    timer: Option<&Bound<'_, PyAny>>,
    tx_ring: usize,
    tx_queues: usize,
    from_ns: u64,
    to_ns: Option<u64>,
    seed: u64,
) -> PyResult<(Table, Table, String)> {
    let link = policy.link(link)?;
    let most = altq_cases::limits::MOST_QUEUES;
    if tx_ring == 0 || !(1..=most).contains(&tx_queues) {
        return Err(PyValueError::new_err(format!("tx_ring is at least 1, and tx_queues 1 to {most}")));
    }
    if wire_rate_bit_s == Some(0) {
        return Err(PyValueError::new_err("wire_rate_bit_s is at least 1; leave it out for the link's rate"));
    }
    if to_ns.is_some_and(|to| to <= from_ns) {
        return Err(PyValueError::new_err("to_ns must be later than from_ns"));
    }
    let names = Names::new(py, link);
    let given = read(&names, packets)?;
    let options = Options {
        wire_rate: wire_rate_bit_s.map(Rate::bit_s),
        timer: timer.map_or(Ok(Timer::Exact), self::timer)?,
        tx_ring,
        tx_queues,
        from: from_ns,
        to: to_ns,
        seed,
    };
    let mut kept = Kept { ids: given.ids, dscp: link.marks_dscp().then(Vec::new), ..Kept::default() };
    let columns = given.columns;
    let ran = py.detach(|| {
        let arrivals = Arrivals::from_columns(link, columns).map_err(|error| errors::packet(error.to_string()))?;
        list::run(link, &arrivals, &options, &mut kept).map_err(|error| match (kept.interrupted.take(), error) {
            (Some(interrupted), _) => interrupted,
            (None, ReplayError::Io(error)) => error.into(),
            (None, error) => errors::packet(error.to_string()),
        })
    });
    let report = serde_json::to_string(&ran?).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let departures = table::Columns::default()
        .u64("time_ns", kept.times)
        .classes("class", kept.classes, &names.texts)?
        .u32("bytes", kept.bytes)
        .u64("id", kept.sent)
        .u64("delay_ns", kept.delays)
        .u64("wire_end_ns", kept.ends);
    let departures = match kept.dscp {
        Some(dscp) => departures.u8("dscp", dscp),
        None => departures,
    };
    Ok((departures.table()?, kept.lost.table(&names)?, report))
}
