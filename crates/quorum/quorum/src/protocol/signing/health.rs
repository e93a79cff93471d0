//! Which servers have answered recently, and how fast.

use std::time::Duration;

use handover::GroupSize;

use crate::protocol::combination::{CombinatorialSharing, ServerIndex};

/// The bounds on the hedge delay.
const MIN_HEDGE_DELAY: Duration = Duration::from_millis(20);
const MAX_HEDGE_DELAY: Duration = Duration::from_secs(1);

/// How long a server that did not answer in time is avoided. Meanwhile it is asked only if other
/// servers do not answer either.
const SILENCE: Duration = Duration::from_secs(10);

/// What a requester knows about the response times of its group's servers in this epoch.
#[derive(Clone, Debug)]
pub struct SignerHealth {
    signer_count: usize,
    servers: Vec<SignerHistory>,
}

#[derive(Clone, Debug, Default)]
struct SignerHistory {
    /// A moving average of the response time. A new sample has the weight 1/8.
    mean_response_time: Option<Duration>,
    silent_until: Duration,
    faulty: bool,
}

impl SignerHealth {
    /// No knowledge about the servers of a group yet.
    pub fn new(group: &CombinatorialSharing) -> Self {
        let servers = vec![SignerHistory::default(); group.server_count()];
        Self { signer_count: group.signer_count(), servers }
    }

    /// No knowledge about the servers of a group of this size yet.
    pub(crate) fn of_size(size: GroupSize) -> Self {
        let servers = vec![SignerHistory::default(); size.participants().count()];
        Self { signer_count: size.signer_count(), servers }
    }

    /// A server has answered, after the time `took`.
    pub fn answered(&mut self, server: ServerIndex, took: Duration) {
        if let Some(server) = self.servers.get_mut(usize::from(server.0)) {
            server.mean_response_time =
                Some(server.mean_response_time.map_or(took, |usual| usual * 7 / 8 + took / 8));
            server.silent_until = Duration::ZERO;
        }
    }

    /// A server has not answered in time.
    pub fn silent(&mut self, server: ServerIndex, now: Duration) {
        if let Some(server) = self.servers.get_mut(usize::from(server.0)) {
            server.silent_until = now + SILENCE;
        }
    }

    /// There is evidence against a server. It is not chosen any more.
    pub fn faulty(&mut self, server: ServerIndex) {
        if let Some(server) = self.servers.get_mut(usize::from(server.0)) {
            server.faulty = true;
        }
    }

    /// The servers without evidence against them, best first: those that answered, by mean response
    /// time, then those that have not been asked, then those that did not answer recently.
    pub fn ranking(&self, now: Duration) -> Vec<ServerIndex> {
        let mut ranking: Vec<_> = (0..).map(ServerIndex).zip(&self.servers).collect();
        ranking.retain(|(_, server)| !server.faulty);
        ranking.sort_by_key(|(_, server)| {
            (server.silent_until > now, server.mean_response_time.unwrap_or(Duration::MAX))
        });
        ranking.into_iter().map(|(index, _)| index).collect()
    }

    /// The delay before another server is asked: three times the mean response time of the slowest
    /// of the best f+1.
    pub fn hedge_delay(&self, now: Duration) -> Duration {
        let best = self.ranking(now).into_iter().take(self.signer_count);
        let usual =
            best.filter_map(|index| self.servers[usize::from(index.0)].mean_response_time).max();
        usual.map_or(MAX_HEDGE_DELAY, |usual| (usual * 3).clamp(MIN_HEDGE_DELAY, MAX_HEDGE_DELAY))
    }
}
