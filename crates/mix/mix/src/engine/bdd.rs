//! Slots by a garbled decision diagram, the engine `bdd` (Kruger, Jha, Goh, Boneh: "Secure function
//! evaluation with ordered binary decision diagrams", CCS 2006). The proxy is the garbler, and the
//! member evaluates: the bits of its choice are its variables, and the function selects a slot.
//!
//! The proxy fixes its own input, the mailbox, in the leaves: the node that tests a bit of slot i
//! becomes leaf i, which holds the slot. The diagram is the same for each bit of a slot, so that
//! one garbled diagram selects all of a slot, by the slot's key. Its structure depends on N only.
//!
//! A node has a key, and a bit b of a choice has a label, of which the member has that of its bit.
//! An edge (b, from the node with key k at place v of its level, by the label x) has the pad
//! F(k, b) + F(x, v), where F is AES-128 and + exclusive or. It hides the key of the node where it
//! leads. Each node is the end of one edge, so that its key can be the pad itself and takes no
//! ciphertext (row reduction); only the slots' keys take one each. The key of the root is zero.
//!
//! A label is used in all nodes of a level, at different v; the key of a node with both b. If one
//! of k and x is not known, the pad cannot be told from a random one if AES-128 is a pseudorandom
//! permutation. The member knows, in each level, the key of the node on its path and the label of
//! its bit: it so has the pad of one edge in each level, and of no other.

mod diagram;

use std::sync::Arc;

use blocks::Block;
use blocks::aes::encrypt_each;
use blocks::prg::Prg;
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};
use zeroize::Zeroizing;

pub(super) use self::diagram::check_slots;
use self::diagram::{NOWHERE, SlotDiagram};
use crate::engine::MixEngineError;
use crate::engine::slots::SlotTransfer;

/// The nodes of the diagram of N slots.
///
/// # Errors
/// If a diagram cannot have so many slots.
pub(super) fn nodes(slots: usize) -> Result<usize, MixEngineError> {
    Ok(SlotDiagram::shared(slots)?.nodes())
}

/// 1-of-N transfers by a garbled diagram of N slots.
pub(super) struct GarbledDiagram(Arc<SlotDiagram>);

impl GarbledDiagram {
    /// # Errors
    /// If there are more slots than a diagram can have.
    pub(super) fn new(slots: usize) -> Result<Self, MixEngineError> {
        SlotDiagram::shared(slots).map(Self)
    }

    /// The labels are one, or two, for each level of the diagram.
    fn check_labels(&self, found: usize) -> Result<(), MixEngineError> {
        let expected = self.0.levels().len();
        if found == expected {
            return Ok(());
        }
        Err(::ot::Error::Argument { what: "labels", expected, found }.into())
    }
}

impl SlotTransfer for GarbledDiagram {
    fn pads(&self, labels: &[[Block; 2]], pads: &mut [Block]) -> Result<(), MixEngineError> {
        self.check_labels(labels.len())?;
        let levels = self.0.levels();
        let mut keys = Zeroizing::new(vec![Block::ZERO]);
        let ends = levels.iter().skip(1).map(Vec::len).chain([pads.len()]);
        for ((level, labels), ends) in levels.iter().zip(labels.iter().rev()).zip(ends) {
            let mut of_nodes = Zeroizing::new(vec![[0, 1].map(Block::from); level.len()]);
            encrypt_each(&keys, &mut of_nodes);
            let mut next = Zeroizing::new(vec![Block::ZERO; ends]);
            let mut of_label = Zeroizing::new(vec![Block::ZERO; level.len()]);
            for (bit, &label) in labels.iter().enumerate() {
                Prg::new(label).fill(&mut of_label);
                for ((edges, of_node), of_label) in
                    level.iter().zip(of_nodes.iter()).zip(of_label.iter())
                {
                    if edges[bit] != NOWHERE {
                        next[edges[bit] as usize] = of_node[bit] ^ *of_label;
                    }
                }
            }
            keys = next;
        }
        pads.copy_from_slice(&keys);
        Ok(())
    }

    /// All nodes of all levels are read: which of them are on the path is secret.
    fn pad(&self, labels: &[Block], chosen: usize) -> Result<Block, MixEngineError> {
        self.check_labels(labels.len())?;
        let (mut key, mut place) = (Block::ZERO, 0);
        for (level, (bit, &label)) in self.0.levels().iter().zip(labels.iter().enumerate().rev()) {
            let bit = u8::from(chosen >> bit & 1 == 1);
            key = block(key, bit.into()) ^ block(label, place.into());
            let mut next = 0;
            for (at, edges) in (0_u32..).zip(level) {
                let end = u32::conditional_select(&edges[0], &edges[1], Choice::from(bit));
                next.conditional_assign(&end, at.ct_eq(&place));
            }
            place = next;
        }
        Ok(key)
    }
}

/// F: block `number` of the stream of a key.
fn block(key: Block, number: u64) -> Block {
    let mut stream = Prg::new(key);
    stream.skip(number);
    stream.block()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who has the labels of one number has the pad of this slot, and of no other, whichever path
    /// it takes.
    #[test]
    fn labels_of_a_number_give_the_pad_of_its_slot_only() {
        for slots in [1, 2, 3, 8, 11, 32, 45] {
            let transfer = GarbledDiagram::new(slots).unwrap();
            let bits = transfer.0.levels().len();
            let mut labels = vec![[Block::ZERO; 2]; bits];
            Prg::new(Block::from(5)).fill(labels.as_flattened_mut());
            let mut pads = vec![Block::ZERO; slots];
            transfer.pads(&labels, &mut pads).unwrap();
            for chosen in 0..slots {
                let bit = |at: usize| chosen >> at & 1;
                let of_choice: Vec<Block> = (0..bits).map(|at| labels[at][bit(at)]).collect();
                for (slot, pad) in pads.iter().enumerate() {
                    let found = transfer.pad(&of_choice, slot).unwrap();
                    assert_eq!(bool::from(found.ct_eq(pad)), slot == chosen, "{slot} of {slots}");
                }
            }
        }
    }

    #[test]
    fn labels_are_one_for_each_level() {
        let transfer = GarbledDiagram::new(5).unwrap();
        for labels in [0, 2, 4] {
            let mut pads = [Block::ZERO; 5];
            assert!(transfer.pads(&vec![[Block::ZERO; 2]; labels], &mut pads).is_err());
            assert!(transfer.pad(&vec![Block::ZERO; labels], 0).is_err());
        }
    }
}
