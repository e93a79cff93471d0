//! Integers of Python as bits, the lowest first, and back.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyTuple};
use zeroize::{Zeroize as _, Zeroizing};

/// The bits of an integer, which has at most `width` of them.
///
/// # Errors
/// If it is no integer, is negative or has more bits.
pub(super) fn bits_of(value: &Bound<'_, PyAny>, width: u32) -> PyResult<Zeroizing<Vec<bool>>> {
    let py = value.py();
    // Integers of NumPy too.
    let Ok(value) = py.import("operator")?.call_method1("index", (value,)) else {
        let kind = value.get_type().name()?;
        return Err(PyTypeError::new_err(format!("a value is an int, not {kind}")));
    };
    let wrong = || PyValueError::new_err(format!("a value does not fit into {width} bits"));
    let len = (width as usize).div_ceil(8);
    let bytes = value.call_method1("to_bytes", (len, "little")).map_err(|_| wrong())?;
    let mut bits = Zeroizing::new(circuit::bits::of_bytes(bytes.cast::<PyBytes>()?.as_bytes()));
    if bits[width as usize..].contains(&true) {
        return Err(wrong());
    }
    bits.truncate(width as usize);
    Ok(bits)
}

/// A party's input as bits: bytes that have exactly these bits, one integer, or an integer for each
/// width.
///
/// # Errors
/// If it is something else, or does not fit.
pub(super) fn input_bits(
    given: &Bound<'_, PyAny>,
    widths: &[u32],
) -> PyResult<Zeroizing<Vec<bool>>> {
    if let Ok(bytes) = given.cast::<PyBytes>() {
        return packed_bits(bytes.as_bytes(), widths);
    }
    if let Ok(items) = given.try_iter() {
        let items: Vec<Bound<'_, PyAny>> = items.collect::<PyResult<_>>()?;
        if items.len() != widths.len() {
            let (given, taken) = (items.len(), widths.len());
            let text = format!("{given} values were given, and this party's input has {taken}");
            return Err(PyValueError::new_err(text));
        }
        let mut all = Zeroizing::new(Vec::with_capacity(total(widths)));
        for (item, width) in items.iter().zip(widths) {
            all.extend_from_slice(&bits_of(item, *width)?);
        }
        return Ok(all);
    }
    let &[width] = widths else {
        let text = format!("this party's input has {} values: give a sequence", widths.len());
        return Err(PyValueError::new_err(text));
    };
    bits_of(given, width)
}

fn packed_bits(bytes: &[u8], widths: &[u32]) -> PyResult<Zeroizing<Vec<bool>>> {
    let width = total(widths);
    let mut bits = Zeroizing::new(circuit::bits::of_bytes(bytes));
    if bytes.len() != width.div_ceil(8) || bits[width..].contains(&true) {
        let text =
            format!("this party's input has {width} bits, and the bytes do not have as many");
        return Err(PyValueError::new_err(text));
    }
    bits.truncate(width);
    Ok(bits)
}

/// The bytes of bits: bit i is bit (i mod 8) of byte (i div 8).
pub(super) fn packed(bits: &[bool]) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(circuit::bits::to_bytes(bits))
}

/// The values of an output whose bits are one after the other.
pub(super) fn values<'py>(
    py: Python<'py>,
    mut bits: Vec<bool>,
    widths: &[u32],
) -> PyResult<Bound<'py, PyTuple>> {
    let mut rest = &bits[..];
    let mut found = Vec::with_capacity(widths.len());
    for width in widths {
        let (value, after) = rest.split_at(*width as usize);
        rest = after;
        let bytes = PyBytes::new(py, &packed(value));
        found.push(py.get_type::<PyInt>().call_method1("from_bytes", (bytes, "little"))?);
    }
    let values = PyTuple::new(py, found);
    bits.zeroize();
    values
}

/// The number of bits of values together.
pub(super) fn total(widths: &[u32]) -> usize {
    widths.iter().map(|width| *width as usize).sum()
}
