//! Handles signals that end the command: removes temporary files, and completes operations that
//! must not be interrupted.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use console::signals;

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
        signals::run_on_signal(remove_files)?;
        *temporary_files = Some(Vec::new());
    }
    Ok(temporary_files)
}

fn temporary_files() -> MutexGuard<'static, Option<Vec<PathBuf>>> {
    TEMPORARY_FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the files. No more are made while the lock is held.
fn remove_files() -> MutexGuard<'static, Option<Vec<PathBuf>>> {
    let temporary_files = temporary_files();
    for path in temporary_files.iter().flatten() {
        // A complete file no longer has this name.
        let _ = fs::remove_file(path);
    }
    temporary_files
}
