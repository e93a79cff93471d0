//! The receiving end: datagrams of all channels in, packets in the order of their flows out.
//!
//! ```text
//! header, token ─▶ number ─▶ duplicate? done? ─▶ reassembly ─▶ tag ─▶ release ─▶ packets
//! ```
//!
//! The window of numbers moves with verified symbols only. Behind the highest verified number, as many
//! are remembered as it is long; ahead of it there is no bound, since each channel has entries and
//! bytes of its own: one that makes up numbers overwrites what it brought itself, and when all have
//! gone far ahead after an outage, the first symbol that is verified takes the window along.
//!
//! Nothing is allocated for a datagram, but for the weights of each set of channels that is joined for
//! the first time.

use std::time::Duration;

use model::Subset;

use crate::MAX_CHANNELS;
use crate::blame::Blame;
use crate::datagram::{Header, Kind, nearest};
use crate::keys::{Direction, Stamp, TokenKey};
pub use crate::reassembly::Reassembled;
use crate::reassembly::{Arrival, Numbers, Reassembly, bits};
pub use crate::release::Released;
use crate::release::{Release, Symbol};
use crate::symbol::{Inside, MAX_SYMBOL_LEN, Tagger};

/// Where a receiver puts what it has received.
pub trait Deliver {
    /// One IP packet or more, whose own lengths say where the next begins, as they were sent. `kind`
    /// says whether their transport checksums are complete.
    fn packets(&mut self, kind: Kind, packets: &[u8]);

    /// The control message with a number, verified.
    fn control(&mut self, number: u64, message: &[u8]);

    /// A share of a control symbol came on a channel, its first with this number, as the
    /// `received`th datagram there. It is not verified, and may be nothing but what the channel made up.
    fn control_share(&mut self, number: u64, channel: usize, received: u64, now: Duration);
}

/// What a receiver may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many symbols a share may be behind the last ones, or channels ahead of each other. Rounded
    /// up to a power of two from 2^10 to 2^24. Each takes 16 bytes a channel, and 8 more.
    pub window: usize,
    /// How many bytes of shares wait for others on each channel. Rounded up to a power of two from
    /// 128 KiB to 1 GiB; 256 KiB come on top.
    pub share_bytes: usize,
    /// How old a share may be when it is joined.
    pub share_age: Duration,
    /// How many bytes of packets wait for others of their flow. Rounded as `share_bytes`. Takes half
    /// as much again.
    pub held_bytes: usize,
    /// How many joins are tried a second, beside two for each symbol, to find wrong shares.
    pub trials_per_second: u32,
}

impl Default for Limits {
    /// 2^17 symbols: 131 ms at a million a second. 16 MiB a channel: 134 ms at 1 Gbit/s. 1 s, 8 MiB,
    /// and 20,000 trials, a hundredth of a processor's time for packets of 1,400 bytes.
    fn default() -> Self {
        Self {
            window: 1 << 17,
            share_bytes: 16 << 20,
            share_age: Duration::from_secs(1),
            held_bytes: 8 << 20,
            trials_per_second: 20_000,
        }
    }
}

/// What a receiver has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Verified symbols.
    pub symbols: u64,
    /// Those of them that were control messages.
    pub controls: u64,
    /// The bytes of packets and control messages in them.
    pub bytes: u64,
    /// Datagrams that were no shares, or too long.
    pub malformed: u64,
    /// Those whose token was wrong.
    pub strange: u64,
    /// Those whose threshold was below the floor or above the number of channels.
    pub forbidden: u64,
    /// Shares whose channel had brought one of the same number.
    pub duplicate: u64,
    /// Shares of numbers that are behind the window.
    pub outside: u64,
    /// Shares of symbols that were verified already.
    pub late: u64,
    /// Shares that were not used because their channel was in quarantine.
    pub quarantined: u64,
    /// What became of the others.
    pub reassembled: Reassembled,
    /// How symbols left that had to wait.
    pub released: Released,
}

/// What came on one channel so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Datagrams with its token and a fresh number, good or bad.
    pub datagrams: u64,
    /// Their bytes, headers of UDP and IP not counted.
    pub bytes: u64,
    /// Shares that were wrong, for all that is known.
    pub faults: u64,
}

/// The receiving end of one direction of an association.
pub struct Receiver {
    channels: usize,
    tokens: TokenKey,
    floor: u8,
    tagger: Tagger,
    verified: Numbers,
    reassembly: Reassembly,
    blame: Blame,
    release: Release,
    received: Vec<Received>,
    counts: Counts,
}

impl Receiver {
    /// A receiver of what is sent under `keys`, with a privacy floor: nothing of a lower threshold is
    /// delivered. All channels are up, and the release window is zero.
    ///
    /// # Panics
    /// Unless there are 1 to [`MAX_CHANNELS`] channels, and 1 <= `floor` <= n.
    pub fn new(keys: &Direction, floor: u8, limits: Limits) -> Self {
        let n = keys.channels;
        assert!((1..=MAX_CHANNELS).contains(&n), "1 to 16 channels");
        assert!((1..=n).contains(&usize::from(floor)), "1 <= f <= n");
        let Limits { share_bytes, share_age, held_bytes, trials_per_second, .. } = limits;
        let window = limits.window.clamp(1 << 10, 1 << 24).next_power_of_two();
        Self {
            channels: n,
            tokens: keys.tokens.clone(),
            floor,
            tagger: Tagger::new(keys.points.as_ref()),
            verified: Numbers::new(window),
            reassembly: Reassembly::new(
                n,
                window,
                share_bytes,
                share_age,
                trials_per_second,
                keys.tokens.seed(),
            ),
            blame: Blame::new(n, floor),
            release: Release::new(n, window, held_bytes),
            received: vec![Received::default(); n],
            counts: Counts::default(),
        }
    }

    /// Whether a datagram is a share whose token is right, so that it belongs here and not to another
    /// association of the same peers.
    pub fn recognises(&self, channel: usize, datagram: &[u8]) -> bool {
        let header = Header::parse(datagram);
        header.is_ok_and(|(header, _)| {
            channel < self.channels && self.proven_number(channel, header).is_some()
        })
    }

    /// Takes a datagram that came on a channel. Whatever it is, nothing but verified symbols come out.
    pub fn handle_share(
        &mut self,
        channel: usize,
        datagram: &[u8],
        now: Duration,
        deliver: &mut impl Deliver,
    ) {
        let Some(arrival) = self.admit(channel, datagram, now) else { return };
        let Arrival { number, header, .. } = arrival;
        if header.kind == Kind::Control {
            deliver.control_share(number, channel, self.received[channel].datagrams, now);
        }
        self.blame.update(now);
        if self.blame.excluded() >> channel & 1 == 1 {
            self.counts.quarantined += 1;
        } else if self.verified.contains(number) {
            self.counts.late += 1;
            self.reassembly.compare(&arrival, &self.tagger, &mut self.blame);
        } else if let Some(inside) =
            self.reassembly.complete(&arrival, &self.verified, &self.tagger, &mut self.blame)
        {
            self.counts.symbols += 1;
            self.counts.bytes += inside.content.len() as u64;
            self.verified.insert(number);
            let Inside { previous, content } = inside;
            if header.kind == Kind::Control {
                self.counts.controls += 1;
                deliver.control(number, content);
            } else {
                let symbol = Symbol { number, previous, kind: header.kind, packets: content };
                self.release.take(symbol, now, &self.verified, deliver);
            }
        }
        self.release.note(channel, number);
        self.release.handle_losses(self.blame.heard(), &self.verified, deliver);
    }

    /// When [`Self::handle_timeout`] wants to be called, if nothing happens before.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.release.timeout()
    }

    /// Delivers what has waited for as long as the window, and ends quarantines.
    pub fn handle_timeout(&mut self, now: Duration, deliver: &mut impl Deliver) {
        self.blame.update(now);
        self.release.handle_timeout(now, &self.verified, deliver);
    }

    /// Says how long a symbol may wait for those of its flow that were sent before it. Zero: never.
    pub fn set_window(&mut self, window: Duration) {
        self.release.set_window(window);
    }

    /// Says which channels are up, be they in quarantine or not: what did not come on any of them is
    /// lost.
    pub fn set_up(&mut self, up: Subset) {
        let known = up.iter().filter(|&channel| channel < self.channels);
        self.blame.set_up(known.fold(0, |set, channel| set | 1 << channel));
    }

    /// The channels in quarantine, as of the last call that had a time.
    pub fn quarantined(&self) -> Subset {
        bits(self.blame.excluded()).collect()
    }

    /// The highest number of a verified symbol; 0 if there is none. What was sent up to there and is
    /// not among [`Counts::symbols`] is lost or on its way.
    pub fn highest(&self) -> u64 {
        self.verified.highest()
    }

    /// What it has done so far.
    pub fn counts(&self) -> Counts {
        Counts {
            reassembled: self.reassembly.counts(),
            released: self.release.counts(),
            ..self.counts
        }
    }

    /// What came on a channel so far.
    ///
    /// # Panics
    /// If there is no such channel.
    pub fn received(&self, channel: usize) -> Received {
        Received { faults: self.blame.faults(channel), ..self.received[channel] }
    }

    /// The share in a datagram, unless that is nothing to be looked at.
    fn admit<'a>(
        &mut self,
        channel: usize,
        datagram: &'a [u8],
        now: Duration,
    ) -> Option<Arrival<'a>> {
        if channel >= self.channels {
            return None;
        }
        let Some((header, share)) =
            Header::parse(datagram).ok().filter(|(_, share)| share.len() <= MAX_SYMBOL_LEN)
        else {
            self.counts.malformed += 1;
            return None;
        };
        let Some(number) = self.proven_number(channel, header) else {
            self.counts.strange += 1;
            return None;
        };
        if header.threshold < self.floor || usize::from(header.threshold) > self.channels {
            self.counts.forbidden += 1;
            return None;
        }
        let is_outside = number < self.verified.oldest();
        if !is_outside && !self.reassembly.note(channel, number, now) {
            self.counts.duplicate += 1;
            return None;
        }
        if is_outside {
            self.counts.outside += 1;
            return None;
        }
        self.received[channel].datagrams += 1;
        self.received[channel].bytes += datagram.len() as u64;
        Some(Arrival { channel, number, header, share, now })
    }

    /// The number of the symbol that a header is of, if its token is right: the peer has sent a share
    /// of that number on this channel.
    fn proven_number(&self, channel: usize, header: Header) -> Option<u64> {
        let number = nearest(self.verified.highest(), header.sequence);
        let stamp = Stamp { first: header.first(), channel, length: 0, number };
        (self.tokens.token(stamp) == header.token).then_some(number)
    }
}
