//! Oblivious transfer extension: from 128 base transfers to any number of transfers, by symmetric
//! cryptography.
//!
//! The transfers are correlated: the sender has one secret offset and gets a block q for each
//! transfer. The receiver gets q for the choice 0, and q plus the offset (exclusive or) for the
//! choice 1. Hashing the blocks gives random transfers: [`OtExtensionSender::random`],
//! [`OtExtensionReceiver::random`].
//!
//! The protocol is `SoftSpokenOT` (Roy 2022) with k bits per tree. With k = 1 it is the extension
//! of Ishai, Kilian, Nissim, Petrank 2003 in the form of Asharov, Lindell, Schneider, Zohner 2013.
//! For each tree of k base transfers, the receiver knows 2^k leaves, and the sender knows all but
//! the one that k bits of its offset select. Each leaf is expanded to a row of one bit per
//! transfer. For each tree, the receiver sends u plus its choices, where u is the sum of all rows.
//! This takes 16 / k bytes per transfer for all trees. From it, the sender compensates for the row
//! that it does not know.
//!
//! ```
//! use blocks::Block;
//! use sunder_ot::extension::{
//!     OtExtension, OtExtensionKind, OtExtensionSecurity, OtReceiverSetUp, OtSenderSetUp,
//! };
//!
//! # fn main() -> Result<(), sunder_ot::Error> {
//! // Real offsets and seeds come from the system's random source.
//! let offset = Block::from(0x0123_4567_89ab_cdef);
//! let extension = OtExtension {
//!     kind: OtExtensionKind::SoftSpoken4,
//!     security: OtExtensionSecurity::SemiHonest,
//! };
//! let (sender, to_receiver) = OtSenderSetUp::new(extension, offset, Block::from(1));
//! let receiver = OtReceiverSetUp::new(extension, Block::from(2));
//! let (mut receiver, to_sender) = receiver.receive(&to_receiver)?;
//! let mut sender = sender.receive(&to_sender)?;
//!
//! let (choices, mut message) = ([0b101], Vec::new());
//! let (mut chosen, mut zeros) = ([Block::ZERO; 3], [Block::ZERO; 3]);
//! receiver.extend(&choices, &mut chosen, &mut message)?;
//! sender.extend(&message, &mut zeros)?;
//! assert_eq!(chosen[0].to_bytes(), (zeros[0] ^ offset).to_bytes());
//! assert_eq!(chosen[1].to_bytes(), zeros[1].to_bytes());
//! # Ok(())
//! # }
//! ```

mod check;
mod matrix;
mod receiver;
mod sender;
mod set_up;
mod tree;

pub use receiver::OtExtensionReceiver;
pub use sender::OtExtensionSender;
pub use set_up::{OtReceiverSetUp, OtSenderBaseKeys, OtSenderSetUp, SENDER_LEN};

/// The number of bits of an offset, and of base transfers of a set-up.
pub const BASE_TRANSFERS: usize = 128;

/// The number of transfers that are made at a time, which fits into the caches.
const PIECE_TRANSFERS: usize = 8192;

/// The length of the salt with which the receiver's set-up message begins, in bytes.
const SALT_LEN: usize = 16;

/// The number of base transfers per tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtExtensionKind {
    /// One: 16 bytes per transfer, and the least computation.
    Iknp,
    /// Two: 8 bytes per transfer.
    SoftSpoken2,
    /// Four: 4 bytes per transfer.
    SoftSpoken4,
    /// Eight: 2 bytes per transfer, with eight times the computation of four.
    SoftSpoken8,
}

/// The receivers against which the sender is secure. In both cases the receiver is secure only
/// against a sender that follows the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtExtensionSecurity {
    /// A receiver that follows the protocol.
    SemiHonest,
    /// Any receiver: the sender checks that the receiver used the same choices in all rows (Roy
    /// 2022, section 4), and that it built its trees correctly (section 5). A cheating receiver is
    /// detected, except that with probability 2^-j it learns j bits of the offset. The challenge of
    /// the check is a hash of the receiver's message (Fiat, Shamir).
    MaliciousReceiver,
}

/// The parameters of an extension. Both ends must use the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtExtension {
    /// The number of base transfers per tree.
    pub kind: OtExtensionKind,
    /// The security of the sender.
    pub security: OtExtensionSecurity,
}

impl OtExtensionKind {
    /// All kinds, by increasing computation.
    pub const ALL: [Self; 4] =
        [Self::Iknp, Self::SoftSpoken2, Self::SoftSpoken4, Self::SoftSpoken8];

    /// k, the number of base transfers that make a tree.
    pub const fn bits(self) -> usize {
        match self {
            Self::Iknp => 1,
            Self::SoftSpoken2 => 2,
            Self::SoftSpoken4 => 4,
            Self::SoftSpoken8 => 8,
        }
    }

    const fn trees(self) -> usize {
        BASE_TRANSFERS / self.bits()
    }

    const fn leaves(self) -> usize {
        1 << self.bits()
    }
}

impl OtExtension {
    /// The length of the receiver's message for `count` transfers, in bytes.
    pub fn message_len(self, count: usize) -> usize {
        let whole = (count / PIECE_TRANSFERS).saturating_mul(self.piece_len(PIECE_TRANSFERS));
        let rest = count % PIECE_TRANSFERS;
        whole.saturating_add(if rest == 0 { 0 } else { self.piece_len(rest) })
    }

    /// The length of the receiver's message that sets the sender up, in bytes.
    pub const fn set_up_len(self) -> usize {
        let trees = self.kind.trees();
        let commitments = if self.commits() { trees * check::COMMITMENT_LEN } else { 0 };
        SALT_LEN + trees * tree::corrections_len(self.kind.bits()) + commitments
    }

    /// Whether the receiver commits to its leaves. Trees of one level have no corrections that
    /// could be wrong.
    const fn commits(self) -> bool {
        self.is_checked() && self.kind.bits() > 1
    }

    const fn is_checked(self) -> bool {
        matches!(self.security, OtExtensionSecurity::MaliciousReceiver)
    }

    /// The width of the rows for `count` transfers, in blocks. One block more if the extension is
    /// checked.
    const fn width(self, count: usize) -> usize {
        count.div_ceil(128) + self.is_checked() as usize
    }

    const fn rows_len(self, count: usize) -> usize {
        self.kind.trees() * self.width(count) * 16
    }

    const fn piece_len(self, count: usize) -> usize {
        self.rows_len(count) + if self.is_checked() { check::PROOF_LEN } else { 0 }
    }
}
