//! The store of a quorum's server, with any file and any cell of its tables changed: it opens or
//! reports what is damaged, and no share or item is another than was saved.
#![no_main]

mod changes;

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use arbitrary::Arbitrary;
use changes::Changes;
use keys::IdentitySecretKey;
use libfuzzer_sys::fuzz_target;
use quorum::fuzzing::{open_log, share_files};
use quorum::group::GroupKeyAnchor;
use quorum::log::Height;
use quorum::policy::MessageDigest;
use quorum::refresh::{RefreshDelays, RunItemName};
use quorum::server::{
    GroupStart, QuorumServer, QuorumServerSettings, SavedServerState, SavedStateChange,
    SigningTimeouts,
};
use quorum::store::{MasterKey, QuorumStore, RegistrationRequest, audit};
use quorum::{Sha256Digest, UnixSeconds};
use random::RandomGenerator;
use rusqlite::Connection;
use tempfile::TempDir;

const NOW: SystemTime = SystemTime::UNIX_EPOCH;
const RUN: Sha256Digest = Sha256Digest([9; 32]);
const MESSAGE: &[u8] = b"message";

/// The files of a store, and what it has.
struct Example {
    files: Vec<(String, Vec<u8>)>,
    saved: SavedServerState,
    public: keys::RsaPublicKey,
}

static EXAMPLE: LazyLock<Example> = LazyLock::new(|| {
    let file = share_files().remove(0);
    let place = place();
    let mut store = QuorumStore::open(place.path(), master(), NOW).expect("an empty store");
    let item = |item| SavedStateChange::Item { run: RUN, item, bytes: vec![5; 40].into() };
    let changes = [
        SavedStateChange::Start(GroupStart::first(file.header.clone(), file.witnesses.clone())),
        SavedStateChange::Shares { epoch: 1, shares: file.shares.clone() },
        SavedStateChange::Applied { height: Height(3), entries: vec![b"entry".to_vec().into()] },
        item(RunItemName::SessionKey),
        item(RunItemName::Shares),
    ];
    store.save(&changes, &mut RandomGenerator::system(), NOW).expect("it is saved");
    let (now, until) = (UnixSeconds(0), UnixSeconds(100));
    let request = RegistrationRequest { message: MESSAGE, uid: Some(1000), now, until };
    store.register(&request).expect("it is registered");
    let saved = store.saved().expect("it is read");
    drop(store);
    let mut files = Vec::new();
    for entry in fs::read_dir(place.path()).expect("the store").flatten() {
        let name = entry.file_name().into_string().expect("a name");
        files.push((name, fs::read(entry.path()).expect("a file")));
    }
    files.sort();
    Example { files, saved, public: file.public().clone() }
});

#[derive(Arbitrary, Debug)]
enum Edit {
    File(u8, Changes),
    Remove(u8),
    /// The place of a cell, and its content.
    Blob(u8, Vec<u8>),
    Number(u8, i64),
    /// The same, from what was there.
    Cell(u8, Changes),
}

/// The cells of the tables.
const CELLS: [(&str, &str); 19] = [
    ("state", "start"),
    ("state", "height"),
    ("state", "newer"),
    ("entry", "height"),
    ("entry", "content"),
    ("epoch", "number"),
    ("share", "epoch"),
    ("share", "label"),
    ("share", "sealed"),
    ("item", "run"),
    ("item", "name"),
    ("item", "sealed"),
    ("message", "place"),
    ("message", "digest"),
    ("message", "expires"),
    ("message", "uid"),
    ("message", "len"),
    ("message", "content"),
    ("entry", "place"),
];

fuzz_target!(|input: (Vec<Edit>, Vec<u8>)| {
    let (changes, log) = input;
    let place = place();
    for (name, content) in &EXAMPLE.files {
        write(&place.path().join(name), content);
    }
    for change in changes.iter().take(4) {
        perform(change, place.path());
    }
    open_store(place.path());
    let _ = audit::verify(&log[..], Path::new("audit.log"));
    let path = place.path().join("log.sqlite");
    write(&path, &log);
    open_log(&path);
});

fn perform(change: &Edit, place: &Path) {
    let file =
        |number: &u8| place.join(&EXAMPLE.files[usize::from(*number) % EXAMPLE.files.len()].0);
    match change {
        Edit::File(number, changes) => {
            let path = file(number);
            if let Ok(content) = fs::read(&path) {
                write(&path, &changes.of(&content));
            }
        }
        Edit::Remove(number) => _ = fs::remove_file(file(number)),
        Edit::Blob(cell, content) => set(place, *cell, content),
        Edit::Number(cell, number) => set(place, *cell, number),
        Edit::Cell(cell, changes) => {
            let (table, column) = CELLS[usize::from(*cell) % CELLS.len()];
            let query = format!("SELECT CAST({column} AS BLOB) FROM {table} LIMIT 1");
            let before: rusqlite::Result<Vec<u8>> =
                open(place).and_then(|it| it.query_row(&query, [], |row| row.get(0)));
            if let Ok(before) = before {
                set(place, *cell, &changes.of(&before));
            }
        }
    }
}

/// Sets one cell, as far as the table allows it.
fn set(place: &Path, cell: u8, content: &dyn rusqlite::ToSql) {
    let (table, column) = CELLS[usize::from(cell) % CELLS.len()];
    let first = format!("SELECT {column} FROM {table} LIMIT 1");
    let update = format!("UPDATE {table} SET {column} = ?1 WHERE {column} IS ({first})");
    let _ = open(place).and_then(|it| it.execute(&update, [content]));
}

fn open(place: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(place.join("epochs.sqlite"))?;
    connection.execute_batch("PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF;")?;
    Ok(connection)
}

fn open_store(place: &Path) {
    let Ok(store) = QuorumStore::open(place, master(), NOW) else { return };
    let (_, _) = (store.registered(), store.registered_count());
    let (_, _, _) = (store.unused(), store.unused_registrations(2), store.next_expiry());
    let _ = store.registered_message(MessageDigest::of(MESSAGE));
    let Ok(saved) = store.saved() else { return };
    let shares = |saved: &SavedServerState| -> BTreeMap<_, Vec<u8>> {
        let mut all = BTreeMap::new();
        for (epoch, shares) in &saved.shares {
            all.extend(shares.iter().map(|(label, share)| ((*epoch, *label), share.to_vec())));
        }
        all
    };
    let before = shares(&EXAMPLE.saved);
    for (of, share) in shares(&saved) {
        assert_eq!(Some(&share), before.get(&of), "another share");
    }
    for (run, items) in &saved.items {
        for (item, bytes) in items {
            let before = EXAMPLE.saved.items.get(run).and_then(|items| items.get(item));
            assert_eq!(Some(&bytes[..]), before.map(|it| &it[..]), "another item");
        }
    }
    let second = Duration::from_secs(1);
    let settings = QuorumServerSettings {
        processors: 2,
        identity: Arc::new(IdentitySecretKey::new(&[1; 32])),
        anchor: GroupKeyAnchor::of(EXAMPLE.public.clone().into()),
        rules: Vec::new(),
        delays: RefreshDelays { need: second, grace: second, resend: second },
        timeouts: SigningTimeouts { sign: second, retry: second },
        refresh_every: None,
        approval_expires: Duration::from_secs(86_400),
        service: None,
    };
    if let Ok(mut server) = QuorumServer::new(settings, saved, HashSet::new(), Duration::ZERO) {
        while server
            .poll_output(Duration::ZERO, &mut RandomGenerator::system())
            .expect("random")
            .is_some()
        {}
    }
}

fn place() -> TempDir {
    let memory = PathBuf::from("/dev/shm");
    let place = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    place.expect("a place")
}

fn master() -> MasterKey {
    MasterKey::new([7; 32].into())
}

fn write(path: &Path, content: &[u8]) {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    std::io::Write::write_all(&mut file.expect("a file"), content).expect("memory");
}
