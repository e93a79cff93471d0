//! Channels of open streams that return are used again.

use std::thread;
use std::time::{Duration, Instant};

use lab::LinkDirection;

use crate::testbed::{Download, End, FAULTY, LINKS, Service, TOPOLOGY, Testbed, until};

/// The longest silence while enough channels work.
const MAX_SILENCE: Duration = Duration::from_secs(3);

/// How soon after a link's return a stream that needs it goes on.
const MAX_RESUME: Duration = Duration::from_secs(2);

/// `SUNDER_OUTAGE_S` sets how long the outages take; otherwise they are short, for `make test`.
fn outage_s(usual: u64) -> Duration {
    let seconds = std::env::var("SUNDER_OUTAGE_S").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(usual))
}

/// Tries up to three times, because a busy machine may delay some data. An error says what was
/// late.
fn in_one_of_three(mut attempt: impl FnMut() -> Result<(), String>) {
    let mut late = Vec::new();
    for _ in 0..3 {
        match attempt() {
            Ok(()) => return,
            Err(why) => late.push(why),
        }
    }
    panic!("three times: {late:#?}");
}

/// An error, unless it took at most this time.
fn at_most(limit: Duration, took: Duration) -> Result<(), String> {
    if took <= limit { Ok(()) } else { Err(format!("{took:.2?}, and not {limit:?}")) }
}

/// The longest time without data during `time`.
fn longest_silence(download: &Download, time: Duration) -> Duration {
    let begin = Instant::now();
    let mut longest = Duration::ZERO;
    while begin.elapsed() < time {
        longest = longest.max(download.last().elapsed());
        thread::sleep(Duration::from_millis(10));
    }
    longest
}

/// A stream that needs two of three channels loses one, which returns, and then another one.
pub(crate) fn a_stream_uses_a_returned_channel_when_another_is_lost() {
    in_one_of_three(|| {
        let testbed = Testbed::start(TOPOLOGY, ["threshold = 2", ""], Service::Speaks);
        let download = testbed.download();
        for (link, outage, pause) in [("a", 17, 15), ("b", 30, 0)] {
            testbed.cut(link, &LinkDirection::BOTH, true);
            let silence = longest_silence(&download, outage_s(outage.min(8)));
            println!("channel {link} is out: longest silence {silence:.1?}");
            at_most(MAX_SILENCE, silence)?;
            testbed.cut(link, &LinkDirection::BOTH, false);
            if pause > 0 {
                until("it can lose one again", || {
                    End::BOTH.iter().all(|&end| {
                        testbed.status(end).is_some_and(|status| status.redundancy.spare == [0, 1])
                    })
                });
            }
        }
        let log = testbed.log(End::Client);
        assert!(log.contains("a stream uses a channel again"), "{log}");
        assert!(download.end().is_none());
        Ok(())
    });
}

/// A stream that needs all channels goes on soon after the lost one returns: not when the kernel
/// sends again what was lost.
pub(crate) fn a_stream_that_needs_all_goes_on_when_the_channel_returns() {
    resume(&Service::Speaks);
}

/// The same while as much is in flight as the connections take.
pub(crate) fn a_full_stream_that_needs_all_goes_on_when_the_channel_returns() {
    resume(&Service::Pours);
}

fn resume(service: &Service) {
    in_one_of_three(|| resume_once(service.clone()));
}

fn resume_once(service: Service) -> Result<(), String> {
    let testbed = Testbed::start(TOPOLOGY, ["", ""], service);
    let (download, outage) = (testbed.download(), outage_s(14));
    testbed.cut(FAULTY, &LinkDirection::BOTH, true);
    thread::sleep(outage);
    let before = download.bytes();
    testbed.cut(FAULTY, &LinkDirection::BOTH, false);
    let back = Instant::now();
    until("data comes again", || download.bytes() > before + 200_000);
    let took = back.elapsed();
    println!("out for {outage:?}: data again after {took:.1?}");
    assert!(download.end().is_none());
    at_most(MAX_RESUME, took)
}

/// One of three channels is slow: a stream that needs two of them has what the other two carry.
pub(crate) fn a_slow_channel_does_not_rule() {
    let slow = TOPOLOGY.replacen("rate_mbit = 100", "rate_mbit = 1", 1);
    let rate = |topology: &str| {
        let testbed = Testbed::start(topology, ["threshold = 2", ""], Service::Pours);
        let download = testbed.download();
        thread::sleep(Duration::from_secs(3));
        let before = download.bytes();
        thread::sleep(Duration::from_secs(8));
        let bytes = u32::try_from(download.bytes() - before).unwrap();
        let megabits = f64::from(bytes) * 8.0 / 8e6;
        assert!(download.end().is_none());
        megabits
    };
    in_one_of_three(|| {
        let (with_slow, without) = (rate(&slow), rate(TOPOLOGY));
        println!("2 of 3: {with_slow:.1} Mbit/s with one of 1 Mbit/s, {without:.1} without");
        let is_good = with_slow >= 0.9 * without;
        if is_good { Ok(()) } else { Err(format!("{with_slow} of {without} Mbit/s")) }
    });
}

/// All channels fail one after another, as often as there is time.
pub(crate) fn channels_fail_in_turn() {
    in_one_of_three(|| {
        let testbed = Testbed::start(TOPOLOGY, ["threshold = 2", ""], Service::Speaks);
        let download = testbed.download();
        for round in 0..4 {
            let link = LINKS[round % 3];
            testbed.cut(link, &LinkDirection::BOTH, true);
            let silence = longest_silence(&download, Duration::from_secs(5));
            testbed.cut(link, &LinkDirection::BOTH, false);
            let spare =
                || testbed.status(End::Client).is_some_and(|s| s.redundancy.spare == [0, 1]);
            until("it can lose one again", spare);
            at_most(MAX_SILENCE, silence)?;
        }
        assert!(download.end().is_none());
        Ok(())
    });
}
