//! A party, and how it sets up the transfers.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use blocks::Block;
use ot::extension::{Extension, ReceiverSetUp, SenderSetUp};
use zeroize::Zeroizing;

use crate::error::{Error, Phase};
use crate::figures::Figures;
use crate::link::Frames;
use crate::random::Random;
use crate::settings::{Role, Settings};
use crate::wire::{Frame, Kind};

/// What a run needs of its session.
pub(crate) struct Party {
    pub(crate) role: Role,
    pub(crate) settings: Settings,
    pub(crate) frames: Frames,
    pub(crate) figures: Arc<Figures>,
    pub(crate) random: Random,
    /// Of the garbler's labels.
    pub(crate) offset: Zeroizing<Block>,
    /// The next instance.
    pub(crate) number: u64,
}

/// The oblivious transfers.
pub(crate) enum Transfers {
    /// The garbler's end.
    Sender(Box<ot::extension::Sender>),
    /// The evaluator's end.
    Receiver(Box<ot::extension::Receiver>),
}

/// The transfers, which a thread may still be setting up. The thread ends before this is dropped:
/// nothing secret is left in it.
pub(crate) struct SetUp {
    thread: Option<JoinHandle<Result<Transfers, Error>>>,
    transfers: Option<Transfers>,
}

impl SetUp {
    pub(crate) fn start(
        work: impl FnOnce() -> Result<Transfers, Error> + Send + 'static,
    ) -> Result<Self, Error> {
        let thread = thread::Builder::new().name("compute-setup".into()).spawn(work);
        Ok(Self { thread: Some(thread.map_err(Error::system)?), transfers: None })
    }

    /// The transfers, when they are set up.
    ///
    /// # Errors
    /// If they cannot be.
    pub(crate) fn wait(&mut self) -> Result<&mut Transfers, Error> {
        if let Some(thread) = self.thread.take() {
            self.transfers = Some(thread.join().unwrap_or(Err(Error::Failed))?);
        }
        self.transfers.as_mut().ok_or(Error::Failed)
    }
}

impl Drop for SetUp {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Party {
    /// The work of the thread that sets up the transfers.
    pub(crate) fn setting_up(
        &mut self,
    ) -> impl FnOnce() -> Result<Transfers, Error> + Send + 'static {
        let (role, transfers) = (self.role, self.settings.transfers);
        let (frames, figures) = (self.frames.clone(), self.figures.clone());
        let (offset, seed) = (self.offset.clone(), Zeroizing::new(self.random.block()));
        move || {
            let made = set_up(role, transfers, &frames, &figures, *offset, *seed);
            sharing::wipe_stack();
            figures.leave(Phase::Setup);
            made.inspect_err(|error| frames.fail(error))
        }
    }
}

fn set_up(
    role: Role,
    transfers: Extension,
    frames: &Frames,
    figures: &Figures,
    offset: Block,
    seed: Block,
) -> Result<Transfers, Error> {
    if role == Role::Garbler {
        let made = figures.count(Phase::Setup, || SenderSetUp::new(transfers, offset, seed));
        let (setup, message) = made;
        frames.send(Frame::of(Kind::Base, &message))?;
        let point = frames.setup()?;
        let keys = figures.count(Phase::Setup, || setup.receive_point(&point))?;
        let reply = frames.setup()?;
        let sender = figures.count(Phase::Setup, || keys.receive(&reply))?;
        return Ok(Transfers::Sender(Box::new(sender)));
    }
    let setup = figures.count(Phase::Setup, || ReceiverSetUp::new(transfers, seed));
    // The garbler computes its keys from the point while this party computes its own.
    frames.send(Frame::of(Kind::Base, &setup.point()))?;
    let message = frames.setup()?;
    let (receiver, reply) = figures.count(Phase::Setup, || setup.receive(&message))?;
    frames.send(Frame::of(Kind::Base, &reply))?;
    Ok(Transfers::Receiver(Box::new(receiver)))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use sha2::{Digest as _, Sha256};

    use super::*;

    #[test]
    fn a_set_up_that_nobody_waits_for_ends_before_it_is_dropped() {
        let (ended, has_ended) = channel();
        let work = move || {
            Sha256::digest(vec![0; 8 << 20]);
            let _ = ended.send(());
            Err(Error::Failed)
        };
        drop(SetUp::start(work).unwrap());
        has_ended.try_recv().expect("it has ended");
    }
}
