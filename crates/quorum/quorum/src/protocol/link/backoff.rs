//! Which server of a pair connects, and when it retries.

use std::time::Duration;

use keys::IdentityPublicKey;

/// The longest pause before the first attempt after a failure.
const FIRST: Duration = Duration::from_millis(50);

/// The longest pause between attempts. A server that has started again is reached within it.
const LONGEST: Duration = Duration::from_secs(1);

/// The same after the other end has answered that it expects no connection, as servers answer to
/// one that has left their group. If they expect it again later, they ask for a connection.
const LONGEST_REFUSED: Duration = Duration::from_secs(15);

/// A link that lasted this long was not refused by its other end.
const STABLE: Duration = Duration::from_secs(5);

/// Whether the server with the key `own` connects to the one with the key `peer`, or the reverse.
/// The one with the smaller key connects, so that there is only one connection.
pub(crate) fn dials(own: &IdentityPublicKey, peer: &IdentityPublicKey) -> bool {
    own.to_bytes() < peer.to_bytes()
}

/// How a connection attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectAttemptEnd {
    /// There was a link, which lasted this long.
    Lasted(Duration),
    /// The other end expects no connection.
    Refused,
    /// The attempt failed for another reason.
    Failed,
}

/// The pauses between the attempts to connect to one server.
#[derive(Debug, Default)]
pub(crate) struct ReconnectBackoff {
    failures: u32,
}

impl ReconnectBackoff {
    /// The pause after an attempt that ended this way. It is random, between half of the maximum
    /// and the maximum, so that servers that start together do not all connect at the same time.
    pub(crate) fn pause(&mut self, ended: ConnectAttemptEnd, random: u8) -> Duration {
        if matches!(ended, ConnectAttemptEnd::Lasted(time) if time >= STABLE) {
            self.failures = 0;
        }
        let limit = if ended == ConnectAttemptEnd::Refused { LONGEST_REFUSED } else { LONGEST };
        let longest = FIRST.saturating_mul(1 << self.failures.min(9)).min(limit);
        self.failures = self.failures.saturating_add(1);
        longest / 2 + longest * u32::from(random) / 512
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::tests::secret;

    #[test]
    fn one_of_two_dials() {
        let keys: Vec<_> = (0..10).map(|number| secret(number).public()).collect();
        for one in &keys {
            for other in keys.iter().filter(|other| *other != one) {
                assert!(dials(one, other) != dials(other, one));
            }
        }
    }

    #[test]
    fn pauses_grow_to_a_second_and_start_again_after_a_lasting_link() {
        let mut backoff = ReconnectBackoff::default();
        let mut pauses = |ended, random| backoff.pause(ended, random).as_millis();
        let failed = ConnectAttemptEnd::Failed;
        assert_eq!([pauses(failed, 0), pauses(failed, 0), pauses(failed, 0)], [25, 50, 100]);
        let many: Vec<_> = (0..300).map(|_| pauses(failed, 255)).collect();
        assert!(many.last().is_some_and(|last| (990..=1000).contains(last)), "{many:?}");
        assert_eq!(pauses(ConnectAttemptEnd::Refused, 0), 7500);
        assert_eq!(pauses(ConnectAttemptEnd::Lasted(Duration::from_secs(1)), 0), 500);
        assert_eq!(pauses(ConnectAttemptEnd::Lasted(STABLE), 0), 25);
    }
}
