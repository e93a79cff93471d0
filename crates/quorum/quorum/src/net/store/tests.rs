mod audit_log;
mod backup;
mod registry;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, UNIX_EPOCH};

use keys::KeyFileError;
use tempfile::TempDir;

use random::RandomGenerator;
use rusqlite::Connection;
use zeroize::Zeroizing;

use super::sealing_key::SealingKey;
use super::*;
use crate::log::{Height, LogIncarnation};
use crate::protocol::combination::{Label, ServerIndex};
use crate::protocol::group::GroupHeader;
use crate::protocol::policy::MessageDigest;
use crate::protocol::refresh::{DealingRound, RunItemName};
use crate::protocol::server::{ApprovalWait, EncodedShareList, GroupStart, SavedStateChange};
use crate::protocol::testing;
use crate::protocol::unix_seconds::UnixSeconds;
use crate::protocol::wire::Sha256Digest;

const NOW: SystemTime = UNIX_EPOCH;

/// Registers a message for a hundred seconds.
fn register(
    store: &mut QuorumStore,
    message: &[u8],
    now: u64,
) -> Result<MessageRegistration, QuorumStoreError> {
    let (now, until) = (UnixSeconds(now), UnixSeconds(now + 100));
    store.register(&RegistrationRequest { message, uid: Some(1000), now, until })
}

fn master(byte: u8) -> MasterKey {
    MasterKey::new(Zeroizing::new([byte; 32]))
}

/// What a server keeps in one epoch: an entry of the log, which is public, and its shares.
struct Epoch {
    number: u64,
    public: Vec<u8>,
    shares: EncodedShareList,
}

/// Fifteen shares of 300 random bytes, as a server of seven has.
fn epoch(number: u64) -> Epoch {
    let shares = (0..15).map(|label| (Label(label), random(300)));
    Epoch { number, public: b"public".repeat(100), shares: shares.collect() }
}

fn random(len: usize) -> Zeroizing<Vec<u8>> {
    let mut bytes = Zeroizing::new(vec![0; len]);
    RandomGenerator::system().fill(&mut bytes).unwrap();
    bytes
}

fn save(store: &mut QuorumStore, changes: &[SavedStateChange]) -> Result<(), QuorumStoreError> {
    store.save(changes, &mut RandomGenerator::system(), NOW)
}

fn begin(store: &mut QuorumStore, epoch: &Epoch) -> Result<(), QuorumStoreError> {
    let entries = vec![epoch.public.clone().into()];
    let shares = SavedStateChange::Shares { epoch: epoch.number, shares: epoch.shares.clone() };
    save(store, &[shares, SavedStateChange::Applied { height: Height(epoch.number), entries }])
}

fn end(store: &mut QuorumStore, epoch: u64) {
    save(store, &[SavedStateChange::End { epoch }]).unwrap();
}

fn load(store: &QuorumStore, number: u64) -> Option<Epoch> {
    let mut saved = store.saved().unwrap();
    let shares = saved.shares.remove(&number)?;
    let entry = saved.entries.into_iter().find(|(height, _)| height.0 == number);
    Some(Epoch { number, public: entry.unwrap().1.into(), shares })
}

fn open(place: &TempDir) -> Result<QuorumStore, QuorumStoreError> {
    QuorumStore::open(place.path(), master(1), NOW)
}

fn with_epoch(place: &TempDir, number: u64) -> (QuorumStore, Epoch) {
    let (mut store, epoch) = (open(place).unwrap(), epoch(number));
    begin(&mut store, &epoch).unwrap();
    (store, epoch)
}

/// The content of all files below a directory.
fn files(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files = Vec::new();
    for path in entries {
        let content = fs::read(&path).unwrap();
        files.push((path, content));
    }
    files
}

/// The windows of 16 bytes that occur in the files.
fn windows(directory: &Path) -> BTreeSet<[u8; 16]> {
    let files = files(directory);
    let windows = files.iter().flat_map(|(_, content)| content.windows(16));
    windows.map(|window| window.try_into().unwrap()).collect()
}

/// How many of the 16-byte pieces of `secret` occur among the windows.
fn found(secret: &[u8], windows: &BTreeSet<[u8; 16]>) -> usize {
    secret.as_chunks::<16>().0.iter().filter(|piece| windows.contains(*piece)).count()
}

fn assert_same(kept: &Epoch, epoch: &Epoch) {
    assert_eq!((kept.number, &kept.public), (epoch.number, &epoch.public));
    assert!(kept.shares == epoch.shares);
}

#[test]
fn shares_survive_a_restart() {
    let place = TempDir::new().unwrap();
    let (store, epoch) = with_epoch(&place, 7);
    assert_same(&load(&store, 7).unwrap(), &epoch);
    assert!(load(&store, 8).is_none());
    drop(store);
    let store = open(&place).unwrap();
    assert_eq!(store.epochs().unwrap(), [7]);
    assert_same(&load(&store, 7).unwrap(), &epoch);
}

#[test]
fn no_file_has_a_share_in_clear() {
    let place = TempDir::new().unwrap();
    let (store, epoch) = with_epoch(&place, 1);
    let windows = windows(place.path());
    assert!(found(&epoch.public, &windows) > 0, "the scan finds what is in the clear");
    for (_, share) in &epoch.shares {
        assert_eq!(found(share, &windows), 0);
    }
    drop(store);
    for (path, _) in files(place.path()) {
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o077, 0, "{path:?}");
    }
}

#[test]
fn after_an_epoch_the_files_have_neither_ciphertexts_nor_key() {
    let place = TempDir::new().unwrap();
    let (mut store, _) = with_epoch(&place, 1);
    let next = epoch(2);
    begin(&mut store, &next).unwrap();
    let key = fs::read(place.path().join("epoch-1.key")).unwrap();
    let sealed: Vec<Vec<u8>> = {
        let mut statement =
            store.connection.prepare("SELECT sealed FROM share WHERE epoch = 1").unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let before = windows(place.path());
    assert!(sealed.iter().chain([&key]).all(|secret| found(secret, &before) > 0));

    // The file's blocks are still reachable through this handle when its name is gone.
    let mut handle = File::open(place.path().join("epoch-1.key")).unwrap();
    end(&mut store, 1);
    let after = windows(place.path());
    for secret in &sealed {
        assert_eq!(found(secret, &after), 0);
    }
    assert_eq!(found(&key[8..], &after), 0);
    let mut overwritten = Vec::new();
    std::io::Read::read_to_end(&mut handle, &mut overwritten).unwrap();
    assert_eq!(overwritten, vec![0; key.len()]);
    assert_same(&load(&store, 2).unwrap(), &next);
    // Again, as after a crash: nothing happens.
    let last = store.audit().last().clone();
    end(&mut store, 1);
    assert_eq!(*store.audit().last(), last);
}

#[test]
fn a_crash_between_the_files_is_repaired() {
    let place = TempDir::new().unwrap();
    let (store, epoch) = with_epoch(&place, 3);
    // Before the rows of an epoch are written, and after those of another were deleted.
    for number in [2, 4] {
        let (of, mut generator) = (SealingKeyScope::Epoch(number), RandomGenerator::system());
        SealingKey::create(place.path(), of, &master(1), &mut generator).unwrap();
    }
    drop(store);
    let store = open(&place).unwrap();
    assert_eq!(sealing_key::list(place.path()).unwrap(), [SealingKeyScope::Epoch(3)]);
    assert_same(&load(&store, 3).unwrap(), &epoch);
}

/// Two runs with an item each, of which the first also has a dealing that was replaced.
fn with_items(store: &mut QuorumStore) -> [Zeroizing<Vec<u8>>; 3] {
    let secrets = [random(64), random(200), random(64)];
    let item = |run, item, bytes: &Zeroizing<Vec<u8>>| SavedStateChange::Item {
        run: Sha256Digest([run; 32]),
        item,
        bytes: bytes.clone(),
    };
    let dealing = RunItemName::Dealing(ServerIndex(2), DealingRound(1));
    save(store, &[item(1, RunItemName::Seed(DealingRound(0)), &secrets[0])]).unwrap();
    save(store, &[item(1, dealing, &random(10)), item(2, RunItemName::Shares, &secrets[2])])
        .unwrap();
    save(store, &[item(1, dealing, &secrets[1])]).unwrap();
    secrets
}

#[test]
fn items_of_runs_survive_a_restart_and_are_wiped_with_their_keys() {
    let place = TempDir::new().unwrap();
    let (mut store, _) = with_epoch(&place, 1);
    let secrets = with_items(&mut store);
    let sealed: Vec<Vec<u8>> = {
        let query = "SELECT sealed FROM item WHERE run = ?1";
        let mut statement = store.connection.prepare(query).unwrap();
        let rows = statement.query_map([[1; 32]], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let key_path = place.path().join(format!("run-{}.key", "01".repeat(32)));
    let key = fs::read(&key_path).unwrap();
    let before = windows(place.path());
    assert!(secrets.iter().all(|secret| found(secret, &before) == 0));
    assert!(sealed.iter().chain([&key]).all(|bytes| found(bytes, &before) > 0));
    drop(store);
    let mut store = open(&place).unwrap();
    let saved = store.saved().unwrap();
    let first = &saved.items[&Sha256Digest([1; 32])];
    assert_eq!(first.len(), 2);
    assert!(first[&RunItemName::Seed(DealingRound(0))] == secrets[0]);
    assert!(first[&RunItemName::Dealing(ServerIndex(2), DealingRound(1))] == secrets[1]);
    assert!(saved.items[&Sha256Digest([2; 32])][&RunItemName::Shares] == secrets[2]);

    let mut handle = File::open(&key_path).unwrap();
    save(&mut store, &[SavedStateChange::EraseRun { run: Sha256Digest([1; 32]) }]).unwrap();
    let after = windows(place.path());
    assert!(sealed.iter().all(|sealed| found(sealed, &after) == 0));
    assert_eq!(found(&key[8..], &after), 0);
    let mut overwritten = Vec::new();
    std::io::Read::read_to_end(&mut handle, &mut overwritten).unwrap();
    assert_eq!(overwritten, vec![0; key.len()]);
    let runs: Vec<Sha256Digest> = store.saved().unwrap().items.into_keys().collect();
    assert_eq!(runs, [Sha256Digest([2; 32])]);
}

#[test]
fn a_voting_key_is_wiped_when_it_is_replaced_and_when_its_epoch_ends() {
    let place = TempDir::new().unwrap();
    let (mut store, _) = with_epoch(&place, 1);
    let secrets = [1, 2].map(|_| Zeroizing::new(RandomGenerator::system().array::<32>().unwrap()));
    let life = LogIncarnation([8; 32]);
    let keep = |store: &mut QuorumStore, secret: &Zeroizing<[u8; 32]>, life| {
        save(store, &[SavedStateChange::Voting { epoch: 1, life, secret: secret.clone() }])
            .unwrap();
    };
    let path = place.path().join("voting-1.key");
    let sealed = |store: &QuorumStore| -> Vec<u8> {
        let query = "SELECT sealed FROM voting";
        store.connection.query_row(query, [], |row| row.get(0)).unwrap()
    };
    keep(&mut store, &secrets[0], None);
    assert!(store.saved().unwrap().voting[&1] == (None, secrets[0].clone()));
    let first = [fs::read(&path).unwrap(), sealed(&store)];
    keep(&mut store, &secrets[1], Some(life));
    let second = [fs::read(&path).unwrap(), sealed(&store)];
    let before = windows(place.path());
    assert!(secrets.iter().all(|secret| found(&secret[..], &before) == 0));
    assert!(first.iter().all(|bytes| found(&bytes[8..], &before) == 0));
    assert!(second.iter().all(|bytes| found(bytes, &before) > 0));
    drop(store);
    let mut store = open(&place).unwrap();
    assert!(store.saved().unwrap().voting[&1] == (Some(life), secrets[1].clone()));

    let mut handle = File::open(&path).unwrap();
    end(&mut store, 1);
    let after = windows(place.path());
    assert!(second.iter().all(|bytes| found(&bytes[8..], &after) == 0));
    let mut overwritten = Vec::new();
    std::io::Read::read_to_end(&mut handle, &mut overwritten).unwrap();
    assert_eq!(overwritten, vec![0; second[0].len()]);
    assert!(store.saved().unwrap().voting.is_empty());
}

/// Stores of versions without Ed25519 keys have refused the voting key of epoch 0.
#[test]
fn a_store_of_an_earlier_version_gets_a_voting_key_of_epoch_0() {
    let place = TempDir::new().unwrap();
    let (mut store, _) = with_epoch(&place, 1);
    let voting = |epoch, byte| SavedStateChange::Voting {
        epoch,
        life: None,
        secret: Zeroizing::new([byte; 32]),
    };
    save(&mut store, &[voting(1, 1)]).unwrap();
    let before = "ALTER TABLE voting RENAME TO new; \
        CREATE TABLE voting (epoch INTEGER PRIMARY KEY NOT NULL CHECK (epoch > 0), \
            life BLOB CHECK (length(life) = 32), sealed BLOB NOT NULL) STRICT; \
        INSERT INTO voting SELECT * FROM new; DROP TABLE new;";
    store.connection.execute_batch(before).unwrap();
    assert!(save(&mut store, &[voting(0, 2)]).is_err());
    for _ in 0..2 {
        drop(store);
        store = open(&place).unwrap();
        save(&mut store, &[voting(0, 2)]).unwrap();
    }
    let kept = store.saved().unwrap().voting;
    let secrets: Vec<_> = kept.values().map(|(_, secret)| secret[0]).collect();
    assert_eq!(secrets, [2, 1]);
}

/// A crash in between leaves a key that was replaced: it is lost, and the server draws another one.
#[test]
fn a_voting_key_without_its_file_is_lost() {
    let place = TempDir::new().unwrap();
    let (mut store, _) = with_epoch(&place, 1);
    let secret = Zeroizing::new([5; 32]);
    save(&mut store, &[SavedStateChange::Voting { epoch: 1, life: None, secret }]).unwrap();
    drop(store);
    let (of, mut generator) = (SealingKeyScope::Voting(1), RandomGenerator::system());
    SealingKey::create(place.path(), of, &master(1), &mut generator).unwrap();
    assert!(open(&place).unwrap().saved().unwrap().voting.is_empty());
    sealing_key::destroy(place.path(), of).unwrap();
    assert!(open(&place).unwrap().saved().unwrap().voting.is_empty());
}

#[test]
fn changes_are_kept_together_or_not_at_all() {
    let place = TempDir::new().unwrap();
    let (mut store, kept) = with_epoch(&place, 1);
    let run = Sha256Digest([1; 32]);
    let applied = |height: u64| SavedStateChange::Applied {
        height: Height(height),
        entries: vec![height.to_be_bytes().to_vec().into()],
    };
    // The last change is refused, after new keys were made for the others.
    let refused = [
        applied(2),
        SavedStateChange::Item { run, item: RunItemName::SessionKey, bytes: random(32) },
        SavedStateChange::Shares { epoch: 2, shares: epoch(2).shares },
        SavedStateChange::End { epoch: 1 },
        SavedStateChange::Shares { epoch: 2, shares: epoch(2).shares },
    ];
    let error = save(&mut store, &refused).unwrap_err();
    assert!(matches!(error, QuorumStoreError::EpochExists { number: 2 }), "{error}");
    assert_same(&load(&store, 1).unwrap(), &kept);
    drop(store);
    let mut store = open(&place).unwrap();
    let saved = store.saved().unwrap();
    assert_eq!((saved.height, saved.entries.len()), (Height(1), 1));
    assert!(saved.items.is_empty() && saved.start.is_none());
    assert_eq!(saved.shares.into_keys().collect::<Vec<_>>(), [1]);
    assert_eq!(sealing_key::list(place.path()).unwrap(), [SealingKeyScope::Epoch(1)]);
    save(&mut store, &[applied(2), applied(3)]).unwrap();
    let saved = store.saved().unwrap();
    let heights: Vec<u64> = saved.entries.iter().map(|(height, _)| height.0).collect();
    assert_eq!((saved.height, heights), (Height(3), vec![1, 2, 3]));
}

#[test]
fn the_last_approval_that_waits_is_kept() {
    let place = TempDir::new().unwrap();
    let mut store = open(&place).unwrap();
    assert_eq!(store.saved().unwrap().approval, None);
    let wait =
        |run| ApprovalWait { epoch: 1, run, withdrawn: 2, since: UnixSeconds(1_800_000_000) };
    for run in [1, u32::MAX] {
        save(&mut store, &[SavedStateChange::ApprovalWaits(wait(run))]).unwrap();
    }
    drop(store);
    assert_eq!(open(&place).unwrap().saved().unwrap().approval, Some(wait(u32::MAX)));
}

#[test]
fn a_start_takes_the_place_of_the_entries_before_it() {
    let place = TempDir::new().unwrap();
    let mut store = open(&place).unwrap();
    let start = GroupStart {
        height: Height(2),
        ..GroupStart::first(
            GroupHeader::first(testing::group(1, 0), vec![None; 4], Sha256Digest([3; 32]), None),
            Vec::new(),
        )
    };
    let applied = |height: u64| SavedStateChange::Applied {
        height: Height(height),
        entries: vec![height.to_be_bytes().to_vec().into(); 2],
    };
    save(&mut store, &[applied(1), applied(2), applied(3)]).unwrap();
    save(&mut store, &[SavedStateChange::Start(start.clone())]).unwrap();
    let saved = store.saved().unwrap();
    assert_eq!((saved.start.as_ref(), saved.height), (Some(&start), Height(3)));
    assert_eq!(saved.entries.len(), 2);
    let later = GroupStart { height: Height(9), ..start };
    save(&mut store, &[SavedStateChange::Start(later)]).unwrap();
    drop(store);
    let saved = open(&place).unwrap().saved().unwrap();
    assert_eq!((saved.height, saved.entries.len()), (Height(9), 0));
}

#[test]
fn an_epoch_begins_once() {
    let place = TempDir::new().unwrap();
    let (mut store, epoch) = with_epoch(&place, 1);
    let again = begin(&mut store, &epoch).unwrap_err();
    assert!(matches!(again, QuorumStoreError::EpochExists { number: 1 }));
    assert_same(&load(&store, 1).unwrap(), &epoch);
}

#[test]
fn another_master_key_opens_nothing() {
    let place = TempDir::new().unwrap();
    drop(with_epoch(&place, 1));
    let store = QuorumStore::open(place.path(), master(2), NOW).unwrap();
    let error = store.saved().err().unwrap();
    assert!(
        matches!(&error, QuorumStoreError::WrongMasterKey { of } if of == "epoch 1"),
        "{error}"
    );
}

#[test]
fn rows_that_were_exchanged_or_changed_are_refused() {
    let place = TempDir::new().unwrap();
    let (store, _) = with_epoch(&place, 1);
    let change = |text: &str| {
        store.connection.execute(text, []).unwrap();
        let error = store.saved().err().unwrap();
        assert!(matches!(error, QuorumStoreError::Damaged { .. }), "{error}");
    };
    change("UPDATE share SET sealed = (SELECT sealed FROM share WHERE label = 1) WHERE label = 0");
    change("UPDATE share SET sealed = x'00' WHERE label = 0");
    change("UPDATE share SET sealed = zeroblob(340) WHERE label = 0");
}

#[test]
fn a_store_is_one_process_at_a_time() {
    let place = TempDir::new().unwrap();
    let store = open(&place).unwrap();
    assert!(matches!(open(&place).unwrap_err(), QuorumStoreError::Locked { .. }));
    drop(store);
    open(&place).unwrap();
}

#[test]
fn a_store_that_others_can_change_is_refused() {
    let place = TempDir::new().unwrap();
    drop(with_epoch(&place, 1));
    let database = place.path().join("epochs.sqlite");
    fs::set_permissions(&database, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(matches!(open(&place).unwrap_err(), QuorumStoreError::Trust(_)));
    fs::set_permissions(&database, fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(open(&place).unwrap_err(), QuorumStoreError::Trust(_)));
}

#[test]
fn other_databases_are_refused() {
    let place = TempDir::new().unwrap();
    let database = place.path().join("epochs.sqlite");
    let made = Connection::open(&database).unwrap();
    made.execute_batch("CREATE TABLE other (a)").unwrap();
    assert!(matches!(open(&place).unwrap_err(), QuorumStoreError::Foreign { .. }));
    drop(made);
    fs::write(&database, "no database at all".repeat(100)).unwrap();
    let error = open(&place).unwrap_err();
    assert!(matches!(error, QuorumStoreError::Database { .. }), "{error}");
    let shown = database.canonicalize().unwrap().display().to_string();
    assert!(error.to_string().starts_with(&shown), "{error}");
}

#[test]
fn messages_are_registered_by_their_exact_bytes() {
    let place = TempDir::new().unwrap();
    let mut store = open(&place).unwrap();
    let digest = MessageDigest::of(b"release 1.0");
    assert!(!store.is_registered(digest).unwrap());
    assert!(register(&mut store, b"release 1.0", 0).unwrap().is_new);
    assert!(!register(&mut store, b"release 1.0", 0).unwrap().is_new);
    drop(store);
    let store = open(&place).unwrap();
    assert!(store.is_registered(digest).unwrap());
    assert!(!store.is_registered(MessageDigest::of(b"release 1.0\n")).unwrap());
    assert_eq!(store.registered_count().unwrap(), 1);
}

#[test]
fn the_oldest_registration_is_evicted() {
    let place = TempDir::new().unwrap();
    let mut store = open(&place).unwrap();
    let fill = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) \
                INSERT INTO message (digest) SELECT randomblob(32) FROM n";
    register(&mut store, b"first", 0).unwrap();
    register(&mut store, b"second", 0).unwrap();
    let rest = i64::try_from(MAX_REGISTERED).unwrap() - 2;
    store.connection.execute(fill, [rest]).unwrap();
    let registration = register(&mut store, b"last", 0).unwrap();
    assert_eq!(registration.evicted, Some(MessageDigest::of(b"first")));
    let is_registered = |text: &[u8]| store.is_registered(MessageDigest::of(text)).unwrap();
    assert!(!is_registered(b"first") && is_registered(b"second") && is_registered(b"last"));
    assert_eq!(store.registered_count().unwrap(), MAX_REGISTERED);
}

#[test]
fn a_master_key_is_its_owners() {
    let place = TempDir::new().unwrap();
    let path = place.path().join("master");
    fs::write(&path, "00".repeat(32)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let error = MasterKey::read(&path).unwrap_err().to_string();
    assert!(error.contains("decrypt the shares: chmod 600"), "{error}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let key = MasterKey::read(&path).unwrap();
    assert_eq!(format!("{key:?}"), "MasterKey(..)");
    let folder = || Some(place.path().to_owned());
    assert!(MasterKey::from_credential("master", folder()).is_ok());
    let missing = MasterKey::from_credential("other", folder()).unwrap_err();
    assert!(matches!(missing, MasterKeyError::Key(KeyFileError::Missing { .. })));
    let none = MasterKey::from_credential("master", None).unwrap_err().to_string();
    assert!(none.contains("LoadCredentialEncrypted=master"), "{none}");
}

#[test]
fn evidence_is_kept_once_and_recorded() {
    let place = TempDir::new().unwrap();
    let mut store = open(&place).unwrap();
    let server = ServerIndex(2);
    // Another process was killed while it wrote the evidence.
    fs::write(place.path().join("evidence-7-3.new"), "fir").unwrap();
    for evidence in [b"first", b"later"] {
        store.keep_evidence(7, server, evidence, UNIX_EPOCH).unwrap();
    }
    drop(store);
    let path = place.path().join("evidence-7-3");
    assert_eq!(fs::read(&path).unwrap(), b"first");
    assert!(!place.path().join("evidence-7-3.new").exists());
    assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    let log = fs::read_to_string(place.path().join("audit.log")).unwrap();
    assert_eq!(log.matches("\"event\":\"wrong-answer\"").count(), 1, "{log}");
    // The store recognises the file as its own.
    open(&place).unwrap();
}
