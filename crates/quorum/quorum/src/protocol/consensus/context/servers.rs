//! The servers that agree on a height, as Malachite has them.

use std::sync::Arc;

use arc_malachitebft_core_types as types;
use keys::IdentityPublicKey;

use super::{ConsensusContext, ValidatorAddress};
use crate::protocol::log_types::{Height, ServerSet};

/// The largest number of servers of a set: n = 3f+1 with f = 4.
pub(crate) const MAX_SERVERS: usize = 13;

/// For how many heights a server leads at most before another one has its turn.
const TERM: u64 = 16;

/// A server. Each has one vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConsensusValidator {
    address: ValidatorAddress,
    key: Option<IdentityPublicKey>,
}

/// The servers of a height, in the order of their addresses, and which of them proposes first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConsensusValidatorSet {
    servers: Arc<[ConsensusValidator]>,
    leader: usize,
}

impl ConsensusValidatorSet {
    /// The servers of a set at a height, of which this one proposes in round 0; the first of the
    /// order if it is not among them.
    ///
    /// The leader is the server whose value was committed last. So a silent server costs one round
    /// rarely, and not one in every n heights. All servers derive it from the committed value. At
    /// every [`TERM`]th height it is the next of all in turn, so that a faulty server which keeps
    /// others' entries out does not lead for ever.
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

    /// Who proposes in a round: all in turn, the leader first. A server that has not got the last
    /// committed value does not know the leader: from round n on the leader does not count, so that
    /// all take the same proposer for the right one.
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

    /// f: how many servers may be faulty.
    pub(crate) fn faulty(&self) -> usize {
        (self.servers.len() - 1) / 3
    }

    /// n: the number of servers.
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
    fn each_server_has_its_turn_whoever_leads() {
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
