//! Files and standard streams of the commands.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::Path;

use console::CommandFailure;
use hyper::body::Bytes;
use keys::storage;
use quorum::api::MAX_BODY_LEN;

pub(super) fn read_message(path: &Path) -> Result<Bytes, CommandFailure> {
    let message = read_bounded(path, MAX_BODY_LEN as u64)?;
    Ok(message.into())
}

/// A file of at most this length, or standard input.
pub(super) fn read_bounded(path: &Path, max: u64) -> Result<Vec<u8>, CommandFailure> {
    let mut bytes = Vec::new();
    let read = if is_standard(path) {
        io::stdin().take(max + 1).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(max + 1).read_to_end(&mut bytes))
    };
    read.map_err(|error| CommandFailure::reading(path, &error))?;
    if bytes.len() as u64 > max {
        let what = format!("{} has more than {max} bytes", path.display());
        return Err(CommandFailure::Usage(what));
    }
    Ok(bytes)
}

pub(super) fn exists(path: &Path) -> CommandFailure {
    CommandFailure::Usage(format!("{} already exists, and is not overwritten", path.display()))
}

/// Writes a new file, all of it or nothing.
pub(super) fn write_new(path: &Path, content: &[u8]) -> Result<(), CommandFailure> {
    storage::create(path, content, 0o666).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => exists(path),
        _ => CommandFailure::writing(path, &error),
    })
}

/// Whether a path stands for standard input or output.
pub(super) fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Writes bytes to standard output, as they are.
pub(super) fn write_standard(bytes: &[u8]) -> Result<(), CommandFailure> {
    let mut out = io::stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.flush());
    written
        .map_err(|error| CommandFailure::Failed(format!("cannot write standard output: {error}")))
}
