//! The wall clocks of servers jump. Nothing depends on them but times in logs and headers, when
//! registrations and approvals expire, and when a group refreshes itself.

use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{env, fs};

use sim::SeededRng;

use crate::cluster::{Cluster, FIRST, SERVERS};
use crate::refreshes::{Step, Worst};

/// The delay of each link.
const DELAY_MS: u32 = 5;

/// The jumps, as libfaketime reads them, and how the time of an entry in the audit log then ends.
const JUMPS: [&str; 4] = ["+1y", "-1y", "+1h", "-1h"];

pub(crate) fn clocks_that_jump_change_nothing() {
    // Longer than the longest jump.
    let settings = "registration_expires = \"1000d\"\nproposal_expires = \"1000d\"\n";
    let Some(mut cluster) = with_clocks(settings) else { return };
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
            set_clock(&cluster, server, JUMPS[(server + i) % JUMPS.len()]);
        }
        worst.add(&cluster.refreshed(to, Instant::now()));
        let server = cluster.group[i];
        cluster.kill(server);
        set_clock(&cluster, server, jump);
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

pub(crate) fn a_group_refreshes_itself_while_servers_are_killed() {
    refresh_when_due(3);
}

pub(crate) fn thirty_refreshes_without_an_operator() {
    refresh_when_due(30);
}

/// Lets hours pass. In each, one server of the group is killed at a random moment and started again
/// in the next epoch, and nobody approves anything. `SUNDER_SEED` draws other servers and moments.
fn refresh_when_due(epochs: u32) {
    let Some(mut cluster) = with_clocks("refresh_every = \"1h\"\n") else { return };
    let mut worst = Worst::of("refreshes without an operator");
    let seed = env::var("SUNDER_SEED").ok().and_then(|seed| seed.parse().ok());
    let mut rng = SeededRng::new(seed.unwrap_or_else(|| u64::from(epochs)));
    for hour in 1..=epochs {
        cluster.signers.reset_pause();
        let killed = cluster.group[usize::try_from(rng.below(4)).unwrap()];
        let (since, delay) = (Instant::now(), Duration::from_millis(rng.below(2_000)));
        for server in 1..=SERVERS {
            // More than an hour after the epoch began, which may have been later by some minutes.
            set_clock(&cluster, server, &format!("+{}m", hour * 70));
        }
        cluster.until("the moment of the kill has come", || since.elapsed() >= delay);
        cluster.kill(killed);
        let begun = |cluster: &Cluster| {
            let others = cluster.group.iter().filter(|it| **it != killed);
            let statuses: Option<Vec<_>> = others.map(|&it| cluster.status(it)).collect();
            let epoch = Some(cluster.epoch + 1);
            statuses.is_some_and(|all| all.iter().all(|it| it.health.epoch == epoch))
        };
        cluster.until("the next epoch begins", || begun(&cluster));
        cluster.start_server(killed);
        worst.add(&cluster.refreshed(FIRST.into(), since));
        let next = cluster.status(cluster.group[0]).and_then(|it| it.next_refresh);
        assert!(next.is_some(), "the status says when the next refresh is due");
    }
    worst.print();
}

/// A cluster whose clocks [`set_clock`] sets, with these additional settings of all servers.
fn with_clocks(settings: &str) -> Option<Cluster> {
    let Some(library) = library() else {
        println!("skipped: libfaketime is not installed; apt-get install faketime");
        return None;
    };
    Some(Cluster::prepared(DELAY_MS, |cluster| {
        for server in 1..=SERVERS {
            cluster.add_settings(server, settings);
            set_clock(cluster, server, "+0");
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
    }))
}

/// Sets a server's clock forward or back from the true time, as libfaketime reads it.
fn set_clock(cluster: &Cluster, server: usize, jump: &str) {
    fs::write(cluster.directory(server).join("clock"), jump).unwrap();
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
