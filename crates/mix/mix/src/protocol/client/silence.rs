//! How long the proxy may send nothing.

use std::time::Duration;

use super::MixClient;
use super::link::ProxyLink;
use crate::protocol::wire::MixTerms;

/// A proxy that sends nothing for this time, or for five quarters of a longer round, is reported as
/// silent.
const MIN_SILENCE: Duration = Duration::from_secs(4);

/// The least of [`MixClient::read_timeout`], and that of a connection before its terms are known.
pub(crate) const MIN_READ_TIMEOUT: Duration = Duration::from_secs(180);

impl MixClient {
    /// How long the proxy may send nothing on a connection: `None` while this client waits for an
    /// administrator, and the proxy has nothing to send.
    pub fn silence_limit(&self) -> Option<Duration> {
        match &self.link {
            None => Some(MIN_SILENCE),
            Some(link) if link.owes_announcement() => Some(MIN_SILENCE),
            Some(link) if link.is_begun() => Some(silence_limit(link.terms())),
            Some(_) => None,
        }
    }

    /// If no message of the proxy arrives for this time, the connection counts as broken. Each
    /// round has one.
    pub fn read_timeout(&self) -> Duration {
        self.link.as_ref().map(ProxyLink::terms).map_or(MIN_READ_TIMEOUT, read_timeout)
    }
}

fn silence_limit(terms: &MixTerms) -> Duration {
    MIN_SILENCE.max(terms.interval() * 5 / 4)
}

/// The proxy waits for a member in the same way.
fn read_timeout(terms: &MixTerms) -> Duration {
    MIN_READ_TIMEOUT.max(3 * terms.interval())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MailboxShape;
    use crate::protocol::exchange::MixExchangeKind;

    fn terms(interval: Duration) -> MixTerms {
        let shape = MailboxShape::new(3, 1, 1, 3, 64).unwrap();
        MixTerms::new(MixExchangeKind::Broadcast, shape, interval, interval).unwrap()
    }

    /// The silence is reported first; the connection must still exist then.
    #[test]
    fn a_connection_outlasts_rounds_of_any_length() {
        for (interval_s, expected_s) in [(1, 180), (60, 180), (75, 225), (600, 1800)] {
            let interval = Duration::from_secs(interval_s);
            let terms = terms(interval);
            let timeout = read_timeout(&terms);
            assert_eq!(timeout, Duration::from_secs(expected_s));
            assert!(timeout > silence_limit(&terms) && silence_limit(&terms) > interval);
        }
    }

    /// With rounds of 1 s and 4 s, as with the profiles `interactive` and `messenger`.
    #[test]
    fn a_silent_proxy_is_reported_within_5_s() {
        for interval_s in [1, 4] {
            let limit = silence_limit(&terms(Duration::from_secs(interval_s)));
            assert!(limit <= Duration::from_secs(5), "{interval_s}: {limit:?}");
        }
    }
}
