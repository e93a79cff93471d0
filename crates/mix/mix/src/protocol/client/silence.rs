//! How long the proxy may send nothing.

use std::time::Duration;

use super::MixClient;
use super::link::ProxyLink;
use crate::protocol::wire::MixTerms;

/// A proxy that sends nothing for this time, in addition to two rounds, is reported as silent.
const SILENCE_MARGIN: Duration = Duration::from_secs(2);

/// The least of [`MixClient::read_timeout`], and that of a connection before its terms are known.
pub(crate) const MIN_READ_TIMEOUT: Duration = Duration::from_secs(180);

impl MixClient {
    /// How long the proxy may send nothing on a connection: `None` while it has nothing to send.
    pub fn silence_limit(&self) -> Option<Duration> {
        match &self.link {
            None => Some(SILENCE_MARGIN),
            Some(link) if link.is_begun() => Some(2 * link.terms().interval() + SILENCE_MARGIN),
            Some(_) => None,
        }
    }

    /// If no message of the proxy arrives for this time, the connection counts as broken. Each
    /// round has one.
    pub fn read_timeout(&self) -> Duration {
        self.link.as_ref().map(ProxyLink::terms).map_or(MIN_READ_TIMEOUT, read_timeout)
    }
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

    /// The silence of two rounds is reported; the connection must still exist then.
    #[test]
    fn a_connection_outlasts_rounds_of_any_length() {
        let shape = MailboxShape::new(3, 1, 1, 3, 64).unwrap();
        for (interval_s, expected_s) in [(1, 180), (60, 180), (75, 225), (600, 1800)] {
            let interval = Duration::from_secs(interval_s);
            let terms = MixTerms::new(MixExchangeKind::Broadcast, shape, interval, interval);
            let timeout = read_timeout(&terms.unwrap());
            assert_eq!(timeout, Duration::from_secs(expected_s));
            assert!(timeout > 2 * interval + SILENCE_MARGIN, "{interval_s}");
        }
    }
}
