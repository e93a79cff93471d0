//! Channels that are replaced while records arrive.

use random::RandomGenerator;
use sim::SeededRng;

use super::*;
use crate::protocol::outgoing::OutgoingRecords;

/// Both halves, and what is under way on each channel.
struct Both {
    outgoing: OutgoingRecords,
    incoming: IncomingRecords,
    under_way: Vec<Vec<u8>>,
    sent: usize,
    received: usize,
}

impl Both {
    fn new(k: u8, n: u8) -> Self {
        let sharing = SharingParameters::shamir(k, n).unwrap();
        let mut outgoing = OutgoingRecords::new(sharing, RandomGenerator::seeded().unwrap());
        outgoing.keep();
        let incoming = IncomingRecords::new(sharing, [7; SEED_LEN]);
        let under_way = vec![Vec::new(); usize::from(n)];
        Self { outgoing, incoming, under_way, sent: 0, received: 0 }
    }

    fn send(&mut self, len: usize) {
        self.outgoing.make_room(len);
        let len = self.outgoing.payload_mut().len().min(len);
        self.outgoing.payload_mut()[..len].fill(7);
        self.outgoing.seal_data(len).unwrap();
        self.sent += len;
        (0..self.under_way.len()).for_each(|channel| self.transmit(channel));
    }

    fn transmit(&mut self, channel: usize) {
        while !self.outgoing.unsent(channel).is_empty() {
            let piece = self.outgoing.unsent(channel).to_vec();
            self.outgoing.advance(channel, piece.len());
            self.under_way[channel].extend(piece);
        }
    }

    /// Delivers at most `len` bytes of a channel.
    fn deliver(&mut self, channel: usize, len: usize) {
        if !self.incoming.wanted().any(|wanted| wanted == channel) {
            return;
        }
        let space = self.incoming.space(channel);
        let len = len.min(space.len()).min(self.under_way[channel].len());
        space[..len].copy_from_slice(&self.under_way[channel][..len]);
        self.under_way[channel].drain(..len);
        self.incoming.filled(channel, len);
        self.take();
    }

    /// Takes what has arrived, as a stream does after each change.
    fn take(&mut self) {
        while let Some(ReceivedRecord { payload, .. }) = self.incoming.take_next().unwrap() {
            assert!(payload.iter().all(|&byte| byte == 7));
            self.received += payload.len();
        }
    }

    /// A channel is lost, if it can be, and is replaced by a connection that begins so many bytes
    /// after what is needed.
    fn lose(&mut self, channel: usize, after: u64) {
        if self.incoming.has_spare() && self.incoming.lose(channel, ChannelLossReason::Broken) {
            let from = self.incoming.received(channel) + after;
            self.begin(channel, if self.outgoing.can_rejoin(from) { from } else { 0 });
        }
    }

    /// The connection of a channel is replaced by one that begins so many bytes before what has
    /// arrived.
    fn replace(&mut self, channel: usize, before: u64) {
        let from = self.incoming.received(channel).saturating_sub(before);
        self.begin(channel, from.max(self.outgoing.kept_from()));
    }

    fn begin(&mut self, channel: usize, from: u64) {
        assert!(self.incoming.rejoin(channel, from));
        self.under_way[channel].clear();
        self.outgoing.rejoin(channel, from);
        self.transmit(channel);
    }
}

/// A channel has brought a part of the next record, is replaced by a connection that repeats some
/// of it, and the record before ends meanwhile: the next one waits for it all the same.
#[test]
fn repeated_bytes_of_a_replaced_channel_are_not_missing_ones() {
    let mut both = Both::new(2, 2);
    both.send(100);
    both.send(100);
    both.deliver(0, 200);
    both.replace(0, 20);
    both.deliver(1, 1_000);
    both.deliver(0, 1_000);
    assert_eq!(both.received, both.sent);
}

fn is_tampered((_, why): &(usize, ChannelLossReason)) -> bool {
    *why == ChannelLossReason::Tampered
}

/// `SUNDER_SEEDS=N` runs as many seeds.
#[test]
fn replaced_channels_lose_nothing() {
    sim::run_seeds(600, |seed| {
        let mut rng = SeededRng::new(seed);
        let n = 1 + u8::try_from(rng.index(5)).unwrap();
        let k = 1 + u8::try_from(rng.index(n.into())).unwrap();
        let mut both = Both::new(k, n);
        for _ in 0..200 {
            let (channel, scale) = (rng.index(n.into()), rng.index(3));
            match rng.index(10) {
                0..=1 => both.send(1 + rng.index([10, 300, 20_000][scale])),
                2 => both.replace(channel, rng.below([2, 500, 30_000][scale])),
                3 => _ = both.incoming.skip_late(),
                4 => both.lose(channel, rng.below([2, 500, 30_000][scale])),
                _ => both.deliver(channel, 1 + rng.index([5, 400, 20_000][scale])),
            }
            both.take();
        }
        for _ in 0..200 {
            (0..usize::from(n)).for_each(|channel| both.deliver(channel, usize::MAX));
        }
        assert_eq!(std::iter::from_fn(|| both.incoming.poll_lost()).find(is_tampered), None);
        assert_eq!(both.received, both.sent, "seed {seed}: {k} of {n}");
    });
}

/// One of four channels carries changed bytes, and while that is being found out another one
/// returns, which has not brought the record: it does not contradict it.
#[test]
fn a_channel_that_returns_during_a_dispute_is_not_accused() {
    let mut both = Both::new(2, 4);
    both.send(100);
    assert!(both.incoming.lose(3, ChannelLossReason::Broken));
    for channel in 0..3 {
        if channel == 0 {
            both.under_way[channel].iter_mut().for_each(|byte| *byte ^= 1);
        }
        let (space, bytes) = (both.incoming.space(channel), &both.under_way[channel]);
        space[..bytes.len()].copy_from_slice(bytes);
        let len = bytes.len();
        both.incoming.filled(channel, len);
    }
    while both.incoming.dispute.is_none() {
        assert!(both.incoming.poll_next().unwrap().is_pending());
    }
    assert!(both.incoming.rejoin(3, 0));
    both.take();
    assert_eq!(both.received, both.sent);
    let lost: Vec<_> = std::iter::from_fn(|| both.incoming.poll_lost()).collect();
    assert_eq!(lost, [(3, ChannelLossReason::Broken), (0, ChannelLossReason::Tampered)]);
}
