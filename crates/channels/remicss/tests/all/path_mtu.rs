//! Paths whose MTU is small, or changes while packets are sent, without ICMP.

use std::time::Duration;

use sim::SeededRng;
use udp::MIN_MTU;

use crate::scenario::Scenario;

/// The length of the headers of IPv4 and UDP.
const HEADERS: u16 = 28;

/// The time within which all packets must arrive again.
const RECOVERY_TIME: Duration = Duration::from_secs(3);

/// The time within which a tunnel knows its paths' MTUs, and within which one that is larger again
/// after a black hole is used.
const SEARCH_TIME: Duration = Duration::from_secs(5);
const RAISE_TIME: Duration = Duration::from_secs(40);

/// The interval of packets in each direction: three quarters of the channels' rates.
const INTERVAL: Duration = Duration::from_millis(2);

/// The lengths of packets.
const LENGTHS: [usize; 5] = [100, 1200, 1230, 1300, 1451];

/// Where packets longer than an MTU are lost.
#[derive(Clone, Copy, Debug)]
struct Hole {
    mtu: u16,
    channels: usize,
    ends: &'static [usize],
}

impl Hole {
    fn open(self, scenario: &mut Scenario) {
        self.set(scenario, usize::from(self.mtu - HEADERS));
    }

    fn close(self, scenario: &mut Scenario) {
        self.set(scenario, usize::MAX);
    }

    fn set(self, scenario: &mut Scenario, len: usize) {
        for end in self.ends {
            for channel in 0..self.channels {
                scenario.set_max_datagram_len(*end, channel, len);
            }
        }
    }
}

/// Holes of every kind.
fn holes() -> impl Iterator<Item = Hole> {
    [1400, 1372, MIN_MTU].into_iter().flat_map(|mtu| {
        [1, 2].into_iter().flat_map(move |channels| {
            [&[0][..], &[1], &[0, 1]].map(|ends| Hole { mtu, channels, ends })
        })
    })
}

fn scenario(kappa: f64, mu: f64, rng: &mut SeededRng) -> Scenario {
    let floor = if kappa < 2.0 { 1 } else { 2 };
    let mut scenario = Scenario::new(2, floor, 2, rng);
    scenario.set_goal(kappa, mu);
    scenario
}

/// Sends packets of all lengths in both directions. Returns the numbers of those that did not
/// arrive, by receiving end.
fn send(scenario: &mut Scenario, time: Duration, rng: &mut SeededRng) -> [usize; 2] {
    let before = [0, 1].map(|end| scenario.delivered(end));
    let mut count = 0;
    let begin = scenario.now();
    while scenario.now() < begin + time {
        for end in 0..2 {
            scenario.send_packet(end, LENGTHS[count % LENGTHS.len()]);
        }
        count += 1;
        scenario.advance(INTERVAL, rng);
    }
    // The last ones arrive, and a symbol waits 200 ms at most for an earlier one.
    scenario.advance(Duration::from_millis(300), rng);
    [0, 1].map(|end| count - (scenario.delivered(end) - before[end]))
}

/// Each hole is opened with one of two plans. `SUNDER_SEEDS=36` opens all of them with both plans,
/// `SUNDER_SEED=S` one of them with one.
#[test]
fn packets_arrive_again_soon_after_an_mtu_has_shrunk() {
    let holes: Vec<Hole> = holes().collect();
    sim::run_seeds(holes.len() as u64, |seed| {
        let case = usize::try_from(seed).unwrap();
        let (round, hole) = (case / holes.len(), case % holes.len());
        // Holes of each MTU, of each number of channels and of each end are opened with both plans.
        let kappa = if (hole / 6 + hole + round) % 2 == 0 { 1.0 } else { 2.0 };
        open_and_close(holes[hole], kappa, hole as u64);
    });
}

fn open_and_close(hole: Hole, kappa: f64, seed: u64) {
    let case = format!("kappa {kappa}, {hole:?}");
    let mut rng = SeededRng::new(seed);
    let mut scenario = scenario(kappa, 2.0, &mut rng);
    scenario.advance(SEARCH_TIME, &mut rng);
    assert_eq!(send(&mut scenario, Duration::from_secs(2), &mut rng), [0; 2], "{case}");
    hole.open(&mut scenario);
    send(&mut scenario, RECOVERY_TIME, &mut rng);
    for end in 0..2 {
        scenario.take_longest_share(end);
    }
    let lost = send(&mut scenario, SEARCH_TIME, &mut rng);
    assert_eq!(lost, [0; 2], "{case}");
    for end in 0..2 {
        let is_in = |channel| hole.ends.contains(&end) && channel < hole.channels;
        for (channel, path) in scenario.path_mtus(end).iter().enumerate() {
            let mtu = if is_in(channel) { hole.mtu } else { 1500 };
            assert_eq!(path.mtu, Some(mtu), "{case}: channel {channel} of {end}");
            assert_eq!(path.black_hole.is_some(), is_in(channel), "{case}");
        }
        let longest = if is_in(0) { hole.mtu } else { 1500 };
        let longest = usize::from(longest - HEADERS);
        assert!(scenario.take_longest_share(end) <= longest, "{case}");
    }
    hole.close(&mut scenario);
    scenario.advance(RAISE_TIME, &mut rng);
    for end in 0..2 {
        let paths = scenario.path_mtus(end);
        assert!(paths.iter().all(|path| path.mtu == Some(1500)), "{case}: {paths:?}");
        assert!(paths.iter().all(|path| path.black_hole.is_none()), "{case}");
    }
    assert_eq!(send(&mut scenario, Duration::from_secs(1), &mut rng), [0; 2], "{case}");
}

#[test]
fn a_tunnel_begins_with_the_minimum_mtu() {
    for (seed, hole) in holes().enumerate() {
        let mut rng = SeededRng::new(seed as u64);
        let mut scenario = scenario(2.0, 2.0, &mut rng);
        hole.open(&mut scenario);
        while scenario.members(0).min(scenario.members(1)) < 2 {
            scenario.advance(INTERVAL, &mut rng);
        }
        let begin = scenario.now();
        // The planner of the other end has the keys.
        scenario.advance(Duration::from_millis(1), &mut rng);
        let lost = send(&mut scenario, Duration::from_secs(2), &mut rng);
        assert_eq!(lost, [0; 2], "{hole:?}");
        let waited = scenario.now().saturating_sub(begin);
        scenario.advance(SEARCH_TIME.saturating_sub(waited), &mut rng);
        for end in 0..2 {
            let is_in = |channel| hole.ends.contains(&end) && channel < hole.channels;
            for (channel, path) in scenario.path_mtus(end).iter().enumerate() {
                let mtu = if is_in(channel) { hole.mtu } else { 1500 };
                assert_eq!(path.mtu, Some(mtu), "{hole:?}: channel {channel} of {end}");
            }
        }
    }
}

/// Keys are renewed, and the MTUs stay known.
#[test]
fn a_new_association_keeps_the_mtus() {
    let mut rng = SeededRng::new(1);
    let mut scenario = scenario(2.0, 2.0, &mut rng);
    let age = Duration::from_secs(8);
    let limits = sunder_remicss::endpoint::settings::KeyRenewalLimits {
        age,
        ..sunder_remicss::endpoint::settings::KeyRenewalLimits::default()
    };
    scenario.set_key_limits([limits; 2]);
    scenario.advance(SEARCH_TIME, &mut rng);
    while scenario.associations(0) < 3 {
        scenario.advance(INTERVAL, &mut rng);
        for end in 0..2 {
            let paths = scenario.path_mtus(end);
            assert!(paths.iter().all(|path| path.mtu == Some(1500)), "{paths:?}");
        }
    }
}
