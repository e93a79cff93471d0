//! What happens while a trial measures: what the links carry, and the phases of programs.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::outputs::{OutputFollower, TrialOutput};
use super::phases::{PhaseFollower, TrialPhase};
use crate::link::LinkDirection;
use crate::network::EmulatedNetwork;
use crate::site::SiteChange;

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

/// What happens while a trial measures.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum TrialProgress {
    /// What the links have carried until now.
    Sample(TrialSample),
    /// A phase of a program has begun, or is over.
    Phase(TrialPhase),
    /// A party has printed lines.
    Output(TrialOutput),
    /// A connection to a site has failed, or is open again.
    Site(SiteChange),
}

/// Calls `measure`, and meanwhile `report` at regular times and once at the end. Links that are not
/// emulated have no counters. `number` is the trial's.
pub(super) fn during<T>(
    network: Option<&EmulatedNetwork>,
    number: usize,
    report: &(dyn Fn(&TrialProgress) + Sync),
    measure: impl FnOnce() -> T,
) -> T {
    let begin = Instant::now();
    // Without a directory for them there are no phases.
    let mut follower = PhaseFollower::new(number).ok();
    let mut outputs = OutputFollower::new(number).ok();
    let mut take = move |is_end: bool| {
        for output in outputs.iter_mut().flat_map(|outputs| outputs.news(is_end)) {
            report(&TrialProgress::Output(output));
        }
        for phase in follower.as_mut().map(PhaseFollower::news).unwrap_or_default() {
            report(&TrialProgress::Phase(phase));
        }
        let time_s = begin.elapsed().as_secs_f64();
        let links = network.map(carried).unwrap_or_default();
        report(&TrialProgress::Sample(TrialSample { time_s, links }));
    };
    let (measuring, is_measuring) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            while is_measuring.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                take(false);
            }
            take(true);
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_site_that_is_lost_or_back_is_an_event() {
        let lost = SiteChange::Lost { site: "fra".into(), why: "gone".into(), reconnect_s: 300.0 };
        let document = serde_json::to_value(TrialProgress::Site(lost)).unwrap();
        let expected = json!({
            "event": "site", "state": "lost", "site": "fra", "why": "gone", "reconnect_s": 300.0
        });
        assert_eq!(document, expected);
        let back = SiteChange::Back { site: "fra".into(), after_s: 2.5 };
        let document = serde_json::to_value(TrialProgress::Site(back)).unwrap();
        let expected = json!({ "event": "site", "state": "back", "site": "fra", "after_s": 2.5 });
        assert_eq!(document, expected);
    }
}
