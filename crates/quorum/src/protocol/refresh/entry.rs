//! The entries of the agreement log. Each is signed by its author's identity key.

use keys::{PublicKey, SecretKey};

use super::manifest::Manifest;
use super::session::{SessionPoint, SessionProof};
use crate::protocol::admission::Slot;
use crate::protocol::combination::{Label, ServerIndex};
use crate::protocol::group::Group;
use crate::protocol::voting::{VotingKey, read_optional_key, write_key};
use crate::protocol::wire::{Digest, Malformed, Reader, Write};

/// The largest entry in bytes. The witnesses of 13 servers under 4,096 bits have 366,080.
pub const MAX_ENTRY_LEN: usize = 1 << 20;

const DOMAIN: &[u8] = b"SNDR-QUORUM-ENTRY\0";

/// An entry of the agreement log, of which only the encoding has been checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The server that has signed it: of the old group or the new one, according to its body.
    pub(crate) author: ServerIndex,
    pub(crate) body: Body,
    /// The message that the author has signed.
    signed: Vec<u8>,
    signature: [u8; 64],
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Body {
    /// An old server's operator asks for a refresh to this group.
    Approve { epoch: Digest, run: u32, group: Group },
    /// An old server's operator gives a run up.
    Cancel { epoch: Digest, run: u32 },
    /// A new server's session key `R_j`, and its voting key of the epoch that is to begin.
    SessionKey { run: Digest, key: SessionPoint, voting: Box<VotingKey> },
    /// A dealing that 2f'+1 new servers have confirmed, from its dealer.
    Proved { manifest: Manifest, confirmations: Vec<(ServerIndex, [u8; 64])> },
    /// A new server's evidence that a dealer has sent it a wrong subshare.
    Complaint { run: Digest, complaint: Box<Complaint> },
    /// A new server has its shares. The witnesses and the proof of possession are not parsed yet.
    Computed { run: Digest, witnesses: Vec<u8>, possession: Vec<u8> },
    /// A server of the epoch has this voting key, in place of the one that it had.
    Voting { epoch: Digest, replaced: Option<PublicKey>, voting: Box<VotingKey> },
}

/// Which group the author of an entry belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The old one.
    Old,
    /// The new one.
    New,
}

/// The evidence of a complaint about one subshare.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Complaint {
    pub(crate) manifest: Manifest,
    /// The label t of the row.
    pub(crate) label: Label,
    /// The label u of the wrong subshare. Any that the complainant holds if the ciphertext cannot
    /// be decrypted.
    pub(crate) subshare: Label,
    /// The row's proofs.
    pub(crate) proofs: Vec<u8>,
    /// The digests of the complainant's ciphertexts, one for each row, and the dealer's signature.
    pub(crate) ciphertexts: Vec<Digest>,
    pub(crate) delivery: [u8; 64],
    /// The row's ciphertext.
    pub(crate) ciphertext: Vec<u8>,
    /// K, and the proof that it is the point on which complainant and dealer agree.
    pub(crate) agreed: SessionPoint,
    pub(crate) proof: SessionProof,
}

impl Entry {
    /// An entry signed with its author's identity key.
    pub(crate) fn new(author: ServerIndex, body: Body, identity: &SecretKey) -> Self {
        let mut signed = DOMAIN.to_vec();
        signed.push(author.0);
        body.write(&mut signed);
        let signature = identity.sign(&signed);
        Self { author, body, signed, signature }
    }

    /// The entry as the log carries it.
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.signed[DOMAIN.len()..], &self.signature].concat()
    }

    /// Parses an entry.
    ///
    /// # Errors
    /// If the bytes are not exactly an entry.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        if bytes.len() > MAX_ENTRY_LEN {
            return Err(Malformed("larger than an entry may be"));
        }
        let (body, signature) = bytes.split_last_chunk().ok_or(Malformed("too short"))?;
        let mut reader = Reader::new(body);
        let author = reader.server()?;
        let parsed = Body::read(&mut reader)?;
        reader.finish()?;
        Ok(Self { author, body: parsed, signed: [DOMAIN, body].concat(), signature: *signature })
    }

    pub(crate) fn side(&self) -> Side {
        match self.body {
            Body::Approve { .. }
            | Body::Cancel { .. }
            | Body::Proved { .. }
            | Body::Voting { .. } => Side::Old,
            Body::SessionKey { .. } | Body::Complaint { .. } | Body::Computed { .. } => Side::New,
        }
    }

    /// What it would change, by author, kind, and round or dealer.
    pub(crate) fn slot(&self) -> Slot {
        let (kind, part) = match &self.body {
            Body::Approve { .. } => (1, 0),
            Body::Cancel { .. } => (2, 0),
            Body::SessionKey { .. } => (3, 0),
            Body::Proved { manifest, .. } => (4, manifest.round.0),
            Body::Complaint { complaint, .. } => (5, complaint.manifest.dealer.0),
            Body::Computed { .. } => (6, 0),
            Body::Voting { .. } => (7, 0),
        };
        Slot(u64::from_be_bytes([0, 0, 0, 0, 0, kind, self.author.0, part]))
    }

    /// Whether the author has signed it. `group` is that of [`Self::side`].
    pub(crate) fn is_signed(&self, group: &Group) -> bool {
        group.verify(self.author, &self.signed, &self.signature)
    }
}

impl Body {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Approve { epoch, run, group } => {
                out.push(1);
                out.extend(epoch.0);
                out.put_u32(*run);
                group.write(out);
            }
            Self::Cancel { epoch, run } => {
                out.push(2);
                out.extend(epoch.0);
                out.put_u32(*run);
            }
            Self::SessionKey { run, key, voting } => {
                out.push(3);
                out.extend(run.0);
                out.extend(key.as_bytes());
                voting.write(out);
            }
            Self::Proved { manifest, confirmations } => {
                out.push(4);
                manifest.write(out);
                out.push(u8::try_from(confirmations.len()).expect("a group has 13 servers"));
                for (server, signature) in confirmations {
                    out.push(server.0);
                    out.extend(signature);
                }
            }
            Self::Complaint { run, complaint } => {
                out.push(5);
                out.extend(run.0);
                complaint.write(out);
            }
            Self::Computed { run, witnesses, possession } => {
                out.push(6);
                out.extend(run.0);
                out.put_counted(witnesses);
                out.put_counted(possession);
            }
            Self::Voting { epoch, replaced, voting } => {
                out.push(7);
                out.extend(epoch.0);
                write_key(replaced.as_ref(), out);
                voting.write(out);
            }
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match reader.u8()? {
            1 => Self::Approve {
                epoch: reader.digest()?,
                run: reader.u32()?,
                group: Group::read(reader)?,
            },
            2 => Self::Cancel { epoch: reader.digest()?, run: reader.u32()? },
            3 => Self::SessionKey {
                run: reader.digest()?,
                key: SessionPoint::read(reader)?,
                voting: Box::new(VotingKey::read(reader)?),
            },
            4 => {
                let manifest = Manifest::read(reader)?;
                let mut confirmations = Vec::new();
                for _ in 0..reader.u8()? {
                    confirmations.push((reader.server()?, reader.array()?));
                }
                Self::Proved { manifest, confirmations }
            }
            5 => {
                let run = reader.digest()?;
                Self::Complaint { run, complaint: Box::new(Complaint::read(reader)?) }
            }
            6 => Self::Computed {
                run: reader.digest()?,
                witnesses: reader.counted()?.to_vec(),
                possession: reader.counted()?.to_vec(),
            },
            7 => Self::Voting {
                epoch: reader.digest()?,
                replaced: read_optional_key(reader)?,
                voting: Box::new(VotingKey::read(reader)?),
            },
            _ => return Err(Malformed("unknown kind of entry")),
        })
    }
}

impl Complaint {
    /// What the proof that K is right is for.
    pub(crate) fn context(digest: Digest, complainant: ServerIndex) -> Vec<u8> {
        [&b"SNDR-QUORUM-COMPLAINT\0"[..], &digest.0, &[complainant.0]].concat()
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.manifest.write(out);
        out.put_u16(self.label.0);
        out.put_u16(self.subshare.0);
        out.put_counted(&self.proofs);
        out.put_u16(u16::try_from(self.ciphertexts.len()).expect("there are at most 715 labels"));
        out.extend(self.ciphertexts.iter().flat_map(|digest| digest.0));
        out.extend(self.delivery);
        out.put_counted(&self.ciphertext);
        out.extend(self.agreed.as_bytes());
        out.extend(self.proof.to_bytes());
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            manifest: Manifest::read(reader)?,
            label: reader.label()?,
            subshare: reader.label()?,
            proofs: reader.counted()?.to_vec(),
            ciphertexts: (0..reader.u16()?).map(|_| reader.digest()).collect::<Result<_, _>>()?,
            delivery: reader.array()?,
            ciphertext: reader.counted()?.to_vec(),
            agreed: SessionPoint::read(reader)?,
            proof: SessionProof::read(reader)?,
        })
    }
}
