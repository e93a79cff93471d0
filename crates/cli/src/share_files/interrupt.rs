//! What happens when a person or the system ends the command by a signal: temporary files are
//! removed, and what has to be done as a whole is done first.
//!
//! Signals that were ignored when the command was started, as `nohup` has it, stay ignored where
//! the system says which those are (Linux).

use std::fs;
use std::future::poll_fn;
use std::io;
use std::path::PathBuf;
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread;

use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What there is to be removed. `None` while no signal is being waited for.
static LEFTOVERS: Mutex<Option<Vec<PathBuf>>> = Mutex::new(None);

/// Has `create` make a file, and removes it should the command be ended by a signal from now on.
/// `create` returns the file's path and what else there is to return.
///
/// # Errors
/// When `create` fails, or signals cannot be waited for.
pub(crate) fn removed_on_signal<T>(
    create: impl FnOnce() -> io::Result<(PathBuf, T)>,
) -> io::Result<T> {
    // Held while the file is made: a signal in between waits for its path to be known.
    let mut leftovers = watched()?;
    let (path, created) = create()?;
    leftovers.get_or_insert_default().push(path);
    Ok(created)
}

/// Does what is to be done as a whole. A signal in between ends the command after it.
///
/// # Errors
/// When signals cannot be waited for; nothing is done then.
pub(crate) fn uninterrupted<T>(act: impl FnOnce() -> T) -> io::Result<T> {
    let _leftovers = watched()?;
    Ok(act())
}

/// What there is to be removed by the thread that waits for signals. It waits for this, too.
fn watched() -> io::Result<MutexGuard<'static, Option<Vec<PathBuf>>>> {
    let mut leftovers = leftovers();
    if leftovers.is_none() {
        wait_for_signals()?;
        *leftovers = Some(Vec::new());
    }
    Ok(leftovers)
}

fn leftovers() -> MutexGuard<'static, Option<Vec<PathBuf>>> {
    LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a thread that cleans up and ends the process on the first signal.
fn wait_for_signals() -> io::Result<()> {
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
            let came = |(kind, signal): &mut (SignalKind, Signal)| {
                signal.poll_recv(context).is_ready().then_some(*kind)
            };
            signals.iter_mut().find_map(came).map_or(Poll::Pending, Poll::Ready)
        }));
        let leftovers = leftovers();
        for path in leftovers.iter().flatten() {
            // One that is complete by now is no longer there under this name.
            let _ = fs::remove_file(path);
        }
        // What a shell reports for a command that a signal has ended.
        process::exit(128 + kind.as_raw_value());
    })?;
    Ok(())
}

/// Whether the signal is ignored, as far as the system says so: `false` where it does not.
fn is_ignored(kind: SignalKind) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (kind.as_raw_value() - 1) & 1 == 1)
}
