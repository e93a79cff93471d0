//! Who connects to whom, and when again.

use std::time::Duration;

use keys::PublicKey;

/// The longest pause before the first attempt after a failure.
const FIRST: Duration = Duration::from_millis(50);

/// The longest pause between attempts. A server that has started again is reached within it.
const LONGEST: Duration = Duration::from_secs(1);

/// A link that has lasted so long was not refused by its other end.
const STABLE: Duration = Duration::from_secs(5);

/// Whether the server with the key `own` connects to the one with the key `peer`, which else
/// connects to it: that with the smaller key does, so that there is one connection.
pub(crate) fn dials(own: &PublicKey, peer: &PublicKey) -> bool {
    own.to_bytes() < peer.to_bytes()
}

/// The pauses between the attempts to connect to one server.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The pause after an attempt that failed, or after a link that has lasted this long. It is
    /// between half of the longest one and all of it, as `random` decides, so that servers that
    /// have started together do not connect together.
    pub(crate) fn pause(&mut self, lasted: Option<Duration>, random: u8) -> Duration {
        if lasted.is_some_and(|lasted| lasted >= STABLE) {
            self.failures = 0;
        }
        let longest = FIRST.saturating_mul(1 << self.failures.min(8)).min(LONGEST);
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
        let mut backoff = Backoff::default();
        let mut pauses = |lasted, random| backoff.pause(lasted, random).as_millis();
        assert_eq!([pauses(None, 0), pauses(None, 0), pauses(None, 0)], [25, 50, 100]);
        let many: Vec<_> = (0..300).map(|_| pauses(None, 255)).collect();
        assert!(many.last().is_some_and(|last| (990..=1000).contains(last)), "{many:?}");
        assert_eq!(pauses(Some(Duration::from_secs(1)), 0), 500);
        assert_eq!(pauses(Some(STABLE), 0), 25);
    }
}
