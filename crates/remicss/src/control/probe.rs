//! The search for a path's MTU: with datagrams made for it, as in RFC 8899, and never by the loss of
//! others.
//!
//! The bytes are in `docs/protocols/remicss.md`, section "Path MTU discovery". One end searches for
//! what it sends: it asks with [`Search::poll_transmit`], the other end answers, and [`Search::handle_answer`]
//! takes that. Lengths of packets are those of IP packets, headers included.
//!
//! Nobody is asked what the route carries: what the kernel knows of it, anyone may have told it who can
//! forge an ICMP message. What the device does not send, the kernel refuses, and the search goes on at
//! once.

use std::time::Duration;

use crate::wire::path::{PathDatagram, PathKind};

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

/// The search for the MTU of one channel's path in one direction.
#[derive(Clone, Debug)]
pub struct Search {
    headers: u16,
    /// The identifiers of the next probe, and of the first one of the search that runs or ran last.
    next_id: u64,
    first_id: u64,
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
    /// A search. `headers` are the bytes of IP and UDP: 28, or 48 with IPv6. It begins with the first
    /// control share that comes: before, there may be nobody to answer.
    pub fn new(headers: u16) -> Self {
        Self {
            headers,
            next_id: 0,
            first_id: 0,
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
    pub fn poll_transmit(&mut self, now: Duration) -> Option<PathDatagram> {
        if self.trying.is_none() && !self.is_silent && self.again <= now {
            self.first_id = self.next_id;
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

    /// An answer came. One to a probe of an earlier search says nothing about the path of now. Whoever
    /// is on the channel may still have kept it back, or let probes through and nothing else: then
    /// packets are lost there that are too long, or shorter than they need be.
    pub fn handle_answer(&mut self, answer: PathDatagram, now: Duration) {
        let is_ours = answer.kind == PathKind::ProbeAnswer
            && (self.first_id..self.next_id).contains(&answer.id);
        if !is_ours {
            return;
        }
        let length = answer.length;
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

    /// The kernel refused to send a probe of a length, as UDP's payload, as it is too long for the
    /// device. If it is the last probe, that needs no other try.
    pub fn handle_refusal(&mut self, length: usize, now: Duration) {
        let Some(trying) = self.trying else { return };
        if length == self.payload_len(trying.length) {
            self.high = self.high.min(trying.length);
            self.narrow(now);
        }
    }

    /// A right control share came on the channel. If its path was silent, it may not be so any more.
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

    fn probe(&mut self, length: u16) -> PathDatagram {
        let id = self.next_id;
        self.next_id += 1;
        PathDatagram { kind: PathKind::Probe, id, length: length.saturating_sub(self.headers) }
    }

    /// The length of a packet as UDP's payload.
    fn payload_len(&self, length: u16) -> usize {
        usize::from(length.saturating_sub(self.headers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn search() -> Search {
        let mut search = Search::new(28);
        search.handle_share(Duration::ZERO);
        search
    }

    fn answer(probe: PathDatagram) -> PathDatagram {
        probe.answer().unwrap()
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
                if carries(usize::from(probe.length) + 28) {
                    search.handle_answer(answer(probe), now);
                }
            }
            if search.trying.is_none() {
                return (probes, now.saturating_sub(began));
            }
            now = search.poll_timeout().unwrap();
        }
    }

    #[test]
    fn nobody_is_asked_before_a_share_has_come() {
        let mut search = Search::new(28);
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
                let length = usize::from(probe.length);
                if length + 28 > device {
                    search.handle_refusal(length, Duration::ZERO);
                } else {
                    search.handle_answer(answer(probe), Duration::ZERO);
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
        for other in [0, 1000, 1471, 1473] {
            search.handle_refusal(other, Duration::ZERO);
            assert_eq!(search.trying.unwrap().length, MOST_MTU);
        }
        search.handle_answer(answer(probe), Duration::ZERO);
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
            search.handle_answer(answer(first), now);
            assert_eq!((search.poll_transmit(now), search.mtu()), (None, Some(1500)));
        }
    }

    #[test]
    fn a_length_that_was_given_up_may_still_be_answered() {
        let mut search = search();
        let first = search.poll_transmit(Duration::ZERO).unwrap();
        let short = search.probe(LEAST_MTU);
        search.handle_answer(answer(short), Duration::ZERO);
        let mut now = Duration::ZERO;
        for _ in 0..3 {
            now += WAIT;
            while search.poll_transmit(now).is_some() {}
        }
        assert_eq!(search.high, MOST_MTU);
        search.handle_answer(answer(first), now);
        assert_eq!((search.poll_transmit(now), search.mtu()), (None, Some(1500)));
    }

    #[test]
    fn only_answers_to_probes_of_this_search_count() {
        let mut search = search();
        let early = search.poll_transmit(Duration::ZERO).unwrap();
        for other in [
            PathDatagram { id: early.id + 1, ..answer(early) },
            PathDatagram { kind: PathKind::ChallengeAnswer, ..answer(early) },
            early,
        ] {
            search.handle_answer(other, Duration::ZERO);
            assert_eq!(search.mtu(), None);
        }
        search.handle_answer(answer(early), Duration::ZERO);
        assert_eq!(search.mtu(), Some(1500));
        // The path has become narrower, and somebody sends the old answer again.
        let (probes, _) = run(&mut search, VALIDITY, |len| len <= 1420);
        assert!(probes > 1);
        search.handle_answer(answer(early), VALIDITY);
        assert_eq!(search.mtu(), Some(1420));
        let mut now = 2 * VALIDITY;
        while search.poll_transmit(now).is_some() {
            search.handle_answer(answer(early), now);
            now += WAIT;
        }
        assert_eq!(search.mtu(), Some(1420));
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
                    prop_assert!((1280 - 28..=1500 - 28).contains(&probe.length));
                }
                let id = search.first_id;
                let kind = PathKind::ProbeAnswer;
                search.handle_answer(PathDatagram { kind, id, length }, now);
                prop_assert!(search.mtu().is_none_or(|mtu| (LEAST_MTU..=MOST_MTU).contains(&mtu)));
            }
        }
    }
}
