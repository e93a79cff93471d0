//! The types that Malachite works on: heights, values, votes, proposals.

pub(crate) mod servers;

use std::fmt;

use arc_malachitebft_core_types::{
    self as types, NilOrVal, Round, SignedExtension, SigningScheme, VoteType,
};
use bytes::Bytes;
use keys::PublicKey;

use self::servers::{Server, Servers};
use crate::protocol::agreed::{Height, MAX_ENTRY_LEN};
use crate::protocol::wire::{Digest, Malformed, Reader, Write as _};

/// The largest length of a value's encoding, in bytes: an entry of the largest length fits.
pub(super) const MAX_VALUE_LEN: usize = 2 << 20;

/// The largest number of entries of a value.
pub(super) const MAX_ENTRIES: usize = 256;

impl types::Height for Height {
    const ZERO: Self = Self(0);
    const INITIAL: Self = Self(1);

    fn increment_by(&self, n: u64) -> Self {
        Self(self.0.saturating_add(n))
    }

    fn decrement_by(&self, n: u64) -> Option<Self> {
        self.0.checked_sub(n).map(Self)
    }

    fn as_u64(&self) -> u64 {
        self.0
    }
}

/// A server's name in the protocol: the bytes of its identity key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Address(pub(crate) [u8; 32]);

impl Address {
    /// The address of the server with this key.
    pub(crate) fn of(key: &PublicKey) -> Self {
        Self(key.to_bytes())
    }

    /// The key of the server with this address.
    pub(crate) fn key(&self) -> Option<PublicKey> {
        PublicKey::from_bytes(&self.0).ok()
    }
}

impl types::Address for Address {}

/// The hash by which votes name a value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ValueId(pub(crate) Digest);

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take(8).try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl fmt::Display for ValueId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl fmt::Debug for ValueId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// What a height of the log has: at least one entry, and the server that put them together, which
/// proposes first at the next height. Malachite clones values often: that is cheap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Value {
    id: ValueId,
    leader: Address,
    encoded: Bytes,
}

impl Value {
    /// The value of these entries; `None` without entries or beyond the limits of a value.
    pub(crate) fn new(leader: Address, entries: &[Bytes]) -> Option<Self> {
        let mut bytes = leader.0.to_vec();
        for entry in entries {
            bytes.put_counted(entry);
        }
        Self::parse(bytes.into()).ok()
    }

    /// Parses the encoding of a value.
    ///
    /// # Errors
    /// When it is not the encoding of a value.
    pub(crate) fn parse(encoded: Bytes) -> Result<Self, Malformed> {
        let (leader, _) = parse(&encoded)?;
        let id = ValueId(Digest::of(&[b"sunder-quorum log value v1\0", &encoded]));
        Ok(Self { id, leader, encoded })
    }

    /// The server that put the value together.
    pub(crate) fn leader(&self) -> Address {
        self.leader
    }

    pub(crate) fn id(&self) -> ValueId {
        self.id
    }

    /// The entries, in their order.
    pub(crate) fn entries(&self) -> Vec<Bytes> {
        // The form was checked when the value was made.
        parse(&self.encoded).map(|(_, entries)| entries).unwrap_or_default()
    }

    /// What [`Self::parse`] parses.
    pub(crate) fn encoded(&self) -> &Bytes {
        &self.encoded
    }
}

/// Parses a value: who put it together, and the entries.
fn parse(encoded: &Bytes) -> Result<(Address, Vec<Bytes>), Malformed> {
    if encoded.len() > MAX_VALUE_LEN {
        return Err(Malformed("a value is too long"));
    }
    let mut reader = Reader::new(encoded);
    let leader = Address(reader.array()?);
    let mut entries = Vec::new();
    while !reader.is_empty() {
        let entry = reader.counted()?;
        if !(1..=MAX_ENTRY_LEN).contains(&entry.len()) || entries.len() == MAX_ENTRIES {
            return Err(Malformed("entries of a value are out of bounds"));
        }
        entries.push(encoded.slice_ref(entry));
    }
    if entries.is_empty() {
        Err(Malformed("a value without entries"))
    } else {
        Ok((leader, entries))
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Value({}, {} bytes)", self.id, self.encoded.len())
    }
}

impl types::Value for Value {
    type Id = ValueId;

    fn id(&self) -> ValueId {
        self.id
    }
}

/// A server's vote in a round, for a value or for none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vote {
    /// Prevote or precommit.
    pub(crate) kind: VoteType,
    /// The height voted on.
    pub(crate) height: Height,
    /// The round of that height.
    pub(crate) round: Round,
    /// The value voted for.
    pub(crate) value: NilOrVal<ValueId>,
    /// Who votes.
    pub(crate) voter: Address,
}

impl types::Vote<Context> for Vote {
    fn height(&self) -> Height {
        self.height
    }

    fn round(&self) -> Round {
        self.round
    }

    fn value(&self) -> &NilOrVal<ValueId> {
        &self.value
    }

    fn take_value(self) -> NilOrVal<ValueId> {
        self.value
    }

    fn vote_type(&self) -> VoteType {
        self.kind
    }

    fn validator_address(&self) -> &Address {
        &self.voter
    }

    // Vote extensions are not used: the policy of every height is `Disabled`.

    fn extension(&self) -> Option<&SignedExtension<Context>> {
        None
    }

    fn take_extension(&mut self) -> Option<SignedExtension<Context>> {
        None
    }

    fn extend(self, _extension: SignedExtension<Context>) -> Self {
        self
    }
}

/// A value proposed in a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proposal {
    /// The height proposed for.
    pub(crate) height: Height,
    /// The round of that height.
    pub(crate) round: Round,
    /// The whole value: there are no separate parts.
    pub(crate) value: Value,
    /// The earlier round with 2f+1 prevotes for the value, or nil for a new value.
    pub(crate) pol_round: Round,
    /// Who proposes.
    pub(crate) proposer: Address,
}

impl types::Proposal<Context> for Proposal {
    fn height(&self) -> Height {
        self.height
    }

    fn round(&self) -> Round {
        self.round
    }

    fn value(&self) -> &Value {
        &self.value
    }

    fn take_value(self) -> Value {
        self.value
    }

    fn pol_round(&self) -> Round {
        self.pol_round
    }

    fn validator_address(&self) -> &Address {
        &self.proposer
    }
}

/// Values travel in the proposals, so there are no parts of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoPart {}

impl types::ProposalPart<Context> for NoPart {
    fn is_first(&self) -> bool {
        match *self {}
    }

    fn is_last(&self) -> bool {
        match *self {}
    }
}

/// An Ed25519 signature.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Signature(pub(crate) [u8; 64]);

impl fmt::Debug for Signature {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take(4).try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

/// Ed25519. A server without a voting key has none. Malachite does not get private keys, so theirs
/// is the unit type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scheme;

impl SigningScheme for Scheme {
    type DecodingError = Malformed;
    type Signature = Signature;
    type PublicKey = Option<PublicKey>;
    type PrivateKey = ();

    fn decode_signature(bytes: &[u8]) -> Result<Signature, Malformed> {
        bytes.try_into().map(Signature).map_err(|_| Malformed("a signature has 64 bytes"))
    }

    fn encode_signature(signature: &Signature) -> Vec<u8> {
        signature.0.to_vec()
    }

    fn decode_public_key(bytes: &[u8]) -> Result<Option<PublicKey>, Malformed> {
        let key = bytes.try_into().ok().and_then(|bytes| PublicKey::from_bytes(bytes).ok());
        key.map(Some).ok_or(Malformed("not a public key"))
    }

    fn encode_public_key(key: &Option<PublicKey>) -> Vec<u8> {
        key.iter().flat_map(PublicKey::to_bytes).collect()
    }
}

/// Malachite's name for the choice of all these types.
#[derive(Clone, Debug)]
pub(crate) struct Context;

impl types::Context for Context {
    type Address = Address;
    type Height = Height;
    type ProposalPart = NoPart;
    type Proposal = Proposal;
    type Validator = Server;
    type ValidatorSet = Servers;
    type Timeouts = types::LinearTimeouts;
    type Value = Value;
    type Vote = Vote;
    type Extension = ();
    type SigningScheme = Scheme;

    fn select_proposer<'a>(&self, set: &'a Servers, _: Height, round: Round) -> &'a Server {
        set.proposer(round)
    }

    fn new_proposal(
        &self,
        height: Height,
        round: Round,
        value: Value,
        pol_round: Round,
        proposer: Address,
    ) -> Proposal {
        Proposal { height, round, value, pol_round, proposer }
    }

    fn new_prevote(
        &self,
        height: Height,
        round: Round,
        value: NilOrVal<ValueId>,
        voter: Address,
    ) -> Vote {
        Vote { kind: VoteType::Prevote, height, round, value, voter }
    }

    fn new_precommit(
        &self,
        height: Height,
        round: Round,
        value: NilOrVal<ValueId>,
        voter: Address,
    ) -> Vote {
        Vote { kind: VoteType::Precommit, height, round, value, voter }
    }
}
