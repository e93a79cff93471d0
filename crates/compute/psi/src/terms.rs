//! What a party computes.

use std::fmt;

/// The maximum number of items of a party.
pub const MAX_ITEMS: usize = 1 << 24;

/// A party's role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PsiRole {
    /// Learns the common items first.
    Receiver = 0,
    /// Sends the masks of its items.
    Sender = 1,
}

/// The parties that learn the common items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PsiLearners {
    /// The receiver and, from it, the sender.
    Both = 0,
    /// The receiver only.
    Receiver = 1,
}

/// What a party computes.
#[derive(Clone, Copy, Debug)]
pub struct PsiTerms {
    /// This party's role; the other has the other role.
    pub role: PsiRole,
    /// Who learns the common items. Both parties must say the same.
    pub learners: PsiLearners,
    /// The number of items that this party shows to the other, instead of how many it has: at least
    /// as many, and at most [`MAX_ITEMS`].
    pub hidden_size: Option<u32>,
    /// A digest of how values become items. Both parties must have the same.
    pub comparison: [u8; 32],
}

impl PsiRole {
    /// The role of the other party.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Receiver => Self::Sender,
            Self::Sender => Self::Receiver,
        }
    }
}

impl fmt::Display for PsiRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Receiver => "receiver",
            Self::Sender => "sender",
        })
    }
}
