//! A step in the handover of an Ed25519 key, as its author has signed it.

use handover::{HandoverEntry, HandoverEntryHeader};
use schnorr::SchnorrScheme;

use crate::protocol::wire::MalformedEncoding;

/// The largest step in bytes. A Deal among 31 servers has 13,730.
const MAX_STEP_LEN: usize = 16 << 10;

/// An encoded step, of which only the header is decoded. Its points are costly to decode, so a
/// server first checks its author, and decodes a Deal only when it is applied.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EncodedHandoverStep {
    header: HandoverEntryHeader,
    bytes: Vec<u8>,
}

impl EncodedHandoverStep {
    pub(crate) fn new(step: &HandoverEntry<SchnorrScheme>) -> Self {
        Self {
            header: HandoverEntryHeader { run: step.run(), kind: step.kind() },
            bytes: step.to_bytes(),
        }
    }

    /// Reads the header of an encoded step. What follows may be malformed.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, MalformedEncoding> {
        if bytes.len() > MAX_STEP_LEN {
            return Err(MalformedEncoding("larger than a step of a handover may be"));
        }
        let header = HandoverEntryHeader::read(bytes).map_err(|why| MalformedEncoding(why.0))?;
        Ok(Self { header, bytes: bytes.to_vec() })
    }

    /// The run, and what the step says.
    pub(crate) fn header(&self) -> &HandoverEntryHeader {
        &self.header
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Decodes the whole step, with its points.
    pub(crate) fn decode(&self) -> Result<HandoverEntry<SchnorrScheme>, MalformedEncoding> {
        HandoverEntry::from_bytes(&self.bytes).map_err(|why| MalformedEncoding(why.0))
    }
}
