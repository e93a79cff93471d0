//! A server's part in refreshes: as a member of the old group, of the new group, or of both.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use keys::IdentityPublicKey;
use random::{RandomError, RandomGenerator};
use zeroize::Zeroizing;

use super::change::{SavedServerState, SavedStateChange};
use super::epoch::{FollowedEpoch, header_delay};
use super::output::{QuorumServerEvent, QuorumServerOutput, QuorumServerTask, RefreshJobOwner};
use super::participation::{EndedRefresh, RefreshParticipation, dealer_items};
use super::start::{SignedGroupHeader, has_same_headers};
use super::{QuorumServer, SavedStateError};
use crate::protocol::combination::ServerIndex;
use crate::protocol::group::QuorumGroup;
use crate::protocol::link::LinkTopic;
use crate::protocol::log_types::Height;
use crate::protocol::refresh::{
    self, LogEntry, LogEntryEffect as BoardChange, NewServer, OldServer, RefreshMessage,
    RefreshRole, RunItemName,
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

    /// Applies the entries of a height. Entries after the end of an epoch have no effect. Their
    /// authors submit them again for the next epoch if they still matter.
    pub(super) fn apply_all(
        &mut self,
        now: Duration,
        height: Height,
        entries: &[Bytes],
        generator: &mut RandomGenerator,
    ) -> Result<(), RandomError> {
        let mut kept = Vec::new();
        let (mut changes, mut withdrawals) = (Vec::new(), Vec::new());
        for bytes in entries {
            let parsed = LogEntry::parse(bytes).map_err(|why| why.to_string());
            let withdrawal = parsed.as_ref().ok().and_then(|entry| self.withdrawal(entry));
            let Some(epoch) = &mut self.epoch else { return Ok(()) };
            let applied = parsed.and_then(|entry| {
                let change = epoch.agreement.apply(&entry).map_err(|why| why.to_string());
                Ok((entry, change?))
            });
            match applied {
                Ok((entry, change)) => {
                    kept.push(bytes.clone());
                    withdrawals.extend(withdrawal);
                    self.apply_commands(now, height, entry);
                    let is_final = change == BoardChange::Final;
                    changes.push(change);
                    if is_final {
                        break;
                    }
                }
                Err(why) => self.event(QuorumServerEvent::EntryRefused { why }),
            }
        }
        self.changes.push(SavedStateChange::Applied { height, entries: kept });
        for withdrawal in withdrawals {
            self.push(QuorumServerOutput::Event(withdrawal));
        }
        for change in changes {
            self.handle_entry_effect(now, height, &change, generator)?;
        }
        self.clear_settled_operator_request();
        Ok(())
    }

    fn handle_entry_effect(
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
            old: None,
            new: None,
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
        let (Some(run), Some(machines)) = (epoch.agreement.run(), &mut epoch.run) else { return };
        let nothing = SavedRunItems::new();
        let (of_old, of_new) = items.unwrap_or((&nothing, &nothing));
        if let (None, Some(index), Some(shares)) = (&machines.old, epoch.index, &epoch.shares) {
            let begin = |items| {
                let (identity, shares) = (identity.clone(), shares.raw.clone());
                OldServer::new(index, identity, shares, delays, &epoch.agreement, items)
            };
            // Saved items are well-formed unless the disk is damaged. In that case the server deals
            // again.
            machines.old = begin(of_old).or_else(|_| begin(&nothing)).ok();
        }
        if let (None, Some(index)) = (&machines.new, run.group().index_of(&identity.public())) {
            let begin = |items| {
                let (identity, witnesses) = (identity.clone(), epoch.witnesses.clone());
                NewServer::new(index, identity, witnesses, delays, &epoch.agreement, items)
            };
            machines.new = begin(of_new).or_else(|_| begin(&nothing)).ok();
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
        let FollowedEpoch {
            mut start,
            header: before,
            group,
            parameters,
            agreement,
            run,
            shares,
            voting,
            ..
        } = *old;
        let next =
            agreement.run().and_then(|run| Some((run.next_epoch()?, run.read_new_witnesses()?)));
        let (header, witnesses) = next.expect("a final run has an epoch and its witnesses");
        let (header, witnesses) = (header.clone(), witnesses.clone());
        start.chain.push(SignedGroupHeader { header, signature: Vec::new() });
        (start.refresh, start.height, start.witnesses) = (None, height, witnesses.to_bytes());
        self.changes.push(SavedStateChange::Start(start.clone()));
        let had_shares = shares.is_some();
        if had_shares || voting.is_some() {
            self.changes.push(SavedStateChange::End { epoch: before.epoch });
        }
        // An earlier run that has not brought this server its shares is abandoned now.
        if let Some(mut ended) = self.ended.take() {
            self.changes.extend(ended.machines.end(false));
        }
        self.enter(start, group.key.clone(), parameters, witnesses, now);
        self.begin_service_epoch(now, height);
        let new = run.as_ref().and_then(|run| run.new.as_ref());
        if let Some(secret) = new.and_then(NewServer::voting) {
            self.begin_voting(secret.clone());
        }
        let epoch = self.epoch.as_mut().expect("it was just entered");
        // Either this is the newest known epoch, or it has ended as well.
        let chain = &epoch.start.chain;
        let signed = self.newer.take_if(|newer| has_same_headers(chain, &newer.chain));
        let event = QuorumServerEvent::EpochBegun { epoch: epoch.header.epoch, index: epoch.index };
        if run.as_ref().is_some_and(|run| run.new.is_some()) {
            // The new server's role in the run recovers the shares if it lacks them.
            epoch.recovery = None;
        }
        self.ended = run.map(|machines| Box::new(EndedRefresh { agreement, machines }));
        self.operator_request = None;
        self.event(event);
        self.expire(now);
        self.step_refresh(now, generator)?;
        if had_shares {
            // Reported once it is true, which is after the save.
            self.push(QuorumServerOutput::Event(QuorumServerEvent::Wiped { epoch: before.epoch }));
        }
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
            if let Some(epoch) = &mut self.epoch {
                let FollowedEpoch { agreement, run, recovery, header, .. } = &mut **epoch;
                if let Some(run) = run {
                    run.poll(now, agreement, generator, &mut outputs)?;
                }
                let machine = RefreshJobOwner::Recovery(header.epoch);
                let polled = std::iter::from_fn(|| recovery.as_mut()?.poll_output(now));
                outputs.extend(polled.map(|output| (machine, output)));
            }
            if let Some(ended) = &mut self.ended {
                ended.machines.poll(now, &ended.agreement, generator, &mut outputs)?;
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
        let live = self.epoch.as_mut().and_then(|epoch| epoch.run.as_mut());
        let ended = self.ended.as_mut().map(|ended| &mut ended.machines);
        let mut runs = live.into_iter().chain(ended);
        match machine {
            RefreshJobOwner::Old(id) => {
                if let Some(old) = runs.find(|run| run.id == id).and_then(|run| run.old.as_mut()) {
                    old.handle_job(result);
                }
            }
            RefreshJobOwner::New(id) => {
                if let Some(new) = runs.find(|run| run.id == id).and_then(|run| run.new.as_mut()) {
                    new.handle_job(result, self.time);
                }
            }
            RefreshJobOwner::Recovery(number) => {
                let Some(epoch) = &mut self.epoch else { return };
                let epoch = Some(epoch).filter(|epoch| epoch.header.epoch == number);
                if let Some(recovery) = epoch.and_then(|epoch| epoch.recovery.as_mut()) {
                    recovery.handle_job(result);
                }
            }
        }
    }

    /// Takes over the shares that a recovery has obtained.
    pub(super) fn step_recovery(&mut self) {
        let recovery = self.epoch.as_mut().and_then(|epoch| epoch.recovery.as_mut());
        if let Some((_, shares)) = recovery.and_then(refresh::ShareRecovery::take) {
            self.receive_shares(&Arc::new(shares));
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
            && let (RefreshMessage::Shares(answer), Some(recovery)) = (message, &mut epoch.recovery)
        {
            recovery.handle_answer(index, answer);
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
        let recovery = self.epoch.as_ref().and_then(|epoch| epoch.recovery.as_ref());
        let machines = live.into_iter().chain(ended);
        let deadlines = machines.flat_map(|run| {
            let old = run.old.as_ref().and_then(OldServer::deadline);
            old.into_iter().chain(run.new.as_ref().and_then(NewServer::deadline))
        });
        deadlines.chain(recovery.and_then(refresh::ShareRecovery::deadline))
    }
}
