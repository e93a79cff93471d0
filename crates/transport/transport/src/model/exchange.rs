//! The exchange for which a program opens a connection.

use serde::{Deserialize, Serialize};

/// The traffic of a connection that is about to be opened. In each round, the client sends and then
/// the server answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExchangeProfile {
    /// The bytes that the client sends, in all rounds together.
    pub sent: u64,
    /// The bytes that the client receives, in all rounds together.
    pub received: u64,
    /// The number of answers that the client waits for; 0 counts as 1.
    pub rounds: u32,
}

impl ExchangeProfile {
    /// The number of rounds, at least one: the peer acknowledges at least the end.
    pub fn rounds(self) -> u32 {
        self.rounds.max(1)
    }

    /// The bytes that the client sends in a round, at least one.
    pub(super) fn sent_each(self) -> f64 {
        each(self.sent, self.rounds())
    }

    /// The bytes that the server answers in a round, at least one.
    pub(super) fn received_each(self) -> f64 {
        each(self.received, self.rounds())
    }
}

#[expect(clippy::cast_precision_loss, reason = "a size beyond 2^53 may be rounded")]
fn each(bytes: u64, rounds: u32) -> f64 {
    (bytes as f64 / f64::from(rounds)).max(1.0)
}
