//! The entries of the agreement log. Each is signed by its author's identity key.

use super::handover_step::EncodedHandoverStep;
use super::manifest::DealingManifest;
use super::session::{SessionPoint, SessionProof};
use crate::protocol::admission::EntrySlot;
use crate::protocol::combination::{Label, ServerIndex};
use crate::protocol::group::QuorumGroup;
use crate::protocol::replication::is_batch;
use crate::protocol::unix_seconds::UnixSeconds;
use crate::protocol::voting::{VotingKey, read_optional_key, write_key};
use crate::protocol::wire::{MalformedEncoding, QuorumFields as _, Sha256Digest};
use encoding::{FieldError, FieldReader, FieldWrite as _};
use handover::{HandoverEntryKind, HandoverRole};
use keys::{IdentityPublicKey, IdentitySecretKey};

/// The largest entry in bytes. The witnesses of 13 servers with a 4096-bit key take 366,080 bytes.
pub const MAX_ENTRY_LEN: usize = 1 << 20;

const DOMAIN: &[u8] = b"SNDR-QUORUM-ENTRY\0";

/// An entry of the agreement log. Only its encoding has been checked.
#[derive(Clone, Debug, PartialEq)]
pub struct LogEntry {
    /// The server that has signed it. Its body determines whether this is an old or a new server.
    pub(crate) author: ServerIndex,
    pub(crate) body: LogEntryBody,
    /// The message that the author has signed.
    signed: Vec<u8>,
    signature: [u8; 64],
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LogEntryBody {
    /// An old server's operator asks for a refresh to this group, after `withdrawn` approvals that
    /// were withdrawn in this run.
    Approve { epoch: Sha256Digest, run: u32, withdrawn: u8, group: QuorumGroup },
    /// An old server withdraws its approval, before which it has withdrawn `withdrawn` others. If
    /// the log does not have the approval, it is not committed later.
    Withdraw { epoch: Sha256Digest, run: u32, withdrawn: u8 },
    /// An old server's operator cancels a run.
    Cancel { epoch: Sha256Digest, run: u32 },
    /// A new server's session key `R_j`, and its voting key for the new epoch.
    SessionKey { run: Sha256Digest, key: SessionPoint, voting: Box<VotingKey> },
    /// A dealing that 2f'+1 new servers have confirmed, from its dealer.
    Proved { manifest: DealingManifest, confirmations: Vec<(ServerIndex, [u8; 64])> },
    /// A new server's evidence that a dealer has sent it an invalid subshare.
    Complaint { run: Sha256Digest, complaint: Box<Complaint> },
    /// A new server has its shares, at this time of its clock. Entries of earlier versions of this
    /// program have no time. The witnesses and the proof of possession are not parsed yet.
    Computed {
        run: Sha256Digest,
        witnesses: Vec<u8>,
        possession: Vec<u8>,
        time: Option<UnixSeconds>,
    },
    /// A server of the epoch replaces its voting key.
    Voting { epoch: Sha256Digest, replaced: Option<IdentityPublicKey>, voting: Box<VotingKey> },
    /// Requests of clients of the replicated service, from a server of the epoch: its batch with
    /// this number, from 0, in a segment of the log.
    Command { segment: Sha256Digest, number: u32, requests: Vec<Vec<u8>> },
    /// A server's step in the handover of a key that is shared by a polynomial. A new server
    /// registers its session key together with its voting key for the new epoch, and has its share
    /// at a time of its clock. Other steps have neither.
    Handover {
        step: EncodedHandoverStep,
        voting: Option<Box<VotingKey>>,
        time: Option<UnixSeconds>,
    },
}

/// The group to which the author of an entry belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefreshRole {
    /// The old group.
    Old,
    /// The new group.
    New,
}

/// The evidence of a complaint about one subshare.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Complaint {
    pub(crate) manifest: DealingManifest,
    /// The label t of the row.
    pub(crate) label: Label,
    /// The label u of the wrong subshare. If the ciphertext cannot be decrypted, any label that the
    /// complainant holds.
    pub(crate) subshare: Label,
    /// The row's proofs.
    pub(crate) proofs: Vec<u8>,
    /// The digests of the complainant's ciphertexts, one for each row, with the dealer's signature.
    pub(crate) ciphertexts: Vec<Sha256Digest>,
    pub(crate) delivery: [u8; 64],
    /// The row's ciphertext.
    pub(crate) ciphertext: Vec<u8>,
    /// K, with the proof that it is the shared point of complainant and dealer.
    pub(crate) agreed: SessionPoint,
    pub(crate) proof: SessionProof,
}

impl LogEntry {
    /// An entry signed with its author's identity key.
    pub(crate) fn new(
        author: ServerIndex,
        body: LogEntryBody,
        identity: &IdentitySecretKey,
    ) -> Self {
        let mut signed = DOMAIN.to_vec();
        signed.push(author.0);
        body.write(&mut signed);
        let signature = identity.sign(&signed);
        Self { author, body, signed, signature }
    }

    /// The encoded entry.
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.signed[DOMAIN.len()..], &self.signature].concat()
    }

    /// Parses an entry.
    ///
    /// # Errors
    /// If the bytes are not exactly an entry.
    pub fn parse(bytes: &[u8]) -> Result<Self, MalformedEncoding> {
        if bytes.len() > MAX_ENTRY_LEN {
            return Err(MalformedEncoding("larger than an entry may be"));
        }
        let (body, signature) = bytes.split_last_chunk().ok_or(MalformedEncoding("too short"))?;
        let mut reader = FieldReader::new(body);
        let author = reader.server()?;
        let parsed = LogEntryBody::read(&mut reader)?;
        reader.finish()?;
        Ok(Self { author, body: parsed, signed: [DOMAIN, body].concat(), signature: *signature })
    }

    pub(crate) fn side(&self) -> RefreshRole {
        match &self.body {
            LogEntryBody::Approve { .. }
            | LogEntryBody::Withdraw { .. }
            | LogEntryBody::Cancel { .. }
            | LogEntryBody::Proved { .. }
            | LogEntryBody::Voting { .. }
            | LogEntryBody::Command { .. } => RefreshRole::Old,
            LogEntryBody::SessionKey { .. }
            | LogEntryBody::Complaint { .. }
            | LogEntryBody::Computed { .. } => RefreshRole::New,
            LogEntryBody::Handover { step, .. } => match step.header().kind.role() {
                HandoverRole::Dealer => RefreshRole::Old,
                HandoverRole::Receiver => RefreshRole::New,
            },
        }
    }

    /// Whether it takes long to apply, because proofs or many numbers of its author are examined.
    pub(crate) fn is_costly(&self) -> bool {
        matches!(
            self.body,
            LogEntryBody::Complaint { .. }
                | LogEntryBody::Computed { .. }
                | LogEntryBody::Handover { .. }
        )
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.signed.len() - DOMAIN.len() + self.signature.len()
    }

    /// Its slot, which depends on author, kind, and round or dealer.
    pub(crate) fn slot(&self) -> EntrySlot {
        let (kind, part) = match &self.body {
            // A value has either an approval of a server or its withdrawal.
            LogEntryBody::Approve { .. } | LogEntryBody::Withdraw { .. } => (1, 0),
            LogEntryBody::Cancel { .. } => (2, 0),
            LogEntryBody::SessionKey { .. } => (3, 0),
            LogEntryBody::Proved { manifest, .. } => (4, manifest.round.0),
            LogEntryBody::Complaint { complaint, .. } => (5, complaint.manifest.dealer.0),
            LogEntryBody::Computed { .. } => (6, 0),
            LogEntryBody::Voting { .. } => (7, 0),
            LogEntryBody::Command { .. } => (9, 0),
            LogEntryBody::Handover { step, .. } => match step.header().kind {
                HandoverEntryKind::Key => (10, 0),
                HandoverEntryKind::Deal => (11, 0),
                HandoverEntryKind::Hold => (12, 0),
                HandoverEntryKind::Complain { dealer } => (13, dealer.number()),
                HandoverEntryKind::Confirm => (14, 0),
            },
        };
        EntrySlot(u64::from_be_bytes([0, 0, 0, 0, 0, kind, self.author.0, part]))
    }

    /// Whether the author has signed it. `group` is the group of [`Self::side`].
    pub(crate) fn is_signed(&self, group: &QuorumGroup) -> bool {
        group.verify(self.author, &self.signed, &self.signature)
    }
}

impl LogEntryBody {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Approve { epoch, run, withdrawn, group } => {
                // Earlier versions know only the first form.
                out.push(if *withdrawn == 0 { 1 } else { 9 });
                out.extend(epoch.0);
                out.put_u32(*run);
                if *withdrawn != 0 {
                    out.push(*withdrawn);
                }
                group.write(out);
            }
            Self::Withdraw { epoch, run, withdrawn } => {
                out.push(10);
                out.extend(epoch.0);
                out.put_u32(*run);
                out.push(*withdrawn);
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
                let count = u8::try_from(confirmations.len());
                out.push(count.expect("a group with combinatorial shares has at most 13 servers"));
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
            Self::Computed { run, witnesses, possession, time } => {
                out.push(if time.is_some() { 8 } else { 6 });
                out.extend(run.0);
                out.put_counted(witnesses);
                out.put_counted(possession);
                if let Some(time) = time {
                    out.put_u64(time.0);
                }
            }
            Self::Voting { epoch, replaced, voting } => {
                out.push(7);
                out.extend(epoch.0);
                write_key(replaced.as_ref(), out);
                voting.write(out);
            }
            Self::Command { segment, number, requests } => {
                out.push(11);
                out.extend(segment.0);
                out.put_u32(*number);
                out.push(u8::try_from(requests.len()).expect("a batch has 64 requests"));
                for request in requests {
                    out.put_counted(request);
                }
            }
            Self::Handover { step, voting, time } => {
                out.push(handover_code(step.header().kind));
                out.put_counted(step.as_bytes());
                if let Some(voting) = voting {
                    voting.write(out);
                }
                if let Some(time) = time {
                    out.put_u64(time.0);
                }
            }
        }
    }

    fn read(reader: &mut FieldReader<'_>) -> Result<Self, MalformedEncoding> {
        let kind = reader.u8()?;
        Ok(match kind {
            1 => Self::Approve {
                epoch: reader.digest()?,
                run: reader.u32()?,
                withdrawn: 0,
                group: QuorumGroup::read(reader)?,
            },
            9 => Self::Approve {
                epoch: reader.digest()?,
                run: reader.u32()?,
                withdrawn: non_zero(reader.u8()?)?,
                group: QuorumGroup::read(reader)?,
            },
            10 => Self::Withdraw {
                epoch: reader.digest()?,
                run: reader.u32()?,
                withdrawn: reader.u8()?,
            },
            2 => Self::Cancel { epoch: reader.digest()?, run: reader.u32()? },
            3 => Self::SessionKey {
                run: reader.digest()?,
                key: SessionPoint::read(reader)?,
                voting: Box::new(VotingKey::read(reader)?),
            },
            4 => {
                let manifest = DealingManifest::read(reader)?;
                let mut confirmations = Vec::new();
                for _ in 0..reader.u8()? {
                    confirmations.push((reader.server()?, reader.take()?));
                }
                Self::Proved { manifest, confirmations }
            }
            5 => {
                let run = reader.digest()?;
                Self::Complaint { run, complaint: Box::new(Complaint::read(reader)?) }
            }
            6 | 8 => Self::Computed {
                run: reader.digest()?,
                witnesses: reader.counted()?.to_vec(),
                possession: reader.counted()?.to_vec(),
                time: if kind == 8 { Some(UnixSeconds(reader.u64()?)) } else { None },
            },
            7 => Self::Voting {
                epoch: reader.digest()?,
                replaced: read_optional_key(reader)?,
                voting: Box::new(VotingKey::read(reader)?),
            },
            11 => {
                let (segment, number) = (reader.digest()?, reader.u32()?);
                Self::Command { segment, number, requests: read_requests(reader)? }
            }
            12..=14 => {
                let step = EncodedHandoverStep::parse(reader.counted()?)?;
                if handover_code(step.header().kind) != kind {
                    return Err(MalformedEncoding("another step of a handover"));
                }
                let voting = if kind == 12 { Some(VotingKey::read(reader)?) } else { None };
                let time = if kind == 14 { Some(UnixSeconds(reader.u64()?)) } else { None };
                Self::Handover { step, voting: voting.map(Box::new), time }
            }
            _ => return Err(MalformedEncoding("unknown kind of entry")),
        })
    }
}

fn handover_code(kind: HandoverEntryKind) -> u8 {
    match kind {
        HandoverEntryKind::Key => 12,
        HandoverEntryKind::Deal | HandoverEntryKind::Hold | HandoverEntryKind::Complain { .. } => {
            13
        }
        HandoverEntryKind::Confirm => 14,
    }
}

/// The second form of an approval follows a withdrawal.
fn non_zero(withdrawn: u8) -> Result<u8, MalformedEncoding> {
    if withdrawn == 0 { Err(MalformedEncoding("no approval was withdrawn")) } else { Ok(withdrawn) }
}

fn read_requests(reader: &mut FieldReader<'_>) -> Result<Vec<Vec<u8>>, MalformedEncoding> {
    let count = reader.u8()?;
    let requests: Vec<Vec<u8>> =
        (0..count).map(|_| Ok(reader.counted()?.to_vec())).collect::<Result<_, FieldError>>()?;
    if is_batch(&requests) { Ok(requests) } else { Err(MalformedEncoding("not a batch")) }
}

impl Complaint {
    /// The context of the proof that K is right.
    pub(crate) fn context(digest: Sha256Digest, complainant: ServerIndex) -> Vec<u8> {
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

    fn read(reader: &mut FieldReader<'_>) -> Result<Self, MalformedEncoding> {
        Ok(Self {
            manifest: DealingManifest::read(reader)?,
            label: reader.label()?,
            subshare: reader.label()?,
            proofs: reader.counted()?.to_vec(),
            ciphertexts: (0..reader.u16()?).map(|_| reader.digest()).collect::<Result<_, _>>()?,
            delivery: reader.take()?,
            ciphertext: reader.counted()?.to_vec(),
            agreed: SessionPoint::read(reader)?,
            proof: SessionProof::read(reader)?,
        })
    }
}
