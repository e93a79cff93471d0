//! The disk of a server is full, until there is room again. A server that has ended is started
//! again, as systemd does.

use std::fs::{self, File};
use std::io::Write;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, FIRST, NO_ROOM, SECOND};
use crate::refreshes::{Outcome, Step, Worst};

/// The delay of each link.
const DELAY_MS: u32 = 5;

/// The size of the disk. A server with too little room is not healthy.
const DISK: &str = "256m";

/// The servers with a small disk: one of each group.
const SMALL: [usize; 2] = [FIRST[1], SECOND[2]];

/// The pause before a server starts again.
const RESTART_DELAY: Duration = Duration::from_millis(500);

pub(crate) fn a_full_disk_loses_nothing() {
    let mut cluster = cluster();
    cluster.with_short_pause("a full disk", |cluster| while_signing(cluster, SMALL[0]));
}

pub(crate) fn every_level_of_a_full_disk() {
    let mut cluster = cluster();
    let mut worst = Worst::of("the disk of one server is full");
    for left_kib in [0, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128] {
        // As one of the new group, at first one that was in none, and of the old one.
        for server in [SMALL[1], SMALL[1], SMALL[0], SMALL[0]] {
            let what = format!("{server}, {left_kib} KiB");
            let fault = |cluster: &mut Cluster| in_refresh(cluster, server, left_kib);
            worst.add(&cluster.with_short_pause(&what, fault));
        }
    }
    worst.print();
}

/// Servers of which some have a small disk for their stores.
fn cluster() -> Cluster {
    Cluster::prepared(DELAY_MS, |cluster| {
        for server in SMALL {
            let store = cluster.directory(server).join("store");
            fs::create_dir(&store).unwrap();
            let options = format!("size={DISK},mode=700");
            let mut mount = Command::new("mount");
            mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&store);
            assert!(mount.status().unwrap().success());
        }
    })
}

/// Fills the disk of a server up to this rest.
fn fill(cluster: &Cluster, server: usize, left_kib: u64) {
    cluster.begin_faults(&[server]);
    let path = cluster.directory(server).join("store/filler");
    let mut file = File::create(&path).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    let len = file.metadata().unwrap().len();
    file.set_len(len.saturating_sub(left_kib << 10)).unwrap();
}

fn make_room(cluster: &Cluster, server: usize) {
    fs::remove_file(cluster.directory(server).join("store/filler")).unwrap();
}

/// Waits until something holds, and starts the server again whenever it has ended.
fn supervise(cluster: &mut Cluster, server: usize, what: &str, holds: impl Fn(&Cluster) -> bool) {
    let (begun, mut ended) = (Instant::now(), None);
    while !holds(cluster) {
        assert!(begun.elapsed() < Duration::from_secs(90), "{what}{}", cluster.logs());
        if cluster.has_ended(server) {
            let since = *ended.get_or_insert_with(Instant::now);
            if since.elapsed() >= RESTART_DELAY {
                cluster.start_server(server);
                ended = None;
            }
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn while_signing(cluster: &mut Cluster, server: usize) -> Outcome {
    cluster.signers.reset_pause();
    let before = cluster.signers.signed();
    fill(cluster, server, 0);
    // It says so, and the others sign.
    supervise(cluster, server, "it has no room", |cluster| {
        cluster.log(server).contains(NO_ROOM) && cluster.signers.signed() >= before + 20
    });
    make_room(cluster, server);
    let since = Instant::now();
    supervise(cluster, server, "it has recovered", |cluster| cluster.is_settled(server));
    cluster.settled(since)
}

fn in_refresh(cluster: &mut Cluster, server: usize, left_kib: u64) -> Outcome {
    let to = cluster.other_group();
    let approving = cluster.group.iter().copied().filter(|it| *it != server);
    let approving: Vec<usize> = approving.take(2).collect();
    cluster.signers.reset_pause();
    fill(cluster, server, left_kib);
    for it in approving {
        cluster.approve(it, &to);
    }
    supervise(cluster, server, "the others finish", |cluster| cluster.is_at(Step::HeaderSigned));
    make_room(cluster, server);
    let since = Instant::now();
    cluster.enter(to);
    supervise(cluster, server, "it follows", |cluster| cluster.is_settled(server));
    cluster.settled(since)
}
