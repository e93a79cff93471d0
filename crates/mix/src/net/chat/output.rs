//! What a session writes to disk and tells, in order, in a thread of its own: the client does not
//! wait for a disk, a terminal or a full pipe, whose delays the proxy would see in the times of
//! requests.

use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};

use zeroize::Zeroizing;

use super::super::state::{StateFolder, StateKey};
use super::event::Event;
use super::history::{History, Said};

/// The file of the client's state.
pub(super) const FILE: &str = "state";

enum Work {
    State(Zeroizing<Vec<u8>>),
    Entry(Said),
    Tell(Event),
}

/// What has been done.
pub(super) enum Done {
    /// A state is on the disk.
    Stored,
    /// An event was told.
    Told,
    /// A state or an entry was not written, for this reason, in one line. Nothing is written after
    /// it.
    Failed(String),
}

/// The thread. Its queue needs no bound: the session adds one state at a time, events only after
/// those before were told, and entries only of messages that the client has taken.
pub(super) struct Output {
    work: Sender<Work>,
    done: Receiver<Done>,
    thread: JoinHandle<()>,
    /// Events that were not told yet.
    untold: usize,
}

/// What the thread works with.
pub(super) struct Writer<F> {
    pub(super) folder: StateFolder,
    pub(super) key: StateKey,
    pub(super) history: Option<History>,
    /// Called with what happens.
    pub(super) tell: F,
}

impl Output {
    /// Starts the thread. It calls `wake` when [`Output::poll_done`] has something.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(super) fn start(
        mut writer: Writer<impl FnMut(Event) + Send + 'static>,
        wake: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let (work, waiting) = channel();
        let (report, done) = channel();
        let builder = thread::Builder::new().name("mix-output".into());
        let thread = builder.spawn(move || {
            let mut has_failed = false;
            for work in waiting {
                let Some(done) = writer.run(work, &mut has_failed) else { continue };
                // Without the session nobody waits for it.
                let _ = report.send(done);
                wake();
            }
        })?;
        Ok(Self { work, done, thread, untold: 0 })
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
        self.untold += 1;
        self.send(Work::Tell(event));
    }

    /// Whether all events were told.
    pub(super) fn has_told(&self) -> bool {
        self.untold == 0
    }

    /// What has been done, if there is something new.
    pub(super) fn poll_done(&mut self) -> Option<Done> {
        let done = match self.done.try_recv() {
            Ok(done) => done,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Done::Failed("the output has ended".into()),
        };
        Some(self.count(done))
    }

    /// Waits until something has been done.
    pub(super) fn wait(&mut self) -> Done {
        let done = self.done.recv();
        self.count(done.unwrap_or_else(|_| Done::Failed("the output has ended".into())))
    }

    /// Waits until all is written and told.
    pub(super) fn finish(self) {
        drop(self.work);
        let _ = self.thread.join();
    }

    fn count(&mut self, done: Done) -> Done {
        self.untold -= usize::from(matches!(done, Done::Told));
        done
    }

    fn send(&self, work: Work) {
        // If the thread has ended, `poll_done` says so.
        let _ = self.work.send(work);
    }
}

impl<F: FnMut(Event)> Writer<F> {
    fn run(&mut self, work: Work, has_failed: &mut bool) -> Option<Done> {
        let written = match work {
            Work::Tell(event) => {
                (self.tell)(event);
                return Some(Done::Told);
            }
            _ if *has_failed => return None,
            Work::State(state) => {
                let sealed = self.key.seal(FILE, &state);
                let stored = sealed.and_then(|sealed| self.folder.replace(FILE, &sealed));
                stored.map(|()| Some(Done::Stored)).map_err(|error| error.to_string())
            }
            Work::Entry(said) => {
                let added = self.history.as_mut().map_or(Ok(()), |history| history.add(&said));
                added.map(|()| None).map_err(|error| error.to_string())
            }
        };
        *has_failed = written.is_err();
        written.unwrap_or_else(|why| Some(Done::Failed(why)))
    }
}
