//! The database of peers and their addresses: one file.
//!
//! What comes out of it is checked as what comes from the network is, and neither it nor what the
//! database keeps beside it may be in others' hands: whoever can write a journal there writes the
//! next answers. Calls read and write a few rows, and wait up to 5 s for other programs that do:
//! they are for threads that may wait.

mod rows;

use std::fs::OpenOptions;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use keys::trusted::{TrustError, TrustedFolder};
use rusqlite::{Connection, OpenFlags, TransactionBehavior, params};

use super::addresses::Addresses;
use super::message::Scheme;
use rows::read;

/// The most peers that are learnt.
pub const MAX_PEERS: u32 = 65_536;

/// How long a call waits for other programs that use the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// What a database of this program has as its application's number: "SNDD".
const APPLICATION: i64 = 0x534E_4444;

/// The version of the tables.
const VERSION: i64 = 1;

const TABLES: &str = "\
    CREATE TABLE peer (\
        host TEXT PRIMARY KEY NOT NULL, \
        source TEXT NOT NULL CHECK (source IN ('manual', 'hmac', 'ed25519')), \
        learnt_at INTEGER NOT NULL CHECK (learnt_at >= 0)\
    ) STRICT, WITHOUT ROWID; \
    CREATE TABLE channel (\
        peer TEXT NOT NULL REFERENCES peer (host) ON DELETE CASCADE, \
        place INTEGER NOT NULL CHECK (place BETWEEN 0 AND 15), \
        address TEXT NOT NULL, \
        PRIMARY KEY (peer, place), \
        UNIQUE (peer, address)\
    ) STRICT, WITHOUT ROWID;";

/// A row for each address, or one without for a peer that has none.
const ROWS: &str = "SELECT host, source, learnt_at, place, address \
    FROM peer LEFT JOIN channel ON channel.peer = peer.host";

/// The last second of the year 9999, after which dates are no longer written as we do.
const LAST_SECOND: u64 = 253_402_300_799;

/// Where addresses are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// From a person.
    Manual,
    /// From the peer itself, proven so.
    Learnt(Scheme),
}

impl Source {
    /// Its name, as in `manual` or `hmac`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::Learnt(scheme) => scheme.name(),
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Manual, Self::Learnt(Scheme::Hmac), Self::Learnt(Scheme::Ed25519)];
        all.into_iter().find(|source| source.name() == name)
    }
}

/// What is known of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The address that applications know it by.
    pub peer: IpAddr,
    /// Where it is reached.
    pub addresses: Addresses,
    /// Who says so.
    pub source: Source,
    /// Since when, to the second.
    pub learnt_at: SystemTime,
}

/// What was learnt of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Learnt {
    /// Where it is reached.
    pub addresses: Addresses,
    /// Where it was reached before, as far as that was known.
    pub before: Option<Addresses>,
}

impl Learnt {
    /// Whether other addresses were known before.
    pub fn has_changed(&self) -> bool {
        self.before.as_ref().is_some_and(|before| *before != self.addresses)
    }
}

/// Why the database does not give or take something.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be opened or made.
    #[error("cannot open it: {0}{advice}", advice = advice(.0))]
    File(#[from] io::Error),
    /// Others could change what is in it.
    #[error("not trusted: {0}")]
    Trust(#[from] TrustError),
    /// It is a database of something else.
    #[error("a database of another program; name another `file`")]
    Foreign,
    /// It is of a later version.
    #[error("written by a newer version of sunder; use that one, or another `file`")]
    Newer,
    /// It says something that cannot be.
    #[error("damaged: {what}; move the file away, and add again what was added by hand")]
    Damaged {
        /// What cannot be.
        what: String,
    },
    /// What was added by hand is not replaced by what was learnt.
    #[error(
        "{peer} was added by hand, which stays: sunder directory remove {peer} lets it be learnt"
    )]
    Manual {
        /// The peer.
        peer: IpAddr,
    },
    /// There is no room.
    #[error(
        "{MAX_PEERS} peers are known, and no more are learnt; sunder directory remove makes room"
    )]
    Full,
    /// The database itself fails.
    #[error("the database: {}", one_line(.0))]
    Database(#[from] rusqlite::Error),
}

/// What to do where a file cannot be opened.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound => "; its directory has to exist",
        ErrorKind::PermissionDenied => "; it has to belong to whom the proxy runs as",
        _ => "",
    }
}

fn one_line(error: &rusqlite::Error) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A database that is open.
#[derive(Debug)]
pub struct Store(Connection);

impl Store {
    /// Opens a database, or makes an empty one that none but its owner may read.
    ///
    /// # Errors
    /// When it cannot be opened or made, or is none of this version; when others could change it,
    /// or what the database keeps beside it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let path = trusted(path).map_err(known)?;
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        match made {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error.into()),
            _ => {}
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.execute_batch("PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF;")?;
        check(&mut connection)?;
        Ok(Self(connection))
    }

    /// What is known of a peer.
    ///
    /// # Errors
    /// When the database cannot be read, or what it says cannot be.
    pub fn find(&self, peer: IpAddr) -> Result<Option<Entry>, StoreError> {
        find(&self.0, peer)
    }

    /// All that is known, in the order of the peers' addresses.
    ///
    /// # Errors
    /// When the database cannot be read, or what it says cannot be.
    pub fn list(&self) -> Result<Vec<Entry>, StoreError> {
        let mut entries = read(&self.0, &format!("{ROWS} ORDER BY host, place"), None)?;
        entries.sort_by_key(|entry| entry.peer);
        Ok(entries)
    }

    /// Adds what a person says of a peer, in place of what was known of it, which is returned.
    ///
    /// # Errors
    /// When the database cannot be written, or what it says cannot be.
    pub fn add(
        &mut self,
        peer: IpAddr,
        addresses: &Addresses,
        now: SystemTime,
    ) -> Result<Option<Entry>, StoreError> {
        let change = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let before = find(&change, peer)?;
        put(&change, peer, addresses, Source::Manual, now)?;
        change.commit()?;
        Ok(before)
    }

    /// Adds what a peer has proven, in place of what was learnt of it before.
    ///
    /// # Errors
    /// When something was added by hand, or the database is full. When it cannot be written, or
    /// what it says cannot be.
    pub fn learn(
        &mut self,
        peer: IpAddr,
        addresses: Addresses,
        scheme: Scheme,
        now: SystemTime,
    ) -> Result<Learnt, StoreError> {
        let change = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let before = find(&change, peer)?;
        match &before {
            Some(entry) if entry.source == Source::Manual => {
                return Err(StoreError::Manual { peer });
            }
            None if count(&change)? >= MAX_PEERS.into() => return Err(StoreError::Full),
            _ => {}
        }
        put(&change, peer, &addresses, Source::Learnt(scheme), now)?;
        change.commit()?;
        Ok(Learnt { addresses, before: before.map(|entry| entry.addresses) })
    }

    /// Forgets a peer. Returns whether anything was known of it, be it right or damaged.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn remove(&mut self, peer: IpAddr) -> Result<bool, StoreError> {
        Ok(forget(&self.0, peer)?)
    }
}

/// What the database may keep beside its file: what it finds there when it is opened, it believes.
const COMPANION_SUFFIXES: [&str; 4] = ["", "-journal", "-wal", "-shm"];

/// Sees that nobody else can change the database at this path, or what belongs to it.
///
/// # Errors
/// When somebody can, or there is no such folder.
pub fn check_place(path: &Path) -> Result<(), TrustError> {
    trusted(path).map(drop)
}

/// The whole path of a file that nobody else can change. Names with a meaning of their own to
/// `SQLite` are none when they are whole.
fn trusted(path: &Path) -> Result<PathBuf, TrustError> {
    let (folder, name) = TrustedFolder::of(path)?;
    for end in COMPANION_SUFFIXES {
        let mut file = name.clone();
        file.push(end);
        folder.check_file(&file)?;
    }
    Ok(folder.path().join(name))
}

/// That there is no such folder is said as of any other file.
fn known(error: TrustError) -> StoreError {
    match error {
        TrustError::Unreadable { source, .. } => StoreError::File(source),
        error => error.into(),
    }
}

/// Sees that the database is whole and of this version, and gives an empty one its tables.
fn check(connection: &mut Connection) -> Result<(), StoreError> {
    if number(connection, "PRAGMA application_id")? == 0 {
        let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Another program may have made them meanwhile.
        let is_ours = number(&change, "PRAGMA application_id")? == APPLICATION;
        let is_empty = number(&change, "SELECT count(*) FROM sqlite_schema")? == 0;
        if is_empty && !is_ours {
            let numbers =
                format!("PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};");
            change.execute_batch(TABLES)?;
            change.execute_batch(&numbers)?;
        }
        change.commit()?;
    }
    if number(connection, "PRAGMA application_id")? != APPLICATION {
        return Err(StoreError::Foreign);
    }
    match number(connection, "PRAGMA user_version")? {
        VERSION => {}
        newer if newer > VERSION => return Err(StoreError::Newer),
        other => return Err(damaged(format!("version {other}"))),
    }
    let said: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if said == "ok" { Ok(()) } else { Err(damaged(said.replace('\n', " "))) }
}

fn number(connection: &Connection, query: &str) -> Result<i64, StoreError> {
    Ok(connection.query_row(query, [], |row| row.get(0))?)
}

fn count(connection: &Connection) -> Result<i64, StoreError> {
    number(connection, "SELECT count(*) FROM peer")
}

fn find(connection: &Connection, peer: IpAddr) -> Result<Option<Entry>, StoreError> {
    let query = format!("{ROWS} WHERE host = ?1 ORDER BY place");
    Ok(read(connection, &query, Some(peer))?.pop())
}

fn put(
    connection: &Connection,
    peer: IpAddr,
    addresses: &Addresses,
    source: Source,
    now: SystemTime,
) -> Result<(), StoreError> {
    forget(connection, peer)?;
    let host = peer.to_string();
    let since = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()).min(LAST_SECOND);
    let learnt_at = i64::try_from(since).unwrap_or(0);
    connection.execute(
        "INSERT INTO peer (host, source, learnt_at) VALUES (?1, ?2, ?3)",
        params![host, source.name(), learnt_at],
    )?;
    let mut insert =
        connection.prepare("INSERT INTO channel (peer, place, address) VALUES (?1, ?2, ?3)")?;
    for (place, address) in (0_i64..).zip(addresses.as_slice()) {
        insert.execute(params![host, place, address.to_string()])?;
    }
    Ok(())
}

/// Removes a peer, and with it its addresses.
fn forget(connection: &Connection, peer: IpAddr) -> Result<bool, rusqlite::Error> {
    let removed = connection.execute("DELETE FROM peer WHERE host = ?1", [peer.to_string()])?;
    Ok(removed > 0)
}

fn damaged(what: String) -> StoreError {
    StoreError::Damaged { what }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown};

    use tempfile::TempDir;

    use super::super::addresses::tests::{list, lists};
    use super::*;
    use proptest::prelude::*;

    fn open() -> (TempDir, Store) {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(&place.path().join("x.sqlite")).unwrap();
        (place, store)
    }

    fn again(place: &TempDir) -> Result<Store, StoreError> {
        Store::open(&place.path().join("x.sqlite"))
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn what_was_added_is_there_when_it_is_opened_again() {
        let (place, mut store) = open();
        let (one, two) = (list("192.0.2.1:1 198.51.100.1:2"), list("[2001:db8::1]:3"));
        assert_eq!(store.add(ip("192.0.2.1"), &one, at(5)).unwrap(), None);
        let learnt = store.learn(ip("2001:db8::1"), two.clone(), Scheme::Ed25519, at(6)).unwrap();
        assert_eq!(learnt, Learnt { addresses: two.clone(), before: None });
        drop(store);
        let store = again(&place).unwrap();
        let expected = [
            Entry {
                peer: ip("192.0.2.1"),
                addresses: one,
                source: Source::Manual,
                learnt_at: at(5),
            },
            Entry {
                peer: ip("2001:db8::1"),
                addresses: two,
                source: Source::Learnt(Scheme::Ed25519),
                learnt_at: at(6),
            },
        ];
        assert_eq!(store.list().unwrap(), expected);
        for entry in expected {
            assert_eq!(store.find(entry.peer).unwrap(), Some(entry));
        }
        assert_eq!(store.find(ip("192.0.2.2")).unwrap(), None);
    }

    #[test]
    fn the_file_is_its_owners_alone() {
        let (place, _store) = open();
        let mode = fs::metadata(place.path().join("x.sqlite")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    /// A journal that has `SQLite` put these pages in the place of the file's: "The Rollback
    /// Journal" in its description of the file format.
    fn journal_with(pages: &[u8]) -> Vec<u8> {
        const PAGE: usize = 4096;
        let count = u32::try_from(pages.len() / PAGE).unwrap();
        let mut journal = vec![0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
        for number in [count, 0, count, 512, PAGE.try_into().unwrap()] {
            journal.extend(u32::to_be_bytes(number));
        }
        journal.resize(512, 0);
        for (number, page) in (1_u32..).zip(pages.chunks_exact(PAGE)) {
            let sum: u32 = (1..=PAGE / 200).map(|i| u32::from(page[PAGE - 200 * i])).sum();
            journal.extend(number.to_be_bytes());
            journal.extend(page);
            journal.extend(sum.to_be_bytes());
        }
        journal
    }

    #[test]
    fn what_others_can_put_beside_the_file_is_not_believed() {
        let (place, mut store) = open();
        let (peer, forged) = (ip("192.0.2.1"), list("203.0.113.66:1 203.0.113.67:1"));
        store.add(peer, &forged, at(1)).unwrap();
        drop(store);
        let path = place.path().join("x.sqlite");
        let pages = fs::read(&path).unwrap();
        let true_ones = list("192.0.2.1:1 198.51.100.1:1");
        again(&place).unwrap().add(peer, &true_ones, at(2)).unwrap();
        let reached = || {
            let store = again(&place)?;
            Ok(store.find(peer)?.unwrap().addresses)
        };
        let forge = |owner: Option<u32>| {
            let journal = place.path().join("x.sqlite-journal");
            let _ = fs::remove_file(&journal);
            fs::write(&journal, journal_with(&pages)).unwrap();
            chown(&journal, owner, None).unwrap();
        };
        let allow = |mode| {
            fs::set_permissions(place.path(), fs::Permissions::from_mode(mode)).unwrap();
        };
        let refused = |found: Result<Addresses, StoreError>| {
            let error = found.expect_err("a forged journal is believed").to_string();
            assert!(error.contains("not trusted: ") && error.lines().count() == 1, "{error}");
        };
        // Everybody may make files there.
        allow(0o1777);
        forge(None);
        refused(reached());
        allow(0o755);
        if rustix::process::geteuid().is_root() {
            forge(Some(1000));
            refused(reached());
        }
        // What its owner has left there is put back, as after a crash.
        forge(None);
        assert_eq!(reached().unwrap(), forged);
    }

    #[test]
    fn what_was_added_by_hand_is_not_learnt_over() {
        let (_place, mut store) = open();
        let (peer, own, other) = (ip("192.0.2.1"), list("192.0.2.1:1"), list("192.0.2.1:2"));
        store.learn(peer, other.clone(), Scheme::Hmac, at(1)).unwrap();
        // A person may replace what was learnt, and what was added.
        let before = store.add(peer, &own, at(2)).unwrap().unwrap();
        assert_eq!(
            (before.addresses, before.source),
            (other.clone(), Source::Learnt(Scheme::Hmac))
        );
        assert!(store.add(peer, &own, at(3)).unwrap().is_some());
        for scheme in [Scheme::Hmac, Scheme::Ed25519] {
            let refused = store.learn(peer, other.clone(), scheme, at(4)).unwrap_err();
            assert!(matches!(refused, StoreError::Manual { .. }), "{refused}");
        }
        let entry = store.find(peer).unwrap().unwrap();
        assert_eq!((entry.addresses, entry.learnt_at), (own, at(3)));
        assert!(store.remove(peer).unwrap());
        assert!(store.learn(peer, other, Scheme::Hmac, at(5)).unwrap().before.is_none());
    }

    #[test]
    fn a_change_is_told() {
        let (_place, mut store) = open();
        let (peer, one, two) = (ip("192.0.2.1"), list("192.0.2.1:1"), list("192.0.2.1:2"));
        let mut learn = |addresses: &Addresses, seconds| {
            store.learn(peer, addresses.clone(), Scheme::Hmac, at(seconds)).unwrap()
        };
        assert!(!learn(&one, 1).has_changed());
        assert!(!learn(&one, 2).has_changed());
        let changed = learn(&two, 3);
        assert!(changed.has_changed());
        assert_eq!((changed.addresses, changed.before), (two, Some(one)));
        assert_eq!(store.find(peer).unwrap().unwrap().learnt_at, at(3));
    }

    #[test]
    fn a_peers_addresses_go_with_it() {
        let (_place, mut store) = open();
        store.add(ip("192.0.2.1"), &list("192.0.2.1:1 192.0.2.1:2"), at(1)).unwrap();
        store.add(ip("192.0.2.2"), &list("192.0.2.2:1"), at(1)).unwrap();
        assert!(store.remove(ip("192.0.2.1")).unwrap());
        assert!(!store.remove(ip("192.0.2.1")).unwrap());
        assert_eq!(number(&store.0, "SELECT count(*) FROM channel").unwrap(), 1);
        assert_eq!(store.list().unwrap().len(), 1);
    }

    #[test]
    fn a_full_database_learns_no_more() {
        let (_place, mut store) = open();
        let fill = format!(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {MAX_PEERS}) \
             INSERT INTO peer SELECT 'x' || i, 'manual', 0 FROM n"
        );
        store.0.execute_batch(&fill).unwrap();
        let learnt = store.learn(ip("192.0.2.1"), list("192.0.2.1:1"), Scheme::Hmac, at(1));
        assert!(matches!(learnt, Err(StoreError::Full)));
        store.add(ip("192.0.2.1"), &list("192.0.2.1:1"), at(1)).unwrap();
    }

    #[test]
    fn other_databases_are_left_alone() {
        let (place, store) = open();
        store.0.execute_batch("PRAGMA user_version = 2").unwrap();
        assert!(matches!(again(&place), Err(StoreError::Newer)));
        store.0.execute_batch("PRAGMA user_version = 0").unwrap();
        assert!(matches!(again(&place), Err(StoreError::Damaged { .. })));
        store.0.execute_batch("PRAGMA application_id = 7").unwrap();
        assert!(matches!(again(&place), Err(StoreError::Foreign)));
        store.0.execute_batch("PRAGMA application_id = 0").unwrap();
        assert!(matches!(again(&place), Err(StoreError::Foreign)));
    }

    #[test]
    fn what_is_no_database_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x.sqlite");
        fs::write(&path, "socks = \"127.0.0.1:1080\"\n".repeat(100)).unwrap();
        let refused = Store::open(&path).unwrap_err();
        assert!(matches!(refused, StoreError::Database(_)), "{refused}");
        let missing = Store::open(&place.path().join("no/x.sqlite")).unwrap_err().to_string();
        assert!(missing.ends_with("; its directory has to exist"), "{missing}");
        assert!(Store::open(place.path()).is_err());
    }

    /// Each page of the file in turn: an error, at the latest when it is read.
    #[test]
    fn a_file_that_was_overwritten_is_refused() {
        let (place, mut store) = open();
        for host in 1..=200 {
            let peer = IpAddr::from([192, 0, 2, host]);
            store.add(peer, &Addresses::new(vec![(peer, 1).into()]).unwrap(), at(1)).unwrap();
        }
        let good = store.list().unwrap();
        drop(store);
        let path = place.path().join("x.sqlite");
        let whole = fs::read(&path).unwrap();
        for page in 0..whole.len() / 4096 {
            let mut bytes = whole.clone();
            bytes[page * 4096..][..4096].fill(0xFF);
            fs::write(&path, bytes).unwrap();
            let read = again(&place).and_then(|store| store.list());
            assert!(!read.is_ok_and(|read| read != good), "page {page}");
        }
    }

    #[test]
    fn values_that_cannot_be_are_refused() {
        for (change, expected) in [
            ("UPDATE peer SET host = '192.0.2.01'", "is no address"),
            ("UPDATE peer SET host = 'example.org'", "is no address"),
            ("UPDATE peer SET host = '2001:DB8::1'", "is no address"),
            ("UPDATE peer SET source = 'rumour'", "which is no source"),
            ("UPDATE peer SET learnt_at = -1", "at no time"),
            ("UPDATE peer SET learnt_at = 253402300800", "at no time"),
            ("UPDATE peer SET learnt_at = 9223372036854775807", "at no time"),
            ("UPDATE channel SET address = 'x'", "has the address \"x\""),
            ("UPDATE channel SET address = '192.0.2.1:080' WHERE place = 0", "has the address"),
            ("UPDATE channel SET address = '192.0.2.1:0' WHERE place = 0", "one host and port"),
            ("UPDATE channel SET address = '224.0.0.1:1' WHERE place = 0", "one host and port"),
            ("UPDATE channel SET address = '192.0.2.1:2' WHERE place = 0", "there twice"),
            ("UPDATE channel SET place = 5 WHERE place = 0", "lacks an address"),
            ("DELETE FROM channel WHERE place = 0", "lacks an address"),
            ("DELETE FROM channel", "lacks an address"),
            ("UPDATE peer SET source = x'00'", "damaged"),
            ("UPDATE channel SET address = CAST(x'ff' AS TEXT) WHERE place = 0", "damaged"),
        ] {
            let (_place, mut store) = open();
            store.add(ip("192.0.2.1"), &list("192.0.2.1:1 192.0.2.1:2"), at(1)).unwrap();
            // As whoever writes to the file could: without the constraints.
            let loose = TABLES
                .replace("STRICT, ", "")
                .replace(" CHECK (source IN ('manual', 'hmac', 'ed25519'))", "")
                .replace(" CHECK (learnt_at >= 0)", "")
                .replace(", UNIQUE (peer, address)", "")
                .replace(" REFERENCES peer (host) ON DELETE CASCADE", "");
            let rewrite = format!(
                "CREATE TEMP TABLE p AS SELECT * FROM peer; \
                 CREATE TEMP TABLE c AS SELECT * FROM channel; \
                 DROP TABLE channel; DROP TABLE peer; {loose} \
                 INSERT INTO main.peer SELECT * FROM p; INSERT INTO main.channel SELECT * FROM c; \
                 {change}"
            );
            store.0.execute_batch(&rewrite).unwrap();
            let all = store.list().unwrap_err();
            assert!(matches!(all, StoreError::Damaged { .. }), "{change}: {all}");
            assert!(all.to_string().contains(expected), "{change}: {all}");
            assert_eq!(all.to_string().lines().count(), 1, "{change}: {all}");
            // A peer of another name is no longer found; else it is refused here too.
            if !change.contains("host") {
                assert!(store.find(ip("192.0.2.1")).is_err(), "{change}");
                assert!(
                    store.learn(ip("192.0.2.1"), list("192.0.2.1:1"), Scheme::Hmac, at(1)).is_err()
                );
                assert!(store.remove(ip("192.0.2.1")).unwrap());
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn any_list_comes_back(addresses in lists(), v4: u32, v6: u128, seconds in 0..=LAST_SECOND) {
            let (_place, mut store) = open();
            for peer in [IpAddr::V4(v4.into()), IpAddr::V6(v6.into())] {
                store.add(peer, &addresses, at(seconds)).unwrap();
                let entry = store.find(peer).unwrap().unwrap();
                prop_assert_eq!(&entry.addresses, &addresses);
                prop_assert_eq!((entry.peer, entry.learnt_at), (peer, at(seconds)));
            }
        }
    }
}
