//! Disk space for a while: files without a name, of which nothing is left however the demo ends.

use std::fs::File;

use indicatif::BinaryBytes;
use rustix::fs::statvfs;

use crate::failure::Failure;

/// Makes sure that there is room for so many bytes of temporary files.
///
/// # Errors
/// When there is not.
pub(super) fn require(bytes: u64) -> Result<(), Failure> {
    let directory = std::env::temp_dir();
    // A system that does not say is given the benefit of the doubt: writing will tell.
    let Ok(system) = statvfs(&directory) else { return Ok(()) };
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    if free >= bytes {
        return Ok(());
    }
    Err(Failure::Failed(format!(
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
/// When none can be made.
pub(super) fn file() -> Result<File, Failure> {
    tempfile::tempfile().map_err(|error| writing(&error))
}

/// Writing to a temporary file went wrong.
pub(super) fn writing(error: &std::io::Error) -> Failure {
    let directory = std::env::temp_dir();
    Failure::Failed(format!(
        "cannot write temporary files in {}: {error}; set TMPDIR to another directory",
        directory.display()
    ))
}

/// Reading a temporary file again went wrong.
pub(super) fn reading(error: &std::io::Error) -> Failure {
    let directory = std::env::temp_dir().display().to_string();
    Failure::Failed(format!("cannot read temporary files in {directory}: {error}"))
}
