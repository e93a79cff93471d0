//! The search for a path's MTU: with datagrams made for it, as in RFC 8899, and never by the loss of
//! others.
//!
//! The bytes are in `docs/protocols/remicss.md`, section "Path MTU". One end searches for what it
//! sends: it asks with [`Search::poll_transmit`], the other end answers with [`answer`], and
//! [`Search::handle_answer`] takes that. Lengths of packets are those of IP packets, headers included.

use std::ops::RangeInclusive;
use std::time::Duration;

use subtle::ConstantTimeEq;
use thiserror::Error;

use crate::keys::{TOKEN_LEN, Token};

/// What every path is taken to carry: the least that IPv6 allows.
pub const LEAST_MTU: u16 = 1280;

/// How long an answer is waited for.
const WAIT: Duration = Duration::from_millis(300);

/// How often a length is tried before it is held for too much.
const TRIES: u32 = 3;

/// How long the result of a search is relied on.
const VALIDITY: Duration = Duration::from_secs(600);

const PROBE: u8 = 0x30;
const ANSWER: u8 = 0x40;

const ID_LEN: usize = 4;

/// What a probe has before its zeros.
const PROBE_HEADER: usize = 1 + TOKEN_LEN + ID_LEN;

/// The length of an answer.
const ANSWER_LEN: usize = PROBE_HEADER + 2;

/// There is nothing to search for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SearchError {
    /// The device sends no packets that are long enough.
    #[error("a device's MTU of {0} is below {LEAST_MTU}")]
    Mtu(u16),
    /// IP and UDP have other headers.
    #[error("headers of {0} bytes are not those of IP and UDP")]
    Headers(u16),
}

/// The headers of IP and UDP: without options up to as many as there can be.
const HEADERS: RangeInclusive<u16> = 28..=68;

/// The search for the MTU of one channel's path in one direction.
#[derive(Clone, Debug)]
pub struct Search {
    token: Token,
    id: [u8; ID_LEN],
    headers: u16,
    /// The longest packet that the device sends.
    device: u16,
    /// The longest that is known to arrive, and the shortest that is held for too long.
    low: u16,
    high: u16,
    trying: Option<Trying>,
    /// What the last search has found, and when it is to be done again.
    found: Option<(u16, Duration)>,
}

#[derive(Clone, Copy, Debug)]
struct Trying {
    length: u16,
    /// How many probes were sent.
    tries: u32,
    /// Until when the last one's answer is waited for.
    until: Duration,
}

impl Search {
    /// A search on a channel with a token for what is sent, by a device that sends packets of up to
    /// `device_mtu` bytes. `headers` are the bytes of IP and UDP: 28, or 48 with IPv6. `id` is
    /// random, so that nobody answers who has not seen the probes.
    ///
    /// # Errors
    /// If the device's MTU is below [`LEAST_MTU`], or the headers are none of IP and UDP.
    pub fn new(
        token: Token,
        id: [u8; ID_LEN],
        device_mtu: u16,
        headers: u16,
    ) -> Result<Self, SearchError> {
        if device_mtu < LEAST_MTU {
            return Err(SearchError::Mtu(device_mtu));
        }
        if !HEADERS.contains(&headers) {
            return Err(SearchError::Headers(headers));
        }
        let mut search = Self {
            token,
            id,
            headers,
            // So that there is a length above it.
            device: device_mtu.min(u16::MAX - 1),
            low: LEAST_MTU,
            high: 0,
            trying: None,
            found: None,
        };
        search.begin();
        Ok(search)
    }

    /// The path's MTU, as the last search has found it; `None` before the first is over.
    pub fn mtu(&self) -> Option<u16> {
        self.found.map(|(mtu, _)| mtu)
    }

    /// The next probe, to be sent with "don't fragment". Ask until there is none.
    pub fn poll_transmit(&mut self, now: Duration) -> Option<Vec<u8>> {
        match self.found {
            Some((_, until)) if now < until => return None,
            // The device's MTU first again: paths get longer too.
            Some(_) if self.trying.is_none() => self.begin(),
            _ => {}
        }
        let next = self.next_try(now)?;
        self.trying =
            Some(Trying { until: now.saturating_add(WAIT), tries: next.tries + 1, ..next });
        let mut probe = vec![PROBE];
        probe.extend(self.token.bytes());
        probe.extend(self.id);
        probe.resize(usize::from(next.length - self.headers), 0);
        Some(probe)
    }

    /// When to call [`Self::poll_transmit`] next.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.trying.map(|trying| trying.until).or(self.found.map(|(_, until)| until))
    }

    /// A datagram of kind 4 came on the channel. Whoever sees the channel may lie: then packets are
    /// lost there that are too long, or shorter than they need be.
    pub fn handle_answer(&mut self, datagram: &[u8], token: Token, now: Duration) {
        let Some(length) = self.parse_answer(datagram, token) else {
            return;
        };
        let length = length.saturating_add(self.headers);
        if self.trying.is_none() || length <= self.low || length > self.device {
            return;
        }
        self.low = length;
        if length >= self.high {
            // That was held for too long, and only late. What is longer may have been, too.
            self.high = self.device + 1;
        }
        self.narrow(now);
    }

    /// The kernel refused to send the last probe: it is too long for the device or a route.
    pub fn handle_refusal(&mut self, now: Duration) {
        if let Some(trying) = self.trying {
            self.high = self.high.min(trying.length);
            self.narrow(now);
        }
    }

    fn begin(&mut self) {
        self.low = LEAST_MTU;
        self.high = self.device + 1;
        self.trying = None;
    }

    /// What to send now, if anything: the length that is tried again, or another.
    fn next_try(&mut self, now: Duration) -> Option<Trying> {
        if let Some(trying) = self.trying {
            if now < trying.until {
                return None;
            }
            if trying.tries < TRIES {
                return Some(trying);
            }
            self.high = self.high.min(trying.length);
        }
        let length = self.next_length(now)?;
        Some(Trying { length, tries: 0, until: now })
    }

    /// After an answer: goes on with another length at once, or is done.
    fn narrow(&mut self, now: Duration) {
        self.trying = self.next_length(now).map(|length| Trying { length, tries: 0, until: now });
    }

    /// The next length to try; `None` if the MTU is found.
    fn next_length(&mut self, now: Duration) -> Option<u16> {
        if self.low + 1 >= self.high {
            self.found = Some((self.low, now.saturating_add(VALIDITY)));
            self.trying = None;
            return None;
        }
        // Most paths carry what the device sends, and then one probe is enough.
        let is_first = self.low == LEAST_MTU && self.high > self.device;
        Some(if is_first { self.device } else { self.low.midpoint(self.high) })
    }

    /// The length that an answer names, as UDP's payload.
    fn parse_answer(&self, datagram: &[u8], token: Token) -> Option<u16> {
        let datagram: &[u8; ANSWER_LEN] = datagram.try_into().ok()?;
        let [first, t0, t1, t2, i0, i1, i2, i3, length @ ..] = *datagram;
        let is_ours = first == ANSWER
            && Token::new([t0, t1, t2]) == token
            && bool::from([i0, i1, i2, i3].ct_eq(&self.id));
        is_ours.then(|| u16::from_be_bytes(length))
    }
}

/// The answer to a probe, if the datagram is one with the channel's token for what comes in. `reply`
/// is the token for what goes out. An answer is shorter than its probe.
pub fn answer(datagram: &[u8], token: Token, reply: Token) -> Option<Vec<u8>> {
    let (header, zeros) = datagram.split_first_chunk::<PROBE_HEADER>()?;
    let [first, t0, t1, t2, id @ ..] = *header;
    let length = u16::try_from(datagram.len()).ok()?;
    if first != PROBE || Token::new([t0, t1, t2]) != token || zeros.len() < ANSWER_LEN {
        return None;
    }
    let mut answer = vec![ANSWER];
    answer.extend(reply.bytes());
    answer.extend(id);
    answer.extend(length.to_be_bytes());
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: [u8; 4] = [9, 8, 7, 6];

    fn there() -> Token {
        Token::new([1, 2, 3])
    }

    fn back() -> Token {
        Token::new([4, 5, 6])
    }

    fn search(device: u16) -> Search {
        Search::new(there(), ID, device, 28).unwrap()
    }

    /// Runs a search over a path whose `carries` says which probe arrives, and gives how many probes
    /// that took, and how long.
    fn run(
        search: &mut Search,
        began: Duration,
        mut carries: impl FnMut(usize) -> bool,
    ) -> (u32, Duration) {
        let (mut probes, mut now) = (0, began);
        loop {
            while let Some(probe) = search.poll_transmit(now) {
                probes += 1;
                if carries(probe.len() + 28) {
                    let answer = answer(&probe, there(), back()).unwrap();
                    search.handle_answer(&answer, back(), now);
                }
            }
            if search.trying.is_none() {
                return (probes, now.saturating_sub(began));
            }
            now = search.poll_timeout().unwrap();
        }
    }

    #[test]
    fn bytes_are_as_specified() {
        let probe = search(1500).poll_transmit(Duration::ZERO).unwrap();
        assert_eq!(probe.len(), 1472);
        assert_eq!(probe[..10], [0x30, 1, 2, 3, 9, 8, 7, 6, 0, 0]);
        let answer = answer(&probe, there(), back()).unwrap();
        assert_eq!(answer, [0x40, 4, 5, 6, 9, 8, 7, 6, 5, 192]);
    }

    #[test]
    fn a_path_as_wide_as_the_device_takes_one_probe() {
        let mut search = search(1500);
        assert_eq!(search.mtu(), None);
        let (probes, took) = run(&mut search, Duration::ZERO, |_| true);
        assert_eq!((probes, took, search.mtu()), (1, Duration::ZERO, Some(1500)));
    }

    #[test]
    fn every_mtu_is_found() {
        for mtu in LEAST_MTU..=1500 {
            let mut search = search(1500);
            let (probes, took) = run(&mut search, Duration::ZERO, |len| len <= mtu.into());
            assert_eq!(search.mtu(), Some(mtu));
            assert!(probes <= 3 * 9 && took <= Duration::from_secs(9), "{mtu}: {probes}, {took:?}");
        }
        let mut jumbo = search(9000);
        run(&mut jumbo, Duration::ZERO, |len| len <= 8951);
        assert_eq!(jumbo.mtu(), Some(8951));
        let mut widest = search(u16::MAX);
        run(&mut widest, Duration::ZERO, |len| len <= 65_534);
        assert_eq!(widest.mtu(), Some(65_534));
    }

    #[test]
    fn the_device_may_be_as_narrow_as_the_least() {
        let mut narrow = search(LEAST_MTU);
        run(&mut narrow, Duration::ZERO, |_| true);
        assert_eq!(narrow.mtu(), Some(LEAST_MTU));
        let refused = |mtu, headers| Search::new(there(), ID, mtu, headers).unwrap_err();
        assert_eq!(refused(1279, 28), SearchError::Mtu(1279));
        assert_eq!(refused(1500, 27), SearchError::Headers(27));
        assert_eq!(refused(1500, u16::MAX), SearchError::Headers(u16::MAX));
    }

    #[test]
    fn single_losses_do_not_lower_it() {
        let mut search = search(1500);
        let mut probe = 0;
        run(&mut search, Duration::ZERO, |len| {
            probe += 1;
            probe % 3 == 0 && len <= 1400
        });
        assert_eq!(search.mtu(), Some(1400));
    }

    #[test]
    fn it_is_done_again_after_ten_minutes() {
        let mut search = search(1500);
        run(&mut search, Duration::ZERO, |_| true);
        assert_eq!(search.poll_transmit(VALIDITY.saturating_sub(WAIT)), None);
        assert_eq!(search.poll_timeout(), Some(VALIDITY));
        let (probes, _) = run(&mut search, VALIDITY, |len| len <= 1420);
        assert!(probes > 1);
        assert_eq!(search.mtu(), Some(1420));
    }

    #[test]
    fn what_the_kernel_refuses_is_not_tried_again() {
        let mut search = search(9000);
        let mut now = Duration::ZERO;
        let mut tried = 0;
        while let Some(probe) = search.poll_transmit(now) {
            tried += 1;
            if probe.len() + 28 > 1500 {
                search.handle_refusal(now);
            } else {
                search.handle_answer(&answer(&probe, there(), back()).unwrap(), back(), now);
            }
            now += Duration::from_nanos(1);
        }
        assert_eq!(search.mtu(), Some(1500));
        assert!(tried <= 14);
    }

    #[test]
    fn a_late_answer_counts() {
        let mut search = search(1500);
        let first = search.poll_transmit(Duration::ZERO).unwrap();
        let mut now = Duration::ZERO;
        for _ in 0..3 {
            now = search.poll_timeout().unwrap();
            assert!(search.poll_transmit(now).is_some());
        }
        search.handle_answer(&answer(&first, there(), back()).unwrap(), back(), now);
        assert_eq!((search.poll_transmit(now), search.mtu()), (None, Some(1500)));
    }

    #[test]
    fn strangers_are_not_answered() {
        let probe = search(1500).poll_transmit(Duration::ZERO).unwrap();
        assert_eq!(answer(&probe, back(), there()), None);
        assert_eq!(answer(&probe[..17], there(), back()), None, "no more than was asked for");
        let mut search = search(1500);
        search.poll_transmit(Duration::ZERO);
        let good = answer(&probe, there(), back()).unwrap();
        for place in 0..8 {
            let mut changed = good.clone();
            changed[place] ^= 1;
            search.handle_answer(&changed, back(), Duration::ZERO);
            assert_eq!(search.mtu(), None, "byte {place}");
        }
    }

    proptest! {
        #[test]
        fn no_answer_leads_outside(
            device in LEAST_MTU..,
            answers in prop::collection::vec((any::<u16>(), 0_u64..1000), 0..50),
        ) {
            let mut search = search(device);
            let mut now = Duration::ZERO;
            for (length, millis) in answers {
                now += Duration::from_millis(millis);
                if let Some(probe) = search.poll_transmit(now) {
                    prop_assert!(probe.len() <= usize::from(device) - 28);
                }
                let [l0, l1] = length.to_be_bytes();
                search.handle_answer(&[0x40, 4, 5, 6, 9, 8, 7, 6, l0, l1], back(), now);
                prop_assert!(search.mtu().is_none_or(|mtu| (LEAST_MTU..=device).contains(&mtu)));
            }
        }

        #[test]
        fn any_bytes_are_answered_or_not(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = answer(&bytes, there(), back());
            search(1500).handle_answer(&bytes, back(), Duration::ZERO);
        }
    }
}
