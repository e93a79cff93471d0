//! The servers that agree on a height, as types of Malachite.

use std::sync::Arc;

use arc_malachitebft_core_types as types;
use keys::IdentityPublicKey;

use super::{ConsensusContext, ValidatorAddress};
use crate::protocol::log_types::{Height, MAX_FAULTY, ServerSet};

/// The largest number of servers of a set: n = 3f+1.
pub(crate) const MAX_SERVERS: usize = 3 * MAX_FAULTY as usize + 1;

/// The largest number of consecutive heights that a server leads.
const TERM: u64 = 16;

/// A server. Each has one vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConsensusValidator {
    address: ValidatorAddress,
    key: Option<IdentityPublicKey>,
}

/// The servers of a height in the order of their addresses, and the first proposer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConsensusValidatorSet {
    servers: Arc<[ConsensusValidator]>,
    leader: usize,
}

impl ConsensusValidatorSet {
    /// The servers of a set at a height. `leader` proposes in round 0. If it is not in the set, the
    /// first server in order does.
    ///
    /// The leader is the server whose value was committed last. So a silent server rarely costs a
    /// round, instead of one in every n heights. All servers derive the leader from the committed
    /// value. At every [`TERM`]th height, leadership moves to the next server in order, so that a
    /// faulty server that omits entries of others does not lead for ever.
    pub(crate) fn new(set: &ServerSet, height: Height, leader: Option<ValidatorAddress>) -> Self {
        let servers = set.voters().iter().map(|it| ConsensusValidator {
            address: ValidatorAddress::of(&it.identity),
            key: it.key,
        });
        let mut servers: Vec<_> = servers.collect();
        servers.sort_by_key(|server| server.address);
        let leader =
            leader.and_then(|leader| servers.iter().position(|server| server.address == leader));
        let (terms, within) = (height.0 / TERM, height.0 % TERM);
        let next =
            (within == 0).then(|| usize::try_from(terms % servers.len() as u64).unwrap_or(0));
        Self { servers: servers.into(), leader: next.or(leader).unwrap_or(0) }
    }

    /// The proposer of a round: all servers in turn, starting with the leader. A server without the
    /// last committed value does not know the leader. From round n on, the leader is ignored, so
    /// that all servers expect the same proposer.
    pub(crate) fn proposer(&self, round: types::Round) -> &ConsensusValidator {
        let round = round.as_u32().unwrap_or(0) as usize;
        let first = if round < self.servers.len() { self.leader } else { 0 };
        &self.servers[(first + round) % self.servers.len()]
    }

    /// The voting key of the server with this address, if it has one.
    pub(crate) fn key(&self, address: &ValidatorAddress) -> Option<&IdentityPublicKey> {
        self.position(address).and_then(|index| self.servers[index].key.as_ref())
    }

    /// Whether the server with this address is in the set.
    pub(crate) fn contains(&self, address: &ValidatorAddress) -> bool {
        self.position(address).is_some()
    }

    /// The addresses of the servers, in order.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = ValidatorAddress> {
        self.servers.iter().map(|server| server.address)
    }

    /// The number f of faulty servers that the set tolerates.
    pub(crate) fn faulty(&self) -> usize {
        (self.servers.len() - 1) / 3
    }

    /// The number n of servers.
    pub(crate) fn len(&self) -> usize {
        self.servers.len()
    }

    fn position(&self, address: &ValidatorAddress) -> Option<usize> {
        self.servers.binary_search_by_key(address, |server| server.address).ok()
    }
}

impl types::Validator<ConsensusContext> for ConsensusValidator {
    fn address(&self) -> &ValidatorAddress {
        &self.address
    }

    fn public_key(&self) -> &Option<IdentityPublicKey> {
        &self.key
    }

    fn voting_power(&self) -> types::VotingPower {
        1
    }
}

impl types::ValidatorSet<ConsensusContext> for ConsensusValidatorSet {
    fn count(&self) -> usize {
        self.servers.len()
    }

    fn total_voting_power(&self) -> types::VotingPower {
        self.servers.len() as types::VotingPower
    }

    fn get_by_address(&self, address: &ValidatorAddress) -> Option<&ConsensusValidator> {
        self.position(address).map(|index| &self.servers[index])
    }

    fn get_by_index(&self, index: usize) -> Option<&ConsensusValidator> {
        self.servers.get(index)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::log::tests::{secret, set};

    #[test]
    fn each_server_proposes_in_turn_with_any_leader() {
        let four = set(1..=4);
        let leader = ValidatorAddress::of(&secret(3).public());
        let first = |height: u64| {
            let servers = ConsensusValidatorSet::new(&four, Height(height), Some(leader));
            servers.proposer(types::Round::ZERO).address
        };
        let turns: BTreeSet<_> = (1..=4).map(|turn| first(turn * TERM)).collect();
        assert_eq!(turns.len(), 4);
        assert!((1..TERM).all(|height| first(height) == leader));
    }
}
