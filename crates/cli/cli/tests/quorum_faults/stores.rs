//! The store of a server is lost, restored from a backup while a refresh is open, or replaced by an
//! old copy, as from a snapshot of its disk. The server takes part again, with shares of the newest
//! epoch only.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use quorum::api::{RefreshStatus, RefreshStep};

use crate::cluster::{Cluster, ED25519_KEY, FIRST, POLYNOMIAL_KEY};
use crate::refreshes::Step;

/// The delay of each link.
const DELAY_MS: u32 = 5;

/// The group to which the key moves first. Two servers stay, and two others come.
const MIXED: [usize; 4] = [1, 2, 5, 6];

pub(crate) fn lost_restored_and_old_stores_leave_the_key_whole() {
    recover(Cluster::start(DELAY_MS));
}

pub(crate) fn lost_restored_and_old_stores_leave_a_polynomial_key_whole() {
    recover(Cluster::with_key(DELAY_MS, POLYNOMIAL_KEY));
}

pub(crate) fn lost_restored_and_old_stores_leave_an_ed25519_key_whole() {
    recover(Cluster::with_key(DELAY_MS, ED25519_KEY));
}

fn recover(mut cluster: Cluster) {
    // Of one server that stays in the group, and of one that leaves it.
    let old = [2, 4].map(|server| OldStore::copy(&mut cluster, server));
    restore_in_refresh(&mut cluster, 1);
    for old in old {
        old.put_back(&mut cluster);
    }
    lose(&mut cluster, 6);
    cluster.settle();

    // Shares that were recovered move the key on.
    cluster.kill(5);
    for server in [1, 2] {
        cluster.approve(server, &FIRST);
    }
    cluster.until_step(Step::HeaderSigned);
    cluster.start_server(5);
    cluster.refreshed(FIRST.into(), Instant::now());
}

/// What is kept of a server's store, to be used in a later epoch.
struct OldStore {
    server: usize,
    /// All files, with the keys of the epoch.
    copy: PathBuf,
    backup: PathBuf,
}

impl OldStore {
    fn copy(cluster: &mut Cluster, server: usize) -> Self {
        let directory = cluster.directory(server);
        let [store, copy, backup] = ["store", "copy", "backup"].map(|name| directory.join(name));
        cluster.succeeds(server, "backup", &backup);
        cluster.kill(server);
        let mut cp = Command::new("cp");
        assert!(cp.arg("-a").args([store, copy.clone()]).status().unwrap().success());
        start(cluster, server);
        Self { server, copy, backup }
    }

    /// Puts the copy of an ended epoch in place of the store. The backup is refused.
    fn put_back(self, cluster: &mut Cluster) {
        let Self { server, copy, backup } = self;
        cluster.kill(server);
        let refused = cluster.of_store(server, "restore", &backup);
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && error.contains("that epoch has ended"), "{error}");
        let store = cluster.directory(server).join("store");
        fs::remove_dir_all(&store).unwrap();
        fs::rename(copy, store).unwrap();
        assert_eq!(cluster.keys(server), ["epoch-1.key"], "the copy has the old shares");
        start(cluster, server);
    }
}

/// Restores a server from a backup of the same epoch in the refresh to [`MIXED`], in which it has
/// registered a session key, and drawn the seed of its dealing.
fn restore_in_refresh(cluster: &mut Cluster, server: usize) {
    let backup = cluster.directory(server).join("backup");
    cluster.succeeds(server, "backup", &backup);
    cluster.begin_faults(&FIRST);
    // The approvals are not committed before the new servers have stopped, which the run needs: so
    // it stays open. Servers of the group are not asked whether they answer.
    for stopped in [3, 4] {
        cluster.pause(stopped);
    }
    for approving in [1, 2] {
        cluster.approve(approving, &MIXED);
    }
    for new in [5, 6] {
        cluster.kill(new);
    }
    for stopped in [3, 4] {
        cluster.resume(stopped);
    }
    let open = |cluster: &Cluster, server: usize| -> Option<RefreshStatus> {
        cluster.status(server)?.refresh.filter(|it| it.step == RefreshStep::SessionKeys)
    };
    cluster.until("two servers have registered session keys", || {
        open(cluster, 3).is_some_and(|refresh| refresh.done == 2)
    });
    cluster.kill(server);
    cluster.succeeds(server, "restore", &backup);
    cluster.start_server(server);
    cluster.until("it is in the refresh again", || open(cluster, server).is_some());
    for new in [5, 6] {
        cluster.start_server(new);
    }
    cluster.enter(MIXED.into());
    cluster.until("it has new shares", || cluster.is_settled(server));
    // Registrations are not restored, because they may have been withdrawn since.
    assert!(cluster.register(server));
    cluster.settle();
}

/// Removes a server's store.
fn lose(cluster: &mut Cluster, server: usize) {
    cluster.kill(server);
    fs::remove_dir_all(cluster.directory(server).join("store")).unwrap();
    start(cluster, server);
    assert!(cluster.register(server), "nothing is left of its store");
}

/// Starts a server, and waits until it is as in an epoch without faults.
fn start(cluster: &mut Cluster, server: usize) {
    cluster.start_server(server);
    let what = format!("server {server} is back in epoch {}", cluster.epoch);
    cluster.until(&what, || cluster.is_settled(server));
}

impl Cluster {
    /// Runs a command of `sunder quorum` that concerns the store of a server.
    fn of_store(&self, server: usize, command: &str, file: &Path) -> Output {
        let config = self.directory(server).join("node.toml").display().to_string();
        self.run(&[command, "--config", &config, &file.display().to_string()])
    }

    /// The same, with a command that succeeds.
    fn succeeds(&self, server: usize, command: &str, file: &Path) {
        let output = self.of_store(server, command, file);
        assert!(output.status.success(), "{server}: {command}: {output:?}");
    }
}
