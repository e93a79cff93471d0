//! The circuit of an audit.

use circuit::{CircuitBuilder, CircuitSchedule, Wire, constant};

use super::{HASH_BITS, input_count};
use crate::MailboxShape;

/// The circuit computes whether at most s slots are not zero, and all of these are the member's
/// own.
///
/// The garbler's input is one bit for each slot: whether it is the member's own. The evaluator's
/// input is the hash of each unmasked slot. Removing the mask takes no gates, because the garbler
/// exchanges the labels of 0 and 1 where the hash of the mask has a one.
pub(super) fn schedule(shape: &MailboxShape) -> CircuitSchedule {
    let inputs = [shape.slots(), shape.slots() * HASH_BITS].map(input_count);
    let mut builder = CircuitBuilder::new(&inputs);
    let [own, hashes] = [builder.input(0), builder.input(1)];
    let (mut written, mut allowed) = (Vec::new(), Vec::new());
    for (&own, hash) in own.iter().zip(hashes.chunks(HASH_BITS)) {
        let zeros: Vec<Wire> = hash.iter().map(|&bit| builder.not(bit)).collect();
        let is_zero = builder.all(&zeros);
        written.push(builder.not(is_zero));
        allowed.push(builder.or(is_zero, own));
    }
    let are_own = builder.all(&allowed);
    let count = builder.count_ones(&written);
    let most = constant(shape.writes() as u64, count.len());
    let too_many = builder.less(&most, &count);
    let few = builder.not(too_many);
    let is_right = builder.and(are_own, few);
    CircuitSchedule::new(&builder.finish(&[&[is_right]]))
}

/// An upper bound of the circuit's ANDs. Each slot takes [`HASH_BITS`] ANDs for the comparison with
/// zero and the ownership check, one to combine the results, and slightly more than one to count
/// it.
pub(super) fn max_ands(shape: &MailboxShape) -> usize {
    (HASH_BITS + 3) * shape.slots() + 64
}

#[cfg(test)]
mod tests {
    use circuit::evaluate_64;

    use super::*;

    #[test]
    fn audit_circuit_matches_the_plain_reference() {
        let mut random = fastrand::Rng::with_seed(1);
        for (members, slots, writes) in [(2, 1, 1), (2, 2, 1), (3, 3, 2), (5, 4, 4), (9, 7, 3)] {
            let shape = MailboxShape::new(members, slots, writes, 3, 64).unwrap();
            let schedule = schedule(&shape);
            let mut counts = [0; 2];
            for _ in 0..400 {
                let mut own = vec![false; shape.slots()];
                let mut hashes = vec![0_u32; shape.slots()];
                for own in random.choose_multiple(own.iter_mut(), slots) {
                    *own = true;
                }
                let wrong = random.u8(0..3) == 0;
                let most = random.usize(0..=slots);
                let may = own.iter().zip(&mut hashes).filter(|(own, _)| **own || wrong);
                for (_, hash) in random.choose_multiple(may, most) {
                    // One bit is enough.
                    *hash = if random.bool() { 1 << random.u32(0..32) } else { random.u32(..) };
                }
                let written = |own: &bool, hash: &u32| *hash != 0 && *own;
                let inside = own.iter().zip(&hashes).filter(|(own, hash)| written(own, hash));
                let inside = inside.count();
                let outside = hashes.iter().filter(|hash| **hash != 0).count() - inside;
                let expected = outside == 0 && inside <= writes;
                let bits = hashes.iter().flat_map(|hash| (0..32).map(move |at| hash >> at & 1));
                let inputs = own.iter().map(|&own| u64::from(own)).chain(bits.map(u64::from));
                let found = evaluate_64(&schedule, &inputs.collect::<Vec<_>>());
                assert_eq!(found[0] & 1 == 1, expected, "{own:?} {hashes:?}");
                counts[usize::from(expected)] += 1;
            }
            assert!(counts.iter().all(|&count| count > 20), "{counts:?}");
        }
    }

    #[test]
    fn audit_circuit_size_is_bounded() {
        for (members, slots) in [(2, 1), (3, 2), (16, 2), (100, 2), (31, 33), (512, 4)] {
            let shape = MailboxShape::new(members, slots, 1, 3, 64).unwrap();
            let ands = usize::try_from(schedule(&shape).shape().ands).unwrap();
            assert!(ands <= max_ands(&shape) && ands > 32 * shape.slots(), "{ands}");
        }
    }
}
