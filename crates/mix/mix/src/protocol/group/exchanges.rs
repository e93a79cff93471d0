//! The members' exchanges: requests and answers, and when a round ends and the next one begins.

use std::time::Duration;

use keys::IdentityPublicKey;

use super::connection::{GroupConnection, ProxyExchange, ProxyExchangeStage};
use super::epoch::AnnouncedEpoch;
use super::job::{GroupJob, ProxyEngineProduct, ProxyEngineWork};
use super::rounds::{OpenRound, RoundContribution};
use super::status::MixGroupEvent;
use super::{CatchUpRequest, MAX_CATCH_UPS, MixGroup, SLOW_ROUNDS};
use crate::Participant;
use crate::protocol::round::RoundPosition;
use crate::protocol::wire::{ArchiveRecord, ProxyRefusal, ProxyToMember};

impl MixGroup {
    pub(super) fn handle_request(
        &mut self,
        now: Duration,
        id: u64,
        round: u64,
        nonce: [u8; 16],
        body: Vec<u8>,
    ) -> Result<(), ProxyRefusal> {
        let connection = self.connections.get_mut(&id).expect("checked");
        let Some(engine) = connection.take_request(round, nonce)? else {
            if body.len() != self.settings.terms.shape().own_slots_len() {
                return Err(ProxyRefusal::Engine);
            }
            self.end_exchange(now, id, RoundContribution::Slots(body), Vec::new());
            self.work(now, id);
            return Ok(());
        };
        // The engine handles a late request too, because both ends of its transfers must stay in
        // step.
        let read = self.rounds.open().filter(|open| open.number() == round);
        let read = read.and_then(OpenRound::read).unwrap_or_else(|| self.rounds.nothing());
        self.jobs.push_back(GroupJob::exchange(
            id,
            engine,
            ProxyEngineWork::Answer { request: body, read },
        ));
        Ok(())
    }

    pub(super) fn handle_product(&mut self, now: Duration, id: u64, product: ProxyEngineProduct) {
        match product {
            ProxyEngineProduct::SetUp(messages) => {
                for message in messages {
                    self.send(id, &ProxyToMember::SetUp(message));
                }
            }
            ProxyEngineProduct::Opening(opening) => {
                let exchange = self.connections.get_mut(&id).and_then(|it| it.exchange.as_mut());
                let exchange = exchange.expect("an opening is made for an exchange");
                exchange.stage = ProxyExchangeStage::Opened;
                let start = (*exchange.start).clone();
                self.send(id, &ProxyToMember::Round { start, opening });
            }
            ProxyEngineProduct::Answer { update, body } => {
                self.end_exchange(now, id, RoundContribution::Update(update), body);
            }
        }
    }

    /// Adds what a member has handed in to the open round, and answers.
    fn end_exchange(
        &mut self,
        now: Duration,
        id: u64,
        contribution: RoundContribution,
        body: Vec<u8>,
    ) {
        let connection = self.connections.get_mut(&id).expect("the caller has it");
        let ProxyExchange { start, stage, since } =
            connection.exchange.take().expect("an answer is made for an exchange");
        let ProxyExchangeStage::Answering(nonce) = stage else {
            unreachable!("a request has come")
        };
        let (round, key) = (start.round, connection.key);
        let member = self.epoch.as_ref().and_then(|epoch| epoch.number_of(&key));
        let is_open = self.rounds.open().is_some_and(|open| open.number() == round);
        let Some(member) = member.filter(|_| is_open) else {
            return self.send(id, &ProxyToMember::Late { round });
        };
        if let Some(since) = connection.late_since.take() {
            let after = now.saturating_sub(since);
            self.events.push_back(MixGroupEvent::InTimeAgain { key, after });
        }
        self.count_slow(key, round, now.saturating_sub(since));
        self.rounds.add(member, nonce, &contribution);
        if let RoundContribution::Update(update) = contribution {
            self.audits.take_part((id, key), round, Participant { member, nonce }, update);
        }
        self.send(id, &ProxyToMember::Answer { round, body });
    }

    /// Counts an exchange that was in time, but the last one of its round, and took longer than the
    /// mean of the shortest and the longest duration of a round: all others have waited for it. So
    /// a slow proxy does not name all.
    fn count_slow(&mut self, key: IdentityPublicKey, round: u64, took: Duration) {
        let terms = &self.settings.terms;
        let is_short = took <= (terms.least_interval() + terms.interval()) / 2;
        if is_short || self.exchanges(round).any(|_| true) {
            return;
        }
        let count = self.slow.entry(key.to_bytes()).or_default();
        *count += 1;
        if count.is_multiple_of(SLOW_ROUNDS) {
            self.events.push_back(MixGroupEvent::Slow { key, rounds: *count });
        }
    }

    /// The member says that it has the epoch's key, and begins exchanges by broadcast. It asks for
    /// the rounds that it has missed, if they are kept.
    ///
    /// # Errors
    /// If exchanges are not made by broadcast, or it asks again and again.
    pub(super) fn handle_catch_up(
        &mut self,
        now: Duration,
        id: u64,
        after: RoundPosition,
    ) -> Result<(), ProxyRefusal> {
        let terms = &self.settings.terms;
        let connection = self.connections.get_mut(&id).expect("checked");
        connection.begin_broadcast()?;
        if !terms.keep().is_zero() {
            connection.count_catch_up(now, terms.interval(), after, MAX_CATCH_UPS)?;
            let key = connection.key;
            self.catch_ups.push_back(CatchUpRequest { connection: id, key, after });
        }
        self.work(now, id);
        Ok(())
    }

    /// Tells an idle member of the open round, in an exchange by broadcast. Otherwise gives an idle
    /// engine its next work: set-up messages first, then the open round.
    pub(super) fn work(&mut self, now: Duration, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let number = self.epoch.as_ref().and_then(|epoch| epoch.number_of(&connection.key));
        let can_take_part = |open: &&OpenRound| number.is_some_and(|it| !open.has(it));
        let round = self.rounds.open().filter(|_| self.announced.is_none()).filter(can_take_part);
        if let Some(message) = round.and_then(|round| connection.begin_round(now, round)) {
            return self.transmit(id, message, true);
        }
        let read = round.and_then(|round| Some((round, round.read()?)));
        if let Some((engine, work)) = connection.next_work(now, read) {
            self.jobs.push_back(GroupJob::exchange(id, engine, work));
        }
    }

    /// Performs what is due: passes join requests on, begins an epoch, closes the open round, opens
    /// the next one.
    pub(super) fn advance(&mut self, now: Duration) {
        self.pass_on_joins(now);
        self.advance_audit();
        if self.is_waiting_for_openings() {
            return;
        }
        if let Some(epoch) = self.announced.take() {
            self.begin_epoch(now, epoch);
        }
        if let Some(round) = self.rounds.open().map(OpenRound::number) {
            let is_awaited = self.exchanges(round).any(|_| true);
            let is_computed = self
                .exchanges(round)
                .any(|it| matches!(it.stage, ProxyExchangeStage::Answering(_)));
            if !self.rounds.is_over(now, is_awaited, is_computed) {
                return;
            }
            self.close_round(now, round);
        }
        if self.writing.is_none() && self.records.is_empty() {
            self.open_round(now);
        }
    }

    /// Whether the next epoch must wait for openings that are being computed. A member must not be
    /// told of a round of an epoch after it was told of the next epoch.
    pub(super) fn is_waiting_for_openings(&self) -> bool {
        let is_opening = |it: &GroupConnection| {
            it.exchange
                .as_ref()
                .is_some_and(|exchange| exchange.stage == ProxyExchangeStage::Opening)
        };
        self.announced.is_some() && self.connections.values().any(is_opening)
    }

    /// Opens a round, if a member can take part.
    fn open_round(&mut self, now: Duration) {
        let Some(epoch) = &self.epoch else { return };
        let can_take_part =
            |it: &GroupConnection| it.can_exchange() && epoch.number_of(&it.key).is_some();
        if !self.connections.values().any(can_take_part) {
            return;
        }
        if self.rounds.begin(now, epoch.number()) {
            self.is_stored = false;
        }
        self.audits.open_round(self.rounds.last());
        for id in self.connections.keys().copied().collect::<Vec<_>>() {
            self.work(now, id);
        }
    }

    fn close_round(&mut self, now: Duration, round: u64) {
        let mut late = 0;
        for connection in self.connections.values_mut() {
            let exchange = connection.exchange.as_ref().filter(|it| it.start.round == round);
            let Some(since) = exchange.map(|it| it.since) else { continue };
            late += 1;
            if connection.late_since.is_none() {
                connection.late_since = Some(since);
                self.events.push_back(MixGroupEvent::Late { key: connection.key, round });
            }
        }
        let (participants, took) = self.rounds.close(now);
        if !self.settings.terms.keep().is_zero() {
            let epoch = self.epoch.as_ref().map_or(0, AnnouncedEpoch::number);
            self.records.extend(self.rounds.closed_record(epoch).map(ArchiveRecord::Round));
        }
        self.audits.close_round(round);
        self.advance_audit();
        self.counters.count_round(participants, late, took);
        self.events.push_back(MixGroupEvent::RoundClosed { round, participants, late, took });
    }

    /// The exchanges of a round that have begun and not ended.
    pub(super) fn exchanges(&self, round: u64) -> impl Iterator<Item = &ProxyExchange> {
        let all = self.connections.values().filter_map(|it| it.exchange.as_ref());
        all.filter(move |exchange| exchange.start.round == round)
    }
}
