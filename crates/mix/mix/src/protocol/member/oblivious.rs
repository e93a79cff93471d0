//! A member's oblivious exchanges: it hands in an update of the whole mailbox, masked, and reads
//! some slots of the previous mailbox by an engine. The proxy does not learn which slots it writes
//! and reads.

mod auditing;
mod reading;
mod writing;

use std::collections::VecDeque;

use super::{MixMember, MixMemberError};
use crate::protocol::conversation::MIN_WINDOW;
use crate::protocol::round::NONCE_LEN;
use crate::{Mailbox, RoundStart};
pub use auditing::MIN_AUDIT_ROUNDS;
use auditing::MemberAudits;
use reading::ExchangeReads;
use writing::WrittenSlot;

/// The state of oblivious exchanges in an epoch.
#[derive(Default)]
pub(super) struct ObliviousRounds {
    /// The member whose slot is read next in the search for new conversations.
    scan: u16,
    /// What this member wrote in its last exchanges, for comparison with what it reads.
    written: VecDeque<WrittenSlot>,
    /// What it reads in the last exchange.
    reading: Option<ExchangeReads>,
    auditing: MemberAudits,
}

/// A member's part of a round.
#[derive(Clone, PartialEq, Eq)]
pub struct MemberExchange {
    /// The nonce of its mask. Public.
    pub nonce: [u8; NONCE_LEN],
    /// What it adds to the mailbox of the round.
    pub update: Mailbox,
    /// The q slots that it reads of the previous mailbox. Secret from the proxy. They are present
    /// even if nothing is read in the round.
    pub reads: Vec<usize>,
}

impl MixMember {
    /// Begins the exchange of a round. It replaces an earlier exchange of the same round whose
    /// request the proxy has not taken.
    ///
    /// `is_stored` says whether the current state of the conversations is stored. If not, this
    /// exchange writes to nobody: its contents could be lost, and waiting for the disk would tell
    /// the proxy that there is something to send.
    ///
    /// # Errors
    /// If the start of the round deviates from the protocol. The member is then unchanged.
    pub fn handle_round(
        &mut self,
        start: &RoundStart,
        is_stored: bool,
    ) -> Result<MemberExchange, MixMemberError> {
        self.begin_round(start)?;
        self.conversations.set_window(MIN_WINDOW);
        self.oblivious.auditing.remember(start);
        let (nonce, update) = self.write(start.round, is_stored);
        let reading = self.choose(start);
        let reads = reading.slots().collect();
        self.oblivious.reading = Some(reading);
        Ok(MemberExchange { nonce, update, reads })
    }

    /// Handles the slots of the last exchange, in the order of its `reads`. Ignores them if nothing
    /// was to be read.
    pub fn handle_slots(&mut self, slots: &[Vec<u8>]) {
        self.handle_answered();
        let since = self.conversations.not_of_round_since.take();
        if let Some(reading) = self.oblivious.reading.take() {
            self.read(&reading, slots, since);
        }
    }
}
