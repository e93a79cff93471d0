//! The engine `bdd`: slots are selected by a garbled decision diagram (Kruger, Jha, Goh, Boneh:
//! "Secure function evaluation with ordered binary decision diagrams", CCS 2006). The proxy garbles
//! and the member evaluates. The variables are the bits of the member's choice, and the function
//! selects a slot.
//!
//! The proxy fixes its own input, the mailbox, in the leaves: the node that tests a bit of slot i
//! becomes leaf i, which holds the slot. The diagram is the same for each bit of a slot, so one
//! garbled diagram selects a whole slot, by selecting the slot's key. The structure depends only on
//! N.
//!
//! Each node has a key. Each bit of a choice has two labels, of which the member knows the one for
//! its bit. The edge for bit b with label x, from the node with key k at position v of its level,
//! has the pad F(k, b) + F(x, v), where F is AES-128 and + is exclusive or. The pad hides the key
//! of the node to which the edge leads. Each node is the end of exactly one edge, so the pad itself
//! is used as its key, which needs no ciphertext (row reduction). Only the slots' keys need one
//! ciphertext each. The key of the root is zero.
//!
//! A label is used in all nodes of a level, with different v. The key of a node is used with both
//! values of b. If k or x is unknown, the pad is indistinguishable from random, provided that
//! AES-128 is a pseudorandom permutation. In each level the member knows only the key of the node
//! on its path and the label of its bit, and so only the pad of one edge.

mod diagram;

use std::sync::Arc;

use blocks::Block;
use blocks::aes::encrypt_each;
use blocks::prg::Prg;
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};
use zeroize::Zeroizing;

pub(super) use self::diagram::check_slots;
use self::diagram::{NOWHERE, SlotDiagram};
use crate::protocol::engine::MixEngineError;
use crate::protocol::engine::slots::SlotTransfer;

/// The number of nodes of the diagram of N slots.
///
/// # Errors
/// If a diagram does not support this number of slots.
pub(super) fn nodes(slots: usize) -> Result<usize, MixEngineError> {
    Ok(SlotDiagram::shared(slots)?.nodes())
}

/// 1-of-N transfers by a garbled diagram of N slots.
pub(super) struct GarbledDiagram(Arc<SlotDiagram>);

impl GarbledDiagram {
    /// # Errors
    /// If there are more slots than a diagram supports.
    pub(super) fn new(slots: usize) -> Result<Self, MixEngineError> {
        SlotDiagram::shared(slots).map(Self)
    }

    /// Checks that there is one label (or pair of labels) for each level of the diagram.
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

    /// Reads all nodes of all levels, because the path through them is secret.
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

/// The function F: block `number` of the key stream of `key`.
fn block(key: Block, number: u64) -> Block {
    let mut stream = Prg::new(key);
    stream.skip(number);
    stream.block()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The labels of one number give the pad of its slot, and of no other, whichever path it takes.
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
