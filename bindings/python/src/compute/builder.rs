//! `CircuitBuilder`.

pub(crate) mod integer;

use std::sync::{Mutex, MutexGuard, PoisonError};

use circuit::{CircuitBuilder, Wire};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::circuit::PyCircuit;
use super::values;
use integer::{MIXED, PyCircuitInteger, constant};

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

impl PyCircuitBuilder {
    fn lock(&self) -> MutexGuard<'_, Option<CircuitBuilder>> {
        self.builder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds gates.
    pub(super) fn add<T>(&self, gates: impl FnOnce(&mut CircuitBuilder) -> T) -> PyResult<T> {
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
                Self::integer(slf, value.to_vec(), false)
            })
            .collect();
        PyTuple::new(slf.py(), values)
    }

    /// A value.
    fn integer(slf: &Bound<'_, Self>, wires: Vec<Wire>, is_signed: bool) -> PyCircuitInteger {
        PyCircuitInteger { builder: slf.clone().unbind(), wires, is_signed }
    }

    /// The wires of integers that belong to this builder, and whether all are signed.
    fn wires_of_one_kind(
        slf: &Bound<'_, Self>,
        values: &[PyRef<'_, PyCircuitInteger>],
    ) -> PyResult<(Vec<Vec<Wire>>, bool)> {
        let wires = Self::wires_of(slf, values)?;
        let is_signed = values.first().is_some_and(|value| value.is_signed);
        if values.iter().any(|value| value.is_signed != is_signed) {
            return Err(PyTypeError::new_err(MIXED));
        }
        if wires.windows(2).any(|pair| pair[0].len() != pair[1].len()) {
            let text = "the values have different numbers of bits: use resize(bits)";
            return Err(PyValueError::new_err(text));
        }
        Ok((wires, is_signed))
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

    /// A constant of `bits` bits. A negative one is signed.
    fn constant(
        slf: &Bound<'_, Self>,
        value: &Bound<'_, PyAny>,
        bits: u32,
    ) -> PyResult<PyCircuitInteger> {
        let is_signed = value.lt(0)?;
        Ok(Self::integer(slf, constant(value, bits, is_signed)?, is_signed))
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
        let (a, b, is_signed) = match (a.cast::<PyCircuitInteger>(), b.cast::<PyCircuitInteger>()) {
            (Ok(a), _) => {
                a.get().require(slf.as_unbound())?;
                (a.get().wires.clone(), a.get().operand(b)?, a.get().is_signed)
            }
            (_, Ok(b)) => {
                b.get().require(slf.as_unbound())?;
                (b.get().operand(a)?, b.get().wires.clone(), b.get().is_signed)
            }
            _ => return Err(PyTypeError::new_err("one of the two values must be an Integer")),
        };
        let wires = slf.get().add(|builder| builder.select(condition, &a, &b))?;
        Ok(Self::integer(slf, wires, is_signed))
    }

    /// The values in ascending order. All have the same number of bits.
    fn sort<'py>(
        slf: &Bound<'py, Self>,
        values: Vec<PyRef<'py, PyCircuitInteger>>,
    ) -> PyResult<Vec<PyCircuitInteger>> {
        let (mut values, is_signed) = Self::wires_of_one_kind(slf, &values)?;
        let sorted = slf.get().add(|builder| {
            if !is_signed {
                return builder.sort(&values);
            }
            // With their signs inverted, signed values have the order of unsigned ones.
            invert_signs(builder, &mut values);
            let mut sorted = builder.sort(&values);
            invert_signs(builder, &mut sorted);
            sorted
        })?;
        Ok(sorted.into_iter().map(|wires| Self::integer(slf, wires, is_signed)).collect())
    }

    /// Value `index` of a list of 2^n values, for an index of n bits.
    fn choose<'py>(
        slf: &Bound<'py, Self>,
        values: Vec<PyRef<'py, PyCircuitInteger>>,
        index: PyRef<'py, PyCircuitInteger>,
    ) -> PyResult<PyCircuitInteger> {
        index.require(slf.as_unbound())?;
        let (values, is_signed) = Self::wires_of_one_kind(slf, &values)?;
        check_index(&index, values.len())?;
        let wires = slf.get().add(|builder| builder.choose(&values, &index.wires))?;
        Ok(Self::integer(slf, wires, is_signed))
    }

    /// Entry `index` of a table of 2^n constants of `bits` bits, for an index of n bits.
    fn look_up<'py>(
        slf: &Bound<'py, Self>,
        table: Vec<u64>,
        bits: usize,
        index: PyRef<'py, PyCircuitInteger>,
    ) -> PyResult<PyCircuitInteger> {
        index.require(slf.as_unbound())?;
        check_index(&index, table.len())?;
        let most = u64::MAX.checked_shr(64_u32.saturating_sub(u32::try_from(bits)?)).unwrap_or(0);
        if bits > 64 || table.iter().any(|entry| *entry > most) {
            let text =
                format!("an entry does not fit into {bits} bits, of which it has at most 64");
            return Err(PyValueError::new_err(text));
        }
        let wires = slf.get().add(|builder| builder.look_up(&table, bits, &index.wires))?;
        Ok(Self::integer(slf, wires, false))
    }

    /// The output values of another circuit, for these values of its two inputs.
    fn embed<'py>(
        slf: &Bound<'py, Self>,
        circuit: &Bound<'py, PyCircuit>,
        garbler: Vec<PyRef<'py, PyCircuitInteger>>,
        evaluator: Vec<PyRef<'py, PyCircuitInteger>>,
    ) -> PyResult<Vec<PyCircuitInteger>> {
        let inputs = [Self::wires_of(slf, &garbler)?, Self::wires_of(slf, &evaluator)?];
        let inputs = circuit.get().input_wires(&inputs)?;
        let inputs: Vec<&[Wire]> = inputs.iter().map(Vec::as_slice).collect();
        let embedded = slf.get().add(|builder| builder.embed(circuit.get().circuit(), &inputs))?;
        let signed = circuit.get().signed_outputs();
        let outputs = embedded.into_iter().zip(signed);
        Ok(outputs.map(|(wires, is_signed)| Self::integer(slf, wires, *is_signed)).collect())
    }

    /// The bits of all values as one, those of the first one lowest.
    fn concatenate<'py>(
        slf: &Bound<'py, Self>,
        values: Vec<PyRef<'py, PyCircuitInteger>>,
    ) -> PyResult<PyCircuitInteger> {
        Ok(Self::integer(slf, Self::wires_of(slf, &values)?.concat(), false))
    }

    /// The circuit with these output values, without gates that none of them needs. The builder
    /// cannot be used afterwards.
    fn finish(
        slf: &Bound<'_, Self>,
        outputs: Vec<PyRef<'_, PyCircuitInteger>>,
    ) -> PyResult<PyCircuit> {
        let signed = outputs.iter().map(|output| output.is_signed).collect();
        let outputs = Self::wires_of(slf, &outputs)?;
        let outputs: Vec<&[Wire]> = outputs.iter().map(Vec::as_slice).collect();
        let this = slf.get();
        let builder = this.lock().take().ok_or_else(finished)?;
        let circuit = slf.py().detach(|| builder.finish(&outputs));
        Ok(PyCircuit::new(circuit, this.garbler.clone(), this.evaluator.clone(), signed))
    }
}

fn check_index(index: &PyCircuitInteger, given: usize) -> PyResult<()> {
    let bits = index.wires.len();
    if u32::try_from(bits).ok().and_then(|bits| 1_usize.checked_shl(bits)) == Some(given) {
        return Ok(());
    }
    Err(PyValueError::new_err(format!(
        "an index of {bits} bits needs 2^{bits} values, not {given}"
    )))
}

fn invert_signs(builder: &mut CircuitBuilder, values: &mut [Vec<Wire>]) {
    for sign in values.iter_mut().filter_map(|value| value.last_mut()) {
        *sign = builder.not(*sign);
    }
}
