//! New streams that need two of three channels, while one is lost and after its return.

use std::thread;
use std::time::{Duration, Instant};

use lab::LinkDirection;
use micss::status::StreamChannelState;

use crate::testbed::{Download, End, FAULTY, Service, TOPOLOGY, Testbed, until};

/// The number of connection sets that a client keeps ready, by default.
const POOL_SIZE: u64 = 4;

/// The maximum time of a new stream until its first data.
const MAX_OPENING: Duration = Duration::from_secs(1);

fn start() -> Testbed {
    let testbed = Testbed::start(TOPOLOGY, ["threshold = 2", ""], Service::Speaks);
    wait_for_data(&Download::of(testbed.ask()));
    let is_full = |place| testbed.channel(End::Client, place).unwrap().ready == POOL_SIZE;
    until("connections are ready", || (0..3).all(is_full));
    testbed
}

fn wait_for_data(download: &Download) {
    let before = download.bytes();
    until("data arrives", || download.bytes() > before);
}

fn wait_for_state(testbed: &Testbed, state: StreamChannelState) {
    for end in End::BOTH {
        let deadline = Instant::now() + Duration::from_secs(90);
        while testbed.channel(end, 1).unwrap().state != state {
            if Instant::now() > deadline {
                let [client, server] = End::BOTH.map(|end| testbed.log(end));
                let status = testbed.channel(end, 1);
                panic!("{end:?} does not see {state:?}: {status:?}\n{client}\n{server}");
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The times of new streams until their first data, one after another.
fn opening_times(testbed: &Testbed) -> Vec<Duration> {
    let open = |_| {
        let begin = Instant::now();
        wait_for_data(&Download::of(testbed.ask()));
        begin.elapsed()
    };
    (0..8).map(open).collect()
}

/// Tries up to three times, because a busy machine may delay some streams.
pub(crate) fn new_streams_open_at_once_while_a_channel_is_lost() {
    let testbed = start();
    let download = testbed.download();
    testbed.cut(FAULTY, &LinkDirection::BOTH, true);
    wait_for_state(&testbed, StreamChannelState::Down);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let times = opening_times(&testbed);
        println!("while a channel is lost: {times:.3?}");
        if times.iter().all(|time| *time < MAX_OPENING) {
            wait_for_data(&download);
            return;
        }
        seen.push(times);
    }
    panic!("{seen:.3?}, three times");
}

/// They survive the loss of another channel.
pub(crate) fn new_streams_use_a_channel_that_has_returned() {
    let testbed = start();
    let download = testbed.download();
    testbed.cut(FAULTY, &LinkDirection::BOTH, true);
    wait_for_state(&testbed, StreamChannelState::Down);
    let ready = |place| testbed.channel(End::Client, place).unwrap().ready;
    until("sets without the channel are ready", || ready(0) == POOL_SIZE && ready(1) == 0);
    testbed.cut(FAULTY, &LinkDirection::BOTH, false);
    wait_for_state(&testbed, StreamChannelState::Up);
    until("all sets have the channel", || ready(0) == POOL_SIZE && ready(1) == POOL_SIZE);
    let streams: Vec<Download> = (0..6).map(|_| testbed.download()).collect();
    testbed.cut("a", &LinkDirection::BOTH, true);
    thread::sleep(Duration::from_millis(500));
    streams.iter().for_each(wait_for_data);
    drop(download);
}
