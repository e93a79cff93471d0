//! An attacker on some of the channels, who also sends anything on the others, but does not read
//! them: from the client's address and from others.

use std::net::SocketAddr;
use std::time::Duration;

use model::ChannelSubset;
use sim::SeededRng;

use super::scenario::address;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    ToServer,
    ToClient,
}

/// A datagram that the attacker injects.
pub(crate) struct Act {
    pub(crate) channel: usize,
    pub(crate) way: Way,
    pub(crate) from: SocketAddr,
    pub(crate) bytes: Vec<u8>,
    pub(crate) delay: Duration,
}

pub(crate) struct Adversary {
    rng: SeededRng,
    channels: usize,
    held: ChannelSubset,
    /// The percentage of datagrams that it changes.
    percent: u64,
    /// The kind of message that it always drops.
    wall: Option<u8>,
    /// All messages on the channels that it controls.
    archive: Vec<(usize, Way, Vec<u8>)>,
}

impl Adversary {
    /// On all channels but one.
    pub(crate) fn new(seed: u64, n: u8) -> Self {
        let mut rng = SeededRng::new(seed);
        let honest = rng.index(n.into());
        Self::on((0..n.into()).filter(|channel| *channel != honest).collect(), n, rng)
    }

    /// On these of so many channels.
    pub(crate) fn on(held: ChannelSubset, n: u8, mut rng: SeededRng) -> Self {
        let percent = *rng.pick(&[3, 10, 30, 100]).unwrap();
        let wall = rng.pick(&[None, None, None, None, None, None, Some(10), Some(11)]).unwrap();
        Self { channels: n.into(), held, percent, wall: *wall, archive: Vec::new(), rng }
    }

    pub(crate) fn holds(&self, channel: usize) -> bool {
        self.held.contains(channel)
    }

    /// What happens to a datagram on a channel that it controls.
    pub(crate) fn intercept(
        &mut self,
        channel: usize,
        way: Way,
        from: SocketAddr,
        bytes: Vec<u8>,
    ) -> Vec<Act> {
        self.archive.push((channel, way, bytes.clone()));
        if self.wall == Some(bytes[0] >> 4) {
            return self.inject();
        }
        if !self.rng.chance(self.percent) {
            return vec![self.act(channel, way, from, bytes)];
        }
        let mut changed = bytes.clone();
        match self.rng.below(12) {
            0 => return Vec::new(),
            1 => {
                let late = Duration::from_millis(self.rng.below(15_000));
                return vec![Act { channel, way, from, bytes, delay: late }];
            }
            2 => self.flip(&mut changed, 0..bytes.len()),
            // The nonce.
            3 => self.flip(&mut changed, 1..9),
            4 if bytes.len() > 65 => self.flip(&mut changed, 41..361),
            5 => {
                let other = self.other();
                return vec![self.act(other, way, from, bytes)];
            }
            6 => {
                let back = if way == Way::ToServer { Way::ToClient } else { Way::ToServer };
                return vec![self.act(channel, back, from, bytes)];
            }
            7 => {
                let outsider = address(9, channel);
                return vec![self.act(channel, way, outsider, bytes)];
            }
            8 => changed = self.mixed(bytes),
            9 => {
                let twice = self.act(channel, way, from, bytes.clone());
                return vec![twice, self.act(channel, way, from, bytes)];
            }
            _ => {
                let mut acts = self.inject();
                acts.push(self.act(channel, way, from, bytes));
                return acts;
            }
        }
        vec![self.act(channel, way, from, changed)]
    }

    /// An overheard datagram, possibly changed, on any channel, including the honest one.
    pub(crate) fn inject(&mut self) -> Vec<Act> {
        if !self.rng.chance(self.percent) || self.archive.is_empty() {
            return Vec::new();
        }
        let (_, way, mut bytes) = self.rng.pick(&self.archive).cloned().unwrap();
        if self.rng.chance(50) {
            bytes = self.mixed(bytes);
        }
        let channel = self.rng.index(self.channels);
        let from = address(if self.rng.chance(70) { 0 } else { 9 }, channel);
        vec![self.act(channel, way, from, bytes)]
    }

    fn act(&mut self, channel: usize, way: Way, from: SocketAddr, bytes: Vec<u8>) -> Act {
        let delay = self.rng.duration_between(Duration::from_millis(1), Duration::from_millis(300));
        Act { channel, way, from, bytes, delay }
    }

    fn flip(&mut self, bytes: &mut [u8], within: std::ops::Range<usize>) {
        let place = within.start + self.rng.index(within.len());
        if let Some(byte) = bytes.get_mut(place) {
            *byte ^= 1 << self.rng.below(8);
        }
    }

    fn other(&mut self) -> usize {
        self.rng.index(self.channels)
    }

    /// The start of one datagram and the end of another, split between fields.
    fn mixed(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        let (_, _, other) = self.rng.pick(&self.archive).cloned().unwrap();
        let cut = *self.rng.pick(&[1, 4, 9, 41, 49, 361, 369, 377]).unwrap();
        if other.len() != bytes.len() || cut >= bytes.len() {
            return bytes;
        }
        [&bytes[..cut], &other[cut..]].concat()
    }
}
