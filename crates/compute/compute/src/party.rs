//! A party, and the set-up of its transfers.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use blocks::Block;
use ot::extension::{
    OtExtension, OtExtensionReceiver, OtExtensionSender, OtReceiverSetUp, OtSenderSetUp,
};
use zeroize::Zeroizing;

use crate::error::{ComputePhase, Error};
use crate::figures::PhaseFiguresRecorder;
use crate::link::PartyFrameQueues;
use crate::malformed::MalformedComputeFrame;
use crate::random::PartyRng;
use crate::settings::{ComputeRole, ComputeSettings};
use crate::wire::{ComputeFrame, ComputeFrameKind};

/// The length of the salt with which the message of a transfers' sender begins, in bytes.
const SALT_LEN: usize = 16;

/// The part of a session that a run needs.
pub(crate) struct ComputeParty {
    pub(crate) role: ComputeRole,
    pub(crate) settings: ComputeSettings,
    pub(crate) frames: PartyFrameQueues,
    pub(crate) figures: Arc<PhaseFiguresRecorder>,
    pub(crate) random: PartyRng,
    /// The offset of the garbler's labels.
    pub(crate) offset: Zeroizing<Block>,
    /// The number of the next instance.
    pub(crate) number: u64,
}

/// This party's ends of the oblivious transfers: as the garbler, as the evaluator, or both.
#[derive(Default)]
pub(crate) struct ObliviousTransferEnds {
    sender: Option<Box<OtExtensionSender>>,
    receiver: Option<Box<OtExtensionReceiver>>,
}

impl ObliviousTransferEnds {
    /// The garbler's end.
    ///
    /// # Errors
    /// If this party is only the evaluator.
    pub(crate) fn sender(&mut self) -> Result<&mut OtExtensionSender, Error> {
        self.sender.as_deref_mut().ok_or(Error::Failed)
    }

    /// The evaluator's end.
    ///
    /// # Errors
    /// If this party is only the garbler.
    pub(crate) fn receiver(&mut self) -> Result<&mut OtExtensionReceiver, Error> {
        self.receiver.as_deref_mut().ok_or(Error::Failed)
    }

    /// Both ends.
    ///
    /// # Errors
    /// If this party has only one role.
    pub(crate) fn both(
        &mut self,
    ) -> Result<(&mut OtExtensionSender, &mut OtExtensionReceiver), Error> {
        let Self { sender, receiver } = self;
        sender.as_deref_mut().zip(receiver.as_deref_mut()).ok_or(Error::Failed)
    }
}

/// The transfers, which a thread may still be setting up. Dropping this waits for the thread, so
/// that no secret remains in it.
pub(crate) struct ObliviousTransferSetUp {
    thread: Option<JoinHandle<Result<ObliviousTransferEnds, Error>>>,
    transfers: Option<ObliviousTransferEnds>,
}

impl ObliviousTransferSetUp {
    pub(crate) fn start(
        work: impl FnOnce() -> Result<ObliviousTransferEnds, Error> + Send + 'static,
    ) -> Result<Self, Error> {
        let thread = thread::Builder::new().name("compute-setup".into()).spawn(work);
        Ok(Self { thread: Some(thread.map_err(Error::system)?), transfers: None })
    }

    /// Waits until the transfers are set up.
    ///
    /// # Errors
    /// If the set-up fails.
    pub(crate) fn wait(&mut self) -> Result<&mut ObliviousTransferEnds, Error> {
        if let Some(thread) = self.thread.take() {
            self.transfers = Some(thread.join().unwrap_or(Err(Error::Failed))?);
        }
        self.transfers.as_mut().ok_or(Error::Failed)
    }
}

impl Drop for ObliviousTransferSetUp {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl ComputeParty {
    /// The task of the thread that sets up the transfers.
    pub(crate) fn set_up_task(
        &mut self,
    ) -> impl FnOnce() -> Result<ObliviousTransferEnds, Error> + Send + 'static {
        let role = if self.settings.security().is_dual() { None } else { Some(self.role) };
        let extension = self.settings.extension();
        let (frames, figures) = (self.frames.clone(), self.figures.clone());
        let offset = self.offset.clone();
        let seed = Zeroizing::new(self.random.block());
        let other_seed = Zeroizing::new(if role.is_none() { self.random.block() } else { *seed });
        move || {
            let setting_up = TransferSetUp { extension, frames: &frames, figures: &figures };
            let made = match role {
                Some(ComputeRole::Garbler) => setting_up.of_garbler(*offset, *seed),
                Some(ComputeRole::Evaluator) => setting_up.of_evaluator(*seed),
                None => setting_up.of_both(*offset, [*seed, *other_seed]),
            };
            random::wipe_stack();
            figures.leave(ComputePhase::Setup);
            let made = made.and_then(|ends| frames.end_setup().map(|()| ends));
            made.inspect_err(|error| frames.fail(error))
        }
    }
}

/// The exchange of a set-up.
struct TransferSetUp<'a> {
    extension: OtExtension,
    frames: &'a PartyFrameQueues,
    figures: &'a PhaseFiguresRecorder,
}

impl TransferSetUp<'_> {
    fn of_garbler(&self, offset: Block, seed: Block) -> Result<ObliviousTransferEnds, Error> {
        let Self { extension, frames, .. } = *self;
        let (setup, message) = self.count(|| OtSenderSetUp::new(extension, offset, seed));
        self.send(&message)?;
        let point = frames.setup()?;
        let keys = self.count(|| setup.receive_point(&point))?;
        let reply = frames.setup()?;
        let sender = Some(Box::new(self.count(|| keys.receive(&reply))?));
        Ok(ObliviousTransferEnds { sender, receiver: None })
    }

    fn of_evaluator(&self, seed: Block) -> Result<ObliviousTransferEnds, Error> {
        let setup = self.count(|| OtReceiverSetUp::new(self.extension, seed));
        // The garbler computes its keys from the point while this party computes its own.
        self.send(&setup.point())?;
        let message = self.frames.setup()?;
        let (receiver, reply) = self.count(|| setup.receive(&message))?;
        self.send(&reply)?;
        Ok(ObliviousTransferEnds { sender: None, receiver: Some(Box::new(receiver)) })
    }

    /// Both parties send the same kinds of messages in the same order.
    fn of_both(&self, offset: Block, seeds: [Block; 2]) -> Result<ObliviousTransferEnds, Error> {
        let Self { extension, frames, .. } = *self;
        let (sender, message) = self.count(|| OtSenderSetUp::new(extension, offset, seeds[0]));
        self.send(&message)?;
        let receiver = self.count(|| OtReceiverSetUp::new(extension, seeds[1]));
        let point = receiver.point();
        self.send(&point)?;
        let (their_message, their_point) = (frames.setup()?, frames.setup()?);
        // Keys of both directions are independent hashes only if these differ.
        let salt = |message: &[u8]| message.first_chunk::<SALT_LEN>().copied();
        if their_point == point || salt(&their_message) == salt(&message) {
            return Err(MalformedComputeFrame::Reflected.into());
        }
        let (receiver, reply) = self.count(|| receiver.receive(&their_message))?;
        self.send(&reply)?;
        let keys = self.count(|| sender.receive_point(&their_point))?;
        let their_reply = frames.setup()?;
        let sender = self.count(|| keys.receive(&their_reply))?;
        let (sender, receiver) = (Some(Box::new(sender)), Some(Box::new(receiver)));
        Ok(ObliviousTransferEnds { sender, receiver })
    }

    fn send(&self, message: &[u8]) -> Result<(), Error> {
        self.frames.send(ComputeFrame::of(ComputeFrameKind::Base, message))
    }

    fn count<T>(&self, work: impl FnOnce() -> T) -> T {
        self.figures.count(ComputePhase::Setup, work)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use sha2::{Digest as _, Sha256};

    use super::*;

    #[test]
    fn dropping_a_set_up_waits_for_its_thread() {
        let (ended, has_ended) = channel();
        let work = move || {
            Sha256::digest(vec![0; 8 << 20]);
            let _ = ended.send(());
            Err(Error::Failed)
        };
        drop(ObliviousTransferSetUp::start(work).unwrap());
        has_ended.try_recv().expect("it has ended");
    }
}
