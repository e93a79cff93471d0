//! A session with the other party, from the loading of the circuit to its last instance.

use std::thread;
use std::time::{Duration, Instant, SystemTime};

use circuit::CircuitSchedule;
use compute::predict::PredictedTraffic;
use compute::{
    ComputeAbortReason, ComputeProtocol, ComputeRole, ComputeSession, ComputeSettings, Error,
    PhaseFigures,
};
use console::CommandFailure;
use console::CommandProgress;
use console::signals;
use keys::IdentityPublicKey;

use super::connection::{self, ComputeConnectOptions, PartyConnection};
use super::failed;
use super::loading::CircuitLoader;
use super::phases::PhaseFileOptions;
use super::polling::PollingThread;
use super::report::{ComputeCosts, ComputeTimings};

/// How long a party that a signal stops has to notify the other party.
const STOPPING: Duration = Duration::from_secs(3);

/// How often the progress on a terminal changes.
const SHOWING: Duration = Duration::from_millis(100);

/// What a session begins with.
pub(super) struct ComputeSessionSetup<'a> {
    pub(super) connecting: &'a ComputeConnectOptions,
    pub(super) role: ComputeRole,
    pub(super) settings: ComputeSettings,
    /// What the other party's command has besides the address.
    pub(super) rest: &'a str,
    /// Whether to say which transport is used, and why.
    pub(super) explain: bool,
    /// Where to write the phases.
    pub(super) phases: &'a PhaseFileOptions,
}

/// A session, and what has led to it.
pub(super) struct RunningComputation {
    pub(super) session: ComputeSession,
    pub(super) transport: &'static str,
    /// Why `auto` has chosen the transport, if this party let it.
    pub(super) reason: Option<String>,
    /// The key of the other party, if it has proved that it has one.
    pub(super) peer: Option<IdentityPublicKey>,
    /// Writes the phases, if that is wanted.
    writing: Option<PollingThread>,
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
        let phases = self.phases.create()?;
        let exchange = if self.connecting.is_auto_choice() {
            Some(traffic(&loading.wait()?.schedule).exchange(self.role))
        } else {
            None
        };
        if self.connecting.load_first {
            loading.wait()?;
        }
        let connects = self.connecting.connect.is_some();
        if connects {
            phases.connecting();
        }
        let PartyConnection { connection, connect } =
            connection::connect_parties(self.connecting, exchange, self.rest)?;
        if connects {
            phases.connected(&connect);
        }
        let transport = connection.transport();
        let reason = connection.decision().map(|decision| decision.reason.clone());
        let peer = connection.peer();
        let (begun, begun_at) = (Instant::now(), SystemTime::now());
        let session = ComputeSession::start(connection, self.role, self.settings);
        let session = session.map_err(|error| failed(&error))?;
        let writing = phases.follow(session.watch(), begun_at);
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
            peer,
            writing,
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
        drop(self.writing);
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
    pub(super) fn show(&self, ands: u64) -> PollingThread {
        let (watch, progress) = (self.session.watch(), CommandProgress::steps(ands));
        let mut shown = 0;
        let show = move || {
            let now = watch.ands();
            progress.advance(usize::try_from(now - shown).unwrap_or(0));
            progress.doing(if now == 0 { "waiting for the other party" } else { "ANDs" });
            shown = now;
        };
        PollingThread::start("progress", SHOWING, show)
    }
}
