//! The part of a handover that depends on how the key is shared, and the terms of a handover.

use std::fmt;

use encoding::FieldReader;
use zeroize::{Zeroize, Zeroizing};

use crate::element::MalformedHandoverMessage;
use crate::participant::{GroupSize, ParticipantId};

/// A public value with one encoding.
pub trait HandoverField: Clone + fmt::Debug + PartialEq + Eq + Sized {
    /// Appends the encoding.
    fn write(&self, out: &mut Vec<u8>);

    /// Reads a value, and leaves what follows it.
    ///
    /// # Errors
    /// If the bytes do not begin with the encoding of a value.
    fn read(reader: &mut FieldReader<'_>) -> Result<Self, MalformedHandoverMessage>;
}

/// How a key is shared among the servers of a group by a symmetric polynomial F(u, v) of degree f
/// in each variable. Server j has the row F(j, v), and two servers j and k have the value F(j, k)
/// in common. A type that implements this stands for a way to share, and has no values.
pub trait HandoverScheme: Clone + fmt::Debug + PartialEq + Eq + Sized {
    /// The public commitment to the sharing of a group's key.
    type Sharing: Clone + fmt::Debug + PartialEq + Eq;
    /// The public part of a dealing: the commitment to the dealer's polynomial, and how its secret
    /// follows from the dealer's share.
    type Commitment: HandoverField;
    /// The proof that a dealer knows the secret of its polynomial, if it needs one.
    type ConstantProof: HandoverField;
    /// The polynomial of a dealer. Secret.
    type Polynomial;
    /// A row of a dealer's polynomial. Secret.
    type Row;
    /// A common value. Secret.
    type Value: Zeroize;
    /// The common values of one row, until they determine it.
    type Repair;
    /// A server's row of the group's polynomial, together with the group's sharing. Secret.
    type Share;
    /// The proof that a server has its share.
    type Possession: HandoverField;

    /// The size of the group that has this sharing.
    fn size(sharing: &Self::Sharing) -> GroupSize;

    /// The polynomial of a dealer with this share, or without one if a key is generated. All that
    /// is random in it follows from the seed. `None` if the terms do not permit it, or if it is not
    /// the share of this server.
    fn polynomial(
        terms: &HandoverTerms<Self>,
        dealer: ParticipantId,
        share: Option<&Self::Share>,
        seed: &[u8; 32],
    ) -> Option<Self::Polynomial>;

    /// The public part of the dealing of this polynomial.
    fn commitment(
        terms: &HandoverTerms<Self>,
        dealer: ParticipantId,
        polynomial: &Self::Polynomial,
    ) -> Self::Commitment;

    /// The proof that the dealer knows the secret of this polynomial.
    fn prove_constant(
        terms: &HandoverTerms<Self>,
        dealer: ParticipantId,
        polynomial: &Self::Polynomial,
    ) -> Self::ConstantProof;

    /// Checks the public part of a dealing.
    ///
    /// # Errors
    /// Why it proves its dealer faulty.
    fn check_commitment(
        terms: &HandoverTerms<Self>,
        dealer: ParticipantId,
        commitment: &Self::Commitment,
        proof: &Self::ConstantProof,
    ) -> Result<(), DealingFault>;

    /// A receiver's row of a dealer's polynomial, with room for `extra` more bytes.
    fn encode_dealt_row(
        polynomial: &Self::Polynomial,
        receiver: ParticipantId,
        extra: usize,
    ) -> Zeroizing<Vec<u8>>;

    /// The length in bytes of [`Self::encode_dealt_row`], as the commitment says.
    fn dealt_row_len(commitment: &Self::Commitment) -> usize;

    /// Decodes a receiver's row. `None` if it is not the row that the commitment says, or too
    /// large. All servers must come to the same result.
    fn decode_dealt_row(
        terms: &HandoverTerms<Self>,
        commitment: &Self::Commitment,
        receiver: ParticipantId,
        bytes: &[u8],
    ) -> Option<Self::Row>;

    /// Whether a server that has this row may say so. Rows that f'+1 correct servers say they have
    /// bound the size of all others, which follow from them. Numbers of one size need no bound.
    fn may_hold(_: &HandoverTerms<Self>, _: &Self::Row) -> bool {
        true
    }

    /// The length in bytes of a row in the store.
    fn row_len(terms: &HandoverTerms<Self>) -> usize;

    /// Encodes a row for the store.
    fn encode_row(row: &Self::Row) -> Zeroizing<Vec<u8>>;

    /// Decodes what [`Self::encode_row`] has made.
    ///
    /// # Errors
    /// If the bytes do not begin with a row.
    fn read_row(
        terms: &HandoverTerms<Self>,
        reader: &mut FieldReader<'_>,
    ) -> Result<Self::Row, MalformedHandoverMessage>;

    /// The value that the owner of a row has in common with another server.
    fn common_value(row: &Self::Row, other: ParticipantId) -> Zeroizing<Self::Value>;

    /// The repair of a server's row.
    fn new_repair(server: ParticipantId) -> Self::Repair;

    /// Takes a common value from another server. Returns the row when there are enough. Wrong
    /// values, and repeated ones, change nothing.
    fn repair(
        terms: &HandoverTerms<Self>,
        commitment: &Self::Commitment,
        repair: &mut Self::Repair,
        from: ParticipantId,
        value: &Self::Value,
    ) -> Option<Self::Row>;

    /// The new group's sharing that follows from the chosen dealings, which have been checked.
    fn combine(
        terms: &HandoverTerms<Self>,
        chosen: &[(ParticipantId, &Self::Commitment)],
    ) -> Self::Sharing;

    /// The share of a new server that follows from its rows of the chosen dealings. `None` if it
    /// does not fit the new group's sharing, which does not happen if the rows have been checked.
    fn combine_rows(
        terms: &HandoverTerms<Self>,
        server: ParticipantId,
        chosen: &[(ParticipantId, &Self::Commitment, &Self::Row)],
        sharing: &Self::Sharing,
    ) -> Option<Self::Share>;

    /// The proof that a server has its share, bound to a context.
    fn prove_possession(share: &Self::Share, context: &[u8]) -> Self::Possession;

    /// Whether the proof that a server has its share is right.
    fn verify_possession(
        sharing: &Self::Sharing,
        server: ParticipantId,
        proof: &Self::Possession,
        context: &[u8],
    ) -> bool;
}

/// Why a dealing proves its dealer faulty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DealingFault {
    /// The commitment is to a sharing of another degree than f'.
    #[error("the sharing has the wrong degree")]
    Degree,
    /// The dealer does not share its own share.
    #[error("the shared secret is not the dealer's share")]
    Secret,
    /// The dealer does not show that it knows the secret, or the ephemeral key.
    #[error("a proof of knowledge is wrong")]
    Knowledge,
    /// A number is out of its range.
    #[error("a number is out of its range")]
    Range,
    /// There are fewer than 2f'+1 receivers.
    #[error("the dealing has fewer than 2f+1 receivers")]
    Receivers,
}

/// The terms of a handover, on which all servers agree before it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandoverTerms<S: HandoverScheme> {
    /// Identifies this handover: a hash of the epoch, the number of the attempt, both groups and
    /// the old group's sharing. No two handovers may have the same.
    pub run: [u8; 32],
    /// The old group's sharing. `None` to generate a key.
    pub old: Option<S::Sharing>,
    /// The size of the new group.
    pub new: GroupSize,
}

/// A part of a context to which a proof or a key is bound.
#[derive(Clone, Copy, Debug)]
pub enum HandoverPurpose {
    /// The proof that a receiver knows its session key.
    SessionKey,
    /// The proof that a dealer knows its ephemeral key.
    EphemeralKey,
    /// The proof that a dealer knows the secret that it shares.
    Constant,
    /// The encryption of a row.
    Encryption,
    /// The proof that the key in a complaint is the right one.
    Complaint,
    /// The proof that a receiver has its share.
    Possession,
}

impl<S: HandoverScheme> HandoverTerms<S> {
    /// The size of the group whose servers deal.
    pub fn dealers(&self) -> GroupSize {
        self.old.as_ref().map_or(self.new, S::size)
    }

    /// What binds a proof or a key to this handover, its purpose, and these servers.
    pub fn context(&self, purpose: HandoverPurpose, servers: &[ParticipantId]) -> Vec<u8> {
        let label: &[u8] = match purpose {
            HandoverPurpose::SessionKey => b"session key\0",
            HandoverPurpose::EphemeralKey => b"ephemeral key\0",
            HandoverPurpose::Constant => b"constant\0",
            HandoverPurpose::Encryption => b"encryption\0",
            HandoverPurpose::Complaint => b"complaint\0",
            HandoverPurpose::Possession => b"possession\0",
        };
        let mut context = [b"sunder-schnorr handover v1\0", &self.run[..], label].concat();
        context.extend(servers.iter().map(|server| server.number()));
        context
    }
}
