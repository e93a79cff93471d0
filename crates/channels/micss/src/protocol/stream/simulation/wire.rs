//! The connections of the channels, as their ends see them, and the attacker on them.

use std::collections::VecDeque;
use std::time::Duration;

use sim::{SeededRng, SimulatedLinkId, SimulatedNetwork};

use super::ms;
use super::scenario::{ChannelAttack, ChannelOutage, ChannelScenario, StreamScenario, TCP_TIMEOUT};

/// How long a connection is silent before TCP probes the peer.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// One end of a channel's connection, and the direction that leads to it.
#[derive(Clone)]
#[expect(clippy::struct_excessive_bools, reason = "the events of a connection are independent")]
struct SimulatedSocket {
    link: SimulatedLinkId,
    attack: ChannelAttack,
    /// How many bytes the attacker has taken, and when the last of them arrives.
    passed: usize,
    last: Duration,
    /// How many bytes are on their way to it, or have not been read.
    outstanding: usize,
    arrived: VecDeque<u8>,
    /// The peer has ended its direction.
    has_ended: bool,
    /// The reader has been told so.
    is_end_read: bool,
    /// The connection is broken for this end.
    is_broken: bool,
    /// This end has closed it, or ended its direction.
    is_closed: bool,
    is_shut: bool,
}

/// What comes of reading.
pub(super) enum SimulatedRead {
    Nothing,
    /// So many bytes, or the end if there are none.
    Bytes(usize),
    Broken,
}

/// The connections.
pub(super) struct SimulatedConnections {
    /// By channel, then by end.
    sockets: Vec<[SimulatedSocket; 2]>,
    /// The channel and the end of each link, also of connections that were replaced.
    places: Vec<(usize, usize)>,
    /// How often the connection of a channel was replaced.
    replaced: Vec<u32>,
    outages: Vec<Vec<ChannelOutage>>,
    /// Whether TCP sends again ever more rarely what an outage has lost.
    backs_off: bool,
    /// How many bytes a direction holds.
    window: usize,
}

impl SimulatedConnections {
    pub(super) fn new<T>(scenario: &StreamScenario, network: &mut SimulatedNetwork<T>) -> Self {
        let mut wires = Self {
            sockets: Vec::new(),
            places: Vec::new(),
            replaced: vec![0; scenario.channels.len()],
            outages: scenario.channels.iter().map(|channel| channel.outages.clone()).collect(),
            backs_off: scenario.is_steady,
            window: scenario.window,
        };
        for channel in &scenario.channels {
            let place = wires.sockets.len();
            let sockets = wires.connection(place, channel, network);
            wires.sockets.push(sockets);
        }
        wires
    }

    /// A new connection of a channel.
    fn connection<T>(
        &mut self,
        place: usize,
        channel: &ChannelScenario,
        network: &mut SimulatedNetwork<T>,
    ) -> [SimulatedSocket; 2] {
        let (low, high) = channel.delay;
        let mut ends = 0..;
        channel.attacks.map(|attack| {
            let link = network.add_link(low, high);
            assert_eq!(link.index(), self.places.len());
            self.places.push((place, ends.next().expect("two")));
            if !channel.is_honest() {
                network.seize(link);
            }
            SimulatedSocket {
                link,
                attack,
                passed: 0,
                last: Duration::ZERO,
                outstanding: 0,
                arrived: VecDeque::new(),
                has_ended: false,
                is_end_read: false,
                is_broken: false,
                is_closed: false,
                is_shut: false,
            }
        })
    }

    /// A new connection takes the place of a channel's.
    pub(super) fn replace<T>(
        &mut self,
        place: usize,
        channel: &ChannelScenario,
        network: &mut SimulatedNetwork<T>,
    ) {
        self.sockets[place] = self.connection(place, channel, network);
        self.replaced[place] += 1;
    }

    /// How often the connection of a channel was replaced.
    pub(super) fn replaced(&self, channel: usize) -> u32 {
        self.replaced[channel]
    }

    /// The channel of a link, and the end that it leads to. Nothing if its connection was replaced.
    pub(super) fn place(&self, link: SimulatedLinkId) -> Option<(usize, usize)> {
        let (channel, to) = self.places[link.index()];
        (self.sockets[channel][to].link == link).then_some((channel, to))
    }

    /// How many bytes an end can send on a channel now. Nothing: the connection is broken.
    pub(super) fn room(&self, end: usize, channel: usize) -> Option<usize> {
        let is_broken = self.sockets[channel][end].is_broken;
        let outstanding = self.sockets[channel][1 - end].outstanding;
        (!is_broken).then(|| self.window.saturating_sub(outstanding))
    }

    pub(super) fn send<T>(
        &mut self,
        (end, channel): (usize, usize),
        bytes: &[u8],
        network: &mut SimulatedNetwork<T>,
    ) {
        let to = &mut self.sockets[channel][1 - end];
        to.outstanding += bytes.len();
        network.send_stream(to.link, bytes);
    }

    pub(super) fn read(
        &mut self,
        (end, channel): (usize, usize),
        space: &mut [u8],
        rng: &mut SeededRng,
    ) -> SimulatedRead {
        let socket = &mut self.sockets[channel][end];
        let most = space.len().min(socket.arrived.len());
        if most > 0 {
            let len = if rng.chance(50) { most } else { 1 + rng.index(most) };
            let (first, second) = socket.arrived.as_slices();
            let cut = len.min(first.len());
            space[..cut].copy_from_slice(&first[..cut]);
            space[cut..len].copy_from_slice(&second[..len - cut]);
            socket.arrived.drain(..len);
            socket.outstanding = socket.outstanding.saturating_sub(len);
            return SimulatedRead::Bytes(len);
        }
        if socket.is_broken {
            return SimulatedRead::Broken;
        }
        if socket.has_ended && !std::mem::replace(&mut socket.is_end_read, true) {
            return SimulatedRead::Bytes(0);
        }
        SimulatedRead::Nothing
    }

    /// Whether the system reports that a connection is broken.
    pub(super) fn is_broken(&self, end: usize, channel: usize) -> bool {
        self.sockets[channel][end].is_broken
    }

    /// An end sends nothing more.
    pub(super) fn shut<T>(
        &mut self,
        end: usize,
        channel: usize,
        network: &mut SimulatedNetwork<T>,
    ) {
        if !std::mem::replace(&mut self.sockets[channel][end].is_shut, true) {
            network.close_stream(self.sockets[channel][1 - end].link);
        }
    }

    /// An end closes a connection. Returns after how long the peer is told by a reset, if it is:
    /// always if there is something that has not been read.
    pub(super) fn close<T>(
        &mut self,
        (end, channel): (usize, usize),
        is_reset: bool,
        network: &mut SimulatedNetwork<T>,
    ) -> Option<Duration> {
        let socket = &mut self.sockets[channel][end];
        if std::mem::replace(&mut socket.is_closed, true) || socket.is_broken {
            return None;
        }
        if is_reset || !socket.arrived.is_empty() {
            return Some(ms(30));
        }
        self.shut(end, channel, network);
        None
    }

    /// The connection breaks for an end: what it has not read is gone. Returns when it does so if
    /// nothing crosses the channel now: a probe finds out afterwards.
    pub(super) fn reset(&mut self, end: usize, channel: usize, now: Duration) -> Option<Duration> {
        if self.is_out(channel, now) {
            let until = self.outage(channel, now).and_then(|outage| outage.until);
            return until.map(|until| until + KEEPALIVE);
        }
        let socket = &mut self.sockets[channel][end];
        socket.is_broken = true;
        socket.arrived.clear();
        None
    }

    /// TCP gives a connection up.
    pub(super) fn time_out(&mut self, channel: usize) {
        if self.replaced[channel] > 0 {
            return;
        }
        self.sockets[channel].iter_mut().for_each(|socket| socket.is_broken = true);
    }

    /// When TCP gives a channel's connection up.
    pub(super) fn times_out_at(&self, channel: usize) -> Option<Duration> {
        let &ChannelOutage { from, until, .. } = self.outages[channel].first()?;
        until.is_none_or(|until| until > from + TCP_TIMEOUT).then_some(from + TCP_TIMEOUT)
    }

    /// Whether nothing crosses a channel.
    pub(super) fn is_out(&self, channel: usize, now: Duration) -> bool {
        self.outage(channel, now).is_some()
    }

    /// The outage of a channel now, if there is one.
    fn outage(&self, channel: usize, now: Duration) -> Option<ChannelOutage> {
        let is_now = |outage: &&ChannelOutage| {
            outage.from <= now && outage.until.is_none_or(|until| now < until)
        };
        self.outages[channel].iter().find(is_now).copied()
    }

    /// For how long the peer has left sent data unacknowledged.
    pub(super) fn silence(&self, end: usize, channel: usize, now: Duration) -> Duration {
        let is_unacknowledged = self.sockets[channel][1 - end].outstanding > 0;
        match self.outage(channel, now) {
            Some(ChannelOutage { from, .. }) if is_unacknowledged => now.saturating_sub(from),
            _ => Duration::ZERO,
        }
    }

    /// Bytes have arrived. Returns whether the peer is to be told that nobody takes them.
    pub(super) fn arrive(&mut self, link: SimulatedLinkId, bytes: Vec<u8>) -> bool {
        let Some((channel, to)) = self.place(link) else { return false };
        let socket = &mut self.sockets[channel][to];
        if socket.is_closed || socket.is_broken {
            socket.outstanding = socket.outstanding.saturating_sub(bytes.len());
        } else {
            socket.arrived.extend(bytes);
        }
        socket.is_closed
    }

    /// The peer's end has arrived.
    pub(super) fn end(&mut self, link: SimulatedLinkId) {
        if let Some((channel, to)) = self.place(link) {
            self.sockets[channel][to].has_ended = true;
        }
    }

    /// Passes on what was intercepted, as the attacker wants it. Returns for which ends the
    /// connection is to be reset.
    pub(super) fn attack<T>(
        &mut self,
        link: SimulatedLinkId,
        mut bytes: Vec<u8>,
        (network, rng): (&mut SimulatedNetwork<T>, &mut SeededRng),
    ) -> Vec<usize> {
        let now = network.now();
        let Some((channel, to)) = self.place(link) else { return Vec::new() };
        if let Some(ChannelOutage { from, until, .. }) = self.outage(channel, now) {
            // It is sent again after the outage, if there is an end of that.
            if let Some(until) = until {
                let pause =
                    if self.backs_off { until.saturating_sub(from).max(ms(200)) } else { ms(200) };
                let socket = &mut self.sockets[channel][to];
                socket.last = socket.last.max(until + pause);
                network.inject(link, bytes, socket.last.saturating_sub(now));
            }
            return Vec::new();
        }
        let socket = &mut self.sockets[channel][to];
        let (from, end) = (socket.passed, socket.passed + bytes.len());
        socket.passed = end;
        let cut_at = |place: usize| place.clamp(from, end) - from;
        let (mut is_cut, mut is_reset) = (false, false);
        match socket.attack {
            ChannelAttack::Swallow(place) => {
                let dropped = bytes.len() - cut_at(place);
                socket.outstanding = socket.outstanding.saturating_sub(dropped);
                bytes.truncate(cut_at(place));
            }
            ChannelAttack::Cut(place) => {
                is_cut = end > place;
                bytes.truncate(cut_at(place));
            }
            ChannelAttack::Reset(place) => {
                is_reset = end > place;
                bytes.truncate(cut_at(place));
            }
            ChannelAttack::Change(place) => {
                if let Some(byte) = place.checked_sub(from).and_then(|place| bytes.get_mut(place)) {
                    *byte ^= 1;
                }
            }
            ChannelAttack::Replay(place) if from <= place && place < end => {
                bytes.extend(bytes.clone());
            }
            ChannelAttack::None | ChannelAttack::Replay(_) => {}
            ChannelAttack::Stall(place, lasts) => {
                if from <= place && place < end {
                    socket.last = socket.last.max(now) + lasts;
                }
            }
            ChannelAttack::Trickle(place, interval) => {
                let rest = bytes.split_off(cut_at(place + 200));
                let slow = bytes.split_off(cut_at(place));
                let mut at = socket.last.max(now);
                network.inject(link, bytes, at.saturating_sub(now));
                for byte in slow {
                    at += interval;
                    network.inject(link, vec![byte], at.saturating_sub(now));
                }
                socket.last = at;
                bytes = rest;
            }
        }
        let at = socket.last.max(now + ms(1 + rng.below(5)));
        socket.last = at;
        network.inject(link, bytes, at.saturating_sub(now));
        if is_cut {
            network.inject_close(link, at.saturating_sub(now));
        }
        match (is_reset, is_cut) {
            (true, _) => vec![to, 1 - to],
            (_, true) => vec![1 - to],
            _ => Vec::new(),
        }
    }

    /// Passes on an end that was intercepted.
    pub(super) fn attack_close<T>(
        &mut self,
        link: SimulatedLinkId,
        network: &mut SimulatedNetwork<T>,
    ) {
        let now = network.now();
        let Some((channel, to)) = self.place(link) else { return };
        let outage = self.outage(channel, now);
        let socket = &self.sockets[channel][to];
        let is_swallowed =
            matches!(socket.attack, ChannelAttack::Swallow(place) if socket.passed >= place);
        let until = outage.map(|outage| outage.until);
        match until {
            Some(None) => {}
            _ if is_swallowed => {}
            until => {
                let at = socket.last.max(until.flatten().unwrap_or(now));
                network.inject_close(link, at.saturating_sub(now));
            }
        }
    }
}
