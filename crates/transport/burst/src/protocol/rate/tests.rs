//! Tests of the model in simulation: alone, with a wrong initial rate, on changing paths, and
//! beside competing flows.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::unchecked_time_subtraction,
    reason = "simulated numbers are small, and times in order"
)]

use std::time::Duration;

use super::competitors::{SimulatedBbr, SimulatedCubic};
use super::simulation::{
    BottleneckSimulation, PACKET, SimulatedAck, SimulatedBottleneck, SimulatedCongestionControl,
    SimulatedFlow, SimulatedPacketRecord,
};
use super::{BurstAckEvent, BurstCongestionModel, BurstLossEvent, PacketSendState};

/// The model, and its path's round-trip time without a queue.
struct Modelled(BurstCongestionModel, Duration);

impl SimulatedCongestionControl for Modelled {
    fn on_sent(&mut self, now: Duration) -> Option<PacketSendState> {
        Some(self.0.on_sent(now, PACKET as usize))
    }

    fn on_ack(&mut self, ack: &SimulatedAck) {
        if let Some(train) = ack.train {
            self.0.on_train(train);
        }
        self.0.on_ack(
            ack.now,
            &BurstAckEvent {
                newest: ack.record.model.expect("it is from on_sent"),
                packets: 1,
                bytes: PACKET,
                // The peer has a clock of its own.
                received_at: ack.received_at + Duration::from_secs(1000),
                // Without the peer's acknowledgement delay.
                round_trip: ack.received_at - ack.record.sent_at + self.1 / 2,
            },
        );
    }

    fn on_loss(&mut self, now: Duration, newest: &SimulatedPacketRecord, packets: u64) {
        let newest = newest.model.expect("it is from on_sent");
        self.0.on_loss(now, &BurstLossEvent { newest, packets, bytes: packets * PACKET });
    }

    fn on_idle(&mut self) {
        self.0.on_idle();
    }

    fn rate(&self) -> f64 {
        self.0.rate()
    }

    fn window(&self) -> u64 {
        self.0.window()
    }

    fn burst(&self) -> u64 {
        self.0.burst()
    }
}

/// A flow with the model, with an initial rate in Mbit/s.
fn ours(start_mbit: Option<f64>, round_trip_ms: f64) -> SimulatedFlow {
    let round_trip = Duration::from_secs_f64(round_trip_ms / 1e3);
    let model = BurstCongestionModel::new(start_mbit.map(|mbit| mbit * 125e3), PACKET as usize);
    let interval = (round_trip / 8).clamp(Duration::from_micros(200), Duration::from_millis(25));
    let control = Box::new(Modelled(model, round_trip));
    SimulatedFlow::new(control, round_trip_ms).with_ack_interval(interval)
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// In s, the time until 99 % has arrived, minus the one-way delay, and the transmission time of all
/// bytes on the line alone. Repair packets stand in for the last 1 %.
fn transfer(mib: u64, mbit: f64, queue_ms: f64, start: Option<f64>) -> (f64, f64) {
    let mut path = SimulatedBottleneck::new(mbit, queue_ms);
    path.loss = 0.0005;
    let flow = ours(start.map(|part| part * mbit), 300.0).with_bytes(mib << 20);
    let mut simulation = BottleneckSimulation::new(path, vec![flow], 1);
    simulation.run(seconds(60.0));
    let done = simulation.flows[0].done_at.expect("it ends").as_secs_f64() - 0.15;
    (done, (mib << 20) as f64 * 8.0 / (mbit * 1e6))
}

#[test]
fn transfers_over_300_ms() {
    // 2.4, 1.4 and 5.8 s in all, less 0.3 s for the handshake and 0.3 s for the acknowledgement.
    for (mib, mbit, queue_ms, limit) in
        [(32, 200.0, 100.0, 1.8), (32, 1000.0, 50.0, 0.8), (256, 500.0, 50.0, 5.2)]
    {
        // Bad measurements give a tenth of the rate, or ten times it.
        for start in [0.1, 0.3, 0.5, 0.8, 0.9, 1.0, 1.3, 2.0, 3.0, 10.0] {
            let (done, line) = transfer(mib, mbit, queue_ms, Some(start));
            let what = format!("{mib} MiB, {mbit} Mbit/s, started at {start} of it: {done:.2} s");
            assert!(done < limit, "{what} of {limit} s");
            assert!(done < line + 0.45, "{what} with {line:.2} s on the line");
        }
        // Without an initial rate.
        let (done, line) = transfer(mib, mbit, queue_ms, None);
        assert!(done < line + 0.9, "{mib} MiB, {mbit} Mbit/s: {done:.2} s for {line:.2} s");
    }
}

#[test]
fn it_uses_a_path_alone() {
    for round_trip in [1.0, 10.0, 40.0, 100.0, 300.0] {
        for loss in [0.0, 0.0005, 0.01] {
            for queue in [0.1, 0.5, 2.0] {
                let queue_ms = f64::max(queue * round_trip, 2.0);
                let mut path = SimulatedBottleneck::new(100.0, queue_ms);
                path.loss = loss;
                let flow = ours(Some(80.0), round_trip);
                let mut simulation = BottleneckSimulation::new(path, vec![flow], 1);
                simulation.run(seconds(20.0));
                let part = simulation.utilisation(1, 20);
                let flow = &simulation.flows[0];
                let lost = flow.lost as f64 / flow.sent as f64;
                let bound = f64::max(10.0, round_trip / 8.0);
                let delay = flow.smoothed.as_secs_f64() * 1e3 - round_trip;
                let what = format!("{round_trip} ms, loss {loss}, queue {queue_ms} ms");
                assert!(part > 0.91, "{what}: {part:.3} of the path");
                assert!(lost < loss * 1.2 + 0.005, "{what}: lost {lost:.4}");
                assert!(delay < bound, "{what}: {delay:.1} ms in the queue");
            }
        }
    }
}

#[test]
fn a_loss_that_does_not_depend_on_the_rate_is_tolerated() {
    for round_trip in [10.0, 80.0, 300.0] {
        for loss in [0.03, 0.05, 0.1] {
            let mut path = SimulatedBottleneck::new(100.0, 50.0);
            path.loss = loss;
            let flow = ours(Some(80.0), round_trip);
            let mut simulation = BottleneckSimulation::new(path, vec![flow], 1);
            simulation.run(seconds(10.0));
            let part = simulation.utilisation(2, 10) / (1.0 - loss);
            assert!(part > 0.8, "{round_trip} ms, loss {loss}: {part:.3} of the path");
        }
    }
}

#[test]
fn it_follows_a_path_that_changes() {
    for round_trip in [20.0, 100.0, 300.0] {
        for (from, to) in [(100.0, 20.0), (20.0, 100.0), (100.0, 50.0), (50.0, 100.0)] {
            let mut path = SimulatedBottleneck::new(from, 50.0);
            path.loss = 0.0005;
            path.changes = vec![(seconds(8.0), to * 125e3)];
            let flow = ours(Some(from), round_trip);
            let mut simulation = BottleneckSimulation::new(path, vec![flow], 1);
            simulation.run(seconds(8.0));
            let before = simulation.flows[0].lost;
            simulation.run(seconds(16.0));
            let flow = &simulation.flows[0];
            let part = flow.mean_rate(11, 16) / (to * 125e3);
            let what = format!("{round_trip} ms, from {from} to {to} Mbit/s");
            assert!(part > 0.85, "{what}: {part:.2} after 3 s");
            // Expected losses: what was sent at the old rate before the first acknowledgement could
            // show the change, and the probing for a new rate, at most half of what the path holds.
            let packets = |mbit: f64| mbit * 125e3 * (round_trip / 1e3) / PACKET as f64;
            let most = 1.5 * packets((from - to).max(0.0)) + 0.5 * packets(to) + 100.0;
            let lost = (flow.lost - before) as f64;
            assert!(lost < most, "{what}: {lost} lost of {most:.0} allowed");
        }
    }
}

#[test]
fn an_application_that_sends_little_does_not_lower_the_rate() {
    let mut model = BurstCongestionModel::new(Some(1e6), 1500);
    let mut now = Duration::from_secs(1);
    // A packet every 100 ms, with a round trip of 20 ms.
    for _ in 0..200 {
        let sent = model.on_sent(now, 1500);
        model.on_idle();
        now += Duration::from_millis(20);
        let acked = BurstAckEvent {
            newest: sent,
            packets: 1,
            bytes: 1500,
            received_at: now,
            round_trip: Duration::from_millis(20),
        };
        model.on_ack(now, &acked);
        now += Duration::from_millis(80);
    }
    assert!(model.rate() > 0.7e6, "{}", model.rate());
    assert_eq!(model.in_flight(), 0);
}

#[test]
fn nothing_makes_the_rate_impossible() {
    let mut random = sim::SeededRng::new(7);
    for _ in 0..300 {
        let start = [None, Some(0.0), Some(f64::NAN), Some(1e12), Some(1.0)];
        let mut model = BurstCongestionModel::new(start[random.below(5) as usize], 1200);
        let mut now = Duration::ZERO;
        let mut open = Vec::new();
        for _ in 0..300 {
            now += Duration::from_micros(random.below(100_000) * random.below(2));
            match random.below(6) {
                0..3 => open.push(model.on_sent(now, 1200)),
                3 if !open.is_empty() => {
                    let newest = open.swap_remove(random.below(open.len() as u64) as usize);
                    let acked = BurstAckEvent {
                        newest,
                        packets: 1 + random.below(3),
                        bytes: random.below(4000),
                        received_at: Duration::from_micros(random.below(1 << 50)),
                        round_trip: Duration::from_micros(random.below(1_000_000)),
                    };
                    model.on_ack(now, &acked);
                }
                4 if !open.is_empty() => {
                    let newest = open.swap_remove(random.below(open.len() as u64) as usize);
                    model.on_loss(now, &BurstLossEvent { newest, packets: 1, bytes: 1200 });
                }
                _ => model.on_train(random.below(1 << 40) as f64),
            }
            let rate = model.rate();
            assert!(rate > 0.0 && rate.is_finite(), "{rate}");
            assert!(model.window() >= 4 * 1200, "{}", model.window());
            assert!((1200..=64 * 1200).contains(&model.burst()), "{}", model.burst());
        }
    }
}

/// The shares of our flow and of another one. The second flow starts two seconds late.
fn shares(
    other: impl Fn() -> SimulatedFlow,
    mbit: f64,
    round_trip: f64,
    queue: f64,
) -> [[f64; 2]; 2] {
    [0.0, 2.0].map(|ours_start| {
        let path = SimulatedBottleneck::new(mbit, queue * round_trip);
        let first = ours(Some(0.4 * mbit), round_trip).with_start(ours_start);
        let flows = vec![first, other().with_start(2.0 - ours_start)];
        let mut simulation = BottleneckSimulation::new(path, flows, 1);
        simulation.run(seconds(60.0));
        [0, 1].map(|i: usize| simulation.flows[i].mean_rate(15, 60) / (mbit * 125e3))
    })
}

/// The least share, the fraction of runs in which both have at least half of an equal share, and
/// the mean of Jain's index, over paths whose queue holds at least 16 packets.
fn fairness(other: impl Fn(f64, f64) -> SimulatedFlow) -> [f64; 3] {
    let (mut least, mut fair, mut jain, mut count) = (1.0_f64, 0.0, 0.0, 0.0);
    for mbit in [50.0, 200.0] {
        for round_trip in [10.0, 40.0, 100.0] {
            for queue in [0.1, 0.3, 1.0, 2.0] {
                if mbit * 125.0 * queue * round_trip < 16.0 * PACKET as f64 {
                    continue;
                }
                for [a, b] in shares(|| other(mbit, round_trip), mbit, round_trip, queue) {
                    println!("{mbit} Mbit/s {round_trip} ms {queue} BDP: {a:.2} {b:.2}");
                    least = least.min(a).min(b);
                    fair += f64::from(u8::from(a.min(b) >= 0.25));
                    jain += (a + b).powi(2) / (2.0 * (a * a + b * b));
                    count += 1.0;
                }
            }
        }
    }
    println!("least {least:.2} fair {:.2} jain {:.2}", fair / count, jain / count);
    [least, fair / count, jain / count]
}

#[test]
fn it_shares_with_itself() {
    let [least, _, jain] = fairness(|mbit, round_trip| ours(Some(0.4 * mbit), round_trip));
    assert!(least >= 0.25 && jain > 0.95, "least share {least:.2}, index {jain:.2}");
}

#[test]
fn it_shares_with_cubic() {
    let [least, fair, jain] =
        fairness(|_, round_trip| SimulatedFlow::new(Box::<SimulatedCubic>::default(), round_trip));
    assert!(
        least > 0.2 && fair > 0.95 && jain > 0.9,
        "least share {least:.2}, fair {fair:.2}, index {jain:.2}"
    );
}

/// Hosts batch acknowledgements, so that CUBIC sends several packets at once, which short queues do
/// not hold. CUBIC keeps half of what another CUBIC leaves it, and several times what BBR does.
#[test]
fn cubic_keeps_its_share_even_if_it_sends_in_bursts() {
    let cubic = || {
        let flow = SimulatedFlow::new(Box::<SimulatedCubic>::default(), 40.0);
        flow.with_ack_interval(Duration::from_millis(3))
    };
    for (queue, least) in [(0.1, 0.2), (0.3, 0.3), (1.0, 0.3)] {
        let beside = |other: SimulatedFlow| {
            let flows = vec![cubic(), other.with_start(2.0)];
            let mut simulation =
                BottleneckSimulation::new(SimulatedBottleneck::new(50.0, queue * 40.0), flows, 1);
            simulation.run(seconds(60.0));
            simulation.flows[0].mean_rate(15, 60) / (50.0 * 125e3)
        };
        let model = beside(ours(Some(20.0), 40.0));
        let bbr = beside(SimulatedFlow::new(Box::<SimulatedBbr>::default(), 40.0));
        let own = beside(cubic());
        println!("queue {queue}: CUBIC {model:.2}, beside BBR {bbr:.2}, beside CUBIC {own:.2}");
        assert!(model > least && model > 3.0 * bbr, "queue {queue}: {model:.2}, {bbr:.2}");
        assert!(model > 0.5 * own, "queue {queue}: {model:.2}, beside CUBIC {own:.2}");
    }
}

#[test]
fn it_shares_with_bbr() {
    let [least, fair, jain] =
        fairness(|_, round_trip| SimulatedFlow::new(Box::<SimulatedBbr>::default(), round_trip));
    assert!(
        least > 0.01 && fair > 0.3 && jain > 0.5,
        "least share {least:.2}, fair {fair:.2}, index {jain:.2}"
    );
}

#[test]
fn the_models_of_tcp_are_plausible() {
    // Two flows of one kind share; BBR takes most of a short queue from CUBIC (Ware et al. 2019).
    let run = |flows: Vec<SimulatedFlow>, queue_ms| {
        let mut simulation =
            BottleneckSimulation::new(SimulatedBottleneck::new(50.0, queue_ms), flows, 1);
        simulation.run(seconds(60.0));
        [0, 1].map(|i: usize| simulation.flows[i].mean_rate(15, 60) / (50.0 * 125e3))
    };
    let cubic = || SimulatedFlow::new(Box::<SimulatedCubic>::default(), 40.0);
    let bbr = || SimulatedFlow::new(Box::<SimulatedBbr>::default(), 40.0);
    for flows in [vec![cubic(), cubic().with_start(2.0)], vec![bbr(), bbr().with_start(2.0)]] {
        let [a, b] = run(flows, 40.0);
        assert!(a.min(b) > 0.3 && a + b > 0.95, "{a:.2} {b:.2}");
    }
    let [a, b] = run(vec![cubic(), bbr()], 12.0);
    assert!(a < 0.25 && b > 0.7, "CUBIC {a:.2}, BBR {b:.2}");
}
