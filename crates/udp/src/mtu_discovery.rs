//! Path MTU discovery with probes (RFC 8899). The loss of other datagrams does not count.
//!
//! Each end searches for the direction in which it sends: it sends the probes of
//! [`PathMtuDiscovery::poll_transmit`], the other end answers them, and
//! [`PathMtuDiscovery::handle_answer`] takes the answers. Lengths of packets are those of IP
//! packets, headers included.
//!
//! The kernel's path MTU is not used: anyone who can forge an ICMP message can change it. If a
//! probe is too long for the device, the kernel refuses it, and the search continues at once.

use std::time::Duration;

/// The MTU that every path is assumed to have: the minimum of IPv6.
pub const MIN_MTU: u16 = 1280;

/// The MTU that is tried first, and assumed until it is measured. Nothing longer is sent.
pub const MAX_MTU: u16 = 1500;

/// The timeout of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_millis(300);

/// The number of probes of a length after which it is considered too long.
const MAX_PROBES: u32 = 3;

/// The time after which the search is repeated.
const RAISE_INTERVAL: Duration = Duration::from_secs(600);

/// The time after which a search that the path did not answer may be repeated.
const SILENT_RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// A probe, or the answer to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The identifier, which an answer copies.
    pub id: u64,
    /// The length of the probe as UDP payload, in bytes.
    pub length: u16,
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
    probed: Option<ProbedLength>,
    /// The result of the last search that was answered.
    mtu: Option<u16>,
    /// When to search again.
    next_start: Duration,
    /// Whether the last search was not answered, or none was started. Then no search starts before
    /// there is activity on the path.
    is_silent: bool,
}

#[derive(Clone, Copy, Debug)]
struct ProbedLength {
    length: u16,
    /// The number of probes that were sent.
    probes_sent: u32,
    /// When the last one times out.
    until: Duration,
    /// Whether a probe of a length that arrives is to be sent, too, and whether any probe was
    /// answered, so the path is not silent.
    checks: bool,
    is_heard: bool,
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
            next_start: Duration::ZERO,
            is_silent: true,
        }
    }

    /// The path's MTU, by the last search that was answered; `None` before.
    pub fn mtu(&self) -> Option<u16> {
        self.mtu
    }

    /// The maximum length of a datagram by [`Self::mtu`], as UDP payload.
    pub fn max_datagram_len(&self) -> Option<usize> {
        self.mtu.map(|mtu| usize::from(mtu.saturating_sub(self.headers)))
    }

    /// The next probe, to be sent with "don't fragment". Call it until it returns `None`.
    pub fn poll_transmit(&mut self, now: Duration) -> Option<Probe> {
        if self.probed.is_none() && !self.is_silent && self.next_start <= now {
            self.first_id = self.next_id;
            self.begin(now);
        }
        if let Some(probed) = self.probed
            && (probed.probes_sent, probed.until <= now) == (MAX_PROBES, true)
        {
            self.handle_unanswered(probed, now);
        }
        let probed = self.probed.as_mut()?;
        if std::mem::take(&mut probed.checks) {
            return Some(self.probe(self.low));
        }
        if now < probed.until {
            return None;
        }
        probed.probes_sent += 1;
        probed.until = now.saturating_add(PROBE_TIMEOUT);
        // Most paths answer the first probe, and then no other is needed.
        probed.checks = probed.probes_sent > 1;
        let length = probed.length;
        Some(self.probe(length))
    }

    /// When to call [`Self::poll_transmit`] next.
    pub fn poll_timeout(&self) -> Option<Duration> {
        match self.probed {
            Some(probed) => Some(probed.until),
            None => (!self.is_silent).then_some(self.next_start),
        }
    }

    /// Handles an answer. An answer to a probe of an earlier search is ignored. An attacker on the
    /// path may still delay answers, or let only probes pass: then packets are lost there, or
    /// shorter than necessary.
    pub fn handle_answer(&mut self, answer: Probe, now: Duration) {
        if !(self.first_id..self.next_id).contains(&answer.id) {
            return;
        }
        let length = answer.length.saturating_add(self.headers);
        if length > MAX_MTU {
            return;
        }
        if self.is_silent {
            // The path is not silent, but slow.
            self.begin(now);
        }
        let Some(probed) = &mut self.probed else { return };
        probed.is_heard = true;
        if length <= self.low {
            return;
        }
        self.low = length;
        if length >= self.high {
            // This length was considered too long, but its answer was only late. The same may hold
            // for longer ones.
            self.high = MAX_MTU + 1;
        }
        self.narrow(now);
    }

    /// The kernel refused to send a probe of this length, as UDP payload, because it is too long
    /// for the device. If it is the current length, no other probe is needed.
    pub fn handle_refusal(&mut self, length: usize, now: Duration) {
        let Some(probed) = self.probed else { return };
        if length == self.payload_len(probed.length) {
            self.high = self.high.min(probed.length);
            self.narrow(now);
        }
    }

    /// An authentic datagram of the peer has arrived over the path: a silent path may work again.
    pub fn handle_activity(&mut self, now: Duration) {
        self.is_silent &= now < self.next_start;
    }

    /// Starts with the longest again, since a path's MTU may also increase.
    fn begin(&mut self, now: Duration) {
        self.low = MIN_MTU;
        self.high = MAX_MTU + 1;
        self.is_silent = false;
        self.narrow(now);
    }

    /// The current length was not answered after all its probes.
    fn handle_unanswered(&mut self, probed: ProbedLength, now: Duration) {
        if probed.is_heard {
            self.high = self.high.min(probed.length);
            self.narrow(now);
        } else {
            // If all probes are lost, this does not show that the length is too long.
            self.probed = None;
            self.is_silent = true;
            self.next_start = now.saturating_add(SILENT_RETRY_INTERVAL);
        }
    }

    /// Continues with the next length, or ends the search.
    fn narrow(&mut self, now: Duration) {
        self.probed = self.next_length().map(|length| ProbedLength {
            length,
            probes_sent: 0,
            until: now,
            checks: false,
            is_heard: false,
        });
        if self.probed.is_none() {
            self.mtu = Some(self.low);
            self.next_start = now.saturating_add(RAISE_INTERVAL);
        }
    }

    /// The next length to try; `None` if the MTU is found.
    fn next_length(&self) -> Option<u16> {
        if self.low + 1 >= self.high {
            return None;
        }
        // Most paths have the maximum MTU, and then one probe is enough.
        let is_first = self.low == MIN_MTU && self.high > MAX_MTU;
        Some(if is_first { MAX_MTU } else { self.low.midpoint(self.high) })
    }

    fn probe(&mut self, length: u16) -> Probe {
        let id = self.next_id;
        self.next_id += 1;
        Probe { id, length: length.saturating_sub(self.headers) }
    }

    /// The length of a packet as UDP payload.
    fn payload_len(&self, length: u16) -> usize {
        usize::from(length.saturating_sub(self.headers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn discovery() -> PathMtuDiscovery {
        let mut discovery = PathMtuDiscovery::new(28);
        discovery.handle_activity(Duration::ZERO);
        discovery
    }

    /// Runs a search over a path. `carries` says which probe arrives. Returns the number of probes
    /// and the time.
    fn run(
        discovery: &mut PathMtuDiscovery,
        began: Duration,
        mut carries: impl FnMut(usize) -> bool,
    ) -> (u32, Duration) {
        let (mut probes, mut now) = (0, began);
        loop {
            while let Some(probe) = discovery.poll_transmit(now) {
                probes += 1;
                if carries(usize::from(probe.length) + 28) {
                    discovery.handle_answer(probe, now);
                }
            }
            if discovery.probed.is_none() {
                return (probes, now.saturating_sub(began));
            }
            now = discovery.poll_timeout().unwrap();
        }
    }

    #[test]
    fn no_probe_is_sent_before_there_is_activity() {
        let mut discovery = PathMtuDiscovery::new(28);
        assert_eq!(
            (discovery.poll_transmit(PROBE_TIMEOUT), discovery.poll_timeout()),
            (None, None)
        );
        discovery.handle_activity(PROBE_TIMEOUT);
        assert_eq!(discovery.poll_timeout(), Some(Duration::ZERO));
        assert!(discovery.poll_transmit(PROBE_TIMEOUT).is_some());
    }

    #[test]
    fn a_path_that_carries_the_longest_takes_one_probe() {
        let mut discovery = discovery();
        assert_eq!((discovery.mtu(), discovery.max_datagram_len()), (None, None));
        let (probes, took) = run(&mut discovery, Duration::ZERO, |_| true);
        assert_eq!((probes, took), (1, Duration::ZERO));
        assert_eq!((discovery.mtu(), discovery.max_datagram_len()), (Some(1500), Some(1472)));
    }

    #[test]
    fn every_mtu_is_found() {
        for mtu in MIN_MTU..=MAX_MTU {
            let mut discovery = discovery();
            let (probes, took) = run(&mut discovery, Duration::ZERO, |len| len <= mtu.into());
            assert_eq!(discovery.mtu(), Some(mtu));
            assert!(probes <= 5 * 9 && took <= Duration::from_secs(9), "{mtu}: {probes}, {took:?}");
        }
    }

    #[test]
    fn single_losses_do_not_lower_the_mtu() {
        let mut discovery = discovery();
        let (mut arrived, mut probed, mut probes_sent) = (MIN_MTU.into(), 0, 0);
        run(&mut discovery, Duration::ZERO, |len| {
            if len <= arrived {
                return true;
            }
            probes_sent = if len == probed { probes_sent + 1 } else { 1 };
            probed = len;
            let arrives = probes_sent == 3 && len <= 1400;
            arrived = if arrives { len } else { arrived };
            arrives
        });
        assert_eq!(discovery.mtu(), Some(1400));
    }

    #[test]
    fn the_search_is_repeated_after_ten_minutes() {
        let mut discovery = discovery();
        run(&mut discovery, Duration::ZERO, |_| true);
        assert_eq!(discovery.poll_transmit(RAISE_INTERVAL.saturating_sub(PROBE_TIMEOUT)), None);
        assert_eq!(discovery.poll_timeout(), Some(RAISE_INTERVAL));
        let (probes, _) = run(&mut discovery, RAISE_INTERVAL, |len| len <= 1420);
        assert!(probes > 1);
        assert_eq!(discovery.mtu(), Some(1420));
    }

    #[test]
    fn a_silent_path_keeps_what_was_found_and_is_searched_when_something_comes() {
        let mut discovery = discovery();
        let at = |secs| Duration::from_secs(secs);
        run(&mut discovery, Duration::ZERO, |_| false);
        assert_eq!((discovery.mtu(), discovery.poll_timeout()), (None, None), "nothing is known");
        assert_eq!(discovery.poll_transmit(at(1000)), None);
        discovery.handle_activity(at(1000));
        run(&mut discovery, at(1000), |len| len <= 1460);
        assert_eq!(discovery.mtu(), Some(1460));

        // The uplink is off when it is time again, and back 9 s later.
        let (probes, took) = run(&mut discovery, at(2000), |_| false);
        assert_eq!((probes, took), (5, 3 * PROBE_TIMEOUT));
        discovery.handle_activity(at(2009));
        assert_eq!((discovery.mtu(), discovery.poll_transmit(at(2009))), (Some(1460), None));
        discovery.handle_activity(at(2011));
        run(&mut discovery, at(2011), |len| len <= 1440);
        assert_eq!(discovery.mtu(), Some(1440));
    }

    #[test]
    fn a_path_that_falls_silent_during_a_search_keeps_its_mtu() {
        for answered in 1..20 {
            let mut discovery = discovery();
            run(&mut discovery, Duration::ZERO, |len| len <= 1460);
            let mut probe = 0;
            run(&mut discovery, 2 * RAISE_INTERVAL, |len| {
                probe += 1;
                probe <= answered && len <= 1460
            });
            assert!(probe > answered);
            assert_eq!(discovery.mtu(), Some(1460), "silent after {answered}");
        }
    }

    #[test]
    fn what_the_kernel_refuses_is_not_tried_again() {
        // The second device has a smaller MTU than any path is assumed to have.
        for (device, mtu) in [(1420, 1420), (600, MIN_MTU)] {
            let mut discovery = discovery();
            let mut tried = 0;
            while let Some(probe) = discovery.poll_transmit(Duration::ZERO) {
                tried += 1;
                let length = usize::from(probe.length);
                if length + 28 > device {
                    discovery.handle_refusal(length, Duration::ZERO);
                } else {
                    discovery.handle_answer(probe, Duration::ZERO);
                }
            }
            assert_eq!(discovery.mtu(), Some(mtu));
            assert!(tried <= 9);
        }
    }

    #[test]
    fn only_a_refusal_of_the_current_length_counts() {
        let mut discovery = discovery();
        let probe = discovery.poll_transmit(Duration::ZERO).unwrap();
        for other in [0, 1000, 1471, 1473] {
            discovery.handle_refusal(other, Duration::ZERO);
            assert_eq!(discovery.probed.unwrap().length, MAX_MTU);
        }
        discovery.handle_answer(probe, Duration::ZERO);
        assert_eq!(discovery.mtu(), Some(MAX_MTU));
    }

    #[test]
    fn a_late_answer_counts() {
        // Later than the last try, and than all of them.
        for late in [PROBE_TIMEOUT, 4 * PROBE_TIMEOUT] {
            let mut discovery = discovery();
            let first = discovery.poll_transmit(Duration::ZERO).unwrap();
            let mut now = Duration::ZERO;
            while now < late {
                now += PROBE_TIMEOUT;
                while discovery.poll_transmit(now).is_some() {}
            }
            discovery.handle_answer(first, now);
            assert_eq!((discovery.poll_transmit(now), discovery.mtu()), (None, Some(1500)));
        }
    }

    #[test]
    fn a_late_answer_to_a_rejected_length_counts() {
        let mut discovery = discovery();
        let first = discovery.poll_transmit(Duration::ZERO).unwrap();
        let short = discovery.probe(MIN_MTU);
        discovery.handle_answer(short, Duration::ZERO);
        let mut now = Duration::ZERO;
        for _ in 0..3 {
            now += PROBE_TIMEOUT;
            while discovery.poll_transmit(now).is_some() {}
        }
        assert_eq!(discovery.high, MAX_MTU);
        discovery.handle_answer(first, now);
        assert_eq!((discovery.poll_transmit(now), discovery.mtu()), (None, Some(1500)));
    }

    #[test]
    fn only_answers_to_probes_of_this_search_count() {
        let mut discovery = discovery();
        let early = discovery.poll_transmit(Duration::ZERO).unwrap();
        let other = Probe { id: early.id + 1, ..early };
        discovery.handle_answer(other, Duration::ZERO);
        assert_eq!(discovery.mtu(), None);
        discovery.handle_answer(early, Duration::ZERO);
        assert_eq!(discovery.mtu(), Some(1500));
        // The path's MTU has decreased, and somebody replays the old answer.
        let (probes, _) = run(&mut discovery, RAISE_INTERVAL, |len| len <= 1420);
        assert!(probes > 1);
        discovery.handle_answer(early, RAISE_INTERVAL);
        assert_eq!(discovery.mtu(), Some(1420));
        let mut now = 2 * RAISE_INTERVAL;
        while discovery.poll_transmit(now).is_some() {
            discovery.handle_answer(early, now);
            now += PROBE_TIMEOUT;
        }
        assert_eq!(discovery.mtu(), Some(1420));
    }

    proptest! {
        #[test]
        fn no_answer_leads_outside(
            answers in prop::collection::vec((any::<u16>(), 0_u64..1000), 0..50),
        ) {
            let mut discovery = discovery();
            let mut now = Duration::ZERO;
            for (length, millis) in answers {
                now += Duration::from_millis(millis);
                if let Some(probe) = discovery.poll_transmit(now) {
                    prop_assert!((1280 - 28..=1500 - 28).contains(&probe.length));
                }
                let id = discovery.first_id;
                discovery.handle_answer(Probe { id, length }, now);
                prop_assert!(discovery.mtu().is_none_or(|mtu| (MIN_MTU..=MAX_MTU).contains(&mtu)));
            }
        }
    }
}
