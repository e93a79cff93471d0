//! The mailbox of a round.

use crate::MailboxShape;

/// N slots of L bytes as the proxy stores them: each is the sum (exclusive or) of the participants'
/// masks and of the written contents. An update has the same type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mailbox {
    slot_len: usize,
    bytes: Vec<u8>,
}

impl Mailbox {
    /// A mailbox of zeros.
    pub fn new(shape: &MailboxShape) -> Self {
        Self { slot_len: shape.slot_len(), bytes: vec![0; shape.mailbox_len()] }
    }

    /// A mailbox of these bytes; `None` if their number is not that of the shape.
    pub fn from_bytes(shape: &MailboxShape, bytes: Vec<u8>) -> Option<Self> {
        let slot_len = shape.slot_len();
        (bytes.len() == shape.mailbox_len()).then_some(Self { slot_len, bytes })
    }

    /// All slots, one after the other.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// All slots, one after the other.
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// One slot.
    ///
    /// # Panics
    /// If there is no such slot.
    pub fn slot(&self, slot: usize) -> &[u8] {
        &self.bytes[slot * self.slot_len..][..self.slot_len]
    }

    /// One slot.
    ///
    /// # Panics
    /// If there is no such slot.
    pub fn slot_mut(&mut self, slot: usize) -> &mut [u8] {
        &mut self.bytes[slot * self.slot_len..][..self.slot_len]
    }

    /// Adds (exclusive or) an update of the same shape.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn add(&mut self, update: &Self) {
        assert_eq!(self.bytes.len(), update.bytes.len(), "mailboxes of one shape");
        self.bytes.iter_mut().zip(&update.bytes).for_each(|(byte, added)| *byte ^= added);
    }
}
