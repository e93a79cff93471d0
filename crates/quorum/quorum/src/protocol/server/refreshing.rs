//! A server's part in refreshes: as a member of the old group, of the new group, or of both.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use keys::{IdentityPublicKey, IdentitySecretKey};
use random::{RandomError, RandomGenerator};
use schnorr::SchnorrScheme;
use threshold_rsa::ThresholdRsaScheme;
use zeroize::Zeroizing;

use super::change::{SavedServerState, SavedStateChange};
use super::epoch::{FollowedEpoch, header_delay};
use super::key::EpochKey;
use super::output::{QuorumServerEvent, QuorumServerTask, RefreshJobOwner};
use super::participation::{EndedRefresh, RefreshParticipation, RunMachines, dealer_items};
use super::start::{SignedGroupHeader, has_same_headers};
use super::{QuorumServer, SavedStateError};
use crate::protocol::combination::ServerIndex;
use crate::protocol::group::{GroupHeader, QuorumGroup};
use crate::protocol::key_sharing::KeySharing;
use crate::protocol::link::LinkTopic;
use crate::protocol::log_types::Height;
use crate::protocol::refresh::{
    self, HandoverContext, HandoverMachine, HandoverOutcome, HandoverServer, LogEntry,
    LogEntryEffect as BoardChange, NewServer, OldServer, RefreshAgreement, RefreshDelays,
    RefreshMessage, RefreshOutcome, RefreshRole, RefreshRun, RunItemName, RunScheme,
};
use crate::protocol::wire::MalformedEncoding;

/// The first byte of a message about a run.
pub(super) const RUN: u8 = 1;
pub(super) const INVITE: u8 = 2;
pub(super) const QUESTION: u8 = 3;
pub(super) const STATE_ASK: u8 = 4;
pub(super) const STATE: u8 = 5;

type SavedRunItems = BTreeMap<RunItemName, Zeroizing<Vec<u8>>>;

impl QuorumServer {
    /// Applies the saved entries, and starts the open run again.
    pub(super) fn restore_run(
        &mut self,
        saved: &SavedServerState,
        now: Duration,
    ) -> Result<(), SavedStateError> {
        let Some(epoch) = &self.epoch else { return Ok(()) };
        let mut opened_at = epoch.start.height;
        let mut snapshot_at = None;
        for (height, bytes) in &saved.entries {
            if let Some(opened_at) = snapshot_at.take_if(|opened_at| *opened_at < *height) {
                self.keep_snapshot(opened_at);
            }
            let Some(epoch) = &mut self.epoch else { return Ok(()) };
            let entry = LogEntry::parse(bytes)?;
            match epoch.agreement.apply(&entry) {
                Ok(BoardChange::Opened) => {
                    opened_at = *height;
                    snapshot_at = Some(*height);
                }
                Ok(BoardChange::Cancelled) => {
                    snapshot_at = None;
                    self.drop_run_snapshots();
                }
                Ok(_) => self.apply_commands(now, *height, entry),
                Err(_) => {}
            }
        }
        if let Some(opened_at) = snapshot_at {
            self.keep_snapshot(opened_at);
        }
        let Some(epoch) = &mut self.epoch else { return Ok(()) };
        let Some(run) = epoch.agreement.run() else { return Ok(()) };
        let of_new = saved.items.get(&run.id()).cloned().unwrap_or_default();
        let of_old = saved.items.get(&dealer_items(run.id())).cloned().unwrap_or_default();
        self.open_run(opened_at, now);
        self.begin_run(Some((&of_old, &of_new)));
        Ok(())
    }

    pub(super) fn handle_entry_effect(
        &mut self,
        now: Duration,
        height: Height,
        change: &BoardChange,
        generator: &mut RandomGenerator,
    ) -> Result<(), RandomError> {
        match *change {
            BoardChange::Counted => {}
            BoardChange::Opened => {
                let run = self.epoch.as_ref().and_then(|epoch| epoch.agreement.run());
                let Some((epoch, run)) = run.map(|run| (run.header().epoch, run.id())) else {
                    return Ok(());
                };
                self.event(QuorumServerEvent::RunOpened { epoch, run });
                self.keep_snapshot(height);
                self.open_run(height, now);
                self.begin_run(None);
                self.update_peers();
            }
            BoardChange::Cancelled => {
                let run = self.epoch.as_mut().and_then(|epoch| epoch.run.take());
                self.changes.extend(run.into_iter().flat_map(|mut run| run.end(false)));
                self.event(QuorumServerEvent::RunCancelled);
                self.drop_run_snapshots();
                self.postpone_due_refresh(now);
                self.update_peers();
            }
            BoardChange::DealerExcluded { dealer, by } => {
                self.event(QuorumServerEvent::DealerExcluded { dealer, by });
            }
            BoardChange::FalseComplaint { complainant } => {
                self.event(QuorumServerEvent::FalseComplaint { complainant });
            }
            BoardChange::Faulty { side, author, why } => {
                self.event(QuorumServerEvent::WrongEntry { side, author, why });
            }
            BoardChange::Final => self.end_epoch(now, height, generator)?,
        }
        Ok(())
    }

    pub(super) fn open_run(&mut self, opened_at: Height, now: Duration) {
        let Some(epoch) = &mut self.epoch else { return };
        let Some(run) = epoch.agreement.run() else { return };
        epoch.run = Some(RefreshParticipation {
            id: run.id(),
            opened_at,
            signature: None,
            header_at: now + header_delay(epoch.index),
            machines: RunMachines::none(&epoch.agreement),
        });
    }

    /// Whether the open run leads to the newest epoch, which has begun.
    fn is_run_to_newest(&self) -> bool {
        let own = self.epoch.as_ref().map_or(0, |epoch| epoch.start.chain.len());
        self.newer.as_ref().is_some_and(|newer| newer.chain.len() == own + 1)
    }

    /// Starts this server's roles in the open run, unless they have started. An old server may have
    /// lacked its shares before. `items` are the saved items of its old server and of its new
    /// server.
    pub(super) fn begin_run(&mut self, items: Option<(&SavedRunItems, &SavedRunItems)>) {
        if self.newer.is_some() && !self.is_run_to_newest() {
            return;
        }
        let (identity, delays) = (&self.settings.identity, &self.settings.delays);
        let Some(epoch) = &mut self.epoch else { return };
        let (Some(run), Some(part)) = (epoch.agreement.run(), &mut epoch.run) else { return };
        let nothing = SavedRunItems::new();
        let (of_old, of_new) = items.unwrap_or((&nothing, &nothing));
        let (old, new, key) = match (&mut part.machines, &epoch.key) {
            (RunMachines::Combinatorial { old, new }, EpochKey::Combinatorial(key)) => {
                (old, new, key)
            }
            (RunMachines::Handover(server @ None), EpochKey::Polynomial(key)) => {
                let begin = match key.sharing {
                    Some(KeySharing::Rsa(_)) => begin_handover::<ThresholdRsaScheme>,
                    _ => begin_handover::<SchnorrScheme>,
                };
                let begin = |items| begin(identity, &epoch.agreement, delays, items);
                *server = begin((of_old, of_new)).or_else(|| begin((&nothing, &nothing)));
                return;
            }
            _ => return,
        };
        if let (None, Some(index), Some(shares)) = (&old, epoch.index, &key.shares) {
            let begin = |items| {
                let (identity, shares) = (identity.clone(), shares.raw.clone());
                OldServer::new(index, identity, shares, delays, &epoch.agreement, items)
            };
            // Saved items are well-formed unless the disk is damaged. In that case the server deals
            // again.
            *old = begin(of_old).or_else(|_| begin(&nothing)).ok().map(Box::new);
        }
        if let (None, Some(index)) = (&new, run.group().index_of(&identity.public())) {
            let begin = |items| {
                let (identity, witnesses) = (identity.clone(), key.witnesses.clone());
                NewServer::new(index, identity, witnesses, delays, &epoch.agreement, items)
            };
            *new = begin(of_new).or_else(|_| begin(&nothing)).ok().map(Box::new);
        }
    }

    /// The new epoch has begun. The height, the start, and this server's shares if it has them are
    /// saved together. Otherwise all servers could stop with the old shares wiped and the new ones
    /// not saved.
    fn end_epoch(
        &mut self,
        now: Duration,
        height: Height,
        generator: &mut RandomGenerator,
    ) -> Result<(), RandomError> {
        let Some(old) = self.epoch.take() else { return Ok(()) };
        let FollowedEpoch { mut start, header: before, mut key, agreement, run, voting, .. } = *old;
        let next = agreement.run().and_then(|run| next_key(run, &key));
        let (header, next_key, witnesses) = next.expect("a final run has an epoch and its key");
        start.chain.push(SignedGroupHeader { header, signature: Vec::new() });
        (start.refresh, start.height, start.witnesses) = (None, height, witnesses);
        self.changes.push(SavedStateChange::Start(start.clone()));
        // The old shares are wiped before the new ones are used, except those that a job uses.
        let in_use = run.iter().flat_map(|run| run.in_use(false));
        let shares = key.wipe().map(|shares| shares.with(in_use));
        drop(key);
        if shares.is_some() || voting.is_some() {
            self.changes.push(SavedStateChange::End { epoch: before.epoch });
        }
        // An earlier run that has not brought this server its shares is abandoned now.
        if let Some(mut ended) = self.ended.take() {
            self.changes.extend(ended.machines.end(false));
        }
        self.enter(start, next_key, now);
        self.begin_service_epoch(now, height);
        if let Some(secret) = run.as_ref().and_then(|run| run.machines.voting()) {
            self.begin_voting(secret.clone());
        }
        let epoch = self.epoch.as_mut().expect("it was just entered");
        // Either this is the newest known epoch, or it has ended as well.
        let chain = &epoch.start.chain;
        let signed = self.newer.take_if(|newer| has_same_headers(chain, &newer.chain));
        let event = QuorumServerEvent::EpochBegun { epoch: epoch.header.epoch, index: epoch.index };
        if run.as_ref().is_some_and(|run| run.machines.new_server().is_some()) {
            // The new server's role in the run recovers the shares if it lacks them.
            epoch.key.end_recovery();
        }
        let mut signer = None;
        match run {
            // A server that lacks its share gets it from others of its group.
            Some(mut run @ RefreshParticipation { machines: RunMachines::Handover(_), .. }) => {
                signer = run.take_signer();
                self.changes.extend(run.end(false));
            }
            run => {
                self.ended = run.map(|machines| Box::new(EndedRefresh { agreement, machines }));
            }
        }
        self.operator_request = None;
        self.event(event);
        if let Some(signer) = signer {
            self.receive_signer(signer);
        }
        self.expire(now);
        self.step_refresh(now, generator)?;
        self.wiping.extend(shares.map(|shares| (before.epoch, shares)));
        self.report_wiped();
        self.end_requests(now);
        self.update_peers();
        if let Some(newer) = signed {
            self.take_signatures(&newer.chain);
        }
        Ok(())
    }

    /// Runs the state machines of the refresh as far as possible.
    pub(super) fn step_refresh(
        &mut self,
        now: Duration,
        generator: &mut RandomGenerator,
    ) -> Result<(), RandomError> {
        loop {
            let mut outputs = Vec::new();
            let time = self.time;
            if let Some(epoch) = &mut self.epoch {
                let FollowedEpoch { agreement, run, key, header, .. } = &mut **epoch;
                if let Some(run) = run {
                    let signer = match key {
                        EpochKey::Combinatorial(_) => None,
                        EpochKey::Polynomial(key) => key.signer.as_ref(),
                    };
                    let context = HandoverContext { agreement, signer, time };
                    run.poll(now, &context, generator, &mut outputs)?;
                }
                let machine = RefreshJobOwner::Recovery(header.epoch);
                let polled = match key {
                    EpochKey::Combinatorial(key) => {
                        let recovery = &mut key.recovery;
                        std::iter::from_fn(|| recovery.as_mut()?.poll_output(now)).collect()
                    }
                    EpochKey::Polynomial(key) => {
                        key.recovery.as_mut().map_or(Vec::new(), |it| it.poll_output(now))
                    }
                };
                outputs.extend(polled.into_iter().map(|output| (machine, output)));
            }
            if let Some(ended) = &mut self.ended {
                let context = HandoverContext { agreement: &ended.agreement, signer: None, time };
                ended.machines.poll(now, &context, generator, &mut outputs)?;
            }
            if outputs.is_empty() {
                break;
            }
            // New shares are saved before anything else happens.
            outputs
                .sort_by_key(|(_, output)| !matches!(output, refresh::RefreshOutput::Begin { .. }));
            for (machine, output) in outputs {
                self.carry_out(machine, output);
            }
        }
        if self.ended.as_ref().is_some_and(|ended| ended.machines.are_over()) {
            self.ended = None;
            self.update_peers();
        }
        Ok(())
    }

    fn carry_out(&mut self, machine: RefreshJobOwner, output: refresh::RefreshOutput) {
        match output {
            refresh::RefreshOutput::Send { to, message } => self.send_run(machine, to, &message),
            refresh::RefreshOutput::Submit(entry) => {
                let is_held = self.service.as_mut().is_some_and(|it| it.holds_back(&entry));
                if !is_held {
                    self.submit(&entry);
                }
            }
            refresh::RefreshOutput::Save { item, bytes } => {
                if let Some(run) = machine.items() {
                    self.changes.push(SavedStateChange::Item { run, item, bytes });
                }
            }
            refresh::RefreshOutput::Job(job) => {
                self.job(QuorumServerTask::Refresh { machine, job: Box::new(job) });
            }
            refresh::RefreshOutput::Begin { header, shares, .. } => {
                if self.epoch.as_ref().is_some_and(|epoch| epoch.header == header) {
                    self.receive_shares(&shares);
                }
            }
            // The old shares are wiped when the epoch ends.
            refresh::RefreshOutput::Erase => {
                if let Some(run) = machine.items() {
                    self.changes.push(SavedStateChange::EraseRun { run });
                }
            }
        }
    }

    /// The groups of the run that a state machine belongs to.
    fn groups(&self, machine: RefreshJobOwner) -> Option<(&QuorumGroup, &QuorumGroup)> {
        let live = self.epoch.as_ref().map(|epoch| &epoch.agreement);
        let ended = self.ended.as_ref().map(|ended| &ended.agreement);
        match machine {
            RefreshJobOwner::Old(id) | RefreshJobOwner::New(id) => {
                let mut agreements = live.into_iter().chain(ended);
                let agreement = agreements
                    .find(|agreement| agreement.run().is_some_and(|run| run.id() == id))?;
                Some((&agreement.epoch().group, agreement.run()?.group()))
            }
            // A recovery treats its own group as the new one.
            RefreshJobOwner::Recovery(_) => {
                let group = &live?.epoch().group;
                Some((group, group))
            }
        }
    }

    fn send_run(
        &mut self,
        machine: RefreshJobOwner,
        to: (RefreshRole, ServerIndex),
        message: &RefreshMessage,
    ) {
        let Some((old, new)) = self.groups(machine) else { return };
        let group = if to.0 == RefreshRole::Old { old } else { new };
        let Some(member) = group.member(to.1) else { return };
        let identity = member.identity;
        if identity == self.settings.identity.public() {
            self.handle_run(&identity, message);
        } else if message.is_question() {
            self.send_question(machine, identity, message);
        } else {
            self.send_message(identity, message);
        }
    }

    pub(super) fn send_message(&mut self, to: IdentityPublicKey, message: &RefreshMessage) {
        let message = message.to_bytes();
        let mut bytes = Zeroizing::new(Vec::with_capacity(1 + message.len()));
        bytes.push(RUN);
        bytes.extend_from_slice(&message);
        // Shares are wiped once the message has been sent.
        self.send(to, LinkTopic::Refresh, Bytes::from_owner(bytes));
    }

    pub(super) fn handle_refresh_job(
        &mut self,
        machine: RefreshJobOwner,
        result: refresh::RefreshJobResult,
    ) {
        if let RefreshOutcome::Handover(outcome) = result.outcome {
            return self.handle_handover_job(machine, outcome);
        }
        let live = self.epoch.as_mut().and_then(|epoch| epoch.run.as_mut());
        let ended = self.ended.as_mut().map(|ended| &mut ended.machines);
        let mut machines = live.into_iter().chain(ended).filter_map(|run| match run.machines {
            RunMachines::Combinatorial { ref mut old, ref mut new } => Some((run.id, old, new)),
            RunMachines::Handover(_) => None,
        });
        match machine {
            RefreshJobOwner::Old(id) => {
                if let Some((_, Some(old), _)) = machines.find(|(of, ..)| *of == id) {
                    old.handle_job(result);
                }
            }
            RefreshJobOwner::New(id) => {
                if let Some((_, _, Some(new))) = machines.find(|(of, ..)| *of == id) {
                    new.handle_job(result, self.time);
                }
            }
            RefreshJobOwner::Recovery(number) => {
                let Some(epoch) = &mut self.epoch else { return };
                if epoch.header.epoch != number {
                    return;
                }
                match &mut epoch.key {
                    EpochKey::Combinatorial(key) => {
                        if let Some(recovery) = &mut key.recovery {
                            recovery.handle_job(result);
                        }
                    }
                    EpochKey::Polynomial(key) => {
                        if let Some(recovery) = &mut key.recovery {
                            recovery.handle_job(result);
                        }
                    }
                }
            }
        }
    }

    /// Handles the result of a job of a handover. The new epoch may have begun while this server
    /// computed its share. Then it has the share now.
    fn handle_handover_job(&mut self, machine: RefreshJobOwner, outcome: Box<dyn HandoverOutcome>) {
        let Some(epoch) = &mut self.epoch else { return };
        let run = epoch.run.as_mut().filter(|run| machine.is_of(run.id));
        match run.map(|run| &mut run.machines) {
            Some(RunMachines::Handover(Some(server))) => server.handle_job(outcome),
            _ if epoch.key.has_shares() || self.newer.is_some() => {}
            _ => {
                if let Some(signer) = outcome.into_signer() {
                    self.receive_signer(signer);
                }
            }
        }
    }

    /// Takes over the shares that a recovery has obtained.
    pub(super) fn step_recovery(&mut self) {
        let Some(epoch) = &mut self.epoch else { return };
        match &mut epoch.key {
            EpochKey::Combinatorial(key) => {
                let recovered = key.recovery.as_mut().and_then(refresh::ShareRecovery::take);
                if let Some((_, shares)) = recovered {
                    self.receive_shares(&Arc::new(shares));
                }
            }
            EpochKey::Polynomial(key) => {
                if let Some(signer) = key.recovery.as_mut().and_then(refresh::RowRecovery::take) {
                    self.receive_signer(signer);
                }
            }
        }
    }

    pub(super) fn handle_refresh(
        &mut self,
        now: Duration,
        from: &IdentityPublicKey,
        bytes: &[u8],
    ) -> Result<(), MalformedEncoding> {
        match bytes.split_first() {
            Some((&RUN, bytes)) => {
                let message = RefreshMessage::parse(bytes)?;
                if message.is_question() {
                    return Err(MalformedEncoding("a question without a signature"));
                }
                self.handle_run(from, &message);
                Ok(())
            }
            Some((&QUESTION, bytes)) => self.handle_question(from, bytes),
            Some((&INVITE, bytes)) => self.handle_invite(now, from, bytes),
            Some((&STATE_ASK, bytes)) if self.service.is_some() => {
                self.handle_state_ask(now, from, bytes)
            }
            Some((&STATE, bytes)) if self.service.is_some() => self.handle_state(bytes),
            _ => Err(MalformedEncoding("unknown kind of message")),
        }
    }

    fn handle_run(&mut self, from: &IdentityPublicKey, message: &RefreshMessage) {
        if let Some(epoch) = &mut self.epoch
            && let Some(index) = epoch.header.group.index_of(from)
        {
            match (message, &mut epoch.key) {
                (RefreshMessage::Shares(answer), EpochKey::Combinatorial(key)) => {
                    if let Some(recovery) = &mut key.recovery {
                        recovery.handle_answer(index, answer);
                    }
                }
                (RefreshMessage::RowValue { epoch, value }, EpochKey::Polynomial(key)) => {
                    if let Some(recovery) = &mut key.recovery {
                        recovery.handle_value(index, *epoch, value);
                    }
                }
                _ => {}
            }
        }
        if let Some(epoch) = &mut self.epoch {
            let FollowedEpoch { agreement, run, .. } = &mut **epoch;
            if let Some(run) = run {
                run.handle(from, message.clone(), agreement);
            }
        }
        if let Some(ended) = &mut self.ended {
            ended.machines.handle(from, message.clone(), &ended.agreement);
        }
    }

    pub(super) fn refresh_deadlines(&self) -> impl Iterator<Item = Duration> {
        let live = self.epoch.as_ref().and_then(|epoch| epoch.run.as_ref());
        let ended = self.ended.as_ref().map(|ended| &ended.machines);
        let recovery = self.epoch.as_ref().and_then(|epoch| epoch.key.deadline());
        let machines = live.into_iter().chain(ended);
        machines.filter_map(|run| run.machines.deadline()).chain(recovery)
    }
}

/// The header of the epoch that a final run begins, with its key and the encoded witnesses or
/// sharing.
fn next_key(run: &RefreshRun, key: &EpochKey) -> Option<(GroupHeader, EpochKey, Vec<u8>)> {
    let header = run.next_epoch()?.clone();
    Some(match key {
        EpochKey::Combinatorial(key) => {
            let (public, parameters) = (key.group.key.clone(), key.parameters.clone());
            let witnesses = run.read_new_witnesses()?.clone();
            let encoded = witnesses.to_bytes();
            let key = EpochKey::combinatorial(&header, public, parameters, witnesses);
            (header, key, encoded)
        }
        EpochKey::Polynomial(_) => {
            let sharing = run.read_new_sharing()?;
            let encoded = sharing.to_bytes();
            (header, EpochKey::polynomial(Some(sharing)), encoded)
        }
    })
}

/// The server in the open run of a key that is shared in this way, with the items that it has saved
/// as a dealer and as a receiver. `None` if they are malformed.
fn begin_handover<S: RunScheme>(
    identity: &Arc<IdentitySecretKey>,
    agreement: &RefreshAgreement,
    delays: &RefreshDelays,
    items: (&SavedRunItems, &SavedRunItems),
) -> Option<Box<dyn HandoverMachine>> {
    let server = HandoverServer::<S>::new(identity.clone(), agreement, delays, items);
    Some(Box::new(server.ok()?))
}
