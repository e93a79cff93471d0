//! A session with the other party, from the loading of the circuit to its last instance.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use circuit::Schedule;
use compute::predict::Traffic;
use compute::{Error, PhaseFigures, Protocol, Reason, Role, Session, Settings, Watch};

use super::connection::{self, Connecting, Met};
use super::dry_run;
use super::failed;
use super::loading::Loading;
use super::report::{Costs, Timings};
use crate::console;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::signals;

/// How long a party that a signal stops has to tell the other one.
const STOPPING: Duration = Duration::from_secs(3);

/// What a session begins with.
pub(super) struct Start<'a> {
    pub(super) connecting: &'a Connecting,
    pub(super) role: Role,
    pub(super) settings: Settings,
    /// What the other party's command has besides the address.
    pub(super) rest: &'a str,
    /// Whether to say which transport is used, and why.
    pub(super) explain: bool,
}

/// A session, and what has led to it.
pub(super) struct Running {
    pub(super) session: Session,
    pub(super) transport: &'static str,
    start: Instant,
    begun: Instant,
    connect: PhaseFigures,
    load: PhaseFigures,
}

impl Start<'_> {
    /// Meets the other party and starts the session, while the circuit is loaded. `traffic` is what
    /// the session exchanges, `check` whether the circuit is one for this party.
    ///
    /// # Errors
    /// If there is no connection, or no circuit: the other party is told.
    pub(super) fn open(
        &self,
        loading: &mut Loading,
        traffic: impl FnOnce(&Schedule) -> Traffic,
        check: impl FnOnce(&Schedule) -> Result<(), Failure>,
    ) -> Result<Running, Failure> {
        let exchange = if self.connecting.chooses() {
            Some(dry_run::exchange(traffic(&loading.wait()?.schedule), self.role))
        } else {
            None
        };
        if self.connecting.load_first {
            loading.wait()?;
        }
        let Met { connection, connect } = connection::meet(self.connecting, exchange, self.rest)?;
        let transport = connection.transport();
        let reason = connection.decision().map(|decision| decision.reason.clone());
        let begun = Instant::now();
        let session = Session::start(connection, self.role, self.settings);
        let session = session.map_err(|error| failed(&error))?;
        stop_on_signal(&session)?;
        if self.explain {
            let reason = reason.as_deref().unwrap_or(self.connecting.default_reason());
            console::note(&format!("{transport}: {reason}"));
        }
        let loaded = match loading.wait() {
            Ok(loaded) => loaded,
            Err(failure) => {
                session.give_up(Reason::Circuit);
                return Err(failure);
            }
        };
        if let Err(failure) = check(&loaded.schedule) {
            session.give_up(Reason::Input);
            return Err(failure);
        }
        let load = loaded.load;
        Ok(Running { session, transport, start: loading.start, begun, connect, load })
    }
}

/// A signal stops the session: the other party is told. It ends the process also if that is not
/// waiting for the session.
fn stop_on_signal(session: &Session) -> Result<(), Failure> {
    let stopper = session.stopper();
    let stop = move || {
        stopper.stop();
        thread::sleep(STOPPING);
        console::error(&Error::Stopped.to_string());
    };
    let handled = signals::before_end(stop);
    handled.map_err(|error| Failure::Failed(format!("cannot handle signals: {error}")))
}

impl Running {
    /// Ends the session, after its last instance.
    ///
    /// # Errors
    /// If what was sent last does not arrive.
    pub(super) fn finish(self, protocol: Protocol) -> Result<Costs, Failure> {
        let figures = self.session.figures();
        self.session.finish().map_err(|error| failed(&error))?;
        let timings = Timings {
            total: self.start.elapsed(),
            run: self.begun.elapsed(),
            connect: self.connect,
            load: self.load,
        };
        Ok(Costs::new(&timings, &figures, protocol))
    }

    /// Shows on a terminal how many of these ANDs are done, until it is dropped.
    pub(super) fn show(&self, ands: u64) -> Showing {
        Showing::start(self.session.watch(), ands)
    }
}

/// A thread that shows the progress of a session on a terminal.
pub(super) struct Showing {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Showing {
    fn start(watch: Watch, total: u64) -> Self {
        let (stop, stopped) = channel();
        let show = move || {
            let progress = Progress::steps(total);
            let mut shown = 0;
            while stopped.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout)
            {
                let now = watch.ands();
                progress.advance(usize::try_from(now - shown).unwrap_or(0));
                progress.doing(if now == 0 { "waiting for the other party" } else { "ANDs" });
                shown = now;
            }
        };
        // Without a thread nothing is shown.
        let thread = thread::Builder::new().name("progress".into()).spawn(show).ok();
        Self { stop: Some(stop), thread }
    }
}

impl Drop for Showing {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
