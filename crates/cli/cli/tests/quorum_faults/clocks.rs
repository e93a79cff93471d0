//! The wall clock of a server jumps. Nothing depends on it but the times in logs.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use crate::cluster::{Cluster, SERVERS};
use crate::refreshes::{Step, Worst};

/// The delay of each link.
const DELAY_MS: u32 = 5;

/// The jumps, as libfaketime reads them, and how the time of an entry in the audit log then ends.
const JUMPS: [&str; 4] = ["+1y", "-1y", "+1h", "-1h"];

pub(crate) fn clocks_that_jump_change_nothing() {
    let Some(library) = library() else {
        println!("skipped: libfaketime is not installed; apt-get install faketime");
        return;
    };
    let set = |cluster: &Cluster, server: usize, jump: &str| {
        fs::write(cluster.directory(server).join("clock"), jump).unwrap();
    };
    let mut cluster = Cluster::prepared(DELAY_MS, |cluster| {
        for server in 1..=SERVERS {
            set(cluster, server, "+0");
            let file = cluster.directory(server).join("clock");
            let variables = [
                ("LD_PRELOAD", library.clone()),
                ("FAKETIME_TIMESTAMP_FILE", file),
                ("FAKETIME_NO_CACHE", "1".into()),
                ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
            ];
            let variables = variables.map(|(name, value)| (name.to_owned(), value));
            cluster.environment.insert(server, variables.into());
        }
    });
    let mut worst = Worst::of("clocks that jump");
    let year = year_of(&cluster, 1);
    for (i, jump) in JUMPS.into_iter().enumerate() {
        let to = cluster.other_group();
        cluster.signers.reset_pause();
        cluster.approve(cluster.group[0], &to);
        cluster.approve(cluster.group[1], &to);
        cluster.until_step(Step::ALL[2 + i]);
        // Each server has another time, also after a restart.
        for server in 1..=SERVERS {
            set(&cluster, server, JUMPS[(server + i) % JUMPS.len()]);
        }
        worst.add(&cluster.refreshed(to, Instant::now()));
        let server = cluster.group[i];
        cluster.kill(server);
        set(&cluster, server, jump);
        cluster.start_server(server);
        cluster.settle();
        let by = match jump {
            "+1y" => 1,
            "-1y" => -1,
            _ => continue,
        };
        assert_eq!(year_of(&cluster, server), year + by, "the clock has jumped");
    }
    worst.print();
}

/// The library that changes what a program reads of the clock.
fn library() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib").ok()?;
    let files =
        folders.map_while(Result::ok).map(|it| it.path().join("faketime/libfaketimeMT.so.1"));
    files.into_iter().find(|file| file.exists())
}

/// The year of the last entry in a server's audit log.
fn year_of(cluster: &Cluster, server: usize) -> i32 {
    let log = fs::read_to_string(cluster.directory(server).join("store/audit.log")).unwrap();
    let (_, time) = log.rsplit_once("\"time\":\"").unwrap();
    time[..4].parse().unwrap()
}
