//! Partial files: `.NAME.part`.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;

use rustix::fs::{RenameFlags, Timespec, Timestamps, futimens, renameat_with, statvfs};

use super::REPORT_INTERVAL;
use crate::protocol::file::{FileAttributes, FileName};

/// The mode of a file that only its owner may access.
const PRIVATE: u32 = 0o600;

/// The umask that is assumed if the system does not report it.
const USUAL_UMASK: u32 = 0o022;

/// Why a file cannot be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum PartialFileError {
    #[error("{0} already exists; send it under another name, or remove it at the receiver")]
    Exists(String),
    #[error("{0} is being received already")]
    Busy(String),
    #[error(
        "the disk has no room: the file needs {needed} bytes more, {free} are free; make room there"
    )]
    Space { needed: u64, free: u64 },
    #[error("cannot write {name}: {}", explain(source))]
    System { name: String, source: io::Error },
    /// The progress report to the sender has failed.
    #[error("{0}")]
    Report(io::Error),
}

/// The text for a system error, with a remedy where there is one.
fn explain(source: &io::Error) -> String {
    let words = match source.kind() {
        io::ErrorKind::NotFound => "its directory is not there any more",
        io::ErrorKind::PermissionDenied => "its user may not write to the directory",
        io::ErrorKind::ReadOnlyFilesystem => "the directory's file system is read-only",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "the disk is full; make room there"
        }
        _ => return source.to_string(),
    };
    words.to_owned()
}

/// See [the module](self). It is locked against other processes of Sunder, and only its owner may
/// access it. An empty one is removed.
#[derive(Debug)]
pub(super) struct PartialFile {
    file: File,
    directory: PathBuf,
    name: FileName,
    path: PathBuf,
    len: u64,
    is_published: bool,
}

impl PartialFile {
    /// Opens or creates the partial file of a file of this length, if the disk has enough space.
    pub(super) fn open(
        directory: &Path,
        name: &FileName,
        length: u64,
    ) -> Result<Self, PartialFileError> {
        let path = directory.join(format!(".{name}.part"));
        let failed = |source| PartialFileError::System { name: name.to_string(), source };
        let (file, former) = match open_part(&path) {
            // An earlier attempt has given it the permissions of a file that nobody may write.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let opened = make_private(&path)
                    .and_then(|former| open_part(&path).map(|file| (file, Some(former))));
                opened.map_err(|_| failed(error))?
            }
            opened => (opened.map_err(failed)?, None),
        };
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(failed(io::Error::other("its .part is not a regular file; remove it")));
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                // Another receiver has given it these, and is about to give it its name.
                if let Some(former) = former {
                    file.set_permissions(former).map_err(failed)?;
                }
                return Err(PartialFileError::Busy(name.to_string()));
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        file.set_permissions(Permissions::from_mode(PRIVATE)).map_err(failed)?;
        let (directory, name, len) = (directory.to_owned(), name.clone(), metadata.len());
        let mut part = Self { file, directory, name, path, len, is_published: false };
        // A part that is longer than the file belongs to another file.
        if len > length {
            part.clear()?;
        }
        part.check_space(length - part.len)?;
        Ok(part)
    }

    fn check_space(&self, needed: u64) -> Result<(), PartialFileError> {
        let free = statvfs(&self.directory).map_err(|error| self.failed(error.into()))?;
        let free = free.f_bavail.saturating_mul(free.f_frsize);
        if free < needed { Err(PartialFileError::Space { needed, free }) } else { Ok(()) }
    }

    fn failed(&self, source: io::Error) -> PartialFileError {
        PartialFileError::System { name: self.name.to_string(), source }
    }

    /// Its length.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Removes its content.
    pub(super) fn clear(&mut self) -> Result<(), PartialFileError> {
        self.truncate(0)
    }

    /// Removes what is after this offset. Data is appended there.
    pub(super) fn truncate(&mut self, len: u64) -> Result<(), PartialFileError> {
        self.len = len;
        let cut = self.file.set_len(len).and_then(|()| self.file.seek(SeekFrom::Start(len)));
        cut.map(|_| ()).map_err(|error| self.failed(error))
    }

    /// Reads it from its start. Afterwards, data is appended after what was read.
    pub(super) fn beginning(&mut self) -> Result<impl Read, PartialFileError> {
        let sought = self.file.seek(SeekFrom::Start(0));
        sought.map_err(|error| self.failed(error))?;
        Ok(&self.file)
    }

    /// Reads what is at this offset. Data is appended where it was before.
    pub(super) fn read_at(&self, offset: u64, to: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(to, offset)
    }

    /// Writes after what was last written or read.
    pub(super) fn append(&mut self, data: &[u8]) -> Result<(), PartialFileError> {
        self.file.write_all(data).map_err(|error| self.failed(error))?;
        self.len += data.len() as u64;
        Ok(())
    }

    /// Writes the file to disk, and gives it its attributes, as far as this process's umask allows,
    /// and its name. `report` is called at intervals.
    pub(super) fn publish(
        mut self,
        attributes: &FileAttributes,
        overwrites: bool,
        report: &mut impl FnMut() -> io::Result<()>,
    ) -> Result<(), PartialFileError> {
        self.set(attributes).map_err(|error| self.failed(error))?;
        self.sync(report)?;
        take_name(&self.directory, &self.name, &self.path, overwrites)?;
        self.is_published = true;
        // If the system stops now, the file may still have its old name, but no data is lost.
        let _ = File::open(&self.directory).and_then(|directory| directory.sync_all());
        Ok(())
    }

    /// Gives the complete file its attributes and closes it. Its file system must be written to
    /// disk before it gets its name.
    pub(super) fn into_unsynced(
        mut self,
        attributes: &FileAttributes,
    ) -> Result<UnsyncedFile, PartialFileError> {
        self.set(attributes).map_err(|error| self.failed(error))?;
        self.is_published = true;
        let (directory, name, path) =
            (self.directory.clone(), self.name.clone(), self.path.clone());
        Ok(UnsyncedFile { directory, name, path })
    }

    fn set(&self, attributes: &FileAttributes) -> io::Result<()> {
        let mode = attributes.permissions & !umask();
        self.file.set_permissions(Permissions::from_mode(mode))?;
        let (tv_sec, nanos) = attributes.changed_at;
        let changed = Timespec { tv_sec, tv_nsec: nanos.into() };
        futimens(&self.file, &Timestamps { last_access: changed, last_modification: changed })?;
        Ok(())
    }

    fn sync(&self, report: &mut impl FnMut() -> io::Result<()>) -> Result<(), PartialFileError> {
        with_reports(|| self.file.sync_all(), report)?.map_err(|error| self.failed(error))
    }
}

/// A complete file that may not be on the disk yet, and does not have its name yet.
#[derive(Debug)]
pub(super) struct UnsyncedFile {
    directory: PathBuf,
    name: FileName,
    path: PathBuf,
}

impl UnsyncedFile {
    /// Gives it its name.
    pub(super) fn publish(self, overwrites: bool) -> Result<(), PartialFileError> {
        take_name(&self.directory, &self.name, &self.path, overwrites)
    }
}

/// Opens or creates the regular file at this path. A link or a device is not accepted.
fn open_part(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(PRIVATE)
        // Opening a pipe would wait for its reader.
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
}

/// Gives a regular file the permissions of a partial one, without opening it or following a link.
/// Returns those that it had.
fn make_private(path: &Path) -> io::Result<Permissions> {
    let flags = libc::O_PATH | libc::O_NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // The system does not change the permissions of such a descriptor itself.
    let opened = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::fs::set_permissions(opened, Permissions::from_mode(PRIVATE))?;
    Ok(metadata.permissions())
}

/// Does work that may take long, and calls `report` at intervals.
pub(super) fn with_reports<T: Send>(
    work: impl FnOnce() -> T + Send,
    report: &mut impl FnMut() -> io::Result<()>,
) -> Result<T, PartialFileError> {
    let (done, waiting) = sync_channel(1);
    thread::scope(|scope| {
        scope.spawn(move || done.send(work()));
        loop {
            match waiting.recv_timeout(REPORT_INTERVAL) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Timeout) => report().map_err(PartialFileError::Report)?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(PartialFileError::Report(io::ErrorKind::Other.into()));
                }
            }
        }
    })
}

/// Renames a partial file to the name of the file.
fn take_name(
    directory: &Path,
    name: &FileName,
    from: &Path,
    overwrites: bool,
) -> Result<(), PartialFileError> {
    let to = directory.join(name.as_str());
    let named = if overwrites { std::fs::rename(from, &to) } else { rename_new(from, &to) };
    named.map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => PartialFileError::Exists(name.to_string()),
        _ => PartialFileError::System { name: name.to_string(), source },
    })
}

/// Renames a file, unless a file of the new name exists.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    let cwd = rustix::fs::CWD;
    match renameat_with(cwd, from, cwd, to, RenameFlags::NOREPLACE) {
        // Not every file system supports that.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
            std::fs::hard_link(from, to)?;
            std::fs::remove_file(from)
        }
        named => Ok(named?),
    }
}

impl Drop for PartialFile {
    /// An empty part is of no use for resuming.
    fn drop(&mut self) {
        if self.len == 0 && !self.is_published {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The umask: the permissions that this process never gives.
pub(super) fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    umask.and_then(|umask| u32::from_str_radix(umask.trim(), 8).ok()).unwrap_or(USUAL_UMASK)
}

/// Opens the regular file at this path for reading, if there is one. Returns its length, too.
pub(super) fn open_existing(path: &Path) -> Option<(File, u64)> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let metadata = file.metadata().ok()?;
    metadata.is_file().then_some((file, metadata.len()))
}
