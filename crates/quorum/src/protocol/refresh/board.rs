//! The board: what the entries of the agreement log make of a refresh, the same at every server.
//! It has the five operations of the thesis's agreement service (3.3): `write_proof`, `read_proof`,
//! `node_ok`, `read_chosen` and `read_new_witnesses`.

mod run;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use keys::{PublicKey, SecretKey};

use super::entry::{Body, Entry, Side};
use super::parameters::Parameters;
use crate::protocol::admission::{Admission, EntryCheck, Slot};
use crate::protocol::combination::ServerIndex;
use crate::protocol::group::{Group, Header, HeaderKind};
use crate::protocol::voting::{VotingKey, VotingSecret};
use crate::protocol::wire::Digest;

pub use run::Run;

/// How often a server may change its voting key before a run is opened, or between two runs.
const MAX_VOTING_CHANGES: u8 = 64;

/// The state of the agreement on a refresh in one epoch.
#[derive(Clone)]
pub struct Board {
    parameters: Arc<Parameters>,
    /// The header of the epoch, and its digest.
    epoch: Header,
    epoch_digest: Digest,
    /// The current voting keys of the epoch's servers.
    voting: Vec<Option<PublicKey>>,
    /// How often each has changed its key, since the last run was opened.
    voting_changes: BTreeMap<ServerIndex, u8>,
    /// The number of the run that is open or will be.
    run_number: u32,
    /// The groups that servers have approved.
    approvals: BTreeMap<ServerIndex, Group>,
    cancellations: BTreeSet<ServerIndex>,
    run: Option<Run>,
}

/// Why an entry changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The refresh is over.
    #[error("the epoch has ended")]
    Ended,
    /// There is no run, or the entry is for another run or epoch.
    #[error("for another run")]
    OtherRun,
    /// The author is no member of the group, or did not sign the entry.
    #[error("the author's signature is wrong")]
    Signature,
    /// The author is known to be faulty.
    #[error("the author is faulty")]
    Faulty,
    /// There is such an entry already.
    #[error("there is one already")]
    Repeated,
    /// The dealer does not hold all the labels.
    #[error("the dealer does not hold these shares")]
    Labels,
    /// There are fewer than 2f'+1 confirmations of different new servers, or one is wrong.
    #[error("the confirmations are not those of 2f+1 new servers")]
    Confirmations,
    /// No dealings have been chosen for some labels.
    #[error("not all labels have a dealing")]
    NotChosen,
    /// The author has not registered its session key yet.
    #[error("the author has no session key yet")]
    NoSessionKey,
    /// A voting key is not proven, or it is to replace another one than the server has.
    #[error("the voting key is not proven, or replaces another one")]
    VotingKey,
    /// The new server does not prove that it has shares for the witnesses.
    #[error("the proof of possession is wrong")]
    Possession,
}

/// What an entry has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was counted.
    Counted,
    /// f+1 old servers have approved a group: the run is open.
    Opened,
    /// f+1 old servers have given up the run: the next one has another number.
    Cancelled,
    /// A dealer has been proven faulty.
    DealerExcluded {
        /// Its index in the old group.
        dealer: ServerIndex,
        /// The new server that has proven it.
        by: ServerIndex,
    },
    /// A new server has complained without reason.
    FalseComplaint {
        /// Its index in the new group.
        complainant: ServerIndex,
    },
    /// A server has signed an entry that is wrong: that proves it faulty.
    Faulty {
        /// The group that it belongs to.
        side: Side,
        /// Its index in that group.
        author: ServerIndex,
        /// What is wrong.
        why: Refusal,
    },
    /// The new epoch has begun.
    Final,
}

impl Board {
    /// The board of an epoch, with its header.
    pub fn new(parameters: Arc<Parameters>, epoch: Header) -> Self {
        Self {
            parameters,
            epoch_digest: epoch.digest(),
            voting: epoch.voting.clone(),
            voting_changes: BTreeMap::new(),
            epoch,
            run_number: 1,
            approvals: BTreeMap::new(),
            cancellations: BTreeSet::new(),
            run: None,
        }
    }

    /// The board of an epoch in which a run is open, for a server that joins there.
    pub(crate) fn joined(parameters: Arc<Parameters>, epoch: Header, refresh: &Header) -> Self {
        let (run, voting) = (Some(Run::new(refresh.clone())), refresh.voting.clone());
        Self { run_number: refresh.run, run, voting, ..Self::new(parameters, epoch) }
    }

    /// Whether a server has approved a refresh in the current run.
    pub(crate) fn has_approved(&self, server: ServerIndex) -> bool {
        self.approvals.contains_key(&server)
    }

    /// Whether any server has.
    pub(crate) fn has_approvals(&self) -> bool {
        !self.approvals.is_empty()
    }

    /// Whether a server has given the current run up.
    pub(crate) fn has_cancelled(&self, server: ServerIndex) -> bool {
        self.cancellations.contains(&server)
    }

    /// The groups that old servers have approved in the current run.
    pub(crate) fn approvals(&self) -> &BTreeMap<ServerIndex, Group> {
        &self.approvals
    }

    /// The old servers that have given the current run up.
    pub(crate) fn cancellations(&self) -> &BTreeSet<ServerIndex> {
        &self.cancellations
    }

    /// The header of the epoch.
    pub fn epoch(&self) -> &Header {
        &self.epoch
    }

    /// The entry by which an old server approves a refresh to a group in the current run.
    pub fn approval(&self, server: ServerIndex, group: Group, identity: &SecretKey) -> Entry {
        let body = Body::Approve { epoch: self.epoch_digest, run: self.run_number, group };
        Entry::new(server, body, identity)
    }

    /// The entry by which an old server gives the current run up.
    pub fn cancellation(&self, server: ServerIndex, identity: &SecretKey) -> Entry {
        let body = Body::Cancel { epoch: self.epoch_digest, run: self.run_number };
        Entry::new(server, body, identity)
    }

    /// The voting keys of the epoch's servers from the next height on.
    pub(crate) fn voting(&self) -> &[Option<PublicKey>] {
        &self.voting
    }

    /// The entry by which a server of the epoch changes its voting key.
    pub(crate) fn voting_entry(
        &self,
        server: ServerIndex,
        secret: &VotingSecret,
        identity: &SecretKey,
    ) -> Entry {
        let epoch = self.epoch_digest;
        let replaced = self.voting.get(usize::from(server.0)).copied().flatten();
        let voting = Box::new(VotingKey::new(secret, epoch, server));
        Entry::new(server, Body::Voting { epoch, replaced, voting }, identity)
    }

    /// The number of the run that is open or will be.
    pub fn run_number(&self) -> u32 {
        self.run_number
    }

    /// The open run.
    pub fn run(&self) -> Option<&Run> {
        self.run.as_ref()
    }

    pub(crate) fn parameters(&self) -> &Arc<Parameters> {
        &self.parameters
    }

    /// The refresh header for a run with a group (old node, step 1).
    pub(crate) fn refresh_header(&self, group: Group) -> Header {
        Header {
            kind: HeaderKind::Refresh,
            epoch: self.epoch.epoch + 1,
            run: self.run_number,
            previous: self.epoch_digest,
            group,
            voting: self.voting.clone(),
            witnesses: self.epoch.witnesses,
        }
    }

    /// Whether an entry may be applied: it is for this epoch and run, of a slot that is free, and
    /// signed by a member that is not known to be faulty. It costs a signature at most, and less if
    /// the entry is refused for another reason. [`Self::apply`] changes the board by such an entry
    /// in any case: it counts, or its author is recorded as faulty. Afterwards its slot is taken.
    ///
    /// # Errors
    /// Why the entry would change nothing.
    pub fn check(&self, entry: &Entry) -> Result<Slot, Refusal> {
        if self.run.as_ref().is_some_and(|run| run.next.is_some()) {
            return Err(Refusal::Ended);
        }
        let (author, old) = (entry.author, &self.epoch.group);
        let is_free = match &entry.body {
            Body::Approve { epoch, run, .. } => {
                self.check_number(*epoch, *run)?;
                self.run.is_none() && !self.approvals.contains_key(&author)
            }
            Body::Cancel { epoch, run } => {
                self.check_number(*epoch, *run)?;
                !self.cancellations.contains(&author)
            }
            Body::SessionKey { run, .. } => {
                !self.run_of(*run, entry)?.session_keys.contains_key(&author)
            }
            Body::Proved { manifest, .. } => {
                let run = self.run_of(manifest.run, entry)?;
                !run.proofs.contains_key(&(author, manifest.round))
            }
            Body::Complaint { run, complaint } => {
                let run = self.run_of(*run, entry)?;
                let is_free = !run.excluded.contains(&complaint.manifest.dealer);
                // A faulty dealer may have sent something before.
                if is_free && !run.session_keys.contains_key(&author) {
                    return Err(Refusal::NoSessionKey);
                }
                is_free
            }
            Body::Computed { run, .. } => {
                let run = self.run_of(*run, entry)?;
                let is_free = !run.computed.contains_key(&author);
                if is_free && run.read_chosen(old.combination()).is_none() {
                    return Err(Refusal::NotChosen);
                }
                // So 2f'+1 servers of the new epoch have a voting key.
                if is_free && !run.session_keys.contains_key(&author) {
                    return Err(Refusal::NoSessionKey);
                }
                is_free
            }
            Body::Voting { epoch, voting, .. } => {
                if *epoch != self.epoch_digest {
                    return Err(Refusal::OtherRun);
                }
                self.voting_key(author) != Some(&Some(voting.key))
            }
        };
        if !is_free {
            return Err(Refusal::Repeated);
        }
        let group = match (entry.side(), &self.run) {
            (Side::New, Some(run)) => &run.header.group,
            _ => old,
        };
        if !entry.is_signed(group) {
            return Err(Refusal::Signature);
        }
        if let Body::Proved { manifest, .. } = &entry.body
            && (manifest.dealer != author || !manifest.fits(manifest.run, old.combination()))
        {
            return Err(Refusal::Labels);
        }
        if !self.has_right_voting_key(entry) {
            return Err(Refusal::VotingKey);
        }
        Ok(entry.slot())
    }

    fn voting_key(&self, server: ServerIndex) -> Option<&Option<PublicKey>> {
        self.voting.get(usize::from(server.0))
    }

    /// Whether a voting key that an entry names is proven. A server of the epoch names the key that
    /// it replaces: an entry that is committed again, when the server has another key, changes
    /// nothing.
    fn has_right_voting_key(&self, entry: &Entry) -> bool {
        let author = entry.author;
        match &entry.body {
            Body::SessionKey { run, voting, .. } => voting.is_proven(*run, author),
            Body::Voting { replaced, voting, .. } => {
                let changes = self.voting_changes.get(&author).copied().unwrap_or_default();
                changes < MAX_VOTING_CHANGES
                    && self.voting_key(author) == Some(replaced)
                    && voting.is_proven(self.epoch_digest, author)
            }
            _ => true,
        }
    }

    /// What the log asks about entries for the next height.
    pub(crate) fn entry_check(&self) -> EntryCheck {
        let board = self.clone();
        EntryCheck::new(move |bytes| {
            let Ok(entry) = Entry::parse(bytes) else { return Admission::Refused };
            match board.check(&entry) {
                Ok(slot) => Admission::Admitted(slot),
                // Its author may be ahead of this server.
                Err(Refusal::OtherRun | Refusal::NotChosen | Refusal::NoSessionKey) => {
                    Admission::Later
                }
                Err(_) => Admission::Refused,
            }
        })
    }

    /// Applies an entry of the log. Checks everything before it changes anything.
    ///
    /// # Errors
    /// Why the entry changes nothing: as [`Self::check`].
    pub fn apply(&mut self, entry: &Entry) -> Result<Change, Refusal> {
        self.check(entry)?;
        let author = entry.author;
        let run = self.run.as_mut();
        let counted = match (&entry.body, run) {
            (Body::Approve { group, .. }, _) => Ok(self.approve(author, group)),
            (Body::Cancel { .. }, _) => Ok(self.cancel(author)),
            (Body::Voting { voting, .. }, _) => {
                if let Some(key) = self.voting.get_mut(usize::from(author.0)) {
                    *key = Some(voting.key);
                }
                *self.voting_changes.entry(author).or_default() += 1;
                Ok(Change::Counted)
            }
            (_, None) => return Err(Refusal::OtherRun),
            (Body::SessionKey { key, voting, .. }, Some(run)) => {
                run.session_keys.insert(author, *key);
                run.voting.insert(author, voting.key);
                Ok(Change::Counted)
            }
            (Body::Proved { manifest, confirmations }, Some(run)) => {
                run.proved(manifest, confirmations)
            }
            (Body::Complaint { complaint, .. }, Some(run)) => {
                Ok(run.complaint(author, complaint, &self.epoch.group, &self.parameters))
            }
            (Body::Computed { witnesses, possession, .. }, Some(run)) => {
                run.computed(author, witnesses, possession, &self.parameters)
            }
        };
        // What the author has signed is wrong, whatever others do: that proves it faulty.
        counted.or_else(|why| {
            let side = entry.side();
            let run = self.run.as_mut().ok_or(Refusal::OtherRun)?;
            match side {
                Side::Old => run.excluded.insert(author),
                Side::New => run.faulty.insert(author),
            };
            Ok(Change::Faulty { side, author, why })
        })
    }

    fn check_number(&self, epoch: Digest, run: u32) -> Result<(), Refusal> {
        let is_current = epoch == self.epoch_digest && run == self.run_number;
        if is_current { Ok(()) } else { Err(Refusal::OtherRun) }
    }

    /// The open run, if it has this identifier, and the author is a member of its group that is not
    /// known to be faulty.
    fn run_of(&self, id: Digest, entry: &Entry) -> Result<&Run, Refusal> {
        let run = self.run.as_ref().filter(|run| run.id == id).ok_or(Refusal::OtherRun)?;
        let (group, faulty) = match entry.side() {
            Side::Old => (&self.epoch.group, &run.excluded),
            Side::New => (&run.header.group, &run.faulty),
        };
        if faulty.contains(&entry.author) {
            return Err(Refusal::Faulty);
        }
        if group.member(entry.author).is_some() { Ok(run) } else { Err(Refusal::Signature) }
    }

    fn approve(&mut self, author: ServerIndex, group: &Group) -> Change {
        self.approvals.insert(author, group.clone());
        let same = self.approvals.values().filter(|approved| *approved == group).count();
        if same < self.epoch.group.combination().signer_count() {
            return Change::Counted;
        }
        // A new server, which follows from here, does not know of those before.
        self.cancellations.clear();
        self.voting_changes.clear();
        self.run = Some(Run::new(self.refresh_header(group.clone())));
        Change::Opened
    }

    fn cancel(&mut self, author: ServerIndex) -> Change {
        self.cancellations.insert(author);
        if self.cancellations.len() < self.epoch.group.combination().signer_count() {
            return Change::Counted;
        }
        let (parameters, epoch) = (self.parameters.clone(), self.epoch.clone());
        let (voting, run_number) = (std::mem::take(&mut self.voting), self.run_number + 1);
        let voting_changes = std::mem::take(&mut self.voting_changes);
        *self = Self { voting, voting_changes, run_number, ..Self::new(parameters, epoch) };
        Change::Cancelled
    }
}
