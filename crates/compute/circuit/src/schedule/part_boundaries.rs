//! Selects the boundaries of a circuit's parts.

use crate::circuit::Circuit;

/// A part is shortened by at most this fraction.
const MAX_SHORTENING: usize = 8;

/// The ends of the parts, which have at most `longest` gates.
///
/// A part ends where the fewest earlier values are read soon after. So the next part often does not
/// depend on it, and need not wait.
pub(super) fn cuts(circuit: &Circuit, longest: usize) -> Vec<usize> {
    let count = circuit.len();
    let mut ends = Vec::with_capacity(count / longest + 1);
    let mut start = 0;
    let near = if count > longest { count_near_reads(circuit, longest) } else { Vec::new() };
    while count - start > longest {
        let range = start + longest - longest / MAX_SHORTENING..=start + longest;
        // The last of the best positions, but no empty part.
        let best = range.rev().min_by_key(|&cut| near[cut]).unwrap_or(start + longest);
        start = best.max(start + 1);
        ends.push(start);
    }
    if count > 0 {
        ends.push(count);
    }
    ends
}

/// For each gate, and for the end, the number of reads of earlier values by this or later gates, at
/// most `most` gates after the value was computed.
fn count_near_reads(circuit: &Circuit, most: usize) -> Vec<u32> {
    let first = circuit.first_gate();
    let (a, b) = circuit.inputs_of_gates();
    let mut changes = vec![0_i32; circuit.len() + 2];
    for (gate, wires) in a.iter().zip(b).enumerate() {
        for wire in [wires.0, wires.1] {
            let Some(from) = wire.checked_sub(first) else { continue };
            if gate - (from as usize) < most {
                changes[from as usize + 1] += 1;
                changes[gate + 1] -= 1;
            }
        }
    }
    let mut reads = 0;
    let sum = |change: i32| {
        reads += change;
        reads.unsigned_abs()
    };
    changes.into_iter().map(sum).collect()
}
