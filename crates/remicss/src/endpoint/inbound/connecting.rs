//! A client that starts a handshake as often as it must: until there is an association, and until no channel
//! is missing from it.

use std::net::SocketAddr;
use std::time::Duration;

use model::Subset;
use sharing::Generator;

use crate::control::handshake::{Client, ClientFailure, SharedKey};
use crate::wire::datagram::MAX_CHANNELS;
use crate::wire::terms::Terms;

/// How long a client waits before it starts again, at first and at most.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LAST_WAIT: Duration = Duration::from_secs(4);

/// A client's end, which starts as often as it must.
pub(super) struct Connecting {
    pub(super) servers: Vec<SocketAddr>,
    key: Option<SharedKey>,
    /// The handshake that runs, if one does.
    pub(super) client: Option<Client>,
    /// When to start, unless there is an association of all channels, and how long to wait after a failure.
    pub(super) start_at: Duration,
    wait: Duration,
    /// The channels that the next handshake does without, as the last one was not confirmed with them.
    left_out: Subset,
    /// Whether it was told that the association cannot be extended.
    has_told: bool,
}

impl Connecting {
    /// One that starts now.
    pub(super) fn new(servers: Vec<SocketAddr>, key: Option<SharedKey>, now: Duration) -> Self {
        Self {
            servers,
            key,
            client: None,
            start_at: now,
            wait: FIRST_WAIT,
            left_out: Subset::EMPTY,
            has_told: false,
        }
    }

    /// Begins a handshake: to extend an association that channels are missing from, or for one where there
    /// is none.
    pub(super) fn start(
        &mut self,
        terms: Terms,
        missing: Subset,
        generator: &mut Generator,
        now: Duration,
    ) {
        // Without random bytes it tries again later, as after any failure.
        let client = Client::new(terms, self.key.clone(), generator, now).ok();
        self.client = client.map(|client| client.leaving_out(self.left_out).extending(missing));
        self.start_at = now.saturating_add(self.wait);
    }

    /// The handshake has succeeded.
    pub(super) fn succeed(&mut self) {
        (self.client, self.wait, self.left_out, self.has_told) =
            (None, FIRST_WAIT, Subset::EMPTY, false);
    }

    /// The handshake has failed, and will be tried again. What is to be told of it.
    pub(super) fn fail(
        &mut self,
        failure: ClientFailure,
        terms: Terms,
        generator: &mut Generator,
        now: Duration,
    ) -> Option<ClientFailure> {
        let extends = self.client.take().is_some_and(|client| client.extends());
        if extends && matches!(failure, ClientFailure::Silent | ClientFailure::NoAnswer { .. }) {
            // What is missing is still missing, and was told.
            self.start_at = now;
            return None;
        }
        self.start_at = now.saturating_add(self.wait);
        self.wait = (2 * self.wait).min(LAST_WAIT);
        if !extends {
            self.left_out = suspects(&failure, terms, generator);
            return Some(failure);
        }
        let is_news = !std::mem::replace(&mut self.has_told, true);
        is_news.then_some(failure)
    }
}

/// Which channels to leave out of the next attempt: one that has sent something wrong; or, of those that were
/// not confirmed, a random selection, as the fault may be on any of them, and no more than can be spared.
fn suspects(failure: &ClientFailure, terms: Terms, generator: &mut Generator) -> Subset {
    let (all, members) = match failure {
        ClientFailure::Silent | ClientFailure::NoAnswer { .. } => return Subset::EMPTY,
        ClientFailure::NoConfirm { channels, members } => (channels.clone(), *members),
        ClientFailure::Association(reason) => {
            return reason.clone().channel_mut().map(|channel| *channel).into_iter().collect();
        }
    };
    let spare = members.saturating_sub(terms.least().into());
    let Ok(random) = generator.array::<{ MAX_CHANNELS + 1 }>() else { return Subset::EMPTY };
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
        let mut generator = Generator::seeded().unwrap();
        let mut left_out = |channels: &[usize], members| {
            let terms = Terms::new(4, 1, true).unwrap().with_least(2).unwrap();
            let failure = ClientFailure::NoConfirm { channels: channels.to_vec(), members };
            let of_one = || suspects(&failure, terms, &mut generator).iter().collect::<Vec<_>>();
            std::iter::repeat_with(of_one).take(200).collect::<std::collections::BTreeSet<_>>()
        };
        let sets = |sets: &[&[usize]]| sets.iter().map(|set| set.to_vec()).collect();
        // Whoever drops the Confirms of one channel keeps the tunnel from starting with the others no longer.
        assert_eq!(left_out(&[2], 4), sets(&[&[2]]));
        assert_eq!(left_out(&[2], 3), sets(&[&[2]]));
        assert_eq!(left_out(&[0, 1, 2], 3), sets(&[&[0], &[1], &[2]]));
        assert_eq!(left_out(&[1, 3], 2), sets(&[&[]]), "both are needed");
        let all = left_out(&[0, 1, 2, 3], 4);
        assert!(all.iter().all(|set| (1..=2).contains(&set.len())), "{all:?}");
        assert_eq!(all.len(), 10);
    }
}
