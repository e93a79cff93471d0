//! What streams do while a channel is lost, depending on the configuration.

use std::thread;
use std::time::{Duration, Instant};

use lab::LinkDirection;
use micss::status::{StreamChannelState, StreamChannelStatus};

use crate::testbed::{Download, End, FAULTY, NO_POOL, Service, TOPOLOGY, Testbed, until};

/// Longer than the detection of a loss.
const OUTAGE: Duration = Duration::from_secs(8);

fn is_lost(testbed: &Testbed, end: End) -> bool {
    testbed.channel(end, 1).unwrap().state == StreamChannelState::Down
}

pub(crate) fn new_streams_wait_if_configured() {
    let settings = "on_lost_channel = \"wait\"\nlost_channel_timeout_s = 60";
    let testbed = Testbed::start(TOPOLOGY, [settings, ""], Service::Speaks);
    let download = testbed.download();
    testbed.cut(FAULTY, &LinkDirection::BOTH, true);
    until("the channel is lost", || is_lost(&testbed, End::Client));
    thread::scope(|scope| {
        let asking = scope.spawn(|| testbed.ask());
        thread::sleep(OUTAGE);
        assert!(!asking.is_finished(), "it waits");
        testbed.cut(FAULTY, &LinkDirection::BOTH, false);
        let second = Download::of(asking.join().unwrap());
        until("it is served", || second.bytes() > 0);
        wait_for_more(&download);
    });
    let waited = "wait for up to 60 s, new streams wait as well";
    until("the log says so", || testbed.log(End::Client).contains(waited));
}

/// Waits until more data has arrived.
fn wait_for_more(download: &Download) {
    let before = download.bytes();
    until("the download goes on", || download.bytes() > before);
}

pub(crate) fn streams_survive_an_outage() {
    survive("");
}

/// Without a pool, only the streams' own connections show that the channel is up again.
pub(crate) fn streams_survive_an_outage_without_a_pool() {
    survive(NO_POOL);
}

fn survive(settings: &str) {
    let testbed = Testbed::start(TOPOLOGY, [settings, ""], Service::Speaks);
    let download = testbed.download();
    testbed.cut(FAULTY, &LinkDirection::BOTH, true);
    for end in End::BOTH {
        until("the channel is lost", || is_lost(&testbed, end));
    }
    thread::sleep(OUTAGE);
    let (_, code) = testbed.ask();
    assert_ne!(code, 0, "a new one fails");
    testbed.cut(FAULTY, &LinkDirection::BOTH, false);
    for end in End::BOTH {
        until("the channel is back", || !is_lost(&testbed, end));
        until("the log says so", || testbed.log(end).contains(" answers again after "));
    }
    wait_for_more(&download);
    assert!(download.end().is_none());
    wait_for_more(&testbed.download());
}

pub(crate) fn streams_continue_with_two_of_three_channels() {
    let testbed = Testbed::start(TOPOLOGY, ["threshold = 2", ""], Service::Speaks);
    let download = testbed.download();
    let begin = Instant::now();
    testbed.cut(FAULTY, &LinkDirection::BOTH, true);
    for end in End::BOTH {
        until("the channel is lost", || is_lost(&testbed, end));
    }
    println!("2 of 3: named after {:.1?}", begin.elapsed());
    wait_for_more(&testbed.download());
    wait_for_more(&download);
    let line = "streams continue without it, and 0 more may be lost";
    until("the log says so", || testbed.log(End::Client).contains(line));
}

/// Its connections end on all channels.
pub(crate) fn a_killed_client_is_not_a_lost_channel() {
    let mut testbed = Testbed::start(TOPOLOGY, ["", ""], Service::Speaks);
    let _download = testbed.download();
    testbed.kill(End::Client);
    until("its streams end", || testbed.status(End::Server).unwrap().streams.under_way == 0);
    let unused = |channel: &StreamChannelStatus| {
        channel.state == StreamChannelState::Unknown && channel.peers == 0
    };
    until("it is forgotten", || testbed.status(End::Server).unwrap().channels.iter().all(unused));
    assert!(!testbed.log(End::Server).contains(" is lost"), "{}", testbed.log(End::Server));
}

/// Applications are idle, and one channel fails.
pub(crate) fn a_lost_channel_is_reported_while_streams_are_idle() {
    let testbed = Testbed::start(TOPOLOGY, ["", ""], Service::Waits);
    let (_stream, code) = testbed.ask();
    assert_eq!(code, 0);
    // The streams must be idle for a while.
    thread::sleep(Duration::from_secs(10));
    let begin = Instant::now();
    testbed.cut(FAULTY, &LinkDirection::BOTH, true);
    for end in End::BOTH {
        until("the channel is lost", || is_lost(&testbed, end));
        println!("idle: the {} names it after {:.1?}", end.host(), begin.elapsed());
    }
}
