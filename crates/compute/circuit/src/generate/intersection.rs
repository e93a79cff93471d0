//! Private set intersection by sort, compare and shuffle (Huang, Evans, Katz, "Private Set
//! Intersection: Are Garbled Circuits Better than Custom Protocols?", NDSS 2012).

use std::iter;

use crate::batch::Wire;
use crate::builder::CircuitBuilder;
use crate::circuit::Circuit;

/// The elements that two sets have in common.
///
/// Each party's input is its set: `size` different numbers of `bits` bits except 0, in ascending
/// order. The garbler's input continues with [`shuffle_bits`]`(size)` random control bits, those of
/// [`shuffle`] for a random order. The output has `size` numbers: the common ones, and 0 for each
/// of the others, in that order, so that their places reveal nothing.
///
/// # Panics
/// If `bits` is 0, or the inputs have 2^31 bits or more.
pub fn intersection(size: u32, bits: u32) -> Circuit {
    let set_bits = size.checked_mul(bits).expect("fewer than 2^32 bits");
    let controls = u32::try_from(shuffle_bits(size as usize)).expect("fewer than 2^32 bits");
    let garbler_bits = set_bits.checked_add(controls).expect("fewer than 2^32 bits");
    let mut builder = CircuitBuilder::new(&[garbler_bits, set_bits]);
    let mut garbler = builder.input(0);
    let controls = garbler.split_off(set_bits as usize);
    let [x, y] = [garbler, builder.input(1)]
        .map(|set| -> Vec<Vec<Wire>> { set.chunks(bits as usize).map(<[Wire]>::to_vec).collect() });
    let merged = builder.merge(&x, &y);
    let common = compare(&mut builder, &merged);
    let mut controls = controls.into_iter();
    let shuffled = waksman_network(&mut builder, common, &mut controls);
    let outputs: Vec<&[Wire]> = shuffled.iter().map(Vec::as_slice).collect();
    builder.finish(&outputs)
}

/// Of 2n numbers in ascending order, of which each occurs once or twice, n numbers: those that
/// occur twice, and 0 for the others.
fn compare(builder: &mut CircuitBuilder, merged: &[Vec<Wire>]) -> Vec<Vec<Wire>> {
    // Of the places 2i, 2i + 1 and 2i + 2, at most one pair is equal, and each pair of neighbours
    // is in exactly one such group.
    let pairs = (0..merged.len()).step_by(2).map(|i| {
        let first = builder.equal(&merged[i], &merged[i + 1]);
        let Some(next) = merged.get(i + 2) else { return builder.and_bit(first, &merged[i + 1]) };
        let second = builder.equal(&merged[i + 1], next);
        // They exclude each other, and in both cases the middle one is the common one.
        let is_common = builder.xor(first, second);
        builder.and_bit(is_common, &merged[i + 1])
    });
    pairs.collect()
}

/// The number of control bits of Waksman's permutation network for `n` values, of any size.
pub fn shuffle_bits(n: usize) -> usize {
    match n {
        0 | 1 => 0,
        2 => 1,
        _ => n / 2 + (n - 1) / 2 + shuffle_bits(n / 2) + shuffle_bits(n - n / 2),
    }
}

/// Permutes the values as the control bits determine. One AND for each control bit and bit of a
/// value.
fn waksman_network(
    builder: &mut CircuitBuilder,
    values: Vec<Vec<Wire>>,
    controls: &mut impl Iterator<Item = Wire>,
) -> Vec<Vec<Wire>> {
    let n = values.len();
    if n <= 1 {
        return values;
    }
    let pairs = values.chunks_exact(2);
    let (mut low, mut high): (Vec<_>, Vec<_>) =
        pairs.map(|pair| switch(builder, &pair[0], &pair[1], controls)).unzip();
    if n == 2 {
        return low.into_iter().chain(high).collect();
    }
    if n % 2 == 1 {
        high.extend(values.into_iter().next_back());
    }
    low = waksman_network(builder, low, controls);
    high = waksman_network(builder, high, controls);
    let mut shuffled = Vec::with_capacity(n);
    for (i, (low, high)) in low.iter().zip(&high).enumerate() {
        // With an even number, the last pair needs no switch.
        if n.is_multiple_of(2) && i + 1 == n / 2 {
            shuffled.extend([low.clone(), high.clone()]);
        } else {
            let (low, high) = switch(builder, low, high, controls);
            shuffled.extend([low, high]);
        }
    }
    if n % 2 == 1 {
        shuffled.extend(high.into_iter().next_back());
    }
    shuffled
}

/// Swaps two values if the next control bit is set.
fn switch(
    builder: &mut CircuitBuilder,
    a: &[Wire],
    b: &[Wire],
    controls: &mut impl Iterator<Item = Wire>,
) -> (Vec<Wire>, Vec<Wire>) {
    let control = controls.next().expect("as many as shuffle_bits");
    builder.swap(control, a, b)
}

/// The control bits for which output i of the network is input `order[i]`.
///
/// # Panics
/// If `order` is not a permutation.
pub fn shuffle(order: &[usize]) -> Vec<bool> {
    let n = order.len();
    let mut place = vec![usize::MAX; n];
    for (out, &from) in order.iter().enumerate() {
        assert!(from < n && place[from] == usize::MAX, "not a permutation");
        place[from] = out;
    }
    if n <= 1 {
        return Vec::new();
    }
    if n == 2 {
        return vec![order[0] == 1];
    }
    let is_high = route_through_high(order, &place);
    let inputs = (0..n / 2).map(|i| is_high[2 * i]);
    let outputs = (0..(n - 1) / 2).map(|i| is_high[order[2 * i]]);
    let mut low_order = vec![0; n / 2];
    let mut high_order = vec![0; n - n / 2];
    for (out, &from) in order.iter().enumerate() {
        let half = if is_high[from] { &mut high_order } else { &mut low_order };
        half[out / 2] = from / 2;
    }
    let mut controls: Vec<bool> = inputs.collect();
    controls.extend(shuffle(&low_order));
    controls.extend(shuffle(&high_order));
    controls.extend(outputs);
    controls
}

/// Selects the inputs that go through the high half: exactly one of each two that share a switch at
/// the inputs or at the outputs. The last output comes from the high half. If the number is odd,
/// the last input goes there as well.
fn route_through_high(order: &[usize], place: &[usize]) -> Vec<bool> {
    let n = order.len();
    let mut is_high: Vec<Option<bool>> = vec![None; n];
    // From the input of the last output, which is fixed, then from any other.
    for start in iter::once(order[n - 1]).chain(0..n) {
        let mut input = start;
        // Alternately to the neighbour at the inputs and to its neighbour at the outputs.
        while is_high[input].is_none() {
            is_high[input] = Some(true);
            let Some(other) = neighbour(input, n) else { break };
            is_high[other] = Some(false);
            let Some(out) = neighbour(place[other], n) else { break };
            input = order[out];
        }
    }
    is_high.into_iter().map(|half| half == Some(true)).collect()
}

/// The other place of a switch; `None` for the last of an odd number.
fn neighbour(place: usize, n: usize) -> Option<usize> {
    Some(place ^ 1).filter(|&other| other < n)
}
