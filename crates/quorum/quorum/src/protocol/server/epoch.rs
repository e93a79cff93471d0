//! The epoch that a server follows: its group, its key, and the agreed state of a refresh.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use zeroize::Zeroizing;

use super::change::{EncodedShareList, SavedStateChange};
use super::key::{EpochKey, HeldShares};
use super::output::{ApprovedGroup, EpochStatus, QuorumServerEvent, RefreshRunStatus};
use super::participation::RefreshParticipation;
use super::start::{GroupStart, GroupStartError, SignedGroupHeader};
use super::{QuorumServer, SavedStateError};
use crate::protocol::combination::{Label, ServerIndex};
use crate::protocol::group::{GroupHeader, GroupHeaderKind, GroupKeyAnchor, HEADER_MAGIC};
use crate::protocol::key_sharing::KeySigner;
use crate::protocol::refresh::{self, HandoverProgress, RefreshAgreement, RefreshRun};
use crate::protocol::signing::SignerHealth;
use crate::protocol::voting::VotingSecret;

/// The delay, from the beginning of an epoch or run, after which a member has the header signed.
/// Members are staggered by index, because the first one sends the signature to the others.
pub(super) fn header_delay(index: Option<ServerIndex>) -> Duration {
    Duration::from_millis(100) * index.map_or(0, |index| u32::from(index.0))
}

/// How many headers without a signature a server asks for at the same time.
const MAX_ASKED_HEADERS: usize = 8;

/// An epoch.
pub(super) struct FollowedEpoch {
    pub(super) start: GroupStart,
    /// Whether all headers of the start's chain are signed.
    pub(super) is_chain_signed: bool,
    pub(super) header: GroupHeader,
    pub(super) key: EpochKey,
    /// This server's index, if it is a member.
    pub(super) index: Option<ServerIndex>,
    /// Its voting key, and when to register it if it is not registered.
    pub(super) voting: Option<Arc<VotingSecret>>,
    pub(super) voting_at: Duration,
    pub(super) health: SignerHealth,
    /// When to have the headers of the chain signed, unless all are.
    pub(super) header_at: Duration,
    pub(super) agreement: RefreshAgreement,
    /// This server's part in the open run.
    pub(super) run: Option<RefreshParticipation>,
}

impl FollowedEpoch {
    pub(super) fn status(&self, lacks_service_state: bool) -> EpochStatus {
        let group = &self.header.group;
        let run = self.agreement.run().filter(|run| run.next_epoch().is_none()).map(|run| {
            let new = run.group();
            let DealingProgress { needed, chosen, late_dealers } = self.dealings(run);
            RefreshRunStatus {
                number: self.agreement.run_number(),
                group: new.clone(),
                quorum: new.size().quorum(),
                without_session_key: new.servers().filter(|it| !run.has_registered(*it)).collect(),
                labels: needed,
                chosen,
                late_dealers,
                without_shares: new.servers().filter(|it| !run.has_computed(*it)).collect(),
                excluded: run.excluded().iter().copied().collect(),
                faulty: run.faulty().iter().copied().collect(),
            }
        });
        EpochStatus {
            epoch: self.header.epoch,
            key: self.header.key,
            is_founding: self.agreement.is_founding(),
            servers: group.members().len(),
            faulty: group.size().faulty(),
            index: self.index,
            has_shares: self.key.has_shares(),
            lacks_service_state,
            is_header_signed: self.is_header_signed(),
            began: self.header.time,
            without_vote: group.servers().filter(|it| !self.has_vote(*it)).collect(),
            approvals: self.approvals(),
            cancelled: self.agreement.cancellations().iter().copied().collect(),
            run,
        }
    }

    /// How far the dealings of the open run are.
    fn dealings(&self, run: &RefreshRun) -> DealingProgress {
        if let Some(handover) = run.handover() {
            let HandoverProgress { dealers, dealt, chosen } = handover.progress();
            let late = dealers.participants().filter(|it| !dealt.contains(*it));
            return DealingProgress {
                needed: dealers.signer_count(),
                chosen: chosen.len(),
                late_dealers: late.map(ServerIndex::of).collect(),
            };
        }
        let combination = self.header.group.combination();
        let late: Vec<Label> =
            combination.labels().filter(|label| run.chosen(*label).is_none()).collect();
        let late_dealers: BTreeSet<ServerIndex> =
            late.iter().map(|label| combination.designated_dealer(*label)).collect();
        DealingProgress {
            needed: combination.label_count(),
            chosen: combination.label_count() - late.len(),
            late_dealers: late_dealers.into_iter().collect(),
        }
    }

    /// The approved groups with the members that have approved them, the most approvals first.
    fn approvals(&self) -> Vec<ApprovedGroup> {
        let mut groups: Vec<ApprovedGroup> = Vec::new();
        for (&server, approved) in self.agreement.approvals() {
            match groups.iter_mut().find(|it| it.group == *approved) {
                Some(it) => it.servers.push(server),
                None => {
                    groups.push(ApprovedGroup { group: approved.clone(), servers: vec![server] });
                }
            }
        }
        groups.sort_by_key(|it| Reverse(it.servers.len()));
        groups
    }

    pub(super) fn is_header_signed(&self) -> bool {
        self.start.chain.last().is_some_and(SignedGroupHeader::is_signed)
    }
}

struct DealingProgress {
    needed: usize,
    chosen: usize,
    late_dealers: Vec<ServerIndex>,
}

impl QuorumServer {
    /// Begins an epoch from a start, possibly the one that this server has saved.
    pub(super) fn begin_epoch(
        &mut self,
        start: GroupStart,
        is_own: bool,
        now: Duration,
    ) -> Result<(), GroupStartError> {
        let verified = start.verify(&self.settings.anchor, is_own)?;
        let key = EpochKey::new(verified, start.header());
        self.enter(start, key, now);
        Ok(())
    }

    /// Enters an epoch of which everything has been verified.
    pub(super) fn enter(&mut self, start: GroupStart, mut key: EpochKey, now: Duration) {
        let header = start.header().clone();
        let health = SignerHealth::of_size(header.group.size());
        let index = header.group.index_of(&self.settings.identity.public());
        if let Some(key) = start.ed25519_key() {
            self.settings.anchor = GroupKeyAnchor::Ed25519(key);
        }
        let refreshed = key.refreshed();
        let agreement = match &start.refresh {
            Some(refresh) => RefreshAgreement::joined(refreshed, header.clone(), &refresh.header),
            None => RefreshAgreement::new(refreshed, header.clone()),
        };
        let agreement = agreement.with_commands(self.service.is_some());
        if let Some(index) = index {
            key.begin_recovery(index, &header, &self.settings.delays);
        }
        self.epoch = Some(Box::new(FollowedEpoch {
            header_at: now + header_delay(index),
            is_chain_signed: start.is_chain_signed(),
            start,
            header,
            key,
            index,
            voting: None,
            voting_at: now,
            health,
            agreement,
            run: None,
        }));
        self.frost_queries.clear();
        self.answering.clear();
        // It is of the log before.
        self.height_in_work = None;
    }

    /// Restores this server's saved shares of its epoch.
    pub(super) fn restore_shares(
        &mut self,
        encoded: &EncodedShareList,
    ) -> Result<(), SavedStateError> {
        let Some(epoch) = &mut self.epoch else { return Ok(()) };
        let wrong = SavedStateError::Shares(epoch.header.epoch);
        let key = match &mut epoch.key {
            EpochKey::Combinatorial(key) => key,
            EpochKey::Polynomial(key) => {
                let own = epoch.index.and_then(ServerIndex::participant);
                let sharing = own.zip(key.sharing.as_ref());
                let saved = sharing.zip(encoded.first()).filter(|_| encoded.len() == 1);
                let signer = saved.and_then(|((own, sharing), (_, bytes))| {
                    KeySigner::from_bytes(sharing, own, bytes)
                });
                key.signer = Some(signer.ok_or(wrong)?);
                key.recovery = None;
                return Ok(());
            }
        };
        let range = &key.parameters.range;
        let share = |(label, bytes): &(_, Zeroizing<Vec<u8>>)| Some((*label, range.parse(bytes)?));
        let shares = encoded.iter().map(share).collect::<Option<refresh::LabeledShares>>();
        let shares = shares.ok_or(wrong.clone())?;
        if self.hold(Arc::new(shares)) { Ok(()) } else { Err(wrong) }
    }

    /// Uses these shares of the epoch from now on. Returns false if they are not the shares that
    /// this server must hold.
    fn hold(&mut self, shares: Arc<refresh::LabeledShares>) -> bool {
        let Some(epoch) = &mut self.epoch else { return false };
        let (Some(index), EpochKey::Combinatorial(key)) = (epoch.index, &mut epoch.key) else {
            return false;
        };
        key.shares = HeldShares::new(&key.group, index, shares);
        if key.shares.is_some() {
            key.recovery = None;
        }
        key.shares.is_some()
    }

    /// This server has obtained its shares of its epoch, and saves them.
    pub(super) fn receive_shares(&mut self, shares: &Arc<refresh::LabeledShares>) {
        if !self.hold(shares.clone()) {
            return;
        }
        let shares = shares.iter().map(|(&label, share)| (label, share.to_be_bytes())).collect();
        self.save_shares(shares);
    }

    /// This server has obtained its share by a polynomial of the key of its epoch, and saves it.
    pub(super) fn receive_signer(&mut self, signer: KeySigner) {
        let Some(epoch) = &mut self.epoch else { return };
        let EpochKey::Polynomial(key) = &mut epoch.key else { return };
        let is_of_epoch = key.sharing.as_ref().is_some_and(|sharing| signer.is_of(sharing));
        let own = epoch.index.and_then(ServerIndex::participant);
        if !is_of_epoch || own != Some(signer.server()) {
            return;
        }
        // One row takes the place of combinatorial shares.
        let saved = vec![(Label(0), signer.to_bytes())];
        (key.signer, key.recovery) = (Some(signer), None);
        self.save_shares(saved);
    }

    fn save_shares(&mut self, shares: EncodedShareList) {
        let Some(epoch) = self.epoch.as_ref().map(|epoch| epoch.header.epoch) else { return };
        self.changes.push(SavedStateChange::Shares { epoch, shares });
        self.event(QuorumServerEvent::HasShares { epoch });
        // An open run needs the shares.
        self.begin_run(None);
    }

    /// Handles the group's signature of a header of the chain.
    pub(super) fn header_signed(&mut self, header: &[u8], signature: &[u8]) {
        let Some(epoch) = &self.epoch else { return };
        let mut chain = epoch.start.chain.clone();
        if let Some(signed) = chain.iter_mut().find(|it| it.header.to_bytes() == header) {
            signed.signature = signature.to_vec();
        }
        self.take_signatures(&chain);
    }

    /// Takes over missing signatures from a chain that equals this server's chain or continues it.
    pub(super) fn take_signatures(&mut self, chain: &[SignedGroupHeader]) {
        let Some(epoch) = &mut self.epoch else { return };
        let mut taken = Vec::new();
        for (own, other) in epoch.start.chain.iter_mut().zip(chain) {
            let is_lacked = own.signature.is_empty() && own.header == other.header;
            if is_lacked && self.settings.anchor.verify(&own.header.to_bytes(), &other.signature) {
                own.signature.clone_from(&other.signature);
                taken.push(own.header.epoch);
            }
        }
        if !taken.is_empty() {
            epoch.is_chain_signed = epoch.start.is_chain_signed();
            self.changes.push(SavedStateChange::Start(epoch.start.clone()));
            for epoch in taken {
                self.event(QuorumServerEvent::HeaderSigned { epoch });
            }
            self.invite(None);
        }
    }

    /// Requests the signatures of the headers that this server's group must sign: that of the open
    /// run, and those of the chain. An epoch may have ended before its header was signed. Nobody
    /// could follow the chain or be invited then, if the next group did not sign it.
    pub(super) fn step_headers(&mut self, now: Duration) {
        let Some(epoch) = &mut self.epoch else { return };
        // While a group generates its key, it cannot sign.
        if epoch.index.is_none() || self.newer.is_some() || epoch.agreement.is_founding() {
            return;
        }
        let again = now + self.settings.timeouts.sign + self.settings.timeouts.retry;
        let mut due = Vec::new();
        if !epoch.is_chain_signed && epoch.header_at <= now {
            epoch.header_at = again;
            let unsigned = epoch.start.chain.iter().rev().filter(|it| !it.is_signed());
            due.extend(unsigned.take(MAX_ASKED_HEADERS).map(|it| it.header.to_bytes()));
        }
        if let (Some(machines), Some(run)) = (&mut epoch.run, epoch.agreement.run())
            && machines.signature.is_none()
            && machines.header_at <= now
        {
            machines.header_at = again;
            due.push(run.header().to_bytes());
        }
        for header in due {
            self.sign_header(now, header);
        }
    }

    pub(super) fn header_deadlines(&self) -> impl Iterator<Item = Duration> {
        let is_due = |epoch: &&FollowedEpoch| {
            epoch.index.is_some() && self.newer.is_none() && !epoch.agreement.is_founding()
        };
        let epoch = self.epoch.as_deref().filter(is_due);
        let header = epoch.filter(|epoch| !epoch.is_chain_signed).map(|epoch| epoch.header_at);
        let run = epoch.and_then(|epoch| epoch.run.as_ref());
        let run = run.filter(|run| run.signature.is_none()).map(|run| run.header_at);
        header.into_iter().chain(run)
    }

    /// Whether a message is the header of the open run or of an epoch of this server's chain, which
    /// the group itself signs.
    pub(super) fn is_own_header(&self, message: &[u8]) -> bool {
        let Some(epoch) = self.epoch.as_ref().filter(|_| message.starts_with(&HEADER_MAGIC)) else {
            return false;
        };
        // A header has one encoding.
        let Ok(header) = GroupHeader::parse(message) else { return false };
        let is_in_chain = || epoch.start.chain.iter().any(|it| it.header == header);
        header.kind != GroupHeaderKind::Founding
            && (epoch.agreement.run().is_some_and(|run| *run.header() == header) || is_in_chain())
    }
}
