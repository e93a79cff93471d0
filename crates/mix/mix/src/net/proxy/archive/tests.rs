//! The archive's files after crashes, damage, wrong settings and full disks.

use std::env;
use std::process::Command;
use std::time::Instant;

use keys::IdentitySecretKey;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sha2::Digest as _;

use super::super::group::GroupRunner;
use super::super::workers::ProxyWorkers;
use super::super::{MixGroupConfig, MixProxyConfig};
use super::*;
use crate::MailboxShape;
use crate::protocol::exchange::MixExchangeKind;
use crate::protocol::group::{ArchiveLimits, MixGroup};
use crate::protocol::membership::{EpochAnnouncement, announcement_by_two, announcement_fixture};
use crate::protocol::round::{Participant, ReadRound};
use crate::protocol::wire::{ArchivedRound, MemberToProxy, MixTerms, framed};

const DAY: Duration = Duration::from_secs(86_400);

fn secret(number: u8) -> IdentitySecretKey {
    IdentitySecretKey::new(&[number; 32])
}

fn settings(keep: Duration) -> MixGroupSettings {
    settings_for(3, keep)
}

fn settings_for(members: usize, keep: Duration) -> MixGroupSettings {
    let shape = MailboxShape::new(members, 1, 1, 3, 64).unwrap();
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
    round_of(epoch, round, 1, [1, 64])
}

/// A round of so many participants, with so many slots of a length.
fn round_of(epoch: u32, round: u64, participants: u16, slots: [u16; 2]) -> ArchiveRecord {
    let participant = |member| Participant { member, nonce: [7; 16] };
    let [slots_per_member, slot_len] = slots;
    let len = [participants, slots_per_member, slot_len].map(usize::from).iter().product();
    ArchiveRecord::Round(ArchivedRound {
        epoch,
        closed_s: 0,
        slots_per_member,
        slot_len,
        read: ReadRound { round, participants: (0..participants).map(participant).collect() },
        mailbox: vec![u8::try_from(round % 256).unwrap(); len],
    })
}

/// A round after which a segment is full.
fn large(round: u64) -> ArchiveRecord {
    round_of(1, round, 1, [16, 4096])
}

/// The archive, which has nothing to report.
fn open(folder: &Arc<StateFolder>, settings: MixGroupSettings) -> RoundArchive {
    let (archive, report) = RoundArchive::open(folder.clone(), settings).unwrap();
    assert_eq!(report, [""; 0]);
    archive
}

/// The segments, with their bytes.
fn files(folder: &StateFolder) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder.path()).unwrap().map(Result::unwrap);
    let entries = entries.filter(|entry| entry.file_name().to_str().unwrap().contains(".rounds."));
    let mut files: Vec<_> = entries
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect();
    files.sort();
    files
}

fn len_of(files: &[(String, Vec<u8>)]) -> u64 {
    files.iter().map(|(_, bytes)| bytes.len() as u64).sum()
}

fn announcement(epoch: u32, members: &[u8]) -> ArchiveRecord {
    let members: Vec<_> = members.iter().map(|number| secret(*number).public()).collect();
    ArchiveRecord::Announcement(announcement_fixture(&secret(1), "friends", epoch, &members))
}

/// The rounds of the answer, and `None` for each gap.
fn past(archive: &RoundArchive, member: u8, epoch: u32, round: u64) -> Vec<Option<u64>> {
    let (mut after, mut all) = (RoundPosition { epoch, round }, Vec::new());
    loop {
        let (is_last, records) = archive.past(&secret(member).public(), after);
        for record in records {
            let (position, number) = match record {
                ArchiveRecord::Gap(position) => (position, None),
                ArchiveRecord::Round(round) => (round.position(), Some(round.read.round)),
                ArchiveRecord::Announcement(_) => continue,
            };
            assert!(position > after);
            after = position;
            all.push(number);
        }
        if is_last {
            return all;
        }
    }
}

#[test]
fn kept_rounds_survive_restarts_and_torn_writes() {
    let place = tempfile::tempdir().unwrap();
    let folder = Arc::new(StateFolder::open(&place.path().join("state")).unwrap());
    let mut archive = open(&folder, settings(DAY));
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
    let archive = open(&folder, settings(DAY));
    check(&archive);
    // A part of a record remains of a write.
    let path = archive.path(1);
    let whole = fs::read(&path).unwrap();
    let last = framed(&round(2, 5)).len();
    for missing in [1, 100, last - 10, last - 1] {
        fs::write(&path, &whole[..whole.len() - missing]).unwrap();
        let (mut archive, report) = RoundArchive::open(folder.clone(), settings(DAY)).unwrap();
        let cut = format!("rounds.00000001: its last {} B are cut off", last - missing);
        assert!(report.len() == 1 && report[0].contains(&cut), "{cut}: {report:?}");
        assert_eq!(fs::read(&path).unwrap(), whole[..whole.len() - last]);
        assert_eq!(past(&archive, 1, 1, 3), [Some(4)], "{missing}");
        keep(&mut archive, round(2, 6));
        assert_eq!(past(&open(&folder, settings(DAY)), 1, 1, 3), [4, 6].map(Some));
        fs::write(&path, &whole).unwrap();
    }
    // A part of its first record remains of the next segment, or nothing.
    for bytes in [&whole[..10], &[]] {
        fs::write(archive.path(2), bytes).unwrap();
        let (archive, report) = RoundArchive::open(folder.clone(), settings(DAY)).unwrap();
        assert_eq!(report.len(), usize::from(!bytes.is_empty()), "{report:?}");
        assert!(!archive.path(2).exists());
        check(&archive);
    }
    // Without an archive the files are removed.
    let (_, report) = RoundArchive::open(folder.clone(), settings(Duration::ZERO)).unwrap();
    assert!(report[0].contains(&format!("{} B in 1 files", whole.len())), "{report:?}");
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
        let open = || open(&folder, settings(DAY));
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
    let mut archive = open(&folder, settings(DAY));
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
    let mut archive = open(&folder, settings(DAY));
    let mut append = |record| archive.append(Duration::ZERO, record);
    append(announcement(2, &[1, 2, 3]));
    append(chosen.clone());
    append(round(3, 5));
    append(replaced.clone());
    assert_eq!(append(round(3, 6)), (false, None));
    append(chosen);
    assert_eq!(append(round(3, 7)), (true, None));
    // Nor after a restart.
    let mut archive = open(&folder, settings(DAY));
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
    let mut archive = open(&folder, settings(DAY));
    let now = Duration::ZERO;
    archive.append(now, announcement(1, &[1, 2]));
    assert_eq!(archive.append(now, round(1, 1)), (true, None));
    // A directory is in the place of the next file.
    assert_eq!(archive.append(now, round(1, 2)), (true, None));
    archive.index.handle_not_written();
    archive.file = None;
    let blocked = archive.path(2);
    fs::create_dir(&blocked).unwrap();
    let (is_kept, why) = archive.append(now, round(1, 3));
    assert!(!is_kept && why.unwrap().contains("friends.rounds.00000002"));
    assert_eq!(archive.append(now, round(1, 4)), (false, None), "reported once");
    assert!(archive.status().failure.is_some());
    fs::remove_dir(&blocked).unwrap();
    assert_eq!(archive.append(now, round(1, 5)), (true, None));
    assert!(archive.status().failure.is_none());
    assert_eq!(past(&archive, 2, 1, 0), [Some(1), None, Some(5)]);
}

/// The group was moved, and the settings of the new proxy are wrong.
#[test]
fn wrong_settings_leave_the_archive_as_it_is() {
    let config = |members: usize, administrator: u8| -> MixGroupConfig {
        let text = format!(
            "identity = \"k\"\nlisten = \"127.0.0.1:0\"\nstate = \"s\"\n[[group]]\n\
             name = \"friends\"\nadministrator = \"{}\"\nmembers = {members}",
            secret(administrator).public()
        );
        MixProxyConfig::from_toml(&text).unwrap().groups.remove(0)
    };
    let right = config(20, 1);
    let settings = MixGroupSettings {
        name: right.name.clone(),
        administrator: right.administrator,
        terms: right.terms,
        audit_every_rounds: right.audit_every_rounds,
        archive: right.archive,
    };
    let members: Vec<u8> = (1..=20).collect();
    let announced = announcement(1, &members);
    let mut group = MixGroup::new(settings.clone(), None, [1; 32]).unwrap();
    group.handle_connected(Duration::ZERO, 1, secret(1).public());
    let message = MemberToProxy::Announce(bytes(&announced).to_vec()).encode();
    group.handle_message(Duration::ZERO, 1, &message);
    let place = tempfile::tempdir().unwrap();
    let folder = Arc::new(StateFolder::open(&place.path().join("state")).unwrap());
    folder.replace("friends.group", &group.poll_store().unwrap()).unwrap();
    let mut archive = open(&folder, settings);
    assert!(archive.append(Duration::ZERO, announced).0);
    (1..=3).for_each(|at| assert!(archive.append(Duration::ZERO, round(1, at)).0));
    let before = files(&folder);
    let start = |config| GroupRunner::start(config, folder.clone(), ProxyWorkers::start().unwrap());
    for wrong in [config(16, 1), config(20, 2)] {
        let error = start(wrong).unwrap_err().to_string();
        assert!(error.contains("friends.group: it is not the state of this group"), "{error}");
        assert_eq!(files(&folder), before);
    }
    let group = start(right.clone()).unwrap();
    assert_eq!(group.status().kept.unwrap().rounds, 3);
    group.stop(Instant::now());
    // Only the rounds were moved.
    fs::remove_file(folder.path().join("friends.group")).unwrap();
    let error = start(config(20, 2)).unwrap_err().to_string();
    assert!(error.contains("friends.rounds.00000001: it is not"), "{error}");
    assert!(error.contains("correct `name` or `administrator`, or move friends.rounds.*"));
    assert_eq!(files(&folder), before);
    let group = start(right).unwrap();
    assert_eq!(group.status().kept.unwrap().rounds, 3);
    group.stop(Instant::now());
}

#[test]
fn rounds_of_more_members_than_there_may_be_now_are_kept_and_read() {
    let place = tempfile::tempdir().unwrap();
    let folder = Arc::new(StateFolder::open(&place.path().join("state")).unwrap());
    let mut archive = open(&folder, settings_for(9, DAY));
    let mut keep = |record| assert_eq!(archive.append(Duration::ZERO, record), (true, None));
    keep(announcement(1, &[1, 2, 3, 4, 5, 6, 7, 8, 9]));
    (1..=3).for_each(|at| keep(round_of(1, at, 9, [1, 64])));
    keep(announcement(2, &[1, 2]));
    (4..=5).for_each(|at| keep(round(2, at)));
    let before = files(&folder);
    let mut archive = open(&folder, settings_for(3, DAY));
    assert_eq!(files(&folder), before);
    assert_eq!(past(&archive, 1, 1, 0), [1, 2, 3, 4, 5].map(Some));
    assert_eq!(past(&archive, 9, 1, 0), [1, 2, 3].map(Some));
    assert_eq!(archive.append(Duration::ZERO, round(2, 6)), (true, None));
    assert_eq!(past(&open(&folder, settings(DAY)), 2, 1, 2), [3, 4, 5, 6].map(Some));
}

/// Those of a time in which slots were longer. A message that members accept has only one of them,
/// or not even one.
#[test]
fn rounds_that_are_too_long_for_members_are_one_gap() {
    let place = tempfile::tempdir().unwrap();
    let folder = Arc::new(StateFolder::open(&place.path().join("state")).unwrap());
    let mut archive = open(&folder, settings(DAY));
    let mut keep = |record| assert_eq!(archive.append(Duration::ZERO, record), (true, None));
    keep(announcement(1, &[1, 2]));
    keep(round(1, 1));
    (2..=4).for_each(|at| keep(round_of(1, at, 1, [64, 4096])));
    keep(large(5));
    keep(round(1, 6));
    assert_eq!(past(&archive, 1, 1, 0), [Some(1), None, Some(5), Some(6)]);
    let most = settings(DAY).terms.max_past_len();
    for number in 0..=6 {
        let after = RoundPosition { epoch: 1, round: number };
        let (_, records) = archive.past(&secret(1).public(), after);
        let len: usize = records.iter().map(|record| 4 + record.encode().len()).sum();
        assert!(len <= most, "{number}: {len} B");
    }
}

#[test]
fn bytes_that_cannot_be_read_stay_where_they_are() {
    let place = tempfile::tempdir().unwrap();
    let folder = Arc::new(StateFolder::open(&place.path().join("state")).unwrap());
    let mut archive = open(&folder, settings(DAY));
    let mut keep = |record| assert_eq!(archive.append(Duration::ZERO, record), (true, None));
    keep(announcement(1, &[1, 2]));
    for at in [1, 3, 5] {
        keep(round(1, at));
        keep(large(at + 1));
    }
    let whole = files(&folder);
    assert_eq!(whole.len(), 3);
    let expected: [(usize, bool, &[Option<u64>]); 5] = [
        // The last byte of a segment, or the first.
        (0, true, &[Some(1), None, Some(3), Some(4), Some(5), Some(6), Some(7)]),
        (0, false, &[None, Some(3), Some(4), Some(5), Some(6), Some(7)]),
        (1, false, &[Some(1), Some(2), None, Some(5), Some(6), Some(7)]),
        (2, true, &[Some(1), Some(2), Some(3), Some(4), Some(5), Some(7)]),
        (2, false, &[Some(1), Some(2), Some(3), Some(4), Some(7)]),
    ];
    for (segment, is_at_end, rounds) in expected {
        let mut damaged = whole.clone();
        let (name, content) = &mut damaged[segment];
        let at = if is_at_end { content.len() - 1 } else { 0 };
        content[at] ^= 1;
        fs::write(folder.path().join(&*name), content).unwrap();
        let (mut archive, report) = RoundArchive::open(folder.clone(), settings(DAY)).unwrap();
        assert!(report.len() == 1 && report[0].contains(&**name), "{report:?}");
        assert_eq!(files(&folder), damaged, "nothing is cut");
        assert_eq!(archive.status().bytes, len_of(&damaged));
        assert_eq!(archive.append(Duration::ZERO, round(1, 7)), (true, None));
        assert_eq!(past(&archive, 1, 1, 0), rounds, "{segment} {is_at_end}");
        assert_eq!(files(&folder)[..3], damaged, "nothing is appended to it");
        let now_s = since_1970_s(SystemTime::now());
        assert_eq!(archive.index.poll_removal(now_s), None);
        assert_eq!(archive.index.poll_removal(now_s + 2 * DAY.as_secs()), Some(1));
        for (name, content) in &whole {
            fs::write(folder.path().join(name), content).unwrap();
        }
        fs::remove_file(archive.path(4)).unwrap();
    }
}

/// Set in the process that has little space.
const HAS_LITTLE_SPACE: &str = "SUNDER_TEST_ARCHIVE_HAS_LITTLE_SPACE";

/// A limit on the length of files simulates a full disk, on which a record is written in part.
#[test]
fn a_full_disk_leaves_no_files() {
    if env::var_os(HAS_LITTLE_SPACE).is_none() {
        // The limit is that of a process, which otherwise ends with a signal.
        let child = Command::new("sh")
            .args(["-c", "trap '' XFSZ; exec \"$0\" --exact \"$1\""])
            .arg(env::current_exe().unwrap())
            .arg("net::proxy::archive::tests::a_full_disk_leaves_no_files")
            .env(HAS_LITTLE_SPACE, "1")
            .output()
            .unwrap();
        let [out, error] = [&child.stdout, &child.stderr].map(|it| String::from_utf8_lossy(it));
        assert!(child.status.success() && out.contains("1 passed"), "{out}{error}");
        return;
    }
    let limit = |len: Option<u64>| {
        let maximum = getrlimit(Resource::Fsize).maximum;
        setrlimit(Resource::Fsize, Rlimit { current: len.or(maximum), maximum }).unwrap();
    };
    let place = tempfile::tempdir().unwrap();
    let folder = Arc::new(StateFolder::open(&place.path().join("state")).unwrap());
    let mut archive = open(&folder, settings(DAY));
    let now = Duration::ZERO;
    for record in [announcement(1, &[1, 2]), round(1, 1)] {
        assert_eq!(archive.append(now, record), (true, None));
    }
    let before = files(&folder);
    // A part is appended to the segment, and then written to new ones.
    limit(Some(len_of(&before) + 30));
    let (is_kept, why) = archive.append(now, round(1, 2));
    assert!(!is_kept && why.unwrap().contains("friends.rounds.00000001: File too large"));
    limit(Some(100));
    for number in 3..20 {
        assert_eq!(files(&folder), before, "before round {number}");
        assert_eq!(archive.status().bytes, len_of(&before));
        assert_eq!(archive.append(now, round(1, number)), (false, None), "reported once");
        let (_, why) = archive.status().failure.unwrap();
        assert!(why.contains("friends.rounds.00000002: File too large"), "{why}");
    }
    limit(None);
    assert_eq!(archive.append(now, round(1, 20)), (true, None));
    let after = files(&folder);
    let names: Vec<_> = after.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["friends.rounds.00000001", "friends.rounds.00000002"]);
    for archive in [archive, open(&folder, settings(DAY))] {
        assert_eq!(archive.status().bytes, len_of(&after));
        assert_eq!(past(&archive, 2, 1, 0), [Some(1), None, Some(20)]);
    }
}

#[test]
fn old_rounds_that_cannot_be_removed_are_counted_and_removed_later() {
    let place = tempfile::tempdir().unwrap();
    let folder = Arc::new(StateFolder::open(&place.path().join("state")).unwrap());
    let mut archive = open(&folder, settings(DAY));
    let most = settings(DAY).archive.keep_bytes;
    archive.append(Duration::ZERO, announcement(1, &[1, 2]));
    let mut append = |number| archive.append(Duration::ZERO, large(number));
    assert_eq!(append(1), (true, None));
    // A directory is in the place of its first file.
    let first = folder.path().join("friends.rounds.00000001");
    fs::remove_file(&first).unwrap();
    fs::create_dir(&first).unwrap();
    let reports = (2..20).filter_map(|number| {
        let (is_kept, why) = append(number);
        assert!(is_kept);
        why
    });
    let reports: Vec<_> = reports.collect();
    assert_eq!(reports.len(), 1, "reported once: {reports:?}");
    assert!(reports[0].contains("friends.rounds.00000001"), "{reports:?}");
    assert!(archive.status().bytes > most);
    assert!(archive.status().failure.is_none());
    fs::remove_dir(&first).unwrap();
    assert_eq!(archive.append(Duration::ZERO, large(20)), (true, None));
    assert_eq!(archive.status().bytes, len_of(&files(&folder)));
    assert!(archive.status().bytes <= most);
}
