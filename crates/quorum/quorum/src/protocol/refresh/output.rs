//! Outputs of the state machines of a refresh for their driver, and their expensive computations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keys::IdentitySecretKey;
use random::{RandomError, RandomGenerator, wipe_stack};
use rsa_arithmetic::integer::SecretInteger;
use zeroize::Zeroizing;

use super::dealing::{
    Dealing, DealingDelivery, DealingProofs, DealingReceiver, DealingSeed, DealingVerdict,
};
use super::entry::{LogEntry, RefreshRole};
use super::handover_job::{HandoverOutcome, HandoverTask, RowRepairOutcome, RowRepairTask};
use super::manifest::DealingRound;
use super::message::RefreshMessage;
use super::parameters::RefreshParameters;
use super::possession::{self, ShareWitnesses};
use super::session::{SessionPoint, SessionSecret};
use crate::protocol::combination::{CombinatorialSharing, Label, ServerIndex};
use crate::protocol::group::GroupHeader;
use crate::protocol::wire::Sha256Digest;

/// The shares of a server by label. Secret: wiped when the last reference is dropped.
pub type LabeledShares = BTreeMap<Label, SecretInteger>;

/// Waiting times in a refresh.
#[derive(Clone, Copy, Debug)]
pub struct RefreshDelays {
    /// The longest time that a new server waits for the dealings of the last f designated dealers
    /// before it asks all old servers. It waits as long as the other dealings took, and at least
    /// half a second. In a handover, the longest time of each turn of the dealers.
    pub need: Duration,
    /// How long a new server without shares waits before it abandons a run that has ended (5.2.2).
    pub grace: Duration,
    /// The interval between the first two sends of the same item. It doubles up to 32 times this.
    pub resend: Duration,
}

/// What the driver does next. The order matters.
pub enum RefreshOutput {
    /// Send a message to a server of one of the groups. It may be lost.
    Send {
        /// The server.
        to: (RefreshRole, ServerIndex),
        /// The message.
        message: RefreshMessage,
    },
    /// Submit an entry to the log. It may be lost, or committed more than once.
    Submit(LogEntry),
    /// Save for a restart, encrypted at rest, before anything that follows.
    Save {
        /// The name of the item. It replaces an item with the same name.
        item: RunItemName,
        /// Secret.
        bytes: Zeroizing<Vec<u8>>,
    },
    /// Run the job on any thread, and pass the result back.
    Job(RefreshJob),
    /// The new epoch has begun, with these shares. Comes before `Erase`.
    Begin {
        /// The header of the epoch, which the group has not signed yet.
        header: GroupHeader,
        /// The witnesses of its shares.
        witnesses: Arc<ShareWitnesses>,
        /// The shares of this server.
        shares: Arc<LabeledShares>,
    },
    /// Wipe all items that this state machine has saved in this run. Besides, a driver wipes the
    /// shares of an epoch when the agreed state says that the epoch has ended. After a restart, it
    /// wipes the items of runs that are no longer open.
    Erase,
}

/// An item that a server saves for a restart during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunItemName {
    /// An old server's dealing.
    Seed(DealingRound),
    /// A new server's session key.
    SessionKey,
    /// A dealing that a new server has confirmed.
    Dealing(ServerIndex, DealingRound),
    /// A new server's shares and witnesses.
    Shares,
}

/// An expensive computation, which may run on another thread. It has no effect until its result is
/// passed back.
pub struct RefreshJob {
    /// The run, or the digest of the witnesses or the sharing in a recovery.
    pub(crate) scope_digest: Sha256Digest,
    pub(crate) task: RefreshTask,
}

/// The result of a job. Results of other runs are ignored.
pub struct RefreshJobResult {
    pub(crate) scope_digest: Sha256Digest,
    pub(crate) outcome: RefreshOutcome,
}

pub(crate) enum RefreshTask {
    ProveRow {
        round: DealingRound,
        label: Label,
        seed: Arc<DealingSeed>,
        shares: Arc<LabeledShares>,
        new: CombinatorialSharing,
        parameters: Arc<RefreshParameters>,
    },
    Deliver {
        round: DealingRound,
        proofs: Arc<DealingProofs>,
        seed: Arc<DealingSeed>,
        shares: Arc<LabeledShares>,
        to: (ServerIndex, SessionPoint),
        new: CombinatorialSharing,
        parameters: Arc<RefreshParameters>,
        identity: Arc<IdentitySecretKey>,
    },
    Verify {
        dealing: Dealing,
        witnesses: Arc<ShareWitnesses>,
        owner: DealingJobReceiver,
    },
    NewWitnesses {
        chosen: Vec<(Label, Arc<DealingProofs>)>,
        /// The dealing, if the job concerns the contribution of one.
        dealing: Option<Sha256Digest>,
        new: CombinatorialSharing,
        parameters: Arc<RefreshParameters>,
    },
    Sum {
        dealing: Dealing,
        labels: Vec<Label>,
        owner: DealingJobReceiver,
    },
    Possess {
        run: Sha256Digest,
        witnesses: Sha256Digest,
        shares: Arc<LabeledShares>,
        owner: ServerIndex,
        parameters: Arc<RefreshParameters>,
    },
    Check {
        from: ServerIndex,
        shares: LabeledShares,
        witnesses: Arc<ShareWitnesses>,
        parameters: Arc<RefreshParameters>,
    },
    Handover(Box<dyn HandoverTask>),
    RepairRow(RowRepairTask),
}

pub(crate) enum RefreshOutcome {
    Row {
        round: DealingRound,
        label: Label,
        row: Vec<u8>,
    },
    Delivery {
        round: DealingRound,
        to: ServerIndex,
        delivery: Arc<DealingDelivery>,
    },
    Verified {
        dealer: ServerIndex,
        round: DealingRound,
        digest: Sha256Digest,
        verdict: DealingVerdict,
    },
    NewWitnesses {
        dealing: Option<Sha256Digest>,
        witnesses: Option<ShareWitnesses>,
    },
    Sum {
        dealing: Sha256Digest,
        sum: Option<LabeledShares>,
    },
    Possession(Vec<u8>),
    Checked {
        from: ServerIndex,
        right: LabeledShares,
        all_right: bool,
    },
    Handover(Box<dyn HandoverOutcome>),
    RowRepaired(Box<RowRepairOutcome>),
}

/// The new server for which a job runs.
#[derive(Clone)]
pub(crate) struct DealingJobReceiver {
    pub(crate) index: ServerIndex,
    pub(crate) session: Arc<SessionSecret>,
    pub(crate) new: CombinatorialSharing,
    pub(crate) parameters: Arc<RefreshParameters>,
}

impl DealingJobReceiver {
    fn receiver(&self) -> DealingReceiver<'_> {
        let Self { index, session, new, parameters } = self;
        DealingReceiver { index: *index, session, new, parameters }
    }
}

impl RefreshJob {
    /// Runs the computation.
    ///
    /// # Errors
    /// If the operating system gives no random bytes.
    pub fn run(self, generator: &mut RandomGenerator) -> Result<RefreshJobResult, RandomError> {
        let of = self.scope_digest;
        let outcome = match self.task {
            RefreshTask::ProveRow { round, label, seed, shares, new, parameters } => {
                let row = seed.prove_row(label, &shares[&label], &new, &parameters);
                RefreshOutcome::Row { round, label, row }
            }
            RefreshTask::Deliver { round, proofs, seed, shares, to, new, parameters, identity } => {
                let rows = proofs.manifest.labels().map(|label| (label, &shares[&label]));
                let key = (to.0, &to.1);
                let digest = proofs.digest;
                let delivery = seed.deliver(digest, rows, key, &new, &parameters, &identity);
                RefreshOutcome::Delivery { round, to: to.0, delivery: Arc::new(delivery) }
            }
            RefreshTask::Verify { dealing, witnesses, owner } => {
                let verdict = dealing.verify(&owner.receiver(), &witnesses, generator)?;
                let manifest = &dealing.proofs.manifest;
                let (dealer, round, digest) =
                    (manifest.dealer, manifest.round, dealing.proofs.digest);
                RefreshOutcome::Verified { dealer, round, digest, verdict }
            }
            RefreshTask::NewWitnesses { chosen, dealing, new, parameters } => {
                let witnesses = new_witnesses(&chosen, &new, &parameters);
                RefreshOutcome::NewWitnesses { dealing, witnesses }
            }
            RefreshTask::Sum { dealing, labels, owner } => {
                let sum = sum_of(&dealing, &labels, &owner.receiver());
                RefreshOutcome::Sum { dealing: dealing.proofs.digest, sum }
            }
            RefreshTask::Possess { run, witnesses, shares, owner, parameters } => {
                let held = shares.iter().map(|(label, share)| (*label, share));
                let proof = possession::prove(run, owner, witnesses, held, &parameters, generator)?;
                RefreshOutcome::Possession(proof)
            }
            RefreshTask::Check { from, shares, witnesses, parameters } => {
                let count = shares.len();
                let is_right = |label: &Label, share: &mut SecretInteger| {
                    parameters.power(share).has_same_square(witnesses.witness(*label))
                };
                let right: LabeledShares = shares
                    .into_iter()
                    .filter_map(|(label, mut share)| {
                        is_right(&label, &mut share).then_some((label, share))
                    })
                    .collect();
                let all_right = right.len() == count;
                RefreshOutcome::Checked { from, right, all_right }
            }
            RefreshTask::Handover(task) => RefreshOutcome::Handover(task.run()),
            RefreshTask::RepairRow(task) => RefreshOutcome::RowRepaired(Box::new(task.run())),
        };
        // Seeds and keys were moved, so copies may be on the stack.
        wipe_stack();
        Ok(RefreshJobResult { scope_digest: of, outcome })
    }
}

/// Equation 3.6: `w_u` = `prod_t` p_{t,u}, over these labels t, with the proofs of the dealings
/// chosen for them.
fn new_witnesses(
    chosen: &[(Label, Arc<DealingProofs>)],
    new: &CombinatorialSharing,
    parameters: &RefreshParameters,
) -> Option<ShareWitnesses> {
    let mut products = vec![parameters.modulus.one(); new.label_count()];
    for (label, proofs) in chosen {
        let row = proofs.row(*label, new.label_count(), parameters)?;
        for (product, proof) in products.iter_mut().zip(&row) {
            *product = product.times(proof);
        }
    }
    Some(ShareWitnesses::new(products))
}

/// The contribution of a dealing to the receiver's shares (equation 3.5): `sum_t` s_{t,u}, over the
/// labels t for which it is chosen. The dealing has been verified.
fn sum_of(
    dealing: &Dealing,
    labels: &[Label],
    receiver: &DealingReceiver<'_>,
) -> Option<LabeledShares> {
    let zero = || receiver.parameters.range.sum([]);
    let mut sum: LabeledShares =
        receiver.new.labels_of(receiver.index).map(|label| (label, zero())).collect();
    let cipher = receiver.cipher(&dealing.proofs);
    for &label in labels {
        let row = dealing.proofs.manifest.labels().position(|it| it == label)?;
        let subshares = dealing.open(row, receiver, &cipher)?;
        for (share, subshare) in sum.values_mut().zip(&subshares) {
            share.add(subshare);
        }
    }
    Some(sum)
}
