//! Writes to the state folder: the client's state, the contacts and the offered files. What could
//! not be written is written again until that succeeds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use super::super::contacts;
use super::super::event::ChatEvent;
use super::super::output::{ChatOutputResult, FILE};
use super::super::shared_file;
use super::{ChatDriver, LAST_STATE_TIMEOUT};

/// The interval between attempts to write what could not be written.
const WRITE_AGAIN: Duration = Duration::from_secs(1);

/// The answer to a command, which is reported when what it depends on is written.
pub(super) struct ChatAnswer {
    pub(super) event: ChatEvent,
    /// Whether it depends on the contacts or the offered files, and not only on the state.
    pub(super) needs_files: bool,
}

/// What of the state folder is being written, and what could not be written.
#[derive(Default)]
pub(super) struct StateWrites {
    /// The number of queued writes of contacts and offered files.
    queued: usize,
    /// The files whose last write failed, and why.
    failed: BTreeMap<&'static str, String>,
    /// When to write these again.
    again_at: Option<Duration>,
}

impl StateWrites {
    /// Whether the contacts and the offered files are on the disk as they are.
    pub(super) fn has_files(&self) -> bool {
        self.queued == 0 && self.files_failure().is_none()
    }

    /// Why the contacts or the offered files could not be written.
    fn files_failure(&self) -> Option<&String> {
        self.failed.iter().find_map(|(name, why)| (*name != FILE).then_some(why))
    }

    /// Whether the last write of the state failed.
    pub(super) fn has_state_failed(&self) -> bool {
        self.failed.contains_key(FILE)
    }

    /// When to call [`Self::poll`] next.
    pub(super) fn again_at(&self) -> Option<Duration> {
        self.again_at
    }

    /// Whether to write now what could not be written.
    pub(super) fn poll(&mut self, now: Duration) -> bool {
        let is_due = self.again_at.is_some_and(|at| at <= now);
        if is_due {
            // This holds even if the write takes long, because there is nothing else to do.
            self.again_at = Some(now + WRITE_AGAIN);
        }
        is_due
    }

    /// A file is written. Returns whether nothing is left that could not be written.
    fn handle_written(&mut self, name: &str) -> bool {
        let is_over = self.failed.remove(name).is_some() && self.failed.is_empty();
        if is_over {
            self.again_at = None;
        }
        is_over
    }

    /// A file could not be written. Returns whether it could before.
    fn handle_failed(&mut self, name: &'static str, why: String, now: Duration) -> bool {
        self.again_at = Some(now + WRITE_AGAIN);
        self.failed.insert(name, why).is_none()
    }
}

impl ChatDriver {
    /// Writes the contacts.
    pub(super) fn write_contacts(&mut self) {
        self.write_file(contacts::FILE, self.contacts.encode());
    }

    /// Writes the offered files.
    pub(super) fn write_offers(&mut self) {
        self.write_file(shared_file::FILE, self.offers.encode());
    }

    fn write_file(&mut self, name: &'static str, content: Zeroizing<Vec<u8>>) {
        self.writes.queued += 1;
        self.output.store_file(name, content);
    }

    /// Writes those of the contacts and the offered files again that could not be written.
    pub(super) fn write_files_again(&mut self) {
        if self.writes.queued > 0 {
            return;
        }
        if self.writes.failed.contains_key(contacts::FILE) {
            self.write_contacts();
        }
        if self.writes.failed.contains_key(shared_file::FILE) {
            self.write_offers();
        }
    }

    /// The client's state is written.
    pub(super) fn handle_state_written(&mut self) {
        self.client.handle_stored();
        self.handle_written(FILE);
    }

    /// The contacts or the offered files are written, unless they could not be for a reason.
    pub(super) fn handle_file_done(&mut self, name: &'static str, failure: Option<String>) {
        self.writes.queued -= 1;
        let Some(why) = failure else { return self.handle_written(name) };
        let text = format!("{why}: until it can be written again, no message is shown");
        if self.writes.handle_failed(name, why, self.now()) {
            self.output.report(ChatEvent::Warning(text));
        }
    }

    /// The client's state could not be written.
    pub(super) fn handle_state_not_written(&mut self, why: String) {
        self.client.handle_not_stored();
        let text =
            format!("{why}: until it can be written again, no message is sent, shown or accepted");
        if self.writes.handle_failed(FILE, why, self.now()) {
            self.output.report(ChatEvent::Warning(text));
        }
    }

    fn handle_written(&mut self, name: &str) {
        if self.writes.handle_written(name) {
            self.output.report(ChatEvent::Note("the state can be written again".into()));
        }
    }

    /// Whether what the next answer to a command depends on is written.
    pub(super) fn is_answer_due(&self) -> bool {
        let Some(ChatAnswer { needs_files, .. }) = self.answers.front() else { return false };
        self.client.is_stored() && (self.writes.has_files() || !needs_files)
    }

    /// Reports the next answer to a command.
    pub(super) fn answer(&mut self) {
        if let Some(ChatAnswer { event, .. }) = self.answers.pop_front() {
            self.output.report(event);
        }
    }

    /// Waits for a limited time until the event that is being shown was shown, the state is stored
    /// without it, the contacts and the offered files are written, and the dependent events are
    /// reported.
    pub(super) fn wait_until_stored(&mut self) {
        let end = Instant::now() + LAST_STATE_TIMEOUT;
        self.write_files_again();
        let why = loop {
            self.client.store_without_shown();
            if let Some(state) = self.client.poll_store() {
                self.output.store(state);
            }
            let is_written = self.client.is_stored() && self.writes.queued == 0;
            if is_written && self.output.has_reported_all() {
                break None;
            }
            match self.output.wait(end) {
                Some(ChatOutputResult::NotStored(why)) => break Some(why),
                Some(done) => self.handle_done(done),
                // The terminal does not take the event, which is shown again after a restart.
                None if is_written => break None,
                None => break Some("the disk does not answer".into()),
            }
        };
        let of_files = self.writes.files_failure();
        for ChatAnswer { event, needs_files } in self.answers.drain(..) {
            self.output.report(match why.as_ref().or(of_files.filter(|_| needs_files)) {
                Some(why) => event.not_stored(why),
                None => event,
            });
        }
        if let Some(why) = why.as_ref().or(of_files) {
            self.why.get_or_insert_with(|| why.clone());
        }
    }
}
