//! The transactions of a block: entries, and the servers that agree on later blocks if they change.

use std::collections::BTreeSet;

use bytes::Bytes;
use encoding::FieldReader;
use keys::IdentityPublicKey;

use super::messages::{ValidatorKey, ValidatorUpdate};
use crate::protocol::log_types::{ServerSet, Voter};
use crate::protocol::voting::{read_optional_key, write_key};
use crate::protocol::wire::{MalformedEncoding, Sha256Digest};

/// The first byte of a transaction: what it is.
const ENTRY: u8 = 1;
const NEXT_SET: u8 = 2;

/// The voting power of each server.
const POWER: i64 = 1;

/// What a block contains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockContent {
    /// The entries, in their order.
    pub(crate) entries: Vec<Bytes>,
    /// The servers that agree from the second block after this one on, if they change.
    pub(crate) next: Option<ServerSet>,
}

impl BlockContent {
    /// The transactions: each entry, then the next set.
    pub(crate) fn to_transactions(&self) -> Vec<Bytes> {
        let entry = |entry: &Bytes| [&[ENTRY], &entry[..]].concat();
        let entries = self.entries.iter().map(entry);
        entries.chain(self.next.as_ref().map(write_set)).map(Bytes::from).collect()
    }

    /// Parses the transactions of a block.
    ///
    /// # Errors
    /// If they are not those of a content.
    pub(crate) fn parse(transactions: &[Bytes]) -> Result<Self, MalformedEncoding> {
        let mut content = Self::default();
        for transaction in transactions {
            if content.next.is_some() {
                return Err(MalformedEncoding("a transaction after the next servers"));
            }
            match transaction.first() {
                Some(&ENTRY) => content.entries.push(transaction.slice(1..)),
                Some(&NEXT_SET) => content.next = Some(read_set(&transaction[1..])?),
                _ => return Err(MalformedEncoding("an unknown kind of transaction")),
            }
        }
        Ok(content)
    }
}

fn write_set(set: &ServerSet) -> Vec<u8> {
    let mut out = vec![NEXT_SET];
    out.extend(set_to_bytes(set));
    out
}

/// The encoding of a set: its number of servers, and the identity and voting key of each.
pub(crate) fn set_to_bytes(set: &ServerSet) -> Vec<u8> {
    let mut out = vec![u8::try_from(set.voters().len()).expect("a set has 13 servers")];
    for voter in set.voters() {
        out.extend(voter.identity.to_bytes());
        write_key(voter.key.as_ref(), &mut out);
    }
    out
}

/// Parses a set.
///
/// # Errors
/// If the bytes are not exactly the encoding of a set.
pub(crate) fn read_set(bytes: &[u8]) -> Result<ServerSet, MalformedEncoding> {
    let mut reader = FieldReader::new(bytes);
    let count = reader.u8()?;
    let mut voters = Vec::new();
    for _ in 0..count {
        let identity = IdentityPublicKey::from_bytes(&reader.take()?)
            .map_err(|_| MalformedEncoding("an identity is not a public key"))?;
        voters.push(Voter { identity, key: read_optional_key(&mut reader)? });
    }
    reader.finish()?;
    ServerSet::new(voters).map_err(|_| MalformedEncoding("servers do not make a set"))
}

/// The validators' keys of a set, in its order. A server without a voting key, or with one that
/// another server has too, has a key that nobody can sign with: 2f+1 of all servers must agree.
pub(crate) fn validator_keys(set: &ServerSet) -> Vec<[u8; 32]> {
    let mut used = BTreeSet::new();
    let key = |voter: &Voter| {
        let own = voter.key.map(|key| key.to_bytes()).filter(|key| used.insert(*key));
        own.unwrap_or_else(|| {
            let domain = b"sunder-quorum server without a voting key v1\0";
            Sha256Digest::of(&[domain, &voter.identity.to_bytes()]).0
        })
    };
    set.voters().iter().map(key).collect()
}

/// All validators of a set.
pub(crate) fn validators(set: &ServerSet) -> Vec<ValidatorUpdate> {
    validator_keys(set).into_iter().map(|key| update(key, POWER)).collect()
}

/// The changes from the validators of one set to those of the next.
pub(crate) fn validator_updates(old: &ServerSet, new: &ServerSet) -> Vec<ValidatorUpdate> {
    let [old, new] = [old, new].map(|set| validator_keys(set).into_iter().collect::<BTreeSet<_>>());
    let removed = old.difference(&new).map(|&key| update(key, 0));
    let added = new.difference(&old).map(|&key| update(key, POWER));
    removed.chain(added).collect()
}

fn update(key: [u8; 32], power: i64) -> ValidatorUpdate {
    ValidatorUpdate { pub_key: ValidatorKey::ed25519(key), power }
}

/// The server with a validator's address, the first 20 bytes of the SHA-256 of its key.
pub(crate) fn server_of(set: &ServerSet, address: &[u8]) -> Option<IdentityPublicKey> {
    let keys = validator_keys(set);
    let is_it = |key: &[u8; 32]| Sha256Digest::of(&[key]).0[..20] == *address;
    let index = keys.iter().position(is_it)?;
    set.voters().get(index).map(|voter| voter.identity)
}

/// The application's hash of a chain that begins with a set.
pub(crate) fn first_hash(set: &ServerSet) -> Sha256Digest {
    Sha256Digest::of(&[b"sunder-quorum servers of a log v1\0", &set_to_bytes(set)])
}

/// The application's hash after a change of the set. It changes with each change of the servers, so
/// that CometBFT makes the next block without being asked.
pub(crate) fn next_hash(previous: Sha256Digest, set: &ServerSet) -> Sha256Digest {
    let domain = b"sunder-quorum next servers of a log v1\0";
    Sha256Digest::of(&[domain, &previous.0, &set_to_bytes(set)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::tests::set;

    fn without_key(set: &ServerSet, index: usize) -> ServerSet {
        let mut voters = set.voters().to_vec();
        voters[index].key = None;
        ServerSet::new(voters).unwrap()
    }

    #[test]
    fn blocks_are_parsed_as_they_were_written() {
        let entries = vec![Bytes::from_static(b"one"), Bytes::from_static(b"two")];
        for next in [None, Some(without_key(&set(1..=4), 2))] {
            let content = BlockContent { entries: entries.clone(), next };
            let transactions = content.to_transactions();
            assert_eq!(BlockContent::parse(&transactions).unwrap(), content);
            // The next set is the last transaction, and there is one.
            let more = [transactions.clone(), transactions].concat();
            assert_eq!(BlockContent::parse(&more).is_ok(), content.next.is_none());
        }
        for wrong in [&b""[..], &[0], &[3], &[NEXT_SET], &[NEXT_SET, 0]] {
            assert!(BlockContent::parse(&[Bytes::copy_from_slice(wrong)]).is_err(), "{wrong:?}");
        }
    }

    /// Each server has one vote, whether it has a key or not, or claims that of another.
    #[test]
    fn all_servers_are_validators() {
        let four = set(1..=4);
        let partly = without_key(&four, 1);
        let mut voters = four.voters().to_vec();
        voters[3].key = voters[0].key;
        let twice = ServerSet::new(voters).unwrap();
        for set in [&four, &partly, &twice] {
            let keys: BTreeSet<_> = validator_keys(set).into_iter().collect();
            assert_eq!(keys.len(), 4);
        }
        let voting = four.voters()[0].key.unwrap().to_bytes();
        let address = &Sha256Digest::of(&[&voting]).0[..20];
        assert_eq!(server_of(&four, address), Some(four.voters()[0].identity));
        assert_eq!(server_of(&twice, address), Some(four.voters()[0].identity));
    }

    #[test]
    fn updates_lead_from_one_set_to_the_next() {
        let changes = |old: &ServerSet, new: &ServerSet| {
            let updates = validator_updates(old, new);
            let removed = updates.iter().filter(|it| it.power == 0).count();
            (removed, updates.len() - removed)
        };
        let four = set(1..=4);
        assert_eq!(changes(&four, &four), (0, 0));
        assert_eq!(changes(&four, &set([1, 2, 3, 5])), (1, 1));
        assert_eq!(changes(&four, &set(5..=11)), (4, 7));
        assert_eq!(changes(&four, &without_key(&four, 0)), (1, 1));
    }
}
