//! Tables that come out: columns of numbers, of classes and of words, as arrays of numpy and as an
//! Arrow C stream.

use std::sync::Arc;

use altq_engine::spec::ClassId;
use altq_sweep::rows::{self, Cells};
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, DictionaryArray, Int32Array, RecordBatch, StringArray, StructArray};
use arrow_array::{Float64Array, Int64Array, UInt8Array, UInt32Array, UInt64Array};
use arrow_schema::{Field, Schema};
use numpy::PyArray1;
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use pyo3_arrow::ffi::{ArrayIterator, to_schema_pycapsule, to_stream_pycapsule};

/// A table that does not change. pandas, polars, DuckDB and pyarrow take it by the Arrow C stream,
/// as in polars.DataFrame(table) or pandas.DataFrame.from_arrow(table).
#[pyclass(frozen, module = "altq._altq")]
#[derive(Debug)]
pub struct Table {
    batch: RecordBatch,
}

/// The columns of a table that is being made.
#[derive(Default)]
pub struct Columns {
    fields: Vec<Field>,
    arrays: Vec<ArrayRef>,
}

impl Columns {
    fn add(mut self, name: &str, array: ArrayRef) -> Columns {
        self.fields.push(Field::new(name, array.data_type().clone(), false));
        self.arrays.push(array);
        self
    }

    /// Times, ids and other large numbers.
    pub fn u64(self, name: &str, values: Vec<u64>) -> Columns {
        self.add(name, Arc::new(UInt64Array::from(values)))
    }

    /// Lengths.
    pub fn u32(self, name: &str, values: Vec<u32>) -> Columns {
        self.add(name, Arc::new(UInt32Array::from(values)))
    }

    /// Small numbers.
    pub fn u8(self, name: &str, values: Vec<u8>) -> Columns {
        self.add(name, Arc::new(UInt8Array::from(values)))
    }

    /// Words out of a few, as places in the list of them.
    pub fn words(self, name: &str, places: Vec<i32>, words: Arc<StringArray>) -> PyResult<Columns> {
        let array = DictionaryArray::<Int32Type>::try_new(Int32Array::from(places), words).map_err(wrong)?;
        Ok(self.add(name, Arc::new(array)))
    }

    /// Classes.
    pub fn classes(self, name: &str, classes: Vec<ClassId>, names: &Arc<StringArray>) -> PyResult<Columns> {
        let places = classes.into_iter().map(|class| class as i32).collect();
        self.words(name, places, names.clone())
    }

    /// The table.
    pub fn table(self) -> PyResult<Table> {
        let schema = Arc::new(Schema::new(self.fields));
        Ok(Table { batch: RecordBatch::try_new(schema, self.arrays).map_err(wrong)? })
    }
}

fn wrong(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

impl Table {
    /// Rows of a sweep: whole numbers, numbers that may be missing, and texts that may be missing.
    pub fn of_rows(rows: rows::Table) -> PyResult<Table> {
        let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = rows
            .columns
            .into_iter()
            .map(|(name, cells)| {
                let (array, missing): (ArrayRef, bool) = match cells {
                    Cells::Whole(cells) => (Arc::new(Int64Array::from(cells)), false),
                    Cells::Number(cells) => (Arc::new(Float64Array::from(cells)), true),
                    Cells::Text(cells) => (Arc::new(StringArray::from(cells)), true),
                };
                (Field::new(name, array.data_type().clone(), missing), array)
            })
            .unzip();
        let schema = Arc::new(Schema::new(fields));
        Ok(Table { batch: RecordBatch::try_new(schema, arrays).map_err(wrong)? })
    }

    fn column(&self, name: &str) -> PyResult<&ArrayRef> {
        self.batch.column_by_name(name).ok_or_else(|| {
            PyKeyError::new_err(format!("there is no column {name:?}; columns: {}", self.columns().join(", ")))
        })
    }
}

/// A column as an array of numpy. Numbers keep their type, and are not a number where one is
/// missing. Words become texts; a column in which texts may be missing is one of objects, with None
/// there.
fn numpy<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Bound<'py, PyAny>> {
    let any = array.as_any();
    if let Some(values) = any.downcast_ref::<UInt64Array>() {
        return Ok(PyArray1::from_slice(py, values.values()).into_any());
    }
    if let Some(values) = any.downcast_ref::<UInt32Array>() {
        return Ok(PyArray1::from_slice(py, values.values()).into_any());
    }
    if let Some(values) = any.downcast_ref::<UInt8Array>() {
        return Ok(PyArray1::from_slice(py, values.values()).into_any());
    }
    if let Some(values) = any.downcast_ref::<Int64Array>() {
        return Ok(PyArray1::from_slice(py, values.values()).into_any());
    }
    if let Some(values) = any.downcast_ref::<Float64Array>() {
        let values = values.iter().map(|value| value.unwrap_or(f64::NAN));
        return Ok(PyArray1::from_iter(py, values).into_any());
    }
    if let Some(texts) = any.downcast_ref::<StringArray>() {
        let kwargs = PyDict::new(py);
        kwargs.set_item("dtype", "object")?;
        return py.import("numpy")?.call_method("array", (texts.iter().collect::<Vec<_>>(),), Some(&kwargs));
    }
    let words = any.downcast_ref::<DictionaryArray<Int32Type>>();
    let texts = words.and_then(|words| words.values().as_any().downcast_ref::<StringArray>());
    let (Some(words), Some(texts)) = (words, texts) else {
        return Err(wrong(format!("a column of type {} is not shown as an array", array.data_type())));
    };
    let list: Vec<&str> = texts.iter().map(Option::unwrap_or_default).collect();
    let list = py.import("numpy")?.call_method1("array", (list,))?;
    list.call_method1("take", (PyArray1::from_slice(py, words.keys().values()),))
}

#[pymethods]
impl Table {
    /// The names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.batch.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        numpy(py, self.column(name)?)
    }

    /// For a column of names: the number of each row's name, and the list of names.
    fn codes<'py>(&self, py: Python<'py>, name: &str) -> PyResult<(Bound<'py, PyArray1<i32>>, Vec<String>)> {
        let Some(words) = self.column(name)?.as_any().downcast_ref::<DictionaryArray<Int32Type>>() else {
            return Err(PyKeyError::new_err(format!(
                "column {name:?} has numbers, and no names; table[{name:?}] has them"
            )));
        };
        let texts = words.values().as_any().downcast_ref::<StringArray>();
        let texts = texts.into_iter().flatten().map(|text| text.unwrap_or_default().to_owned()).collect();
        Ok((PyArray1::from_slice(py, words.keys().values()), texts))
    }

    /// A dict with an array for each column.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (field, array) in self.batch.schema().fields().iter().zip(self.batch.columns()) {
            dict.set_item(field.name(), numpy(py, array)?)?;
        }
        Ok(dict)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        Ok(to_schema_pycapsule(py, self.batch.schema_ref().as_ref())?)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let field = Field::new_struct("", self.batch.schema().fields().clone(), false);
        let rows: ArrayRef = Arc::new(StructArray::from(self.batch.clone()));
        let stream = ArrayIterator::new([Ok(rows)], field.into());
        Ok(to_stream_pycapsule(py, Box::new(stream), requested_schema)?)
    }

    fn __repr__(&self) -> String {
        format!("<altq.Table of {} rows: {}>", self.batch.num_rows(), self.columns().join(", "))
    }
}
