//! Channels that lose datagrams for a while, lose long ones, or change their rate. The tunnel's
//! rate must follow, and return.

use std::time::Duration;

use crate::channel_faults::{ChannelFault, Fault};
use crate::load::LoadKind;
use crate::loaded_tunnel::undisturbed;
use crate::recovery::{Measurement, RATE_MBIT, Setting};

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The rate of a learning channel never returned: each loss lowered it, until too few datagrams
/// crossed to measure it.
pub(crate) fn a_channel_that_lost_most_datagrams_is_used_again_at_mu_3() {
    recovers(Setting::tcp(2.0, 3.0), Fault::Loss(0.6), seconds(15));
}

/// The same where fewer shares are spare.
pub(crate) fn a_channel_that_lost_most_datagrams_is_used_again_at_mu_2_5() {
    recovers(Setting::tcp(2.0, 2.5), Fault::Loss(0.6), seconds(15));
}

/// The same with less loss.
pub(crate) fn a_channel_that_lost_some_datagrams_is_used_again() {
    recovers(Setting::tcp(2.0, 2.5), Fault::Loss(0.3), seconds(15));
}

/// The same by UDP, which does not send less for a loss.
pub(crate) fn a_channel_that_lost_datagrams_carries_udp_again() {
    recovers(Setting::udp(2.0, 3.0), Fault::Loss(0.6), seconds(15));
}

/// Only short datagrams pass: nearly all of the load is lost, and no control message.
pub(crate) fn a_channel_that_lost_long_datagrams_is_used_again_at_kappa_2() {
    recovers(Setting::tcp(2.0, 2.5), Fault::MaxPacket(600), seconds(15));
}

/// The same where one share of two is enough.
pub(crate) fn a_channel_that_lost_long_datagrams_is_used_again_at_kappa_1() {
    recovers(Setting::tcp(1.0, 2.0), Fault::MaxPacket(1000), seconds(20));
}

/// The second channel has a fault for a while.
fn recovers(setting: Setting, fault: Fault, duration: Duration) {
    let fault = ChannelFault::new("b", fault, duration);
    let measured = Measurement::of(setting, &[fault]);
    println!("{setting:?}, {fault}: before, during, possible, after: {measured}");
    let failure = measured.failure().unwrap_or_default();
    assert!(failure.is_empty(), "{failure}; {:?}", measured.disturbance);
}

/// The least part of what is possible, within some seconds after a limit has appeared, and of what
/// is possible on average on a channel that changes.
const MIN_PART_AFTER_LIMIT: f64 = 0.9;
const MIN_PART_OF_CHANGES: f64 = 0.85;

/// The time after which a new limit must be known.
const LIMIT_KNOWN: Duration = seconds(5);

/// The length of queues that fill and overflow before a delay is noticed.
const SHORT_QUEUE_MS: f64 = 5.0;

/// The rate of a channel without a limit was not found when it got one, as less than half of the
/// old rate was offered.
pub(crate) fn a_rate_limit_that_appears_is_found_at_kappa_2_mu_2() {
    limit_appears(2.0);
}

/// The same where one share of two is enough.
pub(crate) fn a_rate_limit_that_appears_is_found_at_kappa_1_mu_2() {
    limit_appears(1.0);
}

/// A channel has no rate limit at first, and then that of the others, with short queues. A
/// connection that begins then does not offer as much as the old rate. What is possible is what a
/// connection reaches where nothing changes.
fn limit_appears(kappa: f64) {
    let setting = Setting { queue_ms: SHORT_QUEUE_MS, ..Setting::tcp(kappa, 2.0) };
    let unlimited = ChannelFault::new("b", Fault::Rate(None), Duration::ZERO);
    let possible = {
        let mut tunnel = setting.start(&[]);
        tunnel.set_load(LoadKind::ONE_FLOW);
        tunnel.rate_for(LIMIT_KNOWN);
        tunnel.rate_for(seconds(10))
    };
    let (rate, estimates) = undisturbed(|| {
        let mut tunnel = setting.start(&[unlimited]);
        tunnel.set(&unlimited, false);
        tunnel.set_load(LoadKind::ONE_FLOW);
        tunnel.rate_for(LIMIT_KNOWN);
        let result = (tunnel.rate_for(seconds(10)), tunnel.estimates());
        let is_low = result.0 < MIN_PART_AFTER_LIMIT * possible;
        (result, tunnel.disturbance().filter(|_| is_low))
    });
    println!("{setting:?}: {rate:.1} of {possible:.1} Mbit/s; {estimates}");
    assert!(rate >= MIN_PART_AFTER_LIMIT * possible, "{rate:.1} of {possible:.1}: {estimates}");
}

/// The two rates of a channel that changes, in Mbit/s, the time between two changes, and their
/// number.
const CHANGING_MBIT: [f64; 2] = [2.0, 40.0];
const CHANGE_INTERVAL: Duration = seconds(5);
const CHANGES: usize = 6;

/// Its rate was learnt too late each time.
pub(crate) fn a_channel_whose_rate_alternates_is_used_at_mu_2() {
    alternates(2.0);
}

pub(crate) fn a_channel_whose_rate_alternates_is_used_at_mu_2_5() {
    alternates(2.5);
}

pub(crate) fn a_channel_whose_rate_alternates_is_used_at_mu_3() {
    alternates(3.0);
}

fn alternates(mu: f64) {
    let channel = f64::from(RATE_MBIT);
    let fault = |rate| ChannelFault::new("b", Fault::Rate(Some(rate)), CHANGE_INTERVAL);
    let possible = |setting: Setting, rate| setting.possible(&[channel, rate, channel]);
    let setting = Setting { load: LoadKind::Udp(1.0), ..Setting::udp(2.0, mu) };
    let rates = CHANGING_MBIT.map(|rate| possible(setting, rate));
    let setting = Setting { load: LoadKind::Udp(1.1 * rates[1]), ..setting };
    let (measured, estimates) = undisturbed(|| {
        let tunnel = setting.start(&[]);
        let mut measured = [0.0; 2];
        for change in 0..CHANGES {
            tunnel.set(&fault(CHANGING_MBIT[change % 2]), true);
            measured[change % 2] += 2.0 / CHANGES as f64 * tunnel.rate_for(CHANGE_INTERVAL);
        }
        let is_low = measured.iter().sum::<f64>() < MIN_PART_OF_CHANGES * rates.iter().sum::<f64>();
        ((measured, tunnel.estimates()), tunnel.disturbance().filter(|_| is_low))
    });
    let part = measured.iter().sum::<f64>() / rates.iter().sum::<f64>();
    println!(
        "mu {mu}: at {CHANGING_MBIT:?} Mbit/s {measured:.1?} of {rates:.1?} Mbit/s, {:.0} %; {estimates}",
        100.0 * part
    );
    assert!(part >= MIN_PART_OF_CHANGES, "{measured:.1?} of {rates:.1?} Mbit/s; {estimates}");
}
