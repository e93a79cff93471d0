//! The files of a group's archive. The index decides what is written, removed and read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use keys::IdentityPublicKey;

use super::super::state::{StateFileError, StateFolder};
use crate::protocol::group::{
    ArchiveAppend, ArchiveIndex, MixGroupSettings, PastPart, read_record,
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
}

/// What an archive contains.
pub(super) struct ArchiveStatus {
    pub(super) rounds: usize,
    pub(super) bytes: u64,
    /// Since when and why nothing can be written.
    pub(super) failure: Option<(Duration, String)>,
}

impl RoundArchive {
    /// Reads the index of the archive from its files. What was written in part is cut off.
    ///
    /// # Errors
    /// When a file cannot be read or cut.
    pub(super) fn open(
        folder: Arc<StateFolder>,
        settings: MixGroupSettings,
    ) -> Result<Self, StateFileError> {
        let prefix = format!("{}.rounds.", settings.name);
        let is_kept = !settings.archive.keep.is_zero();
        let mut archive =
            Self { folder, prefix, index: ArchiveIndex::new(settings), file: None, failure: None };
        for number in archive.numbers()? {
            let (name, path) = (archive.name(number), archive.path(number));
            archive.folder.check(&name)?;
            let failed = |source| StateFileError::Io { path: path.clone(), source };
            let bytes = fs::read(&path).map_err(failed)?;
            let used = if is_kept { archive.index.load(number, &bytes) } else { 0 };
            if used == 0 {
                fs::remove_file(&path).map_err(failed)?;
            } else if used < bytes.len() {
                let file = OpenOptions::new().write(true).open(&path).map_err(failed)?;
                file.set_len(used as u64).and_then(|()| file.sync_all()).map_err(failed)?;
            }
        }
        Ok(archive)
    }

    /// Appends a record, so that it survives a crash. Returns whether it is kept, and the error if
    /// the last record was and this one is not.
    pub(super) fn append(
        &mut self,
        now: Duration,
        record: ArchiveRecord,
    ) -> (bool, Option<String>) {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now_s = since_1970.unwrap_or_default().as_secs();
        if !self.index.is_next(&record) {
            return (false, None);
        }
        let Some(append) = self.index.append(now_s, record) else { return (true, None) };
        match self.write(&append) {
            Ok(()) => {
                self.failure = None;
                (true, None)
            }
            Err(error) => {
                self.index.handle_not_written();
                self.file = None;
                let why = format!("{}: {error}", self.path(append.segment).display());
                let is_first = self.failure.is_none();
                let since = self.failure.as_ref().map_or(now, |(since, _)| *since);
                self.failure = Some((since, why.clone()));
                (false, is_first.then_some(why))
            }
        }
    }

    fn write(&mut self, append: &ArchiveAppend) -> io::Result<()> {
        let number = append.segment;
        if self.file.as_ref().is_none_or(|(open, _)| *open != number) {
            let path = self.path(number);
            let is_new = !path.exists();
            let mut options = OpenOptions::new();
            let file = options.create(true).append(true).mode(0o600).open(path)?;
            self.file = Some((number, file));
            if is_new {
                File::open(self.folder.path())?.sync_all()?;
            }
        }
        if let Some((_, file)) = &mut self.file {
            file.write_all(&append.bytes)?;
            file.sync_data()?;
        }
        for removed in &append.removed {
            match fs::remove_file(self.path(*removed)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use keys::IdentitySecretKey;
    use sha2::Digest as _;

    use super::*;
    use crate::MailboxShape;
    use crate::protocol::exchange::MixExchangeKind;
    use crate::protocol::group::ArchiveLimits;
    use crate::protocol::membership::{
        EpochAnnouncement, announcement_by_two, announcement_fixture,
    };
    use crate::protocol::round::{Participant, ReadRound};
    use crate::protocol::wire::{ArchivedRound, MixTerms};

    const DAY: Duration = Duration::from_secs(86_400);

    fn secret(number: u8) -> IdentitySecretKey {
        IdentitySecretKey::new(&[number; 32])
    }

    fn settings(keep: Duration) -> MixGroupSettings {
        let shape = MailboxShape::new(3, 1, 1, 3, 64).unwrap();
        let [interval, least] = [1000, 200].map(Duration::from_millis);
        let terms = MixTerms::new(MixExchangeKind::Broadcast, shape, interval, least).unwrap();
        MixGroupSettings {
            name: "friends".parse().unwrap(),
            administrator: secret(1).public(),
            terms: terms.with_keep(keep),
            audit_every_rounds: 0,
            archive: ArchiveLimits { keep, keep_bytes: 1 << 20 },
        }
    }

    fn round(epoch: u32, round: u64) -> ArchiveRecord {
        let participants = vec![Participant { member: 0, nonce: [7; 16] }];
        ArchiveRecord::Round(ArchivedRound {
            epoch,
            closed_s: 0,
            slots_per_member: 1,
            slot_len: 64,
            read: ReadRound { round, participants },
            mailbox: vec![u8::try_from(round % 256).unwrap(); 64],
        })
    }

    fn announcement(epoch: u32, members: &[u8]) -> ArchiveRecord {
        let members: Vec<_> = members.iter().map(|number| secret(*number).public()).collect();
        ArchiveRecord::Announcement(announcement_fixture(&secret(1), "friends", epoch, &members))
    }

    /// The rounds of the answer, and `None` for each gap.
    fn past(archive: &RoundArchive, member: u8, epoch: u32, round: u64) -> Vec<Option<u64>> {
        let (is_last, records) =
            archive.past(&secret(member).public(), RoundPosition { epoch, round });
        assert!(is_last);
        let number = |record: &ArchiveRecord| match record {
            ArchiveRecord::Gap(_) => Some(None),
            ArchiveRecord::Round(round) => Some(Some(round.read.round)),
            ArchiveRecord::Announcement(_) => None,
        };
        records.iter().filter_map(number).collect()
    }

    #[test]
    fn kept_rounds_survive_restarts_and_torn_writes() {
        let place = tempfile::tempdir().unwrap();
        let folder = Arc::new(StateFolder::open(&place.path().join("state")).unwrap());
        let open = || RoundArchive::open(folder.clone(), settings(DAY)).unwrap();
        let mut archive = open();
        let now = Duration::ZERO;
        let keep = |archive: &mut RoundArchive, record| {
            assert_eq!(archive.append(now, record), (true, None));
        };
        keep(&mut archive, announcement(1, &[1, 2]));
        (1..=3).for_each(|number| keep(&mut archive, round(1, number)));
        keep(&mut archive, announcement(2, &[1, 3]));
        (4..=5).for_each(|number| keep(&mut archive, round(2, number)));
        let check = |archive: &RoundArchive| {
            let of = |member, epoch, round| past(archive, member, epoch, round);
            assert_eq!(of(1, 1, 0), [1, 2, 3, 4, 5].map(Some));
            assert_eq!(of(1, 1, 2), [3, 4, 5].map(Some));
            assert_eq!(of(2, 1, 0), [1, 2, 3].map(Some), "it is no member any more");
            assert_eq!(of(3, 1, 0), [4, 5].map(Some), "it was no member before");
            assert_eq!(of(9, 1, 0), []);
        };
        check(&archive);
        let archive = open();
        check(&archive);
        // A part of a record remains of a write.
        let path = archive.path(1);
        let whole = fs::read(&path).unwrap();
        for cut in [whole.len() - 1, whole.len() - 100] {
            fs::write(&path, &whole[..cut]).unwrap();
            let mut archive = open();
            assert_eq!(past(&archive, 1, 1, 3), [Some(4)], "{cut}");
            keep(&mut archive, round(2, 6));
            assert_eq!(past(&open(), 1, 1, 3), [4, 6].map(Some));
            fs::write(&path, &whole).unwrap();
        }
        // Without an archive the files are removed.
        drop(RoundArchive::open(folder.clone(), settings(Duration::ZERO)).unwrap());
        assert!(!path.exists());
    }

    /// Two administrators have announced the same epoch, and the proxy has got the one that all
    /// choose later. Or one of them has changed the administrators, and its epoch has a smaller
    /// number.
    #[test]
    fn the_rounds_of_an_epoch_that_was_replaced_are_not_given_to_the_members_of_the_other() {
        let [one, other] = [[1, 2], [1, 3]].map(|members| announcement(3, &members));
        let digest = |record: &ArchiveRecord| sha2::Sha256::digest(bytes(record));
        // The smaller digest is chosen.
        let is_first = digest(&one) > digest(&other);
        let ((replaced, left), (chosen, joined)) =
            if is_first { ((one, 2), (other, 3)) } else { ((other, 3), (one, 2)) };
        let keys: Vec<_> = [1, joined].map(|number| secret(number).public()).to_vec();
        let by_two = announcement_by_two(&secret(1), "friends", 2, &keys);
        for chosen in [chosen, ArchiveRecord::Announcement(by_two)] {
            let place = tempfile::tempdir().unwrap();
            let folder = Arc::new(StateFolder::open(&place.path().join("state")).unwrap());
            let open = || RoundArchive::open(folder.clone(), settings(DAY)).unwrap();
            let mut archive = open();
            let mut keep = |record| assert!(archive.append(Duration::ZERO, record).0);
            let number = EpochAnnouncement::verify(bytes(&chosen), "friends", &secret(1).public());
            let number = number.unwrap().epoch();
            keep(announcement(1, &[1, 2, 3]));
            (1..=3).for_each(|at| keep(round(1, at)));
            keep(replaced.clone());
            (4..=5).for_each(|at| keep(round(3, at)));
            keep(chosen.clone());
            (6..=7).for_each(|at| keep(round(number, at)));
            // The proxy is started again, with the epoch that goes on.
            keep(chosen.clone());
            keep(round(number, 8));
            let check = |archive: &RoundArchive| {
                let of = |member| past(archive, member, 1, 1);
                assert_eq!(of(1), [2, 3, 6, 7, 8].map(Some));
                assert_eq!(of(left), [2, 3].map(Some), "it is no member any more");
                assert_eq!(of(joined), [2, 3, 6, 7, 8].map(Some));
                // Whoever has read rounds that were replaced.
                assert_eq!(past(archive, 1, number, 0), [6, 7, 8].map(Some));
                let after = RoundPosition { epoch: 1, round: 3 };
                let (_, records) = archive.past(&secret(1).public(), after);
                assert_eq!(records.first(), Some(&chosen), "with the members that take part");
            };
            check(&archive);
            drop(archive);
            let mut archive = open();
            check(&archive);
            assert_eq!(archive.append(Duration::ZERO, round(number, 9)), (true, None));
            assert_eq!(past(&open(), 1, number, 7), [8, 9].map(Some));
        }
    }

    /// A proxy was restored from an old state, and its archive was not.
    #[test]
    fn rounds_of_an_epoch_that_is_over_are_not_kept() {
        let place = tempfile::tempdir().unwrap();
        let folder = Arc::new(StateFolder::open(&place.path().join("state")).unwrap());
        let mut archive = RoundArchive::open(folder, settings(DAY)).unwrap();
        let mut append = |record| archive.append(Duration::ZERO, record);
        append(announcement(1, &[1, 2]));
        append(announcement(2, &[1, 2]));
        append(round(2, 5));
        append(announcement(1, &[1, 2]));
        assert_eq!(append(round(1, 3)), (false, None));
        append(announcement(2, &[1, 2]));
        assert_eq!(append(round(2, 6)), (true, None));
        assert_eq!(past(&archive, 1, 1, 0), [5, 6].map(Some));
    }

    /// A proxy was restored from an old state, and an administrator has announced an epoch there
    /// that another one, of the same number, had replaced.
    #[test]
    fn rounds_of_an_epoch_that_was_replaced_are_not_kept_with_the_members_of_the_other() {
        let [one, other] = [[1, 2], [1, 3]].map(|members| announcement(3, &members));
        let digest = |record: &ArchiveRecord| sha2::Sha256::digest(bytes(record));
        // The smaller digest is chosen.
        let (chosen, replaced) =
            if digest(&one) < digest(&other) { (one, other) } else { (other, one) };
        let place = tempfile::tempdir().unwrap();
        let folder = Arc::new(StateFolder::open(place.path()).unwrap());
        let mut archive = RoundArchive::open(folder.clone(), settings(DAY)).unwrap();
        let mut append = |record| archive.append(Duration::ZERO, record);
        append(announcement(2, &[1, 2, 3]));
        append(chosen.clone());
        append(round(3, 5));
        append(replaced.clone());
        assert_eq!(append(round(3, 6)), (false, None));
        append(chosen);
        assert_eq!(append(round(3, 7)), (true, None));
        // Nor after a restart.
        let mut archive = RoundArchive::open(folder, settings(DAY)).unwrap();
        let mut append = |record| archive.append(Duration::ZERO, record);
        append(replaced);
        assert_eq!(append(round(3, 8)), (false, None));
        append(announcement(4, &[1, 2]));
        assert_eq!(append(round(4, 9)), (true, None));
        assert_eq!(past(&archive, 1, 2, 0), [5, 7, 9].map(Some));
    }

    fn bytes(record: &ArchiveRecord) -> &[u8] {
        match record {
            ArchiveRecord::Announcement(bytes) => bytes,
            _ => panic!("an announcement"),
        }
    }

    #[test]
    fn rounds_that_cannot_be_written_are_a_gap() {
        let place = tempfile::tempdir().unwrap();
        let folder = Arc::new(StateFolder::open(&place.path().join("state")).unwrap());
        let mut archive = RoundArchive::open(folder, settings(DAY)).unwrap();
        let now = Duration::ZERO;
        archive.append(now, announcement(1, &[1, 2]));
        assert_eq!(archive.append(now, round(1, 1)), (true, None));
        // Directories are in the place of the next files.
        assert_eq!(archive.append(now, round(1, 2)), (true, None));
        archive.index.handle_not_written();
        archive.file = None;
        let blocked = [2, 3].map(|number| archive.path(number));
        for path in &blocked {
            fs::create_dir(path).unwrap();
        }
        let (is_kept, why) = archive.append(now, round(1, 3));
        assert!(!is_kept && why.unwrap().contains("friends.rounds.00000002"));
        assert_eq!(archive.append(now, round(1, 4)), (false, None), "reported once");
        assert!(archive.status().failure.is_some());
        for path in &blocked {
            fs::remove_dir(path).unwrap();
        }
        assert_eq!(archive.append(now, round(1, 5)), (true, None));
        assert!(archive.status().failure.is_none());
        assert_eq!(past(&archive, 2, 1, 0), [Some(1), None, Some(5)]);
    }
}
