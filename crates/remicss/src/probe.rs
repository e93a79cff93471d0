//! The search for a path's MTU: with datagrams made for it, as in RFC 8899, and never by the loss of
//! others.
//!
//! The bytes are in `docs/protocols/remicss.md`, section "Path MTU". One end searches for what it
//! sends: it asks with [`Search::poll_transmit`], the other end answers with [`answer`], and
//! [`Search::handle_answer`] takes that. Lengths of packets are those of IP packets, headers included.
//!
//! Nobody is asked what the route carries: what the kernel knows of it, anyone may have told it who can
//! forge an ICMP message. What the device does not send, the kernel refuses, and the search goes on at
//! once.

use std::time::Duration;

use subtle::ConstantTimeEq;

use crate::keys::{TOKEN_LEN, Token};

/// What every path is taken to carry: the least that IPv6 allows.
pub const LEAST_MTU: u16 = 1280;

/// What is tried first, and what a channel is taken for as long as nobody has measured it. The tunnel
/// sends nothing longer.
pub const MOST_MTU: u16 = 1500;

/// How long an answer is waited for.
const WAIT: Duration = Duration::from_millis(300);

/// How often a length is tried before it is held for too much.
const TRIES: u32 = 3;

/// How long the result of a search is relied on.
const VALIDITY: Duration = Duration::from_secs(600);

/// How long after a search to which the path was silent there is none.
const PAUSE: Duration = Duration::from_secs(10);

const PROBE: u8 = 0x30;
const ANSWER: u8 = 0x40;

const ID_LEN: usize = 4;

/// What a probe has before its zeros.
const PROBE_HEADER: usize = 1 + TOKEN_LEN + ID_LEN;

/// The length of an answer.
const ANSWER_LEN: usize = PROBE_HEADER + 2;

/// The search for the MTU of one channel's path in one direction.
#[derive(Clone, Debug)]
pub struct Search {
    token: Token,
    id: [u8; ID_LEN],
    headers: u16,
    /// The longest packet that is known to arrive, and the shortest that is held for too long.
    low: u16,
    high: u16,
    trying: Option<Trying>,
    /// What the last search that was answered has found.
    found: Option<u16>,
    /// When to search again.
    again: Duration,
    /// Whether nothing was answered at last, or sent yet. Then there is no search before a share has
    /// come.
    is_silent: bool,
}

#[derive(Clone, Copy, Debug)]
struct Trying {
    length: u16,
    /// How many probes were sent.
    tries: u32,
    /// Until when the last one's answer is waited for.
    until: Duration,
    /// Whether a probe of a length that arrives is to be sent beside it, and whether one was answered:
    /// so the path is not silent altogether.
    checks: bool,
    is_heard: bool,
}

impl Search {
    /// A search on a channel with a token for what is sent. `headers` are the bytes of IP and UDP: 28,
    /// or 48 with IPv6. `id` is random, so that nobody answers who has not seen the probes. It begins
    /// with the first share that comes: before, there may be nobody to answer.
    pub fn new(token: Token, id: [u8; ID_LEN], headers: u16) -> Self {
        Self {
            token,
            id,
            headers,
            low: LEAST_MTU,
            high: MOST_MTU + 1,
            trying: None,
            found: None,
            again: Duration::ZERO,
            is_silent: true,
        }
    }

    /// The path's MTU, as the last search that was answered has found it; `None` before.
    pub fn mtu(&self) -> Option<u16> {
        self.found
    }

    /// The longest datagram that arrives by [`Self::mtu`], as UDP's payload.
    pub fn room(&self) -> Option<usize> {
        self.found.map(|mtu| usize::from(mtu.saturating_sub(self.headers)))
    }

    /// The next probe, to be sent with "don't fragment". Ask until there is none.
    pub fn poll_transmit(&mut self, now: Duration) -> Option<Vec<u8>> {
        if self.trying.is_none() && !self.is_silent && self.again <= now {
            self.begin(now);
        }
        if let Some(trying) = self.trying
            && (trying.tries, trying.until <= now) == (TRIES, true)
        {
            self.judge(trying, now);
        }
        let trying = self.trying.as_mut()?;
        if std::mem::take(&mut trying.checks) {
            return Some(self.probe(self.low));
        }
        if now < trying.until {
            return None;
        }
        trying.tries += 1;
        trying.until = now.saturating_add(WAIT);
        // Most paths answer the first, and then that is all.
        trying.checks = trying.tries > 1;
        let length = trying.length;
        Some(self.probe(length))
    }

    /// When to call [`Self::poll_transmit`] next.
    pub fn poll_timeout(&self) -> Option<Duration> {
        match self.trying {
            Some(trying) => Some(trying.until),
            None => (!self.is_silent).then_some(self.again),
        }
    }

    /// A datagram of kind 4 came on the channel. Whoever sees the channel may lie: then packets are
    /// lost there that are too long, or shorter than they need be.
    pub fn handle_answer(&mut self, datagram: &[u8], token: Token, now: Duration) {
        let Some(length) = self.parse_answer(datagram, token) else {
            return;
        };
        let length = length.saturating_add(self.headers);
        if length > MOST_MTU {
            return;
        }
        if self.is_silent {
            // Not so silent, but slow.
            self.begin(now);
        }
        let Some(trying) = &mut self.trying else { return };
        trying.is_heard = true;
        if length <= self.low {
            return;
        }
        self.low = length;
        if length >= self.high {
            // That was held for too long, and only late. What is longer may have been, too.
            self.high = MOST_MTU + 1;
        }
        self.narrow(now);
    }

    /// The kernel refused to send a datagram, as it is too long for the device. If it is the last probe,
    /// that needs no other try.
    pub fn handle_refusal(&mut self, datagram: &[u8], now: Duration) {
        let Some(trying) = self.trying else { return };
        let is_probe = datagram.first() == Some(&PROBE);
        if is_probe && datagram.len() == self.payload_len(trying.length) {
            self.high = self.high.min(trying.length);
            self.narrow(now);
        }
    }

    /// A share came on the channel. If its path was silent, it may not be so any more.
    pub fn handle_share(&mut self, now: Duration) {
        self.is_silent &= now < self.again;
    }

    /// Begins with the longest again: paths get longer, too.
    fn begin(&mut self, now: Duration) {
        self.low = LEAST_MTU;
        self.high = MOST_MTU + 1;
        self.is_silent = false;
        self.narrow(now);
    }

    /// A length was tried as often as any, and not answered.
    fn judge(&mut self, trying: Trying, now: Duration) {
        if trying.is_heard {
            self.high = self.high.min(trying.length);
            self.narrow(now);
        } else {
            // What is lost when all is lost says nothing about lengths.
            self.trying = None;
            self.is_silent = true;
            self.again = now.saturating_add(PAUSE);
        }
    }

    /// Goes on with the next length at once, or is done.
    fn narrow(&mut self, now: Duration) {
        self.trying = self.next_length().map(|length| Trying {
            length,
            tries: 0,
            until: now,
            checks: false,
            is_heard: false,
        });
        if self.trying.is_none() {
            self.found = Some(self.low);
            self.again = now.saturating_add(VALIDITY);
        }
    }

    /// The next length to try; `None` if the MTU is found.
    fn next_length(&self) -> Option<u16> {
        if self.low + 1 >= self.high {
            return None;
        }
        // Most paths carry the longest, and then one probe is enough.
        let is_first = self.low == LEAST_MTU && self.high > MOST_MTU;
        Some(if is_first { MOST_MTU } else { self.low.midpoint(self.high) })
    }

    fn probe(&self, length: u16) -> Vec<u8> {
        let mut probe = vec![PROBE];
        probe.extend(self.token.bytes());
        probe.extend(self.id);
        probe.resize(self.payload_len(length), 0);
        probe
    }

    /// The length of a packet as UDP's payload.
    fn payload_len(&self, length: u16) -> usize {
        usize::from(length.saturating_sub(self.headers))
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

    fn search() -> Search {
        let mut search = Search::new(there(), ID, 28);
        search.handle_share(Duration::ZERO);
        search
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
        let probe = search().poll_transmit(Duration::ZERO).unwrap();
        assert_eq!(probe.len(), 1472);
        assert_eq!(probe[..10], [0x30, 1, 2, 3, 9, 8, 7, 6, 0, 0]);
        let answer = answer(&probe, there(), back()).unwrap();
        assert_eq!(answer, [0x40, 4, 5, 6, 9, 8, 7, 6, 5, 192]);
    }

    #[test]
    fn nobody_is_asked_before_a_share_has_come() {
        let mut search = Search::new(there(), ID, 28);
        assert_eq!((search.poll_transmit(WAIT), search.poll_timeout()), (None, None));
        search.handle_share(WAIT);
        assert_eq!(search.poll_timeout(), Some(Duration::ZERO));
        assert!(search.poll_transmit(WAIT).is_some());
    }

    #[test]
    fn a_path_that_carries_the_longest_takes_one_probe() {
        let mut search = search();
        assert_eq!((search.mtu(), search.room()), (None, None));
        let (probes, took) = run(&mut search, Duration::ZERO, |_| true);
        assert_eq!((probes, took), (1, Duration::ZERO));
        assert_eq!((search.mtu(), search.room()), (Some(1500), Some(1472)));
    }

    #[test]
    fn every_mtu_is_found() {
        for mtu in LEAST_MTU..=MOST_MTU {
            let mut search = search();
            let (probes, took) = run(&mut search, Duration::ZERO, |len| len <= mtu.into());
            assert_eq!(search.mtu(), Some(mtu));
            assert!(probes <= 5 * 9 && took <= Duration::from_secs(9), "{mtu}: {probes}, {took:?}");
        }
    }

    #[test]
    fn single_losses_do_not_lower_it() {
        let mut search = search();
        let (mut arrived, mut trying, mut tries) = (LEAST_MTU.into(), 0, 0);
        run(&mut search, Duration::ZERO, |len| {
            if len <= arrived {
                return true;
            }
            tries = if len == trying { tries + 1 } else { 1 };
            trying = len;
            let arrives = tries == 3 && len <= 1400;
            arrived = if arrives { len } else { arrived };
            arrives
        });
        assert_eq!(search.mtu(), Some(1400));
    }

    #[test]
    fn it_is_done_again_after_ten_minutes() {
        let mut search = search();
        run(&mut search, Duration::ZERO, |_| true);
        assert_eq!(search.poll_transmit(VALIDITY.saturating_sub(WAIT)), None);
        assert_eq!(search.poll_timeout(), Some(VALIDITY));
        let (probes, _) = run(&mut search, VALIDITY, |len| len <= 1420);
        assert!(probes > 1);
        assert_eq!(search.mtu(), Some(1420));
    }

    #[test]
    fn a_silent_path_keeps_what_was_found_and_is_searched_when_something_comes() {
        let mut search = search();
        let at = |secs| Duration::from_secs(secs);
        run(&mut search, Duration::ZERO, |_| false);
        assert_eq!((search.mtu(), search.poll_timeout()), (None, None), "nothing is known");
        assert_eq!(search.poll_transmit(at(1000)), None);
        search.handle_share(at(1000));
        run(&mut search, at(1000), |len| len <= 1460);
        assert_eq!(search.mtu(), Some(1460));

        // The uplink is off when it is time again, and back 9 s later.
        let (probes, took) = run(&mut search, at(2000), |_| false);
        assert_eq!((probes, took), (5, 3 * WAIT));
        search.handle_share(at(2009));
        assert_eq!((search.mtu(), search.poll_transmit(at(2009))), (Some(1460), None));
        search.handle_share(at(2011));
        run(&mut search, at(2011), |len| len <= 1440);
        assert_eq!(search.mtu(), Some(1440));
    }

    #[test]
    fn a_path_that_falls_silent_while_it_is_searched_is_not_judged() {
        for answered in 1..20 {
            let mut search = search();
            run(&mut search, Duration::ZERO, |len| len <= 1460);
            let mut probe = 0;
            run(&mut search, 2 * VALIDITY, |len| {
                probe += 1;
                probe <= answered && len <= 1460
            });
            assert!(probe > answered);
            assert_eq!(search.mtu(), Some(1460), "silent after {answered}");
        }
    }

    #[test]
    fn what_the_kernel_refuses_is_not_tried_again() {
        // The second device is narrower than any path is taken to be.
        for (device, found) in [(1420, 1420), (600, LEAST_MTU)] {
            let mut search = search();
            let mut tried = 0;
            while let Some(probe) = search.poll_transmit(Duration::ZERO) {
                tried += 1;
                if probe.len() + 28 > device {
                    search.handle_refusal(&probe, Duration::ZERO);
                } else {
                    let answer = answer(&probe, there(), back()).unwrap();
                    search.handle_answer(&answer, back(), Duration::ZERO);
                }
            }
            assert_eq!(search.mtu(), Some(found));
            assert!(tried <= 9);
        }
    }

    #[test]
    fn only_the_last_probe_is_refused_for_its_length() {
        let mut search = search();
        let probe = search.poll_transmit(Duration::ZERO).unwrap();
        let cookie = [&[0x91][..], &probe[1..]].concat();
        for other in [&cookie[..], &probe[..1000], &[]] {
            search.handle_refusal(other, Duration::ZERO);
            assert_eq!(search.trying.unwrap().length, MOST_MTU);
        }
        search.handle_answer(&answer(&probe, there(), back()).unwrap(), back(), Duration::ZERO);
        assert_eq!(search.mtu(), Some(MOST_MTU));
    }

    #[test]
    fn a_late_answer_counts() {
        // Later than the last try, and than all of them.
        for late in [WAIT, 4 * WAIT] {
            let mut search = search();
            let first = search.poll_transmit(Duration::ZERO).unwrap();
            let mut now = Duration::ZERO;
            while now < late {
                now += WAIT;
                while search.poll_transmit(now).is_some() {}
            }
            search.handle_answer(&answer(&first, there(), back()).unwrap(), back(), now);
            assert_eq!((search.poll_transmit(now), search.mtu()), (None, Some(1500)));
        }
    }

    #[test]
    fn a_length_that_was_given_up_may_still_be_answered() {
        let mut search = search();
        let first = search.poll_transmit(Duration::ZERO).unwrap();
        let short = search.probe(LEAST_MTU);
        search.handle_answer(&answer(&short, there(), back()).unwrap(), back(), Duration::ZERO);
        let mut now = Duration::ZERO;
        for _ in 0..3 {
            now += WAIT;
            while search.poll_transmit(now).is_some() {}
        }
        assert_eq!(search.high, MOST_MTU);
        search.handle_answer(&answer(&first, there(), back()).unwrap(), back(), now);
        assert_eq!((search.poll_transmit(now), search.mtu()), (None, Some(1500)));
    }

    #[test]
    fn strangers_are_not_answered() {
        let probe = search().poll_transmit(Duration::ZERO).unwrap();
        assert_eq!(answer(&probe, back(), there()), None);
        assert_eq!(answer(&probe[..17], there(), back()), None, "no more than was asked for");
        let mut search = search();
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
            answers in prop::collection::vec((any::<u16>(), 0_u64..1000), 0..50),
        ) {
            let mut search = search();
            let mut now = Duration::ZERO;
            for (length, millis) in answers {
                now += Duration::from_millis(millis);
                if let Some(probe) = search.poll_transmit(now) {
                    prop_assert!((1280 - 28..=1500 - 28).contains(&probe.len()));
                }
                let [l0, l1] = length.to_be_bytes();
                search.handle_answer(&[0x40, 4, 5, 6, 9, 8, 7, 6, l0, l1], back(), now);
                prop_assert!(search.mtu().is_none_or(|mtu| (LEAST_MTU..=MOST_MTU).contains(&mtu)));
            }
        }

        #[test]
        fn any_bytes_are_answered_or_not(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = answer(&bytes, there(), back());
            search().handle_answer(&bytes, back(), Duration::ZERO);
            search().handle_refusal(&bytes, Duration::ZERO);
        }
    }
}
