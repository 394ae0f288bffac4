//! Histograms of times, which can be merged: those of several runs or hosts.

use altq_engine::sketch::{Packed, Sketch};
use altq_engine::units::Nanos;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::columns;

/// A distribution of times in ns, in fixed memory. Percentiles are within 1/32 of the true value.
#[pyclass(module = "altq._altq")]
#[derive(Debug, Default)]
pub struct Histogram {
    sketch: Sketch,
}

#[pymethods]
impl Histogram {
    #[new]
    #[pyo3(signature = (values=None))]
    fn new(values: Option<&Bound<'_, PyAny>>) -> PyResult<Histogram> {
        let mut own = Histogram::default();
        values.map_or(Ok(()), |values| own.add(values))?;
        Ok(own)
    }

    fn add(&mut self, values: &Bound<'_, PyAny>) -> PyResult<()> {
        let values: Vec<Nanos> = columns::whole("values", values)?;
        values.into_iter().for_each(|value| self.sketch.add(value));
        Ok(())
    }

    /// The sum of both.
    fn __add__(&self, other: &Histogram) -> Histogram {
        let mut sketch = self.sketch.clone();
        sketch.merge(&other.sketch);
        Histogram { sketch }
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.sketch.count()).unwrap_or(usize::MAX)
    }

    #[getter]
    fn mean_ns(&self) -> Option<Nanos> {
        self.known().then(|| self.sketch.mean())
    }

    #[getter]
    fn max_ns(&self) -> Option<Nanos> {
        self.known().then(|| self.sketch.max())
    }

    fn percentile_ns(&self, per_cent: f64) -> PyResult<Option<Nanos>> {
        if !(0.0..=100.0).contains(&per_cent) {
            return Err(PyValueError::new_err(format!("{per_cent} is no percentile: 0 to 100")));
        }
        Ok(self.known().then(|| self.sketch.percentile(per_cent)))
    }

    fn to_json(&self) -> PyResult<String> {
        serde_json::to_string(&self.sketch.packed()).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    #[staticmethod]
    fn from_json(text: &str) -> PyResult<Histogram> {
        let packed: Packed =
            serde_json::from_str(text).map_err(|error| PyValueError::new_err(format!("no histogram: {error}")))?;
        if !packed.is_sound() {
            return Err(PyValueError::new_err("no histogram: its figures do not belong together"));
        }
        let mut sketch = Sketch::default();
        sketch.merge_packed(&packed);
        Ok(Histogram { sketch })
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<(Py<PyAny>, (String,))> {
        let again = py.get_type::<Histogram>().getattr("from_json")?;
        Ok((again.unbind(), (self.to_json()?,)))
    }

    fn __repr__(&self) -> String {
        let (p50, p99) = (self.sketch.percentile(50.0), self.sketch.percentile(99.0));
        format!("<altq.Histogram of {} times: p50 {p50} ns, p99 {p99} ns>", self.sketch.count())
    }
}

impl Histogram {
    fn known(&self) -> bool {
        self.sketch.count() > 0
    }
}
