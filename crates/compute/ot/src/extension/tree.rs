//! Trees of seeds (Goldreich, Goldwasser, Micali 1986), made from one base transfer for each level.
//! The receiver of transfers knows all leaves, and the sender all but one.
//!
//! Bit b of a leaf's number is the branch taken at level k - 1 - b. The sender numbers the nodes so
//! that the one it does not know is number 0: it adds (exclusive or) to each number the branches
//! that lead to the unknown node, which are bits of its offset. So no address depends on a secret.

use blocks::Block;
use blocks::prg::Prg;
use subtle::{Choice, ConditionallySelectable as _};
use zeroize::Zeroizing;

/// The length of the corrections for a tree of k levels, in bytes: two blocks for each level but
/// the first.
pub(super) const fn corrections_len(bits: usize) -> usize {
    (bits - 1) * 32
}

/// All leaves of a tree, from the keys of its base transfers, that of bit 0 first. Appends the
/// corrections for the other end to `corrections`.
pub(super) fn all_leaves(keys: &[[Block; 2]], corrections: &mut Vec<u8>) -> Zeroizing<Vec<Block>> {
    // With choice c the other end gets the nodes of branch 1 - c.
    let mut levels = keys.iter().rev();
    let mut nodes = Zeroizing::new(Vec::with_capacity(1 << keys.len()));
    nodes.extend(levels.next().into_iter().flat_map(|[zero, one]| [*one, *zero]));
    for [zero, one] in levels {
        let children = expand(&nodes);
        let [mut left, mut right] = [*one, *zero];
        for pair in children.chunks_exact(2) {
            left ^= pair[0];
            right ^= pair[1];
        }
        corrections.extend(left.to_bytes());
        corrections.extend(right.to_bytes());
        nodes = children;
    }
    nodes
}

/// The known leaves of a tree, from the keys and choices (0 or 1) of its base transfers and the
/// corrections of the other end. Leaf i is the one whose number is i plus the choices. Leaf 0 is
/// not known and is set to zero.
pub(super) fn known_leaves(
    keys: &[Block],
    choices: &[u8],
    corrections: &[u8],
) -> Zeroizing<Vec<Block>> {
    let mut levels = keys.iter().zip(choices).rev();
    let mut nodes = Zeroizing::new(Vec::with_capacity(1 << keys.len()));
    nodes.extend(levels.next().into_iter().flat_map(|(key, _)| [Block::ZERO, *key]));
    for ((key, choice), corrections) in levels.zip(corrections.as_chunks::<32>().0) {
        let choice = Choice::from(*choice);
        let mut children = expand(&nodes);
        let [left, right] = [0, 1].map(|i| block(corrections, i));
        let mut missing = *key ^ Block::conditional_select(&right, &left, choice);
        for pair in children.chunks_exact_mut(2).skip(1) {
            let (left, right) = pair.split_at_mut(1);
            Block::conditional_swap(&mut left[0], &mut right[0], choice);
            missing ^= right[0];
        }
        children[0] = Block::ZERO;
        children[1] = missing;
        nodes = children;
    }
    nodes
}

/// The children of all nodes.
fn expand(nodes: &[Block]) -> Zeroizing<Vec<Block>> {
    let mut children = Zeroizing::new(vec![Block::ZERO; 2 * nodes.len()]);
    for (node, pair) in nodes.iter().zip(children.chunks_exact_mut(2)) {
        Prg::new(*node).fill(pair);
    }
    children
}

fn block(bytes: &[u8; 32], i: usize) -> Block {
    Block::from_bytes(bytes.as_chunks::<16>().0[i])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_leaves_but_one_are_known() {
        for bits in [1, 2, 4, 8] {
            for hidden in [0, 1, (1 << bits) - 1, 0x55 & ((1 << bits) - 1)] {
                let mut keys = vec![[Block::ZERO; 2]; bits];
                Prg::new(Block::from(bits as u128)).fill(keys.as_flattened_mut());
                let mut corrections = Vec::new();
                let all = all_leaves(&keys, &mut corrections);
                assert_eq!(corrections.len(), corrections_len(bits));

                let choices: Vec<u8> =
                    (0..bits).map(|bit| u8::from(hidden >> bit & 1 == 1)).collect();
                let keys: Vec<Block> =
                    keys.iter().zip(&choices).map(|(pair, c)| pair[usize::from(*c)]).collect();
                let known = known_leaves(&keys, &choices, &corrections);
                for (i, leaf) in all.iter().enumerate() {
                    let known = known[i ^ hidden].to_bytes();
                    assert_eq!(known == leaf.to_bytes(), i != hidden, "leaf {i}, {bits} bits");
                }
                assert_eq!(known[0].to_bytes(), [0; 16]);
            }
        }
    }
}
