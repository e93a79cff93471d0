//! The first frame of an instance.

use blocks::Block;
use circuit::CircuitShape;

use crate::error::Error;
use crate::malformed::MalformedComputeFrame;
use crate::settings::{OutputLearners, scheme_number};
use garble::GarblingScheme;

/// The parameters of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ComputeBegin {
    /// The instance, from 0.
    pub(crate) number: u64,
    pub(crate) digest: [u8; 32],
    pub(crate) scheme: u8,
    pub(crate) learns: OutputLearners,
    /// The bits of the garbler's input, of the evaluator's, and of the output.
    pub(crate) bits: [u32; 3],
    pub(crate) ands: u64,
    /// The scheme's public value; zero from the evaluator.
    pub(crate) public: [u8; 16],
}

impl ComputeBegin {
    pub(crate) const LEN: usize = 88;

    pub(crate) fn new(
        number: u64,
        shape: &CircuitShape,
        scheme: GarblingScheme,
        learns: OutputLearners,
        public: Block,
    ) -> Self {
        let outputs = u32::try_from(shape.outputs.len()).unwrap_or(u32::MAX);
        Self {
            number,
            digest: shape.digest,
            scheme: scheme_number(scheme),
            learns,
            bits: [shape.garbler_inputs, shape.evaluator_inputs, outputs],
            ands: shape.ands,
            public: public.to_bytes(),
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.number.to_be_bytes());
        bytes[8..40].copy_from_slice(&self.digest);
        bytes[40] = self.scheme;
        bytes[41] = self.learns as u8;
        for (to, bits) in bytes[44..56].chunks_exact_mut(4).zip(self.bits) {
            to.copy_from_slice(&bits.to_be_bytes());
        }
        bytes[56..64].copy_from_slice(&self.ands.to_be_bytes());
        bytes[64..80].copy_from_slice(&self.public);
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, MalformedComputeFrame> {
        let bytes: &[u8; Self::LEN] =
            bytes.try_into().map_err(|_| MalformedComputeFrame::Length {
                kind: "begin",
                length: bytes.len(),
                expected: Self::LEN,
            })?;
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let long = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        Ok(Self {
            number: long(0),
            digest: bytes[8..40].try_into().expect("32 bytes"),
            scheme: bytes[40],
            learns: OutputLearners::parse(bytes[41])?,
            bits: [word(44), word(48), word(52)],
            ands: long(56),
            public: bytes[64..80].try_into().expect("16 bytes"),
        })
    }

    /// Parses the other party's frame, and compares it with this one.
    ///
    /// # Errors
    /// If it is malformed, or differs in anything but the public value.
    pub(crate) fn check(self, theirs: &[u8]) -> Result<Self, Error> {
        let theirs = Self::parse(theirs)?;
        let differs = |what| Err(Error::Differs { what });
        if theirs.bits != self.bits {
            let describe = |[garbler, evaluator, output]: [u32; 3]| {
                format!("{garbler} and {evaluator} bits to {output}")
            };
            return Err(Error::Sizes { ours: describe(self.bits), theirs: describe(theirs.bits) });
        }
        if theirs.digest != self.digest || theirs.ands != self.ands {
            return differs("the circuit");
        }
        if theirs.scheme != self.scheme {
            return differs("the garbling scheme (--scheme)");
        }
        if theirs.learns != self.learns {
            return differs("who learns the output (--output-to, --private-output)");
        }
        if theirs.number != self.number {
            return differs("the number of the instance (--repeat)");
        }
        Ok(theirs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: ComputeBegin = ComputeBegin {
        number: 3,
        digest: [5; 32],
        scheme: 1,
        learns: OutputLearners::Both,
        bits: [128, 127, 126],
        ands: 6_400,
        public: [0; 16],
    };

    #[test]
    fn begin_frame_round_trip() {
        let theirs = ComputeBegin { public: [9; 16], ..BEGIN };
        assert_eq!(BEGIN.check(&theirs.to_bytes()).unwrap(), theirs);
    }

    #[test]
    fn each_difference_is_named() {
        let text = |theirs: ComputeBegin| BEGIN.check(&theirs.to_bytes()).unwrap_err().to_string();
        assert!(text(ComputeBegin { number: 4, ..BEGIN }).contains("instance"));
        assert!(text(ComputeBegin { digest: [6; 32], ..BEGIN }).contains("circuit"));
        assert!(text(ComputeBegin { ands: 1, ..BEGIN }).contains("circuit"));
        assert!(text(ComputeBegin { scheme: 2, ..BEGIN }).contains("scheme"));
        assert!(text(ComputeBegin { learns: OutputLearners::Garbler, ..BEGIN }).contains("learns"));
        assert!(text(ComputeBegin { bits: [128, 127, 1], ..BEGIN }).contains("127 bits to 126"));
        let mut bytes = BEGIN.to_bytes();
        bytes[41] = 0;
        assert!(BEGIN.check(&bytes).is_err());
        assert!(BEGIN.check(&bytes[1..]).is_err());
    }
}
