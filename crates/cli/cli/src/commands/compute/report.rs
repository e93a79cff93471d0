//! What `sunder compute` prints.

use std::time::Duration;

use base16ct::lower::encode_string;
use circuit::CircuitShape;
use compute::{
    ComputePhase, ComputeProtocol, ComputeSettings, PhaseDocument, PhaseFigures, peak_memory,
};
use console::CommandFailure;
use serde::Serialize;

use super::{Arguments, scheme_name};

/// The output and the costs of a run.
pub(super) struct ComputeReport<'a> {
    pub(super) arguments: &'a Arguments,
    pub(super) settings: ComputeSettings,
    pub(super) transport: &'static str,
    /// Why `auto` has chosen it, if this party let it.
    pub(super) reason: Option<&'a str>,
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
    security: &'a str,
    transfers: &'a str,
    transport: &'a str,
    /// `null` if this party did not let `auto` choose it.
    reason: Option<&'a str>,
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

/// The costs of a run. Times are in seconds.
#[derive(Serialize)]
pub(super) struct ComputeCosts {
    total_s: f64,
    pub(super) run_s: f64,
    bytes_sent: u64,
    bytes_received: u64,
    peak_memory_bytes: u64,
    phases: Vec<PhaseDocument>,
}

impl ComputeCosts {
    pub(super) fn new(
        timings: &ComputeTimings,
        figures: &[PhaseFigures; ComputePhase::ALL.len()],
        protocol: ComputeProtocol,
    ) -> Self {
        let before = [
            PhaseDocument::before("load", &timings.load),
            PhaseDocument::before("connect", &timings.connect),
        ];
        let phases =
            ComputePhase::ALL.iter().zip(figures).filter(|(phase, _)| phase.is_of(protocol));
        let phases = phases.map(|(phase, figures)| PhaseDocument::new(*phase, figures));
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
            Some(output) => console::print_line(&encode_string(output))?,
            None => console::note("only the other party learns the output"),
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
        let Self { arguments, transport, reason, shape, costs, .. } = self;
        ComputeDocument {
            role: arguments.role().to_string(),
            circuit: arguments.circuit(),
            circuit_digest: encode_string(&shape.digest),
            protocol: self.settings.protocol.name(),
            scheme: scheme_name(&self.settings),
            security: self.settings.security.name(),
            transfers: arguments.protocol.transfers().name(),
            transport,
            reason: *reason,
            instances: arguments.repeat.get(),
            ands: shape.ands,
            xors: shape.xors,
            garbler_bits: shape.garbler_inputs,
            evaluator_bits: shape.evaluator_inputs,
            output_bits: shape.outputs.len(),
            output: self.output.map(encode_string),
            costs,
        }
    }
}
