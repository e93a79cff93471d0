//! Who connects to whom, and when again.

use std::time::Duration;

use keys::IdentityPublicKey;

/// The longest pause before the first attempt after a failure.
const FIRST: Duration = Duration::from_millis(50);

/// The longest pause between attempts. A server that has started again is reached within it.
const LONGEST: Duration = Duration::from_secs(1);

/// The same after the other end has said that it expects no connection, as those say to a server
/// that has left their group. When they expect one again, they ask for it.
const LONGEST_REFUSED: Duration = Duration::from_secs(15);

/// A link that has lasted so long was not refused by its other end.
const STABLE: Duration = Duration::from_secs(5);

/// Whether the server with the key `own` connects to the one with the key `peer`, which else
/// connects to it: that with the smaller key does, so that there is one connection.
pub(crate) fn dials(own: &IdentityPublicKey, peer: &IdentityPublicKey) -> bool {
    own.to_bytes() < peer.to_bytes()
}

/// How an attempt to connect has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectAttemptEnd {
    /// With a link, which has lasted this long.
    Lasted(Duration),
    /// The other end expects no connection.
    Refused,
    /// Otherwise.
    Failed,
}

/// The pauses between the attempts to connect to one server.
#[derive(Debug, Default)]
pub(crate) struct ReconnectBackoff {
    failures: u32,
}

impl ReconnectBackoff {
    /// The pause after an attempt with this end. It is between half of the longest one and all of
    /// it, as `random` decides, so that servers that have started together do not connect together.
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
