//! Channels that are slow, lose much, or are not read: they are there.

use std::thread;
use std::time::{Duration, Instant};

use crate::testbed::{End, NO_POOL, Service, TOPOLOGY, Testbed, until};

/// How long it is looked, in seconds, if the environment says nothing.
const SECONDS: u64 = 25;

/// How long it is looked.
fn time() -> Duration {
    let given = std::env::var("SUNDER_SOAK_S").ok().map(|text| text.parse().unwrap());
    Duration::from_secs(given.unwrap_or(SECONDS))
}

/// No end has taken a channel for lost.
fn nothing_was_lost(testbed: &Testbed) {
    for end in End::BOTH {
        let log = testbed.log(end);
        assert!(!log.contains(" is lost"), "{end:?}: {log}");
        let status = testbed.status(end).unwrap();
        assert!(status.channels.iter().all(|channel| channel.peers_down == 0), "{status:?}");
    }
}

/// Downloads for a while, and begins streams now and then.
fn download(topology: &str, settings: &str) {
    let testbed = Testbed::start(topology, [settings, ""], Service::Pours);
    let download = testbed.download();
    let begin = Instant::now();
    while begin.elapsed() < time() {
        thread::sleep(Duration::from_secs(1));
        nothing_was_lost(&testbed);
    }
    assert!(download.end().is_none(), "{:?}", download.end());
    println!("{} kbit/s", download.bytes() / (125 * begin.elapsed().as_secs()));
    assert!(download.last().elapsed() < Duration::from_secs(30), "it moves");
}

pub(crate) fn a_lossy_channel_is_not_lost() {
    download(&TOPOLOGY.replace("delay_ms = 4", "delay_ms = 40, loss = 0.15"), "");
}

pub(crate) fn a_lossy_channel_is_not_lost_without_connections_in_advance() {
    download(&TOPOLOGY.replace("delay_ms = 4", "delay_ms = 40, loss = 0.15"), NO_POOL);
}

pub(crate) fn a_full_queue_of_five_seconds_is_not_a_loss() {
    let slow = "rate_mbit = 1, queue_ms = 5000, delay_ms = 40";
    download(&TOPOLOGY.replace("rate_mbit = 100, delay_ms = 4", slow), "");
}

pub(crate) fn an_application_that_does_not_read_is_no_loss() {
    let testbed = Testbed::start(TOPOLOGY, ["", ""], Service::Pours);
    let (stream, code) = testbed.ask();
    assert_eq!(code, 0);
    stands_still(&testbed);
    drop(stream);
}

pub(crate) fn a_service_that_does_not_read_is_no_loss() {
    let testbed = Testbed::start(TOPOLOGY, [NO_POOL, ""], Service::Waits);
    let (mut stream, code) = testbed.ask();
    assert_eq!(code, 0);
    stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    until("nothing more is taken", || std::io::Write::write(&mut stream, &[0; 10_000]).is_err());
    stands_still(&testbed);
}

fn stands_still(testbed: &Testbed) {
    let begin = Instant::now();
    while begin.elapsed() < time() {
        thread::sleep(Duration::from_secs(1));
        nothing_was_lost(testbed);
    }
    assert_eq!(testbed.status(End::Client).unwrap().streams.under_way, 1);
}
