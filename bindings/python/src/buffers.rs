//! Bytes of Python objects.

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

/// Passes the bytes of an object to `work`, without the interpreter's lock. `bytes` objects are
/// immutable; other objects are copied, because another thread may change them.
pub(crate) fn with_bytes<T: Send>(
    data: &Bound<'_, PyAny>,
    work: impl FnOnce(&[u8]) -> T + Send,
) -> PyResult<T> {
    let py = data.py();
    if let Ok(bytes) = data.cast::<PyBytes>() {
        let bytes = bytes.as_bytes();
        return Ok(py.detach(|| work(bytes)));
    }
    let bytes = as_bytes(data)?.to_vec(py)?;
    Ok(py.detach(|| work(&bytes)))
}

/// Converts any contiguous buffer to a buffer of bytes.
pub(crate) fn as_bytes(data: &Bound<'_, PyAny>) -> PyResult<PyBuffer<u8>> {
    PyBuffer::get(&PyMemoryView::from(data)?.call_method1("cast", ("B",))?)
}
