//! The drivers of the proxy and of the clients: what they do after each call.

use std::time::Duration;

use super::super::exchanges::SINCE_1970;
use super::super::person::secret;
use super::{NOTICE_MS, Sight, TICK, Wire, World};
use crate::protocol::group::{CatchUpRequest, GroupTransmit, MixGroupEvent, PastPart, read_record};
use crate::protocol::wire::{ArchiveRecord, MemberToProxy, MixHello, ProxyToMember};

impl World {
    pub(super) fn handle_at_proxy(&mut self, wire: usize, message: &[u8]) {
        let Some(group) = &mut self.group else { return };
        let Wire { id, person, is_greeted, .. } = &mut self.wires[wire];
        if std::mem::replace(is_greeted, true) {
            group.handle_message(self.now, *id, message);
        } else if MixHello::decode(message).is_ok() {
            group.handle_connected(self.now, *id, secret(*person).public());
        } else {
            // Its greeting was lost.
            self.cut(wire);
        }
        self.poll_proxy();
    }

    /// The steps of the proxy's driver after each call. It may be killed at any of them.
    pub(super) fn poll_proxy(&mut self) {
        loop {
            if self.faults.proxy > 0 && self.group.is_some() && self.rng.u32(0..20_000) == 0 {
                self.stop_proxy();
            }
            let Some(group) = &mut self.group else { return };
            if let Some(job) = group.poll_job() {
                let due = self.soon(20);
                self.jobs.push((due, job));
            } else if let Some(state) = group.poll_store() {
                self.stored = Some(state);
            } else if let Some(record) = group.poll_record() {
                let is_written = self.keep(record);
                if let Some(group) = &mut self.group {
                    group.handle_written(self.now, is_written);
                }
            } else if let Some(request) = group.poll_catch_up() {
                self.answer_catch_up(request);
            } else if let Some(transmit) = group.poll_transmit() {
                self.send_down(transmit);
            } else if let Some(event) = group.poll_event() {
                match event {
                    MixGroupEvent::RoundClosed { .. } => self.rounds += 1,
                    MixGroupEvent::Refused { refusal, .. } => self.refusals.push(refusal),
                    _ => {}
                }
            } else {
                return;
            }
        }
    }

    /// The archive's driver. The proxy may be killed while it writes.
    fn keep(&mut self, record: ArchiveRecord) -> bool {
        let now = (SINCE_1970 + self.now).as_secs();
        if !self.archive.is_next(&record) {
            return false;
        }
        let Some(append) = self.archive.append(now, record) else { return true };
        if self.is_archive_full {
            self.archive.handle_not_written();
            return false;
        }
        let is_killed = self.faults.proxy > 0 && self.rng.u32(0..2_000) == 0;
        let written =
            if is_killed { self.rng.usize(0..append.bytes.len()) } else { append.bytes.len() };
        let segment = self.segments.entry(append.segment).or_default();
        segment.extend_from_slice(&append.bytes[..written]);
        while let Some(removed) = self.archive.poll_removal(now) {
            self.segments.remove(&removed);
            self.archive.handle_removed();
        }
        if is_killed {
            self.stop_proxy();
        }
        !is_killed
    }

    fn answer_catch_up(&mut self, CatchUpRequest { connection, key, after }: CatchUpRequest) {
        let batch = self.archive.batch(&key, after);
        let record = |part| match part {
            PastPart::Record(record) => record,
            PastPart::Stored { segment, place, .. } => {
                let start = usize::try_from(place.offset).unwrap();
                read_record(&self.segments[&segment][start..start + place.len]).unwrap()
            }
        };
        let records = batch.parts.into_iter().map(record).collect();
        if let Some(group) = &mut self.group {
            group.handle_past(connection, batch.is_last, records);
        }
    }

    /// The steps of a client's driver after each call.
    pub(super) fn poll_client(&mut self, person: usize) {
        loop {
            if self.faults.clients > 0 && self.rng.u32(0..10_000) == 0 {
                return self.restart(person);
            }
            let due = self.now + self.disk;
            if self.people[person].begin_to_store(due) || self.people[person].read_event() {
                continue;
            }
            let Some(mut message) = self.people[person].client.poll_transmit(self.now) else {
                let reads = self.reads_nothing != Some(person);
                if reads && self.people[person].client.read_round() {
                    continue;
                }
                return;
            };
            let terms = self.settings().terms;
            if let Some(deviate) = &mut self.deviate
                && let Ok(mut changed) = MemberToProxy::decode(&message, &terms)
                && MixHello::decode(&message).is_err()
            {
                deviate(person, &mut changed);
                message = changed.encode();
            }
            self.see(person, Sight::Message(message.len()));
            let is_lost = self.happens(self.faults.lost);
            let due = self.soon(30) + self.delays[person];
            // It may have been cut, and the client not have noticed.
            let own = |it: &&mut Wire| it.person == person && !it.is_cut;
            if let Some(wire) = self.wires.iter_mut().find(own) {
                if is_lost {
                    wire.client_ends = Some(due + Duration::from_millis(NOTICE_MS));
                } else {
                    wire.up.push(due, message);
                }
            }
        }
    }

    fn send_down(&mut self, GroupTransmit { connection, message, is_last, .. }: GroupTransmit) {
        let is_lost = self.happens(self.faults.lost);
        let mut due = self.soon(30);
        let terms = self.settings().terms;
        let Some(at) = self.wires.iter().position(|it| it.id == connection) else { return };
        let wire = &mut self.wires[at];
        if wire.is_cut {
            return;
        }
        due += self.delays[wire.person];
        let mut message = message.to_vec();
        if self.tamper.is_some() || self.withhold.is_some() {
            let is_first = message[0] == 1;
            let terms = (!is_first).then_some(terms);
            let mut changed = ProxyToMember::decode(&message, terms.as_ref()).unwrap();
            if self.withhold.as_mut().is_some_and(|withhold| withhold(wire.person, &changed)) {
                return;
            }
            if let Some(tamper) = &mut self.tamper {
                tamper(wire.person, &mut changed);
            }
            message = changed.encode();
        }
        if is_lost {
            wire.client_ends = Some(due + Duration::from_millis(NOTICE_MS));
        } else {
            wire.down.push(due, message);
        }
        if is_last {
            let last = wire.down.0.back().map_or(due, |(at, _)| *at);
            wire.client_ends = Some(last + TICK);
        }
    }
}
