//! The two ends of an engine's extended transfers, including the set-up.

use blocks::Block;
use ot::extension::{
    OtExtension, OtExtensionReceiver, OtExtensionSender, OtReceiverSetUp, OtSenderSetUp,
};
use zeroize::Zeroizing;

use crate::protocol::engine::MixEngineError;

/// The two blocks of an engine's seed.
pub(super) fn blocks_of(seed: [u8; 32]) -> [Block; 2] {
    let seed = Zeroizing::new(seed);
    let (halves, _) = seed.as_chunks();
    [Block::from_bytes(halves[0]), Block::from_bytes(halves[1])]
}

/// The sender, which sends the first message of the set-up.
pub(super) struct EngineOtSender {
    message: Option<Vec<u8>>,
    set_up: Option<OtSenderSetUp>,
    sender: Option<OtExtensionSender>,
}

impl EngineOtSender {
    pub(super) fn new(extension: OtExtension, offset: Block, seed: Block) -> Self {
        let (set_up, message) = OtSenderSetUp::new(extension, offset, seed);
        Self { message: Some(message), set_up: Some(set_up), sender: None }
    }

    pub(super) fn poll_set_up(&mut self) -> Option<Vec<u8>> {
        self.message.take()
    }

    pub(super) fn handle_set_up(&mut self, message: &[u8]) -> Result<(), MixEngineError> {
        let set_up = self.set_up.take().ok_or(MixEngineError::OutOfTurn)?;
        self.sender = Some(set_up.receive(message)?);
        Ok(())
    }

    pub(super) fn is_ready(&self) -> bool {
        self.sender.is_some()
    }

    pub(super) fn sender(&mut self) -> Result<&mut OtExtensionSender, MixEngineError> {
        self.sender.as_mut().ok_or(MixEngineError::OutOfTurn)
    }
}

/// The receiver, which replies to the sender's message.
pub(super) struct EngineOtReceiver {
    set_up: Option<OtReceiverSetUp>,
    reply: Option<Vec<u8>>,
    receiver: Option<OtExtensionReceiver>,
}

impl EngineOtReceiver {
    pub(super) fn new(extension: OtExtension, seed: Block) -> Self {
        Self { set_up: Some(OtReceiverSetUp::new(extension, seed)), reply: None, receiver: None }
    }

    pub(super) fn poll_set_up(&mut self) -> Option<Vec<u8>> {
        self.reply.take()
    }

    pub(super) fn handle_set_up(&mut self, message: &[u8]) -> Result<(), MixEngineError> {
        let set_up = self.set_up.take().ok_or(MixEngineError::OutOfTurn)?;
        let (receiver, reply) = set_up.receive(message)?;
        (self.receiver, self.reply) = (Some(receiver), Some(reply));
        Ok(())
    }

    pub(super) fn is_ready(&self) -> bool {
        self.receiver.is_some()
    }

    pub(super) fn receiver(&mut self) -> Result<&mut OtExtensionReceiver, MixEngineError> {
        self.receiver.as_mut().ok_or(MixEngineError::OutOfTurn)
    }
}
