//! The sending side: what a receiver gets, and when.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers are small"
)]

use std::time::Duration;

use model::{Channel, ChannelSet, Need, Objective, Schedule, Subset, Threshold};
use proptest::prelude::*;
use remicss::MAX_CHANNELS;
use remicss::batch::Batch;
use remicss::datagram::{HEADER_LEN, Header, Kind};
use remicss::keys::{Direction, Points, Token};
use remicss::pace::Pace;
use remicss::schedule::{Dynamic, Planned, Scheduler};
use remicss::sender::{MAX_DATAGRAM_LEN, NotSent, Sender, SenderError, Sent};
use remicss::symbol::{Tagger, Tampered};
use sharing::{Generator, Joiner, Sharing};
use sim::Rng;

const MS: Duration = Duration::from_millis(1);

/// What IPv4 and UDP add to a datagram, and all that is added to a packet.
const OUTER: usize = 28;
const OVERHEAD: usize = OUTER + HEADER_LEN + 1 + 8;

fn points() -> Points {
    Points::new(std::array::from_fn(|k| [u8::try_from(7 * k + 1).unwrap(); 8]))
}

fn direction(n: usize) -> Direction {
    let tokens = (0..n).map(|i| Token::new([u8::try_from(i).unwrap(), 0xAB, 0xCD])).collect();
    Direction { tokens, points: Some(points()) }
}

/// The pace of so many bit/s, after the headroom.
fn pace(rate_bps: Option<u64>) -> Pace {
    Pace::new(rate_bps.map(|rate| rate * 2000 / 1999), 1500, OUTER)
}

fn sender_at(
    floor: u8,
    rates: &[Option<u64>],
    scheduler: Box<dyn Scheduler>,
) -> Result<Sender, SenderError> {
    let paces = rates.iter().copied().map(pace).collect();
    let generator = Generator::seeded().unwrap();
    Sender::new(&direction(rates.len()), floor, paces, scheduler, generator)
}

fn constant(threshold: Threshold) -> Box<dyn Scheduler> {
    Box::new(Planned::new(&Schedule::constant(threshold)))
}

fn dynamic(kappa: f64, mu: f64) -> Box<dyn Scheduler> {
    Box::new(Dynamic::new(kappa, mu).unwrap())
}

fn subset(bits: u32) -> Subset {
    (0..MAX_CHANNELS).filter(|channel| bits >> channel & 1 == 1).collect()
}

fn batches(n: usize) -> Vec<Batch> {
    (0..n).map(|_| Batch::default()).collect()
}

/// All that is in the batches, channel by channel; they are empty then.
fn take(batches: &mut [Batch]) -> Vec<Vec<Vec<u8>>> {
    let datagrams = |batch: &Batch| {
        batch.runs().flat_map(|(bytes, len)| bytes.chunks(len)).map(<[u8]>::to_vec).collect()
    };
    let all = batches.iter().map(datagrams).collect();
    batches.iter_mut().for_each(Batch::clear);
    all
}

/// Joins datagrams of one symbol, each with its channel, and opens it.
fn open(shares: &[(usize, Vec<u8>)]) -> Result<(Header, u8, Vec<u8>), Tampered> {
    let (header, _) = Header::parse(&shares[0].1).unwrap();
    let sharing = Sharing::shamir(header.threshold, 16).unwrap();
    let coordinates: Vec<u8> =
        shares.iter().map(|(channel, _)| u8::try_from(channel + 1).unwrap()).collect();
    let bytes: Vec<&[u8]> = shares.iter().map(|(_, share)| &share[HEADER_LEN..]).collect();
    let mut symbol = vec![0; bytes[0].len()];
    Joiner::new(sharing).join(&coordinates, &bytes, &mut symbol).unwrap();
    let tagger = Tagger::new(Some(&points()));
    let inside = tagger.open(header.kind, header.threshold, header.sequence, &symbol)?;
    Ok((header, inside.previous, inside.content.to_vec()))
}

/// The one datagram of each channel that has one.
fn shares(batches: &mut [Batch]) -> Vec<(usize, Vec<u8>)> {
    let mut shares = Vec::new();
    for (channel, datagrams) in take(batches).into_iter().enumerate() {
        assert!(datagrams.len() <= 1);
        shares.extend(datagrams.into_iter().map(|datagram| (channel, datagram)));
    }
    shares
}

fn send(
    sender: &mut Sender,
    content: &[u8],
    now: Duration,
    batches: &mut [Batch],
) -> Result<Sent, NotSent> {
    sender.begin().extend_from_slice(content);
    sender.finish(Kind::Packet, 0, now, batches)
}

proptest! {
    #[test]
    fn any_k_shares_are_the_symbol(
        n in 1..=16_usize, bits: u16, k in 1..=16_usize,
        content in prop::collection::vec(any::<u8>(), 0..200),
        is_partial: bool, seed: u64,
    ) {
        let channels = subset(u32::from(bits)).iter().filter(|c| *c < n).collect::<Subset>().with(0);
        let threshold = Threshold::new(k.min(channels.len()), channels).unwrap();
        let mut sender = sender_at(1, &vec![None; n], constant(threshold)).unwrap();
        let mut batches = batches(n);
        let kind = if is_partial { Kind::PartialPacket } else { Kind::Packet };
        sender.begin().extend_from_slice(&content);
        let sent = sender.finish(kind, 3, MS, &mut batches).unwrap();
        prop_assert_eq!(sent, Sent { number: 1, threshold });

        let mut all = shares(&mut batches);
        prop_assert_eq!(all.iter().map(|(channel, _)| *channel).collect::<Subset>(), channels);
        for (channel, datagram) in &all {
            prop_assert_eq!(datagram.len(), HEADER_LEN + 1 + content.len() + 8);
            let (header, _) = Header::parse(datagram).unwrap();
            prop_assert_eq!(header.token, direction(n).tokens[*channel]);
            prop_assert_eq!(usize::from(header.threshold), threshold.k());
            prop_assert_eq!((header.kind, header.sequence), (kind, 1));
        }
        Rng::new(seed).shuffle(&mut all);
        let (_, previous, opened) = open(&all[..threshold.k()]).unwrap();
        prop_assert_eq!((previous, &opened), (0, &content));
        // A share that was changed is noticed.
        all[0].1[HEADER_LEN] ^= 1;
        prop_assert_eq!(open(&all[..threshold.k()]), Err(Tampered));
    }

    /// Whatever is up, and whichever scheduler: what leaves is on channels that are up, at the floor
    /// or above, and otherwise nothing leaves and it is counted.
    #[test]
    fn the_floor_is_never_crossed(
        floor in 1..=5_u8, above in 0.0..=1.0, is_planned: bool,
        ups in prop::collection::vec(0..32_u32, 1..40),
    ) {
        let kappa: f64 = f64::from(floor) + above * (5.0 - f64::from(floor));
        let mu = kappa.midpoint(5.0);
        let scheduler: Box<dyn Scheduler> = if is_planned {
            Box::new(Planned::new(&diverse_plan(kappa, mu, floor)))
        } else {
            dynamic(kappa, mu)
        };
        let mut sender = sender_at(floor, &[None; 5], scheduler).unwrap();
        let mut batches = batches(5);
        let mut dropped = 0;
        for up in ups.into_iter().map(subset) {
            sender.set_up(up);
            let sent = send(&mut sender, b"a packet", MS, &mut batches);
            let all = shares(&mut batches);
            if up.len() < usize::from(floor) {
                dropped += 1;
                prop_assert!(matches!(sent, Err(NotSent::BelowFloor)));
                prop_assert!(all.is_empty());
            } else {
                let threshold = sent.unwrap().threshold;
                prop_assert!(threshold.k() >= usize::from(floor));
                prop_assert!(up.includes(threshold.channels()));
                prop_assert_eq!(all.len(), threshold.m());
                for (_, datagram) in all {
                    prop_assert!(Header::parse(&datagram).unwrap().0.threshold >= floor);
                }
            }
        }
        prop_assert_eq!(sender.counts().below_floor, dropped);
    }
}

#[test]
fn numbers_and_previous_ones_go_on() {
    let threshold = Threshold::new(2, Subset::first(2)).unwrap();
    let mut sender = sender_at(2, &[None; 2], constant(threshold)).unwrap();
    let mut batches = batches(2);
    let mut previous = |sender: &mut Sender, flow, now, number| {
        sender.begin().extend_from_slice(b"packet");
        assert_eq!(sender.finish(Kind::Packet, flow, now, &mut batches).unwrap().number, number);
        open(&shares(&mut batches)).unwrap().1
    };
    assert_eq!(previous(&mut sender, 5, MS, 1), 0);
    assert_eq!(previous(&mut sender, 6, MS, 2), 0);
    assert_eq!(previous(&mut sender, 5, MS, 3), 2);
    // One that is dropped has no number, and is nobody's previous one.
    sender.set_up(Subset::EMPTY);
    let nowhere = &mut self::batches(2);
    assert!(matches!(send(&mut sender, b"", MS, nowhere), Err(NotSent::BelowFloor)));
    sender.set_up(Subset::first(2));
    assert_eq!(previous(&mut sender, 5, MS, 4), 1);
    for number in 5..304 {
        assert_eq!(previous(&mut sender, 7, MS, number), u8::from(number > 5));
    }
    assert_eq!(previous(&mut sender, 5, 100 * MS, 304), 255);
    assert_eq!(previous(&mut sender, 5, 500 * MS, 305), 0);
}

#[test]
fn what_cannot_be_sent_is_dropped_and_counted() {
    let threshold = Threshold::new(1, Subset::first(1)).unwrap();
    let mut sender = sender_at(0, &[None], constant(threshold)).unwrap();
    let mut batches = batches(1);
    let mut finish =
        |sender: &mut Sender| sender.finish(Kind::Packet, 0, MS, &mut batches).map(|_| ());
    assert!(matches!(finish(&mut sender), Err(NotSent::Nothing)));
    let longest = MAX_DATAGRAM_LEN - HEADER_LEN - 9;
    sender.begin().resize(1 + longest + 1, 0);
    assert!(matches!(finish(&mut sender), Err(NotSent::TooLong(65_508))));
    assert!(matches!(finish(&mut sender), Err(NotSent::Nothing)));
    sender.begin().resize(1 + longest, 0);
    finish(&mut sender).unwrap();
    sender.set_max_datagram_len(1000);
    sender.begin().resize(1 + 1000 - HEADER_LEN - 8, 0);
    assert!(matches!(finish(&mut sender), Err(NotSent::TooLong(1001))));
    sender.begin().resize(1000 - HEADER_LEN - 8, 0);
    finish(&mut sender).unwrap();
    // A caller that takes away the first byte.
    sender.begin().clear();
    assert!(matches!(finish(&mut sender), Err(NotSent::Nothing)));
    let counts = sender.counts();
    assert_eq!((counts.too_long, counts.symbols), (2, 2));
    assert_eq!(counts.bytes, (longest + 1000 - HEADER_LEN - 9) as u64);
}

#[test]
fn a_full_batch_keeps_the_symbol() {
    let threshold = Threshold::new(1, Subset::first(2)).unwrap();
    let mut sender = sender_at(1, &[None; 2], constant(threshold)).unwrap();
    let mut batches = batches(2);
    while !batches[1].is_full() {
        batches[1].reserve(9000);
    }
    assert!(matches!(send(&mut sender, b"kept", MS, &mut batches), Err(NotSent::Full)));
    assert!(matches!(sender.control(b"", MS, &mut batches), Err(NotSent::Full)));
    assert!(batches[0].is_empty());
    batches[1].clear();
    sender.finish(Kind::Packet, 0, MS, &mut batches).unwrap();
    assert_eq!(open(&shares(&mut batches)[1..]).unwrap().2, b"kept");
}

#[test]
fn control_goes_everywhere_at_once_and_is_paid_for() {
    let threshold = Threshold::new(2, Subset::first(2)).unwrap();
    let rates = [Some(12_000_000), None, None];
    let mut sender = sender_at(2, &rates, constant(threshold)).unwrap();
    let mut batches = batches(3);
    sender.set_up(Subset::first(2));
    for number in 1..=2 {
        let sent = sender.control(b"report", MS, &mut batches).unwrap();
        assert_eq!(sent.threshold, Threshold::new(2, Subset::first(3)).unwrap());
        assert_eq!(sent.number, number);
        let all = shares(&mut batches);
        let (header, previous, content) = open(&[all[2].clone(), all[0].clone()]).unwrap();
        assert_eq!((header.kind, previous, &content[..]), (Kind::Control, 0, &b"report"[..]));
    }
    // Of three full datagrams that the bucket holds, the two messages of 50 bytes took their part.
    let packet = vec![0; 1500 - OVERHEAD];
    for _ in 0..2 {
        send(&mut sender, &packet, MS, &mut batches).unwrap();
        shares(&mut batches);
    }
    let Err(NotSent::Wait(until)) = send(&mut sender, &packet, MS, &mut batches) else {
        panic!("channel 0 has to wait");
    };
    assert_eq!(until, MS + Duration::from_nanos((2 * 50 * 8 * 1000_u64).div_ceil(12)));
    // While a symbol waits, control does not.
    sender.control(b"report", MS, &mut batches).unwrap();
    let counts = sender.counts();
    assert_eq!((counts.controls, counts.symbols), (3, 2));
    assert_eq!(counts.datagrams[..4], [5, 5, 3, 0]);
    assert_eq!((counts.k_sum, counts.m_sum), (4, 4));
    assert!(matches!(
        sender.control(&vec![0; 1 << 16], MS, &mut batches),
        Err(NotSent::TooLong(_))
    ));
}

#[test]
fn a_symbol_waits_as_long_as_it_must_and_no_longer() {
    // Uses channels 0 and 1 in turn.
    let each = |channel| Threshold::new(1, Subset::EMPTY.with(channel)).unwrap();
    let schedule = Schedule::new([(each(0), 0.5), (each(1), 0.5)]).unwrap();
    let rates = [Some(12_000_000), Some(6_000_000)];
    let mut sender = sender_at(1, &rates, Box::new(Planned::new(&schedule))).unwrap();
    let mut batches = batches(2);
    let packet = vec![0; 1500 - OVERHEAD];
    for _ in 0..6 {
        send(&mut sender, &packet, MS, &mut batches).unwrap();
    }
    take(&mut batches);
    let mut order = Vec::new();
    let mut now = MS;
    for i in 0..100_u32 {
        sender.begin().extend_from_slice(&packet);
        while let Err(error) = sender.finish(Kind::Packet, 0, now, &mut batches) {
            let NotSent::Wait(until) = error else { panic!("{error}") };
            // Whoever asks too early is told the same, and nothing is drawn anew.
            let early = until.saturating_sub(Duration::from_nanos(1));
            for now in [now, early] {
                let again = sender.finish(Kind::Packet, 0, now, &mut batches);
                assert!(matches!(again, Err(NotSent::Wait(same)) if same == until));
            }
            now = until;
        }
        order.push(take(&mut batches).iter().map(Vec::len).collect::<Vec<_>>());
        // Channel 1 takes 2 ms for each, and channel 0 has one ready by then.
        assert!(now <= MS + 2 * MS * (i + 1).div_ceil(2));
    }
    let (zero, one) =
        (order.iter().filter(|o| **o == [1, 0]), order.iter().filter(|o| **o == [0, 1]));
    assert_eq!((zero.count(), one.count()), (50, 50));
    assert!(sender.counts().waits[1] > 40);
}

#[test]
fn senders_that_cannot_be_are_refused() {
    let threshold = Threshold::new(2, Subset::first(3)).unwrap();
    let error = |floor, n| sender_at(floor, &vec![None; n], constant(threshold)).err();
    assert_eq!(error(2, 3), None);
    assert_eq!(error(0, 16), None);
    for n in [0, 17] {
        let channels = SenderError::Channels { tokens: n, paces: n };
        assert_eq!(error(1, n), Some(channels));
    }
    assert!(matches!(error(3, 3), Some(SenderError::Floor { floor: 3, most: 2, .. })));
    assert!(matches!(error(4, 3), Some(SenderError::Floor { floor: 4, most: 3, .. })));
    let mut sender = sender_at(2, &[None; 3], constant(threshold)).unwrap();
    assert!(sender.set_scheduler(dynamic(1.9, 3.0)).is_err());
    assert!(sender.set_scheduler(dynamic(2.0, 3.0)).is_ok());
}

/// The paper's channels (VI), in Mbit/s.
const DIVERSE: [f64; 5] = [5.0, 20.0, 60.0, 65.0, 100.0];
const LOSSES: [f64; 5] = [0.01, 0.005, 0.01, 0.02, 0.03];

fn channels(rates: &[f64]) -> ChannelSet {
    let channel = |(&rate, &loss)| Channel::new(0.1, loss, 1.0, rate).unwrap();
    ChannelSet::new(rates.iter().zip(&LOSSES).map(channel).collect()).unwrap()
}

fn need(kappa: f64, mu: f64, min_k: usize) -> Need {
    let objectives = vec![Objective::Loss];
    Need { kappa: Some(kappa), mu: Some(mu), full_rate: true, min_k, objectives, ..Need::default() }
}

fn diverse_plan(kappa: f64, mu: f64, floor: u8) -> Schedule {
    channels(&DIVERSE).plan(&need(kappa, mu, usize::from(floor))).unwrap().schedule
}

/// Sends full packets for as long as it takes, and says how long: after `warm` symbols, `symbols`
/// more. Every wait is longer than asked for by what `late` says.
fn saturate(
    sender: &mut Sender,
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
        while let Err(NotSent::Wait(until)) = sender.finish(Kind::Packet, 0, now, &mut batches) {
            assert!(until > now);
            now = until + late();
        }
        batches.iter_mut().for_each(Batch::clear);
    }
    now.saturating_sub(start)
}

fn sender_of(rates: &[f64], scheduler: Box<dyn Scheduler>) -> Sender {
    let rates: Vec<Option<u64>> = rates.iter().map(|mbit| Some((mbit * 1e6) as u64)).collect();
    sender_at(1, &rates, scheduler).unwrap()
}

/// The symbols' rate is the model's (IV-C), and so are the shares on each channel, whatever kappa and
/// mu, on channels that are alike and on those that are not.
#[test]
fn a_plan_has_its_rate() {
    for rates in [[100.0; 5], DIVERSE] {
        let set = channels(&rates);
        for (kappa, mu) in grid(0.3) {
            let plan = set.plan(&need(kappa, mu, 1)).unwrap();
            let mut sender = sender_of(&rates, Box::new(Planned::new(&plan.schedule)));
            let took = saturate(&mut sender, 5, (1000, 10_000), || Duration::ZERO);
            let part = 10_000.0 * 12_000.0 / took.as_secs_f64() / (plan.averages.rate * 1e6);
            assert!((0.9998..1.0002).contains(&part), "{rates:?}, {kappa}, {mu}: {part}");
            for channel in 0..5 {
                let uses = 11_000.0 * plan.schedule.use_of(channel);
                let datagrams = sender.counts().datagrams[channel] as f64;
                assert!((datagrams - uses).abs() < 10.0, "{datagrams}, not {uses}");
            }
        }
    }
}

/// Wakened as late as 2 ms each time, it still sends as much.
#[test]
fn lateness_is_made_up_for() {
    for (kappa, mu) in [(1.0, 1.0), (1.0, 2.5), (3.0, 3.8)] {
        let scheduler = || Box::new(Planned::new(&diverse_plan(kappa, mu, 1)));
        let mut rng = Rng::new(7);
        let mut late = || rng.between(Duration::ZERO, 2 * MS);
        let part = (1000, 10_000);
        let on_time = saturate(&mut sender_of(&DIVERSE, scheduler()), 5, part, || Duration::ZERO);
        let lately = saturate(&mut sender_of(&DIVERSE, scheduler()), 5, part, &mut late);
        assert!(lately.abs_diff(on_time) <= 2 * MS, "{lately:?}, not {on_time:?}");
        // Beyond that, what was missed is missed.
        let slowly = saturate(&mut sender_of(&DIVERSE, scheduler()), 5, part, || 20 * MS);
        assert!(slowly > on_time + on_time / 4, "{slowly:?}, {on_time:?}");
    }
}

/// How many packets leave at once after a pause.
#[test]
fn a_rest_is_not_made_up_for() {
    let at_once = |rests: bool| {
        let threshold = Threshold::new(1, Subset::first(1)).unwrap();
        let mut sender = sender_of(&[120.0], constant(threshold));
        saturate(&mut sender, 1, (0, 100), || Duration::ZERO);
        if rests {
            sender.rest();
        }
        let (mut count, mut batches) = (0, batches(1));
        let packet = [0; 1500 - OVERHEAD];
        while send(&mut sender, &packet, Duration::from_secs(1), &mut batches).is_ok() {
            count += 1;
        }
        count
    };
    // A packet takes 100 µs: the bucket holds five.
    assert_eq!((at_once(true), at_once(false)), (5, 25));
}

/// What a caller may do to a sender, in any order.
#[derive(Clone, Debug)]
enum Step {
    Finish { len: usize, flow: u16 },
    Again,
    Control(usize),
    Pass(Duration),
    Rest,
    Up(u32),
    Rate { channel: usize, rate_bps: Option<u64> },
    Plan { kappa: f64, above: f64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let rate_bps = prop::option::of(1_000_000..100_000_000_u64);
    let step = prop_oneof![
        20 => (0..1600_usize, any::<u16>()).prop_map(|(len, flow)| Step::Finish { len, flow }),
        5 => Just(Step::Again),
        2 => (0..200_usize).prop_map(Step::Control),
        10 => (0..3000_u64).prop_map(|us| Step::Pass(Duration::from_micros(us))),
        2 => Just(Step::Rest),
        1 => (0..256_u32).prop_map(Step::Up),
        1 => (0..6_usize, rate_bps).prop_map(|(channel, rate_bps)| Step::Rate { channel, rate_bps }),
        1 => (1.0..5.0, 0.0..4.0).prop_map(|(kappa, above)| Step::Plan { kappa, above }),
    ];
    prop::collection::vec(step, 1..300)
}

proptest! {
    /// Numbers go up by one, the floor is kept, and what is counted is what leaves.
    #[test]
    fn whatever_the_caller_does(steps in steps(), floor in 1..=4_u8) {
        let mut sender = sender_at(floor, &[Some(50_000_000); 5], dynamic(4.0, 4.5)).unwrap();
        sender.set_max_datagram_len(1472);
        let (mut now, mut batches) = (MS, batches(5));
        let (mut number, mut datagrams) = (0, [0; MAX_CHANNELS]);
        for step in steps {
            let sent = match step {
                Step::Finish { len, flow } => {
                    sender.begin().resize(1 + len, 0xAA);
                    sender.finish(Kind::Packet, flow, now, &mut batches)
                }
                Step::Again => sender.finish(Kind::PartialPacket, 0, now, &mut batches),
                Step::Control(len) => sender.control(&vec![0x55; len], now, &mut batches),
                Step::Pass(time) => {
                    now += time;
                    continue;
                }
                Step::Rest => {
                    sender.rest();
                    continue;
                }
                Step::Up(bits) => {
                    sender.set_up(subset(bits));
                    continue;
                }
                Step::Rate { channel, rate_bps } => {
                    sender.set_rate(channel, rate_bps, now);
                    continue;
                }
                Step::Plan { kappa, above } => {
                    let result = sender.set_scheduler(dynamic(kappa, (kappa + above).min(5.0)));
                    prop_assert_eq!(result.is_ok(), kappa.floor() >= f64::from(floor));
                    continue;
                }
            };
            let all = shares(&mut batches);
            for (channel, _) in &all {
                datagrams[*channel] += 1;
            }
            prop_assert_eq!(sender.counts().datagrams, datagrams);
            match sent {
                Ok(Sent { number: new, threshold }) => {
                    number += 1;
                    prop_assert_eq!(new, number);
                    prop_assert!(threshold.k() >= usize::from(floor));
                    prop_assert_eq!(all.len(), threshold.m());
                    let (header, ..) = open(&all[..threshold.k()]).unwrap();
                    prop_assert_eq!(u64::from(header.sequence), number);
                }
                Err(NotSent::Wait(until)) => prop_assert!(until > now && all.is_empty()),
                Err(_) => prop_assert!(all.is_empty()),
            }
        }
    }
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
