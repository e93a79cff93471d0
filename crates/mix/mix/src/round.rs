//! What the proxy tells the members about a round.

/// Length of a nonce in bytes.
pub const NONCE_LEN: usize = 16;

/// A member that has handed in its update in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Participant {
    /// Its number in the epoch.
    pub member: u16,
    /// What it has drawn for its mask of the round.
    pub nonce: [u8; NONCE_LEN],
}

/// A round whose mailbox is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRound {
    /// Its number.
    pub round: u64,
    /// Who handed in an update, each once, with ascending numbers.
    pub participants: Vec<Participant>,
}

/// A round that the proxy has opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundStart {
    /// The epoch in which it is.
    pub epoch: u32,
    /// Its number, greater than those of all rounds opened before in the epoch.
    pub round: u64,
    /// The round that is read in it: the one before. None in the first round of an epoch, and in
    /// the first one after the proxy was restarted.
    pub read: Option<ReadRound>,
}
