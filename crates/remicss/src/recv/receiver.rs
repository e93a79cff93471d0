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

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use model::Subset;

use crate::recv::bits::bits;
use crate::recv::blame::Blame;
use crate::recv::deliver::{ControlShare, Deliver};
use crate::recv::numbers::Numbers;
use crate::recv::reassembly::arrival::Arrival;
use crate::recv::reassembly::{Completed, Reassembled, Reassembly};
use crate::recv::release::{Release, Released, Symbol};
use crate::wire::datagram::{Header, Kind, MAX_CHANNELS, nearest};
use crate::wire::keys::Direction;
use crate::wire::symbol::{Inside, MAX_SYMBOL_LEN, Tagger};
use crate::wire::tokens::ShareTokens;

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
    /// How many joins a second may fail, in the long run; ten times as many at a time. Each is an attempt at
    /// the tag.
    pub failures_per_second: u32,
}

impl Default for Limits {
    /// 2^17 symbols: 131 ms at a million a second. 16 MiB a channel: 134 ms at 1 Gbit/s. 1 s, 8 MiB,
    /// and 2,000 failures, with which a year of attack forges a tag with a probability below 2^-20.
    fn default() -> Self {
        Self {
            window: 1 << 17,
            share_bytes: 16 << 20,
            share_age: Duration::from_secs(1),
            held_bytes: 8 << 20,
            failures_per_second: 2_000,
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
    pub wrong_token: u64,
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
    /// Datagrams with right tokens, each number once: the peer sent them there, and what they carry is
    /// right or wrong.
    pub datagrams: u64,
    /// Their bytes, headers of UDP and IP not counted.
    pub bytes: u64,
    /// Shares that are known to be right: by them a symbol was verified, or they were compared with it.
    pub right: u64,
    /// Shares that were wrong, for all that is known.
    pub faults: u64,
}

/// How many control shares of a channel wait for their symbol to be verified. Each channel has its own,
/// so that one which brings shares of no symbol forgets no other's.
const EARLY: usize = 8;

/// What came of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The peer sent it on this channel, as far as its header says; or it is malformed.
    Known,
    /// Its token is wrong: somebody else did, or it is of another association.
    WrongToken,
}

/// The control shares of one channel.
#[derive(Clone, Debug, Default)]
struct Controls {
    early: VecDeque<Early>,
    /// The number of the last one that was told.
    last: u64,
}

/// A control share whose symbol is not verified yet.
#[derive(Clone, Copy, Debug)]
struct Early {
    share: ControlShare,
    is_right: bool,
}

/// The receiving end of one direction of an association.
pub struct Receiver {
    channels: usize,
    /// Those that are in the association.
    members: Subset,
    tokens: ShareTokens,
    floor: u8,
    tagger: Tagger,
    verified: Numbers,
    reassembly: Reassembly,
    blame: Blame,
    release: Release,
    received: Vec<Received>,
    controls: Vec<Controls>,
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
        let Limits { share_bytes, share_age, held_bytes, failures_per_second, .. } = limits;
        let window = limits.window.clamp(1 << 10, 1 << 24).next_power_of_two();
        Self {
            channels: n,
            tokens: ShareTokens::new(&keys.tokens, keys.channels),
            members: Subset::first(n),
            floor,
            tagger: Tagger::new(keys.points.as_ref()),
            verified: Numbers::new(window),
            reassembly: Reassembly::new(
                n,
                window,
                share_bytes,
                share_age,
                failures_per_second,
                keys.tokens.seed(),
            ),
            blame: Blame::new(n, floor),
            release: Release::new(n, window, held_bytes),
            received: vec![Received::default(); n],
            controls: vec![Controls::default(); n],
            counts: Counts::default(),
        }
    }

    /// The same where only these channels are in the association. What comes on others is a stranger's.
    #[must_use]
    pub fn over(mut self, members: Subset) -> Self {
        self.members = members;
        self.set_up(members);
        self
    }

    /// Whether a datagram is a share whose token is right, so that it belongs here and not to another
    /// association of the same peers.
    pub fn recognises(&mut self, channel: usize, datagram: &[u8]) -> bool {
        let header = Header::parse(datagram);
        header.is_ok_and(|(header, _)| self.proven_number(channel, header).is_some())
    }

    /// Takes a datagram that came on a channel from an address. Whatever it is, nothing but verified
    /// symbols come out, and nothing else than a wrong token's count changes if its token is wrong.
    pub fn handle_share(
        &mut self,
        channel: usize,
        from: SocketAddr,
        datagram: &[u8],
        now: Duration,
        deliver: &mut impl Deliver,
    ) -> Taken {
        let arrival = match self.admit(channel, datagram, now) {
            Ok(arrival) => arrival,
            Err(taken) => return taken,
        };
        let Arrival { number, header, .. } = arrival;
        self.blame.update(now);
        let is_quarantined = self.blame.excluded() >> channel & 1 == 1;
        self.counts.quarantined += u64::from(is_quarantined);
        let before = self.received[channel].datagrams - 1;
        let share = ControlShare { number, channel, before, at: now, from, is_quarantined };
        let is_control = header.kind == Kind::Control;
        if self.verified.contains(number) {
            self.counts.late += u64::from(!is_quarantined);
            if is_control || !is_quarantined {
                let agrees = self.reassembly.compare(&arrival, &self.tagger, &mut self.blame);
                if agrees == Some(true) {
                    self.tell_right(share, is_control, deliver);
                }
            }
        } else if is_quarantined {
            if is_control {
                let is_right = self.reassembly.set_aside(&arrival, &self.verified, &self.tagger);
                self.controls[channel].keep(Early { share, is_right });
            }
        } else {
            if is_control {
                self.controls[channel].keep(Early { share, is_right: false });
            }
            let completed =
                self.reassembly.complete(&arrival, &self.verified, &self.tagger, &mut self.blame);
            if let Some(Completed { inside: Inside { previous, content }, right }) = completed {
                self.counts.symbols += 1;
                self.counts.bytes += content.len() as u64;
                self.verified.insert(number);
                if is_control {
                    self.counts.controls += 1;
                    deliver.control(number, content);
                    self.tell_early(number, right, deliver);
                } else {
                    let symbol = Symbol { number, previous, kind: header.kind, packets: content };
                    self.release.take(symbol, now, &self.verified, deliver);
                    bits(right).for_each(|channel| self.received[channel].right += 1);
                }
            }
        }
        // The token says that the peer has sent this number here, whatever was made of the share.
        self.release.note(channel, number);
        self.release.handle_losses(self.blame.heard(), &self.verified, deliver);
        Taken::Known
    }

    /// Tells of the shares of a control symbol that came before it was verified, on the channels that are
    /// right.
    fn tell_early(&mut self, number: u64, right: u16, deliver: &mut impl Deliver) {
        for channel in 0..self.channels {
            let early = self.controls[channel].take(number);
            if let Some(early) = early.filter(|early| early.is_right || right >> channel & 1 == 1) {
                self.tell_right(early.share, true, deliver);
            }
        }
    }

    /// A share is right.
    fn tell_right(&mut self, share: ControlShare, is_control: bool, deliver: &mut impl Deliver) {
        self.received[share.channel].right += 1;
        let last = &mut self.controls[share.channel].last;
        if is_control && share.number > *last {
            *last = share.number;
            deliver.control_share(share);
        }
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
    ) -> Result<Arrival<'a>, Taken> {
        if channel >= self.channels {
            return Err(Taken::Known);
        }
        let Some((header, share)) =
            Header::parse(datagram).ok().filter(|(_, share)| share.len() <= MAX_SYMBOL_LEN)
        else {
            self.counts.malformed += 1;
            return Err(Taken::Known);
        };
        let Some(number) = self.proven_number(channel, header) else {
            self.counts.wrong_token += 1;
            return Err(Taken::WrongToken);
        };
        if header.threshold < self.floor || usize::from(header.threshold) > self.members.len() {
            self.counts.forbidden += 1;
            return Err(Taken::Known);
        }
        let is_outside = number < self.verified.oldest();
        if !is_outside && !self.reassembly.note(channel, number, now) {
            self.counts.duplicate += 1;
            return Err(Taken::Known);
        }
        if is_outside {
            self.counts.outside += 1;
            return Err(Taken::Known);
        }
        self.received[channel].datagrams += 1;
        self.received[channel].bytes += datagram.len() as u64;
        Ok(Arrival { channel, number, header, share, now })
    }

    /// The number of the symbol that a header is of, if its token is right: the peer has sent a share
    /// of that number on this channel.
    fn proven_number(&mut self, channel: usize, header: Header) -> Option<u64> {
        let number = nearest(self.verified.highest(), header.sequence);
        let is_right = self.members.contains(channel)
            && self.tokens.token(channel, header.first(), number) == header.token;
        is_right.then_some(number)
    }
}

impl Controls {
    fn keep(&mut self, early: Early) {
        if self.early.len() >= EARLY {
            self.early.pop_front();
        }
        self.early.push_back(early);
    }

    fn take(&mut self, number: u64) -> Option<Early> {
        let place = self.early.iter().position(|early| early.share.number == number)?;
        self.early.remove(place)
    }
}
