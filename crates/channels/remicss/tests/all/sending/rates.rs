//! Schedules and paces: how much is sent, and when.

use std::time::Duration;

use model::{
    ChannelModel, ChannelSet, ChannelSubset, LossProbability, PlanRequest, RiskProbability,
    ScheduleObjective, ShareSelection,
};
use sim::SeededRng;
use sunder_remicss::send::schedule::PlannedScheduler;
use sunder_remicss::send::sender::{SymbolSendError, SymbolSender};
use sunder_remicss::wire::datagram::SymbolKind;
use udp::DatagramBatch;

use super::end::*;

/// Sends full packets and returns the time for `symbols` packets after the first `warm`. Every wait
/// is longer than requested by the result of `late`.
fn saturate(
    sender: &mut SymbolSender,
    n: usize,
    (warm, symbols): (usize, usize),
    mut late: impl FnMut() -> Duration,
) -> Duration {
    let packet = [0; 1500 - OVERHEAD];
    let mut batches = batches(n);
    let (mut now, mut start) = (MS, MS);
    for i in 0..warm + symbols {
        if i == warm {
            start = now;
        }
        sender.begin().extend_from_slice(&packet);
        while let Err(SymbolSendError::Wait(until)) =
            sender.finish(SymbolKind::Packet, 0, now, &mut batches)
        {
            assert!(until > now);
            now = until + late();
        }
        batches.iter_mut().for_each(DatagramBatch::clear);
    }
    now.saturating_sub(start)
}

/// The symbols' rate is the model's (IV-C), and so are the shares on each channel, for any kappa
/// and mu, with equal and with different channels.
#[test]
fn a_plan_has_its_rate() {
    for rates in [[100.0; 5], DIVERSE] {
        let set = channels(&rates);
        for (kappa, mu) in grid(0.3) {
            let plan = set.plan(&request(kappa, mu, 1)).unwrap();
            let planned = PlannedScheduler::new(&plan.schedule, set.channels());
            let mut sender = sender_of(&rates, Box::new(planned));
            let took = saturate(&mut sender, 5, (1000, 10_000), || Duration::ZERO);
            let part = 10_000.0 * 12_000.0 / took.as_secs_f64() / (plan.averages.rate * 1e6);
            assert!((0.9997..1.0002).contains(&part), "{rates:?}, {kappa}, {mu}: {part}");
            for channel in 0..5 {
                let uses = 11_000.0 * plan.schedule.channel_usage(channel);
                let datagrams = sender.counts().datagrams[channel] as f64;
                // No threshold is more than 6 symbols ahead of its part.
                assert!((datagrams - uses).abs() <= 12.0, "{datagrams}, not {uses}");
            }
        }
    }
}

/// The delays in ms of the paper's Delayed setup (VI).
const DELAYS: [f64; 5] = [2.5, 0.25, 12.5, 5.0, 0.5];

/// Its channels, with rates multiplied, and the delays of full packets.
fn delayed(faster: f64) -> ChannelSet {
    let channel = |(rate, delay): (&f64, f64)| {
        let rate = faster * rate;
        ChannelModel::new(RiskProbability(0.1), LossProbability(0.0), delay + 12.0 / rate, rate)
            .unwrap()
    };
    ChannelSet::new(DIVERSE.iter().zip(DELAYS).map(channel).collect()).unwrap()
}

fn least_delay(kappa: f64, mu: f64) -> PlanRequest {
    request(kappa, mu, 1).with_objectives(vec![ScheduleObjective::Delay])
}

/// Less delay does not reduce the rate, however long a packet takes compared with the bucket.
#[test]
fn a_plan_has_its_rate_whatever_its_speed() {
    for faster in [0.3, 1.0, 4.0, 6.0, 11.0] {
        let set = delayed(faster);
        for (kappa, mu) in [(1.0, 3.3), (2.0, 2.6), (2.0, 3.1), (2.0, 3.4), (3.0, 3.4)] {
            let plan = set.plan(&least_delay(kappa, mu)).unwrap();
            let planned = PlannedScheduler::new(&plan.schedule, set.channels());
            let mut sender = sender_of(&DIVERSE.map(|rate| faster * rate), Box::new(planned));
            let took = saturate(&mut sender, 5, (1000, 20_000), || Duration::ZERO);
            let part = 20_000.0 * 12_000.0 / took.as_secs_f64() / (plan.averages.rate * 1e6);
            assert!((0.995..1.01).contains(&part), "{faster}, {kappa}, {mu}: {part}");
        }
    }
}

/// The mean time from a packet's arrival at the sender to its delivery, by the shares that are
/// sufficient for it, if packets arrive evenly at 99.5 % of the rate and channels have the delays
/// of the paper's Delayed setup (VI). Also the model's, both in ms, and the interval between two
/// packets.
fn delay_at_full_rate(kappa: f64, mu: f64) -> (f64, f64, f64) {
    let (set, sending) = (delayed(1.0), DIVERSE.map(|rate| 12.0 / rate));
    let plan = set.plan(&least_delay(kappa, mu)).unwrap();
    let mut sender =
        sender_of(&DIVERSE, Box::new(PlannedScheduler::new(&plan.schedule, set.channels())));

    let between = 12.0 / (0.995 * plan.averages.rate);
    let packet = [0; 1500 - OVERHEAD];
    let (mut free, mut sum, mut batches) = ([0.0; 5], 0.0, batches(5));
    for i in 0..8000 {
        let arrived = 1.0 + f64::from(i) * between;
        sender.begin().extend_from_slice(&packet);
        let mut now = Duration::from_secs_f64(arrived / 1e3);
        let sent = loop {
            match sender.finish(SymbolKind::Packet, 0, now, &mut batches) {
                Ok(sent) => break sent,
                Err(SymbolSendError::Wait(until)) => now = until,
                Err(error) => panic!("{error}"),
            }
        };
        batches.iter_mut().for_each(DatagramBatch::clear);
        let arrival = |channel: usize| {
            free[channel] = f64::max(free[channel], now.as_secs_f64() * 1e3) + sending[channel];
            free[channel] + DELAYS[channel]
        };
        let mut arrivals: Vec<f64> = sent.threshold.channels().iter().map(arrival).collect();
        arrivals.sort_by(f64::total_cmp);
        if i >= 2000 {
            sum += arrivals[sent.threshold.k() - 1] - arrived;
        }
    }
    (sum / 6000.0, plan.averages.delay_ms, between)
}

/// The model's delay with whole packets: no point exceeds it by much more than the interval between
/// two packets, and most exceed it by less than a twentieth.
#[test]
fn a_plan_has_its_delay() {
    let (mut points, mut above) = (0, Vec::new());
    for (kappa, mu) in grid(0.1) {
        let (delay, planned, between) = delay_at_full_rate(kappa, mu);
        assert!(delay > planned - 1e-3, "{kappa}, {mu}: {delay} ms, not {planned}");
        let most = planned + 1.3 * between;
        assert!(delay < most, "{kappa}, {mu}: {delay} ms, not {planned} to {most}");
        points += 1;
        if delay > 1.05 * planned {
            above.push((kappa, mu, delay / planned));
        }
    }
    assert_eq!(points, 105);
    assert!(above.len() <= 16, "{above:?}");
}

/// If each wake-up is up to 2 ms late, it still sends as much.
#[test]
fn a_late_sender_catches_up() {
    for (kappa, mu) in [(1.0, 1.0), (1.0, 2.5), (3.0, 3.8)] {
        let scheduler = || diverse_plan(kappa, mu, 1);
        let mut rng = SeededRng::new(7);
        let mut late = || rng.duration_between(Duration::ZERO, 2 * MS);
        let part = (1000, 10_000);
        let on_time = saturate(&mut sender_of(&DIVERSE, scheduler()), 5, part, || Duration::ZERO);
        let lately = saturate(&mut sender_of(&DIVERSE, scheduler()), 5, part, &mut late);
        assert!(lately.abs_diff(on_time) <= 2 * MS, "{lately:?}, not {on_time:?}");
        // Beyond that, the lost time is not made up.
        let slowly = saturate(&mut sender_of(&DIVERSE, scheduler()), 5, part, || 20 * MS);
        assert!(slowly > on_time + on_time / 4, "{slowly:?}, {on_time:?}");
    }
}

/// The number of packets that are sent at once after a pause.
#[test]
fn a_sender_does_not_catch_up_idle_time() {
    let at_once = |rests: bool| {
        let threshold = ShareSelection::new(1, ChannelSubset::first(1)).unwrap();
        let mut sender = sender_of(&[120.0], constant(threshold));
        saturate(&mut sender, 1, (0, 100), || Duration::ZERO);
        if rests {
            sender.set_idle();
        }
        let (mut count, mut batches) = (0, batches(1));
        let packet = [0; 1500 - OVERHEAD];
        while send(&mut sender, &packet, Duration::from_secs(1), &mut batches).is_ok() {
            count += 1;
        }
        count
    };
    // A packet takes 100 µs: the bucket holds 20.
    assert_eq!((at_once(true), at_once(false)), (20, 40));
}

/// Points of the paper's figures: whole kappa, and mu in steps up to 5.
fn grid(step: f64) -> Vec<(f64, f64)> {
    let mut points = Vec::new();
    for kappa in 1..=5 {
        let mut mu = f64::from(kappa);
        while mu <= 5.0 + 1e-9 {
            points.push((f64::from(kappa), mu.min(5.0)));
            mu += step;
        }
    }
    points
}
