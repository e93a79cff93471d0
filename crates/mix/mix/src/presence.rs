//! When a member connects to the proxy, and when it leaves. The proxy sees both, so they depend on
//! time, connections and rounds alone: what was sent, delivered or received has no way in here.

use std::time::{Duration, Instant};

/// The first wait before connecting again.
const MIN_WAIT: Duration = Duration::from_millis(250);
/// The longest.
const MAX_WAIT: Duration = Duration::from_secs(15);
/// After a connection of this time the next wait is the first one again.
const STABLE: Duration = Duration::from_secs(5);

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PresenceAction {
    /// Connect; then [`Presence::handle_opened`] or [`Presence::handle_closed`] is called.
    Connect,
    /// Leave, for good.
    Leave,
}

#[derive(Clone, Copy, Debug)]
enum PresenceConnection {
    /// None until then.
    Waiting(Instant),
    Connecting,
    Open {
        since: Instant,
    },
}

/// A member's presence at the proxy.
#[derive(Debug)]
pub(crate) struct Presence {
    connection: PresenceConnection,
    wait: Duration,
    /// The rounds until it leaves.
    rounds_until_leave: Option<u64>,
}

impl Presence {
    /// One that connects at once.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            connection: PresenceConnection::Waiting(now),
            wait: MIN_WAIT,
            rounds_until_leave: None,
        }
    }

    /// What is to be done now, if it is something else than before.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<PresenceAction> {
        match self.connection {
            _ if self.rounds_until_leave == Some(0) => Some(PresenceAction::Leave),
            PresenceConnection::Waiting(until) if until <= now => {
                self.connection = PresenceConnection::Connecting;
                Some(PresenceAction::Connect)
            }
            _ => None,
        }
    }

    /// When [`Presence::poll`] is to be called next.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self.connection {
            PresenceConnection::Waiting(until) => Some(until),
            _ => None,
        }
    }

    /// The connection is there.
    pub(crate) fn handle_opened(&mut self, now: Instant) {
        self.connection = PresenceConnection::Open { since: now };
    }

    /// The connection has ended, or there is none. Returns after which time the next attempt is.
    /// `random` is uniform: so the clients of a proxy that was restarted do not come all at once.
    pub(crate) fn handle_closed(&mut self, now: Instant, random: u32) -> Duration {
        if let PresenceConnection::Open { since } = self.connection
            && now.saturating_duration_since(since) >= STABLE
        {
            self.wait = MIN_WAIT;
        }
        let again_in = self.wait.mul_f64(0.75 + 0.5 * f64::from(random) / f64::from(u32::MAX));
        self.wait = (2 * self.wait).min(MAX_WAIT);
        self.connection = PresenceConnection::Waiting(now + again_in);
        again_in
    }

    /// It leaves after so many more rounds, unless it leaves before that anyway.
    pub(crate) fn leave_after(&mut self, rounds: u64) {
        self.rounds_until_leave =
            Some(self.rounds_until_leave.map_or(rounds, |left| left.min(rounds)));
    }

    /// It has taken part in a round with enough others.
    pub(crate) fn handle_round(&mut self) {
        self.rounds_until_leave = self.rounds_until_leave.map(|left| left.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_until_a_connection_lasts() {
        let mut now = Instant::now();
        let mut presence = Presence::new(now);
        let mut waits = Vec::new();
        for _ in 0..9 {
            assert_eq!(presence.poll(now), Some(PresenceAction::Connect));
            assert_eq!(presence.poll(now), None);
            presence.handle_opened(now);
            waits.push(presence.handle_closed(now, u32::MAX / 2).as_millis());
            assert_eq!(presence.poll(now), None);
            now = presence.poll_timeout().unwrap();
        }
        assert_eq!(waits[..3], [250, 500, 1_000]);
        assert!((14_999..=15_000).contains(&waits[8]));
        assert_eq!(presence.poll(now), Some(PresenceAction::Connect));
        presence.handle_opened(now);
        assert_eq!(presence.handle_closed(now + STABLE, u32::MAX / 2).as_millis(), 250);
    }

    #[test]
    fn it_leaves_after_the_rounds_and_no_others() {
        let now = Instant::now();
        let mut presence = Presence::new(now);
        presence.poll(now);
        presence.handle_opened(now);
        presence.handle_round();
        presence.leave_after(2);
        presence.leave_after(5);
        presence.handle_round();
        assert_eq!(presence.poll(now), None);
        // A connection that ends is no reason to leave sooner or later.
        presence.handle_closed(now, 0);
        presence.handle_opened(now);
        presence.handle_round();
        assert_eq!(presence.poll(now), Some(PresenceAction::Leave));
        let mut presence = Presence::new(now);
        presence.leave_after(0);
        assert_eq!(presence.poll(now), Some(PresenceAction::Leave));
    }
}
