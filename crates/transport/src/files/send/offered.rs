//! The file that is sent.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use sha2::Sha256;

use super::SendError;
use crate::files::digest;
use crate::protocol::file::{Attributes, FileName};

/// A file, as it was when it was opened.
pub(super) struct OfferedFile {
    path: PathBuf,
    file: File,
    pub(super) name: FileName,
    pub(super) length: u64,
    pub(super) attributes: Attributes,
}

impl OfferedFile {
    pub(super) fn open(path: &Path) -> Result<Self, SendError> {
        let path = path.to_owned();
        let failed = |source| SendError::File { path: path.clone(), source };
        // A pipe would wait for its writer.
        let kind = std::fs::metadata(&path).map_err(failed)?;
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let name = FileName::parse(name);
        if !kind.is_file() {
            return Err(SendError::Kind { path });
        }
        let name = name.map_err(|source| SendError::Name { path: path.clone(), source })?;
        let file = File::open(&path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let (length, attributes) = (metadata.len(), Attributes::of(&metadata));
        Ok(Self { path, file, name, length, attributes })
    }

    pub(super) fn seek(&mut self, to: u64) -> Result<(), SendError> {
        let sought = self.file.seek(SeekFrom::Start(to));
        sought.map(|_| ()).map_err(|source| self.failed(source))
    }

    /// Reads what comes next.
    pub(super) fn read(&mut self, to: &mut [u8]) -> Result<(), SendError> {
        self.file.read_exact(to).map_err(|source| self.failed(source))
    }

    /// The digest's state after the first bytes. What is read next is what follows them.
    pub(super) fn digest_of_beginning(
        &mut self,
        len: u64,
        report: impl FnMut() -> io::Result<()>,
    ) -> Result<Sha256, SendError> {
        self.seek(0)?;
        let state = digest::of_beginning(&mut self.file, len, report);
        state.map_err(|source| self.failed(source))
    }

    /// # Errors
    /// If it was changed since it was opened: what was read may be a mixture of both.
    pub(super) fn check_unchanged(&self) -> Result<(), SendError> {
        let is_as_before = |metadata: &Metadata| {
            metadata.len() == self.length && Attributes::of(metadata) == self.attributes
        };
        match self.file.metadata() {
            Ok(metadata) if is_as_before(&metadata) => Ok(()),
            Ok(_) => Err(SendError::Changed { path: self.path.clone() }),
            Err(source) => Err(self.failed(source)),
        }
    }

    fn failed(&self, source: io::Error) -> SendError {
        let path = self.path.clone();
        match source.kind() {
            io::ErrorKind::UnexpectedEof => SendError::Changed { path },
            _ => SendError::File { path, source },
        }
    }
}
