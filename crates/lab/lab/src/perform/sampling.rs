//! What the links carry while a trial measures.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::link::LinkDirection;
use crate::network::EmulatedNetwork;

/// The time between two samples.
const INTERVAL: Duration = Duration::from_millis(100);

/// What a trial's links have carried since its network was created.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrialSample {
    /// The time since the measurement began, in seconds.
    pub time_s: f64,
    /// By the name of the link: the bytes of the packets that have arrived at its second host and
    /// at its first.
    pub links: BTreeMap<String, [u64; 2]>,
}

/// Calls `measure`, and meanwhile `sample` at regular times and once at the end.
pub(super) fn during<T>(
    network: &EmulatedNetwork,
    sample: &(dyn Fn(&TrialSample) + Sync),
    measure: impl FnOnce() -> T,
) -> T {
    let begin = Instant::now();
    let take =
        || sample(&TrialSample { time_s: begin.elapsed().as_secs_f64(), links: carried(network) });
    let (measuring, is_measuring) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            while is_measuring.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                take();
            }
            take();
        });
        let result = measure();
        drop(measuring);
        result
    })
}

/// The bytes that each link has carried forward and back.
fn carried(network: &EmulatedNetwork) -> BTreeMap<String, [u64; 2]> {
    let carried = |name: &String| {
        let link = network.link(name)?;
        let bytes = LinkDirection::BOTH.map(|direction| link.counts(direction).delivered_bytes);
        Some((name.clone(), bytes))
    };
    network.names_of_links().filter_map(carried).collect()
}
