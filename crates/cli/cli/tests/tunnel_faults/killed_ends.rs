//! An end is killed and started again while the other continues.

use std::time::Duration;

use crate::pair::{Pair, SERVER, THREE_LINKS, in_one_of_three, network, over};
use crate::stream::{Stream, StreamRate};

pub(crate) fn a_killed_server_is_found_again() {
    // 3 s until the loss is detected, and 250 ms until the client reconnects.
    killed("server", Duration::from_secs(5));
}

pub(crate) fn a_killed_client_reconnects_at_once() {
    killed("client", Duration::from_secs(1));
}

/// Kills an end and starts it again. Packets must cross again within `most`.
fn killed(end: &'static str, most: Duration) {
    let network = network(THREE_LINKS);
    let channels = over(&network, &["a", "b", "c"]);
    let mut pair = Pair::start(network, "kappa = 2\nmu = 3", &channels);
    let stream = Stream::start(pair.host("client"), pair.host("server"), SERVER, StreamRate::LIGHT);
    stream.wait_for(300);
    let other = if end == "server" { "client" } else { "server" };
    let survivor = pair.process(other);
    in_one_of_three(|| {
        pair.kill_end(end);
        pair.start_end(end);
        let started = stream.now();
        stream.wait_for(300);
        let gap = stream.longest_gap(started, stream.now());
        if gap < most { Ok(()) } else { Err(format!("{gap:?} without packets")) }
    });
    assert_eq!(pair.process(other), survivor);
    assert!(pair.status(other).associated);
    // It logs one line, and none for each channel.
    assert!(!pair.log(other).contains("nothing arrives"), "{}", pair.log(other));
    assert_eq!(stream.wrong(), 0);
}
