//! Exceptions. Their classes are written in Python (`altq/_errors.py`), which gives them two bases
//! each.

use altq_cases::case::CaseError;
use altq_config::Failed;
use altq_config::document::findings;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// An exception of one of the package's classes, with arguments for it.
fn made<'py>(py: Python<'py>, class: &str, args: impl pyo3::call::PyCallArgs<'py>) -> PyErr {
    let exception = py.import("altq._errors").and_then(|errors| errors.getattr(class)).and_then(|c| c.call1(args));
    exception.map_or_else(|error| error, PyErr::from_value)
}

/// A policy is refused: the text has each finding with its line and a caret, and `diagnostics` has
/// them as dicts.
pub fn policy(py: Python<'_>, failed: &Failed) -> PyErr {
    let list: PyResult<Vec<_>> = findings(&failed.diagnostics, &failed.sources)
        .into_iter()
        .map(|finding| {
            let fields = PyDict::new(py);
            fields.set_item("severity", finding.severity)?;
            fields.set_item("code", finding.code)?;
            fields.set_item("message", finding.message)?;
            fields.set_item("file", finding.file)?;
            fields.set_item("line", finding.line)?;
            fields.set_item("column", finding.column)?;
            fields.set_item("help", finding.help)?;
            Ok(fields)
        })
        .collect();
    match list {
        Ok(list) => made(py, "PolicyError", (failed.to_string(), list)),
        Err(error) => error,
    }
}

/// A policy cannot be used in this way.
pub fn policy_use(message: String) -> PyErr {
    Python::attach(|py| made(py, "PolicyError", (message,)))
}

/// A case is refused: the text has the line and a caret.
pub fn case(py: Python<'_>, error: &CaseError) -> PyErr {
    made(py, "CaseError", (error.to_string(),))
}

/// A case cannot be run as it is.
pub fn case_use(message: String) -> PyErr {
    Python::attach(|py| made(py, "CaseError", (message,)))
}

/// A packet, or a list of packets, is refused.
#[cold]
pub fn packet(message: String) -> PyErr {
    Python::attach(|py| made(py, "PacketError", (message,)))
}

/// A run ended before its time, at a limit.
pub fn limit(message: String) -> PyErr {
    Python::attach(|py| made(py, "LimitError", (message,)))
}
