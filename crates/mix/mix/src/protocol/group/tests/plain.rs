//! An engine that hides nothing, and detects if its two ends are out of step.

use crate::protocol::engine::{MixEngineError, MixEngineName, ProxyEngine};
use crate::{Mailbox, MailboxShape};

pub(super) const FROM_PROXY: &[u8] = b"set up";
pub(super) const FROM_MEMBER: &[u8] = b"set up as well";

/// The proxy's end. It sends a set-up message, and expects one.
pub(super) struct PlainProxy {
    shape: MailboxShape,
    has_sent: bool,
    is_ready: bool,
    openings: u32,
    answers: u32,
}

#[expect(clippy::unnecessary_wraps, reason = "it is the constructor of an engine")]
pub(super) fn new(
    _: MixEngineName,
    shape: &MailboxShape,
    _: [u8; 32],
) -> Result<Box<dyn ProxyEngine>, MixEngineError> {
    let shape = *shape;
    let is_ready = false;
    Ok(Box::new(PlainProxy { shape, has_sent: false, is_ready, openings: 0, answers: 0 }))
}

impl ProxyEngine for PlainProxy {
    fn poll_set_up(&mut self) -> Option<Vec<u8>> {
        (!std::mem::replace(&mut self.has_sent, true)).then(|| FROM_PROXY.to_vec())
    }

    fn handle_set_up(&mut self, message: &[u8]) -> Result<(), MixEngineError> {
        if self.is_ready || message != FROM_MEMBER {
            return Err(MixEngineError::OutOfTurn);
        }
        self.is_ready = true;
        Ok(())
    }

    fn is_ready(&self) -> bool {
        self.is_ready
    }

    fn opening(&mut self, _: &Mailbox) -> Result<Vec<u8>, MixEngineError> {
        assert!(self.is_ready && self.openings == self.answers, "one opening for each request");
        self.openings += 1;
        Ok(self.openings.to_be_bytes().to_vec())
    }

    fn answer(
        &mut self,
        request: &[u8],
        read: &Mailbox,
    ) -> Result<(Mailbox, Vec<u8>), MixEngineError> {
        let expected = 4 + self.shape.mailbox_len() + 2 * self.shape.reads();
        let wrong_length = MixEngineError::Length { expected, len: request.len() };
        let (number, rest) = request.split_first_chunk::<4>().ok_or(wrong_length.clone())?;
        if request.len() != expected {
            return Err(wrong_length);
        }
        self.answers += 1;
        if u32::from_be_bytes(*number) != self.answers || self.answers != self.openings {
            return Err(MixEngineError::OutOfTurn);
        }
        let (update, reads) = rest.split_at(self.shape.mailbox_len());
        let update = Mailbox::from_bytes(&self.shape, update.to_vec()).expect("its length");
        let slots = reads.chunks(2).map(|slot| usize::from(u16::from_be_bytes([slot[0], slot[1]])));
        Ok((update, slots.flat_map(|slot| read.slot(slot % self.shape.slots()).to_vec()).collect()))
    }
}

/// The member's request for the exchange with this opening.
pub(super) fn request(opening: &[u8], update: &Mailbox, reads: &[u16]) -> Vec<u8> {
    let reads: Vec<u8> = reads.iter().flat_map(|slot| slot.to_be_bytes()).collect();
    [opening, update.as_bytes(), &reads].concat()
}
