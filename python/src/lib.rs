//! The compiled part of the Python package `altq`. What Python programs see of it is in
//! `altq/__init__.py`, types and words in `altq/_altq.pyi`, and docs/python.md is its manual.
//!
//! ```text
//!  policy    a policy, checked           engine   the engine, packet by packet or by arrays
//!  replay    a list of packets           case     cases of the simulator
//!  worlds    links for learning schedulers: source has their traffic
//!  columns   arrays and tables in        table    tables out
//!  sweep     many runs of a case         histogram times, merged
//!  errors    exceptions
//! ```

mod case;
mod columns;
mod engine;
mod errors;
mod histogram;
mod names;
mod policy;
mod replay;
mod source;
mod sweep;
mod table;
mod worlds;

use pyo3::prelude::*;

/// The compiled part of altq.
#[pymodule]
fn _altq(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<policy::Policy>()?;
    module.add_class::<engine::Engine>()?;
    module.add_class::<engine::Departure>()?;
    module.add_class::<table::Table>()?;
    module.add_class::<case::Case>()?;
    module.add_class::<worlds::Worlds>()?;
    module.add_class::<histogram::Histogram>()?;
    module.add_class::<sweep::Sweep>()?;
    module.add_function(wrap_pyfunction!(sweep::sweep_worker, module)?)?;
    module.add_function(wrap_pyfunction!(sweep::sweep_runs, module)?)?;
    module.add_function(wrap_pyfunction!(sweep::sweep_error, module)?)?;
    module.add_function(wrap_pyfunction!(sweep::sweep_split, module)?)?;
    module.add_function(wrap_pyfunction!(replay::replay, module)?)
}
