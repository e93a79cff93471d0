//! The files that a command reads; `-` is standard input.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use console::CommandFailure;

/// An open file, or standard input.
pub(crate) struct InputFile {
    file: File,
    metadata: Metadata,
    path: PathBuf,
}

impl InputFile {
    /// Opens the file at `path`, or standard input for `-`.
    ///
    /// # Errors
    /// If it cannot be opened, or is a directory.
    pub(crate) fn open(path: &Path) -> Result<Self, CommandFailure> {
        let (opened, path) = if is_dash(path) {
            // A separate descriptor, without the buffer of the standard library's handle.
            let descriptor = io::stdin().as_fd().try_clone_to_owned();
            (descriptor.map(File::from), Path::new("standard input"))
        } else {
            (File::open(path), path)
        };
        let refuse = |error: io::Error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidInput => {
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
        Ok(Self { file, metadata, path: path.to_owned() })
    }

    /// Its path, or a name for standard input.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its length, if it is known before reading.
    pub(crate) fn len(&self) -> Option<u64> {
        self.metadata.is_file().then_some(self.metadata.len())
    }

    /// Whether both are the same file, possibly under different names.
    pub(crate) fn is_same_file(&self, other: &Self) -> bool {
        let identity = |metadata: &Metadata| (metadata.dev(), metadata.ino());
        identity(&self.metadata) == identity(&other.metadata)
    }

    /// Reads until `buffer` is full or the file ends. Returns the number of bytes read.
    ///
    /// # Errors
    /// If reading fails.
    pub(crate) fn fill(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.file.read(&mut buffer[filled..]) {
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
