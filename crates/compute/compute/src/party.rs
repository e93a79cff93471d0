//! A party, and the set-up of its transfers.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use blocks::Block;
use ot::extension::{OtExtension, OtReceiverSetUp, OtSenderSetUp};
use zeroize::Zeroizing;

use crate::error::{ComputePhase, Error};
use crate::figures::PhaseFiguresRecorder;
use crate::link::PartyFrameQueues;
use crate::random::PartyRng;
use crate::settings::{ComputeRole, ComputeSettings};
use crate::wire::{ComputeFrame, ComputeFrameKind};

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

/// The oblivious transfers.
pub(crate) enum ObliviousTransferEnd {
    /// The garbler's end.
    Sender(Box<ot::extension::OtExtensionSender>),
    /// The evaluator's end.
    Receiver(Box<ot::extension::OtExtensionReceiver>),
}

/// The transfers, which a thread may still be setting up. Dropping this waits for the thread, so
/// that no secret remains in it.
pub(crate) struct ObliviousTransferSetUp {
    thread: Option<JoinHandle<Result<ObliviousTransferEnd, Error>>>,
    transfers: Option<ObliviousTransferEnd>,
}

impl ObliviousTransferSetUp {
    pub(crate) fn start(
        work: impl FnOnce() -> Result<ObliviousTransferEnd, Error> + Send + 'static,
    ) -> Result<Self, Error> {
        let thread = thread::Builder::new().name("compute-setup".into()).spawn(work);
        Ok(Self { thread: Some(thread.map_err(Error::system)?), transfers: None })
    }

    /// Waits until the transfers are set up.
    ///
    /// # Errors
    /// If the set-up fails.
    pub(crate) fn wait(&mut self) -> Result<&mut ObliviousTransferEnd, Error> {
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
    ) -> impl FnOnce() -> Result<ObliviousTransferEnd, Error> + Send + 'static {
        let (role, transfers) = (self.role, self.settings.transfers);
        let (frames, figures) = (self.frames.clone(), self.figures.clone());
        let (offset, seed) = (self.offset.clone(), Zeroizing::new(self.random.block()));
        move || {
            let made = set_up(role, transfers, &frames, &figures, *offset, *seed);
            random::wipe_stack();
            figures.leave(ComputePhase::Setup);
            made.inspect_err(|error| frames.fail(error))
        }
    }
}

fn set_up(
    role: ComputeRole,
    transfers: OtExtension,
    frames: &PartyFrameQueues,
    figures: &PhaseFiguresRecorder,
    offset: Block,
    seed: Block,
) -> Result<ObliviousTransferEnd, Error> {
    if role == ComputeRole::Garbler {
        let made =
            figures.count(ComputePhase::Setup, || OtSenderSetUp::new(transfers, offset, seed));
        let (setup, message) = made;
        frames.send(ComputeFrame::of(ComputeFrameKind::Base, &message))?;
        let point = frames.setup()?;
        let keys = figures.count(ComputePhase::Setup, || setup.receive_point(&point))?;
        let reply = frames.setup()?;
        let sender = figures.count(ComputePhase::Setup, || keys.receive(&reply))?;
        return Ok(ObliviousTransferEnd::Sender(Box::new(sender)));
    }
    let setup = figures.count(ComputePhase::Setup, || OtReceiverSetUp::new(transfers, seed));
    // The garbler computes its keys from the point while this party computes its own.
    frames.send(ComputeFrame::of(ComputeFrameKind::Base, &setup.point()))?;
    let message = frames.setup()?;
    let (receiver, reply) = figures.count(ComputePhase::Setup, || setup.receive(&message))?;
    frames.send(ComputeFrame::of(ComputeFrameKind::Base, &reply))?;
    Ok(ObliviousTransferEnd::Receiver(Box::new(receiver)))
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
