//! `Integer`.

use circuit::{CircuitBuilder, Wire, ZERO};
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PySlice;

use super::PyCircuitBuilder;
use crate::compute::values;

/// An integer of a circuit: its bits, the lowest first. A signed one is in two's complement.
#[pyclass(frozen, name = "Integer", module = "sunder_compute")]
pub(crate) struct PyCircuitInteger {
    pub(super) builder: Py<PyCircuitBuilder>,
    pub(super) wires: Vec<Wire>,
    pub(super) is_signed: bool,
}

impl PyCircuitInteger {
    /// Refuses a value of another builder, whose wires mean something else.
    pub(super) fn require(&self, builder: &Py<PyCircuitBuilder>) -> PyResult<()> {
        if self.builder.is(builder) {
            return Ok(());
        }
        Err(PyValueError::new_err("the value belongs to another builder"))
    }

    /// The wires of the other operand: an integer with as many bits, or a constant.
    pub(super) fn operand(&self, other: &Bound<'_, PyAny>) -> PyResult<Vec<Wire>> {
        let Ok(other) = other.cast::<Self>() else {
            return constant(other, self.width(), self.is_signed);
        };
        let other = other.get();
        other.require(&self.builder)?;
        if self.is_signed != other.is_signed {
            return Err(PyTypeError::new_err(MIXED));
        }
        let (ours, theirs) = (self.wires.len(), other.wires.len());
        if ours != theirs {
            let text = format!(
                "one value has {ours} bits, the other {theirs}: use resize(bits) to make them equal"
            );
            return Err(PyValueError::new_err(text));
        }
        Ok(other.wires.clone())
    }

    #[expect(clippy::cast_possible_truncation, reason = "a circuit has fewer than 2^32 wires")]
    fn width(&self) -> u32 {
        self.wires.len() as u32
    }

    /// A value of the same builder.
    fn with(&self, py: Python<'_>, wires: Vec<Wire>) -> Self {
        Self { builder: self.builder.clone_ref(py), wires, is_signed: self.is_signed }
    }

    /// An unsigned value of the same builder.
    fn unsigned(&self, py: Python<'_>, wires: Vec<Wire>) -> Self {
        Self { is_signed: false, ..self.with(py, wires) }
    }

    /// A comparison with another value: one bit.
    fn compare(
        &self,
        other: &Bound<'_, PyAny>,
        gates: impl FnOnce(&mut CircuitBuilder, &[Wire], &[Wire]) -> Wire,
    ) -> PyResult<Self> {
        let bit = self.binary(other, |builder, a, b| vec![gates(builder, a, b)])?;
        Ok(Self { is_signed: false, ..bit })
    }

    /// Whether the first value is less than the second one.
    fn less(&self, builder: &mut CircuitBuilder, a: &[Wire], b: &[Wire]) -> Wire {
        if self.is_signed { builder.less_signed(a, b) } else { builder.less(a, b) }
    }

    /// Quotient and remainder as in Python: the quotient of signed values is rounded down, and the
    /// remainder has the sign of the divisor.
    fn divide(
        &self,
        builder: &mut CircuitBuilder,
        a: &[Wire],
        b: &[Wire],
    ) -> (Vec<Wire>, Vec<Wire>) {
        if !self.is_signed {
            return builder.divide(a, b);
        }
        // The quotient is rounded towards 0, and the remainder has the sign of `a`.
        let (quotient, remainder) = builder.divide_signed(a, b);
        let sign = |value: &[Wire]| value.last().copied().unwrap_or(ZERO);
        let has_remainder = builder.any(&remainder);
        let signs_differ = builder.xor(sign(a), sign(b));
        let is_rounded_up = builder.and(has_remainder, signs_differ);
        let mut one = vec![ZERO; a.len()];
        one.iter_mut().take(1).for_each(|bit| *bit = is_rounded_up);
        let more = builder.and_bit(is_rounded_up, b);
        (builder.subtract(&quotient, &one), builder.add(&remainder, &more))
    }

    /// An operation on this value and another one.
    fn binary(
        &self,
        other: &Bound<'_, PyAny>,
        gates: impl FnOnce(&mut CircuitBuilder, &[Wire], &[Wire]) -> Vec<Wire>,
    ) -> PyResult<Self> {
        let other_wires = self.operand(other)?;
        let builder = self.builder.get();
        let wires = builder.add(|builder| gates(builder, &self.wires, &other_wires))?;
        Ok(self.with(other.py(), wires))
    }

    /// The places of the bits of `self[index]`.
    fn places(&self, index: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
        let len = isize::try_from(self.wires.len())?;
        if let Ok(slice) = index.cast::<PySlice>() {
            let part = slice.indices(len)?;
            let at = |i: usize| {
                isize::try_from(i).map(|i| part.start + i * part.step).unwrap_or_default()
            };
            let places = (0..part.slicelength).map(|i| at(i).unsigned_abs());
            return Ok(places.collect());
        }
        let index: isize = index.extract()?;
        let place = if index < 0 { index + len } else { index };
        let place = usize::try_from(place).ok().filter(|place| *place < self.wires.len());
        let outside = || PyIndexError::new_err(format!("there are {len} bits"));
        Ok(vec![place.ok_or_else(outside)?])
    }
}

#[pymethods]
impl PyCircuitInteger {
    fn __add__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.binary(other, CircuitBuilder::add)
    }

    fn __radd__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.binary(other, CircuitBuilder::add)
    }

    fn __sub__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.binary(other, CircuitBuilder::subtract)
    }

    fn __rsub__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.binary(other, |builder, a, b| builder.subtract(b, a))
    }

    fn __mul__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.binary(other, |builder, a, b| {
            let mut product = builder.multiply(a, b);
            product.truncate(a.len());
            product
        })
    }

    fn __rmul__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.__mul__(other)
    }

    fn __and__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.binary(other, |builder, a, b| {
            a.iter().zip(b).map(|(a, b)| builder.and(*a, *b)).collect()
        })
    }

    fn __rand__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.__and__(other)
    }

    fn __or__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.binary(other, |builder, a, b| {
            a.iter().zip(b).map(|(a, b)| builder.or(*a, *b)).collect()
        })
    }

    fn __ror__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.__or__(other)
    }

    fn __xor__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.binary(other, CircuitBuilder::xor_bits)
    }

    fn __rxor__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.__xor__(other)
    }

    fn __invert__(&self, py: Python<'_>) -> PyResult<Self> {
        let not = |builder: &mut CircuitBuilder| {
            self.wires.iter().map(|wire| builder.not(*wire)).collect()
        };
        Ok(self.with(py, self.builder.get().add(not)?))
    }

    fn __lshift__(&self, by: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.shift(by, CircuitBuilder::shift_left)
    }

    fn __rshift__(&self, by: &Bound<'_, PyAny>) -> PyResult<Self> {
        if self.is_signed {
            self.shift(by, CircuitBuilder::shift_right_signed)
        } else {
            self.shift(by, CircuitBuilder::shift_right)
        }
    }

    fn __floordiv__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.binary(other, |builder, a, b| self.divide(builder, a, b).0)
    }

    fn __rfloordiv__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.binary(other, |builder, a, b| self.divide(builder, b, a).0)
    }

    fn __mod__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.binary(other, |builder, a, b| self.divide(builder, a, b).1)
    }

    fn __rmod__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.binary(other, |builder, a, b| self.divide(builder, b, a).1)
    }

    fn __divmod__(&self, other: &Bound<'_, PyAny>) -> PyResult<(Self, Self)> {
        let mut remainder = Vec::new();
        let quotient = self.binary(other, |builder, a, b| {
            let (quotient, rest) = self.divide(builder, a, b);
            remainder = rest;
            quotient
        })?;
        Ok((quotient, self.with(other.py(), remainder)))
    }

    fn __neg__(&self, py: Python<'_>) -> PyResult<Self> {
        let wires = self.builder.get().add(|builder| builder.negate(&self.wires))?;
        Ok(self.with(py, wires))
    }

    /// The absolute value, which is unsigned.
    fn __abs__(&self, py: Python<'_>) -> PyResult<Self> {
        if !self.is_signed {
            return Ok(self.with(py, self.wires.clone()));
        }
        let wires = self.builder.get().add(|builder| builder.absolute(&self.wires))?;
        Ok(self.unsigned(py, wires))
    }

    fn __lt__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.compare(other, |builder, a, b| self.less(builder, a, b))
    }

    fn __gt__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.compare(other, |builder, a, b| self.less(builder, b, a))
    }

    fn __le__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.compare(other, |builder, a, b| {
            let is_greater = self.less(builder, b, a);
            builder.not(is_greater)
        })
    }

    fn __ge__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.compare(other, |builder, a, b| {
            let is_less = self.less(builder, a, b);
            builder.not(is_less)
        })
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.compare(other, CircuitBuilder::equal)
    }

    fn __ne__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.compare(other, |builder, a, b| {
            let is_equal = builder.equal(a, b);
            builder.not(is_equal)
        })
    }

    /// A value of a circuit is not known while the circuit is built.
    #[allow(clippy::unused_self, reason = "Python passes it")]
    fn __bool__(&self) -> PyResult<bool> {
        let text = "the value is not known while the circuit is built: use builder.select(...) in \
                    place of if, and & | ~ in place of and, or, not";
        Err(PyTypeError::new_err(text))
    }

    fn __len__(&self) -> usize {
        self.wires.len()
    }

    /// A bit, or the bits of a slice, as a value.
    fn __getitem__(&self, index: &Bound<'_, PyAny>) -> PyResult<Self> {
        let wires = self.places(index)?.into_iter().map(|place| self.wires[place]).collect();
        Ok(self.unsigned(index.py(), wires))
    }

    fn __repr__(&self) -> String {
        let kind = if self.is_signed { "signed " } else { "" };
        format!("<{kind}Integer of {} bits>", self.wires.len())
    }

    /// The number of bits.
    #[getter]
    fn bits(&self) -> usize {
        self.wires.len()
    }

    /// Whether it is signed.
    #[getter]
    fn signed(&self) -> bool {
        self.is_signed
    }

    /// The same bits as a signed value, in two's complement.
    fn as_signed(&self, py: Python<'_>) -> Self {
        Self { is_signed: true, ..self.with(py, self.wires.clone()) }
    }

    /// The same bits as an unsigned value.
    fn as_unsigned(&self, py: Python<'_>) -> Self {
        self.unsigned(py, self.wires.clone())
    }

    /// The value with `bits` bits: with zeros above (if it is signed, with its sign), or without
    /// its highest bits.
    fn resize(&self, py: Python<'_>, bits: u32) -> Self {
        let fill = match self.wires.last() {
            Some(sign) if self.is_signed => *sign,
            _ => ZERO,
        };
        let mut wires = self.wires.clone();
        wires.resize(bits as usize, fill);
        self.with(py, wires)
    }

    /// The number of bits that are 1, with just as many bits as it needs.
    fn count_ones(&self, py: Python<'_>) -> PyResult<Self> {
        let wires = self.builder.get().add(|builder| builder.count_ones(&self.wires))?;
        Ok(self.unsigned(py, wires))
    }
}

impl PyCircuitInteger {
    /// A shift by a constant, or by a value of the circuit.
    fn shift(
        &self,
        by: &Bound<'_, PyAny>,
        gates: impl FnOnce(&mut CircuitBuilder, &[Wire], &[Wire]) -> Vec<Wire>,
    ) -> PyResult<Self> {
        let by_wires = match by.cast::<Self>() {
            Ok(by) => {
                by.get().require(&self.builder)?;
                by.get().wires.clone()
            }
            Err(_) => constant(by, u32::BITS, false)?,
        };
        let wires = self.builder.get().add(|builder| gates(builder, &self.wires, &by_wires))?;
        Ok(self.with(by.py(), wires))
    }
}

/// The wires of a constant.
pub(super) fn constant(
    value: &Bound<'_, PyAny>,
    bits: u32,
    is_signed: bool,
) -> PyResult<Vec<Wire>> {
    let bits = values::bits_of(value, bits, is_signed)?;
    Ok(bits.iter().map(|bit| Wire::from(*bit)).collect())
}

pub(super) const MIXED: &str =
    "one value is signed, and the other is not: use as_signed() or as_unsigned()";
