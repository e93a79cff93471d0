//! Handles signals that end the command: removes temporary files, and completes operations that
//! must not be interrupted.
//!
//! Signals that were ignored when the command started, for example by `nohup`, stay ignored if the
//! system reports them (Linux).

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

/// The files to remove. `None` before the first of them.
static TEMPORARY_FILES: Mutex<Option<Vec<PathBuf>>> = Mutex::new(None);

/// Runs `create`, which creates a file, and removes that file if a signal ends the command.
/// `create` returns the file's path and a value to return.
///
/// # Errors
/// If `create` fails, or signals cannot be handled.
pub(crate) fn removed_on_signal<T>(
    create: impl FnOnce() -> io::Result<(PathBuf, T)>,
) -> io::Result<T> {
    // Locked during `create`: a signal in between waits until the path is known.
    let mut temporary_files = lock_temporary_files()?;
    let (path, created) = create()?;
    temporary_files.get_or_insert_default().push(path);
    Ok(created)
}

/// Runs `act`. A signal in between ends the command after it.
///
/// # Errors
/// If signals cannot be handled; `act` was not run then.
pub(crate) fn uninterrupted<T>(act: impl FnOnce() -> T) -> io::Result<T> {
    let _guard = lock_temporary_files()?;
    Ok(act())
}

/// Locks the list of files to remove. The thread that handles signals waits for this lock.
fn lock_temporary_files() -> io::Result<MutexGuard<'static, Option<Vec<PathBuf>>>> {
    let mut temporary_files = temporary_files();
    if temporary_files.is_none() {
        wait_for_signals()?;
        *temporary_files = Some(Vec::new());
    }
    Ok(temporary_files)
}

fn temporary_files() -> MutexGuard<'static, Option<Vec<PathBuf>>> {
    TEMPORARY_FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a thread that on the first signal removes the files and ends the process.
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
            let received = |(kind, signal): &mut (SignalKind, Signal)| {
                signal.poll_recv(context).is_ready().then_some(*kind)
            };
            signals.iter_mut().find_map(received).map_or(Poll::Pending, Poll::Ready)
        }));
        let temporary_files = temporary_files();
        for path in temporary_files.iter().flatten() {
            // A complete file no longer has this name.
            let _ = fs::remove_file(path);
        }
        // The exit code that a shell reports for a command ended by a signal.
        process::exit(128 + kind.as_raw_value());
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
