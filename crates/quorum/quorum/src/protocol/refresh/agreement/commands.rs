//! The commands of a replicated service in the agreed state: how many bytes of the log each server
//! may still use, and which batch is its next one.

use std::collections::BTreeMap;

use keys::IdentitySecretKey;

use super::{LogEntryRefusal, RefreshAgreement};
use crate::protocol::combination::ServerIndex;
use crate::protocol::refresh::entry::{LogEntry, LogEntryBody};
use crate::protocol::wire::Sha256Digest;

/// The largest number of bytes of one server's batches of commands in a segment of the log. Each
/// batch counts as [`BATCH_COST`] bytes more than its length.
pub(crate) const MAX_COMMAND_BYTES: usize = 16 << 20;
const BATCH_COST: usize = 192;

/// The batches of commands of one server in the current segment of the log.
#[derive(Clone, Copy, Default)]
pub(super) struct CommandUsage {
    /// The number of its next batch.
    next: u32,
    bytes: usize,
}

impl CommandUsage {
    /// The usage after a batch, unless that is too much.
    pub(super) fn with(self, batch: &LogEntry) -> Option<Self> {
        let bytes = self.bytes + batch.len() + BATCH_COST;
        (bytes <= MAX_COMMAND_BYTES).then_some(Self { next: self.next + 1, bytes })
    }
}

impl RefreshAgreement {
    /// The same state, in a group with a replicated service if `is_on`. All servers of the group
    /// must agree on this.
    pub(crate) fn with_commands(self, is_on: bool) -> Self {
        let is_on = is_on && !self.is_founding();
        Self { commands: is_on.then(BTreeMap::new), ..self }
    }

    /// The entry with a server's next batch of commands. `None` if its part of this segment is
    /// full, or the group has no service.
    pub(crate) fn command_entry(
        &self,
        server: ServerIndex,
        requests: Vec<Vec<u8>>,
        identity: &IdentitySecretKey,
    ) -> Option<LogEntry> {
        let usage = self.commands.as_ref()?.get(&server).copied().unwrap_or_default();
        let body = LogEntryBody::Command { segment: self.segment, number: usage.next, requests };
        let entry = LogEntry::new(server, body, identity);
        usage.with(&entry).map(|_| entry)
    }

    /// How many of [`MAX_COMMAND_BYTES`] the commands of a server have used in this segment.
    pub(crate) fn command_bytes(&self, server: ServerIndex) -> usize {
        let usage = self.commands.as_ref().and_then(|usage| usage.get(&server));
        usage.map_or(0, |usage| usage.bytes)
    }

    /// Whether this entry is a server's next batch of commands.
    pub(crate) fn is_next_command(&self, entry: &LogEntry) -> bool {
        let usage = self.commands.as_ref().map(|it| it.get(&entry.author).copied());
        let next = usage.map(|usage| usage.unwrap_or_default().next);
        matches!(&entry.body, LogEntryBody::Command { segment, number, .. }
            if *segment == self.segment && Some(*number) == next)
    }

    /// Whether an entry with this number is the next batch of commands of its author.
    pub(super) fn is_next_batch(
        &self,
        entry: &LogEntry,
        segment: &Sha256Digest,
        number: u32,
    ) -> Result<bool, LogEntryRefusal> {
        let commands = self.commands.as_ref().ok_or(LogEntryRefusal::NoService)?;
        if *segment != self.segment {
            return Err(LogEntryRefusal::OtherRun);
        }
        let usage = commands.get(&entry.author).copied().unwrap_or_default();
        if number > usage.next {
            return Err(LogEntryRefusal::Early);
        }
        if usage.with(entry).is_none() {
            return Err(LogEntryRefusal::CommandsFull);
        }
        Ok(number == usage.next)
    }
}
