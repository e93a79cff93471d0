//! Path MTU discovery with probes (RFC 8899). The loss of other datagrams does not count.
//!
//! Each end searches for the direction in which it sends: it sends the probes of
//! [`PathMtuDiscovery::poll_transmit`], the other end answers them, and
//! [`PathMtuDiscovery::handle_answer`] takes the answers. Lengths of packets are those of IP
//! packets, headers included.
//!
//! The kernel's path MTU is not used: anyone who can forge an ICMP message can change it. If a
//! probe is too long for the device, the kernel refuses it, and the search continues at once.
//!
//! A path may lose long packets later, without ICMP: a *black hole*. So while long packets are
//! sent, the MTU is confirmed by a probe of its length. If it is not answered, pairs of probes are
//! sent, one of the length and a shorter one that has passed before. Random loss takes both alike,
//! so of the answers that arrive half are to the longer ones. A length is considered too long only
//! if the first six pairs each lose the longer probe and not the shorter one, or if eight shorter
//! ones were answered and no longer one. At any rate of loss this is wrong in less than one
//! of 250 cases.

#[cfg(test)]
mod tests;

use std::time::Duration;

/// The MTU that every path is assumed to have: the minimum of IPv6.
pub const MIN_MTU: u16 = 1280;

/// The MTU that is tried first. Nothing longer is sent.
pub const MAX_MTU: u16 = 1500;

/// The timeout of a probe that is sent alone, and the interval of pairs after [`FAST_PAIRS`]. The
/// timeout is a quarter longer than the last round trip if that is longer, up to the maximum.
const PROBE_TIMEOUT: Duration = Duration::from_millis(300);
const MAX_PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// The interval of the first pairs of a length, and the time that a longer probe may arrive after
/// the shorter ones.
const PAIR_INTERVAL: Duration = Duration::from_millis(60);

/// The number of pairs that are sent at this interval.
const FAST_PAIRS: u32 = 8;

/// The number of shorter probes that must be answered, while no longer one is, for a length to be
/// too long: if no pair loses the shorter one, and if some do.
const MIN_SHORT_ANSWERS: u32 = 6;
const MIN_SHORT_ANSWERS_IF_LOSSY: u32 = 8;

/// The number of pairs without any answer after which the path is considered silent.
const MAX_SILENT_PAIRS: u32 = 10;

/// The interval at which the MTU is confirmed if this number of long packets was sent meanwhile,
/// and if fewer were.
const CONFIRMATION_INTERVAL: Duration = Duration::from_millis(500);
const MANY_LONG_PACKETS: u64 = 30;
const SLOW_CONFIRMATION_INTERVAL: Duration = Duration::from_secs(2);

/// The time after which the search is repeated: after a black hole the shorter one, and twice as
/// long after each search that does not find the former MTU again, up to the longer one.
const RAISE_INTERVAL: Duration = Duration::from_secs(600);
const FIRST_RAISE_INTERVAL: Duration = Duration::from_secs(30);

/// The time after which a search that the path did not answer may be repeated.
const SILENT_RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// A probe, or the answer to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MtuProbe {
    /// The identifier, which an answer copies.
    pub id: u64,
    /// The length of the probe as UDP payload, in bytes.
    pub length: u16,
}

/// A path that loses packets that it carried before, because they are too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlackHole {
    /// When a packet of the former MTU was last known to arrive.
    pub since: Duration,
    /// The former MTU.
    pub former_mtu: u16,
}

/// The discovery of one path's MTU, in one direction.
#[derive(Clone, Debug)]
pub struct PathMtuDiscovery {
    headers: u16,
    /// The identifiers of the next probe, and of the first one of the search that runs or ran last.
    next_id: u64,
    first_id: u64,
    /// The longest packet that is known to arrive, and the shortest that is considered too long.
    low: u16,
    high: u16,
    probed: Option<MtuProbedLength>,
    /// The result of the last search that was answered; [`MIN_MTU`] while a black hole is searched.
    mtu: Option<u16>,
    /// When a packet of this length was last known to arrive.
    confirmed_at: Duration,
    /// Whether a later probe of this length was not answered in time.
    is_suspected: bool,
    /// When the last confirmation or search began, and the number of long packets sent since then.
    began_at: Duration,
    long_sent: u64,
    /// The time after which the last probe that was sent alone was answered.
    round_trip: Duration,
    black_hole: Option<BlackHole>,
    searches_black_hole: bool,
    /// When to search again, and how long after a search.
    next_start: Duration,
    raise_interval: Duration,
    /// Whether the last search was not answered, or none was started. Then no search starts before
    /// there is activity on the path.
    is_silent: bool,
}

#[derive(Clone, Copy, Debug)]
struct MtuProbedLength {
    length: u16,
    /// Whether this only confirms the MTU.
    confirms: bool,
    /// Whether the next probe is sent alone, since it will probably be answered.
    starts_with_single_probe: bool,
    /// When it was sent.
    began_at: Duration,
    /// The identifier of the first probe of the first pair.
    first_pair_id: u64,
    pairs_sent: u32,
    /// The pairs sent when the last answer arrived.
    pairs_at_answer: u32,
    /// Whether the shorter probe of the last pair is still to be sent.
    is_short_probe_due: bool,
    /// When to send the next pair, or to end.
    until: Duration,
    /// The number of shorter probes that were answered, each later than the ones before it, and the
    /// number of pairs up to the last of them.
    short_answers: u32,
    pairs_answered: u32,
}

impl PathMtuDiscovery {
    /// `headers` is the length of the headers of IP and UDP: 28 bytes, or 48 with IPv6. The search
    /// starts at the first [`Self::handle_activity`].
    pub fn new(headers: u16) -> Self {
        Self {
            headers,
            next_id: 0,
            first_id: 0,
            low: MIN_MTU,
            high: MAX_MTU + 1,
            probed: None,
            mtu: None,
            confirmed_at: Duration::ZERO,
            is_suspected: false,
            began_at: Duration::ZERO,
            long_sent: 0,
            round_trip: Duration::ZERO,
            black_hole: None,
            searches_black_hole: false,
            next_start: Duration::ZERO,
            raise_interval: RAISE_INTERVAL,
            is_silent: true,
        }
    }

    /// The path's MTU, by the last search that was answered; `None` before. In a black hole it is
    /// [`MIN_MTU`] until the search has ended.
    pub fn mtu(&self) -> Option<u16> {
        self.mtu
    }

    /// The maximum length of a datagram by [`Self::mtu`], as UDP payload.
    pub fn max_datagram_len(&self) -> Option<usize> {
        self.mtu.map(|mtu| usize::from(mtu.saturating_sub(self.headers)))
    }

    /// The maximum length of a datagram that every path carries, as UDP payload.
    pub fn min_datagram_len(&self) -> usize {
        usize::from(MIN_MTU.saturating_sub(self.headers))
    }

    /// The black hole, from when it is found until packets of the former MTU arrive again.
    pub fn black_hole(&self) -> Option<BlackHole> {
        self.black_hole
    }

    /// When a packet of the MTU was last known to arrive, while probes of this length are overdue:
    /// from the first one that was not answered in time until one is, or the path has a black hole.
    /// Since then packets may have been lost because of their length. It stays if shorter probes
    /// are lost as well, by chance or since even [`MIN_MTU`] is too long.
    pub fn suspected_since(&self) -> Option<Duration> {
        self.is_suspected.then_some(self.confirmed_at)
    }

    /// Whether a search for the MTU in a black hole is in progress.
    pub fn is_searching_black_hole(&self) -> bool {
        self.searches_black_hole
    }

    /// Records that this number of packets longer than [`MIN_MTU`] was sent.
    pub fn handle_long_sent(&mut self, packets: u64) {
        self.long_sent = self.long_sent.saturating_add(packets);
    }

    /// The next probe, to be sent with "don't fragment". Call it until it returns `None`.
    pub fn poll_transmit(&mut self, now: Duration) -> Option<MtuProbe> {
        if self.probed.is_none() {
            if !self.is_silent && self.next_start <= now {
                self.begin(now);
            } else if self.confirmation_at().is_some_and(|at| at <= now) {
                self.confirm(now);
            }
        }
        if let Some(probed) = self.probed.filter(|probed| probed.until <= now) {
            if probed.is_too_long() {
                self.handle_too_long(probed.length, now);
            } else if probed.is_silent() {
                self.handle_silence(probed, now);
            }
        }
        let probed = self.probed.as_mut()?;
        if std::mem::take(&mut probed.is_short_probe_due) {
            return Some(self.probe(self.low));
        }
        if now < probed.until {
            return None;
        }
        if std::mem::take(&mut probed.starts_with_single_probe) {
            probed.first_pair_id = self.next_id + 1;
            probed.began_at = now;
            let timeout = (self.round_trip * 5 / 4).clamp(PROBE_TIMEOUT, MAX_PROBE_TIMEOUT);
            probed.until = now.saturating_add(timeout);
        } else {
            self.is_suspected |= Some(probed.length) == self.mtu;
            probed.pairs_sent += 1;
            probed.is_short_probe_due = true;
            let is_fast = probed.pairs_sent <= FAST_PAIRS;
            let interval = if is_fast { PAIR_INTERVAL } else { PROBE_TIMEOUT };
            probed.until = now.saturating_add(interval);
        }
        let length = probed.length;
        Some(self.probe(length))
    }

    /// When to call [`Self::poll_transmit`] next.
    pub fn poll_timeout(&self) -> Option<Duration> {
        if let Some(probed) = self.probed {
            return Some(probed.until);
        }
        let search = (!self.is_silent).then_some(self.next_start);
        search.into_iter().chain(self.confirmation_at()).min()
    }

    /// Handles an answer. An answer to a probe of an earlier search is ignored. An attacker on the
    /// path may still delay answers, or let only probes pass: then packets are lost there, or
    /// shorter than necessary.
    pub fn handle_answer(&mut self, answer: MtuProbe, now: Duration) {
        if !(self.first_id..self.next_id).contains(&answer.id) {
            return;
        }
        let length = answer.length.saturating_add(self.headers);
        if length > MAX_MTU {
            return;
        }
        if self.is_silent {
            // The path is not silent, but slow.
            self.resume(now);
        }
        let Some(probed) = &mut self.probed else { return };
        probed.pairs_at_answer = probed.pairs_sent;
        if length <= self.low {
            probed.handle_short_answer(answer.id, now);
            return;
        }
        if answer.id + 1 == probed.first_pair_id {
            self.round_trip = now.saturating_sub(probed.began_at);
        }
        if self.mtu.is_some_and(|mtu| length >= mtu) {
            (self.confirmed_at, self.is_suspected) = (now, false);
        }
        if probed.confirms {
            self.probed = None;
            return;
        }
        self.low = length;
        if length >= self.high {
            // This length was considered too long, but its answer was only late. The same may hold
            // for longer ones.
            self.high = MAX_MTU + 1;
        }
        self.continue_search(now);
    }

    /// Records that the kernel refused to send a probe of this length, as UDP payload, because it
    /// is too long for the device. If it is the current length, no other probe is needed.
    pub fn handle_refusal(&mut self, length: usize, now: Duration) {
        let Some(probed) = self.probed else { return };
        if length == self.payload_len(probed.length) {
            self.handle_too_long(probed.length, now);
        }
    }

    /// Records that an authentic datagram of the peer has arrived over the path, so that a silent
    /// path may work again.
    pub fn handle_activity(&mut self, now: Duration) {
        self.is_silent &= now < self.next_start;
    }

    /// Handles a possible change of path: the search starts at the next [`Self::handle_activity`].
    /// Until it ends, the MTU stays the former one.
    pub fn restart(&mut self) {
        self.probed = None;
        self.is_silent = true;
        self.next_start = Duration::ZERO;
        self.first_id = self.next_id;
    }

    /// When to confirm the MTU, if it is to be confirmed.
    fn confirmation_at(&self) -> Option<Duration> {
        let interval = match self.long_sent {
            0 => return None,
            1..MANY_LONG_PACKETS => SLOW_CONFIRMATION_INTERVAL,
            MANY_LONG_PACKETS.. => CONFIRMATION_INTERVAL,
        };
        let has_length = self.mtu.is_some_and(|mtu| mtu > MIN_MTU);
        has_length.then(|| self.began_at.saturating_add(interval))
    }

    /// Sends a probe of the MTU's length.
    fn confirm(&mut self, now: Duration) {
        let Some(mtu) = self.mtu else { return };
        self.reset(now);
        self.probed = Some(MtuProbedLength::new(mtu, true, self.next_id, now).as_confirmation());
    }

    /// Begins a search.
    fn begin(&mut self, now: Duration) {
        self.reset(now);
        self.resume(now);
    }

    /// Discards what an earlier search has found, except for the MTU.
    fn reset(&mut self, now: Duration) {
        (self.low, self.high) = (MIN_MTU, MAX_MTU + 1);
        self.first_id = self.next_id;
        (self.began_at, self.long_sent) = (now, 0);
    }

    /// Continues a search from what is known to arrive.
    fn resume(&mut self, now: Duration) {
        (self.low, self.high) = (MIN_MTU, MAX_MTU + 1);
        self.is_silent = false;
        self.continue_search(now);
    }

    /// Handles a length that is too long. If it is the MTU, the path has a black hole.
    fn handle_too_long(&mut self, length: u16, now: Duration) {
        self.high = self.high.min(length);
        if self.mtu == Some(length) && length > MIN_MTU {
            self.mtu = Some(MIN_MTU);
            (self.searches_black_hole, self.is_suspected) = (true, false);
            self.raise_interval = FIRST_RAISE_INTERVAL;
            let found = BlackHole { since: self.confirmed_at, former_mtu: length };
            // A black hole found during a black hole is the same one.
            self.black_hole.get_or_insert(found);
        }
        self.continue_search(now);
    }

    /// If all probes are lost, this does not show that the length is too long.
    fn handle_silence(&mut self, probed: MtuProbedLength, now: Duration) {
        self.probed = None;
        if !probed.confirms {
            self.is_silent = true;
            self.next_start = now.saturating_add(SILENT_RETRY_INTERVAL);
        }
    }

    /// Continues with the next length, or ends the search.
    fn continue_search(&mut self, now: Duration) {
        let begins_alone = |length| length == MAX_MTU || Some(length) == self.mtu;
        self.probed = self
            .next_length()
            .map(|length| MtuProbedLength::new(length, begins_alone(length), self.next_id, now));
        if self.probed.is_none() {
            self.mtu = Some(self.low);
            (self.confirmed_at, self.searches_black_hole) = (now, false);
            if self.black_hole.is_none_or(|black_hole| self.low >= black_hole.former_mtu) {
                self.black_hole = None;
                self.raise_interval = RAISE_INTERVAL;
            }
            self.next_start = now.saturating_add(self.raise_interval);
            self.raise_interval = (2 * self.raise_interval).min(RAISE_INTERVAL);
        }
    }

    /// The next length to try; `None` if the MTU is found.
    fn next_length(&self) -> Option<u16> {
        if self.low + 1 >= self.high {
            return None;
        }
        // The last result first, then the maximum, which most paths have: then one or two probes
        // are enough. If only the last result passes, probably nothing has changed.
        match self.mtu.filter(|mtu| *mtu < self.high) {
            Some(mtu) if mtu > self.low => Some(mtu),
            _ if self.high > MAX_MTU => Some(MAX_MTU),
            Some(mtu) if mtu == self.low => Some(mtu + 1),
            _ => Some(self.low.midpoint(self.high)),
        }
    }

    fn probe(&mut self, length: u16) -> MtuProbe {
        let id = self.next_id;
        self.next_id += 1;
        MtuProbe { id, length: length.saturating_sub(self.headers) }
    }

    /// The length of a packet as UDP payload.
    fn payload_len(&self, length: u16) -> usize {
        usize::from(length.saturating_sub(self.headers))
    }
}

impl MtuProbedLength {
    fn new(length: u16, starts_with_single_probe: bool, next_id: u64, now: Duration) -> Self {
        Self {
            length,
            confirms: false,
            starts_with_single_probe,
            began_at: now,
            first_pair_id: next_id,
            pairs_sent: 0,
            pairs_at_answer: 0,
            is_short_probe_due: false,
            until: now,
            short_answers: 0,
            pairs_answered: 0,
        }
    }

    fn as_confirmation(self) -> Self {
        Self { confirms: true, ..self }
    }

    /// The shorter probe of a pair was answered. Duplicates, and answers that others have
    /// overtaken, do not count.
    fn handle_short_answer(&mut self, id: u64, now: Duration) {
        let place = id.checked_sub(self.first_pair_id).map(|place| place / 2 + 1);
        let pairs = place.and_then(|pairs| u32::try_from(pairs).ok()).unwrap_or(0);
        if pairs <= self.pairs_answered {
            return;
        }
        let was_too_long = self.is_too_long();
        self.pairs_answered = pairs;
        self.short_answers += 1;
        if self.is_too_long() && !was_too_long {
            self.until = now.saturating_add(PAIR_INTERVAL);
            self.is_short_probe_due = false;
        }
    }

    /// Whether the shorter probes that were answered show that the longer ones are too long, as
    /// none of them was.
    fn is_too_long(&self) -> bool {
        let is_lossless = self.short_answers == self.pairs_answered;
        let least = if is_lossless { MIN_SHORT_ANSWERS } else { MIN_SHORT_ANSWERS_IF_LOSSY };
        self.short_answers >= least
    }

    fn is_silent(&self) -> bool {
        self.pairs_sent - self.pairs_at_answer >= MAX_SILENT_PAIRS
    }
}
