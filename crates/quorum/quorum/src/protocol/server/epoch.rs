//! The epoch that a server follows: its group, its shares, and the agreed state of a refresh.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rsa_arithmetic::key::GroupPublicKey;
use zeroize::Zeroizing;

use super::change::{EncodedShareList, SavedStateChange};
use super::output::{ApprovedGroup, EpochStatus, QuorumServerEvent, RefreshRunStatus};
use super::participation::RefreshParticipation;
use super::start::{GroupStart, GroupStartError, SignedGroupHeader};
use super::{QuorumServer, SavedStateError};
use crate::protocol::combination::{Label, ServerIndex};
use crate::protocol::group::{GroupHeader, HEADER_MAGIC};
use crate::protocol::refresh::{
    self, RefreshAgreement, RefreshParameters, ShareRecovery, ShareWitnesses,
};
use crate::protocol::share::ShareRange;
use crate::protocol::signing::{self, SignerHealth, SigningGroup};
use crate::protocol::voting::VotingSecret;

/// The delay, from the beginning of an epoch or run, after which a member has the header signed.
/// Members are staggered by index, because the first one sends the signature to the others.
pub(super) fn header_delay(index: Option<ServerIndex>) -> Duration {
    Duration::from_millis(100) * index.map_or(0, |index| u32::from(index.0))
}

/// An epoch.
pub(super) struct FollowedEpoch {
    pub(super) start: GroupStart,
    pub(super) header: GroupHeader,
    pub(super) group: Arc<SigningGroup>,
    pub(super) parameters: Arc<RefreshParameters>,
    pub(super) witnesses: Arc<ShareWitnesses>,
    /// This server's index, if it is a member.
    pub(super) index: Option<ServerIndex>,
    pub(super) shares: Option<HeldShares>,
    /// Its voting key, and when to register it if it is not registered.
    pub(super) voting: Option<Arc<VotingSecret>>,
    pub(super) voting_at: Duration,
    pub(super) health: SignerHealth,
    /// When to have the header signed, unless it is.
    pub(super) header_at: Duration,
    pub(super) agreement: RefreshAgreement,
    /// This server's part in the open run.
    pub(super) run: Option<RefreshParticipation>,
    /// The recovery of a member that lacks its shares.
    pub(super) recovery: Option<ShareRecovery>,
}

/// The shares that a member has.
pub(super) struct HeldShares {
    pub(super) raw: Arc<refresh::LabeledShares>,
    pub(super) signing: Arc<signing::SigningShares>,
}

impl HeldShares {
    fn new(
        group: &Arc<SigningGroup>,
        index: ServerIndex,
        raw: Arc<refresh::LabeledShares>,
    ) -> Option<Self> {
        let range = ShareRange::new(group.key.modulus().bits());
        let shares = raw.iter().map(|(label, share)| (*label, share.clone())).collect();
        let signing = signing::SigningShares::new(group.clone(), index, range, shares)?;
        Some(Self { raw, signing: Arc::new(signing) })
    }
}

impl FollowedEpoch {
    pub(super) fn status(&self, lacks_service_state: bool) -> EpochStatus {
        let combination = self.header.group.combination();
        let run = self.agreement.run().filter(|run| run.next_epoch().is_none()).map(|run| {
            let new = run.group().combination();
            let late: Vec<Label> =
                combination.labels().filter(|label| run.chosen(*label).is_none()).collect();
            let late_dealers: BTreeSet<ServerIndex> =
                late.iter().map(|label| combination.designated_dealer(*label)).collect();
            let has_key = |server: &ServerIndex| run.session_keys().contains_key(server);
            RefreshRunStatus {
                number: self.agreement.run_number(),
                group: run.group().clone(),
                quorum: new.quorum(),
                without_session_key: new.servers().filter(|it| !has_key(it)).collect(),
                labels: combination.label_count(),
                chosen: combination.label_count() - late.len(),
                late_dealers: late_dealers.into_iter().collect(),
                without_shares: new.servers().filter(|it| !run.has_computed(*it)).collect(),
                excluded: run.excluded().iter().copied().collect(),
                faulty: run.faulty().iter().copied().collect(),
            }
        });
        EpochStatus {
            epoch: self.header.epoch,
            servers: combination.server_count(),
            faulty: combination.faulty(),
            index: self.index,
            has_shares: self.shares.is_some(),
            lacks_service_state,
            is_header_signed: self.is_header_signed(),
            began: self.header.time,
            without_vote: combination.servers().filter(|it| !self.has_vote(*it)).collect(),
            approvals: self.approvals(),
            cancelled: self.agreement.cancellations().iter().copied().collect(),
            run,
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
        self.start.chain.last().is_some_and(|it| !it.signature.is_empty())
    }
}

impl QuorumServer {
    /// Begins an epoch from a start, possibly the one that this server has saved.
    pub(super) fn begin_epoch(
        &mut self,
        start: GroupStart,
        is_own: bool,
        now: Duration,
    ) -> Result<(), GroupStartError> {
        let verified = start.verify(&self.settings.public, is_own)?;
        let range = ShareRange::new(verified.key.modulus().bits());
        let parameters = Arc::new(RefreshParameters::new(&verified.key, range));
        self.enter(start, verified.key, parameters, Arc::new(verified.witnesses), now);
        Ok(())
    }

    /// Enters an epoch of which everything has been verified.
    pub(super) fn enter(
        &mut self,
        start: GroupStart,
        key: GroupPublicKey,
        parameters: Arc<RefreshParameters>,
        witnesses: Arc<ShareWitnesses>,
        now: Duration,
    ) {
        let header = start.header().clone();
        let identities = header.group.members().iter().map(|member| member.identity).collect();
        let combination = header.group.combination().clone();
        let health = SignerHealth::new(&combination);
        let group = SigningGroup { epoch: header.epoch, key, combination, identities };
        let index = header.group.index_of(&self.settings.identity.public());
        let agreement = match &start.refresh {
            Some(refresh) => {
                RefreshAgreement::joined(parameters.clone(), header.clone(), &refresh.header)
            }
            None => RefreshAgreement::new(parameters.clone(), header.clone()),
        };
        let agreement = agreement.with_commands(self.service.is_some());
        let recovery = index.map(|index| {
            let (epoch, group) = (header.epoch, header.group.combination().clone());
            let (parameters, delays) = (parameters.clone(), &self.settings.delays);
            let recovery =
                ShareRecovery::new(index, epoch, group, parameters, Some(header.witnesses), delays);
            recovery.with_witnesses(witnesses.clone())
        });
        self.epoch = Some(Box::new(FollowedEpoch {
            header_at: now + header_delay(index),
            start,
            header,
            group: Arc::new(group),
            parameters,
            witnesses,
            index,
            shares: None,
            voting: None,
            voting_at: now,
            health,
            agreement,
            run: None,
            recovery,
        }));
        self.answering.clear();
    }

    /// Restores this server's saved shares of its epoch.
    pub(super) fn restore_shares(
        &mut self,
        encoded: &EncodedShareList,
    ) -> Result<(), SavedStateError> {
        let Some(epoch) = &self.epoch else { return Ok(()) };
        let wrong = SavedStateError::Shares(epoch.header.epoch);
        let range = &epoch.parameters.range;
        let share = |(label, bytes): &(_, Zeroizing<Vec<u8>>)| Some((*label, range.parse(bytes)?));
        let shares = encoded.iter().map(share).collect::<Option<refresh::LabeledShares>>();
        let shares = shares.ok_or(wrong.clone())?;
        if self.hold(Arc::new(shares)) { Ok(()) } else { Err(wrong) }
    }

    /// Uses these shares of the epoch from now on. Returns false if they are not the shares that
    /// this server must hold.
    fn hold(&mut self, shares: Arc<refresh::LabeledShares>) -> bool {
        let Some(epoch) = &mut self.epoch else { return false };
        let Some(index) = epoch.index else { return false };
        epoch.shares = HeldShares::new(&epoch.group, index, shares);
        if epoch.shares.is_some() {
            epoch.recovery = None;
        }
        epoch.shares.is_some()
    }

    /// This server has obtained its shares of its epoch, and saves them.
    pub(super) fn receive_shares(&mut self, shares: &Arc<refresh::LabeledShares>) {
        if !self.hold(shares.clone()) {
            return;
        }
        let epoch = self.epoch.as_ref().expect("it holds shares").header.epoch;
        let shares = shares.iter().map(|(&label, share)| (label, share.to_be_bytes())).collect();
        self.changes.push(SavedStateChange::Shares { epoch, shares });
        self.event(QuorumServerEvent::HasShares { epoch });
        // An open run needs the shares.
        self.begin_run(None);
    }

    /// Handles the group's signature of the epoch's header.
    pub(super) fn header_signed(&mut self, signature: Vec<u8>) {
        let Some(epoch) = &self.epoch else { return };
        let mut chain = epoch.start.chain.clone();
        if let Some(last) = chain.last_mut() {
            last.signature = signature;
        }
        self.take_signatures(&chain);
    }

    /// Takes over missing signatures from a chain that equals this server's chain or continues it.
    pub(super) fn take_signatures(&mut self, chain: &[SignedGroupHeader]) {
        let Some(epoch) = &mut self.epoch else { return };
        let mut taken = Vec::new();
        for (own, other) in epoch.start.chain.iter_mut().zip(chain) {
            let is_lacked = own.signature.is_empty() && own.header == other.header;
            if is_lacked && self.settings.public.verify(&own.header.to_bytes(), &other.signature) {
                own.signature.clone_from(&other.signature);
                taken.push(own.header.epoch);
            }
        }
        if !taken.is_empty() {
            self.changes.push(SavedStateChange::Start(epoch.start.clone()));
            for epoch in taken {
                self.event(QuorumServerEvent::HeaderSigned { epoch });
            }
            self.invite(None);
        }
    }

    /// Requests the signatures of the headers that this server's group must sign.
    pub(super) fn step_headers(&mut self, now: Duration) {
        let Some(epoch) = &mut self.epoch else { return };
        if epoch.index.is_none() || self.newer.is_some() {
            return;
        }
        let again = now + self.settings.timeouts.sign + self.settings.timeouts.retry;
        let mut due = Vec::new();
        if !epoch.is_header_signed() && epoch.header_at <= now {
            epoch.header_at = again;
            due.push(epoch.header.to_bytes());
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
        let is_due = |epoch: &&FollowedEpoch| epoch.index.is_some() && self.newer.is_none();
        let epoch = self.epoch.as_deref().filter(is_due);
        let header = epoch.filter(|epoch| !epoch.is_header_signed()).map(|epoch| epoch.header_at);
        let run = epoch.and_then(|epoch| epoch.run.as_ref());
        let run = run.filter(|run| run.signature.is_none()).map(|run| run.header_at);
        header.into_iter().chain(run)
    }

    /// Whether a message is a header of the group's epoch or open run, which the group itself
    /// signs.
    pub(super) fn is_own_header(&self, message: &[u8]) -> bool {
        let epoch = self.epoch.as_ref().filter(|_| message.starts_with(&HEADER_MAGIC));
        epoch.is_some_and(|epoch| {
            let run = epoch.agreement.run().map(|run| run.header().to_bytes());
            message == epoch.header.to_bytes() || run.as_deref() == Some(message)
        })
    }
}
