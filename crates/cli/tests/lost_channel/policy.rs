//! What streams do while a channel is lost, as they are told to.

use std::thread;
use std::time::{Duration, Instant};

use lab::Direction;
use micss::status::{Channel, ChannelState};

use crate::testbed::{Download, End, FAULTY, NO_POOL, Service, TOPOLOGY, Testbed, until};

/// Longer than it takes to find out.
const OUTAGE: Duration = Duration::from_secs(8);

fn is_lost(testbed: &Testbed, end: End) -> bool {
    testbed.channel(end, 1).unwrap().state == ChannelState::Down
}

pub(crate) fn new_streams_wait_where_they_are_told_to() {
    let settings = "on_lost_channel = \"wait\"\nlost_channel_timeout_s = 60";
    let testbed = Testbed::start(TOPOLOGY, [settings, ""], Service::Speaks);
    let download = testbed.download();
    testbed.cut(FAULTY, &Direction::BOTH, true);
    until("the channel is lost", || is_lost(&testbed, End::Client));
    thread::scope(|scope| {
        let asking = scope.spawn(|| testbed.ask());
        thread::sleep(OUTAGE);
        assert!(!asking.is_finished(), "it waits");
        testbed.cut(FAULTY, &Direction::BOTH, false);
        let second = Download::of(asking.join().unwrap());
        until("it is served", || second.bytes() > 0);
        goes_on(&download);
    });
    let waited = "wait for up to 60 s, new ones wait as well";
    assert!(testbed.log(End::Client).contains(waited), "{}", testbed.log(End::Client));
}

/// Waits until more has come.
fn goes_on(download: &Download) {
    let before = download.bytes();
    until("the download goes on", || download.bytes() > before);
}

pub(crate) fn an_outage_is_survived() {
    survive("");
}

/// Nothing but the streams' own connections tells the ends that they are there again.
pub(crate) fn an_outage_is_survived_over_connections_of_its_own() {
    survive(NO_POOL);
}

fn survive(settings: &str) {
    let testbed = Testbed::start(TOPOLOGY, [settings, ""], Service::Speaks);
    let download = testbed.download();
    testbed.cut(FAULTY, &Direction::BOTH, true);
    for end in End::BOTH {
        until("the channel is lost", || is_lost(&testbed, end));
    }
    thread::sleep(OUTAGE);
    let (_, code) = testbed.ask();
    assert_ne!(code, 0, "a new one fails");
    testbed.cut(FAULTY, &Direction::BOTH, false);
    for end in End::BOTH {
        until("the channel is back", || !is_lost(&testbed, end));
        until("the log says so", || testbed.log(end).contains(" answers again after "));
    }
    goes_on(&download);
    assert!(download.end().is_none());
    goes_on(&testbed.download());
}

pub(crate) fn where_two_are_enough_streams_go_on() {
    let testbed = Testbed::start(TOPOLOGY, ["threshold = 2", ""], Service::Speaks);
    let download = testbed.download();
    let begin = Instant::now();
    testbed.cut(FAULTY, &Direction::BOTH, true);
    for end in End::BOTH {
        until("the channel is lost", || is_lost(&testbed, end));
    }
    println!("2 of 3: named after {:.1?}", begin.elapsed());
    goes_on(&testbed.download());
    goes_on(&download);
    let log = testbed.log(End::Client);
    assert!(log.contains("streams go on without it, and 0 more may be lost"), "{log}");
}

/// Its connections end, on all channels.
pub(crate) fn a_client_that_is_killed_is_no_lost_channel() {
    let mut testbed = Testbed::start(TOPOLOGY, ["", ""], Service::Speaks);
    let _download = testbed.download();
    testbed.kill(End::Client);
    until("its streams end", || testbed.status(End::Server).unwrap().streams.under_way == 0);
    let unused = |channel: &Channel| channel.state == ChannelState::Unknown && channel.peers == 0;
    until("it is forgotten", || testbed.status(End::Server).unwrap().channels.iter().all(unused));
    assert!(!testbed.log(End::Server).contains(" is lost"), "{}", testbed.log(End::Server));
}

/// Applications say nothing, and one channel dies.
pub(crate) fn a_channel_is_named_while_no_stream_moves() {
    let testbed = Testbed::start(TOPOLOGY, ["", ""], Service::Waits);
    let (_stream, code) = testbed.ask();
    assert_eq!(code, 0);
    // So that nothing has moved for a while.
    thread::sleep(Duration::from_secs(10));
    let begin = Instant::now();
    testbed.cut(FAULTY, &Direction::BOTH, true);
    for end in End::BOTH {
        until("the channel is lost", || is_lost(&testbed, end));
        println!("idle: the {} names it after {:.1?}", end.host(), begin.elapsed());
    }
}
