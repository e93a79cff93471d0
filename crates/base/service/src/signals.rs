//! Stops a service on SIGINT or SIGTERM, and reloads its configuration on SIGHUP.

use std::fmt::Display;
use std::io::{self, IsTerminal};

use rustix::process::{getpid, kill_process};
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

use crate::ServiceError;

/// The signals that stop a service.
#[derive(Debug)]
pub struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// From this call on, these signals no longer end the process by themselves.
    ///
    /// # Errors
    /// If the system returns an error.
    pub fn listen() -> Result<Self, ServiceError> {
        let interrupt = listen(SignalKind::interrupt())?;
        Ok(Self { interrupt, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// From this call on, SIGHUP does not end the process by itself.
///
/// # Errors
/// If the system returns an error.
pub fn hangup_signals() -> Result<Signal, ServiceError> {
    listen(SignalKind::hangup())
}

/// From this call on, SIGHUP does not end the process by itself. This covers the time before the
/// runtime of [`run`](crate::run) exists, in which [`hangup_signals`] can be called.
///
/// # Errors
/// If the system returns an error.
pub fn catch_hangups() -> Result<(), ServiceError> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(ServiceError::Signals)?;
    let _entered = runtime.enter();
    // The handler stays installed after the runtime and its listeners are gone.
    hangup_signals().map(drop)
}

fn listen(kind: SignalKind) -> Result<Signal, ServiceError> {
    signal(kind).map_err(ServiceError::Signals)
}

/// Runs a service until a signal arrives. Then calls `stop` and waits for the service to end; a
/// second signal aborts it. Returns what the service returns.
///
/// # Errors
/// If a second signal aborted it.
pub async fn until_stopped<T>(
    mut signals: StopSignals,
    service: impl Future<Output = T>,
    stop: impl FnOnce(),
) -> Result<T, ServiceError> {
    tokio::pin!(service);
    tokio::select! {
        ended = &mut service => return Ok(ended),
        () = signals.next() => {}
    }
    info!("stopping: what is under way may finish for a few seconds; a second signal ends it");
    stop();
    tokio::select! {
        ended = &mut service => {
            info!("stopped");
            Ok(ended)
        }
        () = signals.next() => Err(ServiceError::Interrupted),
    }
}

/// On each SIGHUP, calls `load` on a thread that may block, and `take` with the configuration that
/// it returns. If either fails, the error is logged, and the old configuration stays in force. If
/// SIGHUP arrives because the terminal was closed, SIGTERM is sent to this process, so that it
/// stops cleanly.
pub fn reload_on_hangup<T: Send + 'static, E: Display + Send + 'static, F>(
    mut hangup: Signal,
    load: impl Fn() -> Result<T, E> + Clone + Send + 'static,
    take: impl Fn(T) -> F + Send + 'static,
) where
    F: Future<Output = io::Result<()>> + Send,
{
    let had_terminal = io::stderr().is_terminal();
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            if had_terminal && !io::stderr().is_terminal() {
                let _ = kill_process(getpid(), rustix::process::Signal::TERM);
                return;
            }
            let taken = match tokio::task::spawn_blocking(load.clone()).await {
                Ok(Ok(config)) => take(config).await.map_err(|error| error.to_string()),
                Ok(Err(error)) => Err(error.to_string()),
                Err(panic) => Err(panic.to_string()),
            };
            match taken {
                Ok(()) => info!("the configuration was read again, and is in force"),
                Err(error) => warn!("the configuration before stays in force: {error}"),
            }
        }
    });
}
