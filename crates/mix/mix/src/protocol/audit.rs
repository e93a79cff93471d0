//! The audit of a member's update. Its two parties are the proxy, which has the update, and another
//! member, the auditor, which can compute the update's mask and the order of the slots. They
//! evaluate a garbled circuit that tells the proxy one bit: whether the update without its mask is
//! zero in all slots except at most s of the member's own slots. The proxy learns nothing else
//! about mask and order, and the auditor learns nothing about the update.
//!
//! The circuit does not depend on the length of slots, because each slot is hashed first. The hash
//! is linear over GF(2), so the hash of an unmasked slot is the sum of the hashes of update and
//! mask. The proxy draws the hash's key after it has received the update.
//!
//! The auditor garbles. The proxy gets the labels of the update's hashes by extended transfers with
//! a check of the receiver: a deviating proxy gets the circuit's one bit for another update, but
//! nothing more. Each audit has its own set-up. This module does no I/O. Lengths depend only on the
//! shape. `docs/protocols/mix.md` specifies the messages.

mod circuit;

use ::circuit::{CircuitSchedule, CircuitSource as _};
use blocks::Block;
use garble::{Evaluator, Garbler, GarblingScheme, PartLabelBuffer};
use ot::extension::{
    OtExtension, OtExtensionKind, OtExtensionSecurity, OtReceiverSetUp, OtSenderSetUp, SENDER_LEN,
};
use sharing::keyed::{KeyedHash, POINT_LEN};
use zeroize::Zeroizing;

use crate::{Mailbox, MailboxShape, MixGroupKey, Participant, SlotPermutation};

/// The maximum number of slots of a mailbox with audits. In larger ones the tables would be too
/// long.
pub const MAX_AUDIT_SLOTS: usize = 1 << 14;

/// The bits of a slot's hash. It misses a change with a probability of (L / 8 + 1) / 2^32 at most.
const HASH_BITS: usize = 32;
const HASH_LEN: usize = HASH_BITS / 8;

const EXTENSION: OtExtension = OtExtension {
    kind: OtExtensionKind::SoftSpoken4,
    security: OtExtensionSecurity::MaliciousReceiver,
};
/// Length of the proxy's random input: the hash's key, and a seed.
pub(crate) const RANDOM_LEN: usize = POINT_LEN + 16;
const SCHEME: GarblingScheme = GarblingScheme::HalfGates;
const LABEL_LEN: usize = 16;

/// Why a step of an audit fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpdateAuditError {
    /// A message has the wrong length.
    #[error("a message of an audit has {len} bytes, and not {expected}")]
    Length {
        /// How many bytes it should have.
        expected: usize,
        /// How many it has.
        len: usize,
    },
    /// A message of an oblivious transfer is invalid.
    #[error("{0}")]
    Transfer(#[from] ot::Error),
    /// The garbled circuit is not that of the audit.
    #[error("{0}")]
    Circuit(#[from] garble::Error),
}

/// Length of the auditor's set-up message in bytes.
pub(crate) const SET_UP_LEN: usize = SENDER_LEN;

/// Length of the proxy's choices in bytes.
pub(crate) fn choices_len(shape: &MailboxShape) -> usize {
    POINT_LEN + EXTENSION.reply_len() + EXTENSION.message_len(HASH_BITS * shape.slots())
}

/// The longest message of an audit, in bytes; 0 if such mailboxes are not audited.
pub(crate) fn max_message_len(shape: &MailboxShape) -> usize {
    if shape.slots() > MAX_AUDIT_SLOTS {
        return 0;
    }
    let ciphertexts = 2 * LABEL_LEN * circuit::max_ands(shape);
    let tables = LABEL_LEN + LABEL_LEN * shape.slots() + ciphertexts + 1;
    tables.max(choices_len(shape)).max(SET_UP_LEN)
}

/// The auditor's end, before the proxy's choices. Secret, wiped on drop.
pub(crate) struct UpdateAuditor {
    set_up: OtSenderSetUp,
    offset: Zeroizing<Block>,
    labels: Zeroizing<Block>,
}

/// The audited update, as the auditor knows it.
pub(crate) struct AuditSubject<'a> {
    pub(crate) shape: &'a MailboxShape,
    pub(crate) key: &'a MixGroupKey,
    pub(crate) round: u64,
    pub(crate) participant: Participant,
}

impl UpdateAuditor {
    /// An auditor, and its set-up message. The blocks are uniformly random, secret, and used once.
    pub(crate) fn new([offset, transfers, labels]: [Block; 3]) -> (Self, Vec<u8>) {
        let offset = offset.with_lsb(true);
        let (set_up, message) = OtSenderSetUp::new(EXTENSION, offset, transfers);
        let (offset, labels) = (Zeroizing::new(offset), Zeroizing::new(labels));
        (Self { set_up, offset, labels }, message)
    }

    /// The garbled circuit for the proxy's choices: its public value, the labels of the auditor's
    /// bits, the tables, and the bit that decodes the output.
    ///
    /// # Errors
    /// If the choices have the wrong length, or the proxy deviates in the transfers.
    pub(crate) fn tables(
        self,
        subject: &AuditSubject,
        choices: &[u8],
    ) -> Result<Vec<u8>, UpdateAuditError> {
        let Self { set_up, offset, labels } = self;
        let shape = subject.shape;
        check_len(choices, choices_len(shape))?;
        let (point, transfers) = choices.split_first_chunk().expect("its length");
        let (reply, transfers) = transfers.split_at(EXTENSION.reply_len());
        let mut zeros = Zeroizing::new(vec![Block::ZERO; HASH_BITS * shape.slots()]);
        set_up.receive(reply)?.extend(transfers, &mut zeros)?;

        let schedule = circuit::schedule(shape);
        let mut garbler = Garbler::new(SCHEME, *labels, *offset, schedule.shape());
        let slots = input_count(shape.slots());
        // The proxy has the labels of the bits of the update's hash. Here the labels of 0 and 1 are
        // exchanged where the hash of the mask has a one, so the proxy evaluates with their sum.
        let masks = subject.mask_hashes(&KeyedHash::new(*point));
        for ((input, zero), at) in (slots..).zip(zeros.iter()).zip(0..) {
            garbler.set_input(input, bit(&masks, at), *zero);
        }
        let mut message = garbler.public().to_bytes().to_vec();
        let own = garbler.input_labels(0..slots);
        for (label, is_own) in Zeroizing::new(own).iter().zip(subject.own_slots().iter()) {
            let label = *label ^ (*offset & Block::mask(*is_own == 1));
            message.extend(label.to_bytes());
        }
        let mut memory = PartLabelBuffer::default();
        for part in (0..schedule.parts()).map(|at| schedule.part(at)) {
            garbler.garble(&mut memory, &part, &mut message);
        }
        message.extend(garbler.decoding().into_iter().map(u8::from));
        Ok(message)
    }
}

impl AuditSubject<'_> {
    /// The hashes of the slots of the mask, one after the other.
    fn mask_hashes(&self, hash: &KeyedHash) -> Zeroizing<Vec<u8>> {
        let mut mask = self.key.mask(self.round, &self.participant);
        let mut slot = Zeroizing::new(vec![0; self.shape.slot_len()]);
        let mut hashes = Zeroizing::new(Vec::with_capacity(HASH_LEN * self.shape.slots()));
        for place in 0..self.shape.slots() {
            slot.fill(0);
            mask.add_to_slot(place, &mut slot);
            hashes.extend(hash_of(hash, &slot));
        }
        hashes
    }

    /// For each slot 1 if it is the member's, and 0 otherwise.
    fn own_slots(&self) -> Zeroizing<Vec<u8>> {
        let order = SlotPermutation::new(self.key, self.round, self.shape);
        let mut own = Zeroizing::new(vec![0; self.shape.slots()]);
        for offset in 0..self.shape.slots_per_member() {
            own[order.slot(self.participant.member.into(), offset)] = 1;
        }
        own
    }
}

/// The proxy's end, before the auditor's tables.
pub(crate) struct AuditEvaluation {
    schedule: CircuitSchedule,
    /// The labels of the hashes' bits. Wiped on drop.
    labels: Zeroizing<Vec<Block>>,
}

impl AuditEvaluation {
    /// Handles the auditor's set-up message, and returns the choices to send. `random` must be
    /// uniformly random, secret, used once, and drawn after the update has arrived.
    ///
    /// # Errors
    /// If the message is not a set-up message.
    pub(crate) fn new(
        shape: &MailboxShape,
        update: &Mailbox,
        set_up: &[u8],
        random: &[u8; RANDOM_LEN],
    ) -> Result<(Self, Vec<u8>), UpdateAuditError> {
        check_len(set_up, SET_UP_LEN)?;
        let (point, seed) = random.split_first_chunk().expect("its length");
        let seed = Block::from_bytes(*seed.first_chunk().expect("its length"));
        let (mut receiver, reply) = OtReceiverSetUp::new(EXTENSION, seed).receive(set_up)?;
        let hash = KeyedHash::new(*point);
        let hashes: Vec<u8> =
            (0..shape.slots()).flat_map(|slot| hash_of(&hash, update.slot(slot))).collect();
        let mut labels = Zeroizing::new(vec![Block::ZERO; HASH_BITS * shape.slots()]);
        let mut choices = Vec::with_capacity(choices_len(shape));
        choices.extend(point);
        choices.extend(reply);
        receiver.extend(&hashes, &mut labels, &mut choices)?;
        Ok((Self { schedule: circuit::schedule(shape), labels }, choices))
    }

    /// Evaluates the auditor's tables. Returns whether the update writes only to at most s of the
    /// member's own slots. A deviating auditor can choose the result.
    ///
    /// # Errors
    /// If the message has the wrong length.
    pub(crate) fn verdict(self, message: &[u8]) -> Result<bool, UpdateAuditError> {
        let Self { schedule, labels } = self;
        let slots = schedule.shape().garbler_inputs;
        let tables_len = |at| SCHEME.part_len(&schedule.part(at));
        let tables_len: usize = (0..schedule.parts()).map(tables_len).sum();
        let own_len = LABEL_LEN * slots as usize;
        check_len(message, LABEL_LEN + own_len + tables_len + 1)?;
        let (public, rest) = message.split_first_chunk::<LABEL_LEN>().expect("its length");
        let (own, rest) = rest.split_at(own_len);
        let (mut tables, decoding) = rest.split_at(tables_len);

        let mut evaluator = Evaluator::new(SCHEME, Block::from_bytes(*public), schedule.shape());
        let own = own.as_chunks().0.iter().map(|label| Block::from_bytes(*label));
        for (input, label) in (0..).zip(own.chain(labels.iter().copied())) {
            evaluator.set_input(input, label);
        }
        let mut memory = PartLabelBuffer::default();
        for part in (0..schedule.parts()).map(|at| schedule.part(at)) {
            let (of_part, rest) = tables.split_at(SCHEME.part_len(&part));
            evaluator.evaluate(&mut memory, &part, of_part)?;
            tables = rest;
        }
        Ok(evaluator.decode(&[decoding[0] & 1 == 1])?[0])
    }
}

/// The hash of a slot: half of the value of a polynomial, which is linear without the last block.
fn hash_of(hash: &KeyedHash, slot: &[u8]) -> [u8; HASH_LEN] {
    *hash.tag(slot, 0).first_chunk().expect("a tag is longer")
}

/// Bit `at` of packed bits, the lowest of each byte first.
fn bit(bytes: &[u8], at: usize) -> bool {
    bytes[at / 8] >> (at % 8) & 1 == 1
}

fn input_count(bits: usize) -> u32 {
    u32::try_from(bits).expect("a shape has at most 2^20 + 1 slots")
}

fn check_len(message: &[u8], expected: usize) -> Result<(), UpdateAuditError> {
    let len = message.len();
    if len == expected { Ok(()) } else { Err(UpdateAuditError::Length { expected, len }) }
}

#[cfg(test)]
mod tests;
