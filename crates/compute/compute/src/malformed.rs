//! What the other party may not send.

/// Why bytes are not what the other party may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedComputeFrame {
    /// No frame has this number.
    #[error("a frame of kind {0}, which there is not")]
    Kind(u8),
    /// A frame is longer than any of its kind.
    #[error("a frame \"{kind}\" of {length} bytes, more than {max}")]
    TooLong {
        /// The frame.
        kind: &'static str,
        /// Its length.
        length: usize,
        /// The most bytes.
        max: usize,
    },
    /// A frame has another length than it must have now.
    #[error("a frame \"{kind}\" of {length} bytes in place of {expected}")]
    Length {
        /// The frame.
        kind: &'static str,
        /// Its length.
        length: usize,
        /// What it must be.
        expected: usize,
    },
    /// A frame may not come now.
    #[error("a frame \"{kind}\", where \"{expected}\" must come")]
    Order {
        /// The frame.
        kind: &'static str,
        /// What must come.
        expected: &'static str,
    },
    /// A frame may not come now, or more of them than can be needed.
    #[error("a frame \"{kind}\" that is not waited for")]
    Unexpected {
        /// The frame.
        kind: &'static str,
    },
    /// A field has a value that it cannot have.
    #[error("a {0} that there is not")]
    Value(&'static str),
    /// There are more or fewer tables than the circuit has gates for.
    #[error("tables that do not end with the circuit's last gate")]
    Tables,
}
