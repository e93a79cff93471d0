//! The types with which Malachite is instantiated: heights, values, votes, proposals.

pub(crate) mod servers;

use std::fmt;

use arc_malachitebft_core_types::{
    self as types, NilOrVal, Round, SignedExtension, SigningScheme, VoteType,
};
use base16ct::HexDisplay;
use bytes::Bytes;
use encoding::{FieldReader, FieldWrite as _};
use keys::IdentityPublicKey;

use self::servers::{ConsensusValidator, ConsensusValidatorSet};
use crate::protocol::log_types::{Height, MAX_ENTRY_LEN};
use crate::protocol::wire::{MalformedEncoding, Sha256Digest};

/// The largest length of an encoded value, in bytes. An entry of the largest length fits.
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

/// A server's address in the protocol: the bytes of its identity key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ValidatorAddress(pub(crate) [u8; 32]);

impl ValidatorAddress {
    /// The address of the server with this key.
    pub(crate) fn of(key: &IdentityPublicKey) -> Self {
        Self(key.to_bytes())
    }

    /// The text of the server's identity key. To decode the key takes as long as a signature.
    pub(crate) fn key_text(&self) -> String {
        format!("{:x}", HexDisplay(&self.0))
    }

    /// The key of the server with this address.
    pub(crate) fn key(&self) -> Option<IdentityPublicKey> {
        IdentityPublicKey::from_bytes(&self.0).ok()
    }
}

impl types::Address for ValidatorAddress {}

/// The hash that identifies a value in votes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ValueId(pub(crate) Sha256Digest);

impl fmt::Display for ValidatorAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:x}", HexDisplay(&self.0[..8]))
    }
}

impl fmt::Debug for ValidatorAddress {
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

/// The value of a height: at least one entry, and its author, which proposes first at the next
/// height. Malachite clones values often, and clones are cheap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogValue {
    id: ValueId,
    leader: ValidatorAddress,
    encoded: Bytes,
}

impl LogValue {
    /// A value with these entries. `None` without entries, or if the limits of a value are
    /// exceeded.
    pub(crate) fn new(leader: ValidatorAddress, entries: &[Bytes]) -> Option<Self> {
        // Before they are copied: a proposal by digests can name many large entries.
        let len = entries.iter().fold(leader.0.len(), |len, entry| len + 4 + entry.len());
        if len > MAX_VALUE_LEN {
            return None;
        }
        let mut bytes = leader.0.to_vec();
        for entry in entries {
            bytes.put_counted(entry);
        }
        Self::parse(bytes.into()).ok()
    }

    /// Parses the encoding of a value.
    ///
    /// # Errors
    /// If it is not the encoding of a value.
    pub(crate) fn parse(encoded: Bytes) -> Result<Self, MalformedEncoding> {
        let (leader, _) = parse(&encoded)?;
        let id = ValueId(Sha256Digest::of(&[b"sunder-quorum log value v1\0", &encoded]));
        Ok(Self { id, leader, encoded })
    }

    /// The author of the value.
    pub(crate) fn leader(&self) -> ValidatorAddress {
        self.leader
    }

    pub(crate) fn id(&self) -> ValueId {
        self.id
    }

    /// The entries, in their order.
    pub(crate) fn entries(&self) -> Vec<Bytes> {
        // The encoding was checked when the value was created.
        parse(&self.encoded).map(|(_, entries)| entries).unwrap_or_default()
    }

    /// The encoding.
    pub(crate) fn encoded(&self) -> &Bytes {
        &self.encoded
    }
}

/// Parses a value into its author and entries.
fn parse(encoded: &Bytes) -> Result<(ValidatorAddress, Vec<Bytes>), MalformedEncoding> {
    if encoded.len() > MAX_VALUE_LEN {
        return Err(MalformedEncoding("a value is too long"));
    }
    let mut reader = FieldReader::new(encoded);
    let leader = ValidatorAddress(reader.take()?);
    let mut entries = Vec::new();
    while !reader.is_empty() {
        let entry = reader.counted()?;
        if !(1..=MAX_ENTRY_LEN).contains(&entry.len()) || entries.len() == MAX_ENTRIES {
            return Err(MalformedEncoding("entries of a value are out of bounds"));
        }
        entries.push(encoded.slice_ref(entry));
    }
    if entries.is_empty() {
        Err(MalformedEncoding("a value without entries"))
    } else {
        Ok((leader, entries))
    }
}

impl fmt::Debug for LogValue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Value({}, {} bytes)", self.id, self.encoded.len())
    }
}

impl types::Value for LogValue {
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
    /// The voter.
    pub(crate) voter: ValidatorAddress,
}

impl types::Vote<ConsensusContext> for Vote {
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

    fn validator_address(&self) -> &ValidatorAddress {
        &self.voter
    }

    // Vote extensions are not used: the policy of every height is `Disabled`.

    fn extension(&self) -> Option<&SignedExtension<ConsensusContext>> {
        None
    }

    fn take_extension(&mut self) -> Option<SignedExtension<ConsensusContext>> {
        None
    }

    fn extend(self, _extension: SignedExtension<ConsensusContext>) -> Self {
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
    pub(crate) value: LogValue,
    /// The earlier round with 2f+1 prevotes for the value, or nil for a new value.
    pub(crate) pol_round: Round,
    /// The proposer.
    pub(crate) proposer: ValidatorAddress,
}

impl types::Proposal<ConsensusContext> for Proposal {
    fn height(&self) -> Height {
        self.height
    }

    fn round(&self) -> Round {
        self.round
    }

    fn value(&self) -> &LogValue {
        &self.value
    }

    fn take_value(self) -> LogValue {
        self.value
    }

    fn pol_round(&self) -> Round {
        self.pol_round
    }

    fn validator_address(&self) -> &ValidatorAddress {
        &self.proposer
    }
}

/// Proposals contain the whole value, so there are no parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoProposalPart {}

impl types::ProposalPart<ConsensusContext> for NoProposalPart {
    fn is_first(&self) -> bool {
        match *self {}
    }

    fn is_last(&self) -> bool {
        match *self {}
    }
}

/// An Ed25519 signature.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ed25519Signature(pub(crate) [u8; 64]);

impl fmt::Debug for Ed25519Signature {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:x}", HexDisplay(&self.0[..4]))
    }
}

/// Ed25519. The public key is optional, because a server may lack a voting key. Malachite does not
/// get private keys, so their type is the unit type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ed25519Scheme;

impl SigningScheme for Ed25519Scheme {
    type DecodingError = MalformedEncoding;
    type Signature = Ed25519Signature;
    type PublicKey = Option<IdentityPublicKey>;
    type PrivateKey = ();

    fn decode_signature(bytes: &[u8]) -> Result<Ed25519Signature, MalformedEncoding> {
        bytes
            .try_into()
            .map(Ed25519Signature)
            .map_err(|_| MalformedEncoding("a signature has 64 bytes"))
    }

    fn encode_signature(signature: &Ed25519Signature) -> Vec<u8> {
        signature.0.to_vec()
    }

    fn decode_public_key(bytes: &[u8]) -> Result<Option<IdentityPublicKey>, MalformedEncoding> {
        let key = bytes.try_into().ok().and_then(|bytes| IdentityPublicKey::from_bytes(bytes).ok());
        key.map(Some).ok_or(MalformedEncoding("not a public key"))
    }

    fn encode_public_key(key: &Option<IdentityPublicKey>) -> Vec<u8> {
        key.iter().flat_map(IdentityPublicKey::to_bytes).collect()
    }
}

/// The set of all these types, as Malachite requires.
#[derive(Clone, Debug)]
pub(crate) struct ConsensusContext;

impl types::Context for ConsensusContext {
    type Address = ValidatorAddress;
    type Height = Height;
    type ProposalPart = NoProposalPart;
    type Proposal = Proposal;
    type Validator = ConsensusValidator;
    type ValidatorSet = ConsensusValidatorSet;
    type Timeouts = types::LinearTimeouts;
    type Value = LogValue;
    type Vote = Vote;
    type Extension = ();
    type SigningScheme = Ed25519Scheme;

    fn select_proposer<'a>(
        &self,
        set: &'a ConsensusValidatorSet,
        _: Height,
        round: Round,
    ) -> &'a ConsensusValidator {
        set.proposer(round)
    }

    fn new_proposal(
        &self,
        height: Height,
        round: Round,
        value: LogValue,
        pol_round: Round,
        proposer: ValidatorAddress,
    ) -> Proposal {
        Proposal { height, round, value, pol_round, proposer }
    }

    fn new_prevote(
        &self,
        height: Height,
        round: Round,
        value: NilOrVal<ValueId>,
        voter: ValidatorAddress,
    ) -> Vote {
        Vote { kind: VoteType::Prevote, height, round, value, voter }
    }

    fn new_precommit(
        &self,
        height: Height,
        round: Round,
        value: NilOrVal<ValueId>,
        voter: ValidatorAddress,
    ) -> Vote {
        Vote { kind: VoteType::Precommit, height, round, value, voter }
    }
}
