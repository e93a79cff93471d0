//! `Circuit`.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;
use std::sync::OnceLock;

use base16ct::lower::encode_string;
use circuit::bristol::{self, BristolFormat};
use circuit::{Circuit, CircuitSchedule, Wire, file, generate};
use compute::predict::PredictedTraffic;
use compute::{ComputeProtocol, ComputeRole};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use zeroize::Zeroizing;

use super::settings::PyComputeSettings;
use super::values;

/// A Boolean circuit of two parties.
#[pyclass(frozen, name = "Circuit", module = "sunder_compute")]
pub(crate) struct PyCircuit {
    circuit: Circuit,
    /// The numbers of bits of the values of the garbler's input. The circuit has one value instead.
    garbler: Vec<u32>,
    /// Those of the evaluator's.
    evaluator: Vec<u32>,
    /// Whether each value of the output is signed.
    signed_outputs: Vec<bool>,
    /// The circuit in the order in which a protocol computes it, when it is first needed.
    yao: OnceLock<CircuitSchedule>,
    gmw: OnceLock<CircuitSchedule>,
}

impl PyCircuit {
    pub(super) fn new(
        circuit: Circuit,
        garbler: Vec<u32>,
        evaluator: Vec<u32>,
        signed_outputs: Vec<bool>,
    ) -> Self {
        let (yao, gmw) = (OnceLock::new(), OnceLock::new());
        Self { circuit, garbler, evaluator, signed_outputs, yao, gmw }
    }

    pub(super) fn circuit(&self) -> &Circuit {
        &self.circuit
    }

    /// Whether each value of the output is signed.
    pub(super) fn signed_outputs(&self) -> &[bool] {
        &self.signed_outputs
    }

    /// The wires of the garbler's and the evaluator's values, as the circuit's input values.
    ///
    /// # Errors
    /// If their number, or that of their bits, is another one.
    pub(super) fn input_wires(&self, inputs: &[Vec<Vec<Wire>>; 2]) -> PyResult<Vec<Vec<Wire>>> {
        let parties = [("garbler", &self.garbler), ("evaluator", &self.evaluator)];
        for ((party, widths), values) in parties.into_iter().zip(inputs) {
            if !values.iter().map(Vec::len).eq(widths.iter().map(|width| *width as usize)) {
                let given: Vec<usize> = values.iter().map(Vec::len).collect();
                let text = format!("the {party}'s values have {widths:?} bits, not {given:?}");
                return Err(PyValueError::new_err(text));
            }
        }
        let wires = inputs.concat().concat();
        let mut rest = &wires[..];
        let values = self.circuit.input_values().iter().map(|width| {
            let (value, after) = rest.split_at(*width as usize);
            rest = after;
            value.to_vec()
        });
        Ok(values.collect())
    }

    /// A circuit whose first value is the garbler's.
    fn of_values(circuit: Circuit) -> Self {
        let (garbler, evaluator) =
            circuit.input_values().split_at(circuit.input_values().len().min(1));
        let (garbler, evaluator) = (garbler.to_vec(), evaluator.to_vec());
        let unsigned = vec![false; circuit.output_values().len()];
        Self::new(circuit, garbler, evaluator, unsigned)
    }

    /// The values of an output.
    fn values<'py>(&self, py: Python<'py>, bits: Vec<bool>) -> PyResult<Bound<'py, PyTuple>> {
        let widths = self.circuit.output_values().iter().copied();
        values::values(py, bits, widths.zip(self.signed_outputs.iter().copied()))
    }

    /// The circuit as the protocol computes it. Takes a while the first time.
    pub(super) fn schedule(&self, protocol: ComputeProtocol) -> &CircuitSchedule {
        match protocol {
            ComputeProtocol::Yao => self.yao.get_or_init(|| CircuitSchedule::new(&self.circuit)),
            ComputeProtocol::Gmw => {
                self.gmw.get_or_init(|| CircuitSchedule::in_one_part(&self.circuit))
            }
        }
    }

    /// The input of a party, packed.
    pub(super) fn input(
        &self,
        role: ComputeRole,
        given: &Bound<'_, PyAny>,
    ) -> PyResult<Zeroizing<Vec<u8>>> {
        let widths = match role {
            ComputeRole::Garbler => &self.garbler,
            ComputeRole::Evaluator => &self.evaluator,
        };
        Ok(values::packed(&values::input_bits(given, widths)?))
    }

    /// The values of a packed output.
    pub(super) fn output<'py>(
        &self,
        py: Python<'py>,
        packed: &[u8],
    ) -> PyResult<Bound<'py, PyTuple>> {
        self.values(py, circuit::bits::of_bytes(packed))
    }
}

#[pymethods]
impl PyCircuit {
    /// Reads a circuit from a file in one of Bristol's formats, a netlist of yosys, or BLIF. Its
    /// first value is the garbler's input, and the others are the evaluator's.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        py.detach(|| {
            let named = |error: io::Error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            };
            let text = fs::read(&path).map_err(named)?;
            let circuit = file::read(&text)
                .map_err(|error| PyValueError::new_err(format!("{}: {error}", path.display())))?;
            Ok(Self::of_values(circuit))
        })
    }

    /// A circuit that is made here: aes128 (the garbler's key, the evaluator's block), sha256 (32
    /// bytes of each party, one padded block) or mincut (the minimum of 12,500 numbers of 20 bits
    /// of each party).
    #[staticmethod]
    fn named(py: Python<'_>, name: &str) -> PyResult<Self> {
        let made = py.detach(|| generate::named(name));
        let circuit = made.ok_or_else(|| {
            let names = generate::NAMES.join(", ");
            PyValueError::new_err(format!("there is no circuit {name}; the names are {names}"))
        })?;
        Ok(Self::of_values(circuit))
    }

    /// Writes the circuit to a file in Bristol Fashion, which `sunder compute` reads. There the
    /// garbler's input is one value.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| {
            let named = |error: io::Error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            };
            let mut file = BufWriter::new(File::create(&path).map_err(named)?);
            let written = bristol::write(&self.circuit, BristolFormat::Fashion, &mut file);
            let failed = |error| PyValueError::new_err(format!("{}: {error}", path.display()));
            written.map_err(failed)?;
            Ok(file.flush().map_err(named)?)
        })
    }

    /// The number of bits of each value of the garbler's input.
    #[getter]
    fn garbler<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.garbler)
    }

    /// The number of bits of each value of the evaluator's input.
    #[getter]
    fn evaluator<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.evaluator)
    }

    /// The number of bits of each value of the output.
    #[getter]
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.circuit.output_values())
    }

    /// The number of AND gates.
    #[getter]
    pub(super) fn ands(&self) -> u64 {
        self.circuit.counts().ands
    }

    /// The SHA-256 digest of the circuit, in hexadecimal, as `sunder circuit info` prints it.
    /// Parties can compute together only with the same digest.
    #[getter]
    fn digest(&self, py: Python<'_>) -> String {
        py.detach(|| encode_string(&self.circuit.digest()))
    }

    /// Computes the output without a protocol, from the inputs of both parties: for tests.
    fn evaluate<'py>(
        &self,
        py: Python<'py>,
        garbler: &Bound<'py, PyAny>,
        evaluator: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let mut inputs = values::input_bits(garbler, &self.garbler)?;
        inputs.extend_from_slice(&values::input_bits(evaluator, &self.evaluator)?);
        let output = py.detach(|| self.circuit.evaluate(&inputs));
        self.values(py, output)
    }

    /// What a session exchanges that computes the circuit once: the bytes that this party sends,
    /// those that it receives, and the round trips; for `exchange` of `sunder_transport.connect`.
    /// The options are those of `Session`.
    #[pyo3(signature = (
        role, *, protocol="yao", security=None, scheme="half-gates", transfers="iknp",
        output_to="both"
    ))]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn exchange(
        &self,
        py: Python<'_>,
        role: &str,
        protocol: &str,
        security: Option<&str>,
        scheme: &str,
        transfers: &str,
        output_to: &str,
    ) -> PyResult<(u64, u64, u32)> {
        let names = PyComputeSettings { role, protocol, security, scheme, transfers, output_to };
        let (role, settings) = names.parse()?;
        let exchange = py.detach(|| {
            PredictedTraffic::of(self.schedule(settings.protocol), &settings, 1).exchange(role)
        });
        Ok((exchange.sent, exchange.received, exchange.rounds))
    }
}
