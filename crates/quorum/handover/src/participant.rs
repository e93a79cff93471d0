//! The servers of a group by their numbers, and how many of them may be faulty.

use std::fmt;
use std::num::NonZeroU8;

use curve25519_dalek::scalar::Scalar;
use encoding::FieldReader;

use crate::element::MalformedHandoverMessage;

/// The largest number of faulty servers that a group may tolerate: 100 servers.
pub const MAX_FAULTY: u8 = 33;

/// The number of a server in its group, from 1 to n: the participant identifier of RFC 9591, and
/// the point at which the server's share is the value of the sharing polynomial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParticipantId(NonZeroU8);

impl ParticipantId {
    /// The server with a number. `None` if it is 0, or more than the largest group has.
    pub fn new(number: u8) -> Option<Self> {
        let fits = number <= 3 * MAX_FAULTY + 1;
        NonZeroU8::new(number).filter(|_| fits).map(Self)
    }

    /// The number, from 1 on.
    pub fn number(self) -> u8 {
        self.0.get()
    }

    /// The number as a scalar.
    pub fn scalar(self) -> Scalar {
        Scalar::from(self.number())
    }

    /// Reads the encoding.
    ///
    /// # Errors
    /// If the bytes do not begin with it.
    pub fn read(reader: &mut FieldReader<'_>) -> Result<Self, MalformedHandoverMessage> {
        Self::new(reader.u8()?).ok_or(MalformedHandoverMessage("no number of a server"))
    }
}

impl fmt::Display for ParticipantId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// The size of a group of n = 3f+1 servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSize {
    faulty: u8,
}

impl GroupSize {
    /// The group that tolerates f faulty servers. `None` if f is 0 or more than [`MAX_FAULTY`].
    pub fn of_faulty(faulty: u8) -> Option<Self> {
        (1..=MAX_FAULTY).contains(&faulty).then_some(Self { faulty })
    }

    /// f, which is also the degree of the sharing polynomial.
    pub fn faulty(self) -> usize {
        self.faulty.into()
    }

    /// f, as it is encoded.
    pub fn to_byte(self) -> u8 {
        self.faulty
    }

    /// f+1: so many servers can sign, and at least one of them is correct.
    pub fn signer_count(self) -> usize {
        self.faulty() + 1
    }

    /// 2f+1: so many correct servers there are, and of so many servers most are correct.
    pub fn quorum(self) -> usize {
        2 * self.faulty() + 1
    }

    /// All servers, in the order of their numbers.
    pub fn participants(self) -> impl Iterator<Item = ParticipantId> {
        (1..=3 * self.faulty + 1).filter_map(ParticipantId::new)
    }

    /// Whether the group has this server.
    pub fn contains(self, server: ParticipantId) -> bool {
        server.number() <= 3 * self.faulty + 1
    }
}

/// A set of servers of one group.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct ParticipantSet(u128);

impl ParticipantSet {
    fn bit(server: ParticipantId) -> u128 {
        1 << (server.number() - 1)
    }

    /// Adds a server. Returns whether it is new.
    pub fn insert(&mut self, server: ParticipantId) -> bool {
        let is_new = !self.contains(server);
        self.0 |= Self::bit(server);
        is_new
    }

    /// Whether the set has this server.
    pub fn contains(self, server: ParticipantId) -> bool {
        self.0 & Self::bit(server) != 0
    }

    /// The number of servers.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether the set has no server.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The servers that are in this set and not in `other`.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The servers, in the order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = ParticipantId> {
        (1..=3 * MAX_FAULTY + 1).filter_map(ParticipantId::new).filter(move |it| self.contains(*it))
    }

    /// Appends the encoding, of 16 bytes.
    pub fn write(self, out: &mut Vec<u8>) {
        out.extend(self.0.to_be_bytes());
    }

    /// Reads the encoding.
    ///
    /// # Errors
    /// If the bytes do not begin with it.
    pub fn read(reader: &mut FieldReader<'_>) -> Result<Self, MalformedHandoverMessage> {
        let set = Self(u128::from_be_bytes(reader.take()?));
        let known = set.iter().collect::<Self>();
        if known == set { Ok(set) } else { Err(MalformedHandoverMessage("no number of a server")) }
    }
}

impl FromIterator<ParticipantId> for ParticipantSet {
    fn from_iter<T: IntoIterator<Item = ParticipantId>>(servers: T) -> Self {
        let mut set = Self::default();
        for server in servers {
            set.insert(server);
        }
        set
    }
}

impl fmt::Debug for ParticipantSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.iter().map(ParticipantId::number)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_read_as_written_and_has_servers_only() {
        let servers = [1, 4, 64, 65, 100].map(|number| ParticipantId::new(number).unwrap());
        let set: ParticipantSet = servers.into_iter().collect();
        let mut bytes = Vec::new();
        set.write(&mut bytes);
        assert_eq!(ParticipantSet::read(&mut FieldReader::new(&bytes)), Ok(set));
        assert_eq!(set.iter().collect::<Vec<_>>(), servers);
        bytes[0] |= 1 << 4;
        assert!(ParticipantSet::read(&mut FieldReader::new(&bytes)).is_err(), "server 101");
        assert!(ParticipantId::new(0).is_none());
        assert!(ParticipantId::new(101).is_none());
    }

    #[test]
    fn a_group_has_three_servers_for_each_faulty_one_and_one_more() {
        assert!(GroupSize::of_faulty(0).is_none());
        assert!(GroupSize::of_faulty(34).is_none());
        let size = GroupSize::of_faulty(33).unwrap();
        assert_eq!(size.participants().count(), 100);
        assert_eq!((size.signer_count(), size.quorum()), (34, 67));
    }
}
