//! What the state machines of a refresh ask of their driver, and heavy computations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keys::SecretKey;
use sharing::{Generator, RandomError, wipe_stack};
use zeroize::Zeroizing;

use super::dealing::{Dealing, DealingSeed, Delivery, Proofs, Receiver, Verdict};
use super::entry::{Entry, Side};
use super::manifest::Round;
use super::message::Message;
use super::parameters::Parameters;
use super::possession::{self, Witnesses};
use super::session::{SessionPoint, SessionSecret};
use crate::protocol::combination::{Combination, Label, ServerIndex};
use crate::protocol::group::Header;
use crate::protocol::integer::SecretInteger;
use crate::protocol::wire::Digest;

/// The shares of a server by label. Secret: wiped when the last reference is dropped.
pub type Shares = BTreeMap<Label, SecretInteger>;

/// How long servers wait.
#[derive(Clone, Copy, Debug)]
pub struct Delays {
    /// The longest that a new server waits for the dealings of the last f designated dealers before
    /// it asks all old servers: it waits as long as those of the others took, and half a second at
    /// least.
    pub need: Duration,
    /// Until a new server without shares gives up the run after its end (5.2.2).
    pub grace: Duration,
    /// Between the first two attempts to send the same. The interval doubles up to 32 times this.
    pub resend: Duration,
}

/// What the driver does next, in this order.
pub enum Output {
    /// Send a message to a server of one of the groups. It may be lost.
    Send {
        /// The server.
        to: (Side, ServerIndex),
        /// The message.
        message: Message,
    },
    /// Submit an entry to the log. It may be lost, or committed several times.
    Submit(Entry),
    /// Keep for a restart, encrypted at rest, before anything that follows.
    Save {
        /// What it is. It replaces an item of the same name.
        item: Item,
        /// Secret.
        bytes: Zeroizing<Vec<u8>>,
    },
    /// Run the job, on any thread, and hand back what it returns.
    Job(Job),
    /// The new epoch has begun, with these shares. Comes before `Erase`.
    Begin {
        /// The header of the epoch, which the group has not signed yet.
        header: Header,
        /// The witnesses of its shares.
        witnesses: Arc<Witnesses>,
        /// The shares of this server.
        shares: Arc<Shares>,
    },
    /// Wipe everything that this machine has saved in this run. A driver wipes the shares of an
    /// epoch when the board says that it has ended; and one that starts again, what was saved in
    /// runs that are no longer open.
    Erase,
}

/// What a server keeps for a restart in the middle of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Item {
    /// An old server's dealing.
    Seed(Round),
    /// A new server's session key.
    SessionKey,
    /// A dealing that a new server has confirmed.
    Dealing(ServerIndex, Round),
    /// A new server's shares and witnesses.
    Shares,
}

/// A computation that takes long. It has no effect until its result is handed back; it may run on
/// another thread.
pub struct Job {
    /// The run, or the digest of the witnesses in a recovery.
    pub(crate) of: Digest,
    pub(crate) task: Task,
}

/// What a job returns. A machine ignores results that are not of its run.
pub struct JobResult {
    pub(crate) of: Digest,
    pub(crate) outcome: Outcome,
}

pub(crate) enum Task {
    ProveRow {
        round: Round,
        label: Label,
        seed: Arc<DealingSeed>,
        shares: Arc<Shares>,
        new: Combination,
        parameters: Arc<Parameters>,
    },
    Deliver {
        round: Round,
        proofs: Arc<Proofs>,
        seed: Arc<DealingSeed>,
        shares: Arc<Shares>,
        to: (ServerIndex, SessionPoint),
        new: Combination,
        parameters: Arc<Parameters>,
        identity: Arc<SecretKey>,
    },
    Verify {
        dealing: Dealing,
        witnesses: Arc<Witnesses>,
        owner: Owner,
    },
    NewWitnesses {
        chosen: Vec<(Label, Arc<Proofs>)>,
        /// The dealing, if it is about the sums of one.
        dealing: Option<Digest>,
        new: Combination,
        parameters: Arc<Parameters>,
    },
    Sum {
        dealing: Dealing,
        labels: Vec<Label>,
        owner: Owner,
    },
    Possess {
        run: Digest,
        witnesses: Digest,
        shares: Arc<Shares>,
        owner: ServerIndex,
        parameters: Arc<Parameters>,
    },
    Check {
        from: ServerIndex,
        shares: Shares,
        witnesses: Arc<Witnesses>,
        parameters: Arc<Parameters>,
    },
}

pub(crate) enum Outcome {
    Row { round: Round, label: Label, row: Vec<u8> },
    Delivery { round: Round, to: ServerIndex, delivery: Arc<Delivery> },
    Verified { dealer: ServerIndex, round: Round, digest: Digest, verdict: Verdict },
    NewWitnesses { dealing: Option<Digest>, witnesses: Option<Witnesses> },
    Sum { dealing: Digest, sum: Option<Shares> },
    Possession(Vec<u8>),
    Checked { from: ServerIndex, right: Shares, all_right: bool },
}

/// The new server that a job is for.
#[derive(Clone)]
pub(crate) struct Owner {
    pub(crate) index: ServerIndex,
    pub(crate) session: Arc<SessionSecret>,
    pub(crate) new: Combination,
    pub(crate) parameters: Arc<Parameters>,
}

impl Owner {
    fn receiver(&self) -> Receiver<'_> {
        let Self { index, session, new, parameters } = self;
        Receiver { index: *index, session, new, parameters }
    }
}

impl Job {
    /// Does the computation.
    ///
    /// # Errors
    /// If the operating system gives no random bytes.
    pub fn run(self, generator: &mut Generator) -> Result<JobResult, RandomError> {
        let of = self.of;
        let outcome = match self.task {
            Task::ProveRow { round, label, seed, shares, new, parameters } => {
                let row = seed.prove_row(label, &shares[&label], &new, &parameters);
                Outcome::Row { round, label, row }
            }
            Task::Deliver { round, proofs, seed, shares, to, new, parameters, identity } => {
                let rows = proofs.manifest.labels().map(|label| (label, &shares[&label]));
                let key = (to.0, &to.1);
                let digest = proofs.digest;
                let delivery = seed.deliver(digest, rows, key, &new, &parameters, &identity);
                Outcome::Delivery { round, to: to.0, delivery: Arc::new(delivery) }
            }
            Task::Verify { dealing, witnesses, owner } => {
                let verdict = dealing.verify(&owner.receiver(), &witnesses, generator)?;
                let manifest = &dealing.proofs.manifest;
                let (dealer, round, digest) =
                    (manifest.dealer, manifest.round, dealing.proofs.digest);
                Outcome::Verified { dealer, round, digest, verdict }
            }
            Task::NewWitnesses { chosen, dealing, new, parameters } => {
                let witnesses = new_witnesses(&chosen, &new, &parameters);
                Outcome::NewWitnesses { dealing, witnesses }
            }
            Task::Sum { dealing, labels, owner } => {
                let sum = sum_of(&dealing, &labels, &owner.receiver());
                Outcome::Sum { dealing: dealing.proofs.digest, sum }
            }
            Task::Possess { run, witnesses, shares, owner, parameters } => {
                let held = shares.iter().map(|(label, share)| (*label, share));
                let proof = possession::prove(run, owner, witnesses, held, &parameters, generator)?;
                Outcome::Possession(proof)
            }
            Task::Check { from, shares, witnesses, parameters } => {
                let count = shares.len();
                let is_right = |label: &Label, share: &mut SecretInteger| {
                    parameters.power(share).has_same_square(witnesses.witness(*label))
                };
                let right: Shares = shares
                    .into_iter()
                    .filter_map(|(label, mut share)| {
                        is_right(&label, &mut share).then_some((label, share))
                    })
                    .collect();
                let all_right = right.len() == count;
                Outcome::Checked { from, right, all_right }
            }
        };
        // Seeds and keys were moved.
        wipe_stack();
        Ok(JobResult { of, outcome })
    }
}

/// Equation 3.6: `w_u` = `prod_t` p_{t,u}, over these labels t, with the proofs of the dealings
/// chosen for them.
fn new_witnesses(
    chosen: &[(Label, Arc<Proofs>)],
    new: &Combination,
    parameters: &Parameters,
) -> Option<Witnesses> {
    let mut products = vec![parameters.modulus.one(); new.label_count()];
    for (label, proofs) in chosen {
        let row = proofs.row(*label, new.label_count(), parameters)?;
        for (product, proof) in products.iter_mut().zip(&row) {
            *product = product.times(proof);
        }
    }
    Some(Witnesses::new(products))
}

/// What a dealing adds to the receiver's shares (equation 3.5): `sum_t` s_{t,u}, over the labels t
/// that it is chosen for. The dealing has been verified.
fn sum_of(dealing: &Dealing, labels: &[Label], receiver: &Receiver<'_>) -> Option<Shares> {
    let zero = || receiver.parameters.range.sum([]);
    let mut sum: Shares =
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
