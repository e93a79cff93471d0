//! Servers move to other addresses while messages are signed: each other server is told by a
//! `[[peer]]`, and reloads.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;

use crate::cluster::{Cluster, FIRST, PORT, SERVERS};
use crate::links::address;

/// The delay of each link.
const DELAY_MS: u32 = 5;

/// The longest time without any signature.
const MAX_PAUSE: Duration = Duration::from_secs(5);

pub(crate) fn servers_that_move_one_after_another_and_at_once_sign() {
    let mut cluster = Cluster::start(DELAY_MS);
    for server in FIRST {
        move_in_time(&mut cluster, &[server], [PORT, PORT + 1]);
    }
    move_in_time(&mut cluster, &FIRST, [PORT + 1, PORT + 2]);
    // A refresh finds them where they are now.
    let to = cluster.other_group();
    for server in &FIRST[..2] {
        cluster.approve(*server, &to);
    }
    cluster.refreshed(to, std::time::Instant::now());
}

/// Moves servers from one port to another: up to three times, and back in between, because a busy
/// machine may delay signatures.
fn move_in_time(cluster: &mut Cluster, servers: &[usize], [from, to]: [u16; 2]) {
    let mut pauses = Vec::new();
    while pauses.len() < 3 {
        if !pauses.is_empty() {
            moved(cluster, servers, [to, from]);
        }
        let pause = moved(cluster, servers, [from, to]);
        println!("servers {servers:?} move: {:.1} s without a signature", pause.as_secs_f64());
        if pause < MAX_PAUSE {
            return;
        }
        pauses.push(pause);
    }
    panic!("{servers:?}, three times: {pauses:?} without a signature");
}

/// Moves servers from one port to another. Returns the longest time without a signature.
fn moved(cluster: &mut Cluster, servers: &[usize], [from, to]: [u16; 2]) -> Duration {
    cluster.signers.reset_pause();
    for server in 1..=SERVERS {
        let path = cluster.directory(server).join("node.toml");
        let mut config = fs::read_to_string(&path).unwrap();
        for moved in servers {
            let at = |port: u16| format!("\"{}:{port}\"", address(*moved));
            config = config.replace(&at(from), &at(to));
        }
        fs::write(path, config).unwrap();
    }
    for server in (1..=SERVERS).filter(|server| !servers.contains(server)) {
        cluster.signal(server, Signal::HUP);
    }
    for &server in servers {
        cluster.kill(server);
    }
    for &server in servers {
        cluster.start_server(server);
    }
    cluster.settle();
    cluster.signers.longest_pause()
}
