//! What the proxy tells the members about a round.

/// Length of a nonce in bytes.
pub const NONCE_LEN: usize = 16;

/// A member that has handed in its update in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Participant {
    /// Its number in the epoch.
    pub member: u16,
    /// The random nonce of its mask or seals in this round.
    pub nonce: [u8; NONCE_LEN],
}

/// A round whose mailbox is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRound {
    /// Its number.
    pub round: u64,
    /// The members that handed in an update, each once, in ascending order of their numbers.
    pub participants: Vec<Participant>,
}

/// A round that the proxy has opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundStart {
    /// The epoch of the round.
    pub epoch: u32,
    /// Its number, greater than those of all earlier rounds of the epoch.
    pub round: u64,
    /// The previous round, whose mailbox is read in this one. `None` in the first round of an epoch
    /// and in the first round after a restart of the proxy.
    pub read: Option<ReadRound>,
}

/// A round of an epoch. Positions are in the order in which the rounds were closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RoundPosition {
    /// The epoch.
    pub epoch: u32,
    /// The number of the round.
    pub round: u64,
}
