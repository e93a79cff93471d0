//! Frames.

use crate::malformed::MalformedComputeFrame;
use crate::settings::{ComputeProtocol, ComputeRole, ComputeSecurity};

/// The bytes of a frame's kind and length.
pub(crate) const HEADER_LEN: usize = 5;

/// The kinds of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ComputeFrameKind {
    Hello = 1,
    Base = 2,
    Begin = 3,
    Labels = 4,
    Extend = 5,
    Answer = 6,
    Tables = 7,
    Decoding = 8,
    Result = 9,
    Alive = 10,
    Abort = 11,
    Share = 12,
    Triples = 13,
    Open = 14,
    Output = 15,
    Hashes = 16,
    Proof = 17,
}

impl ComputeFrameKind {
    pub(crate) const ALL: [Self; 17] = [
        Self::Hello,
        Self::Base,
        Self::Begin,
        Self::Labels,
        Self::Extend,
        Self::Answer,
        Self::Tables,
        Self::Decoding,
        Self::Result,
        Self::Alive,
        Self::Abort,
        Self::Share,
        Self::Triples,
        Self::Open,
        Self::Output,
        Self::Hashes,
        Self::Proof,
    ];

    pub(crate) fn parse(number: u8) -> Result<Self, MalformedComputeFrame> {
        let found = Self::ALL.into_iter().find(|kind| *kind as u8 == number);
        found.ok_or(MalformedComputeFrame::Kind(number))
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hello => "hello",
            Self::Base => "base",
            Self::Begin => "begin",
            Self::Labels => "labels",
            Self::Extend => "extend",
            Self::Answer => "answer",
            Self::Tables => "tables",
            Self::Decoding => "decoding",
            Self::Result => "result",
            Self::Alive => "alive",
            Self::Abort => "abort",
            Self::Share => "share",
            Self::Triples => "triples",
            Self::Open => "open",
            Self::Output => "output",
            Self::Hashes => "hashes",
            Self::Proof => "proof",
        }
    }

    /// Whether a party of this role may send it. In dual execution, each party garbles and
    /// evaluates.
    pub(crate) fn is_from(self, role: ComputeRole, security: ComputeSecurity) -> bool {
        let is_dual = security.is_dual();
        match self {
            Self::Labels | Self::Answer | Self::Tables | Self::Decoding => {
                is_dual || role == ComputeRole::Garbler
            }
            Self::Extend => is_dual || role == ComputeRole::Evaluator,
            Self::Result | Self::Triples => !is_dual && role == ComputeRole::Evaluator,
            Self::Hashes | Self::Proof => is_dual,
            Self::Hello
            | Self::Base
            | Self::Begin
            | Self::Alive
            | Self::Abort
            | Self::Share
            | Self::Open
            | Self::Output => true,
        }
    }

    /// The role in which a party receives it, if that is determined.
    pub(crate) fn receiving_role(self) -> Option<ComputeRole> {
        match self {
            Self::Labels | Self::Answer | Self::Tables | Self::Decoding | Self::Hashes => {
                Some(ComputeRole::Evaluator)
            }
            Self::Extend | Self::Result | Self::Triples => Some(ComputeRole::Garbler),
            Self::Hello
            | Self::Base
            | Self::Begin
            | Self::Alive
            | Self::Abort
            | Self::Share
            | Self::Open
            | Self::Output
            | Self::Proof => None,
        }
    }

    /// Whether it is a frame of this protocol.
    pub(crate) fn is_of(self, protocol: ComputeProtocol) -> bool {
        match self {
            Self::Labels
            | Self::Extend
            | Self::Answer
            | Self::Tables
            | Self::Decoding
            | Self::Result
            | Self::Hashes
            | Self::Proof => protocol == ComputeProtocol::Yao,
            Self::Share | Self::Triples | Self::Open | Self::Output => {
                protocol == ComputeProtocol::Gmw
            }
            Self::Hello | Self::Base | Self::Begin | Self::Alive | Self::Abort => true,
        }
    }

    /// The maximum length of the content.
    pub(crate) fn max_len(self) -> usize {
        match self {
            Self::Hello | Self::Labels | Self::Share => 16,
            Self::Base => 1 << 16,
            Self::Begin => 96,
            Self::Proof => 32,
            Self::Open => 1 << 18,
            Self::Extend
            | Self::Answer
            | Self::Decoding
            | Self::Hashes
            | Self::Result
            | Self::Triples
            | Self::Output => 1 << 20,
            Self::Tables => 1 << 21,
            Self::Alive => 0,
            Self::Abort => 1,
        }
    }
}

/// A frame that is being written: its header, whose length is set at the end, and its content.
#[derive(Debug)]
pub(crate) struct ComputeFrame {
    kind: ComputeFrameKind,
    bytes: Vec<u8>,
}

impl ComputeFrame {
    /// An empty frame, in a buffer that was used before.
    pub(crate) fn new(kind: ComputeFrameKind, mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        buffer.resize(HEADER_LEN, 0);
        Self { kind, bytes: buffer }
    }

    /// A frame with this content.
    pub(crate) fn of(kind: ComputeFrameKind, content: &[u8]) -> Self {
        let mut frame = Self::new(kind, Vec::with_capacity(HEADER_LEN + content.len()));
        frame.bytes.extend_from_slice(content);
        frame
    }

    pub(crate) fn kind(&self) -> ComputeFrameKind {
        self.kind
    }

    /// The buffer that ends with the content, to append to.
    pub(crate) fn content(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// The length of the content.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - HEADER_LEN
    }

    /// The frame's bytes.
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        let length = u32::try_from(self.len()).expect("frames are short");
        self.bytes[0] = self.kind as u8;
        self.bytes[1..HEADER_LEN].copy_from_slice(&length.to_be_bytes());
        self.bytes
    }
}

/// The kind of a frame, and the length of its content.
///
/// # Errors
/// If there is no such kind, or the content is too long.
pub(crate) fn parse_header(
    header: [u8; HEADER_LEN],
) -> Result<(ComputeFrameKind, usize), MalformedComputeFrame> {
    let kind = ComputeFrameKind::parse(header[0])?;
    let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
    let max = kind.max_len();
    if length > max {
        return Err(MalformedComputeFrame::TooLong { kind: kind.name(), length, max });
    }
    Ok((kind, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_header_round_trip() {
        for kind in ComputeFrameKind::ALL {
            let content = vec![7; kind.max_len().min(100)];
            let bytes = ComputeFrame::of(kind, &content).into_bytes();
            let (header, rest) = bytes.split_first_chunk().unwrap();
            assert_eq!(parse_header(*header), Ok((kind, content.len())));
            assert_eq!(rest, content);
        }
    }

    #[test]
    fn unknown_and_long_frames_are_refused() {
        assert_eq!(parse_header([0; 5]), Err(MalformedComputeFrame::Kind(0)));
        assert_eq!(parse_header([18, 0, 0, 0, 0]), Err(MalformedComputeFrame::Kind(18)));
        for kind in ComputeFrameKind::ALL {
            let length = u32::try_from(kind.max_len()).unwrap() + 1;
            let [a, b, c, d] = length.to_be_bytes();
            let refused = parse_header([kind as u8, a, b, c, d]);
            assert!(matches!(refused, Err(MalformedComputeFrame::TooLong { .. })), "{kind:?}");
        }
    }
}
