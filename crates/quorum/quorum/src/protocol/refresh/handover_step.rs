//! A step in the handover of a key that is shared by a polynomial, as its author has signed it.

use handover::{HandoverEntry, HandoverEntryHeader, HandoverScheme};

use crate::protocol::wire::MalformedEncoding;

/// The largest step in bytes. A Deal among 31 servers has 131,120 with an RSA key of 2048 bits, and
/// less than twice as much with 4096.
const MAX_STEP_LEN: usize = 256 << 10;

/// An encoded step, of which only the header is decoded. Its numbers are costly to decode, so a
/// server first checks its author, and decodes a Deal only when it is applied.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EncodedHandoverStep {
    header: HandoverEntryHeader,
    bytes: Vec<u8>,
}

impl EncodedHandoverStep {
    pub(crate) fn new<S: HandoverScheme>(step: &HandoverEntry<S>) -> Self {
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

    /// Decodes the whole step, with its numbers.
    pub(crate) fn decode<S: HandoverScheme>(&self) -> Result<HandoverEntry<S>, MalformedEncoding> {
        HandoverEntry::from_bytes(&self.bytes).map_err(|why| MalformedEncoding(why.0))
    }
}
