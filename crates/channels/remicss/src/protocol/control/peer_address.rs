//! The peer's address on a channel, and the validation of a new one.
//!
//! Datagrams are sent only to the address of the handshake, until the peer has shown that it is at
//! another one: by a right share of a control symbol from there, with a higher number than any from
//! the old address, and by the answer to a challenge, from there, while the old address does not
//! answer. So an attacker that forwards captured datagrams from its own address receives only
//! challenges, as long as the peer receives what is sent to its address.

use std::fmt::{self, Display, Formatter};
use std::net::SocketAddr;
use std::time::Duration;

/// The maximum number of challenges to an address, and their interval.
pub const MAX_CHALLENGES: usize = 3;
const CHALLENGE_INTERVAL: Duration = Duration::from_millis(300);

/// The minimum timeout of the old address: all challenges are sent by then. It also has at least
/// twice the time that the new address took.
const OLD_ADDRESS_TIMEOUT: Duration = Duration::from_millis(700);

/// The timeout of the new address.
const NEW_ADDRESS_TIMEOUT: Duration = Duration::from_secs(3);

/// The minimum interval of validations, and the time after a failure in which the same address is
/// not validated again.
const VALIDATION_INTERVAL: Duration = Duration::from_secs(1);
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// The minimum interval of reports that an address was rejected.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The addresses to which the peer may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerMobility {
    /// None.
    Fixed,
    /// Other ports of the same IP address, for example when a NAT has dropped its mapping.
    Port,
    /// Any.
    Any,
}

/// The peer's address on a channel.
#[derive(Clone, Debug)]
pub struct PeerAddressTracker {
    current: SocketAddr,
    mobility: PeerMobility,
    /// The highest number of a right control share from there.
    highest: u64,
    validation: Option<AddressValidation>,
    /// When the next validation may start.
    pause_until: Duration,
    failed: Option<(SocketAddr, Duration)>,
    quiet_until: Duration,
}

/// The validation of an address that the peer may have moved to.
#[derive(Clone, Debug)]
struct AddressValidation {
    to: SocketAddr,
    /// The number of the control share from there.
    number: u64,
    began: Duration,
    /// The challenges to the new address and to the old one.
    sent: [AddressChallenges; 2],
    /// When the new address answered.
    answered_at: Option<Duration>,
}

/// The challenges to one address.
#[derive(Clone, Debug)]
struct AddressChallenges {
    ids: Vec<u64>,
    /// When the next one is due.
    next_at: Duration,
}

/// The result of a validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressValidationResult {
    /// The peer has moved to this address.
    Moved(SocketAddr),
    /// The peer has not moved to this address. This is reported once a minute.
    Refused(SocketAddr, AddressValidationFailure),
}

/// Why an address was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressValidationFailure {
    /// It did not answer.
    NoAnswer,
    /// The old address still answers.
    OldAnswers,
}

/// Whether two addresses are the same. IPv4 addresses may be mapped to IPv6.
pub fn is_same_address(one: SocketAddr, other: SocketAddr) -> bool {
    is_same_ip(one, other) && one.port() == other.port()
}

/// Whether two IP addresses are the same. Ports are not compared.
pub fn is_same_ip(one: SocketAddr, other: SocketAddr) -> bool {
    one.ip() == other.ip() || one.ip().to_canonical() == other.ip().to_canonical()
}

impl Display for AddressValidationFailure {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NoAnswer => {
                "which does not answer when asked whether the peer is there: somebody may read this \
                 channel and resend captured datagrams"
            }
            Self::OldAnswers => {
                "but the peer still answers at its previous address: somebody reads this channel \
                 and resends captured datagrams"
            }
        })
    }
}

impl PeerMobility {
    /// Whether a peer at address `current` may be at, or move to, address `other`.
    pub fn allows(self, current: SocketAddr, other: SocketAddr) -> bool {
        match self {
            Self::Fixed => is_same_address(current, other),
            Self::Port => is_same_ip(current, other),
            Self::Any => true,
        }
    }
}

impl PeerAddressTracker {
    /// The address of the handshake.
    pub fn new(current: SocketAddr, mobility: PeerMobility) -> Self {
        Self {
            current,
            mobility,
            highest: 0,
            validation: None,
            pause_until: Duration::ZERO,
            failed: None,
            quiet_until: Duration::ZERO,
        }
    }

    /// The address to send to.
    pub fn current(&self) -> SocketAddr {
        self.current
    }

    /// Whether shares are accepted from an address.
    pub fn allows(&self, from: SocketAddr) -> bool {
        self.mobility.allows(self.current, from)
    }

    /// Whether an address is the current one, or under validation.
    pub fn is_known(&self, from: SocketAddr) -> bool {
        let new = self.validation.as_ref().map(|validation| validation.to);
        [Some(self.current), new].into_iter().flatten().any(|known| is_same_address(known, from))
    }

    /// A right share of control symbol `number` has arrived from an address, on a channel that is
    /// not in quarantine.
    pub fn handle_share(&mut self, from: SocketAddr, number: u64, now: Duration) {
        if is_same_address(self.current, from) {
            self.highest = self.highest.max(number);
            // It has sent from the old address after it sent from the new one.
            self.validation.take_if(|validation| validation.number < number);
            return;
        }
        let has_failed =
            self.failed.is_some_and(|(failed, until)| is_same_address(failed, from) && now < until);
        let is_wanted = self.validation.is_none() && self.allows(from) && !has_failed;
        if is_wanted && number > self.highest && now >= self.pause_until {
            self.pause_until = now.saturating_add(VALIDATION_INTERVAL);
            let sent = [0, 1].map(|_| AddressChallenges { ids: Vec::new(), next_at: now });
            let (to, began, answered_at) = (from, now, None);
            self.validation = Some(AddressValidation { to, number, began, sent, answered_at });
        }
    }

    /// Cancels a validation, because the channel is in quarantine.
    pub fn cancel_validation(&mut self) {
        self.validation = None;
    }

    /// The answer to the challenge with identifier `id` has arrived from an address.
    pub fn handle_answer(
        &mut self,
        from: SocketAddr,
        id: u64,
        now: Duration,
    ) -> Option<AddressValidationResult> {
        let validation = self.validation.as_mut()?;
        let [new, old] = &validation.sent;
        if is_same_address(self.current, from) && old.ids.contains(&id) {
            return self.refuse(AddressValidationFailure::OldAnswers, now);
        }
        if is_same_address(validation.to, from) && new.ids.contains(&id) {
            validation.answered_at.get_or_insert(now);
        }
        self.handle_timeout(now)
    }

    /// Ends a validation that has timed out.
    pub fn handle_timeout(&mut self, now: Duration) -> Option<AddressValidationResult> {
        if now < self.validation.as_ref()?.decided_at() {
            return None;
        }
        let Some(validation) = self.validation.take_if(|it| it.answered_at.is_some()) else {
            return self.refuse(AddressValidationFailure::NoAnswer, now);
        };
        (self.current, self.highest) = (validation.to, validation.number);
        Some(AddressValidationResult::Moved(validation.to))
    }

    /// When to call [`Self::handle_timeout`] and [`Self::poll_challenge`] next.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let validation = self.validation.as_ref()?;
        let challenge = validation.next_challenge().map(|(_, at)| at);
        Some(challenge.unwrap_or(Duration::MAX).min(validation.decided_at()))
    }

    /// The next challenge to send now: the address and the identifier, which is drawn from
    /// `random`. Call it until it returns `None`.
    pub fn poll_challenge(
        &mut self,
        now: Duration,
        random: impl FnOnce() -> Option<u64>,
    ) -> Option<(SocketAddr, u64)> {
        let validation = self.validation.as_mut()?;
        let (which, at) = validation.next_challenge()?;
        if now < at {
            return None;
        }
        // Even if the random source fails, because otherwise it would stay due.
        let sent = &mut validation.sent[which];
        sent.next_at = now.saturating_add(CHALLENGE_INTERVAL);
        let id = random()?;
        sent.ids.push(id);
        Some(([validation.to, self.current][which], id))
    }

    fn refuse(
        &mut self,
        reason: AddressValidationFailure,
        now: Duration,
    ) -> Option<AddressValidationResult> {
        let to = self.validation.take()?.to;
        self.failed = Some((to, now.saturating_add(RETRY_INTERVAL)));
        let is_reported = now >= self.quiet_until;
        if is_reported {
            self.quiet_until = now.saturating_add(LOG_INTERVAL);
        }
        is_reported.then_some(AddressValidationResult::Refused(to, reason))
    }
}

impl AddressValidation {
    /// The address (0 the new one, 1 the old one) to challenge next, and when.
    fn next_challenge(&self) -> Option<(usize, Duration)> {
        let due = |which: usize| {
            let AddressChallenges { ids, next_at } = &self.sent[which];
            let is_left = ids.len() < MAX_CHALLENGES && (which == 1 || self.answered_at.is_none());
            is_left.then_some((*next_at, which))
        };
        // The old one first: its answer must be in time.
        [1, 0].into_iter().filter_map(due).min_by_key(|(at, _)| *at).map(|(at, which)| (which, at))
    }

    /// When it ends, if nothing else happens.
    fn decided_at(&self) -> Duration {
        let after = self.answered_at.map_or(NEW_ADDRESS_TIMEOUT, |at| {
            let took = at.saturating_sub(self.began);
            OLD_ADDRESS_TIMEOUT.max(took.saturating_mul(2)).min(NEW_ADDRESS_TIMEOUT)
        });
        self.began.saturating_add(after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn old() -> SocketAddr {
        SocketAddr::from(([198, 51, 100, 7], 6521))
    }

    fn other(port: u16) -> SocketAddr {
        SocketAddr::from(([203, 0, 113, 9], port))
    }

    fn peer(mobility: PeerMobility) -> PeerAddressTracker {
        PeerAddressTracker::new(old(), mobility)
    }

    /// What is sent at a time: where to, and with which identifier.
    fn challenges(
        peer: &mut PeerAddressTracker,
        now: Duration,
        ids: &mut u64,
    ) -> Vec<(SocketAddr, u64)> {
        let mut next = || {
            *ids += 1;
            Some(*ids)
        };
        std::iter::from_fn(|| peer.poll_challenge(now, &mut next)).collect()
    }

    /// Runs until something is decided. The addresses answer, or not, after some time.
    fn run(
        peer: &mut PeerAddressTracker,
        began: Duration,
        new_answers: Option<Duration>,
        old_answers: Option<Duration>,
    ) -> (Option<AddressValidationResult>, Duration, [usize; 2]) {
        let (mut ids, mut sent, mut answers) = (0, [0; 2], Vec::new());
        let mut now = began;
        for _ in 0..100 {
            for (to, id) in challenges(peer, now, &mut ids) {
                let is_old = to == old();
                sent[usize::from(is_old)] += 1;
                let after = if is_old { old_answers } else { new_answers };
                answers.extend(after.map(|after| (now + after, to, id)));
            }
            answers.sort_unstable();
            let answer = answers.first().copied().filter(|(at, ..)| *at <= now);
            let decided = match answer {
                Some((_, from, id)) => {
                    answers.remove(0);
                    peer.handle_answer(from, id, now)
                }
                None => peer.handle_timeout(now),
            };
            if decided.is_some() {
                return (decided, now.saturating_sub(began), sent);
            }
            let Some(timeout) = peer.poll_timeout() else {
                return (None, now.saturating_sub(began), sent);
            };
            now = answers.iter().map(|(at, ..)| *at).chain([timeout]).min().unwrap().max(now);
        }
        panic!("there is no end");
    }

    #[test]
    fn a_peer_that_has_moved_is_followed() {
        for (mobility, to) in [
            (PeerMobility::Any, other(1)),
            (PeerMobility::Any, SocketAddr::new(old().ip(), 9)),
            (PeerMobility::Port, SocketAddr::new(old().ip(), 9)),
        ] {
            let mut peer = peer(mobility);
            peer.handle_share(old(), 10, MS);
            peer.handle_share(to, 11, 2 * MS);
            assert_eq!(peer.current(), old(), "not before it is validated");
            let (decided, took, [new, _]) = run(&mut peer, 2 * MS, Some(30 * MS), None);
            assert_eq!(
                (decided, took),
                (Some(AddressValidationResult::Moved(to)), OLD_ADDRESS_TIMEOUT)
            );
            assert_eq!((peer.current(), new), (to, 1), "one that has answered is asked no more");
            assert_eq!(peer.poll_timeout(), None);
        }
    }

    #[test]
    fn mobility_limits_new_addresses() {
        let cases = [
            (PeerMobility::Fixed, SocketAddr::new(old().ip(), 9)),
            (PeerMobility::Fixed, other(1)),
            (PeerMobility::Port, other(6521)),
        ];
        for (mobility, to) in cases {
            let mut peer = peer(mobility);
            assert!(!peer.allows(to) && peer.allows(old()));
            peer.handle_share(to, 11, MS);
            assert_eq!((peer.poll_timeout(), peer.is_known(to)), (None, false));
        }
    }

    #[test]
    fn an_address_that_does_not_answer_gets_three_challenges() {
        let mut peer = peer(PeerMobility::Any);
        peer.handle_share(other(1), 11, MS);
        let (decided, took, sent) = run(&mut peer, MS, None, None);
        assert_eq!(
            decided,
            Some(AddressValidationResult::Refused(other(1), AddressValidationFailure::NoAnswer))
        );
        assert_eq!((took, sent, peer.current()), (NEW_ADDRESS_TIMEOUT, [3, 3], old()));
        // The same is not tried again at once, another is.
        let now = MS + NEW_ADDRESS_TIMEOUT;
        peer.handle_share(other(1), 12, now);
        assert_eq!(peer.poll_timeout(), None);
        peer.handle_share(other(2), 13, now);
        assert_eq!(peer.poll_timeout(), Some(now));
    }

    #[test]
    fn a_forwarding_attacker_does_not_move_the_address() {
        // It answers first, as it passes the challenges on, too; and the peer answers where it is.
        let mut peer = peer(PeerMobility::Any);
        peer.handle_share(other(1), 11, MS);
        let (decided, took, _) = run(&mut peer, MS, Some(5 * MS), Some(200 * MS));
        assert_eq!(
            decided,
            Some(AddressValidationResult::Refused(other(1), AddressValidationFailure::OldAnswers))
        );
        assert_eq!((took, peer.current()), (200 * MS, old()));
    }

    #[test]
    fn a_slow_old_path_has_twice_the_time_of_the_new_one() {
        let mut peer = peer(PeerMobility::Any);
        peer.handle_share(other(1), 11, MS);
        let (decided, ..) = run(&mut peer, MS, Some(600 * MS), Some(1100 * MS));
        assert_eq!(
            decided,
            Some(AddressValidationResult::Refused(other(1), AddressValidationFailure::OldAnswers))
        );
    }

    #[test]
    fn later_shares_from_the_old_address_cancel_a_validation() {
        let mut peer = peer(PeerMobility::Any);
        peer.handle_share(old(), 10, MS);
        peer.handle_share(other(1), 9, MS);
        assert_eq!(peer.poll_timeout(), None);
        peer.handle_share(other(1), 11, MS);
        peer.handle_share(old(), 8, MS);
        assert!(peer.poll_timeout().is_some(), "that was late");
        peer.handle_share(old(), 12, MS);
        assert_eq!((peer.poll_timeout(), peer.current()), (None, old()));
    }

    #[test]
    fn a_channel_in_quarantine_cancels_the_validation() {
        let mut peer = peer(PeerMobility::Any);
        peer.handle_share(other(1), 11, MS);
        peer.cancel_validation();
        assert_eq!((peer.poll_timeout(), peer.is_known(other(1))), (None, false));
    }

    #[test]
    fn answers_count_only_from_the_challenged_address() {
        let mut peer = peer(PeerMobility::Any);
        peer.handle_share(other(1), 11, MS);
        let mut ids = 0;
        let sent = challenges(&mut peer, MS, &mut ids);
        assert_eq!(sent, [(old(), 1), (other(1), 2)]);
        for (from, id) in [(other(1), 1), (old(), 2), (other(2), 2), (other(1), 3), (old(), 0)] {
            assert_eq!(peer.handle_answer(from, id, MS), None);
        }
        let (decided, ..) = run(&mut peer, MS, None, None);
        assert_eq!(
            decided,
            Some(AddressValidationResult::Refused(other(1), AddressValidationFailure::NoAnswer))
        );
    }

    /// An attacker that forwards shares from many addresses causes at most one challenge sent each
    /// 300 ms at most to any, three to each, and does not fill the log.
    #[test]
    fn challenges_and_reports_are_limited() {
        let mut peer = peer(PeerMobility::Any);
        let (mut ids, mut reported, mut last) = (0, 0, Vec::<(SocketAddr, Duration)>::new());
        for step in 0..6000_u32 {
            let now = 10 * MS * step;
            peer.handle_share(other(1 + u16::try_from(step % 1000).unwrap()), step.into(), now);
            for (to, _) in challenges(&mut peer, now, &mut ids) {
                let before = last.iter().rev().find(|(address, _)| *address == to);
                assert!(before.is_none_or(|(_, at)| now >= *at + CHALLENGE_INTERVAL));
                last.push((to, now));
            }
            reported += u32::from(peer.handle_timeout(now).is_some());
        }
        assert!((100..=6 * 21).contains(&last.len()), "{}", last.len());
        assert_eq!((reported, peer.current()), (1, old()));
    }
}
