//! Channels that are slow, lossy or not read are not taken for lost.

use std::thread;
use std::time::{Duration, Instant};

use crate::testbed::{End, NO_POOL, Service, TOPOLOGY, Testbed, until};

/// The default duration of each test, in seconds.
const SECONDS: u64 = 15;

/// The duration of each test.
fn time() -> Duration {
    let given = std::env::var("SUNDER_SOAK_S").ok().map(|text| text.parse().unwrap());
    Duration::from_secs(given.unwrap_or(SECONDS))
}

/// Checks that no end reported a lost channel.
fn nothing_was_lost(testbed: &Testbed) {
    for end in End::BOTH {
        let log = testbed.log(end);
        assert!(!log.contains(" is lost"), "{end:?}: {log}");
        let status = testbed.status(end).unwrap();
        assert!(status.channels.iter().all(|channel| channel.peers_down == 0), "{status:?}");
    }
}

/// Downloads for the duration of the test, and opens new streams from time to time.
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

pub(crate) fn a_full_queue_of_five_seconds_loses_no_channel() {
    let slow = "rate_mbit = 1, queue_ms = 5000, delay_ms = 40";
    download(&TOPOLOGY.replace("rate_mbit = 100, delay_ms = 4", slow), "");
}

pub(crate) fn an_application_that_does_not_read_loses_no_channel() {
    let testbed = Testbed::start(TOPOLOGY, ["", ""], Service::Pours);
    let (stream, code) = testbed.ask();
    assert_eq!(code, 0);
    stands_still(&testbed);
    drop(stream);
}

pub(crate) fn a_service_that_does_not_read_loses_no_channel() {
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
