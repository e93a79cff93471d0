//! Decides when a member connects to the proxy and when it leaves. The proxy sees both, so they
//! depend only on time, connections and rounds. This module has no access to what was sent,
//! delivered or received.

use std::time::Duration;

/// The first wait before a reconnection.
const MIN_WAIT: Duration = Duration::from_millis(250);
/// The longest wait before a reconnection.
const MAX_WAIT: Duration = Duration::from_secs(15);
/// A connection of at least this duration resets the wait to [`MIN_WAIT`].
const STABLE: Duration = Duration::from_secs(5);

/// What the driver must do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PresenceAction {
    /// Connect, then call [`Presence::handle_opened`] or [`Presence::handle_closed`].
    Connect,
    /// Disconnect for good.
    Leave,
}

#[derive(Clone, Copy, Debug)]
enum PresenceConnection {
    /// No connection until this time.
    Waiting(Duration),
    Connecting,
    Open {
        since: Duration,
    },
}

/// A member's presence at the proxy.
#[derive(Debug)]
pub(crate) struct Presence {
    connection: PresenceConnection,
    wait: Duration,
    /// The number of rounds until the member leaves.
    rounds_until_leave: Option<u64>,
}

impl Presence {
    /// A member that connects at once.
    pub(crate) fn new(now: Duration) -> Self {
        Self {
            connection: PresenceConnection::Waiting(now),
            wait: MIN_WAIT,
            rounds_until_leave: None,
        }
    }

    /// The next action, if there is one.
    pub(crate) fn poll(&mut self, now: Duration) -> Option<PresenceAction> {
        match self.connection {
            _ if self.rounds_until_leave == Some(0) => Some(PresenceAction::Leave),
            PresenceConnection::Waiting(until) if until <= now => {
                self.connection = PresenceConnection::Connecting;
                Some(PresenceAction::Connect)
            }
            _ => None,
        }
    }

    /// When to call [`Presence::poll`] next.
    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        match self.connection {
            PresenceConnection::Waiting(until) => Some(until),
            _ => None,
        }
    }

    /// The connection is established.
    pub(crate) fn handle_opened(&mut self, now: Duration) {
        self.connection = PresenceConnection::Open { since: now };
    }

    /// The connection has ended, or could not be established. Returns the wait before the next
    /// attempt. `random` is uniform, so that not all clients reconnect to a restarted proxy at the
    /// same time.
    pub(crate) fn handle_closed(&mut self, now: Duration, random: u32) -> Duration {
        if let PresenceConnection::Open { since } = self.connection
            && now.saturating_sub(since) >= STABLE
        {
            self.wait = MIN_WAIT;
        }
        let again_in = self.wait.mul_f64(0.75 + 0.5 * f64::from(random) / f64::from(u32::MAX));
        self.wait = (2 * self.wait).min(MAX_WAIT);
        self.connection = PresenceConnection::Waiting(now + again_in);
        again_in
    }

    /// Leaves after `rounds` more rounds, unless it is to leave earlier anyway.
    pub(crate) fn leave_after(&mut self, rounds: u64) {
        self.rounds_until_leave =
            Some(self.rounds_until_leave.map_or(rounds, |left| left.min(rounds)));
    }

    /// The member has taken part in a round with enough participants.
    pub(crate) fn handle_round(&mut self) {
        self.rounds_until_leave = self.rounds_until_leave.map(|left| left.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reconnection_backoff_grows_until_a_connection_is_stable() {
        let mut now = Duration::ZERO;
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
    fn presence_leaves_after_the_given_rounds() {
        let now = Duration::ZERO;
        let mut presence = Presence::new(now);
        presence.poll(now);
        presence.handle_opened(now);
        presence.handle_round();
        presence.leave_after(2);
        presence.leave_after(5);
        presence.handle_round();
        assert_eq!(presence.poll(now), None);
        // The end of a connection does not change when the member leaves.
        presence.handle_closed(now, 0);
        presence.handle_opened(now);
        presence.handle_round();
        assert_eq!(presence.poll(now), Some(PresenceAction::Leave));
        let mut presence = Presence::new(now);
        presence.leave_after(0);
        assert_eq!(presence.poll(now), Some(PresenceAction::Leave));
    }
}
