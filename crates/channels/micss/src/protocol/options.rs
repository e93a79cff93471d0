//! The option bits of an association's terms, which both ends agree on in the handshake.

/// The option bit of an association without records: `integrity = "none"`.
pub(crate) const OPTION_NO_RECORDS: u32 = 1;

/// The option bit of an association whose connections end with the stream, and are not reused.
/// Without records they always do.
pub(crate) const OPTION_SINGLE_USE: u32 = 2;

/// The option bit of an association whose connections may be replaced, and whose ends acknowledge
/// what they have received. Only with records.
pub(crate) const OPTION_REJOIN: u32 = 4;
