//! Loading a circuit while the parties meet.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use circuit::{Circuit, CircuitSchedule, bits, generate};
use compute::{ComputeProtocol, ComputeRole, PhaseFigures};
use console::CommandFailure;
use console::CommandProgress;
use rustix::time::ClockId;
use zeroize::Zeroizing;

use super::measuring::PhaseMeasurement;
use crate::circuits::{self, InputNumbers, ValueOrderOptions};

/// How long a party waits for a circuit before it meets the other one: what is wrong with a file
/// is then reported before. A larger file is read while the transfers are set up.
const LOAD_WAIT: Duration = Duration::from_secs(1);

/// A circuit that is being loaded in a thread.
pub(super) struct CircuitLoader {
    pub(super) start: Instant,
    result: Receiver<Result<LoadedCircuit, CommandFailure>>,
    loaded: Option<LoadedCircuit>,
}

/// A circuit, ready to be garbled.
pub(super) struct LoadedCircuit {
    pub(super) schedule: CircuitSchedule,
    /// What that took; of processor time, what the process has used meanwhile: it is loaded by
    /// several threads.
    pub(super) load: PhaseFigures,
}

impl CircuitLoader {
    /// Begins to load a circuit.
    ///
    /// # Errors
    /// If there are no threads.
    pub(super) fn spawn(
        load: impl FnOnce() -> Result<CircuitSchedule, CommandFailure> + Send + 'static,
    ) -> Result<Self, CommandFailure> {
        let start = Instant::now();
        let measuring = PhaseMeasurement::start(ClockId::ProcessCPUTime);
        let (done, result) = channel();
        let work = move || {
            let loaded =
                load().map(|schedule| LoadedCircuit { schedule, load: measuring.figures() });
            // Nobody waits for it any more after an error.
            let _ = done.send(loaded);
        };
        let thread = thread::Builder::new().name("load".into()).spawn(work);
        thread.map_err(|error| CommandFailure::Failed(format!("no threads: {error}")))?;
        Ok(Self { start, result, loaded: None })
    }

    /// Waits until it is loaded.
    ///
    /// # Errors
    /// If the file is not a circuit.
    pub(super) fn wait(&mut self) -> Result<&LoadedCircuit, CommandFailure> {
        if let Some(loaded) = self.try_wait()? {
            return Ok(self.loaded.insert(loaded));
        }
        let progress = CommandProgress::unknown();
        progress.doing("loading the circuit");
        let loaded = self.result.recv().unwrap_or_else(|_| Err(lost()))?;
        Ok(self.loaded.insert(loaded))
    }

    /// Waits for a moment. What it returns is not kept.
    fn try_wait(&mut self) -> Result<Option<LoadedCircuit>, CommandFailure> {
        if let Some(loaded) = self.loaded.take() {
            return Ok(Some(loaded));
        }
        match self.result.recv_timeout(LOAD_WAIT) {
            Ok(loaded) => Ok(Some(loaded?)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(lost()),
        }
    }
}

fn lost() -> CommandFailure {
    CommandFailure::Failed("loading the circuit has failed".into())
}

/// Which circuit a party needs.
pub(super) struct CircuitRequest<'a> {
    pub(super) name: &'a str,
    pub(super) role: ComputeRole,
    pub(super) protocol: ComputeProtocol,
    /// The input values that this party gives, unless the garbler gives the first.
    pub(super) inputs: Option<&'a InputNumbers>,
    pub(super) order: ValueOrderOptions,
}

impl CircuitRequest<'_> {
    /// Begins to load the circuit, for a party with this input; without one, with half of a block
    /// of SHA-256.
    ///
    /// # Errors
    /// If there is no such circuit, or the input does not fit it, as far as that is known at once.
    pub(super) fn start(&self, input: Option<&[u8]>) -> Result<CircuitLoader, CommandFailure> {
        let &Self { name, role, protocol, inputs, .. } = self;
        let is_generated = generate::NAMES.contains(&name.split(':').next().unwrap_or(name));
        if inputs.is_some() && is_generated {
            let message = format!("--inputs is for circuits of files; leave it out for {name}");
            return Err(CommandFailure::Usage(message));
        }
        let mut loading = if name == "sha256" {
            let own = input.map_or(32, <[u8]>::len);
            let Some(rest) = 64_usize.checked_sub(own) else {
                let message = format!("sha256: one block has 64 bytes, but the input has {own}");
                return Err(CommandFailure::Usage(message));
            };
            let garbler = if role == ComputeRole::Garbler { own } else { rest };
            let garbler = u32::try_from(garbler).unwrap_or(0);
            CircuitLoader::spawn(move || Ok(schedule(&generate::sha256(garbler), protocol)))?
        } else {
            let (name, inputs) = (name.to_owned(), inputs.cloned());
            CircuitLoader::spawn(move || load(&name, role, inputs.as_ref(), protocol))?
        };
        let Some(input) = input else { return Ok(loading) };
        match name {
            "sha256" => {}
            "aes128" => require(name, input.len(), 16)?,
            "mincut" => require(name, input.len(), 31_250)?,
            _ => {
                if let Some(loaded) = loading.try_wait()? {
                    self.packed(&loaded.schedule, input)?;
                    loading.loaded = Some(loaded);
                }
            }
        }
        Ok(loading)
    }

    /// The input as a session takes it.
    ///
    /// # Errors
    /// If it is not one for the circuit.
    pub(super) fn packed(
        &self,
        schedule: &CircuitSchedule,
        input: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, CommandFailure> {
        let values = match self.role {
            ComputeRole::Garbler => &schedule.shape().garbler_values,
            ComputeRole::Evaluator => &schedule.shape().evaluator_values,
        };
        let bits = self.order.bits("input", values, input)?;
        Ok(Zeroizing::new(bits::to_bytes(&bits)))
    }
}

/// The circuit of a file, or a generated one, with the input values that a party gives.
fn load(
    name: &str,
    role: ComputeRole,
    inputs: Option<&InputNumbers>,
    protocol: ComputeProtocol,
) -> Result<CircuitSchedule, CommandFailure> {
    match (inputs, role) {
        (Some(inputs), ComputeRole::Evaluator) => {
            // The garbler gives all others.
            let circuit = circuits::load(name)?;
            let of_garbler = inputs.others(circuit.input_values().len());
            inputs.check(&circuit)?;
            Ok(schedule(&of_garbler.of_garbler(circuit)?, protocol))
        }
        _ => circuits::schedule(name, inputs, |circuit| schedule(circuit, protocol)),
    }
}

/// A circuit in the order in which a protocol evaluates it.
pub(super) fn schedule(circuit: &Circuit, protocol: ComputeProtocol) -> CircuitSchedule {
    match protocol {
        ComputeProtocol::Yao => CircuitSchedule::new(circuit),
        // Each level takes half a round trip.
        ComputeProtocol::Gmw => CircuitSchedule::in_one_part(circuit),
    }
}

fn require(name: &str, given: usize, expected: usize) -> Result<(), CommandFailure> {
    if given == expected {
        return Ok(());
    }
    Err(CommandFailure::Usage(format!("{name}: the input must have {expected} bytes, not {given}")))
}
