//! Two ends and the links between them, in virtual time.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use model::ChannelSubset;
use sim::{
    LinkBottleneck, SeededRng, SimulatedLinkConditions, SimulatedLinkId, SimulatedNetwork,
    SimulationEvent,
};
use sunder_remicss::control::estimate::ChannelEstimate;
use sunder_remicss::control::incoming::ArrivalCounts;
use sunder_remicss::control::monitor::ChannelMonitor;
use sunder_remicss::control::outgoing::SentCounts;

pub(crate) const MS: Duration = Duration::from_millis(1);

/// The bytes of a datagram, as an IP packet, and those that IP, UDP, header, tag and so on add.
const PACKET: usize = 1428;
const AROUND: usize = 45;

/// The conditions of one direction of a channel.
#[derive(Clone, Copy)]
pub(crate) struct Path {
    pub(crate) rate_bps: u64,
    /// The maximum length of the queue, as the time to send it.
    pub(crate) queue: Duration,
    /// Of 1,000 datagrams.
    pub(crate) lost: u64,
    pub(crate) delay: Duration,
    pub(crate) is_cut: bool,
    /// Whether the link is policed: a packet that would wait for less than the queue is sent at
    /// once, and others are dropped.
    pub(crate) is_policed: bool,
    /// Longer datagrams are lost.
    pub(crate) max_len: usize,
    /// Datagrams take up to so much longer than the delay, and overtake each other.
    pub(crate) jitter: Duration,
    /// Of 1,000 datagrams.
    pub(crate) duplicated: u64,
}

impl Path {
    pub(crate) fn new(mbps: u64, queue_ms: u32, lost: u64, delay_ms: u32) -> Self {
        let (queue, delay) = (MS * queue_ms, MS * delay_ms);
        Self {
            rate_bps: mbps * 1_000_000,
            queue,
            lost,
            delay,
            is_cut: false,
            is_policed: false,
            max_len: usize::MAX,
            jitter: Duration::ZERO,
            duplicated: 0,
        }
    }

    fn conditions(&self) -> SimulatedLinkConditions {
        let &Self { rate_bps, queue, lost, delay, is_cut, is_policed, jitter, duplicated, .. } =
            self;
        // No queue is shorter than a few packets.
        let packets = Duration::from_nanos(4 * PACKET as u64 * 8 * 1_000_000_000 / rate_bps);
        let bottleneck = LinkBottleneck { rate_bps, max_queue: queue.max(packets), is_policed };
        SimulatedLinkConditions {
            loss_permille: if is_cut { 1000 } else { lost },
            bottleneck: Some(bottleneck),
            duplication_permille: duplicated,
            ..SimulatedLinkConditions::delayed(delay, delay + jitter)
        }
    }
}

/// A control share that has arrived: its channel, the number of datagrams before it there, and
/// when.
#[derive(Clone, Copy)]
struct Share(usize, u64, Duration);

/// One end, and the conditions of the links on which it sends.
pub(crate) struct End {
    pub(crate) monitor: ChannelMonitor,
    paths: Vec<Path>,
    links: Vec<SimulatedLinkId>,
    sent: Vec<SentCounts>,
    pub(crate) received: Vec<ArrivalCounts>,
    /// The numbers of the datagrams that have arrived on each channel.
    seen: Vec<HashSet<u64>>,
    /// How much it may send on each channel by its pace, in bits.
    credit: Vec<u64>,
    /// The number of control messages that it has sent, which are numbered from 1.
    pub(crate) symbols: u64,
    /// Datagrams of packets that were sent and have arrived.
    pub(crate) packets: u64,
    /// Control messages in flight, and which of their shares have arrived.
    controls: BTreeMap<u64, (Vec<u8>, Vec<Share>)>,
    pub(crate) control_bytes: usize,
}

impl End {
    fn new(network: &mut SimulatedNetwork<()>, paths: &[Path], rates: &[Option<u64>]) -> Self {
        let mut link = |path: &Path| {
            let link = network.add_link(path.delay, path.delay);
            *network.conditions_mut(link) = path.conditions();
            link
        };
        Self {
            monitor: ChannelMonitor::new(rates, Duration::ZERO),
            links: paths.iter().map(&mut link).collect(),
            paths: paths.to_vec(),
            sent: vec![SentCounts::default(); paths.len()],
            received: vec![ArrivalCounts::default(); paths.len()],
            seen: vec![HashSet::new(); paths.len()],
            credit: vec![0; paths.len()],
            symbols: 0,
            packets: 0,
            controls: BTreeMap::new(),
            control_bytes: 0,
        }
    }

    /// Sends a datagram of so many bytes with the number of a control symbol, or 0 for a packet.
    /// Returns when it will arrive; `None` if it is lost.
    fn send(
        &mut self,
        net: &mut SimulatedNetwork<()>,
        channel: usize,
        len: usize,
        symbol: u64,
    ) -> Option<Duration> {
        self.packets += u64::from(symbol == 0);
        self.sent[channel].datagrams += 1;
        self.sent[channel].bytes += len as u64;
        let mut datagram = vec![0; len];
        datagram[..8].copy_from_slice(&symbol.to_be_bytes());
        datagram[8..16].copy_from_slice(&self.sent[channel].datagrams.to_be_bytes());
        if len > self.paths[channel].max_len {
            return None;
        }
        net.send_datagram(self.links[channel], datagram)
    }

    fn send_control(&mut self, net: &mut SimulatedNetwork<()>) {
        let (sent, received, packets) = (&self.sent, &self.received, self.packets);
        let nowhere = ChannelSubset::EMPTY;
        let message = self.monitor.poll_message(net.now(), sent, received, nowhere, packets);
        let Some(message) = message else {
            return;
        };
        self.symbols += 1;
        let len = message.len() + AROUND;
        self.control_bytes += len;
        self.controls.insert(self.symbols, (message, Vec::new()));
        for channel in 0..self.links.len() {
            self.send(net, channel, len, self.symbols);
        }
    }

    /// Sends packets at the pace, or slower, for a millisecond.
    fn send_packets(&mut self, net: &mut SimulatedNetwork<()>, demand_bps: u64) {
        for channel in 0..self.links.len() {
            let rate_bps = self.monitor.limit(channel).unwrap().rate_bps.min(demand_bps);
            self.credit[channel] += rate_bps / 1000;
            while self.credit[channel] >= PACKET as u64 * 8 {
                self.credit[channel] -= PACKET as u64 * 8;
                self.send(net, channel, PACKET, 0);
            }
        }
    }
}

pub(crate) struct Scenario {
    pub(crate) rng: SeededRng,
    network: SimulatedNetwork<()>,
    /// Packets go from the first to the second.
    pub(crate) ends: [End; 2],
    floor: usize,
    pub(crate) demand_bps: u64,
}

impl Scenario {
    /// The reverse direction has the same conditions, except for a sufficient rate and no loss.
    pub(crate) fn new(paths: &[Path], rates: &[Option<u64>]) -> Self {
        Self::with_seed(paths, rates, 1)
    }

    /// The same, with the seed of what is lost at random.
    pub(crate) fn with_seed(paths: &[Path], rates: &[Option<u64>], seed: u64) -> Self {
        let back: Vec<Path> =
            paths.iter().map(|path| Path { rate_bps: 1_000_000_000, lost: 0, ..*path }).collect();
        let mut network = SimulatedNetwork::new(seed);
        let back_rates = vec![Some(1_000_000_000); paths.len()];
        let ends =
            [(paths, rates), (&back, &back_rates)].map(|(p, r)| End::new(&mut network, p, r));
        Self { rng: SeededRng::new(seed), network, ends, floor: 1, demand_bps: u64::MAX }
    }

    /// The same with this number of shares that complete a control message.
    pub(crate) fn with_floor(mut self, floor: u8) -> Self {
        self.floor = floor.into();
        let all = ChannelSubset::first(self.ends[0].links.len());
        self.ends.iter_mut().for_each(|end| end.monitor.set_terms(all, floor));
        self
    }

    pub(crate) fn now(&self) -> Duration {
        self.network.now()
    }

    pub(crate) fn run(&mut self, time: Duration) {
        let until = self.now() + time;
        while self.now() < until {
            self.step();
            self.ends[0].send_packets(&mut self.network, self.demand_bps);
        }
    }

    /// Advances by a millisecond, with everything except packets.
    pub(crate) fn step(&mut self) {
        let until = self.now() + MS;
        while let Some(event) = self.network.next_event_until(until) {
            let SimulationEvent::Arrived { link, bytes } = event else { panic!("{event:?}") };
            self.arrive(link.index(), &bytes);
        }
        for end in &mut self.ends {
            end.send_control(&mut self.network);
        }
    }

    /// Sends a packet on a channel, and returns when it will arrive; `None` if it is lost.
    pub(crate) fn send(&mut self, channel: usize, len: usize) -> Option<Duration> {
        self.ends[0].send(&mut self.network, channel, len, 0)
    }

    fn arrive(&mut self, link: usize, datagram: &[u8]) {
        let (at, n) = (self.now(), self.ends[0].links.len());
        let (from, channel) = (link / n, link % n);
        let to = 1 - from;
        let (symbol, rest) = datagram.split_first_chunk().unwrap();
        let (symbol, number) = (u64::from_be_bytes(*symbol), *rest.first_chunk().unwrap());
        if !self.ends[to].seen[channel].insert(u64::from_be_bytes(number)) {
            return;
        }
        let arrived = &mut self.ends[to].received[channel];
        let before = arrived.datagrams;
        arrived.datagrams += 1;
        arrived.right += 1;
        if symbol == 0 {
            self.ends[to].packets += 1;
            return;
        }
        let (message, shares) = self.ends[from].controls.get_mut(&symbol).unwrap();
        shares.push(Share(channel, before, at));
        let (count, message) = (shares.len(), message.clone());
        // Those that arrived before it verified are reported when it does.
        let shares = match count.cmp(&self.floor) {
            Ordering::Less => return,
            Ordering::Equal => shares.clone(),
            Ordering::Greater => vec![Share(channel, before, at)],
        };
        let monitor = &mut self.ends[to].monitor;
        if count == self.floor {
            monitor.handle_message(symbol, &message, at).unwrap();
        }
        for Share(channel, before, at) in shares {
            monitor.handle_share(symbol, channel, before, at);
        }
    }

    pub(crate) fn estimates(&self) -> Vec<ChannelEstimate> {
        self.ends[0].monitor.estimates(self.now())
    }

    /// Changes the conditions of both directions of a channel.
    pub(crate) fn set(&mut self, channel: usize, change: impl Fn(&mut Path)) {
        for end in 0..2 {
            self.set_sent_by(end, channel, &change);
        }
    }

    /// Changes the conditions of a channel for what one end sends.
    pub(crate) fn set_sent_by(&mut self, end: usize, channel: usize, change: impl Fn(&mut Path)) {
        let end = &mut self.ends[end];
        change(&mut end.paths[channel]);
        *self.network.conditions_mut(end.links[channel]) = end.paths[channel].conditions();
    }

    /// The known rate of a channel, relative to that of the path: not that to plan with.
    #[expect(clippy::cast_precision_loss, reason = "numbers are small")]
    pub(crate) fn known_part(&self, channel: usize) -> f64 {
        let actual = self.ends[0].paths[channel].rate_bps;
        self.estimates()[channel].known_bps as f64 / actual as f64
    }

    /// The rate of a channel, relative to that of the path.
    #[expect(clippy::cast_precision_loss, reason = "numbers are small")]
    pub(crate) fn part(&self, channel: usize) -> f64 {
        let actual = self.ends[0].paths[channel].rate_bps;
        self.estimates()[channel].rate_bps as f64 / actual as f64
    }
}
