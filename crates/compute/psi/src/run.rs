//! What both parties know of a run, and what they exchange.

use ot::extension::SENDER_LEN;

use crate::cuckoo::{self, CHOICES};
use crate::encrypted_sum::ENCRYPTION_LEN;
use crate::hello::{HELLO_LEN, PsiRunDigest};
use crate::masks;
use crate::oblivious_prf;
use crate::points::POINT_LEN;
use crate::terms::PsiFunction;

/// The length of the key that selects bins, in bytes.
const BIN_KEY_LEN: usize = 16;

/// How many bytes the parties send, besides what the connection adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PsiTraffic {
    /// By the receiver, without its report to the sender.
    pub receiver: u64,
    /// By the sender, without its answer to that.
    pub sender: u64,
}

impl PsiTraffic {
    /// Of a run that finds which items are common, with so many items of each party.
    #[must_use]
    pub fn of(receiver: usize, sender: usize) -> Self {
        Self::of_function(&PsiFunction::Common, receiver, sender)
    }

    /// Of a run with so many items of each party.
    #[must_use]
    pub fn of_function(function: &PsiFunction<'_>, receiver: usize, sender: usize) -> Self {
        let mask_len = mask_len(function, receiver, sender);
        let [from_receiver, from_sender] = match function {
            PsiFunction::Common => [
                SENDER_LEN + BIN_KEY_LEN + oblivious_prf::message_len(cuckoo::bins(receiver)),
                oblivious_prf::set_up_len() + CHOICES * sender * mask_len,
            ],
            PsiFunction::Count => [receiver * POINT_LEN, receiver * mask_len + sender * POINT_LEN],
            PsiFunction::Sum(_) => [
                receiver * POINT_LEN + ENCRYPTION_LEN,
                receiver * mask_len + sender * (POINT_LEN + ENCRYPTION_LEN) + 2 * POINT_LEN,
            ],
        };
        Self {
            receiver: (HELLO_LEN + from_receiver) as u64,
            sender: (HELLO_LEN + from_sender) as u64,
        }
    }
}

/// The length of masks, in bytes.
pub(crate) fn mask_len(function: &PsiFunction<'_>, receiver: usize, sender: usize) -> usize {
    match function {
        PsiFunction::Common => masks::mask_len(receiver, CHOICES * sender),
        // The receiver's masks are compared with each other, too.
        PsiFunction::Count | PsiFunction::Sum(_) => masks::mask_len(receiver, receiver.max(sender)),
    }
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PsiProgress {
    /// The bytes that were exchanged.
    pub done: u64,
    /// The bytes of the whole run.
    pub of: u64,
}

/// What both parties know after their first messages.
pub(crate) struct PsiRun {
    pub(crate) digest: PsiRunDigest,
    /// The numbers of items that both have shown.
    pub(crate) receiver: usize,
    pub(crate) sender: usize,
    pub(crate) mask_len: usize,
    pub(crate) traffic: PsiTraffic,
    /// The number of items that the other party has shown.
    pub(crate) other_size: u32,
    /// The decimal places of the sender's numbers.
    pub(crate) decimals: u8,
}

impl PsiRun {
    /// How far a run is in which so many bytes were exchanged.
    pub(crate) fn progress(&self, done: usize) -> PsiProgress {
        let of = self.traffic.receiver + self.traffic.sender;
        PsiProgress { done: of.min(done as u64), of }
    }
}
