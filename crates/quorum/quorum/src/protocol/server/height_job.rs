//! The job that applies a height of the log to a copy of the agreed state.

use bytes::Bytes;

use crate::protocol::group::QuorumGroup;
use crate::protocol::log_types::Height;
use crate::protocol::refresh::{
    LogEntry, LogEntryBody, LogEntryEffect, LogEntryRefusal, RefreshAgreement,
};
use crate::protocol::wire::{MalformedEncoding, Sha256Digest};

/// The entries of a height, and a copy of the agreed state before it.
pub(super) struct HeightTask {
    pub(super) number: u64,
    pub(super) height: Height,
    pub(super) agreement: Box<RefreshAgreement>,
    pub(super) entries: Vec<ParsedEntry>,
}

/// The agreed state after a height, and the effects of its entries.
pub(super) struct HeightOutcome {
    pub(super) number: u64,
    pub(super) height: Height,
    pub(super) agreement: Box<RefreshAgreement>,
    pub(super) effects: Vec<Result<AppliedEntry, IneffectiveEntry>>,
}

/// An entry as the log has it.
pub(super) struct ParsedEntry {
    pub(super) bytes: Bytes,
    pub(super) entry: Result<LogEntry, MalformedEncoding>,
}

/// An entry that has changed the agreed state.
pub(super) struct AppliedEntry {
    pub(super) bytes: Bytes,
    pub(super) entry: LogEntry,
    pub(super) effect: LogEntryEffect,
    /// The group whose approval it withdraws.
    pub(super) withdrawn: Option<Sha256Digest>,
}

/// Why an entry has no effect.
#[derive(Debug, thiserror::Error)]
pub(super) enum IneffectiveEntry {
    #[error(transparent)]
    Malformed(#[from] MalformedEncoding),
    #[error(transparent)]
    Refused(#[from] LogEntryRefusal),
}

impl ParsedEntry {
    pub(super) fn new(bytes: &Bytes) -> Self {
        Self { bytes: bytes.clone(), entry: LogEntry::parse(bytes) }
    }

    pub(super) fn is_costly(&self) -> bool {
        self.entry.as_ref().is_ok_and(LogEntry::is_costly)
    }

    fn apply(self, agreement: &mut RefreshAgreement) -> Result<AppliedEntry, IneffectiveEntry> {
        let Self { bytes, entry } = self;
        let entry = entry?;
        let is_withdrawal = matches!(entry.body, LogEntryBody::Withdraw { .. });
        let approved = agreement.approvals().get(&entry.author).filter(|_| is_withdrawal);
        let withdrawn = approved.map(QuorumGroup::digest);
        let effect = agreement.apply(&entry)?;
        Ok(AppliedEntry { bytes, entry, effect, withdrawn })
    }
}

/// Applies entries in their order. Those after the end of an epoch have no effect. Their authors
/// submit them again for the next epoch if they still matter.
pub(super) fn apply_all(
    agreement: &mut RefreshAgreement,
    entries: Vec<ParsedEntry>,
) -> Vec<Result<AppliedEntry, IneffectiveEntry>> {
    let mut effects = Vec::with_capacity(entries.len());
    for entry in entries {
        let applied = entry.apply(agreement);
        let is_final = applied.as_ref().is_ok_and(|it| it.effect == LogEntryEffect::Final);
        effects.push(applied);
        if is_final {
            break;
        }
    }
    effects
}

impl HeightTask {
    /// Applies the entries to the copy.
    pub(super) fn run(self) -> HeightOutcome {
        let Self { number, height, mut agreement, entries } = self;
        let effects = apply_all(&mut agreement, entries);
        HeightOutcome { number, height, agreement, effects }
    }
}
