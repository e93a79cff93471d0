//! A client that repeats the handshake until there is an association, and until no channel is
//! missing from it.

use std::net::SocketAddr;
use std::time::Duration;

use model::ChannelSubset;
use random::RandomGenerator;

use crate::protocol::control::handshake::{SharedKey, TunnelClientFailure, TunnelHandshakeClient};
use crate::protocol::wire::datagram::MAX_CHANNELS;
use crate::protocol::wire::terms::TunnelTerms;

/// The minimum and maximum backoff before the client starts again.
const MIN_BACKOFF: Duration = Duration::from_millis(250);
const MAX_BACKOFF: Duration = Duration::from_secs(4);

/// A client that repeats the handshake.
pub(super) struct ReconnectingClient {
    pub(super) servers: Vec<SocketAddr>,
    key: Option<SharedKey>,
    /// The current handshake, if there is one.
    pub(super) client: Option<TunnelHandshakeClient>,
    /// When to start, unless there is an association of all channels, and the backoff after a
    /// failure.
    pub(super) start_at: Duration,
    backoff: Duration,
    /// The channels that the next handshake leaves out, because they did not confirm the last one.
    left_out: ChannelSubset,
    /// Whether it was reported that the association cannot be extended.
    has_reported: bool,
}

impl ReconnectingClient {
    /// A client that starts now.
    pub(super) fn new(servers: Vec<SocketAddr>, key: Option<SharedKey>, now: Duration) -> Self {
        Self {
            servers,
            key,
            client: None,
            start_at: now,
            backoff: MIN_BACKOFF,
            left_out: ChannelSubset::EMPTY,
            has_reported: false,
        }
    }

    /// Starts a handshake: to extend an association with missing channels, or for a new one.
    pub(super) fn start(
        &mut self,
        terms: TunnelTerms,
        missing: ChannelSubset,
        generator: &mut RandomGenerator,
        now: Duration,
    ) {
        // If the random source fails, it tries again later, as after any failure.
        let client = TunnelHandshakeClient::new(terms, self.key.clone(), generator, now).ok();
        self.client = client.map(|client| client.without(self.left_out).extending(missing));
        self.start_at = now.saturating_add(self.backoff);
    }

    /// The handshake has succeeded.
    pub(super) fn succeed(&mut self) {
        (self.client, self.backoff, self.left_out, self.has_reported) =
            (None, MIN_BACKOFF, ChannelSubset::EMPTY, false);
    }

    /// The handshake has failed, and will be tried again. Returns what must be reported.
    pub(super) fn fail(
        &mut self,
        failure: TunnelClientFailure,
        terms: TunnelTerms,
        generator: &mut RandomGenerator,
        now: Duration,
    ) -> Option<TunnelClientFailure> {
        let extends = self.client.take().is_some_and(|client| client.extends());
        if extends
            && matches!(failure, TunnelClientFailure::Silent | TunnelClientFailure::NoAnswer { .. })
        {
            // Missing channels were reported already.
            self.start_at = now;
            return None;
        }
        self.start_at = now.saturating_add(self.backoff);
        self.backoff = (2 * self.backoff).min(MAX_BACKOFF);
        if !extends {
            self.left_out = channels_to_leave_out(&failure, terms, generator);
            return Some(failure);
        }
        let is_news = !std::mem::replace(&mut self.has_reported, true);
        is_news.then_some(failure)
    }
}

/// Which channels to leave out of the next attempt. If a channel has sent something wrong, that
/// one. Otherwise a random selection of those that were not confirmed, as any of them may be at
/// fault, and no more than can be spared.
fn channels_to_leave_out(
    failure: &TunnelClientFailure,
    terms: TunnelTerms,
    generator: &mut RandomGenerator,
) -> ChannelSubset {
    let (all, members) = match failure {
        TunnelClientFailure::Silent | TunnelClientFailure::NoAnswer { .. } => {
            return ChannelSubset::EMPTY;
        }
        TunnelClientFailure::NoConfirm { channels, members } => (channels.clone(), *members),
        TunnelClientFailure::Association(reason) => {
            return reason.clone().channel_mut().map(|channel| *channel).into_iter().collect();
        }
    };
    let spare = members.saturating_sub(terms.min_channels().into());
    let Ok(random) = generator.array::<{ MAX_CHANNELS + 1 }>() else { return ChannelSubset::EMPTY };
    let (count, order) = random.split_first().expect("it is longer than that");
    let mut all: Vec<(u8, usize)> = order.iter().copied().zip(all).collect();
    all.sort_unstable();
    let count = if spare == 0 { 0 } else { 1 + usize::from(*count) % spare };
    all.into_iter().take(count).map(|(_, channel)| channel).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unconfirmed_channels_are_left_out_as_far_as_they_can_be_spared() {
        let mut generator = RandomGenerator::seeded().unwrap();
        let mut left_out = |channels: &[usize], members| {
            let terms = TunnelTerms::new(4, 1, true).unwrap().with_min_channels(2).unwrap();
            let failure = TunnelClientFailure::NoConfirm { channels: channels.to_vec(), members };
            let of_one = || {
                channels_to_leave_out(&failure, terms, &mut generator).iter().collect::<Vec<_>>()
            };
            std::iter::repeat_with(of_one).take(200).collect::<std::collections::BTreeSet<_>>()
        };
        let sets = |sets: &[&[usize]]| sets.iter().map(|set| set.to_vec()).collect();
        // An attacker that drops the Confirms of one channel keeps the tunnel from starting with
        // the others no longer.
        assert_eq!(left_out(&[2], 4), sets(&[&[2]]));
        assert_eq!(left_out(&[2], 3), sets(&[&[2]]));
        assert_eq!(left_out(&[0, 1, 2], 3), sets(&[&[0], &[1], &[2]]));
        assert_eq!(left_out(&[1, 3], 2), sets(&[&[]]), "both are needed");
        let all = left_out(&[0, 1, 2, 3], 4);
        assert!(all.iter().all(|set| (1..=2).contains(&set.len())), "{all:?}");
        assert_eq!(all.len(), 10);
    }
}
