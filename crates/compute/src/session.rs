//! A session: one set-up of the transfers, and any number of instances on it.

use std::io::{Read, Write};
use std::sync::Arc;

use circuit::Source;
use transport::Connection;
use zeroize::Zeroizing;

use crate::error::{Error, Phase, Reason};
use crate::figures::{Figures, PhaseFigures};
use crate::gmw;
use crate::link::{Frames, Link};
use crate::parties::{evaluator, garbler};
use crate::party::{Party, SetUp};
use crate::random::Random;
use crate::settings::{Learns, Protocol, Role, Settings};
use crate::wire::Hello;

/// The most bits of an input.
const MAX_INPUT_BITS: u32 = 1 << 28;
/// The most bits of an output: the frame with its labels' last bits must hold them.
const MAX_OUTPUT_BITS: usize = 8 * ((1 << 20) - 16);

/// A connection of two parties that compute.
///
/// The base transfers are made in a thread of their own from the beginning: a circuit can be loaded
/// meanwhile.
pub struct Session {
    /// Dropped first: that ends the thread of the set-up.
    link: Link,
    setup: SetUp,
    party: Party,
    has_failed: bool,
}

/// Follows how far a session is, from another thread.
#[derive(Clone)]
pub struct Watch(Arc<Figures>);

impl Watch {
    /// The ANDs that were garbled, evaluated or opened, in all instances together.
    pub fn ands(&self) -> u64 {
        self.0.ands()
    }
}

/// Stops a session, from another thread.
#[derive(Clone)]
pub struct Stopper(Frames);

impl Stopper {
    /// Stops it, unless it is finished: what it runs, now or later, ends with [`Error::Stopped`].
    /// The other party is told; the session waits for that when it is dropped, for two seconds at
    /// most.
    pub fn stop(&self) {
        self.0.fail(&Error::Stopped);
    }
}

impl Session {
    /// Starts a session on a connection of `transport`. The other party has the other role.
    ///
    /// # Errors
    /// If the system gives no thread or no random bytes.
    pub fn start(connection: Connection, role: Role, settings: Settings) -> Result<Self, Error> {
        let limited = connection.set_timeout(Some(settings.timeout));
        limited.map_err(Error::system)?;
        let closer = connection.closer();
        let (reader, writer) = connection.split();
        let closer = Box::new(move || closer.close());
        Self::new(reader, writer, Some(closer), role, settings, Random::system()?)
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
        role: Role,
        settings: Settings,
    ) -> Result<Self, Error> {
        Self::new(reader, writer, None, role, settings, Random::system()?)
    }

    pub(crate) fn new(
        reader: impl Read + Send + 'static,
        writer: impl Write + Send + 'static,
        closer: Option<Box<dyn Fn() + Send + Sync>>,
        role: Role,
        settings: Settings,
        mut random: Random,
    ) -> Result<Self, Error> {
        let figures = Arc::new(Figures::new());
        figures.enter(Phase::Setup);
        let Settings { protocol, transfers, .. } = settings;
        let hello = Hello { role, protocol, transfers };
        let link = Link::new(reader, writer, closer, hello, settings.timeout, figures.clone())?;
        let offset = Zeroizing::new(random.block().with_lsb(true));
        let mut party =
            Party { role, settings, frames: link.frames(), figures, offset, number: 0, random };
        let setup = SetUp::start(party.setting_up())?;
        Ok(Self { link, setup, party, has_failed: false })
    }

    /// Computes an instance: the circuit of `source` on this party's input
    /// and the other's. Bit i of an input or output is bit i mod 8 of byte i div 8. `None`: this
    /// party does not learn the output.
    ///
    /// # Errors
    /// If the other party computes something else, does what it may not, or is gone. The session
    /// can then not be used any more.
    pub fn run(&mut self, source: &dyn Source, input: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        if self.has_failed {
            return Err(Error::Failed);
        }
        self.has_failed = true;
        let output = self.try_run(source, input).map_err(|error| self.link.fail(error))?;
        self.has_failed = false;
        self.party.number += 1;
        Ok(output)
    }

    fn try_run(&mut self, source: &dyn Source, input: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let shape = source.shape();
        let role = self.party.role;
        let expected = match role {
            Role::Garbler => shape.garbler_inputs,
            Role::Evaluator => shape.evaluator_inputs,
        };
        if input.len() != expected.div_ceil(8) as usize {
            return Err(Error::InputLen { role, expected, given: input.len() * 8 });
        }
        let inputs = shape.garbler_inputs.max(shape.evaluator_inputs);
        if inputs > MAX_INPUT_BITS || shape.outputs.len() > MAX_OUTPUT_BITS {
            return Err(Error::TooLarge);
        }
        let run = match (self.party.settings.protocol, role) {
            (Protocol::Yao, Role::Garbler) => garbler::run,
            (Protocol::Yao, Role::Evaluator) => evaluator::run,
            (Protocol::Gmw, _) => gmw::run,
        };
        run(&mut self.party, &mut self.setup, source, input)
    }

    /// From the next instance on, another party learns the output. Both parties change it alike.
    pub fn set_learns(&mut self, learns: Learns) {
        self.party.settings.learns = learns;
    }

    /// What the phases have taken so far, in the order of [`Phase::ALL`].
    pub fn figures(&self) -> [PhaseFigures; Phase::ALL.len()] {
        self.party.figures.phases()
    }

    /// The offset of the garbler's labels.
    #[cfg(test)]
    pub(crate) fn offset(&self) -> blocks::Block {
        *self.party.offset
    }

    /// A handle with which another thread sees how far the session is.
    pub fn watch(&self) -> Watch {
        Watch(self.party.figures.clone())
    }

    /// A handle with which another thread stops the session.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.party.frames.clone())
    }

    /// Ends the session without a result, and tells the other party why: for what this party finds
    /// out only after the start, for example that its circuit cannot be loaded.
    pub fn give_up(self, reason: Reason) {
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
