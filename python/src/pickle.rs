//! Pickling: what values are made from again, values that are pickled as a file, and classes that refuse it.

use std::path::{Path, PathBuf};

use pyo3::PyTypeInfo;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// Result of `__reduce__`: a callable and its arguments.
pub(crate) type Remade<'py> = (Bound<'py, PyAny>, Bound<'py, PyTuple>);

/// Returns the result of `__reduce__` of a class whose method `_of` takes these arguments.
///
/// # Errors
/// Any of Python's.
pub(crate) fn remade<'py, T: PyTypeInfo>(
    py: Python<'py>,
    arguments: impl IntoPyObject<'py, Output = Bound<'py, PyTuple>, Error = PyErr>,
) -> PyResult<Remade<'py>> {
    Ok((py.get_type::<T>().getattr("_of")?, arguments.into_pyobject(py)?))
}

/// Returns the exception of a class that is not pickled; `instead` is what to do.
pub(crate) fn not_pickled<T: PyTypeInfo>(py: Python<'_>, instead: &str) -> PyErr {
    let class = py.get_type::<T>();
    let name = class.name().map_or_else(|error| error.to_string(), |name| name.to_string());
    PyTypeError::new_err(format!("a {name} is neither pickled nor copied; {instead}"))
}

/// Calls a function with the path of a file in a temporary folder, which is removed afterwards.
///
/// # Errors
/// Those of the function, and any of Python's.
pub(crate) fn with_temporary<T>(
    py: Python<'_>,
    name: &str,
    work: impl FnOnce(&Path) -> PyResult<T>,
) -> PyResult<T> {
    let folder = py.import("tempfile")?.call_method0("TemporaryDirectory")?;
    let path = folder.getattr("name")?.extract::<PathBuf>()?.join(name);
    let done = work(&path);
    folder.call_method0("cleanup")?;
    done
}
