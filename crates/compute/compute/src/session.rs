//! A session: one set-up of the transfers, and any number of instances on it.

use std::io::{Read, Write};
use std::sync::Arc;

use circuit::CircuitSource;
use transport::Connection;
use zeroize::Zeroizing;

use crate::error::{ComputeAbortReason, ComputePhase, Error};
use crate::figures::{PhaseFigures, PhaseFiguresRecorder};
use crate::gmw;
use crate::link::{PartyFrameQueues, PartyLink};
use crate::parties::{evaluator, garbler};
use crate::party::{ComputeParty, ObliviousTransferSetUp};
use crate::random::PartyRng;
use crate::settings::{ComputeProtocol, ComputeRole, ComputeSettings, OutputLearners};
use crate::wire::ComputeHello;

/// The most bits of an input.
const MAX_INPUT_BITS: u32 = 1 << 28;
/// The most bits of an output: the frame with its labels' last bits must hold them.
const MAX_OUTPUT_BITS: usize = 8 * ((1 << 20) - 16);

/// A connection of two parties that compute.
///
/// The base transfers are made in a thread of their own from the beginning: a circuit can be loaded
/// meanwhile.
pub struct ComputeSession {
    /// Dropped first: that ends the thread of the set-up.
    link: PartyLink,
    setup: ObliviousTransferSetUp,
    party: ComputeParty,
    has_failed: bool,
}

/// Follows how far a session is, from another thread.
#[derive(Clone)]
pub struct ComputeProgress(Arc<PhaseFiguresRecorder>);

impl ComputeProgress {
    /// The ANDs that were garbled, evaluated or opened, in all instances together.
    pub fn ands(&self) -> u64 {
        self.0.ands()
    }
}

/// Stops a session, from another thread.
#[derive(Clone)]
pub struct ComputeStopper(PartyFrameQueues);

impl ComputeStopper {
    /// Stops it, unless it is finished: what it runs, now or later, ends with [`Error::Stopped`].
    /// The other party is told; the session waits for that when it is dropped, for two seconds at
    /// most.
    pub fn stop(&self) {
        self.0.fail(&Error::Stopped);
    }
}

impl ComputeSession {
    /// Starts a session on a connection of `transport`. The other party has the other role.
    ///
    /// # Errors
    /// If the system gives no thread or no random bytes.
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
    /// [`TimedOut`](std::io::ErrorKind::TimedOut) if the other party does not answer. A writer that
    /// shuts its direction down when it is dropped saves the other party a second: it waits so long
    /// for the end of the stream.
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
        let ComputeSettings { protocol, transfers, .. } = settings;
        let hello = ComputeHello { role, protocol, transfers };
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

    /// Computes an instance: the circuit of `source` on this party's input
    /// and the other's. Bit i of an input or output is bit i mod 8 of byte i div 8. `None`: this
    /// party does not learn the output.
    ///
    /// # Errors
    /// If the other party computes something else, does what it may not, or is gone. The session
    /// can then not be used any more.
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
        let run = match (self.party.settings.protocol, role) {
            (ComputeProtocol::Yao, ComputeRole::Garbler) => garbler::run,
            (ComputeProtocol::Yao, ComputeRole::Evaluator) => evaluator::run,
            (ComputeProtocol::Gmw, _) => gmw::run,
        };
        run(&mut self.party, &mut self.setup, source, input)
    }

    /// From the next instance on, another party learns the output. Both parties change it alike.
    pub fn set_learns(&mut self, learns: OutputLearners) {
        self.party.settings.learns = learns;
    }

    /// What the phases have taken so far, in the order of [`ComputePhase::ALL`].
    pub fn figures(&self) -> [PhaseFigures; ComputePhase::ALL.len()] {
        self.party.figures.phases()
    }

    /// The offset of the garbler's labels.
    #[cfg(test)]
    pub(crate) fn offset(&self) -> blocks::Block {
        *self.party.offset
    }

    /// A handle with which another thread sees how far the session is.
    pub fn watch(&self) -> ComputeProgress {
        ComputeProgress(self.party.figures.clone())
    }

    /// A handle with which another thread stops the session.
    pub fn stopper(&self) -> ComputeStopper {
        ComputeStopper(self.party.frames.clone())
    }

    /// Ends the session without a result, and tells the other party why: for what this party finds
    /// out only after the start, for example that its circuit cannot be loaded.
    pub fn give_up(self, reason: ComputeAbortReason) {
        self.link.give_up(reason);
    }

    /// Ends the session. Returns when the other party will get what was sent to it.
    ///
    /// # Errors
    /// If the connection fails before.
    pub fn finish(self) -> Result<(), Error> {
        self.link.finish()
    }
}
