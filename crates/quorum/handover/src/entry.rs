//! The entries of the log. Whoever delivers an entry has checked that its author has signed it.

use encoding::FieldReader;

use crate::dealing::HandoverDealing;
use crate::element::{MalformedHandoverMessage, PrimeOrderPoint};
use crate::participant::{ParticipantId, ParticipantSet};
use crate::proof::LogarithmProof;
use crate::scheme::{HandoverField as _, HandoverScheme};

/// The largest entry in bytes. A dealing of scalars to 100 servers has 129,650, and one of integers
/// with a key of 2048 bits to 31 servers has 131,120.
pub const MAX_HANDOVER_ENTRY_LEN: usize = 1 << 20;

/// An entry. Only its encoding has been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandoverEntry<S: HandoverScheme> {
    /// [`crate::scheme::HandoverTerms::run`].
    pub run: [u8; 32],
    /// What its author says.
    pub body: HandoverEntryBody<S>,
}

/// What the author of an entry says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandoverEntryBody<S: HandoverScheme> {
    /// A new server's session key R, and the proof that it knows r.
    Key {
        /// R.
        key: PrimeOrderPoint,
        /// The proof for r.
        proof: LogarithmProof,
    },
    /// A dealer's sharing.
    Deal(Box<HandoverDealing<S>>),
    /// A new server has its rows of these dealings, and has saved them.
    Hold(ParticipantSet),
    /// A new server shows that a dealer's ciphertext for it is wrong: it publishes K, with the
    /// proof that it has the logarithm of R to the base E.
    Complain {
        /// The dealer.
        dealer: ParticipantId,
        /// K.
        agreed: PrimeOrderPoint,
        /// The proof for K.
        proof: LogarithmProof,
    },
    /// A new server has saved its share: the proof that it knows it.
    Confirm(S::Possession),
}

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoverEntryKind {
    /// A new server registers its session key.
    Key,
    /// A dealer shares its secret.
    Deal,
    /// A new server has its rows of dealings.
    Hold,
    /// A new server shows that a dealer's ciphertext for it is wrong.
    Complain {
        /// The dealer.
        dealer: ParticipantId,
    },
    /// A new server has its share.
    Confirm,
}

/// The group to which the author of an entry belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoverRole {
    /// The old group, or the new group when a key is generated.
    Dealer,
    /// The new group.
    Receiver,
}

/// What an encoded entry begins with. It has no points, so it is cheap to read, and a server can
/// check the author of an entry before it decodes the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandoverEntryHeader {
    /// [`crate::scheme::HandoverTerms::run`].
    pub run: [u8; 32],
    /// What the entry says.
    pub kind: HandoverEntryKind,
}

impl HandoverEntryHeader {
    /// Reads the beginning of an encoded entry. What follows may be malformed.
    ///
    /// # Errors
    /// If no entry begins with these bytes.
    pub fn read(bytes: &[u8]) -> Result<Self, MalformedHandoverMessage> {
        Self::read_from(&mut FieldReader::new(bytes))
    }

    fn read_from(reader: &mut FieldReader<'_>) -> Result<Self, MalformedHandoverMessage> {
        let run = reader.take()?;
        let kind = match reader.u8()? {
            1 => HandoverEntryKind::Key,
            2 => HandoverEntryKind::Deal,
            3 => HandoverEntryKind::Hold,
            4 => HandoverEntryKind::Complain { dealer: ParticipantId::read(reader)? },
            5 => HandoverEntryKind::Confirm,
            _ => return Err(MalformedHandoverMessage("unknown kind of entry")),
        };
        Ok(Self { run, kind })
    }
}

impl HandoverEntryKind {
    /// The group to which the author must belong.
    pub fn role(self) -> HandoverRole {
        match self {
            Self::Deal => HandoverRole::Dealer,
            Self::Key | Self::Hold | Self::Complain { .. } | Self::Confirm => {
                HandoverRole::Receiver
            }
        }
    }
}

impl<S: HandoverScheme> HandoverEntry<S> {
    /// The group to which the author must belong.
    pub fn role(&self) -> HandoverRole {
        self.kind().role()
    }

    /// The handover to which it belongs ([`HandoverTerms::run`](super::HandoverTerms::run)).
    pub fn run(&self) -> [u8; 32] {
        self.run
    }

    /// What it says.
    pub fn kind(&self) -> HandoverEntryKind {
        match &self.body {
            HandoverEntryBody::Key { .. } => HandoverEntryKind::Key,
            HandoverEntryBody::Deal(_) => HandoverEntryKind::Deal,
            HandoverEntryBody::Hold(_) => HandoverEntryKind::Hold,
            HandoverEntryBody::Complain { dealer, .. } => {
                HandoverEntryKind::Complain { dealer: *dealer }
            }
            HandoverEntryBody::Confirm(_) => HandoverEntryKind::Confirm,
        }
    }

    /// The encoding.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = self.run.to_vec();
        match &self.body {
            HandoverEntryBody::Key { key, proof } => {
                out.push(1);
                out.extend(key.to_bytes());
                proof.write(&mut out);
            }
            HandoverEntryBody::Deal(dealing) => {
                out.push(2);
                dealing.write(&mut out);
            }
            HandoverEntryBody::Hold(dealers) => {
                out.push(3);
                dealers.write(&mut out);
            }
            HandoverEntryBody::Complain { dealer, agreed, proof } => {
                out.extend([4, dealer.number()]);
                out.extend(agreed.to_bytes());
                proof.write(&mut out);
            }
            HandoverEntryBody::Confirm(proof) => {
                out.push(5);
                proof.write(&mut out);
            }
        }
        out
    }

    /// Decodes an entry.
    ///
    /// # Errors
    /// If the bytes are not exactly an entry.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MalformedHandoverMessage> {
        if bytes.len() > MAX_HANDOVER_ENTRY_LEN {
            return Err(MalformedHandoverMessage("larger than an entry may be"));
        }
        let mut reader = FieldReader::new(bytes);
        let HandoverEntryHeader { run, kind } = HandoverEntryHeader::read_from(&mut reader)?;
        let body = match kind {
            HandoverEntryKind::Key => HandoverEntryBody::Key {
                key: PrimeOrderPoint::read(&mut reader)?,
                proof: LogarithmProof::read(&mut reader)?,
            },
            HandoverEntryKind::Deal => {
                HandoverEntryBody::Deal(Box::new(HandoverDealing::read(&mut reader)?))
            }
            HandoverEntryKind::Hold => HandoverEntryBody::Hold(ParticipantSet::read(&mut reader)?),
            HandoverEntryKind::Complain { dealer } => HandoverEntryBody::Complain {
                dealer,
                agreed: PrimeOrderPoint::read(&mut reader)?,
                proof: LogarithmProof::read(&mut reader)?,
            },
            HandoverEntryKind::Confirm => {
                HandoverEntryBody::Confirm(S::Possession::read(&mut reader)?)
            }
        };
        reader.finish()?;
        Ok(Self { run, body })
    }
}
