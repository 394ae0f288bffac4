//! What Python gives in arrays: numbers and classes.

use altq_engine::spec::ClassId;
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::errors;
use crate::names::Names;

/// An array or a sequence as an array of numpy with one dimension, and the kind of its values.
fn array<'py>(column: &str, given: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, char)> {
    let array = given.py().import("numpy")?.call_method1("asarray", (given,))?;
    let dimensions: usize = array.getattr("ndim")?.extract()?;
    if dimensions != 1 {
        return Err(errors::packet(format!(
            "{column} has {dimensions} dimensions, and a column has one; give an array of as many values as packets"
        )));
    }
    let kind = array.getattr("dtype")?.getattr("kind")?.extract()?;
    Ok((array, kind))
}

/// Whole numbers from 0 on.
pub fn whole(column: &str, given: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    // A column of records may lie at any address, at any distance from value to value. Such a one
    // is no slice, and is copied below.
    if let Ok(given) = given.extract::<PyReadonlyArray1<'_, u64>>()
        && let Ok(values) = given.as_slice()
    {
        return Ok(values.to_vec());
    }
    if let Ok(given) = given.extract::<PyReadonlyArray1<'_, i64>>()
        && let Ok(values) = given.as_slice()
    {
        return signed(column, values.iter().copied());
    }
    let (array, kind) = array(column, given)?;
    if array.len()? == 0 {
        return Ok(Vec::new());
    }
    let wide = match kind {
        'u' | 'b' => "uint64",
        'i' => "int64",
        'f' => {
            return Err(errors::packet(format!(
                "{column} has fractions (float); its values are whole numbers: numpy.rint(x).astype(numpy.int64) \
                 rounds them"
            )));
        }
        'M' | 'm' => {
            return Err(errors::packet(format!(
                "{column} has dates; its values are nanoseconds as whole numbers: x.astype('int64') of a column in ns"
            )));
        }
        kind => {
            return Err(errors::packet(format!("{column} has values of kind {kind:?}, and not whole numbers")));
        }
    };
    let array = array.call_method1("astype", (wide,))?;
    match wide {
        "uint64" => Ok(array.cast::<PyArray1<u64>>()?.readonly().as_array().iter().copied().collect()),
        _ => signed(column, array.cast::<PyArray1<i64>>()?.readonly().as_array().iter().copied()),
    }
}

/// Signed numbers of which none is below 0.
fn signed(column: &str, values: impl ExactSizeIterator<Item = i64>) -> PyResult<Vec<u64>> {
    let mut out = Vec::with_capacity(values.len());
    for (row, value) in values.enumerate() {
        match u64::try_from(value) {
            Ok(value) => out.push(value),
            Err(_) => return Err(errors::packet(format!("row {row}, {column}: {value} is below 0"))),
        }
    }
    Ok(out)
}

/// Whole numbers of a column that may be missing.
pub fn optional(column: &str, given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Vec<u64>>> {
    given.map(|given| whole(column, given)).transpose()
}

/// Flows: whole numbers, or names.
pub fn flows(given: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
    let (array, kind) = array("flow", given)?;
    if matches!(kind, 'U' | 'O' | 'T') {
        let names: Vec<Bound<'_, PyString>> = array.call_method0("tolist")?.extract()?;
        return names.iter().map(|name| Ok(altq_simulator::replay::flow_hash(name.to_str()?))).collect();
    }
    narrow("flow", whole("flow", &array)?)
}

/// Numbers of flows as the engine has them.
pub fn narrow(column: &str, values: Vec<u64>) -> PyResult<Vec<u32>> {
    let one = |(row, value): (usize, u64)| {
        u32::try_from(value).map_err(|_| {
            errors::packet(format!("row {row}, {column}: {value} is not a whole number from 0 to 4294967295"))
        })
    };
    values.into_iter().enumerate().map(one).collect()
}

/// The classes of `count` packets: one for all, names, or numbers.
pub fn classes(names: &Names, given: &Bound<'_, PyAny>, count: usize) -> PyResult<Vec<ClassId>> {
    if given.cast::<PyString>().is_ok() || given.extract::<u64>().is_ok() {
        return Ok(vec![names.class(given)?; count]);
    }
    let (array, kind) = array("class", given)?;
    if matches!(kind, 'U' | 'O' | 'T') {
        let list: Vec<Bound<'_, PyAny>> = array.call_method0("tolist")?.extract()?;
        return list.iter().map(|class| names.class(class)).collect();
    }
    let numbers = whole("class", &array)?;
    numbers.into_iter().map(|class| names.number(class)).collect()
}
