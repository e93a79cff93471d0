//! Packets in order over channels whose delays differ: the rate of one flow and of several, their
//! order, their kappa and mu, and their delay. A sender, simulated links and a receiver, with
//! models of TCP, in virtual time.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers are small"
)]

mod flow;
mod tunnel;

use std::time::Duration;

use model::{ChannelModel, LossProbability, RiskProbability};
use sim::SeededRng;

use flow::FlowKind;
use tunnel::{OrderedTunnel, full_rate};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn channel(risk: f64, delay_ms: f64, rate: f64) -> ChannelModel {
    ChannelModel::new(RiskProbability(risk), LossProbability(0.0), delay_ms, rate).unwrap()
}

/// The uplinks of docs/guides/choosing-channels.md at half their rates, without their losses.
fn three_uplinks() -> Vec<ChannelModel> {
    vec![channel(0.01, 6.0, 50.0), channel(0.005, 25.0, 20.0), channel(0.002, 9.0, 10.0)]
}

/// The rate of this many flows, in Mbit/s, after the time that they take to find it.
fn measure(tunnel: &mut OrderedTunnel, flows: usize, kind: FlowKind) -> f64 {
    (0..flows).for_each(|_| tunnel.add_flow(kind));
    tunnel.run(3 * SECOND);
    tunnel.rate_for(4 * SECOND)
}

#[test]
fn flows_in_order_have_the_rate_of_the_plan_over_all_channels() {
    for (kappa, mu) in [(1.0, 1.0), (1.5, 2.0), (2.0, 2.0), (2.0, 2.5)] {
        for kind in [FlowKind::LossBased, FlowKind::Bbr] {
            for flows in [1, 8] {
                let mut tunnel = OrderedTunnel::new(three_uplinks(), kappa, mu);
                let rate = measure(&mut tunnel, flows, kind);
                let full = full_rate(&three_uplinks(), kappa, mu);
                let name = format!("kappa {kappa}, mu {mu}, {flows} {kind:?}");
                assert!(rate >= 0.9 * full, "{name}: {rate:.1} of {full:.1} Mbit/s");
                for flow in tunnel.flows() {
                    assert_eq!(flow.overtaken, 0, "{name}: packets of a flow overtake each other");
                    let (own_kappa, own_mu) = flow.means();
                    assert!((own_kappa - kappa).abs() < 0.1, "{name}: kappa {own_kappa}");
                    assert!((own_mu - mu).abs() < 0.1, "{name}: mu {own_mu}");
                }
            }
        }
    }
}

#[test]
fn a_bbr_flow_fills_a_distant_channel() {
    let channels = vec![channel(0.0, 2.0, 50.0), channel(0.0, 80.0, 20.0), channel(0.0, 3.0, 10.0)];
    let full = full_rate(&channels, 2.0, 2.0);
    let mut tunnel = OrderedTunnel::new(channels, 2.0, 2.0);
    let rate = measure(&mut tunnel, 1, FlowKind::Bbr);
    assert!(rate >= 0.9 * full, "{rate:.1} of {full:.1} Mbit/s");
}

/// Whether a flow has paused or not, and whatever channels its packets use.
#[test]
fn all_packets_have_the_delay_of_the_slowest_symbols_of_the_plan() {
    for interval in [2 * MS, 7 * MS, 300 * MS] {
        let mut tunnel = OrderedTunnel::new(three_uplinks(), 2.0, 2.0);
        tunnel.add_flow(FlowKind::Sparse(interval));
        tunnel.run(40 * interval);
        tunnel.forget_delays();
        tunnel.run(100 * interval);
        let (shortest, longest) = tunnel.flows()[0].delays();
        // A full packet takes 0.6 ms on the slowest channel, and delays end at a millisecond.
        let expected = 25 * MS..=29 * MS;
        assert!(
            expected.contains(&shortest) && expected.contains(&longest),
            "every {interval:?}: {shortest:?} to {longest:?}"
        );
    }
}

/// A plan that can do without the slow channel, or needs it for redundant shares only, costs no
/// delay.
#[test]
fn packets_do_not_wait_for_a_channel_that_adds_little_or_only_redundancy() {
    let little = vec![channel(0.0, 5.0, 50.0), channel(0.0, 60.0, 5.0)];
    let redundant =
        vec![channel(0.0, 5.0, 20.0), channel(0.0, 6.0, 20.0), channel(0.0, 60.0, 20.0)];
    for (channels, kappa, mu) in [(little, 1.0, 1.0), (redundant, 2.0, 3.0)] {
        let mut tunnel = OrderedTunnel::new(channels, kappa, mu);
        tunnel.add_flow(FlowKind::Sparse(3 * MS));
        // It is not known from the start which channels complete symbols.
        tunnel.run(SECOND);
        tunnel.forget_delays();
        tunnel.run(SECOND);
        let (_, longest) = tunnel.flows()[0].delays();
        assert!(longest < 10 * MS, "{longest:?}");
    }
}

#[test]
fn flows_stay_in_order_when_a_channel_dies_and_returns() {
    let channels = three_uplinks();
    for lost in 0..3 {
        let mut tunnel = OrderedTunnel::new(channels.clone(), 2.0, 2.0);
        let all = measure(&mut tunnel, 8, FlowKind::Datagrams);
        tunnel.set_off(lost, true);
        tunnel.run(300 * MS);
        tunnel.plan_without(&[lost]);
        tunnel.run(SECOND);
        let rest: Vec<ChannelModel> =
            (0..3).filter(|channel| *channel != lost).map(|channel| channels[channel]).collect();
        let (rate, full) = (tunnel.rate_for(SECOND), full_rate(&rest, 2.0, 2.0));
        assert!(rate >= 0.9 * full, "without {lost}: {rate:.1} of {full:.1} Mbit/s");
        tunnel.set_off(lost, false);
        tunnel.plan_without(&[]);
        tunnel.run(SECOND);
        let rate = tunnel.rate_for(SECOND);
        assert!(rate >= 0.98 * all, "{lost} is back: {rate:.1} of {all:.1} Mbit/s");
        let overtaken: u64 = tunnel.flows().iter().map(|flow| flow.overtaken).sum();
        assert_eq!(overtaken, 0, "without {lost}");
    }
}

/// Of any channels whose delays differ by less than what the receiver makes up for.
#[test]
fn order_costs_at_most_a_tenth_of_any_plan() {
    sim::run_seeds(40, |seed| {
        let mut rng = SeededRng::new(seed);
        let n = 2 + rng.index(3);
        let draw = |rng: &mut SeededRng, most: u64| rng.below(1000 * most) as f64 / 1000.0;
        let channels: Vec<ChannelModel> = (0..n)
            .map(|_| {
                channel(draw(&mut rng, 1), 1.0 + draw(&mut rng, 120), 2.0 + draw(&mut rng, 20))
            })
            .collect();
        let kappa = 1.0 + draw(&mut rng, n as u64 - 1);
        let mu = kappa + draw(&mut rng, 1000) / 1000.0 * (n as f64 - kappa);
        let mut tunnel = OrderedTunnel::new(channels.clone(), kappa, mu);
        let (planned, full) = (tunnel.planned_rate(), full_rate(&channels, kappa, mu));
        assert!(planned >= 0.9 * full, "seed {seed}: {planned:.2} of {full:.2} Mbit/s");
        (0..8).for_each(|_| tunnel.add_flow(FlowKind::Datagrams));
        tunnel.run(SECOND);
        let rate = tunnel.rate_for(2 * SECOND);
        assert!(rate >= 0.93 * planned, "seed {seed}: {rate:.2} of {planned:.2} Mbit/s");
        for flow in tunnel.flows() {
            assert_eq!(flow.overtaken, 0, "seed {seed}");
        }
        let (own_kappa, own_mu) = tunnel.means();
        assert!((own_kappa - kappa).abs() < 0.1, "seed {seed}: kappa {own_kappa} of {kappa}");
        assert!((own_mu - mu).abs() < 0.1, "seed {seed}: mu {own_mu} of {mu}");
    });
}
