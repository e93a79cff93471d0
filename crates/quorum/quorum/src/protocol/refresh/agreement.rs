//! The agreed state of a refresh, which follows from the entries of the agreement log and is the
//! same at every server. It provides the five operations of the thesis's agreement service (3.3):
//! `write_proof`, `read_proof`, `node_ok`, `read_chosen` and `read_new_witnesses`.

mod commands;
mod effect;
mod run;
mod run_handover;
mod servers;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use handover::HandoverEntryKind;
use keys::{IdentityPublicKey, IdentitySecretKey};

use super::entry::{LogEntry, LogEntryBody, RefreshRole};
use super::parameters::RefreshParameters;
use crate::protocol::admission::{EntryAdmission, EntryCheck, EntrySlot, EntryTrust};
use crate::protocol::combination::ServerIndex;
use crate::protocol::group::{GroupHeader, GroupHeaderKind, QuorumGroup};
use crate::protocol::key_sharing::KeySharing;
use crate::protocol::voting::{VotingKey, VotingSecret};
use crate::protocol::wire::Sha256Digest;

use commands::CommandUsage;
pub(crate) use commands::MAX_COMMAND_BYTES;
pub use effect::{LogEntryEffect, LogEntryRefusal};
pub use run::RefreshRun;
pub(crate) use run_handover::{HandoverProgress, RunScheme};

/// How often a server may change its voting key before a run is opened, or between two runs.
const MAX_VOTING_CHANGES: u8 = 64;

/// How many approvals a server may withdraw in a run.
const MAX_WITHDRAWALS: u8 = 16;

/// The key that a refresh moves.
#[derive(Clone)]
pub enum RefreshedKey {
    /// An RSA key of which each subset of servers has a share.
    Combinatorial(Arc<RefreshParameters>),
    /// A key with this sharing by a polynomial. `None` if the refresh generates an Ed25519 key.
    Polynomial(Option<KeySharing>),
}

impl From<Arc<RefreshParameters>> for RefreshedKey {
    fn from(parameters: Arc<RefreshParameters>) -> Self {
        Self::Combinatorial(parameters)
    }
}

impl RefreshedKey {
    fn parameters(&self) -> Result<&Arc<RefreshParameters>, LogEntryRefusal> {
        match self {
            Self::Combinatorial(parameters) => Ok(parameters),
            Self::Polynomial(_) => Err(LogEntryRefusal::OtherKey),
        }
    }
}

/// The agreed state of a refresh in one epoch.
#[derive(Clone)]
pub struct RefreshAgreement {
    key: RefreshedKey,
    /// The header of the epoch, and its digest.
    epoch: GroupHeader,
    epoch_digest: Sha256Digest,
    /// The current voting keys of the epoch's servers.
    voting: Vec<Option<IdentityPublicKey>>,
    /// How often each server has changed its key since the last run was opened.
    voting_changes: BTreeMap<ServerIndex, u8>,
    /// The number of the open run, or of the next one.
    run_number: u32,
    /// The groups that servers have approved.
    approvals: BTreeMap<ServerIndex, QuorumGroup>,
    /// How many approvals each server has withdrawn in the current run.
    withdrawals: BTreeMap<ServerIndex, u8>,
    cancellations: BTreeSet<ServerIndex>,
    run: Option<RefreshRun>,
    /// The segment of the log: it begins with the epoch, and when a run is opened.
    segment: Sha256Digest,
    /// The commands of the servers in this segment, if the group has a replicated service.
    commands: Option<BTreeMap<ServerIndex, CommandUsage>>,
}

impl RefreshAgreement {
    /// The state at the start of an epoch, with the epoch's header. In the epoch of a founding
    /// header, the run that generates the key is open.
    pub fn new(key: impl Into<RefreshedKey>, epoch: GroupHeader) -> Self {
        let mut agreement = Self {
            key: key.into(),
            epoch_digest: epoch.digest(),
            segment: epoch.digest(),
            commands: None,
            voting: epoch.voting.clone(),
            voting_changes: BTreeMap::new(),
            epoch,
            run_number: 1,
            approvals: BTreeMap::new(),
            withdrawals: BTreeMap::new(),
            cancellations: BTreeSet::new(),
            run: None,
        };
        if agreement.is_founding() {
            let header = agreement.refresh_header(agreement.epoch.group.clone());
            agreement.run = Some(RefreshRun::new(header, &agreement.key));
        }
        agreement
    }

    /// Whether the group generates its key in this epoch.
    pub(crate) fn is_founding(&self) -> bool {
        self.epoch.kind == GroupHeaderKind::Founding
    }

    /// The state in which a run is open, for a server that joins during the run.
    pub(crate) fn joined(
        key: impl Into<RefreshedKey>,
        epoch: GroupHeader,
        refresh: &GroupHeader,
    ) -> Self {
        let key = key.into();
        let (run, voting) = (RefreshRun::new(refresh.clone(), &key), refresh.voting.clone());
        let (run, segment) = (Some(run), refresh.digest());
        Self { run_number: refresh.run, run, voting, segment, ..Self::new(key, epoch) }
    }

    /// Whether a server has approved a refresh in the current run.
    pub(crate) fn has_approved(&self, server: ServerIndex) -> bool {
        self.approvals.contains_key(&server)
    }

    /// Whether any server has approved a refresh in the current run.
    pub(crate) fn has_approvals(&self) -> bool {
        !self.approvals.is_empty()
    }

    /// Whether a server has cancelled the current run.
    pub(crate) fn has_cancelled(&self, server: ServerIndex) -> bool {
        self.cancellations.contains(&server)
    }

    /// The groups that old servers have approved in the current run.
    pub(crate) fn approvals(&self) -> &BTreeMap<ServerIndex, QuorumGroup> {
        &self.approvals
    }

    /// The old servers that have cancelled the current run.
    pub(crate) fn cancellations(&self) -> &BTreeSet<ServerIndex> {
        &self.cancellations
    }

    /// The header of the epoch.
    pub fn epoch(&self) -> &GroupHeader {
        &self.epoch
    }

    /// The entry by which an old server approves a refresh to a group in the current run.
    pub fn approval(
        &self,
        server: ServerIndex,
        group: QuorumGroup,
        identity: &IdentitySecretKey,
    ) -> LogEntry {
        let (epoch, run, withdrawn) = (self.epoch_digest, self.run_number, self.withdrawn(server));
        let body = LogEntryBody::Approve { epoch, run, withdrawn, group };
        LogEntry::new(server, body, identity)
    }

    /// The entry by which an old server withdraws its approval in the current run.
    pub fn withdrawal(&self, server: ServerIndex, identity: &IdentitySecretKey) -> LogEntry {
        let (epoch, run, withdrawn) = (self.epoch_digest, self.run_number, self.withdrawn(server));
        LogEntry::new(server, LogEntryBody::Withdraw { epoch, run, withdrawn }, identity)
    }

    /// How many approvals a server has withdrawn in the current run.
    pub(crate) fn withdrawn(&self, server: ServerIndex) -> u8 {
        self.withdrawals.get(&server).copied().unwrap_or_default()
    }

    /// Whether the log still takes an approval of a server, and its withdrawal: the refresh has not
    /// begun, and the server has not withdrawn too many. So each approval can be withdrawn, even
    /// before the log has it.
    pub(crate) fn can_approve(&self, server: ServerIndex) -> bool {
        self.run.is_none() && self.withdrawn(server) < MAX_WITHDRAWALS
    }

    /// The entry by which an old server cancels the current run.
    pub fn cancellation(&self, server: ServerIndex, identity: &IdentitySecretKey) -> LogEntry {
        let body = LogEntryBody::Cancel { epoch: self.epoch_digest, run: self.run_number };
        LogEntry::new(server, body, identity)
    }

    /// The voting keys of the epoch's servers from the next height on.
    pub(crate) fn voting(&self) -> &[Option<IdentityPublicKey>] {
        &self.voting
    }

    /// The entry by which a server of the epoch changes its voting key.
    pub(crate) fn voting_entry(
        &self,
        server: ServerIndex,
        secret: &VotingSecret,
        identity: &IdentitySecretKey,
    ) -> LogEntry {
        let epoch = self.epoch_digest;
        let replaced = self.voting.get(usize::from(server.0)).copied().flatten();
        let voting = Box::new(VotingKey::new(secret, epoch, server));
        LogEntry::new(server, LogEntryBody::Voting { epoch, replaced, voting }, identity)
    }

    /// The number of the open run, or of the next one.
    pub fn run_number(&self) -> u32 {
        self.run_number
    }

    /// The open run.
    pub fn run(&self) -> Option<&RefreshRun> {
        self.run.as_ref()
    }

    /// The parameters of the combinatorial shares.
    ///
    /// # Panics
    /// If there are none. Only the state machines of a refresh of such shares call this.
    pub(crate) fn parameters(&self) -> &Arc<RefreshParameters> {
        self.key.parameters().expect("a refresh of combinatorial shares")
    }

    /// The refresh header for a run with a group (old node, step 1).
    pub(crate) fn refresh_header(&self, group: QuorumGroup) -> GroupHeader {
        GroupHeader {
            key: self.epoch.key,
            kind: GroupHeaderKind::Refresh,
            epoch: self.epoch.epoch + 1,
            run: self.run_number,
            previous: self.epoch_digest,
            group,
            voting: self.voting.clone(),
            witnesses: self.epoch.witnesses,
            time: None,
        }
    }

    /// Whether an entry may be applied: it belongs to this epoch and run, its slot is free, and a
    /// member that is not known to be faulty has signed it. This verifies at most one signature,
    /// and costs less if the entry is rejected for another reason. [`Self::apply`] changes the
    /// state by every such entry: the entry is counted, or its author is recorded as faulty.
    /// Afterwards its slot is taken.
    ///
    /// # Errors
    /// Why the entry would change nothing.
    pub fn check(&self, entry: &LogEntry) -> Result<EntrySlot, LogEntryRefusal> {
        self.check_with(entry, EntryTrust::Unknown)
    }

    /// As [`Self::check`]. The epoch or the run that an entry names determines its author's key. So
    /// the signature of an entry that was admitted at an earlier height is right.
    fn check_with(
        &self,
        entry: &LogEntry,
        trust: EntryTrust,
    ) -> Result<EntrySlot, LogEntryRefusal> {
        if self.run.as_ref().is_some_and(|run| run.next.is_some()) {
            return Err(LogEntryRefusal::Ended);
        }
        let (author, old) = (entry.author, &self.epoch.group);
        let is_free = match &entry.body {
            LogEntryBody::Approve { epoch, run, withdrawn, group } => {
                group.check_key(self.epoch.key).map_err(|_| LogEntryRefusal::GroupSize)?;
                self.check_number(*epoch, *run)?;
                // An approval that was withdrawn is not committed again.
                self.can_approve(author)
                    && !self.approvals.contains_key(&author)
                    && *withdrawn == self.withdrawn(author)
            }
            LogEntryBody::Withdraw { epoch, run, withdrawn } => {
                self.check_number(*epoch, *run)?;
                self.can_approve(author) && *withdrawn == self.withdrawn(author)
            }
            LogEntryBody::Cancel { .. } if self.is_founding() => {
                return Err(LogEntryRefusal::Founding);
            }
            LogEntryBody::Cancel { epoch, run } => {
                self.check_number(*epoch, *run)?;
                !self.cancellations.contains(&author)
            }
            LogEntryBody::Handover { step, .. } => {
                let (handover, author) = self.handover_of(entry, step)?;
                handover.check_header(author, step.header())?;
                true
            }
            LogEntryBody::SessionKey { .. }
            | LogEntryBody::Proved { .. }
            | LogEntryBody::Complaint { .. }
            | LogEntryBody::Computed { .. }
                if self.key.parameters().is_err() =>
            {
                return Err(LogEntryRefusal::OtherKey);
            }
            LogEntryBody::SessionKey { run, .. } => {
                !self.run_of(*run, entry)?.session_keys.contains_key(&author)
            }
            LogEntryBody::Proved { manifest, .. } => {
                let run = self.run_of(manifest.run, entry)?;
                !run.proofs.contains_key(&(author, manifest.round))
            }
            LogEntryBody::Complaint { run, complaint } => {
                let run = self.run_of(*run, entry)?;
                let is_free = !run.excluded.contains(&complaint.manifest.dealer);
                // A faulty dealer may have sent one before.
                if is_free && !run.session_keys.contains_key(&author) {
                    return Err(LogEntryRefusal::NoSessionKey);
                }
                is_free
            }
            LogEntryBody::Computed { run, .. } => {
                let run = self.run_of(*run, entry)?;
                let is_free = !run.computed.contains_key(&author);
                if is_free && run.read_chosen(old.combination()).is_none() {
                    return Err(LogEntryRefusal::NotChosen);
                }
                // This ensures that 2f'+1 servers of the new epoch have a voting key.
                if is_free && !run.session_keys.contains_key(&author) {
                    return Err(LogEntryRefusal::NoSessionKey);
                }
                is_free
            }
            LogEntryBody::Voting { epoch, voting, .. } => {
                if *epoch != self.epoch_digest {
                    return Err(LogEntryRefusal::OtherRun);
                }
                self.voting_key(author) != Some(&Some(voting.key))
            }
            LogEntryBody::Command { segment, number, .. } => {
                self.is_next_batch(entry, segment, *number)?
            }
        };
        if !is_free {
            return Err(LogEntryRefusal::Repeated);
        }
        let group = match (entry.side(), &self.run) {
            (RefreshRole::New, Some(run)) => &run.header.group,
            _ => old,
        };
        let is_known = trust == EntryTrust::Admitted;
        if !is_known && !entry.is_signed(group) {
            return Err(LogEntryRefusal::Signature);
        }
        if let LogEntryBody::Proved { manifest, .. } = &entry.body
            && (manifest.dealer != author || !manifest.fits(manifest.run, old.combination()))
        {
            return Err(LogEntryRefusal::Labels);
        }
        if !self.has_right_voting_key(entry, is_known) {
            return Err(LogEntryRefusal::VotingKey);
        }
        if let LogEntryBody::Handover { step, .. } = &entry.body {
            let (handover, author) = self.handover_of(entry, step)?;
            // Of an entry that was decoded before, only a Hold says more than its header.
            if !is_known || step.header().kind == HandoverEntryKind::Hold {
                handover.check(author, step)?;
            } else {
                // Otherwise servers that have the entry, and others, would not agree.
                debug_assert!(handover.check(author, step).is_ok());
            }
        }
        Ok(entry.slot())
    }

    fn voting_key(&self, server: ServerIndex) -> Option<&Option<IdentityPublicKey>> {
        self.voting.get(usize::from(server.0))
    }

    /// Whether the voting key of an entry has a valid proof. A server of the epoch also names the
    /// key that it replaces, so an old entry that is committed again changes nothing.
    fn has_right_voting_key(&self, entry: &LogEntry, is_known: bool) -> bool {
        let author = entry.author;
        match &entry.body {
            LogEntryBody::SessionKey { run, voting, .. } => {
                is_known || voting.is_proven(*run, author)
            }
            LogEntryBody::Voting { replaced, voting, .. } => {
                let changes = self.voting_changes.get(&author).copied().unwrap_or_default();
                changes < MAX_VOTING_CHANGES
                    && self.voting_key(author) == Some(replaced)
                    && (is_known || voting.is_proven(self.epoch_digest, author))
            }
            LogEntryBody::Handover { step, voting: Some(voting), .. } => {
                is_known || voting.is_proven(Sha256Digest(step.header().run), author)
            }
            _ => true,
        }
    }

    /// The check of entries for the next height, for the log.
    pub(crate) fn entry_check(&self) -> EntryCheck {
        let agreement = Arc::new(self.clone());
        let before = Arc::clone(&agreement);
        let check = EntryCheck::with_trust(move |bytes, trust| {
            let Ok(entry) = LogEntry::parse(bytes) else { return EntryAdmission::Refused };
            match agreement.check_with(&entry, trust) {
                Ok(slot) => EntryAdmission::Admitted(slot),
                // The author may be ahead of this server.
                Err(
                    LogEntryRefusal::OtherRun
                    | LogEntryRefusal::Early
                    | LogEntryRefusal::NotChosen
                    | LogEntryRefusal::NoSessionKey,
                ) => EntryAdmission::Later,
                Err(_) => EntryAdmission::Refused,
            }
        });
        check.with_next_set(move |entries| before.servers_after(entries))
    }

    /// Applies an entry of the log. Checks everything before it changes anything.
    ///
    /// # Errors
    /// Why the entry changes nothing: as [`Self::check`].
    pub fn apply(&mut self, entry: &LogEntry) -> Result<LogEntryEffect, LogEntryRefusal> {
        self.check(entry)?;
        let author = entry.author;
        let run = self.run.as_mut();
        let counted = match (&entry.body, run) {
            (LogEntryBody::Approve { group, .. }, _) => Ok(self.approve(author, group)),
            (LogEntryBody::Withdraw { .. }, _) => {
                self.approvals.remove(&author);
                *self.withdrawals.entry(author).or_default() += 1;
                Ok(LogEntryEffect::Counted)
            }
            (LogEntryBody::Cancel { .. }, _) => Ok(self.cancel(author)),
            (LogEntryBody::Voting { voting, .. }, _) => {
                if let Some(key) = self.voting.get_mut(usize::from(author.0)) {
                    *key = Some(voting.key);
                }
                *self.voting_changes.entry(author).or_default() += 1;
                Ok(LogEntryEffect::Counted)
            }
            (LogEntryBody::Command { .. }, _) => {
                let usage = self.commands.get_or_insert_default().entry(author).or_default();
                *usage = usage.with(entry).ok_or(LogEntryRefusal::CommandsFull)?;
                Ok(LogEntryEffect::Counted)
            }
            (_, None) => return Err(LogEntryRefusal::OtherRun),
            (LogEntryBody::SessionKey { key, voting, .. }, Some(run)) => {
                run.session_keys.insert(author, *key);
                run.voting.insert(author, voting.key);
                Ok(LogEntryEffect::Counted)
            }
            (LogEntryBody::Proved { manifest, confirmations }, Some(run)) => {
                run.proved(manifest, confirmations)
            }
            (LogEntryBody::Complaint { complaint, .. }, Some(run)) => {
                Ok(run.complaint(author, complaint, &self.epoch.group, self.key.parameters()?))
            }
            (LogEntryBody::Computed { witnesses, possession, time, .. }, Some(run)) => {
                let times = (*time, self.epoch.time);
                run.computed(author, (witnesses, possession), times, self.key.parameters()?)
            }
            (LogEntryBody::Handover { step, voting, time }, Some(run)) => {
                let times = (*time, self.epoch.time);
                run.hand_over(author, step, voting.as_deref(), times)
            }
        };
        // The author has signed an invalid entry. This proves it faulty, whatever others do.
        counted.or_else(|why| {
            let side = entry.side();
            let run = self.run.as_mut().ok_or(LogEntryRefusal::OtherRun)?;
            match side {
                RefreshRole::Old => run.excluded.insert(author),
                RefreshRole::New => run.faulty.insert(author),
            };
            Ok(LogEntryEffect::Faulty { side, author, why })
        })
    }

    fn check_number(&self, epoch: Sha256Digest, run: u32) -> Result<(), LogEntryRefusal> {
        let is_current = epoch == self.epoch_digest && run == self.run_number;
        if is_current { Ok(()) } else { Err(LogEntryRefusal::OtherRun) }
    }

    /// The open run, if it has this identifier and the author is a member of its group that is not
    /// known to be faulty.
    fn run_of(&self, id: Sha256Digest, entry: &LogEntry) -> Result<&RefreshRun, LogEntryRefusal> {
        let run = self.run.as_ref().filter(|run| run.id == id).ok_or(LogEntryRefusal::OtherRun)?;
        let (group, faulty) = match entry.side() {
            RefreshRole::Old => (&self.epoch.group, &run.excluded),
            RefreshRole::New => (&run.header.group, &run.faulty),
        };
        if faulty.contains(&entry.author) {
            return Err(LogEntryRefusal::Faulty);
        }
        if group.member(entry.author).is_some() { Ok(run) } else { Err(LogEntryRefusal::Signature) }
    }

    fn approve(&mut self, author: ServerIndex, group: &QuorumGroup) -> LogEntryEffect {
        self.approvals.insert(author, group.clone());
        let same = self.approvals.values().filter(|approved| *approved == group).count();
        if same < self.epoch.group.size().signer_count() {
            return LogEntryEffect::Counted;
        }
        // A new server, which starts here, does not know the earlier ones.
        self.cancellations.clear();
        self.voting_changes.clear();
        let run = RefreshRun::new(self.refresh_header(group.clone()), &self.key);
        self.segment = run.id;
        self.commands.iter_mut().for_each(BTreeMap::clear);
        self.run = Some(run);
        LogEntryEffect::Opened
    }

    fn cancel(&mut self, author: ServerIndex) -> LogEntryEffect {
        self.cancellations.insert(author);
        if self.cancellations.len() < self.epoch.group.size().signer_count() {
            return LogEntryEffect::Counted;
        }
        let (key, epoch) = (self.key.clone(), self.epoch.clone());
        let (voting, run_number) = (std::mem::take(&mut self.voting), self.run_number + 1);
        let voting_changes = std::mem::take(&mut self.voting_changes);
        let (segment, commands) = (self.segment, self.commands.take());
        let new = Self::new(key, epoch);
        *self = Self { voting, voting_changes, run_number, segment, commands, ..new };
        LogEntryEffect::Cancelled
    }
}
