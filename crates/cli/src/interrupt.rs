//! Removing temporary files when a person or the system ends the command by a signal.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

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
    let mut leftovers = leftovers();
    if leftovers.is_none() {
        wait_for_signals()?;
    }
    let (path, created) = create()?;
    leftovers.get_or_insert_default().push(path);
    Ok(created)
}

fn leftovers() -> MutexGuard<'static, Option<Vec<PathBuf>>> {
    LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a thread that cleans up and ends the process on the first signal.
fn wait_for_signals() -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let entered = runtime.enter();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    drop(entered);
    thread::Builder::new().name("signals".into()).spawn(move || {
        let kind = runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => SignalKind::interrupt(),
                _ = terminate.recv() => SignalKind::terminate(),
                _ = hangup.recv() => SignalKind::hangup(),
            }
        });
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
