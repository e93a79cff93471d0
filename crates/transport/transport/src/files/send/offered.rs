//! The file that is sent.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open, openat};
use rustix::io::Errno;
use sha2::Sha256;

use super::FileSendError;
use crate::files::chunking::chunks_of;
use crate::files::digest;
use crate::protocol::file::{ChunkLengths, FileAttributes, FileChunk, FileName};

/// A file, with its state when it was opened.
pub(super) struct OfferedFile {
    path: PathBuf,
    file: File,
    pub(super) name: FileName,
    pub(super) length: u64,
    pub(super) attributes: FileAttributes,
}

impl OfferedFile {
    pub(super) fn open(path: &Path) -> Result<Self, FileSendError> {
        let path = path.to_owned();
        let failed = |source| FileSendError::File { path: path.clone(), source };
        // Opening a pipe would wait for its writer.
        let kind = std::fs::metadata(&path).map_err(failed)?;
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let name = FileName::parse(name);
        if !kind.is_file() {
            return Err(FileSendError::Kind { path });
        }
        let name = name.map_err(|source| FileSendError::Name { path: path.clone(), source })?;
        let file = File::open(&path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        Ok(Self::new(path, file, name, &metadata))
    }

    /// Opens a file below a directory, where no link is followed: someone who may change the
    /// directory could have made one since it was listed, to a file that only this user may read.
    pub(super) fn open_below(top: &Path, below: &[FileName]) -> Result<Self, FileSendError> {
        let Some((name, directories)) = below.split_last() else { return Self::open(top) };
        let path = below.iter().fold(top.to_owned(), |path, name| path.join(name.as_str()));
        let file = match open_without_links(top, directories, name) {
            Ok(file) => file,
            Err(Errno::LOOP | Errno::NOTDIR) => return Err(FileSendError::Changed { path }),
            Err(error) => return Err(FileSendError::File { path, source: error.into() }),
        };
        match file.metadata() {
            Ok(metadata) if metadata.is_file() => {
                Ok(Self::new(path, file, name.clone(), &metadata))
            }
            Ok(_) => Err(FileSendError::Changed { path }),
            Err(source) => Err(FileSendError::File { path, source }),
        }
    }

    fn new(path: PathBuf, file: File, name: FileName, metadata: &Metadata) -> Self {
        let (length, attributes) = (metadata.len(), FileAttributes::of(metadata));
        Self { path, file, name, length, attributes }
    }

    pub(super) fn seek(&mut self, to: u64) -> Result<(), FileSendError> {
        let sought = self.file.seek(SeekFrom::Start(to));
        sought.map(|_| ()).map_err(|source| self.failed(source))
    }

    /// Reads the next bytes.
    pub(super) fn read(&mut self, to: &mut [u8]) -> Result<(), FileSendError> {
        self.file.read_exact(to).map_err(|source| self.failed(source))
    }

    /// The digest's state after the first bytes. Later reads continue after them.
    pub(super) fn digest_of_beginning(
        &mut self,
        len: u64,
        report: impl FnMut() -> io::Result<()>,
    ) -> Result<Sha256, FileSendError> {
        self.seek(0)?;
        let state = digest::of_beginning(&mut self.file, len, report);
        state.map_err(|source| self.failed(source))
    }

    /// Its chunks from the beginning, with their data. What was appended since it was opened is
    /// left out.
    pub(super) fn chunks(
        &self,
        lengths: ChunkLengths,
    ) -> Result<impl Iterator<Item = io::Result<(FileChunk, Vec<u8>)>> + use<>, FileSendError> {
        let mut file = self.file.try_clone().map_err(|source| self.failed(source))?;
        file.rewind().map_err(|source| self.failed(source))?;
        Ok(chunks_of(file.take(self.length), lengths))
    }

    /// # Errors
    /// If it was changed since it was opened, so that what was read may be a mixture of both
    /// versions.
    pub(super) fn check_unchanged(&self) -> Result<(), FileSendError> {
        let is_as_before = |metadata: &Metadata| {
            metadata.len() == self.length && FileAttributes::of(metadata) == self.attributes
        };
        match self.file.metadata() {
            Ok(metadata) if is_as_before(&metadata) => Ok(()),
            Ok(_) => Err(self.changed()),
            Err(source) => Err(self.failed(source)),
        }
    }

    /// The error of a file that was changed while it was sent.
    pub(super) fn changed(&self) -> FileSendError {
        FileSendError::Changed { path: self.path.clone() }
    }

    /// The error of reading it.
    pub(super) fn failed(&self, source: io::Error) -> FileSendError {
        match source.kind() {
            io::ErrorKind::UnexpectedEof => self.changed(),
            _ => FileSendError::File { path: self.path.clone(), source },
        }
    }
}

/// Opens a file in directories below each other, of which the first one is in `top`.
fn open_without_links(
    top: &Path,
    directories: &[FileName],
    name: &FileName,
) -> rustix::io::Result<File> {
    let to_search = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = open(top, to_search, Mode::empty())?;
    for directory in directories {
        at = openat(&at, directory.as_str(), to_search | OFlags::NOFOLLOW, Mode::empty())?;
    }
    // Opening a pipe would wait for its writer.
    let to_read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(openat(&at, name.as_str(), to_read, Mode::empty())?.into())
}
