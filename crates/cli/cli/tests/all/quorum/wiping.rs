//! When an epoch has ended, nothing secret of it is left in the processes and files of its servers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::time::SystemTime;

use demo::memory_scan::SoughtSecrets;
use quorum::ceremony_files::read_share_file;
use quorum::links::QuorumLinks;
use quorum::refresh::RunItemName;
use quorum::server::SavedServerState;
use quorum::store::{MasterKey, QuorumStore};
use quorum::{
    CombinatorialSharing, Label, SEED_LEN, SecretInteger, ShareExpansionSeed, ShareRange,
};
use sha2::{Digest as _, Sha256};
use tokio::runtime::Runtime;

use super::group::{Group, Server, wait_until};

/// What is searched for, with a name for each.
#[derive(Default)]
struct Secrets(Vec<(String, Vec<u8>)>);

impl Secrets {
    fn add(&mut self, name: String, bytes: &[u8]) {
        self.0.push((name, bytes.to_vec()));
    }

    fn sought(&self) -> SoughtSecrets {
        SoughtSecrets::of(self.0.iter().map(|(_, bytes)| bytes))
    }

    fn names(&self, found: &BTreeSet<usize>) -> BTreeSet<String> {
        found.iter().map(|&place| self.0[place].0.clone()).collect()
    }

    /// What the memory of a server has.
    fn in_memory(&self, server: &Server) -> BTreeSet<String> {
        let scan = self.sought().search(&server.0.id().to_string()).unwrap();
        assert!(scan.sought == self.0.len() && scan.bytes > 1 << 20, "{} bytes", scan.bytes);
        self.names(&scan.found)
    }

    /// What the files in a directory have.
    fn in_files(&self, group: &Group, directory: &str) -> BTreeSet<String> {
        let (sought, mut found) = (self.sought(), BTreeSet::new());
        for entry in fs::read_dir(group.path(directory)).unwrap() {
            let file = File::open(entry.unwrap().path()).unwrap();
            let whole = [(0, file.metadata().unwrap().len())];
            found.extend(sought.search_file(&file, whole).found);
        }
        self.names(&found)
    }
}

/// What a server has saved, once it has an item of its part in the open run.
fn saved(
    group: &Group,
    number: usize,
    is_awaited: impl Fn(&RunItemName) -> bool,
) -> SavedServerState {
    let mut found = None;
    wait_until("the server saves its part in the run", || {
        let place = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(group.path(&format!("store-{number}"))).unwrap() {
            let path = entry.unwrap().path();
            // A journal may be gone.
            let _ = fs::copy(&path, place.path().join(path.file_name().unwrap()));
        }
        let master = MasterKey::read(&group.path("master.key")).unwrap();
        // The server may have been writing.
        let store = QuorumStore::open(place.path(), master, SystemTime::now()).ok();
        let saved = store.and_then(|store| store.saved().ok());
        let has_item =
            |saved: &SavedServerState| saved.items.values().any(|it| it.keys().any(&is_awaited));
        found = saved.filter(has_item);
        found.is_some()
    });
    found.unwrap()
}

/// HMAC-SHA-256 (RFC 2104) with a key of 32 bytes.
fn mac(key: &[u8; SEED_LEN], message: &[u8]) -> [u8; SEED_LEN] {
    let mut padded = [0; 64];
    padded[..SEED_LEN].copy_from_slice(key);
    let inner = Sha256::new().chain_update(padded.map(|byte| byte ^ 0x36)).chain_update(message);
    let outer = Sha256::new().chain_update(padded.map(|byte| byte ^ 0x5c));
    outer.chain_update(inner.finalize()).finalize().into()
}

/// Adds what follows from the seed of a dealing: the subshares, and their seeds.
fn add_dealing(
    secrets: &mut Secrets,
    item: &[u8],
    shares: &BTreeMap<Label, SecretInteger>,
    new: &CombinatorialSharing,
) {
    let (seed, labels) = item.split_first_chunk::<SEED_LEN>().unwrap();
    for label in labels[2..].chunks(2).map(|it| Label(u16::from_be_bytes([it[0], it[1]]))) {
        let seed_of = |it: Label| {
            let message = [&b"subshare"[..], &label.0.to_be_bytes(), &it.0.to_be_bytes()].concat();
            mac(seed, &message)
        };
        let seeds: Vec<_> = new.labels().skip(1).map(seed_of).collect();
        for (number, seed) in (1..).zip(&seeds) {
            secrets.add(format!("seed of subshare {label}, {number}"), seed);
        }
        let seeds = seeds.into_iter().map(ShareExpansionSeed).collect();
        let split = ShareRange::new(2048).split_with(&shares[&label], seeds);
        for it in new.labels() {
            let subshare = split.share(it).to_be_bytes();
            secrets.add(format!("subshare {label}, {it}"), &subshare);
        }
    }
}

#[test]
fn nothing_of_an_ended_epoch_is_left_in_memory_or_files() {
    let group = Group::new(8);
    let mut secrets = Secrets::default();
    let mut shares = BTreeMap::new();
    for number in 1..=4 {
        let path = group.path(&format!("made/server-{number}.share"));
        let encoded = read_share_file(&path).unwrap().shares;
        let range = ShareRange::new(2048);
        shares.extend(encoded.iter().map(|(label, it)| (*label, range.parse(it).unwrap())));
    }
    for (label, share) in &shares {
        secrets.add(format!("share {label}"), &share.to_be_bytes());
    }
    assert_eq!(secrets.in_files(&group, "made").len(), 4, "the search of files works");

    let Some(mut servers) = signed(&group) else { return };
    let others = begin_refresh(&group, &mut servers);
    let new = CombinatorialSharing::new(1).unwrap();
    for number in 1..=4 {
        let saved = saved(&group, number, |item| matches!(item, RunItemName::Seed(_)));
        for (item, bytes) in saved.items.values().flatten() {
            if let RunItemName::Seed(_) = item {
                secrets.add(format!("seed of {number}"), &bytes[..SEED_LEN]);
                add_dealing(&mut secrets, bytes, &shares, &new);
            }
        }
    }
    for number in 5..=6 {
        let saved = saved(&group, number, |item| matches!(item, RunItemName::Dealing(..)));
        for (item, bytes) in saved.items.values().flatten() {
            if let RunItemName::SessionKey = item {
                // Its voting key follows, which it keeps in the next epoch.
                secrets.add(format!("session key of {number}"), &bytes[..SEED_LEN]);
            }
        }
    }
    // 4 shares, 4 seeds, 3 seeds of subshares and 4 subshares of each share, 2 session keys.
    assert_eq!(secrets.0.len(), 4 + 4 + 4 * 7 + 2);

    for (number, server) in &servers {
        let found = secrets.in_memory(server);
        let mut own = BTreeSet::from([format!("session key of {number}")]);
        if *number <= 4 {
            let server = new.servers().nth(number - 1).unwrap();
            own = new.labels_of(server).map(|label| format!("share {label}")).collect();
            own.insert(format!("seed of {number}"));
        }
        assert!(found.is_superset(&own), "{number} has {found:?}");
        assert!(secrets.in_files(&group, &format!("store-{number}")).is_empty());
    }

    finish_and_search(&group, &servers, &secrets, others);
}

/// With a key that is shared by a polynomial: the rows, and the seeds of dealers and receivers.
#[test]
fn no_row_of_an_ended_epoch_of_an_rsa_key_is_left_in_memory_or_files() {
    let group = Group::with_key(8, "rsa-2048-polynomial");
    let mut secrets = Secrets::default();
    for number in 1..=4 {
        let path = group.path(&format!("made/server-{number}.share"));
        let (_, row) = read_share_file(&path).unwrap().shares.remove(0);
        secrets.add(format!("row of {number}"), &row);
    }
    assert_eq!(secrets.in_files(&group, "made").len(), 4, "the search of files works");
    let Some(servers) = signed(&group) else { return };
    search_rows(&group, servers);
}

#[test]
fn no_row_of_an_ended_epoch_of_an_ed25519_key_is_left_in_memory_or_files() {
    let group = Group::with_key(8, "ed25519");
    let Some(servers) = signed(&group) else { return };
    group.take_generated_key();
    search_rows(&group, servers);
}

/// Searches for the rows of servers 1 to 4 in a refresh, and after it.
fn search_rows(group: &Group, mut servers: BTreeMap<usize, Server>) {
    let mut secrets = Secrets::default();
    let others = begin_refresh(group, &mut servers);
    for number in 1..=6 {
        let saved = saved(group, number, |_| true);
        if let Some(shares) = saved.shares.get(&1) {
            secrets.add(format!("row of {number}"), &shares[0].1);
        }
        for (item, bytes) in saved.items.values().flatten() {
            match item {
                RunItemName::Seed(_) => secrets.add(format!("seed of dealer {number}"), bytes),
                // The seed of a receiver follows its voting key, which it keeps.
                RunItemName::SessionKey => {
                    secrets.add(format!("seed of {number}"), &bytes[SEED_LEN..2 * SEED_LEN]);
                }
                _ => {}
            }
        }
    }
    assert_eq!(secrets.0.len(), 4 + 4 + 2);
    for (number, server) in &servers {
        let own = if *number <= 4 { "row of" } else { "seed of" };
        assert!(secrets.in_memory(server).contains(&format!("{own} {number}")), "{number}");
        assert!(secrets.in_files(group, &format!("store-{number}")).is_empty());
    }
    finish_and_search(group, &servers, &secrets, others);
}

/// Starts servers 1 to 4, which sign. `None` if their memory may not be read.
fn signed(group: &Group) -> Option<BTreeMap<usize, Server>> {
    let servers: BTreeMap<usize, Server> = (1..=4).map(|it| (it, group.start(it))).collect();
    let memory = File::open(format!("/proc/{}/mem", servers[&1].0.id()));
    if memory.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied) {
        eprintln!("skipped: this user may not read the memory of other processes; run it as root");
        return None;
    }
    group.wait_until_healthy(1..=4);
    fs::write(group.path("message"), "message\n").unwrap();
    for socket in ["1.api", "2.api", "3.api", "4.api"] {
        group.run(&["register", "--socket", socket, "message"]);
    }
    group.run(&["sign", "--socket", "1.api", "message"]);
    Some(servers)
}

/// Begins a refresh to servers 5 to 8, of which the first two run.
fn begin_refresh(
    group: &Group,
    servers: &mut BTreeMap<usize, Server>,
) -> (Vec<QuorumLinks>, Runtime) {
    // With two of four new servers, the refresh goes on until dealings are checked.
    servers.extend((5..=6).map(|it| (it, group.start(it))));
    for number in 5..=6 {
        group.wait_until_listening(number);
    }
    let others = group.answer_only(7..=8);
    for socket in ["1.api", "2.api"] {
        group.run(&["refresh", "--no-wait", "--socket", socket, "--to", "new.toml"]);
    }
    others
}

/// Lets the refresh end, and searches for secrets of the epoch before.
fn finish_and_search(
    group: &Group,
    servers: &BTreeMap<usize, Server>,
    secrets: &Secrets,
    others: (Vec<QuorumLinks>, Runtime),
) {
    drop(others);
    let _others: Vec<Server> = (7..=8).map(|it| group.start(it)).collect();
    (7..=8).for_each(|it| group.wait_until_listening(it));
    let done = group.run(&["refresh", "--socket", "3.api", "--to", "new.toml"]);
    assert_eq!(done, "epoch 2 has begun\n");
    group.wait_until_healthy(5..=6);
    let log = |number| fs::read_to_string(group.path(&format!("{number}.log"))).unwrap();
    // An earlier one ended when an Ed25519 key was generated.
    let is_end = |line: &str| line.contains("the shares were wiped") && line.contains("epoch=1");
    let is_wiped = |number: usize| log(number).lines().any(is_end);
    wait_until("the old servers wipe their shares", || (1..=4).all(is_wiped));
    for (number, server) in servers {
        let found = secrets.in_memory(server);
        assert!(found.is_empty(), "{number} has in memory: {found:?}");
        let found = secrets.in_files(group, &format!("store-{number}"));
        assert!(found.is_empty(), "{number} has in files: {found:?}");
    }
}
