//! Receives several files and directories over one connection.

use std::fs::{DirBuilder, File, Metadata, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Timespec, Timestamps, futimens, statvfs, syncfs};
use sha2::{Digest, Sha256};

use super::{
    FileNameReservation, FileReceiver, ReceivedFile, TransferStopReason, failed, next, protocol,
    put, skip, unreadable,
};
use crate::files::part::{PartialFile, PartialFileError, UnsyncedFile, umask, with_reports};
use crate::files::{FileTransferEvent, REPORT_INTERVAL, digest};
use crate::net::Connection;
use crate::protocol::file::{
    FileAttributes, FileName, FileReceiverMessage, FileSenderMessage, FileTransferFailureReason,
    MAX_DATA_LEN, closed_early,
};
use crate::protocol::tree::{
    TreeEntry, TreeFileStart, TreeManifest, TreePath, WantedFile, encode_wanted,
};

/// The largest number of complete files that do not have their names yet.
const MAX_UNSYNCED_FILES: usize = 256;

/// The largest number of bytes in these files, before the next one is added.
const MAX_UNSYNCED_BYTES: u64 = 64 << 20;

/// The permissions that the owner of a directory needs while the transfer lasts.
const OWNER: u32 = 0o700;

/// Receives the files whose list begins with the next byte.
pub(super) fn receive(
    receiver: &FileReceiver,
    connection: &mut Connection,
    offered: &mut Option<FileName>,
    observe: &mut impl FnMut(FileTransferEvent<'_>),
) -> Result<ReceivedFile, TransferStopReason> {
    let manifest = TreeManifest::read(connection).map_err(unreadable)?;
    let (entries, total) = (manifest.entries(), manifest.total());
    let tops: Vec<&FileName> = entries
        .iter()
        .filter(|entry| entry.path.names().len() == 1)
        .map(|entry| entry.path.name())
        .collect();
    let first = (*tops.first().ok_or_else(|| protocol("no file is offered"))?).clone();
    *offered = Some(first.clone());
    observe(FileTransferEvent::Offered { name: &first, length: total });
    let reserved: Result<Vec<_>, _> =
        tops.iter().map(|name| receiver.reserve_name(name, connection)).collect();
    let path = match tops[..] {
        [name] => receiver.directory.join(name.as_str()),
        _ => receiver.directory.clone(),
    };
    let reserved = reserved?;
    let wanted = wanted_files(receiver, entries)?;
    let missing: u64 =
        wanted.iter().map(|(index, have)| missing_bytes(entries, *index, *have)).sum();
    check_space(&receiver.directory, missing, entries.len())?;
    let mut transfer = IncomingTree {
        receiver,
        connection,
        entries,
        reserved,
        observe,
        created: Vec::new(),
        unsynced: Vec::new(),
        unsynced_bytes: 0,
        position: total - missing,
        reported: Instant::now(),
        buffer: vec![0; MAX_DATA_LEN],
    };
    transfer.run(wanted)?;
    Ok(ReceivedFile {
        name: first,
        path,
        files: manifest.file_count(),
        bytes: total,
        resumed_from: total - missing,
        sha256: None,
        elapsed: Duration::ZERO,
    })
}

fn missing_bytes(entries: &[TreeEntry], index: u32, have: u64) -> u64 {
    entries[index as usize].length.unwrap_or(0).saturating_sub(have)
}

/// The files that are not complete, with the lengths of their parts. Nothing is created before all
/// of them are checked.
fn wanted_files(
    receiver: &FileReceiver,
    entries: &[TreeEntry],
) -> Result<Vec<WantedFile>, TransferStopReason> {
    let mut wanted = Vec::new();
    for (index, entry) in (0..).zip(entries) {
        let path = full_path(&receiver.directory, &entry.path);
        let existing = match path.symlink_metadata() {
            Ok(existing) => Some(existing),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(system(&entry.path, source)),
        };
        match (entry.length, existing) {
            (None, Some(existing)) if !existing.is_dir() => return Err(exists(&entry.path)),
            (None, _) => {}
            (Some(length), Some(existing)) if is_complete(&existing, length, &entry.attributes) => {
            }
            (Some(_), Some(existing)) if !receiver.overwrites || existing.is_dir() => {
                return Err(exists(&entry.path));
            }
            (Some(length), _) => wanted.push((index, part_len(&path, entry.path.name(), length))),
        }
    }
    Ok(wanted)
}

/// Whether a file is taken for the offered one: if its length and its modification time are the
/// same.
fn is_complete(existing: &Metadata, length: u64, attributes: &FileAttributes) -> bool {
    let FileAttributes { changed_at: (seconds, nanos), .. } = *attributes;
    existing.is_file()
        && existing.len() == length
        && (existing.mtime(), existing.mtime_nsec()) == (seconds, nanos.into())
}

/// The length of what an earlier attempt has left of a file.
fn part_len(path: &Path, name: &FileName, length: u64) -> u64 {
    let part = path.with_file_name(format!(".{name}.part")).symlink_metadata();
    part.ok().filter(|part| part.is_file() && part.len() <= length).map_or(0, |part| part.len())
}

fn check_space(directory: &Path, bytes: u64, files: usize) -> Result<(), TransferStopReason> {
    let full = |text| Err(failed(FileTransferFailureReason::Space, text));
    // If the system does not say, each file is checked.
    let Ok(free) = statvfs(directory) else { return Ok(()) };
    let free_bytes = free.f_bavail.saturating_mul(free.f_frsize);
    if free_bytes < bytes {
        return full(format!(
            "the disk has no room: the files need {bytes} bytes more, {free_bytes} are free; make \
             room there"
        ));
    }
    // Some file systems do not count files.
    if free.f_files > 0 && free.f_favail < files as u64 {
        let more = free.f_favail;
        return full(format!(
            "the disk has no room for {files} files: only {more} more can be created there"
        ));
    }
    Ok(())
}

fn full_path(directory: &Path, path: &TreePath) -> PathBuf {
    path.names().iter().fold(directory.to_owned(), |path, name| path.join(name.as_str()))
}

fn exists(path: &TreePath) -> TransferStopReason {
    let text =
        format!("{path} already exists; send it under another name, or remove it at the receiver");
    failed(FileTransferFailureReason::Exists, text)
}

fn system(path: &TreePath, source: io::Error) -> TransferStopReason {
    PartialFileError::System { name: path.to_string(), source }.into_stop()
}

/// The transfer of one connection's files.
struct IncomingTree<'a, O> {
    receiver: &'a FileReceiver,
    connection: &'a mut Connection,
    entries: &'a [TreeEntry],
    reserved: Vec<FileNameReservation<'a>>,
    observe: &'a mut O,
    /// The directories that did not exist.
    created: Vec<&'a TreeEntry>,
    unsynced: Vec<UnsyncedFile>,
    unsynced_bytes: u64,
    /// How many bytes of all files are here.
    position: u64,
    reported: Instant,
    buffer: Vec<u8>,
}

impl<O: FnMut(FileTransferEvent<'_>)> IncomingTree<'_, O> {
    fn run(&mut self, mut wanted: Vec<WantedFile>) -> Result<(), TransferStopReason> {
        self.create_directories()?;
        while !wanted.is_empty() {
            self.send(&encode_wanted(&wanted))?;
            let mut again = Vec::new();
            for (index, have) in wanted {
                if !self.receive_file(index, have)? {
                    self.position -= have;
                    again.push((index, 0));
                }
            }
            wanted = again;
        }
        self.publish()?;
        self.finish_directories();
        self.sync()
    }

    /// Creates the directories. Their owner can write to them until the end.
    fn create_directories(&mut self) -> Result<(), TransferStopReason> {
        for entry in self.entries.iter().filter(|entry| entry.length.is_none()) {
            let path = full_path(&self.receiver.directory, &entry.path);
            let mode = entry.attributes.permissions | OWNER;
            match DirBuilder::new().mode(mode).create(&path) {
                Ok(()) => self.created.push(entry),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    // It may have been replaced by a link since it was checked.
                    if !path.symlink_metadata().is_ok_and(|existing| existing.is_dir()) {
                        return Err(exists(&entry.path));
                    }
                }
                Err(source) => return Err(system(&entry.path, source)),
            }
        }
        Ok(())
    }

    /// Receives a file of which `have` bytes are here. Returns false if they are not the beginning
    /// of the sender's file: then its data was ignored.
    fn receive_file(&mut self, index: u32, have: u64) -> Result<bool, TransferStopReason> {
        let TreeEntry { path, attributes, length } = &self.entries[index as usize];
        let length = length.unwrap_or(0);
        let start = TreeFileStart::read(self.connection).map_err(unreadable)?;
        if (start.index, start.offset) != (index, have) {
            return Err(protocol("another file was requested"));
        }
        let mut directory = full_path(&self.receiver.directory, path);
        directory.pop();
        let part = PartialFile::open(&directory, path.name(), length);
        let mut part = part.map_err(PartialFileError::into_stop)?;
        let Some(mut state) = self.compare(&mut part, have, &start)? else {
            part.clear().map_err(PartialFileError::into_stop)?;
            self.ignore_file()?;
            return Ok(false);
        };
        let mut left = length - have;
        loop {
            match next(self.connection)? {
                FileSenderMessage::Data(len) if len as u64 <= left => {
                    self.take(len, &mut part, &mut state)?;
                    left -= len as u64;
                }
                FileSenderMessage::Working => {}
                FileSenderMessage::End(stated) if left == 0 => {
                    if digest::value(&state) != stated {
                        part.clear().map_err(PartialFileError::into_stop)?;
                        let text = format!("the SHA-256 digest of {path} is wrong");
                        return Err(failed(FileTransferFailureReason::Digest, text));
                    }
                    break;
                }
                _ => return Err(protocol("an unexpected message")),
            }
            self.report_if_due()?;
        }
        let unsynced = part.into_unsynced(attributes).map_err(PartialFileError::into_stop)?;
        self.unsynced.push(unsynced);
        self.unsynced_bytes += length;
        if self.unsynced.len() >= MAX_UNSYNCED_FILES || self.unsynced_bytes >= MAX_UNSYNCED_BYTES {
            self.publish()?;
        }
        self.report_if_due()?;
        Ok(true)
    }

    /// The state of the digest after what is here, if that is the beginning of the sender's file.
    fn compare(
        &mut self,
        part: &mut PartialFile,
        have: u64,
        start: &TreeFileStart,
    ) -> Result<Option<Sha256>, TransferStopReason> {
        if have == 0 {
            part.clear().map_err(PartialFileError::into_stop)?;
            return Ok(Some(Sha256::new()));
        }
        if part.len() != have {
            return Ok(None);
        }
        (self.observe)(FileTransferEvent::Comparing);
        let mut reader = part.beginning().map_err(PartialFileError::into_stop)?;
        let mut broken = None;
        let report = || {
            let reported = report(self.connection, &self.reserved, self.position);
            reported.inspect_err(|error| broken = Some(io::Error::from(error.kind())))
        };
        let state = digest::of_beginning(&mut reader, have, report);
        match (state, broken) {
            (_, Some(error)) => Err(TransferStopReason::Broken(error)),
            // Another program has truncated it.
            (Err(_), None) => Ok(None),
            (Ok(state), None) => Ok((digest::value(&state) == start.digest).then_some(state)),
        }
    }

    fn ignore_file(&mut self) -> Result<(), TransferStopReason> {
        loop {
            match next(self.connection)? {
                FileSenderMessage::Data(len) => skip(self.connection, len)?,
                FileSenderMessage::Working => {}
                FileSenderMessage::End(_) => return Ok(()),
                _ => return Err(protocol("an unexpected message")),
            }
            self.report_if_due()?;
        }
    }

    fn take(
        &mut self,
        len: usize,
        part: &mut PartialFile,
        state: &mut Sha256,
    ) -> Result<(), TransferStopReason> {
        let mut left = len;
        while left > 0 {
            let read = self.connection.read(&mut self.buffer[..left]);
            let count = read.map_err(TransferStopReason::Broken)?;
            if count == 0 {
                return Err(TransferStopReason::Broken(closed_early()));
            }
            let data = &self.buffer[..count];
            state.update(data);
            part.append(data).map_err(PartialFileError::into_stop)?;
            self.position += count as u64;
            left -= count;
            self.report_if_due()?;
        }
        Ok(())
    }

    /// Writes the complete files to disk together, and gives them their names: a sync of each would
    /// take longer than small files themselves.
    fn publish(&mut self) -> Result<(), TransferStopReason> {
        self.sync()?;
        self.unsynced_bytes = 0;
        for file in self.unsynced.drain(..) {
            file.publish(self.receiver.overwrites).map_err(PartialFileError::into_stop)?;
        }
        Ok(())
    }

    /// Writes the file system to disk.
    fn sync(&mut self) -> Result<(), TransferStopReason> {
        let directory = &self.receiver.directory;
        let mut report = || report(self.connection, &self.reserved, self.position);
        let sync = || syncfs(File::open(directory)?).map_err(io::Error::from);
        let synced = with_reports(sync, &mut report);
        self.reported = Instant::now();
        let name = directory.display().to_string();
        synced
            .and_then(|synced| synced.map_err(|source| PartialFileError::System { name, source }))
            .map_err(PartialFileError::into_stop)
    }

    /// Gives the new directories their attributes. A failure here is no reason to send the files
    /// again.
    fn finish_directories(&mut self) {
        let umask = umask();
        for entry in self.created.iter().rev() {
            let FileAttributes { permissions, changed_at: (tv_sec, nanos) } = entry.attributes;
            let Ok(directory) = File::open(full_path(&self.receiver.directory, &entry.path)) else {
                continue;
            };
            let changed = Timespec { tv_sec, tv_nsec: nanos.into() };
            let times = Timestamps { last_access: changed, last_modification: changed };
            let _ = futimens(&directory, &times);
            let _ = directory.set_permissions(Permissions::from_mode(permissions & !umask));
        }
    }

    fn report_if_due(&mut self) -> Result<(), TransferStopReason> {
        if self.reported.elapsed() < REPORT_INTERVAL {
            return Ok(());
        }
        self.reported = Instant::now();
        (self.observe)(FileTransferEvent::Position(self.position));
        report(self.connection, &self.reserved, self.position).map_err(TransferStopReason::Broken)
    }

    fn send(&mut self, message: &[u8]) -> Result<(), TransferStopReason> {
        self.reported = Instant::now();
        let sent = io::Write::write_all(self.connection, message)
            .and_then(|()| io::Write::flush(self.connection));
        sent.map_err(TransferStopReason::Broken)
    }
}

/// Tells the sender that this end works.
fn report(
    connection: &mut Connection,
    reserved: &[FileNameReservation<'_>],
    position: u64,
) -> io::Result<()> {
    reserved.iter().for_each(FileNameReservation::note_activity);
    put(connection, &FileReceiverMessage::Progress(position))
}
