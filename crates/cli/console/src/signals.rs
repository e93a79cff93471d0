//! Signals that end the command.
//!
//! Signals that were ignored when the command started, for example by `nohup`, stay ignored if the
//! system reports them (Linux).

use std::fs;
use std::future::poll_fn;
use std::io;
use std::process;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Poll;
use std::thread;

use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The exit code after a signal; 0 before.
static CODE: AtomicU8 = AtomicU8::new(0);

/// The exit code that a shell reports for a command ended by a signal, if one has arrived since
/// [`run_on_signal`].
pub fn code() -> Option<u8> {
    Some(CODE.load(Ordering::Relaxed)).filter(|code| *code != 0)
}

/// Starts a thread that on the first SIGINT, SIGTERM or SIGHUP calls `act`, and then ends the
/// process, with what `act` returns not dropped before.
///
/// # Errors
/// If signals cannot be handled.
pub fn run_on_signal<T>(act: impl FnOnce() -> T + Send + 'static) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let entered = runtime.enter();
    let mut signals = Vec::new();
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        if !is_ignored(kind) {
            signals.push((kind, signal(kind)?));
        }
    }
    drop(entered);
    thread::Builder::new().name("signals".into()).spawn(move || {
        let kind = runtime.block_on(poll_fn(|context| {
            let received = |(kind, signal): &mut (SignalKind, Signal)| {
                signal.poll_recv(context).is_ready().then_some(*kind)
            };
            signals.iter_mut().find_map(received).map_or(Poll::Pending, Poll::Ready)
        }));
        let code = 128 + kind.as_raw_value();
        CODE.store(u8::try_from(code).unwrap_or(1), Ordering::Relaxed);
        let _kept = act();
        process::exit(code);
    })?;
    Ok(())
}

/// Whether the signal is ignored. `false` if the system does not report it.
fn is_ignored(kind: SignalKind) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (kind.as_raw_value() - 1) & 1 == 1)
}
