//! The thread in which a session writes to disk and reports events, in order. The client must not
//! wait for a disk, a terminal or a full pipe: the proxy would see such delays in the timing of
//! requests.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use keys::sealed::SealedKey;
use random::RandomGenerator;
use zeroize::Zeroizing;

use super::super::state::{StateFileError, StateFolder};
use super::event::ChatEvent;
use super::history::{ChatHistory, ChatHistoryEntry};
use super::shared_file::SharedFile;

/// The file of the client's state.
pub(super) const FILE: &str = "state";

const ENDED: &str = "the thread that writes has ended";

enum ChatOutputTask {
    State(Zeroizing<Vec<u8>>),
    File(&'static str, Zeroizing<Vec<u8>>),
    Save(u32, SharedFile),
    Entry(ChatHistoryEntry),
    Report(ChatEvent),
    Show(ChatEvent),
}

/// The result of a task.
pub(super) enum ChatOutputResult {
    /// A state is on the disk.
    Stored,
    /// A state was not written, for this reason, in one line. The previous state is on the disk.
    NotStored(String),
    /// A write of contacts or offered files, the file with this name, is over. If it failed, with
    /// the reason in one line; the previous content is then on the disk.
    FileDone(&'static str, Option<String>),
    /// An entry of the history was not written, for this reason.
    NotRemembered(String),
    /// The file with this number was saved.
    Saved(u32, PathBuf),
    /// The file with this number was not saved, for this reason.
    NotSaved(u32, String),
    /// An event of the session was reported.
    Reported,
    /// An event of the client was reported.
    Shown,
    /// An event was not reported, for this reason. No other event will be reported.
    Closed(String),
}

/// A handle to the thread. Its queue needs no bound: the session adds one state at a time, events
/// only after the previous ones were reported, and entries only of messages that the client has
/// accepted.
pub(super) struct ChatOutput {
    work: Sender<ChatOutputTask>,
    done: Receiver<ChatOutputResult>,
    thread: JoinHandle<()>,
    /// The number of events that were not reported yet.
    pending_events: usize,
    /// Whether events are still reported.
    is_open: bool,
}

/// The state of the thread.
pub(super) struct ChatOutputWriter<F> {
    pub(super) folder: StateFolder,
    /// The directory for files that were received.
    pub(super) files: PathBuf,
    pub(super) key: SealedKey,
    pub(super) history: Option<ChatHistory>,
    /// Whether events are no longer reported.
    pub(super) is_closed: bool,
    /// Called with each event until it fails, and then only with the end of the chat.
    pub(super) report: F,
}

impl ChatOutput {
    /// Starts the thread. It calls `wake` when [`ChatOutput::poll_done`] has something.
    ///
    /// # Errors
    /// If the system cannot create a thread.
    pub(super) fn start(
        mut writer: ChatOutputWriter<impl FnMut(ChatEvent) -> Result<(), String> + Send + 'static>,
        wake: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let (work, waiting) = channel();
        let (report, done) = channel();
        let builder = thread::Builder::new().name("mix-output".into());
        let thread = builder.spawn(move || {
            for work in waiting {
                let Some(done) = writer.run(work) else { continue };
                // If the session has ended, nobody needs the result.
                let _ = report.send(done);
                wake();
            }
        })?;
        Ok(Self { work, done, thread, pending_events: 0, is_open: true })
    }

    /// Replaces the stored state.
    pub(super) fn store(&self, state: Zeroizing<Vec<u8>>) {
        self.send(ChatOutputTask::State(state));
    }

    /// Replaces another file of the state.
    pub(super) fn store_file(&self, name: &'static str, content: Zeroizing<Vec<u8>>) {
        self.send(ChatOutputTask::File(name, content));
    }

    /// Saves a file that was received.
    pub(super) fn save(&self, number: u32, file: SharedFile) {
        self.send(ChatOutputTask::Save(number, file));
    }

    /// Adds an entry to the history, if there is one.
    pub(super) fn remember(&self, entry: ChatHistoryEntry) {
        self.send(ChatOutputTask::Entry(entry));
    }

    /// Reports an event, after the earlier tasks.
    pub(super) fn report(&mut self, event: ChatEvent) {
        if self.is_open || event.is_end() {
            self.pending_events += 1;
            self.send(ChatOutputTask::Report(event));
        }
    }

    /// Reports an event of the client. Only if [`ChatOutput::is_idle`].
    pub(super) fn show(&mut self, event: ChatEvent) {
        self.pending_events += 1;
        self.send(ChatOutputTask::Show(event));
    }

    /// Whether no event waits to be reported.
    pub(super) fn has_reported_all(&self) -> bool {
        self.pending_events == 0
    }

    /// Whether all events were reported, and others can be.
    pub(super) fn is_idle(&self) -> bool {
        self.is_open && self.has_reported_all()
    }

    /// The next result, if there is one.
    pub(super) fn poll_done(&mut self) -> Option<ChatOutputResult> {
        let done = match self.done.try_recv() {
            Ok(done) => done,
            Err(TryRecvError::Disconnected) if self.is_open => {
                ChatOutputResult::Closed(ENDED.into())
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => return None,
        };
        Some(self.count(done))
    }

    /// Waits for the next result, at most until this time.
    pub(super) fn wait(&mut self, until: Instant) -> Option<ChatOutputResult> {
        let done = match self.done.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(done) => done,
            Err(RecvTimeoutError::Timeout) => return None,
            Err(RecvTimeoutError::Disconnected) => ChatOutputResult::NotStored(ENDED.into()),
        };
        Some(self.count(done))
    }

    /// Waits until everything is written and reported, or until there was no progress for `limit`.
    pub(super) fn finish(mut self, limit: Duration) {
        let (none, _) = channel();
        drop(std::mem::replace(&mut self.work, none));
        while !self.thread.is_finished() && self.wait(Instant::now() + limit).is_some() {}
    }

    fn count(&mut self, done: ChatOutputResult) -> ChatOutputResult {
        match done {
            ChatOutputResult::Reported | ChatOutputResult::Shown => self.pending_events -= 1,
            ChatOutputResult::Closed(_) => (self.pending_events, self.is_open) = (0, false),
            _ => {}
        }
        done
    }

    fn send(&self, work: ChatOutputTask) {
        // If the thread has ended, `poll_done` reports it.
        let _ = self.work.send(work);
    }
}

impl<F: FnMut(ChatEvent) -> Result<(), String>> ChatOutputWriter<F> {
    fn run(&mut self, work: ChatOutputTask) -> Option<ChatOutputResult> {
        match work {
            ChatOutputTask::Report(event) => self.report(event, ChatOutputResult::Reported),
            ChatOutputTask::Show(event) => self.report(event, ChatOutputResult::Shown),
            ChatOutputTask::File(name, content) => {
                let stored = self.store(name, &content);
                Some(ChatOutputResult::FileDone(name, stored.err().map(|why| why.to_string())))
            }
            ChatOutputTask::Save(number, file) => Some(match file.save(&self.files) {
                Ok(path) => ChatOutputResult::Saved(number, path),
                Err(error) => {
                    let folder = self.files.display();
                    let why = format!("not saved in {folder}: {error}");
                    ChatOutputResult::NotSaved(number, why)
                }
            }),
            ChatOutputTask::State(state) => {
                let stored = self.store(FILE, &state);
                Some(stored.map_or_else(
                    |why| ChatOutputResult::NotStored(why.to_string()),
                    |()| ChatOutputResult::Stored,
                ))
            }
            // A message that was not shown is added to the history when it is shown.
            ChatOutputTask::Entry(entry) if self.is_closed && !entry.is_own => None,
            ChatOutputTask::Entry(entry) => {
                let added = self.history.as_mut()?.add(&entry);
                added.err().map(|why| ChatOutputResult::NotRemembered(why.to_string()))
            }
        }
    }

    /// Seals a file of the state, and replaces it.
    fn store(&mut self, name: &str, content: &[u8]) -> Result<(), StateFileError> {
        let sealed = self.key.seal(name.as_bytes(), content, &mut RandomGenerator::system())?;
        self.folder.replace(name, &sealed)
    }

    fn report(&mut self, event: ChatEvent, done: ChatOutputResult) -> Option<ChatOutputResult> {
        if self.is_closed && !event.is_end() {
            return None;
        }
        let reported = (self.report)(event);
        self.is_closed = reported.is_err();
        Some(reported.map_or_else(ChatOutputResult::Closed, |()| done))
    }
}
