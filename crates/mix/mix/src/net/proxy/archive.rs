//! The files of a group's archive. The index decides what is written, removed and read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use keys::IdentityPublicKey;

use super::super::state::{StateFileError, StateFolder};
use super::MixProxyError;
use crate::protocol::group::{
    ArchiveAppend, ArchiveIndex, MixGroupSettings, PastPart, SegmentEnd, read_record,
};
use crate::protocol::round::RoundPosition;
use crate::protocol::wire::ArchiveRecord;

/// The archive of a group: files in the state folder, one for each segment.
pub(super) struct RoundArchive {
    folder: Arc<StateFolder>,
    /// How the names of its files begin. A number follows.
    prefix: String,
    index: ArchiveIndex,
    /// The last segment.
    file: Option<(u64, File)>,
    /// Since when and why rounds cannot be written.
    failure: Option<(Duration, String)>,
    /// A segment that is being written or was in part, and the length to which it is to be cut; 0
    /// if it is to be removed.
    torn: Option<(u64, u64)>,
    /// Whether the oldest segment could not be removed.
    is_removal_failing: bool,
}

/// What an archive contains.
pub(super) struct ArchiveStatus {
    pub(super) rounds: usize,
    pub(super) bytes: u64,
    /// Since when and why nothing can be written.
    pub(super) failure: Option<(Duration, String)>,
}

impl RoundArchive {
    /// Reads the index of the archive from its files. Returns what there is to log as well. When
    /// all has been read, a record is cut off that was being written when the proxy was killed. If
    /// the settings keep no rounds, the files are removed. The caller has read the group's state
    /// before, so the settings are those of the group.
    ///
    /// # Errors
    /// When a file cannot be read or cut, or belongs to another group. Nothing was changed, unless
    /// cutting failed.
    pub(super) fn open(
        folder: Arc<StateFolder>,
        settings: MixGroupSettings,
    ) -> Result<(Self, Vec<String>), MixProxyError> {
        let prefix = format!("{}.rounds.", settings.name);
        let is_kept = !settings.archive.keep.is_zero();
        let mut archive = Self {
            folder,
            prefix,
            index: ArchiveIndex::new(settings),
            file: None,
            failure: None,
            torn: None,
            is_removal_failing: false,
        };
        let numbers = archive.numbers()?;
        let mut report = Vec::new();
        if is_kept {
            archive.load(&numbers, &mut report)?;
        } else if !numbers.is_empty() {
            let bytes = archive.remove_all(&numbers)?;
            let files = numbers.len();
            report.push(format!(
                "the settings keep no rounds: those of before are removed, {bytes} B in {files} \
                 files"
            ));
        }
        Ok((archive, report))
    }

    fn load(&mut self, numbers: &[u64], report: &mut Vec<String>) -> Result<(), MixProxyError> {
        let mut torn = Vec::new();
        for number in numbers {
            self.folder.check(&self.name(*number))?;
            let path = self.path(*number);
            let failed = |source| StateFileError::Io { path: path.clone(), source };
            let bytes = fs::read(&path).map_err(failed)?;
            let written = fs::metadata(&path).and_then(|file| file.modified()).map_err(failed)?;
            let is_last = numbers.last() == Some(number);
            let end = self.index.load(*number, &bytes, since_1970_s(written), is_last);
            let end = end.map_err(|error| MixProxyError::Stored {
                path: path.clone(),
                reason: format!(
                    "{error}; correct `name` or `administrator`, or move {}* to another directory",
                    self.prefix
                ),
            })?;
            let (name, len) = (path.display(), bytes.len() as u64);
            match end {
                SegmentEnd::Whole => {}
                SegmentEnd::Torn { used } if used == len => torn.push((*number, used)),
                SegmentEnd::Torn { used } => {
                    torn.push((*number, used));
                    let cut = len - used;
                    report.push(format!(
                        "{name}: its last {cut} B are cut off, which are of a write that was \
                         interrupted"
                    ));
                }
                SegmentEnd::Unreadable { used } => {
                    let left = len - used;
                    report.push(format!(
                        "{name}: its last {left} B cannot be read, and members do not get the \
                         rounds in them. The file stays as it is until its rounds are too old. If \
                         there is a copy of it, stop the proxy and replace it"
                    ));
                }
            }
        }
        for (number, used) in torn {
            let path = self.path(number);
            self.cut(number, used).map_err(|source| StateFileError::Io { path, source })?;
        }
        Ok(())
    }

    /// Removes these segments. Returns how many bytes they had.
    fn remove_all(&self, numbers: &[u64]) -> Result<u64, StateFileError> {
        let mut bytes = 0;
        for number in numbers {
            self.folder.check(&self.name(*number))?;
            let path = self.path(*number);
            let removed = fs::metadata(&path).and_then(|file| {
                bytes += file.len();
                fs::remove_file(&path)
            });
            removed.map_err(|source| StateFileError::Io { path, source })?;
        }
        Ok(bytes)
    }

    /// Appends a record, so that it survives a crash. Returns whether it is kept, and what there is
    /// to log: an error if there was none with the last record.
    pub(super) fn append(
        &mut self,
        now: Duration,
        record: ArchiveRecord,
    ) -> (bool, Option<String>) {
        let now_s = since_1970_s(SystemTime::now());
        if !self.index.is_next(&record) {
            return (false, None);
        }
        let Some(append) = self.index.append(now_s, record) else { return (true, None) };
        let written = self.write(&append);
        let is_written = written.is_ok();
        let failure = match written {
            Ok(()) => {
                self.failure = None;
                None
            }
            Err(error) => {
                self.index.handle_not_written();
                self.file = None;
                // If that fails, it is tried again before the next record is written.
                let _ = self.cut_torn();
                let why = format!("{}: {error}", self.path(append.segment).display());
                let is_first = self.failure.is_none();
                let since = self.failure.as_ref().map_or(now, |(since, _)| *since);
                self.failure = Some((since, why.clone()));
                is_first.then(|| format!("rounds are not kept for members that are away: {why}"))
            }
        };
        // Even on a full disk, which has more space afterwards.
        let not_removed = self.remove_oldest(now_s);
        (is_written, failure.or(not_removed))
    }

    fn write(&mut self, append: &ArchiveAppend) -> io::Result<()> {
        self.cut_torn()?;
        let number = append.segment;
        if self.file.as_ref().is_none_or(|(open, _)| *open != number) {
            let mut options = OpenOptions::new();
            let file = options.create(true).append(true).mode(0o600).open(self.path(number))?;
            self.file = Some((number, file));
        }
        self.torn = Some((number, append.start));
        if let Some((_, file)) = &mut self.file {
            file.write_all(&append.bytes)?;
            file.sync_data()?;
        }
        if append.start == 0 {
            File::open(self.folder.path())?.sync_all()?;
        }
        self.torn = None;
        Ok(())
    }

    /// Cuts off what was written of a record that could not be written.
    fn cut_torn(&mut self) -> io::Result<()> {
        if let Some((number, len)) = self.torn {
            self.cut(number, len)?;
            self.torn = None;
        }
        Ok(())
    }

    /// Cuts a segment to a length, or removes it if that is 0.
    fn cut(&self, number: u64, len: u64) -> io::Result<()> {
        let path = self.path(number);
        if len == 0 {
            return remove_if_there(&path);
        }
        match OpenOptions::new().write(true).open(path) {
            Ok(file) => file.set_len(len).and_then(|()| file.sync_all()),
            // It was too old meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes the segments that are too old or too many. Returns the error if there was none the
    /// last time.
    fn remove_oldest(&mut self, now_s: u64) -> Option<String> {
        while let Some(number) = self.index.poll_removal(now_s) {
            let path = self.path(number);
            if let Err(error) = remove_if_there(&path) {
                let is_first = !std::mem::replace(&mut self.is_removal_failing, true);
                let why = format!("old rounds cannot be removed: {}: {error}", path.display());
                return is_first.then_some(why);
            }
            self.index.handle_removed();
            self.is_removal_failing = false;
        }
        None
    }

    /// The next records for a member that has all rounds up to `after`, and whether they are the
    /// last. A record that cannot be read is missing.
    pub(super) fn past(
        &self,
        member: &IdentityPublicKey,
        after: RoundPosition,
    ) -> (bool, Vec<ArchiveRecord>) {
        let batch = self.index.batch(member, after);
        let records = batch.parts.into_iter().map(|part| match part {
            PastPart::Record(record) => record,
            PastPart::Stored { segment, place, position } => {
                let mut bytes = vec![0; place.len];
                let read = File::open(self.path(segment))
                    .and_then(|file| file.read_exact_at(&mut bytes, place.offset));
                let record = read.ok().and_then(|()| read_record(&bytes));
                record.unwrap_or(ArchiveRecord::Gap(position))
            }
        });
        (batch.is_last, records.collect())
    }

    /// What it contains.
    pub(super) fn status(&self) -> ArchiveStatus {
        ArchiveStatus {
            rounds: self.index.rounds(),
            bytes: self.index.bytes(),
            failure: self.failure.clone(),
        }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.path().join(self.name(number))
    }

    fn name(&self, number: u64) -> String {
        format!("{}{number:08}", self.prefix)
    }

    /// The numbers of the segments, in ascending order.
    fn numbers(&self) -> Result<Vec<u64>, StateFileError> {
        let failed = |source| StateFileError::Io { path: self.folder.path().to_owned(), source };
        let mut numbers = Vec::new();
        for entry in fs::read_dir(self.folder.path()).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(&self.prefix));
            numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }
}

fn since_1970_s(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
