//! The common part of the engines `ot` and `bdd`: the proxy encrypts each slot with a key of its
//! own, and the member gets q of the N keys, each by a 1-of-N transfer of 16 bytes. The engines
//! differ in the implementation of this transfer: [`SlotTransfer`].
//!
//! The bits of the choices are the choice bits of extended transfers, in which the member is the
//! receiver. Its message is part of the request, so an exchange takes one round trip.

use blocks::Block;
use blocks::prg::Prg;
use ot::extension::{OtExtension, OtExtensionKind, OtExtensionSecurity};
use ot::messages::add_pad;
use ot::one_of_n;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::protocol::engine::transfers::{EngineOtReceiver, EngineOtSender, blocks_of};
use crate::protocol::engine::{
    ExchangeMessageLengths, MemberEngine, MixEngineError, ProxyEngine, check_exchange, check_len,
};
use crate::{Mailbox, MailboxShape};

/// Four bits per tree are the fastest for some hundred transfers, with 512 bytes.
const EXTENSION: OtExtension =
    OtExtension { kind: OtExtensionKind::SoftSpoken4, security: OtExtensionSecurity::SemiHonest };

/// The bytes of a slot's key.
const KEY_LEN: usize = 16;

/// A 1-of-N transfer of pads, made from one random transfer for each bit of the choice, the lowest
/// bit first. A pad is one block. It is used once, and hides the key of its slot.
pub(super) trait SlotTransfer: Send {
    /// The proxy's end: overwrites `pads` with the pads of all N slots, from both keys of each
    /// transfer.
    ///
    /// # Errors
    /// If the number of keys is not the number of transfers that N pads take.
    fn pads(&self, keys: &[[Block; 2]], pads: &mut [Block]) -> Result<(), MixEngineError>;

    /// The member's end: the pad of slot `chosen`, from the chosen key of each transfer. No branch
    /// or address depends on the choice.
    ///
    /// # Errors
    /// If the choice is not below N, or the number of keys is wrong.
    fn pad(&self, keys: &[Block], chosen: usize) -> Result<Block, MixEngineError>;
}

/// The number of transfers of an exchange.
fn transfers(shape: &MailboxShape) -> usize {
    shape.reads() * one_of_n::transfers(shape.slots())
}

fn request_len(shape: &MailboxShape) -> usize {
    shape.mailbox_len() + EXTENSION.message_len(transfers(shape))
}

fn answer_len(shape: &MailboxShape) -> usize {
    shape.mailbox_len() + shape.reads() * shape.slots() * KEY_LEN
}

pub(super) fn message_lens(shape: &MailboxShape) -> ExchangeMessageLengths {
    ExchangeMessageLengths { opening: 0, request: request_len(shape), answer: answer_len(shape) }
}

/// The member's end.
pub(super) struct SlotTransferMemberEngine<T> {
    shape: MailboxShape,
    transfer: T,
    end: EngineOtReceiver,
    /// The slots that were chosen in the last request, and the pads of their keys.
    chosen: Option<Zeroizing<Vec<(usize, Block)>>>,
}

impl<T: SlotTransfer> SlotTransferMemberEngine<T> {
    pub(super) fn new(shape: MailboxShape, transfer: T, seed: [u8; 32]) -> Self {
        let [seed, _] = blocks_of(seed);
        Self { shape, transfer, end: EngineOtReceiver::new(EXTENSION, seed), chosen: None }
    }
}

impl<T: SlotTransfer> MemberEngine for SlotTransferMemberEngine<T> {
    fn poll_set_up(&mut self) -> Option<Vec<u8>> {
        self.end.poll_set_up()
    }

    fn handle_set_up(&mut self, message: &[u8]) -> Result<(), MixEngineError> {
        self.end.handle_set_up(message)
    }

    fn is_ready(&self) -> bool {
        self.end.is_ready()
    }

    fn request(
        &mut self,
        opening: &[u8],
        update: &Mailbox,
        reads: &[usize],
    ) -> Result<Vec<u8>, MixEngineError> {
        let receiver = self.end.receiver()?;
        check_len(opening, 0)?;
        check_exchange(&self.shape, update, reads)?;
        let slots = self.shape.slots();
        let choices = Zeroizing::new(one_of_n::choices(reads, slots)?);
        let mut keys = Zeroizing::new(vec![Block::ZERO; transfers(&self.shape)]);
        let mut request = Vec::with_capacity(request_len(&self.shape));
        request.extend_from_slice(update.as_bytes());
        receiver.random(&choices, &mut keys, &mut request)?;
        let mut chosen = Zeroizing::new(Vec::with_capacity(reads.len()));
        for (&slot, keys) in reads.iter().zip(keys.chunks_exact(one_of_n::transfers(slots))) {
            chosen.push((slot, self.transfer.pad(keys, slot)?));
        }
        self.chosen = Some(chosen);
        Ok(request)
    }

    fn slots(&mut self, answer: &[u8]) -> Result<Vec<Vec<u8>>, MixEngineError> {
        let chosen = self.chosen.take().ok_or(MixEngineError::OutOfTurn)?;
        check_len(answer, answer_len(&self.shape))?;
        let (ciphertexts, keys) = answer.split_at(self.shape.mailbox_len());
        let mut slots = vec![vec![0; self.shape.slot_len()]; chosen.len()];
        for (i, ciphertext) in ciphertexts.chunks_exact(self.shape.slot_len()).enumerate() {
            for ((chosen, _), slot) in chosen.iter().zip(&mut slots) {
                add_if_equal(i, *chosen, ciphertext, slot);
            }
        }
        let keys = keys.chunks_exact(self.shape.slots() * KEY_LEN);
        for (((chosen, pad), keys), slot) in chosen.iter().zip(keys).zip(&mut slots) {
            let mut key = Zeroizing::new(pad.to_bytes());
            for (i, sent) in keys.as_chunks::<KEY_LEN>().0.iter().enumerate() {
                add_if_equal(i, *chosen, sent, &mut *key);
            }
            add_pad(Block::from_bytes(*key), slot);
        }
        Ok(slots)
    }
}

/// Adds bytes if `number` is `chosen`, without a branch or address that depends on it.
#[inline]
fn add_if_equal(number: usize, chosen: usize, bytes: &[u8], to: &mut [u8]) {
    let mask = number.ct_eq(&chosen).unwrap_u8().wrapping_neg();
    to.iter_mut().zip(bytes).for_each(|(to, byte)| *to ^= byte & mask);
}

/// The proxy's end.
pub(super) struct SlotTransferProxyEngine<T> {
    shape: MailboxShape,
    transfer: T,
    end: EngineOtSender,
    /// Generates the slots' keys.
    keys: Prg,
}

impl<T: SlotTransfer> SlotTransferProxyEngine<T> {
    pub(super) fn new(shape: MailboxShape, transfer: T, seed: [u8; 32]) -> Self {
        let [seed, keys] = blocks_of(seed);
        let mut seeds = Prg::new(seed);
        let end = EngineOtSender::new(EXTENSION, seeds.block(), seeds.block());
        Self { shape, transfer, end, keys: Prg::new(keys) }
    }
}

impl<T: SlotTransfer> ProxyEngine for SlotTransferProxyEngine<T> {
    fn poll_set_up(&mut self) -> Option<Vec<u8>> {
        self.end.poll_set_up()
    }

    fn handle_set_up(&mut self, message: &[u8]) -> Result<(), MixEngineError> {
        self.end.handle_set_up(message)
    }

    fn is_ready(&self) -> bool {
        self.end.is_ready()
    }

    fn opening(&mut self, read: &Mailbox) -> Result<Vec<u8>, MixEngineError> {
        self.end.sender()?;
        check_len(read.as_bytes(), self.shape.mailbox_len())?;
        Ok(Vec::new())
    }

    fn answer(
        &mut self,
        request: &[u8],
        read: &Mailbox,
    ) -> Result<(Mailbox, Vec<u8>), MixEngineError> {
        let sender = self.end.sender()?;
        check_len(request, request_len(&self.shape))?;
        check_len(read.as_bytes(), self.shape.mailbox_len())?;
        let (update, message) = request.split_at(self.shape.mailbox_len());
        let mut pairs = Zeroizing::new(vec![[Block::ZERO; 2]; transfers(&self.shape)]);
        sender.random(message, &mut pairs)?;

        let slots = self.shape.slots();
        let mut slot_keys = Zeroizing::new(vec![Block::ZERO; slots]);
        self.keys.fill(&mut slot_keys);
        let mut answer = Vec::with_capacity(answer_len(&self.shape));
        answer.extend_from_slice(read.as_bytes());
        let ciphertexts = answer.chunks_exact_mut(self.shape.slot_len());
        slot_keys.iter().zip(ciphertexts).for_each(|(key, slot)| add_pad(*key, slot));

        let mut pads = Zeroizing::new(vec![Block::ZERO; slots]);
        for pairs in pairs.chunks_exact(one_of_n::transfers(slots)) {
            self.transfer.pads(pairs, &mut pads)?;
            pads.iter_mut().zip(slot_keys.iter()).for_each(|(pad, key)| *pad ^= *key);
            answer.extend_from_slice(Block::bytes_of(&pads));
        }
        let update = Mailbox::from_bytes(&self.shape, update.to_vec());
        Ok((update.expect("as many bytes as a mailbox has"), answer))
    }
}
