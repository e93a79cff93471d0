//! Faults of a channel change the plan in time, and so does their end.

use std::time::Duration;

use model::ChannelSubset;
use sunder_remicss::send::bounds::PlanBounds;

use super::scenario::{MS, Path};
use super::tunnel::Tunnel;

const MBPS: u64 = 20;

/// How long a change of a channel may take to change the plan.
const CHANGE_TIME: Duration = Duration::from_secs(2);

/// The bound that a plan keeps.
const MAX_LOSS: f64 = 0.05;

/// How often each channel is used while all are equally good.
const EQUAL_USAGE: f64 = 1.0 / 3.0;

/// Waits until the plan's use of a channel is as expected. Returns how long that took.
#[track_caller]
fn wait_for(tunnel: &mut Tunnel, what: &str, is_expected: impl Fn(&[f64]) -> bool) -> Duration {
    let began = tunnel.scenario.now();
    while !is_expected(&tunnel.usage) {
        let passed = tunnel.scenario.now().saturating_sub(began);
        assert!(passed < CHANGE_TIME, "{what}: after {passed:?}, {:?}", tunnel.usage);
        tunnel.run(MS);
    }
    tunnel.scenario.now().saturating_sub(began)
}

/// What changes a path.
type Fault = fn(&mut Path);

/// A channel that is cut is not used. One that loses half of its datagrams is used so little that
/// the bound is kept. Afterwards the channels are used equally again.
#[test]
fn faults_change_the_plan_within_two_seconds_and_back() {
    let faults: [(&str, Fault, f64); 2] = [
        ("cut", |path| path.is_cut = true, 0.0),
        ("loses half", |path| path.lost = 500, MAX_LOSS / 0.5),
    ];
    for (name, fault, most) in faults {
        for channel in 0..3 {
            for seed in 0..4 {
                let paths = [Path::new(MBPS, 30, 0, 10); 3];
                let rates = [Some(MBPS * 1_000_000); 3];
                let mut tunnel = Tunnel::new(&paths, &rates, (1.0, 1.0), seed);
                tunnel.goal.bounds =
                    PlanBounds { max_loss: Some(MAX_LOSS), ..PlanBounds::default() };
                let are_equal = |usage: &[f64]| {
                    usage.len() == 3 && usage.iter().all(|it| (it - EQUAL_USAGE).abs() < 0.02)
                };
                tunnel.run(Duration::from_secs(3));
                assert!(are_equal(&tunnel.usage), "{:?}", tunnel.usage);
                tunnel.scenario.set(channel, fault);
                // The loss is an estimate.
                let is_avoided = |usage: &[f64]| usage[channel] <= 1.3 * most + 1e-9;
                let what = format!("channel {channel} {name}, seed {seed}");
                let away = wait_for(&mut tunnel, &what, is_avoided);
                tunnel.run(Duration::from_secs(3));
                assert!(is_avoided(&tunnel.usage), "{what}: {:?}", tunnel.usage);
                tunnel.scenario.set(channel, |path| (path.is_cut, path.lost) = (false, 0));
                let back = wait_for(&mut tunnel, &format!("{what}, over"), are_equal);
                println!("{what}: avoided after {away:?}, used again after {back:?}");
            }
        }
    }
}

/// The peer's quota of a channel is used up: it reports the channel as down, although datagrams
/// arrive.
#[test]
fn a_channel_that_the_peer_leaves_out_is_not_used_until_it_is_available() {
    let paths = [Path::new(MBPS, 30, 0, 10); 3];
    let mut tunnel = Tunnel::new(&paths, &[Some(MBPS * 1_000_000); 3], (1.0, 1.0), 1);
    let are_equal =
        |usage: &[f64]| usage.len() == 3 && usage.iter().all(|it| (it - EQUAL_USAGE).abs() < 0.02);
    tunnel.run(Duration::from_secs(1));
    assert!(are_equal(&tunnel.usage), "{:?}", tunnel.usage);
    tunnel.scenario.ends[1].monitor.set_left_out(ChannelSubset::EMPTY.with(1));
    wait_for(&mut tunnel, "left out", |usage| usage[1] == 0.0);
    tunnel.run(Duration::from_secs(5));
    assert!(tunnel.usage[1] <= 0.0, "{:?}", tunnel.usage);
    tunnel.scenario.ends[1].monitor.set_left_out(ChannelSubset::EMPTY);
    wait_for(&mut tunnel, "available", are_equal);
}
