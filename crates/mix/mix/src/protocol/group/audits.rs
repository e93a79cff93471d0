//! The audits of a group. At a fixed interval of rounds, the update of a random participant is
//! checked by another participant. If that auditor finds the update invalid, further auditors check
//! it until two agree.
//!
//! A *case* is the audit of one update. An *inquiry* is its check by one auditor. Audits do not
//! delay rounds.

use std::sync::Arc;

use keys::IdentityPublicKey;

use super::MixGroup;
use super::connection::{AuditReply, GroupConnection};
use super::epoch::AnnouncedEpoch;
use super::job::{AuditProduct, AuditWork, GroupJob};
use super::status::{AuditFailedMember, MixGroupEvent};
use crate::protocol::audit::{AuditEvaluation, UpdateAuditError};
use crate::protocol::random::ForwardSecureRng;
use crate::protocol::slot_permutation::below;
use crate::protocol::wire::{ProxyRefusal, ProxyToMember};
use crate::{Mailbox, Participant};

/// The number of rounds within which an auditor must answer.
const INQUIRY_ROUNDS: u64 = 8;
/// New inquiries of a case begin for at most this many rounds after that of its update. Members
/// remember the participants of more rounds.
const CASE_ROUNDS: u64 = 24;

pub(super) struct GroupAudits {
    /// The number of rounds between audited updates; 0 for no audits.
    every: u64,
    /// The first round whose updates may be audited.
    next: u64,
    sample: Option<AuditSample>,
    case: Option<AuditCase>,
    /// Members of the epoch whose update two auditors have found invalid.
    found: Vec<AuditFailedMember>,
    inquiries: u64,
    random: ForwardSecureRng,
}

/// A sample of the open round: the update of one participant, chosen uniformly.
#[derive(Default)]
struct AuditSample {
    participants: usize,
    chosen: Option<(IdentityPublicKey, Participant, Arc<Mailbox>)>,
}

struct AuditCase {
    key: IdentityPublicKey,
    subject: Participant,
    round: u64,
    update: Arc<Mailbox>,
    /// The possible auditors: participants of the next round, because they know the participants of
    /// this one. In random order; the last one is asked next.
    auditors: Vec<(u64, IdentityPublicKey)>,
    inquiry: Option<AuditInquiry>,
    /// The auditors that found the update invalid, and the number of those that found it valid.
    accusers: Vec<IdentityPublicKey>,
    acquittals: usize,
}

struct AuditInquiry {
    number: u64,
    connection: u64,
    auditor: IdentityPublicKey,
    /// The last closed round when the inquiry began.
    since: u64,
    stage: AuditInquiryStage,
}

enum AuditInquiryStage {
    /// The auditor was asked.
    Asked,
    /// The choices are being computed, or the tables are being evaluated.
    Working,
    /// The auditor has the choices.
    Chosen(AuditEvaluation),
}

impl GroupAudits {
    /// Audits an update every `every` rounds, the first after that many rounds from `next_round`
    /// on. 0 means no audits.
    pub(super) fn new(every: u64, next_round: u64, random: ForwardSecureRng) -> Self {
        Self {
            every,
            next: next_round.saturating_add(every),
            sample: None,
            case: None,
            found: Vec::new(),
            inquiries: 0,
            random,
        }
    }

    /// A round has been opened.
    pub(super) fn open_round(&mut self, round: u64) {
        let is_due = self.every > 0 && self.case.is_none() && round >= self.next;
        self.sample = is_due.then(AuditSample::default);
    }

    /// A member has taken part in the open round.
    pub(super) fn take_part(
        &mut self,
        (connection, key): (u64, IdentityPublicKey),
        round: u64,
        participant: Participant,
        update: Mailbox,
    ) {
        if let Some(sample) = &mut self.sample {
            sample.participants += 1;
            if below(*self.random.draw(), sample.participants) == 0 {
                sample.chosen = Some((key, participant, Arc::new(update)));
            }
        } else if let Some(case) = &mut self.case
            && round == case.round + 1
            && key != case.key
        {
            case.auditors.push((connection, key));
            let last = case.auditors.len() - 1;
            case.auditors.swap(below(*self.random.draw(), last + 1), last);
        }
    }

    /// A round has been closed. A single participant is not audited, because there is nobody that
    /// it could harm.
    pub(super) fn close_round(&mut self, round: u64) {
        let sample = self.sample.take().filter(|sample| sample.participants > 1);
        let Some((key, subject, update)) = sample.and_then(|sample| sample.chosen) else { return };
        self.next = round.saturating_add(self.every);
        self.case = Some(AuditCase {
            key,
            subject,
            round,
            update,
            auditors: Vec::new(),
            inquiry: None,
            accusers: Vec::new(),
            acquittals: 0,
        });
    }

    /// The epoch has ended. Its findings are dropped.
    pub(super) fn begin_epoch(&mut self) {
        (self.sample, self.case) = (None, None);
        self.found.clear();
    }

    /// Members of the epoch whose update two auditors have found invalid.
    pub(super) fn found(&self) -> &[AuditFailedMember] {
        &self.found
    }

    /// Whether a member is left out until the next epoch.
    pub(super) fn is_left_out(&self, key: &IdentityPublicKey) -> bool {
        self.found.iter().any(|it| it.is_left_out && it.key == *key)
    }

    fn inquiry(&mut self, is_it: impl Fn(&AuditInquiry) -> bool) -> Option<&mut AuditInquiry> {
        self.case.as_mut()?.inquiry.as_mut().filter(|it| is_it(it))
    }
}

impl AuditCase {
    /// Whether the case needs no more auditors.
    fn is_decided(&self) -> bool {
        let accusations = self.accusers.len();
        accusations > 1 || (self.acquittals > 0 && (accusations == 0 || self.acquittals > 1))
    }
}

impl MixGroup {
    /// An auditor's set-up message.
    pub(super) fn handle_audit_set_up(
        &mut self,
        id: u64,
        set_up: Vec<u8>,
    ) -> Result<(), ProxyRefusal> {
        self.connections.get_mut(&id).expect("checked").take_audit_reply(AuditReply::SetUp)?;
        let is_asked =
            |it: &AuditInquiry| it.connection == id && matches!(it.stage, AuditInquiryStage::Asked);
        let Some(inquiry) = self.audits.inquiry(is_asked) else { return Ok(()) };
        inquiry.stage = AuditInquiryStage::Working;
        let number = inquiry.number;
        let shape = *self.settings.terms.shape();
        let random = self.audits.random.draw();
        if let Some(case) = &self.audits.case {
            let update = case.update.clone();
            let work = AuditWork::Choose { shape, update, set_up, random };
            self.jobs.push_back(GroupJob::audit(number, work));
        }
        Ok(())
    }

    /// An auditor's garbled circuit.
    pub(super) fn handle_audit_tables(
        &mut self,
        id: u64,
        tables: Vec<u8>,
    ) -> Result<(), ProxyRefusal> {
        self.connections.get_mut(&id).expect("checked").take_audit_reply(AuditReply::Tables)?;
        let Some(inquiry) = self.audits.inquiry(|it| it.connection == id) else { return Ok(()) };
        if let AuditInquiryStage::Chosen(evaluation) =
            std::mem::replace(&mut inquiry.stage, AuditInquiryStage::Working)
        {
            let work = AuditWork::Evaluate { evaluation, tables };
            self.jobs.push_back(GroupJob::audit(inquiry.number, work));
        }
        Ok(())
    }

    /// Handles the result of an inquiry's job.
    pub(super) fn handle_audited(
        &mut self,
        number: u64,
        result: Result<AuditProduct, UpdateAuditError>,
    ) {
        // The inquiry may have been abandoned.
        let Some(inquiry) = self.audits.inquiry(|it| it.number == number) else { return };
        let (connection, auditor) = (inquiry.connection, inquiry.auditor);
        match result {
            Ok(AuditProduct::Choices(evaluation, choices)) => {
                inquiry.stage = AuditInquiryStage::Chosen(evaluation);
                if let Some(asked) = self.connections.get_mut(&connection) {
                    asked.ask_audit(AuditReply::Tables);
                    self.send(connection, &ProxyToMember::AuditChoices(choices));
                }
            }
            Ok(AuditProduct::Verdict(is_right)) => {
                if let Some(case) = &mut self.audits.case {
                    case.inquiry = None;
                    if is_right {
                        case.acquittals += 1;
                    } else {
                        case.accusers.push(auditor);
                    }
                }
            }
            Err(_) => self.refuse(connection, ProxyRefusal::Engine),
        }
    }

    /// Begins and ends inquiries, and ends the case when it is decided.
    pub(super) fn advance_audit(&mut self) {
        let Some(case) = &mut self.audits.case else { return };
        let closed = self.rounds.closed();
        if let Some(inquiry) = &case.inquiry {
            let is_gone = !self.connections.contains_key(&inquiry.connection);
            let is_over = closed >= inquiry.since + INQUIRY_ROUNDS;
            if !is_gone && !is_over {
                return;
            }
            if !is_gone {
                let key = inquiry.auditor;
                self.events.push_back(MixGroupEvent::AuditorSilent { key, round: case.round });
            }
            case.inquiry = None;
        }
        // Auditors learn the participants of a round when they take part in the next one.
        if closed <= case.round {
            return;
        }
        let connections = &self.connections;
        let next = if case.is_decided() || closed >= case.round + CASE_ROUNDS {
            None
        } else {
            let can_audit =
                |(id, _): &(u64, _)| connections.get(id).is_some_and(GroupConnection::can_audit);
            std::iter::from_fn(|| case.auditors.pop()).find(can_audit)
        };
        match next {
            Some((connection, auditor)) => {
                self.audits.inquiries += 1;
                let (number, stage) = (self.audits.inquiries, AuditInquiryStage::Asked);
                let inquiry = AuditInquiry { number, connection, auditor, since: closed, stage };
                case.inquiry = Some(inquiry);
                let (round, subject) = (case.round, case.subject);
                let epoch = self.epoch.as_ref().map_or(0, AnnouncedEpoch::number);
                let asked = self.connections.get_mut(&connection).expect("it was found");
                asked.ask_audit(AuditReply::SetUp);
                self.send(connection, &ProxyToMember::Audit { epoch, round, subject });
            }
            None => self.end_case(),
        }
    }

    fn end_case(&mut self) {
        let Some(case) = self.audits.case.take() else { return };
        let AuditCase { key, round, accusers, acquittals, .. } = case;
        let counters = &mut self.counters;
        match accusers[..] {
            [one, other, ..] => {
                counters.audits_failed += 1;
                let is_left_out = !self.is_administrator(&key);
                self.events.push_back(MixGroupEvent::AuditFailed {
                    key,
                    round,
                    auditors: [one, other],
                    is_left_out,
                });
                if self.audits.found.iter().all(|it| it.key != key) {
                    self.audits.found.push(AuditFailedMember { key, round, is_left_out });
                    self.send_administrators(&ProxyToMember::AuditFailed { key, round });
                }
                if is_left_out && let Some(id) = self.connection_of(&key) {
                    self.refuse(id, ProxyRefusal::LeftOut);
                }
            }
            [accuser] => {
                counters.audits_disputed += 1;
                self.events.push_back(MixGroupEvent::AuditDisputed { key, round, accuser });
            }
            [] if acquittals > 0 => {
                counters.audits_passed += 1;
                self.events.push_back(MixGroupEvent::AuditPassed { key, round });
            }
            [] => {
                counters.audits_abandoned += 1;
                self.events.push_back(MixGroupEvent::AuditAbandoned { round });
            }
        }
    }
}
