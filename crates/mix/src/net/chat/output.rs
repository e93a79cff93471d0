//! What a session writes to disk and tells, in order, in a thread of its own: the client does not
//! wait for a disk, a terminal or a full pipe, whose delays the proxy would see in the times of
//! requests.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use super::super::state::{StateFolder, StateKey};
use super::event::Event;
use super::history::{History, Said};

/// The file of the client's state.
pub(super) const FILE: &str = "state";

const ENDED: &str = "the thread that writes has ended";

enum Work {
    State(Zeroizing<Vec<u8>>),
    Entry(Said),
    Tell(Event),
    Show(Event),
}

/// What has been done.
pub(super) enum Done {
    /// A state is on the disk.
    Stored,
    /// A state was not written, for this reason, in one line. The one before is on the disk.
    NotStored(String),
    /// Entries of the history are not written, for this reason.
    NotRemembered(String),
    /// An event was told.
    Told,
    /// An event of the client was told.
    Shown,
    /// An event was not told, for this reason, and no other will be.
    Closed(String),
}

/// The thread. Its queue needs no bound: the session adds one state at a time, events only after
/// those before were told, and entries only of messages that the client has taken.
pub(super) struct Output {
    work: Sender<Work>,
    done: Receiver<Done>,
    thread: JoinHandle<()>,
    /// Events that were not told yet.
    untold: usize,
    /// Whether events are told.
    is_open: bool,
}

/// What the thread works with.
pub(super) struct Writer<F> {
    pub(super) folder: StateFolder,
    pub(super) key: StateKey,
    pub(super) history: Option<History>,
    /// Whether nothing is told any more.
    pub(super) is_closed: bool,
    /// Called with what happens, until it fails; then with the end only.
    pub(super) tell: F,
}

impl Output {
    /// Starts the thread. It calls `wake` when [`Output::poll_done`] has something.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(super) fn start(
        mut writer: Writer<impl FnMut(Event) -> Result<(), String> + Send + 'static>,
        wake: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let (work, waiting) = channel();
        let (report, done) = channel();
        let builder = thread::Builder::new().name("mix-output".into());
        let thread = builder.spawn(move || {
            for work in waiting {
                let Some(done) = writer.run(work) else { continue };
                // Without the session nobody waits for it.
                let _ = report.send(done);
                wake();
            }
        })?;
        Ok(Self { work, done, thread, untold: 0, is_open: true })
    }

    /// Replaces the stored state.
    pub(super) fn store(&self, state: Zeroizing<Vec<u8>>) {
        self.send(Work::State(state));
    }

    /// Adds an entry to the history, if there is one.
    pub(super) fn remember(&self, said: Said) {
        self.send(Work::Entry(said));
    }

    /// Tells an event, after what was asked for before.
    pub(super) fn tell(&mut self, event: Event) {
        if self.is_open || event.is_end() {
            self.untold += 1;
            self.send(Work::Tell(event));
        }
    }

    /// Tells an event of the client, if [`Output::has_told`].
    pub(super) fn show(&mut self, event: Event) {
        self.untold += 1;
        self.send(Work::Show(event));
    }

    /// Whether all events were told, and others can be.
    pub(super) fn has_told(&self) -> bool {
        self.is_open && self.untold == 0
    }

    /// What has been done, if there is something new.
    pub(super) fn poll_done(&mut self) -> Option<Done> {
        let done = match self.done.try_recv() {
            Ok(done) => done,
            Err(TryRecvError::Disconnected) if self.is_open => Done::Closed(ENDED.into()),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => return None,
        };
        Some(self.count(done))
    }

    /// Waits until something has been done; until then at most.
    pub(super) fn wait(&mut self, until: Instant) -> Option<Done> {
        let done = match self.done.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(done) => done,
            Err(RecvTimeoutError::Timeout) => return None,
            Err(RecvTimeoutError::Disconnected) => Done::NotStored(ENDED.into()),
        };
        Some(self.count(done))
    }

    /// Waits until all is written and told, or until nothing was for this time.
    pub(super) fn finish(mut self, limit: Duration) {
        let (none, _) = channel();
        drop(std::mem::replace(&mut self.work, none));
        while !self.thread.is_finished() && self.wait(Instant::now() + limit).is_some() {}
    }

    fn count(&mut self, done: Done) -> Done {
        match done {
            Done::Told | Done::Shown => self.untold -= 1,
            Done::Closed(_) => (self.untold, self.is_open) = (0, false),
            _ => {}
        }
        done
    }

    fn send(&self, work: Work) {
        // If the thread has ended, `poll_done` says so.
        let _ = self.work.send(work);
    }
}

impl<F: FnMut(Event) -> Result<(), String>> Writer<F> {
    fn run(&mut self, work: Work) -> Option<Done> {
        match work {
            Work::Tell(event) => self.tell(event, Done::Told),
            Work::Show(event) => self.tell(event, Done::Shown),
            Work::State(state) => {
                let sealed = self.key.seal(FILE, &state);
                let stored = sealed.and_then(|sealed| self.folder.replace(FILE, &sealed));
                Some(stored.map_or_else(|why| Done::NotStored(why.to_string()), |()| Done::Stored))
            }
            // What was not shown is in the history when it was.
            Work::Entry(said) if self.is_closed && !said.is_own => None,
            Work::Entry(said) => {
                let added = self.history.as_mut()?.add(&said);
                added.err().map(|why| Done::NotRemembered(why.to_string()))
            }
        }
    }

    fn tell(&mut self, event: Event, done: Done) -> Option<Done> {
        if self.is_closed && !event.is_end() {
            return None;
        }
        let told = (self.tell)(event);
        self.is_closed = told.is_err();
        Some(told.map_or_else(Done::Closed, |()| done))
    }
}
