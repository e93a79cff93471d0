//! Which servers agree on the log after entries that are not applied yet.

use bytes::Bytes;

use super::{LogEntryEffect, RefreshAgreement, RefreshRun};
use crate::protocol::log_types::ServerSet;
use crate::protocol::refresh::entry::{LogEntry, LogEntryBody};

impl RefreshAgreement {
    /// The servers that agree on the log after these entries. This changes nothing.
    pub(super) fn servers_after(&self, entries: &[Bytes]) -> ServerSet {
        let changes = |entry: &LogEntry| {
            matches!(
                entry.body,
                LogEntryBody::Voting { .. }
                    | LogEntryBody::Computed { .. }
                    // A Confirm, which may be the last one.
                    | LogEntryBody::Handover { time: Some(_), .. }
            )
        };
        let entries: Vec<LogEntry> =
            entries.iter().filter_map(|entry| LogEntry::parse(entry).ok()).collect();
        if !entries.iter().any(changes) {
            return self.servers();
        }
        let mut after = self.clone();
        for entry in &entries {
            if after.apply(entry) == Ok(LogEntryEffect::Final) {
                break;
            }
        }
        after.servers()
    }

    fn servers(&self) -> ServerSet {
        match self.run.as_ref().and_then(RefreshRun::next_epoch) {
            Some(next) => next.group.voters(&next.voting),
            None => self.epoch.group.voters(&self.voting),
        }
    }
}
