//! The engine `circuit`: slots are selected by a garbled circuit. The member garbles and the proxy
//! evaluates. Slot j of the mailbox is the sum of all slots, each `AND`ed with a bit that is 1 only
//! for slot j.
//!
//! The garbler knows these bits, so an AND is the generator half of a half gate (Zahur, Rosulek,
//! Evans 2015), with one ciphertext: H(x) + H(x + d) + a, where x and x + d are the labels of the
//! proxy's bit, `a` is the member's bit and + is exclusive or. The outputs of the ANDs are only
//! added, which is free, and the garbler itself decodes the result. Labels of one bit are therefore
//! enough after an AND, and a ciphertext has one bit. The q ANDs of one bit of the mailbox use
//! different bits of one hash. Masks and updates are added outside the circuit.
//!
//! The proxy receives the labels of its bits by extended transfers. Its message as the receiver is
//! the opening, which goes out with the start of the round, so an exchange takes one round trip.
//! Both ends accumulate their sums as they go: they keep q slots of an exchange, not the labels of
//! a whole mailbox.

use blocks::Block;
use ot::extension::{OtExtension, OtExtensionKind, OtExtensionSecurity};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::protocol::engine::transfers::{EngineOtReceiver, EngineOtSender, blocks_of};
use crate::protocol::engine::{
    ExchangeMessageLengths, MemberEngine, MixEngineError, ProxyEngine, check_exchange, check_len,
};
use crate::{Mailbox, MailboxShape};

/// Four bits per tree: half the bytes of two bits, and less computation than eight.
const EXTENSION: OtExtension =
    OtExtension { kind: OtExtensionKind::SoftSpoken4, security: OtExtensionSecurity::SemiHonest };

/// The number of transfers of a slot: one for each bit.
fn transfers(shape: &MailboxShape) -> usize {
    8 * shape.slot_len()
}

/// The bytes of one slot's transfers in the opening.
fn opened_len(shape: &MailboxShape) -> usize {
    EXTENSION.message_len(transfers(shape))
}

/// The bytes of q slots: the length of a slot's ciphertexts, and of an answer.
fn read_len(shape: &MailboxShape) -> usize {
    shape.reads() * shape.slot_len()
}

pub(super) fn message_lens(shape: &MailboxShape) -> ExchangeMessageLengths {
    ExchangeMessageLengths {
        opening: shape.slots() * opened_len(shape),
        request: shape.mailbox_len() + shape.slots() * read_len(shape),
        answer: read_len(shape),
    }
}

/// The member's end.
pub(super) struct CircuitMemberEngine {
    shape: MailboxShape,
    end: EngineOtSender,
    /// The mask of the slots in the answer to the last request.
    answer_mask: Option<Zeroizing<Vec<u8>>>,
}

impl CircuitMemberEngine {
    pub(super) fn new(shape: MailboxShape, seed: [u8; 32]) -> Self {
        let [offset, seed] = blocks_of(seed);
        Self { shape, end: EngineOtSender::new(EXTENSION, offset, seed), answer_mask: None }
    }
}

impl MemberEngine for CircuitMemberEngine {
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
        let sender = self.end.sender()?;
        let lens = message_lens(&self.shape);
        check_len(opening, lens.opening)?;
        check_exchange(&self.shape, update, reads)?;

        let mut pairs = Zeroizing::new(vec![[Block::ZERO; 2]; transfers(&self.shape)]);
        let mut differences = Zeroizing::new(vec![0; pairs.len()]);
        let mut sums = Zeroizing::new(vec![0; pairs.len()]);
        let mut request = Vec::with_capacity(lens.request);
        request.extend_from_slice(update.as_bytes());
        for (slot, opened) in opening.chunks_exact(opened_len(&self.shape)).enumerate() {
            sender.random(opened, &mut pairs)?;
            for ((pair, difference), sum) in
                pairs.iter().zip(differences.iter_mut()).zip(sums.iter_mut())
            {
                let [zero, one] = pair.map(low_half);
                *difference = zero ^ one;
                *sum ^= zero;
            }
            let begin = request.len();
            request.resize(begin + read_len(&self.shape), 0);
            let ciphertexts = &mut request[begin..];
            add_slices(&differences, ciphertexts);
            for (read, ciphertexts) in
                reads.iter().zip(ciphertexts.chunks_exact_mut(self.shape.slot_len()))
            {
                // All ones for the slot that is read.
                let selection = slot.ct_eq(read).unwrap_u8().wrapping_neg();
                for byte in ciphertexts {
                    *byte ^= selection;
                }
            }
        }
        let mut added = Zeroizing::new(vec![0; read_len(&self.shape)]);
        add_slices(&sums, &mut added);
        self.answer_mask = Some(added);
        Ok(request)
    }

    fn slots(&mut self, answer: &[u8]) -> Result<Vec<Vec<u8>>, MixEngineError> {
        let added = self.answer_mask.take().ok_or(MixEngineError::OutOfTurn)?;
        check_len(answer, read_len(&self.shape))?;
        let slot_len = self.shape.slot_len();
        let slots = answer.chunks_exact(slot_len).zip(added.chunks_exact(slot_len));
        Ok(slots
            .map(|(answer, added)| answer.iter().zip(added).map(|(a, b)| a ^ b).collect())
            .collect())
    }
}

/// The proxy's end.
pub(super) struct CircuitProxyEngine {
    shape: MailboxShape,
    end: EngineOtReceiver,
    /// The sum of the hashes of the labels of the last opening.
    sum: Option<Zeroizing<Vec<u8>>>,
}

impl CircuitProxyEngine {
    pub(super) fn new(shape: MailboxShape, seed: [u8; 32]) -> Self {
        let [seed, _] = blocks_of(seed);
        Self { shape, end: EngineOtReceiver::new(EXTENSION, seed), sum: None }
    }
}

impl ProxyEngine for CircuitProxyEngine {
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
        let receiver = self.end.receiver()?;
        check_len(read.as_bytes(), self.shape.mailbox_len())?;
        let mut chosen = Zeroizing::new(vec![Block::ZERO; transfers(&self.shape)]);
        let mut sums = Zeroizing::new(vec![0; chosen.len()]);
        let mut opening = Vec::with_capacity(message_lens(&self.shape).opening);
        for slot in 0..self.shape.slots() {
            receiver.random(read.slot(slot), &mut chosen, &mut opening)?;
            sums.iter_mut().zip(chosen.iter()).for_each(|(sum, block)| *sum ^= low_half(*block));
        }
        let mut sum = Zeroizing::new(vec![0; read_len(&self.shape)]);
        add_slices(&sums, &mut sum);
        self.sum = Some(sum);
        Ok(opening)
    }

    fn answer(
        &mut self,
        request: &[u8],
        read: &Mailbox,
    ) -> Result<(Mailbox, Vec<u8>), MixEngineError> {
        self.end.receiver()?;
        check_len(request, message_lens(&self.shape).request)?;
        check_len(read.as_bytes(), self.shape.mailbox_len())?;
        let mut sum = self.sum.take().ok_or(MixEngineError::OutOfTurn)?;
        let (update, ciphertexts) = request.split_at(self.shape.mailbox_len());
        let slot_len = self.shape.slot_len();
        for (slot, ciphertexts) in ciphertexts.chunks_exact(read_len(&self.shape)).enumerate() {
            let bits = read.slot(slot);
            for (sum, ciphertexts) in
                sum.chunks_exact_mut(slot_len).zip(ciphertexts.chunks_exact(slot_len))
            {
                for ((sum, bits), ciphertext) in sum.iter_mut().zip(bits).zip(ciphertexts) {
                    *sum ^= bits & ciphertext;
                }
            }
        }
        let update = Mailbox::from_bytes(&self.shape, update.to_vec());
        Ok((update.expect("as many bytes as a mailbox has"), sum.to_vec()))
    }
}

/// The half of a hash that is used: one bit for each of up to 64 reads.
#[inline]
fn low_half(block: Block) -> u64 {
    let (halves, _) = Block::bytes_of(std::slice::from_ref(&block)).as_chunks::<8>();
    u64::from_le_bytes(halves[0])
}

/// Adds bit j of word i to bit i of slice j, where `to` has slices of as many bits as words.
fn add_slices(words: &[u64], to: &mut [u8]) {
    let (bytes, _) = words.as_chunks::<8>();
    for (group, slices) in to.chunks_mut(8 * bytes.len()).enumerate() {
        for (at, words) in bytes.iter().enumerate() {
            let column = transpose(words.map(|word| word.to_le_bytes()[group]));
            let slices = slices.iter_mut().skip(at).step_by(bytes.len());
            slices.zip(column).for_each(|(byte, bits)| *byte ^= bits);
        }
    }
}

/// The transpose of a matrix of 8 times 8 bits.
#[inline]
fn transpose(rows: [u8; 8]) -> [u8; 8] {
    let mut bits = u64::from_le_bytes(rows);
    for (distance, upper) in
        [(7, 0x00AA_00AA_00AA_00AA), (14, 0x0000_CCCC_0000_CCCC), (28, 0x0000_0000_F0F0_F0F0)]
    {
        let different = (bits ^ bits >> distance) & upper;
        bits ^= different ^ different << distance;
    }
    bits.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_transposed_into_slices() {
        let mut random = fastrand::Rng::with_seed(1);
        for (words, slices) in [(8, 1), (64, 3), (16, 8), (24, 13), (512, 64)] {
            let words: Vec<u64> = (0..words).map(|_| random.u64(..)).collect();
            let before: Vec<u8> = (0..words.len() / 8 * slices).map(|_| random.u8(..)).collect();
            let mut after = before.clone();
            add_slices(&words, &mut after);
            let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (at % 8) & 1;
            for slice in 0..slices {
                for (i, word) in words.iter().enumerate() {
                    let at = slice * words.len() + i;
                    let expected = bit(&before, at) ^ u8::from(word >> slice & 1 == 1);
                    assert_eq!(bit(&after, at), expected, "bit {slice} of word {i}");
                }
            }
        }
    }

    /// For N = 201, L = 256 and q = 12: 4 bytes per bit of the mailbox in the opening, and 12 per
    /// byte in the request.
    #[test]
    fn an_and_takes_one_ciphertext_of_one_bit() {
        let shape = MailboxShape::new(100, 2, 1, 12, 256).unwrap();
        let expected = ExchangeMessageLengths {
            opening: 201 * 256 * 8 * 4,
            request: 201 * 256 * (1 + 12),
            answer: 256 * 12,
        };
        assert_eq!(message_lens(&shape), expected);
    }
}
