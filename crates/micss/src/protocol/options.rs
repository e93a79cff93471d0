//! The option bits of an association's terms, as both ends agree on them in the handshake.

/// The option bit of an association without records: `integrity = "none"`.
pub(crate) const OPTION_NO_RECORDS: u32 = 1;

/// The option bit of an association whose connections end with the stream, and are not used again. Without
/// records they do so anyway.
pub(crate) const OPTION_ONCE: u32 = 2;
