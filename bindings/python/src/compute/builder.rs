//! `CircuitBuilder` and `Integer`.

use std::sync::{Mutex, MutexGuard, PoisonError};

use circuit::{CircuitBuilder, Wire, ZERO};
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PySlice, PyTuple};

use super::circuit::PyCircuit;
use super::values;

/// The maximum number of bits of a party's input.
const MAX_INPUT_BITS: usize = 1 << 28;

/// Builds a circuit from integers. `garbler` and `evaluator` have the number of bits of each value
/// of a party's input.
#[pyclass(frozen, name = "CircuitBuilder", module = "sunder_compute")]
pub(crate) struct PyCircuitBuilder {
    /// None once the circuit is finished.
    builder: Mutex<Option<CircuitBuilder>>,
    garbler: Vec<u32>,
    evaluator: Vec<u32>,
}

/// An unsigned integer of a circuit: its bits, the lowest first.
#[pyclass(frozen, name = "Integer", module = "sunder_compute")]
pub(crate) struct PyCircuitInteger {
    builder: Py<PyCircuitBuilder>,
    wires: Vec<Wire>,
}

impl PyCircuitBuilder {
    fn lock(&self) -> MutexGuard<'_, Option<CircuitBuilder>> {
        self.builder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds gates.
    fn add<T>(&self, gates: impl FnOnce(&mut CircuitBuilder) -> T) -> PyResult<T> {
        Ok(gates(self.lock().as_mut().ok_or_else(finished)?))
    }

    /// The values of input `index` of the circuit.
    fn inputs<'py>(
        slf: &Bound<'py, Self>,
        index: usize,
        widths: &[u32],
    ) -> PyResult<Bound<'py, PyTuple>> {
        let wires = slf.get().add(|builder| builder.input(index))?;
        let mut rest = &wires[..];
        let values: Vec<PyCircuitInteger> = widths
            .iter()
            .map(|width| {
                let (value, after) = rest.split_at(*width as usize);
                rest = after;
                PyCircuitInteger { builder: slf.clone().unbind(), wires: value.to_vec() }
            })
            .collect();
        PyTuple::new(slf.py(), values)
    }

    /// The wires of integers that belong to this builder.
    fn wires_of(
        slf: &Bound<'_, Self>,
        values: &[PyRef<'_, PyCircuitInteger>],
    ) -> PyResult<Vec<Vec<Wire>>> {
        let wires = values.iter().map(|value| {
            value.require(slf.as_unbound())?;
            Ok(value.wires.clone())
        });
        wires.collect()
    }
}

fn finished() -> PyErr {
    PyValueError::new_err("the circuit is finished: make a new builder")
}

#[pymethods]
impl PyCircuitBuilder {
    #[new]
    fn new(garbler: Vec<u32>, evaluator: Vec<u32>) -> PyResult<Self> {
        let [of_garbler, of_evaluator] = [&garbler, &evaluator].map(|widths| {
            let bits = values::total(widths);
            let all = u32::try_from(bits).ok().filter(|_| bits <= MAX_INPUT_BITS);
            all.ok_or_else(|| PyValueError::new_err("a party's input has at most 2^28 bits"))
        });
        let builder = CircuitBuilder::new(&[of_garbler?, of_evaluator?]);
        Ok(Self { builder: Mutex::new(Some(builder)), garbler, evaluator })
    }

    /// The values of the garbler's input.
    #[getter]
    fn garbler<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        Self::inputs(slf, 0, &slf.get().garbler)
    }

    /// The values of the evaluator's input.
    #[getter]
    fn evaluator<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        Self::inputs(slf, 1, &slf.get().evaluator)
    }

    /// A constant of `bits` bits.
    fn constant(
        slf: &Bound<'_, Self>,
        value: &Bound<'_, PyAny>,
        bits: u32,
    ) -> PyResult<PyCircuitInteger> {
        let wires = constant(value, bits)?;
        Ok(PyCircuitInteger { builder: slf.clone().unbind(), wires })
    }

    /// `a` if the bit `condition` is 1, else `b`. One of them may be an int.
    fn select(
        slf: &Bound<'_, Self>,
        condition: PyRef<'_, PyCircuitInteger>,
        a: &Bound<'_, PyAny>,
        b: &Bound<'_, PyAny>,
    ) -> PyResult<PyCircuitInteger> {
        condition.require(slf.as_unbound())?;
        let &[condition] = &condition.wires[..] else {
            return Err(PyValueError::new_err("a condition has one bit, such as that of a < b"));
        };
        let (a, b) = match (a.cast::<PyCircuitInteger>(), b.cast::<PyCircuitInteger>()) {
            (Ok(a), _) => {
                a.get().require(slf.as_unbound())?;
                (a.get().wires.clone(), a.get().operand(b)?)
            }
            (_, Ok(b)) => {
                b.get().require(slf.as_unbound())?;
                (b.get().operand(a)?, b.get().wires.clone())
            }
            _ => return Err(PyTypeError::new_err("one of the two values must be an Integer")),
        };
        let wires = slf.get().add(|builder| builder.select(condition, &a, &b))?;
        Ok(PyCircuitInteger { builder: slf.clone().unbind(), wires })
    }

    /// The values in ascending order. All have the same number of bits.
    fn sort<'py>(
        slf: &Bound<'py, Self>,
        values: Vec<PyRef<'py, PyCircuitInteger>>,
    ) -> PyResult<Vec<PyCircuitInteger>> {
        let values = Self::wires_of(slf, &values)?;
        same_widths(&values)?;
        let sorted = slf.get().add(|builder| builder.sort(&values))?;
        let of = |wires| PyCircuitInteger { builder: slf.clone().unbind(), wires };
        Ok(sorted.into_iter().map(of).collect())
    }

    /// Value `index` of a list of 2^n values, for an index of n bits.
    fn choose<'py>(
        slf: &Bound<'py, Self>,
        values: Vec<PyRef<'py, PyCircuitInteger>>,
        index: PyRef<'py, PyCircuitInteger>,
    ) -> PyResult<PyCircuitInteger> {
        index.require(slf.as_unbound())?;
        let values = Self::wires_of(slf, &values)?;
        same_widths(&values)?;
        if u32::try_from(index.wires.len()).ok().and_then(|bits| 1_usize.checked_shl(bits))
            != Some(values.len())
        {
            let (bits, given) = (index.wires.len(), values.len());
            let text = format!("an index of {bits} bits needs 2^{bits} values, not {given}");
            return Err(PyValueError::new_err(text));
        }
        let wires = slf.get().add(|builder| builder.choose(&values, &index.wires))?;
        Ok(PyCircuitInteger { builder: slf.clone().unbind(), wires })
    }

    /// The bits of all values as one, those of the first one lowest.
    fn concatenate<'py>(
        slf: &Bound<'py, Self>,
        values: Vec<PyRef<'py, PyCircuitInteger>>,
    ) -> PyResult<PyCircuitInteger> {
        let wires = Self::wires_of(slf, &values)?.concat();
        Ok(PyCircuitInteger { builder: slf.clone().unbind(), wires })
    }

    /// The circuit with these output values, without gates that none of them needs. The builder
    /// cannot be used afterwards.
    fn finish(
        slf: &Bound<'_, Self>,
        outputs: Vec<PyRef<'_, PyCircuitInteger>>,
    ) -> PyResult<PyCircuit> {
        let outputs = Self::wires_of(slf, &outputs)?;
        let outputs: Vec<&[Wire]> = outputs.iter().map(Vec::as_slice).collect();
        let this = slf.get();
        let builder = this.lock().take().ok_or_else(finished)?;
        let circuit = slf.py().detach(|| builder.finish(&outputs));
        Ok(PyCircuit::new(circuit, this.garbler.clone(), this.evaluator.clone()))
    }
}

impl PyCircuitInteger {
    /// Refuses a value of another builder, whose wires mean something else.
    fn require(&self, builder: &Py<PyCircuitBuilder>) -> PyResult<()> {
        if self.builder.is(builder) {
            return Ok(());
        }
        Err(PyValueError::new_err("the value belongs to another builder"))
    }

    /// The wires of the other operand: an integer with as many bits, or a constant.
    fn operand(&self, other: &Bound<'_, PyAny>) -> PyResult<Vec<Wire>> {
        let Ok(other) = other.cast::<Self>() else {
            return constant(other, self.width());
        };
        let other = other.get();
        other.require(&self.builder)?;
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
        Self { builder: self.builder.clone_ref(py), wires }
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
        self.shift(by, CircuitBuilder::shift_right)
    }

    fn __lt__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.binary(other, |builder, a, b| vec![builder.less(a, b)])
    }

    fn __gt__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.binary(other, |builder, a, b| vec![builder.less(b, a)])
    }

    fn __le__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.binary(other, |builder, a, b| {
            let is_greater = builder.less(b, a);
            vec![builder.not(is_greater)]
        })
    }

    fn __ge__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.binary(other, |builder, a, b| {
            let is_less = builder.less(a, b);
            vec![builder.not(is_less)]
        })
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.binary(other, |builder, a, b| vec![builder.equal(a, b)])
    }

    fn __ne__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.binary(other, |builder, a, b| {
            let is_equal = builder.equal(a, b);
            vec![builder.not(is_equal)]
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
        Ok(self.with(index.py(), wires))
    }

    fn __repr__(&self) -> String {
        format!("<Integer of {} bits>", self.wires.len())
    }

    /// The number of bits.
    #[getter]
    fn bits(&self) -> usize {
        self.wires.len()
    }

    /// The value with `bits` bits: with zeros above, or without its highest bits.
    fn resize(&self, py: Python<'_>, bits: u32) -> Self {
        let mut wires = self.wires.clone();
        wires.resize(bits as usize, ZERO);
        self.with(py, wires)
    }

    /// The number of bits that are 1, with just as many bits as it needs.
    fn count_ones(&self, py: Python<'_>) -> PyResult<Self> {
        let wires = self.builder.get().add(|builder| builder.count_ones(&self.wires))?;
        Ok(self.with(py, wires))
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
            Err(_) => constant(by, u32::BITS)?,
        };
        let wires = self.builder.get().add(|builder| gates(builder, &self.wires, &by_wires))?;
        Ok(self.with(by.py(), wires))
    }
}

/// The wires of a constant.
fn constant(value: &Bound<'_, PyAny>, bits: u32) -> PyResult<Vec<Wire>> {
    Ok(values::bits_of(value, bits)?.iter().map(|bit| Wire::from(*bit)).collect())
}

fn same_widths(values: &[Vec<Wire>]) -> PyResult<()> {
    if values.windows(2).all(|pair| pair[0].len() == pair[1].len()) {
        return Ok(());
    }
    Err(PyValueError::new_err("the values have different numbers of bits: use resize(bits)"))
}
