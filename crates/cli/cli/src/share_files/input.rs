//! The files that a command reads; `-` is standard input.

use std::fs::{File, Metadata};
use std::io::{self, Cursor, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use console::CommandFailure;
use zeroize::Zeroizing;

/// An open file, standard input, or bytes from a file of text.
pub(crate) struct InputFile {
    source: InputSource,
    path: PathBuf,
    is_stdin: bool,
}

enum InputSource {
    File(File, Metadata),
    Memory(Cursor<Zeroizing<Vec<u8>>>),
}

impl InputFile {
    /// Opens the file at `path`, or standard input for `-`.
    ///
    /// # Errors
    /// If it cannot be opened, or is a directory.
    pub(crate) fn open(path: &Path) -> Result<Self, CommandFailure> {
        let is_stdin = is_dash(path);
        let (opened, path) = if is_stdin {
            // A separate descriptor, without the buffer of the standard library's handle.
            let descriptor = io::stdin().as_fd().try_clone_to_owned();
            (descriptor.map(File::from), Path::new("standard input"))
        } else {
            (File::open(path), path)
        };
        let refuse = |error: io::Error| match error.kind() {
            // A name with a zero byte.
            ErrorKind::InvalidInput => {
                CommandFailure::Usage(format!("no such file: {}; check its name", path.display()))
            }
            ErrorKind::InvalidFilename => CommandFailure::Usage(format!(
                "the name of {} is not valid: {error}",
                path.display()
            )),
            _ => CommandFailure::reading(path, &error),
        };
        let file = opened.map_err(refuse)?;
        let metadata = file.metadata().map_err(refuse)?;
        if metadata.is_dir() {
            let message = format!("{} is a directory; name a file in it", path.display());
            return Err(CommandFailure::Usage(message));
        }
        let source = InputSource::File(file, metadata);
        Ok(Self { source, path: path.to_owned(), is_stdin })
    }

    /// Bytes that were read from the text at `path`.
    pub(crate) fn from_bytes(bytes: Zeroizing<Vec<u8>>, path: &Path) -> Self {
        let source = InputSource::Memory(Cursor::new(bytes));
        Self { source, path: path.to_owned(), is_stdin: false }
    }

    /// Its path, or a name for standard input.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its length, if it is known before reading.
    pub(crate) fn len(&self) -> Option<u64> {
        match &self.source {
            InputSource::File(_, metadata) => metadata.is_file().then_some(metadata.len()),
            InputSource::Memory(bytes) => Some(bytes.get_ref().len() as u64),
        }
    }

    /// Whether it can be closed and opened again by its path.
    pub(crate) fn is_reopenable(&self) -> bool {
        let is_file = matches!(&self.source, InputSource::File(_, metadata) if metadata.is_file());
        is_file && !self.is_stdin
    }

    /// What is equal for one file under two names. Bytes in memory have none.
    pub(crate) fn identity(&self) -> Option<(u64, u64)> {
        match &self.source {
            InputSource::File(_, metadata) => Some((metadata.dev(), metadata.ino())),
            InputSource::Memory(_) => None,
        }
    }

    /// Reads until `buffer` is full or the file ends. Returns the number of bytes read.
    ///
    /// # Errors
    /// If reading fails.
    pub(crate) fn fill(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            let read = match &mut self.source {
                InputSource::File(file, _) => file.read(&mut buffer[filled..]),
                InputSource::Memory(bytes) => bytes.read(&mut buffer[filled..]),
            };
            match read {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}

/// Whether a path stands for standard input or output.
pub(crate) fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}
