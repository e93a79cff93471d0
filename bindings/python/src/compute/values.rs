//! Integers of Python as bits, the lowest first, and back.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyTuple};
use zeroize::{Zeroize as _, Zeroizing};

/// The bits of an integer, which has at most `width` of them; if it is signed, in two's complement.
///
/// # Errors
/// If it is no integer, has more bits, or is negative and not signed.
pub(super) fn bits_of(
    value: &Bound<'_, PyAny>,
    width: u32,
    is_signed: bool,
) -> PyResult<Zeroizing<Vec<bool>>> {
    let py = value.py();
    // Integers of NumPy too.
    let Ok(value) = py.import("operator")?.call_method1("index", (value,)) else {
        let kind = value.get_type().name()?;
        return Err(PyTypeError::new_err(format!("a value is an int, not {kind}")));
    };
    let kind = if is_signed { "signed " } else { "" };
    let wrong = || PyValueError::new_err(format!("a {kind}value does not fit into {width} bits"));
    let len = (width as usize).div_ceil(8);
    let signed = PyDict::new(py);
    signed.set_item("signed", is_signed)?;
    let bytes = value.call_method("to_bytes", (len, "little"), Some(&signed));
    let bytes = bytes.map_err(|_| wrong())?;
    let mut bits = Zeroizing::new(circuit::bits::of_bytes(bytes.cast::<PyBytes>()?.as_bytes()));
    // The bits above are those of the sign.
    let sign = is_signed && width.checked_sub(1).is_some_and(|last| bits[last as usize]);
    if bits[width as usize..].contains(&!sign) {
        return Err(wrong());
    }
    bits.truncate(width as usize);
    Ok(bits)
}

/// A party's input as bits: bytes that have exactly these bits, one integer, or an integer for each
/// width. Negative ones are in two's complement.
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
            all.extend_from_slice(&bits_of(item, *width, item.lt(0).unwrap_or(false))?);
        }
        return Ok(all);
    }
    let &[width] = widths else {
        let text = format!("this party's input has {} values: give a sequence", widths.len());
        return Err(PyValueError::new_err(text));
    };
    bits_of(given, width, given.lt(0).unwrap_or(false))
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

/// The values of an output whose bits are one after the other. `widths` says of each value how many
/// bits it has, and whether it is signed.
pub(super) fn values(
    py: Python<'_>,
    mut bits: Vec<bool>,
    widths: impl IntoIterator<Item = (u32, bool)>,
) -> PyResult<Bound<'_, PyTuple>> {
    let mut rest = &bits[..];
    let mut found = Vec::new();
    for (width, is_signed) in widths {
        let (value, after) = rest.split_at(width as usize);
        rest = after;
        let mut value = Zeroizing::new(value.to_vec());
        let sign = is_signed && value.last() == Some(&true);
        let len = value.len().next_multiple_of(8);
        value.resize(len, sign);
        let bytes = PyBytes::new(py, &packed(&value));
        let signed = PyDict::new(py);
        signed.set_item("signed", is_signed)?;
        let number = py.get_type::<PyInt>();
        found.push(number.call_method("from_bytes", (bytes, "little"), Some(&signed))?);
    }
    let values = PyTuple::new(py, found);
    bits.zeroize();
    values
}

/// The number of bits of values together.
pub(super) fn total(widths: &[u32]) -> usize {
    widths.iter().map(|width| *width as usize).sum()
}
