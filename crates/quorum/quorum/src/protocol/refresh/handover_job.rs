//! The long computations of a server in a handover, and of one that lacks its row. They run as
//! jobs, so that the server goes on signing.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use handover::{
    HandoverAgreement, HandoverDealer, HandoverReceiver, HandoverScheme, ParticipantId,
    ParticipantSet,
};
use zeroize::Zeroizing;

use super::agreement::RunScheme;
use super::handover_step::EncodedHandoverStep;
use super::message::CommonValue;
use crate::protocol::combination::ServerIndex;
use crate::protocol::key_sharing::{KeyRowRepair, KeySharing, KeySigner};
use crate::protocol::voting::VotingSecret;

/// The common values that servers have sent, by dealer and sender. Secret.
pub(super) type ReceivedValues<S> =
    BTreeMap<(ParticipantId, ParticipantId), Zeroizing<<S as HandoverScheme>::Value>>;

/// A long computation of a server in a handover, for any way to share a key.
pub(crate) trait HandoverTask: Send {
    /// Runs the computation.
    fn run(self: Box<Self>) -> Box<dyn HandoverOutcome>;
}

/// The result of a [`HandoverTask`].
pub(crate) trait HandoverOutcome: Any + Send {
    /// The server with its new share, if this is a receiver that has computed it. Everything else
    /// is dropped. For the result of a run that has ended.
    fn into_signer(self: Box<Self>) -> Option<KeySigner>;
}

/// A receiver that moves to its jobs and back.
pub(super) struct MovingReceiver<S: RunScheme> {
    pub(super) receiver: HandoverReceiver<S>,
    /// Dropped after the receiver, whose secrets are wiped by then.
    is_in_use: Arc<()>,
}

impl<S: RunScheme> MovingReceiver<S> {
    pub(super) fn new(receiver: HandoverReceiver<S>) -> Box<Self> {
        Box::new(Self { receiver, is_in_use: Arc::new(()) })
    }

    /// What tells whether this receiver is still in memory.
    pub(super) fn in_use(&self) -> Weak<()> {
        Arc::downgrade(&self.is_in_use)
    }
}

/// A server of the new group, whose receiver is here or at work.
pub(super) struct RunReceiver<S: RunScheme> {
    /// `None` while a job has it. Then the server goes on wanting the same.
    pub(super) receiver: Option<Box<MovingReceiver<S>>>,
    /// Tells whether the receiver is in memory.
    pub(super) in_use: Weak<()>,
    /// The voting key for the new epoch.
    pub(super) voting: Arc<VotingSecret>,
    /// The dealings of which it has saved its rows.
    pub(super) saved: Option<ParticipantSet>,
    /// The agreed state up to which it has decrypted its rows, or a job does.
    pub(super) examined: Option<Arc<HandoverAgreement<S>>>,
    /// Values that wait for the next job, at most one of each dealing and server.
    pub(super) values: ReceivedValues<S>,
    /// Dealings of which servers ask for their common values while a job has the receiver.
    pub(super) questions: BTreeSet<(ServerIndex, ServerIndex)>,
}

impl<S: RunScheme> RunReceiver<S> {
    pub(super) fn new(
        receiver: HandoverReceiver<S>,
        voting: Arc<VotingSecret>,
        saved: Option<ParticipantSet>,
    ) -> Self {
        let receiver = MovingReceiver::new(receiver);
        Self {
            in_use: receiver.in_use(),
            receiver: Some(receiver),
            voting,
            saved,
            examined: None,
            values: BTreeMap::new(),
            questions: BTreeSet::new(),
        }
    }

    /// The receiver, unless a job has it.
    pub(super) fn present(&self) -> Option<&HandoverReceiver<S>> {
        self.receiver.as_ref().map(|moving| &moving.receiver)
    }
}

/// A dealer computes its dealing.
pub(super) struct DealTask<S: RunScheme> {
    pub(super) dealer: Arc<HandoverDealer<S>>,
    pub(super) handover: Arc<HandoverAgreement<S>>,
}

/// A dealer with its dealing.
pub(super) struct DealOutcome<S: RunScheme> {
    pub(super) dealer: Arc<HandoverDealer<S>>,
    pub(super) step: Option<EncodedHandoverStep>,
}

/// A receiver decrypts its rows, examines common values, and computes its share.
pub(super) struct ReceiveTask<S: RunScheme> {
    pub(super) receiver: Box<MovingReceiver<S>>,
    pub(super) handover: Arc<HandoverAgreement<S>>,
    pub(super) values: ReceivedValues<S>,
}

impl<S: RunScheme> HandoverTask for DealTask<S> {
    fn run(self: Box<Self>) -> Box<dyn HandoverOutcome> {
        let Self { dealer, handover } = *self;
        let step = dealer.wanted_entry(&handover).map(|step| EncodedHandoverStep::new(&step));
        Box::new(DealOutcome { dealer, step })
    }
}

impl<S: RunScheme> HandoverTask for ReceiveTask<S> {
    fn run(self: Box<Self>) -> Box<dyn HandoverOutcome> {
        let Self { receiver: mut moved, handover, values } = *self;
        moved.receiver.handle_log(&handover);
        for ((dealer, from), value) in &values {
            moved.receiver.handle_value(&handover, *from, *dealer, value);
        }
        moved
    }
}

impl<S: RunScheme> HandoverOutcome for DealOutcome<S> {
    fn into_signer(self: Box<Self>) -> Option<KeySigner> {
        None
    }
}

impl<S: RunScheme> HandoverOutcome for MovingReceiver<S> {
    fn into_signer(self: Box<Self>) -> Option<KeySigner> {
        self.receiver.into_share().map(S::signer)
    }
}

/// A server that lacks its row examines common values of the group's sharing, and computes the row
/// when there are enough.
pub(crate) struct RowRepairTask {
    pub(super) own: ParticipantId,
    pub(super) sharing: KeySharing,
    pub(super) repair: KeyRowRepair,
    pub(super) values: BTreeMap<ParticipantId, CommonValue>,
}

/// What a [`RowRepairTask`] has obtained.
pub(crate) struct RowRepairOutcome {
    pub(super) repair: KeyRowRepair,
    pub(super) signer: Option<KeySigner>,
}

impl RowRepairTask {
    /// Runs the computation.
    pub(super) fn run(self) -> RowRepairOutcome {
        let Self { own, sharing, mut repair, values } = self;
        let mut values = values.iter();
        let signer =
            values.find_map(|(from, value)| repair.handle_value(&sharing, own, *from, &value.0));
        RowRepairOutcome { repair, signer }
    }
}
