//! The selection of a slot as a reduced ordered binary decision diagram.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use biodivine_lib_bdd::{Bdd, BddVariable, BddVariableSet};
use ot::one_of_n;

use crate::protocol::engine::MixEngineError;

/// The maximum number of variables of the library.
const MAX_VARIABLES: usize = u16::MAX as usize - 2;

/// The maximum number of slots. The diagram has a variable for each slot and for each bit of a
/// choice.
const MAX_SLOTS: usize = MAX_VARIABLES - 16;

/// The target of an edge to the terminal 0.
pub(super) const NOWHERE: u32 = u32::MAX;

/// The decision diagram of r[j], one bit of slot j of N slots. Its variables are the bits of j, the
/// highest first, and then the bits `r_0` to `r_(N-1)` of the slots.
///
/// A level consists of the nodes that test one bit of j. Different values of j select different
/// slots, so each path tests all bits, and each node is the end of exactly one edge.
pub(super) struct SlotDiagram {
    /// The levels of the bits of j, the highest first. A node has two edges, one for each value of
    /// the bit.
    /// An edge is the position of a node of the next level, or in the last level the number of a
    /// slot. It is [`NOWHERE`] if no slot has such a number.
    levels: Vec<Vec<[u32; 2]>>,
    /// N.
    slots: usize,
    /// The number of nodes that test bits of j or bits of slots.
    nodes: usize,
}

impl SlotDiagram {
    /// The diagram of N slots. All users in the process share one instance: a diagram of ten
    /// thousand slots takes tens of milliseconds to build, and a proxy has an engine for each
    /// member.
    ///
    /// # Errors
    /// If a diagram does not support this number of slots.
    pub(super) fn shared(slots: usize) -> Result<Arc<Self>, MixEngineError> {
        static IN_USE: Mutex<Vec<Weak<SlotDiagram>>> = Mutex::new(Vec::new());
        check_slots(slots)?;
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        let built = in_use.iter().filter_map(Weak::upgrade).find(|built| built.slots == slots);
        Ok(built.unwrap_or_else(|| {
            let built = Arc::new(Self::build(slots));
            in_use.retain(|built| built.strong_count() > 0);
            in_use.push(Arc::downgrade(&built));
            built
        }))
    }

    fn build(slots: usize) -> Self {
        let bits = one_of_n::transfers(slots);
        let diagram = selection(slots, bits);

        let mut levels = Vec::with_capacity(bits);
        let mut places = vec![diagram.root_pointer()];
        for bit in 0..bits {
            let mut next = Vec::with_capacity(2 * places.len());
            let level = places.iter().map(|&node| {
                debug_assert_eq!(diagram.var_of(node).to_index(), bit, "each path tests all bits");
                [diagram.low_link_of(node), diagram.high_link_of(node)].map(|end| {
                    if end.is_zero() {
                        return NOWHERE;
                    }
                    next.push(end);
                    number(next.len() - 1)
                })
            });
            levels.push(level.collect::<Vec<_>>());
            places = next;
        }
        // The edges of the last level lead to the nodes that test the bit of a slot.
        for end in levels.last_mut().into_iter().flatten().flatten() {
            if *end != NOWHERE {
                *end = number(diagram.var_of(places[*end as usize]).to_index() - bits);
            }
        }
        // The terminals are not counted.
        Self { levels, slots, nodes: diagram.size() - 2 }
    }

    /// The levels of the bits of a choice, the highest first.
    pub(super) fn levels(&self) -> &[Vec<[u32; 2]>] {
        &self.levels
    }

    /// The number of nodes: those that test a bit of the choice, and one for each slot.
    pub(super) fn nodes(&self) -> usize {
        self.nodes
    }
}

/// Checks that a diagram supports this number of slots.
///
/// # Errors
/// If it cannot.
pub(in crate::protocol::engine) fn check_slots(slots: usize) -> Result<(), MixEngineError> {
    let max = MAX_SLOTS;
    if slots <= max { Ok(()) } else { Err(MixEngineError::DiagramSlots { slots, max }) }
}

/// The function r[j], built from the slots upwards: each step joins two neighbours by the bit of j
/// that distinguishes them.
fn selection(slots: usize, bits: usize) -> Bdd {
    let count = u16::try_from(bits + slots).expect("as many as the library takes");
    let variables = BddVariableSet::new_anonymous(count);
    let variable = |index| variables.mk_var(BddVariable::from_index(index));
    let nothing = variables.mk_false();
    let mut functions: Vec<Bdd> = (bits..bits + slots).map(variable).collect();
    for bit in (0..bits).rev() {
        let test = variable(bit);
        let pairs = functions.chunks(2);
        functions = pairs
            .map(|pair| Bdd::if_then_else(&test, pair.get(1).unwrap_or(&nothing), &pair[0]))
            .collect();
    }
    functions.pop().unwrap_or(nothing)
}

/// The number of a node of a level, or of a slot.
fn number(place: usize) -> u32 {
    u32::try_from(place).expect("as many as the library takes")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Follows the edges of the bits of `choice`, and returns the slot.
    fn walk(diagram: &SlotDiagram, choice: usize) -> Option<usize> {
        let bits = diagram.levels.len();
        let mut place = 0;
        for (at, level) in diagram.levels.iter().enumerate() {
            let [zero, one] = level[place];
            let end = if choice >> (bits - 1 - at) & 1 == 1 { one } else { zero };
            place = (end != NOWHERE).then_some(end as usize)?;
        }
        Some(place)
    }

    #[test]
    fn bits_of_a_number_lead_to_its_slot() {
        for slots in 1..70 {
            let diagram = SlotDiagram::build(slots);
            for choice in 0..1 << diagram.levels.len() {
                let expected = (choice < slots).then_some(choice);
                assert_eq!(walk(&diagram, choice), expected, "{choice} of {slots}");
            }
        }
    }

    /// A level of a reduced diagram has one node for each prefix of the slots' numbers.
    #[test]
    fn slot_diagram_is_reduced() {
        for slots in [1, 2, 3, 5, 8, 64, 201] {
            let diagram = SlotDiagram::build(slots);
            let mut sizes: Vec<usize> = diagram.levels.iter().map(Vec::len).collect();
            sizes.reverse();
            let expected = (1..=sizes.len()).map(|bits| slots.div_ceil(1 << bits));
            assert!(sizes.iter().copied().eq(expected), "{slots} slots: {sizes:?}");
            assert_eq!(diagram.nodes, sizes.iter().sum::<usize>() + slots);
            if slots.is_power_of_two() {
                assert_eq!(diagram.nodes, 2 * slots - 1);
            }
        }
    }

    #[test]
    fn slot_diagrams_in_use_are_shared() {
        let [first, other, again] =
            [300, 301, 300].map(|slots| SlotDiagram::shared(slots).unwrap());
        assert!(Arc::ptr_eq(&first, &again) && !Arc::ptr_eq(&first, &other));
        assert_eq!((first.slots, other.slots), (300, 301));
    }

    #[test]
    fn max_slots_are_supported_and_more_are_rejected() {
        let diagram = SlotDiagram::build(MAX_SLOTS);
        assert_eq!(walk(&diagram, MAX_SLOTS - 1), Some(MAX_SLOTS - 1));
        let error = MixEngineError::DiagramSlots { slots: MAX_SLOTS + 1, max: MAX_SLOTS };
        assert_eq!(SlotDiagram::shared(MAX_SLOTS + 1).err(), Some(error));
    }
}
