//! Receivers that do not follow the protocol.

use super::*;
use crate::extension::{OtExtensionKind, OtExtensionSecurity, OtExtensionSender};

/// Bits 4 to 7 and 16 to 31 are 0, so some trees of every kind have only zeros.
const OFFSET: u128 = 0x8899_aabb_ccdd_eeff_0011_2233_0000_660f;

fn ends(extension: OtExtension) -> (OtExtensionSender, OtExtensionReceiver) {
    let mut pairs = [[Block::ZERO; 2]; BASE_TRANSFERS];
    Prg::new(Block::from(5)).fill(pairs.as_flattened_mut());
    let offset = Block::from(OFFSET);
    let chosen = std::array::from_fn(|i| pairs[i][usize::from(offset.bit(i))]);
    let (receiver, message) = OtExtensionReceiver::new(extension, &pairs, Block::from(6));
    (OtExtensionSender::new(extension, offset, &chosen, &message).unwrap(), receiver)
}

/// As [`OtExtensionReceiver::extend`] of up to 128 transfers with choices 0, but in one tree the
/// first choice is 1. The proof is that of choices 0.
fn with_another_choice_in(receiver: &mut OtExtensionReceiver, tree: usize, message: &mut Vec<u8>) {
    let OtExtension { kind, .. } = receiver.extension;
    let width = receiver.extension.width(128);
    receiver.matrix.begin(kind, width, receiver.blocks_used);
    receiver.blocks_used += width as u64;
    let mut row = vec![Block::ZERO; width];
    if receiver.extension.is_checked() {
        row[width - 1] = receiver.masks.block();
    }
    for (i, leaves) in receiver.leaves.chunks_exact(kind.leaves()).enumerate() {
        let sum = receiver.matrix.fold_all(kind, i, leaves);
        for (j, (sum, choices)) in sum.iter().zip(&row).enumerate() {
            let other = Block::from(u128::from(i == tree && j == 0));
            message.extend((*sum ^ *choices ^ other).to_bytes());
        }
    }
    if receiver.extension.is_checked() {
        let hash = RowHash::new(&receiver.session, receiver.pieces, message);
        message.extend(hash.hash(&row).to_bytes());
        for row in receiver.matrix.rows() {
            message.extend(hash.hash(&row[..width]).to_bytes());
        }
    }
}

/// A receiver that uses another choice in one tree is found out, unless the tree's bits of the
/// offset are all 0. That is what it learns.
#[test]
fn inconsistent_choices_are_detected_unless_the_offset_bits_are_zero() {
    for kind in OtExtensionKind::ALL {
        let extension = OtExtension { kind, security: OtExtensionSecurity::MaliciousReceiver };
        for tree in (0..kind.trees()).step_by(kind.trees() / 16) {
            let (mut sender, mut receiver) = ends(extension);
            let (mut message, mut out) = (Vec::new(), [Block::ZERO; 128]);
            with_another_choice_in(&mut receiver, tree, &mut message);
            let has_only_zeros =
                (0..kind.bits()).all(|bit| OFFSET >> (tree * kind.bits() + bit) & 1 == 0);
            let expected = if has_only_zeros { Ok(()) } else { Err(Error::Inconsistent) };
            assert_eq!(sender.extend(&message, &mut out), expected, "{kind:?}, tree {tree}");
            if !has_only_zeros {
                assert_eq!(sender.extend(&message, &mut out), Err(Error::Ended));
                assert_eq!(sender.random(&message, &mut []), Err(Error::Ended));
            }
        }
    }
}

/// Shows why the check is needed: without it, the receiver's block reveals a bit of the offset.
#[test]
fn without_the_check_inconsistent_choices_reveal_a_bit_of_the_offset() {
    let extension =
        OtExtension { kind: OtExtensionKind::Iknp, security: OtExtensionSecurity::SemiHonest };
    for bit in 0..BASE_TRANSFERS {
        let (mut sender, mut receiver) = ends(extension);
        let (mut message, mut out) = (Vec::new(), [Block::ZERO; 128]);
        with_another_choice_in(&mut receiver, bit, &mut message);
        sender.extend(&message, &mut out).unwrap();
        let difference = u128::from(out[0] ^ receiver.matrix.columns()[0]);
        assert_eq!(difference, OFFSET & 1 << bit);
    }
}

/// Each bit of a proof matters, and each of what it proves.
#[test]
fn changed_messages_are_inconsistent() {
    for kind in OtExtensionKind::ALL {
        let extension = OtExtension { kind, security: OtExtensionSecurity::MaliciousReceiver };
        let len = extension.message_len(100);
        let proof = len - check::PROOF_LEN;
        for at in (0..proof).step_by(proof / 20).chain((proof..len).step_by(13)) {
            let (mut sender, mut receiver) = ends(extension);
            let (mut message, mut out) = (Vec::new(), [Block::ZERO; 100]);
            receiver.extend(&[0x5a; 13], &mut out, &mut message).unwrap();
            message[at] ^= 1 << (at % 8);
            let result = sender.extend(&message, &mut out);
            assert_eq!(result, Err(Error::Inconsistent), "{kind:?}, byte {at}");
        }
    }
}

/// A receiver that makes one tree wrong is found out when the sender is set up, unless the sender
/// does not use what is wrong.
#[test]
fn wrong_trees_are_inconsistent() {
    for kind in
        [OtExtensionKind::SoftSpoken2, OtExtensionKind::SoftSpoken4, OtExtensionKind::SoftSpoken8]
    {
        let extension = OtExtension { kind, security: OtExtensionSecurity::MaliciousReceiver };
        let mut pairs = [[Block::ZERO; 2]; BASE_TRANSFERS];
        Prg::new(Block::from(5)).fill(pairs.as_flattened_mut());
        let offset = Block::from(OFFSET);
        let chosen = std::array::from_fn(|i| pairs[i][usize::from(offset.bit(i))]);
        let (_, message) = OtExtensionReceiver::new(extension, &pairs, Block::from(6));
        let corrections = SALT_LEN..SALT_LEN + kind.trees() * tree::corrections_len(kind.bits());
        let mut used = 0;
        for at in corrections.clone().step_by(16) {
            let mut changed = message.clone();
            changed[at] ^= 1;
            let result = OtExtensionSender::new(extension, offset, &chosen, &changed);
            used += usize::from(result.is_err_and(|error| error == Error::Inconsistent));
        }
        // Of the two corrections of a level the sender uses one.
        assert_eq!(used, corrections.len() / 32, "{kind:?}");
        for at in (corrections.end..message.len()).step_by(31) {
            let mut changed = message.clone();
            changed[at] ^= 0x80;
            let result = OtExtensionSender::new(extension, offset, &chosen, &changed);
            assert_eq!(result.err(), Some(Error::Inconsistent), "{kind:?}, byte {at}");
        }
    }
}
