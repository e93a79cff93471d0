//! Temporary files without a name, of which nothing remains however the demo ends.

use std::fs::File;

use console::CommandFailure;
use indicatif::BinaryBytes;
use rustix::fs::statvfs;

/// Checks that there is disk space for temporary files of this size.
///
/// # Errors
/// If there is too little.
pub(super) fn require(bytes: u64) -> Result<(), CommandFailure> {
    let directory = std::env::temp_dir();
    // If the system does not report it, a failure to write will.
    let Ok(system) = statvfs(&directory) else { return Ok(()) };
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    if free >= bytes {
        return Ok(());
    }
    Err(CommandFailure::Failed(format!(
        "the demo needs {} in {} for a while, but {} are free; make room, set TMPDIR to another \
         directory, or give a smaller --file",
        BinaryBytes(bytes),
        directory.display(),
        BinaryBytes(free)
    )))
}

/// A temporary file.
///
/// # Errors
/// If it cannot be created.
pub(super) fn file() -> Result<File, CommandFailure> {
    tempfile::tempfile().map_err(|error| writing(&error))
}

/// A failure to write to a temporary file.
pub(super) fn writing(error: &std::io::Error) -> CommandFailure {
    let directory = std::env::temp_dir();
    CommandFailure::Failed(format!(
        "cannot write temporary files in {}: {error}; set TMPDIR to another directory",
        directory.display()
    ))
}

/// A failure to read a temporary file.
pub(super) fn reading(error: &std::io::Error) -> CommandFailure {
    let directory = std::env::temp_dir().display().to_string();
    CommandFailure::Failed(format!("cannot read temporary files in {directory}: {error}"))
}
