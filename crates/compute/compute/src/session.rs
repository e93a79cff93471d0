//! A session: one set-up of the transfers, and any number of instances on it.

use std::io::{Read, Write};
use std::sync::Arc;

use circuit::CircuitSource;
use transport::Connection;
use zeroize::Zeroizing;

use crate::error::{ComputeAbortReason, ComputePhase, Error};
use crate::figures::{PhaseFigures, PhaseFiguresRecorder, PhaseProgress};
use crate::gmw;
use crate::link::{PartyFrameQueues, PartyLink};
use crate::parties::{dual, evaluator, garbler};
use crate::party::{ComputeParty, ObliviousTransferSetUp};
use crate::random::PartyRng;
use crate::settings::{ComputeProtocol, ComputeRole, ComputeSettings, OutputLearners};
use crate::wire::ComputeHello;

/// The maximum number of bits of an input.
const MAX_INPUT_BITS: u32 = 1 << 28;
/// The maximum number of bits of an output: the last bits of its labels must fit into a frame.
const MAX_OUTPUT_BITS: usize = 8 * ((1 << 20) - 16);

/// A connection of two parties that compute.
///
/// A separate thread makes the base transfers from the start, so that a circuit can be loaded
/// meanwhile.
pub struct ComputeSession {
    /// Dropped first, which ends the thread of the set-up.
    link: PartyLink,
    setup: ObliviousTransferSetUp,
    party: ComputeParty,
    has_failed: bool,
}

/// Reports the progress of a session to another thread.
#[derive(Clone)]
pub struct ComputeProgress(Arc<PhaseFiguresRecorder>);

impl ComputeProgress {
    /// The number of ANDs that were garbled, evaluated or opened, over all instances.
    pub fn ands(&self) -> u64 {
        self.0.ands()
    }

    /// The phases that have begun, in the order of [`ComputePhase::ALL`].
    pub fn phases(&self) -> Vec<PhaseProgress> {
        self.0.begun()
    }
}

/// Stops a session, from another thread.
#[derive(Clone)]
pub struct ComputeStopper(PartyFrameQueues);

impl ComputeStopper {
    /// Stops the session unless it is finished. Its current or next run ends with
    /// [`Error::Stopped`]. The other party is told; dropping the session waits for that, for at
    /// most two seconds.
    pub fn stop(&self) {
        self.0.fail(&Error::Stopped);
    }
}

impl ComputeSession {
    /// Starts a session on a connection of `transport`. The other party has the other role.
    ///
    /// # Errors
    /// If the system provides no thread or no random bytes.
    pub fn start(
        connection: Connection,
        role: ComputeRole,
        settings: ComputeSettings,
    ) -> Result<Self, Error> {
        let limited = connection.set_timeout(Some(settings.timeout));
        limited.map_err(Error::system)?;
        let closer = connection.closer();
        let (reader, writer) = connection.split();
        let closer = Box::new(move || closer.close());
        Self::new(reader, writer, Some(closer), role, settings, PartyRng::system()?)
    }

    /// Starts a session on any reliable stream, whose reads and writes end with
    /// [`TimedOut`](std::io::ErrorKind::TimedOut) if the other party does not answer. A writer
    /// should shut down its direction when it is dropped. Otherwise the other party waits one
    /// second for the end of the stream.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn over(
        reader: impl Read + Send + 'static,
        writer: impl Write + Send + 'static,
        role: ComputeRole,
        settings: ComputeSettings,
    ) -> Result<Self, Error> {
        Self::new(reader, writer, None, role, settings, PartyRng::system()?)
    }

    pub(crate) fn new(
        reader: impl Read + Send + 'static,
        writer: impl Write + Send + 'static,
        closer: Option<Box<dyn Fn() + Send + Sync>>,
        role: ComputeRole,
        settings: ComputeSettings,
        mut random: PartyRng,
    ) -> Result<Self, Error> {
        let figures = Arc::new(PhaseFiguresRecorder::new());
        figures.enter(ComputePhase::Setup);
        let hello = ComputeHello::new(role, &settings);
        let link =
            PartyLink::new(reader, writer, closer, hello, settings.timeout, figures.clone())?;
        let offset = Zeroizing::new(random.block().with_lsb(true));
        let mut party = ComputeParty {
            role,
            settings,
            frames: link.frames(),
            figures,
            offset,
            number: 0,
            random,
        };
        let setup = ObliviousTransferSetUp::start(party.set_up_task())?;
        Ok(Self { link, setup, party, has_failed: false })
    }

    /// Computes an instance: the circuit of `source` on this party's input and the other's. Bit i
    /// of an input or output is bit i mod 8 of byte i div 8. Returns `None` if this party does not
    /// learn the output.
    ///
    /// # Errors
    /// If the other party computes something else, deviates from the protocol, or is gone. The
    /// session cannot be used any more.
    pub fn run(
        &mut self,
        source: &dyn CircuitSource,
        input: &[u8],
    ) -> Result<Option<Vec<u8>>, Error> {
        if self.has_failed {
            return Err(Error::Failed);
        }
        self.has_failed = true;
        let output = self.try_run(source, input).map_err(|error| self.link.fail(error))?;
        self.has_failed = false;
        self.party.number += 1;
        Ok(output)
    }

    fn try_run(
        &mut self,
        source: &dyn CircuitSource,
        input: &[u8],
    ) -> Result<Option<Vec<u8>>, Error> {
        let shape = source.shape();
        let role = self.party.role;
        let expected = match role {
            ComputeRole::Garbler => shape.garbler_inputs,
            ComputeRole::Evaluator => shape.evaluator_inputs,
        };
        if input.len() != expected.div_ceil(8) as usize {
            return Err(Error::InputLen { role, expected, given: input.len() * 8 });
        }
        let inputs = shape.garbler_inputs.max(shape.evaluator_inputs);
        if inputs > MAX_INPUT_BITS || shape.outputs.len() > MAX_OUTPUT_BITS {
            return Err(Error::TooLarge);
        }
        let settings = &self.party.settings;
        let is_dual = settings.security().is_dual();
        if is_dual && settings.learns != OutputLearners::Both {
            return Err(Error::PrivateOutput);
        }
        let run = match (settings.protocol, role) {
            (ComputeProtocol::Yao, _) if is_dual => dual::run,
            (ComputeProtocol::Yao, ComputeRole::Garbler) => garbler::run,
            (ComputeProtocol::Yao, ComputeRole::Evaluator) => evaluator::run,
            (ComputeProtocol::Gmw, _) => gmw::run,
        };
        run(&mut self.party, &mut self.setup, source, input)
    }

    /// As [`Self::run`] in dual execution, but garbles another circuit than it evaluates.
    #[cfg(test)]
    pub(crate) fn run_circuits(
        &mut self,
        sources: [&dyn CircuitSource; 2],
        input: &[u8],
    ) -> Result<Vec<u8>, Error> {
        let output = dual::run_circuits(&mut self.party, &mut self.setup, sources, input);
        output.map_err(|error| self.link.fail(error))
    }

    /// Changes who learns the output, from the next instance on. Both parties must make the same
    /// change. With [`ComputeSecurity::Malicious`](crate::ComputeSecurity::Malicious), both parties
    /// learn the output.
    pub fn set_learns(&mut self, learns: OutputLearners) {
        self.party.settings.learns = learns;
    }

    /// The measurements of the phases so far, in the order of [`ComputePhase::ALL`].
    pub fn figures(&self) -> [PhaseFigures; ComputePhase::ALL.len()] {
        self.party.figures.phases()
    }

    /// The offset of the garbler's labels.
    #[cfg(test)]
    pub(crate) fn offset(&self) -> blocks::Block {
        *self.party.offset
    }

    /// A handle to follow the progress of the session from another thread.
    pub fn watch(&self) -> ComputeProgress {
        ComputeProgress(self.party.figures.clone())
    }

    /// A handle to stop the session from another thread.
    pub fn stopper(&self) -> ComputeStopper {
        ComputeStopper(self.party.frames.clone())
    }

    /// Aborts the session, and tells the other party the reason. For problems that this party finds
    /// only after the start, for example that its circuit cannot be loaded.
    pub fn give_up(self, reason: ComputeAbortReason) {
        self.link.give_up(reason);
    }

    /// Ends the session. Returns when the delivery of everything that was sent is ensured.
    ///
    /// # Errors
    /// If the connection fails before that.
    pub fn finish(self) -> Result<(), Error> {
        self.link.finish()
    }
}
