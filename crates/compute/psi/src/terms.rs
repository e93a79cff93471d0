//! What a party computes.

use std::fmt;

/// The maximum number of items of a party.
pub const MAX_ITEMS: usize = 1 << 24;

/// The maximum number of decimal places of numbers.
pub const MAX_DECIMALS: u8 = 12;

/// A party's role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PsiRole {
    /// Learns the result first.
    Receiver = 0,
    /// The other party.
    Sender = 1,
}

/// The parties that learn the result.
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
    /// Who learns the result. Both parties must say the same.
    pub learners: PsiLearners,
    /// The number of items that this party shows to the other, instead of how many it has: at least
    /// as many, and at most [`MAX_ITEMS`].
    pub hidden_size: Option<u32>,
    /// A digest of how values become items. Both parties must have the same.
    pub comparison: [u8; 32],
}

/// What is computed of the items that both parties have. Both must say the same.
#[derive(Clone, Copy, Debug)]
pub enum PsiFunction<'a> {
    /// Which they are.
    Common,
    /// How many they are.
    Count,
    /// How many they are, and the sum of the sender's numbers for them.
    Sum(PsiNumbers<'a>),
}

/// The sender's numbers.
#[derive(Clone, Copy)]
pub struct PsiNumbers<'a> {
    /// A digest of what they are. Both parties must have the same.
    pub column: [u8; 32],
    /// The number of each of the sender's items. Their absolute values are at most
    /// [`MAX_SUM`](crate::MAX_SUM) in all. None at the receiver.
    pub values: &'a [i64],
    /// How many decimal places the sender's numbers have, at most [`MAX_DECIMALS`]. The receiver is
    /// told this, and its own value has no meaning.
    pub decimals: u8,
}

impl PsiFunction<'_> {
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Common => 0,
            Self::Count => 1,
            Self::Sum(_) => 2,
        }
    }
}

impl fmt::Debug for PsiNumbers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PsiNumbers").finish_non_exhaustive()
    }
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
