//! Errors in the frames of the other party.

/// Why a frame of the other party is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedComputeFrame {
    /// The kind of a frame is unknown.
    #[error("a frame of unknown kind {0}")]
    Kind(u8),
    /// A frame is longer than the maximum of its kind.
    #[error("a frame \"{kind}\" of {length} bytes, more than {max}")]
    TooLong {
        /// The frame.
        kind: &'static str,
        /// Its length.
        length: usize,
        /// The maximum length.
        max: usize,
    },
    /// A frame has the wrong length.
    #[error("a frame \"{kind}\" of {length} bytes in place of {expected}")]
    Length {
        /// The frame.
        kind: &'static str,
        /// Its length.
        length: usize,
        /// The required length.
        expected: usize,
    },
    /// A frame came in place of another kind.
    #[error("a frame \"{kind}\", where \"{expected}\" must come")]
    Order {
        /// The frame.
        kind: &'static str,
        /// The required kind.
        expected: &'static str,
    },
    /// A frame came at the wrong time, or there were too many.
    #[error("an unexpected frame \"{kind}\"")]
    Unexpected {
        /// The frame.
        kind: &'static str,
    },
    /// A field has an invalid value.
    #[error("an unknown {0}")]
    Value(&'static str),
    /// The messages of the set-up are copies of this party's own.
    #[error("this party's own set-up back")]
    Reflected,
    /// There are more or fewer tables than the circuit has gates.
    #[error("tables that do not end with the circuit's last gate")]
    Tables,
}
