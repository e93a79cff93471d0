//! A session with the other party, from the loading of the circuit to its last instance.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use circuit::CircuitSchedule;
use compute::predict::PredictedTraffic;
use compute::{
    ComputeAbortReason, ComputeProgress, ComputeProtocol, ComputeRole, ComputeSession,
    ComputeSettings, Error, PhaseFigures,
};
use console::CommandFailure;
use console::CommandProgress;
use console::signals;

use super::connection::{self, ComputeConnectOptions, PartyConnection};
use super::failed;
use super::loading::CircuitLoader;
use super::report::{ComputeCosts, ComputeTimings};

/// How long a party that a signal stops has to notify the other party.
const STOPPING: Duration = Duration::from_secs(3);

/// What a session begins with.
pub(super) struct ComputeSessionSetup<'a> {
    pub(super) connecting: &'a ComputeConnectOptions,
    pub(super) role: ComputeRole,
    pub(super) settings: ComputeSettings,
    /// What the other party's command has besides the address.
    pub(super) rest: &'a str,
    /// Whether to say which transport is used, and why.
    pub(super) explain: bool,
}

/// A session, and what has led to it.
pub(super) struct RunningComputation {
    pub(super) session: ComputeSession,
    pub(super) transport: &'static str,
    /// Why `auto` has chosen the transport, if this party let it.
    pub(super) reason: Option<String>,
    start: Instant,
    connected_at: Instant,
    connect: PhaseFigures,
    load: PhaseFigures,
}

impl ComputeSessionSetup<'_> {
    /// Meets the other party and starts the session, while the circuit is loaded. `traffic` is what
    /// the session exchanges, `check` whether the circuit is one for this party.
    ///
    /// # Errors
    /// If there is no connection, or no circuit: the other party is told.
    pub(super) fn open(
        &self,
        loading: &mut CircuitLoader,
        traffic: impl FnOnce(&CircuitSchedule) -> PredictedTraffic,
        check: impl FnOnce(&CircuitSchedule) -> Result<(), CommandFailure>,
    ) -> Result<RunningComputation, CommandFailure> {
        let exchange = if self.connecting.is_auto_choice() {
            Some(traffic(&loading.wait()?.schedule).exchange(self.role))
        } else {
            None
        };
        if self.connecting.load_first {
            loading.wait()?;
        }
        let PartyConnection { connection, connect } =
            connection::connect_parties(self.connecting, exchange, self.rest)?;
        let transport = connection.transport();
        let reason = connection.decision().map(|decision| decision.reason.clone());
        let begun = Instant::now();
        let session = ComputeSession::start(connection, self.role, self.settings);
        let session = session.map_err(|error| failed(&error))?;
        stop_on_signal(&session)?;
        if self.explain {
            let reason = reason.as_deref().unwrap_or(self.connecting.default_reason());
            console::note(&format!("{transport}: {reason}"));
        }
        let loaded = match loading.wait() {
            Ok(loaded) => loaded,
            Err(failure) => {
                session.give_up(ComputeAbortReason::Circuit);
                return Err(failure);
            }
        };
        if let Err(failure) = check(&loaded.schedule) {
            session.give_up(ComputeAbortReason::Input);
            return Err(failure);
        }
        let load = loaded.load;
        Ok(RunningComputation {
            session,
            transport,
            reason,
            start: loading.start,
            connected_at: begun,
            connect,
            load,
        })
    }
}

/// A signal stops the session, and the other party is notified. It ends the process even if the
/// process is not waiting for the session.
fn stop_on_signal(session: &ComputeSession) -> Result<(), CommandFailure> {
    let stopper = session.stopper();
    let stop = move || {
        stopper.stop();
        thread::sleep(STOPPING);
        console::error(&Error::Stopped.to_string());
    };
    let handled = signals::run_on_signal(stop);
    handled.map_err(|error| CommandFailure::Failed(format!("cannot handle signals: {error}")))
}

impl RunningComputation {
    /// Ends the session, after its last instance.
    ///
    /// # Errors
    /// If what was sent last does not arrive.
    pub(super) fn finish(self, protocol: ComputeProtocol) -> Result<ComputeCosts, CommandFailure> {
        let figures = self.session.figures();
        self.session.finish().map_err(|error| failed(&error))?;
        let timings = ComputeTimings {
            total: self.start.elapsed(),
            run: self.connected_at.elapsed(),
            connect: self.connect,
            load: self.load,
        };
        Ok(ComputeCosts::new(&timings, &figures, protocol))
    }

    /// Shows on a terminal how many of these ANDs are done, until it is dropped.
    pub(super) fn show(&self, ands: u64) -> ProgressThread {
        ProgressThread::start(self.session.watch(), ands)
    }
}

/// A thread that shows the progress of a session on a terminal.
pub(super) struct ProgressThread {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ProgressThread {
    fn start(watch: ComputeProgress, total: u64) -> Self {
        let (stop, stopped) = channel();
        let show = move || {
            let progress = CommandProgress::steps(total);
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

impl Drop for ProgressThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
