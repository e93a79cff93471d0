//! Messages between servers about a refresh. Their links authenticate both ends and provide forward
//! secrecy.

use std::collections::BTreeMap;
use std::sync::Arc;

use encoding::{FieldReader, FieldWrite as _};
use zeroize::Zeroizing;

use super::dealing::{Dealing, DealingProofs};
use crate::protocol::combination::{Label, ServerIndex};
use crate::protocol::wire::{MalformedEncoding, QuorumFields as _, Sha256Digest};

/// The largest message in bytes.
pub const MAX_MESSAGE_LEN: usize = 64 << 20;

/// A message. Only its encoding has been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefreshMessage {
    /// An old server's dealing, to one new server.
    Dealing(Dealing),
    /// A new server's confirmation of a dealing, to its dealer.
    Confirmation {
        /// The digest of the dealing.
        digest: Sha256Digest,
        /// The new server's signature.
        signature: [u8; 64],
    },
    /// A new server reports labels without a chosen dealing, to all old servers.
    Need {
        /// The run.
        run: Sha256Digest,
    },
    /// Asks another new server for the proofs with a digest.
    Fetch {
        /// The digest of a dealing.
        digest: Sha256Digest,
    },
    /// The answer to `Fetch`.
    Proofs(Arc<DealingProofs>),
    /// Asks another server of the same group for the shares that both hold.
    Ask {
        /// The epoch of the shares.
        epoch: u64,
        /// Whether the asking server needs the witnesses, too.
        witnesses: bool,
    },
    /// The answer to `Ask`.
    Shares(RecoveryAnswer),
    /// Asks another new server for the contribution of a chosen dealing to the shares that both
    /// will hold, because the dealer sent nothing or something invalid.
    AskSum {
        /// The digest of the dealing.
        dealing: Sha256Digest,
    },
    /// The answer to `AskSum`.
    Sum(SubshareSum),
    /// Asks another new server for the common value of a dealing by a polynomial, of which this
    /// server has no row.
    AskValue {
        /// The run.
        run: Sha256Digest,
        /// The dealer.
        dealer: ServerIndex,
    },
    /// The answer to `AskValue`.
    Value {
        /// The run.
        run: Sha256Digest,
        /// The dealer.
        dealer: ServerIndex,
        /// The common value.
        value: CommonValue,
    },
    /// The answer to `Ask` if the key is shared by a polynomial: the common value of the sharing.
    RowValue {
        /// The epoch.
        epoch: u64,
        /// The common value.
        value: CommonValue,
    },
}

/// A value that the rows of two servers have in common. Secret.
#[derive(Clone, PartialEq, Eq)]
pub struct CommonValue(pub(crate) Zeroizing<Vec<u8>>);

impl std::fmt::Debug for CommonValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CommonValue(..)")
    }
}

/// The contribution of a dealing to shares, for a server that will hold them. Secret.
#[derive(Clone, PartialEq, Eq)]
pub struct SubshareSum {
    pub(crate) dealing: Sha256Digest,
    pub(crate) shares: EncodedShareMap,
}

impl std::fmt::Debug for SubshareSum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SubshareSum").field("dealing", &self.dealing).finish_non_exhaustive()
    }
}

/// Encoded shares by label. Secret.
pub(crate) type EncodedShareMap = BTreeMap<Label, Zeroizing<Vec<u8>>>;

/// Shares for a server that must hold them. Secret.
#[derive(Clone, PartialEq, Eq)]
pub struct RecoveryAnswer {
    pub(crate) epoch: u64,
    /// The encoded witnesses, or empty.
    pub(crate) witnesses: Vec<u8>,
    pub(crate) shares: EncodedShareMap,
}

impl std::fmt::Debug for RecoveryAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecoveryAnswer").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl RefreshMessage {
    /// Whether it asks for shares. Such a message is signed with a voting key.
    pub(crate) fn is_question(&self) -> bool {
        matches!(self, Self::Ask { .. } | Self::AskSum { .. } | Self::AskValue { .. })
    }

    /// The encoding. Secret if it contains shares.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut out = Zeroizing::new(Vec::with_capacity(self.len_bound()));
        match self {
            Self::Dealing(dealing) => {
                out.push(1);
                dealing.write(&mut out);
            }
            Self::Confirmation { digest, signature } => {
                out.push(2);
                out.extend(digest.0);
                out.extend(signature);
            }
            Self::Need { run } => {
                out.push(3);
                out.extend(run.0);
            }
            Self::Fetch { digest } => {
                out.push(4);
                out.extend(digest.0);
            }
            Self::Proofs(proofs) => {
                out.push(5);
                proofs.write(&mut out);
            }
            Self::Ask { epoch, witnesses } => {
                out.push(6);
                out.put_u64(*epoch);
                out.push(u8::from(*witnesses));
            }
            Self::Shares(answer) => {
                out.push(7);
                out.put_u64(answer.epoch);
                out.put_counted(&answer.witnesses);
                write_shares(&answer.shares, &mut out);
            }
            Self::AskSum { dealing } => {
                out.push(8);
                out.extend(dealing.0);
            }
            Self::Sum(sum) => {
                out.push(9);
                out.extend(sum.dealing.0);
                write_shares(&sum.shares, &mut out);
            }
            Self::AskValue { run, dealer } => {
                out.push(10);
                out.extend(run.0);
                out.push(dealer.0);
            }
            Self::Value { run, dealer, value } => {
                out.push(11);
                out.extend(run.0);
                out.push(dealer.0);
                out.extend(&*value.0);
            }
            Self::RowValue { epoch, value } => {
                out.push(12);
                out.put_u64(*epoch);
                out.extend(&*value.0);
            }
        }
        out
    }

    /// An upper bound on the length of messages with secrets, so that the buffer is never
    /// reallocated.
    fn len_bound(&self) -> usize {
        match self {
            Self::Shares(answer) => 17 + answer.witnesses.len() + shares_len(&answer.shares),
            Self::Sum(sum) => 37 + shares_len(&sum.shares),
            Self::Value { value, .. } | Self::RowValue { value, .. } => 34 + value.0.len(),
            _ => 128,
        }
    }

    /// Parses a message.
    ///
    /// # Errors
    /// If the bytes are not exactly a message.
    pub fn parse(bytes: &[u8]) -> Result<Self, MalformedEncoding> {
        if bytes.len() > MAX_MESSAGE_LEN {
            return Err(MalformedEncoding("larger than a message may be"));
        }
        let mut reader = FieldReader::new(bytes);
        let message = match reader.u8()? {
            1 => Self::Dealing(Dealing::read(&mut reader)?),
            2 => Self::Confirmation { digest: reader.digest()?, signature: reader.take()? },
            3 => Self::Need { run: reader.digest()? },
            4 => Self::Fetch { digest: reader.digest()? },
            5 => Self::Proofs(Arc::new(DealingProofs::read(&mut reader)?)),
            6 => Self::Ask {
                epoch: reader.u64()?,
                witnesses: match reader.u8()? {
                    0 => false,
                    1 => true,
                    _ => return Err(MalformedEncoding("neither 0 nor 1")),
                },
            },
            7 => Self::Shares(RecoveryAnswer {
                epoch: reader.u64()?,
                witnesses: reader.counted()?.to_vec(),
                shares: read_shares(&mut reader)?,
            }),
            8 => Self::AskSum { dealing: reader.digest()? },
            9 => Self::Sum(SubshareSum {
                dealing: reader.digest()?,
                shares: read_shares(&mut reader)?,
            }),
            10 => Self::AskValue { run: reader.digest()?, dealer: reader.server()? },
            11 => Self::Value {
                run: reader.digest()?,
                dealer: reader.server()?,
                value: read_value(&mut reader)?,
            },
            12 => Self::RowValue { epoch: reader.u64()?, value: read_value(&mut reader)? },
            _ => return Err(MalformedEncoding("unknown kind of message")),
        };
        reader.finish()?;
        Ok(message)
    }
}

/// The largest common value in bytes: of an RSA key of 4096 bits, with 31 servers.
const MAX_VALUE_LEN: usize = 1024;

fn read_value(reader: &mut FieldReader<'_>) -> Result<CommonValue, MalformedEncoding> {
    Ok(CommonValue(Zeroizing::new(reader.rest_up_to(MAX_VALUE_LEN)?.to_vec())))
}

fn shares_len(shares: &EncodedShareMap) -> usize {
    shares.values().map(|share| share.len() + 6).sum()
}

fn write_shares(shares: &EncodedShareMap, out: &mut Vec<u8>) {
    out.put_count(shares.len());
    for (label, share) in shares {
        out.put_u16(label.0);
        out.put_counted(share);
    }
}

fn read_shares(reader: &mut FieldReader<'_>) -> Result<EncodedShareMap, MalformedEncoding> {
    let mut shares = EncodedShareMap::new();
    for _ in 0..reader.u32()? {
        let label = reader.label()?;
        if shares.last_key_value().is_some_and(|(last, _)| *last >= label) {
            return Err(MalformedEncoding("labels do not ascend"));
        }
        shares.insert(label, Zeroizing::new(reader.counted()?.to_vec()));
    }
    Ok(shares)
}
