//! The audits of a group: one update of a random participant each so many rounds, which another
//! participant checks, and if that one finds it wrong, others too, until two agree.
//!
//! An audit has a *case*, of one update, and *inquiries*, each of one auditor. Nothing of it delays
//! a round.

use std::sync::Arc;

use keys::IdentityPublicKey;

use super::MixGroup;
use super::connection::{AuditReply, GroupConnection};
use super::epoch::AnnouncedEpoch;
use super::job::{AuditProduct, AuditWork, GroupJob};
use super::status::{AuditFailedMember, MixGroupEvent};
use crate::audit::{AuditEvaluation, UpdateAuditError};
use crate::random::ForwardSecureRng;
use crate::slot_permutation::below;
use crate::wire::{ProxyRefusal, ProxyToMember};
use crate::{Mailbox, Participant};

/// In how many rounds an auditor has to answer.
const INQUIRY_ROUNDS: u64 = 8;
/// For how many rounds after that of its update new inquiries of a case begin. Members remember the
/// participants of longer.
const CASE_ROUNDS: u64 = 24;

pub(super) struct GroupAudits {
    /// How many rounds are between the updates that are audited; 0: there are none.
    every: u64,
    /// The first round whose updates may be audited.
    next: u64,
    sample: Option<AuditSample>,
    case: Option<AuditCase>,
    /// Members of the epoch that two auditors have found.
    found: Vec<AuditFailedMember>,
    inquiries: u64,
    random: ForwardSecureRng,
}

/// Of the open round: an update of one of its participants, each with the same probability.
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
    /// The connections of participants of the next round, who know those of this one. In random
    /// order, the next to be asked last.
    auditors: Vec<(u64, IdentityPublicKey)>,
    inquiry: Option<AuditInquiry>,
    /// Those for whom the update was wrong, and how many others there were.
    accusers: Vec<IdentityPublicKey>,
    acquittals: usize,
}

struct AuditInquiry {
    number: u64,
    connection: u64,
    auditor: IdentityPublicKey,
    /// The round that had been closed when it began.
    since: u64,
    stage: AuditInquiryStage,
}

enum AuditInquiryStage {
    /// The auditor was asked.
    Asked,
    /// The choices are being made, or the tables evaluated.
    Working,
    /// The auditor has the choices.
    Chosen(AuditEvaluation),
}

impl GroupAudits {
    /// Audits of an update in `every` rounds, the first after as many from `next_round` on; none if
    /// it is 0.
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

    /// A round has been closed. With one participant there is nobody whom it could disturb.
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

    /// The epoch has ended, and with it what was found in it.
    pub(super) fn begin_epoch(&mut self) {
        (self.sample, self.case) = (None, None);
        self.found.clear();
    }

    /// Members of the epoch that two auditors have found.
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
    /// Whether an auditor's answer was the last that the case needs.
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

    /// A job of an inquiry has been done.
    pub(super) fn handle_audited(
        &mut self,
        number: u64,
        result: Result<AuditProduct, UpdateAuditError>,
    ) {
        // It may have been abandoned.
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

    /// Begins and ends inquiries, and ends the case.
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
        // Auditors know the participants of the round when they have taken part in the next one.
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
                let is_left_out = key != self.settings.administrator;
                self.events.push_back(MixGroupEvent::AuditFailed {
                    key,
                    round,
                    auditors: [one, other],
                    is_left_out,
                });
                if self.audits.found.iter().all(|it| it.key != key) {
                    self.audits.found.push(AuditFailedMember { key, round, is_left_out });
                    self.send_administrator(&ProxyToMember::AuditFailed { key, round });
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
