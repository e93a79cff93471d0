//! What `sunder compute` prints.

use std::time::Duration;

use circuit::CircuitShape;
use compute::{ComputePhase, ComputeProtocol, ComputeSettings, PhaseFigures, peak_memory};
use serde::Serialize;

use super::{Arguments, scheme_name};
use crate::circuits::hex_of;
use crate::console;
use crate::failure::CommandFailure;

/// What a run has given and taken.
pub(super) struct ComputeReport<'a> {
    pub(super) arguments: &'a Arguments,
    pub(super) settings: ComputeSettings,
    pub(super) transport: &'static str,
    pub(super) shape: &'a CircuitShape,
    pub(super) output: Option<&'a [u8]>,
    pub(super) costs: ComputeCosts,
}

/// How long the parts of a run took.
pub(super) struct ComputeTimings {
    /// From the start of the program's work to its end.
    pub(super) total: Duration,
    /// From the connection to the end.
    pub(super) run: Duration,
    /// Connecting.
    pub(super) connect: PhaseFigures,
    /// Loading the circuit.
    pub(super) load: PhaseFigures,
}

#[derive(Serialize)]
struct ComputeDocument<'a> {
    role: String,
    circuit: &'a str,
    circuit_digest: String,
    protocol: &'a str,
    /// `null` with GMW.
    scheme: Option<&'a str>,
    transfers: &'a str,
    transport: &'a str,
    instances: u64,
    ands: u64,
    xors: u64,
    garbler_bits: u32,
    evaluator_bits: u32,
    output_bits: usize,
    output: Option<String>,
    #[serde(flatten)]
    costs: &'a ComputeCosts,
}

/// What a run has taken. Times are in seconds.
#[derive(Serialize)]
pub(super) struct ComputeCosts {
    total_s: f64,
    pub(super) run_s: f64,
    bytes_sent: u64,
    bytes_received: u64,
    peak_memory_bytes: u64,
    phases: Vec<ComputePhaseDocument>,
}

impl ComputeCosts {
    pub(super) fn new(
        timings: &ComputeTimings,
        figures: &[PhaseFigures; ComputePhase::ALL.len()],
        protocol: ComputeProtocol,
    ) -> Self {
        let before = [
            ComputePhaseDocument::before("load", &timings.load),
            ComputePhaseDocument::before("connect", &timings.connect),
        ];
        let phases =
            ComputePhase::ALL.iter().zip(figures).filter(|(phase, _)| phase.is_of(protocol));
        let phases = phases.map(|(phase, figures)| ComputePhaseDocument::new(*phase, figures));
        Self {
            total_s: timings.total.as_secs_f64(),
            run_s: timings.run.as_secs_f64(),
            bytes_sent: figures.iter().map(|phase| phase.bytes_sent).sum(),
            bytes_received: figures.iter().map(|phase| phase.bytes_received).sum(),
            peak_memory_bytes: peak_memory(),
            phases: before.into_iter().chain(phases).collect(),
        }
    }
}

/// Times are in seconds, memory in bytes.
#[derive(Serialize)]
pub(in crate::commands) struct ComputePhaseDocument {
    name: &'static str,
    /// From the connection on; `null` if the phase is before that.
    start_s: Option<f64>,
    time_s: f64,
    cpu_s: f64,
    bytes_sent: u64,
    bytes_received: u64,
    peak_memory_bytes: u64,
}

impl ComputePhaseDocument {
    fn before(name: &'static str, figures: &PhaseFigures) -> Self {
        Self {
            name,
            start_s: None,
            time_s: figures.time.as_secs_f64(),
            cpu_s: figures.cpu.as_secs_f64(),
            bytes_sent: figures.bytes_sent,
            bytes_received: figures.bytes_received,
            peak_memory_bytes: figures.peak_memory,
        }
    }

    pub(in crate::commands) fn new(phase: ComputePhase, figures: &PhaseFigures) -> Self {
        let start_s = Some(figures.start.as_secs_f64());
        Self { start_s, ..Self::before(phase.name(), figures) }
    }
}

impl ComputeReport<'_> {
    /// Prints it: the output, or everything as JSON.
    ///
    /// # Errors
    /// If standard output cannot be written to.
    pub(super) fn print(&self) -> Result<(), CommandFailure> {
        if self.arguments.json {
            return console::print_json(&self.document());
        }
        match self.output {
            Some(output) => console::print_line(&hex_of(output))?,
            None => console::note("the output is the other party's only"),
        }
        let instances = self.arguments.repeat.get();
        let times = if instances == 1 { String::new() } else { format!(", {instances} times,") };
        let ComputeCosts { run_s, bytes_sent, bytes_received, .. } = self.costs;
        console::note(&format!(
            "{} ANDs{times} in {run_s:.3} s by {}; {bytes_sent} bytes sent, {bytes_received} \
             received",
            self.shape.ands, self.transport
        ));
        Ok(())
    }

    fn document(&self) -> ComputeDocument<'_> {
        let Self { arguments, transport, shape, costs, .. } = self;
        ComputeDocument {
            role: arguments.role().to_string(),
            circuit: arguments.circuit(),
            circuit_digest: hex_of(&shape.digest),
            protocol: self.settings.protocol.name(),
            scheme: scheme_name(&self.settings),
            transfers: arguments.protocol.transfers.name(),
            transport,
            instances: arguments.repeat.get(),
            ands: shape.ands,
            xors: shape.xors,
            garbler_bits: shape.garbler_inputs,
            evaluator_bits: shape.evaluator_inputs,
            output_bits: shape.outputs.len(),
            output: self.output.map(hex_of),
            costs,
        }
    }
}
