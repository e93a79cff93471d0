//! A plain implementation of the scheme, from its definition in `docs/protocols/garbling.md`.

use blocks::Block;
use blocks::aes::Aes128;
use circuit::{Circuit, CircuitSchedule, CircuitSource, FIRST_INPUT, Wire};

use crate::{Garbler, GarblingScheme, PartLabelBuffer};

/// The number of ANDs per key.
const PER_KEY: usize = 128;

fn encrypt(key: u128, block: u128) -> u128 {
    let mut blocks = [Block::from(block)];
    Aes128::new(Block::from(key)).encrypt(&mut blocks);
    blocks[0].into()
}

/// The halves, left and right.
fn halves(block: u128) -> [u64; 2] {
    let bytes = block.to_le_bytes();
    [0, 8].map(|at| u64::from_le_bytes(*bytes[at..].first_chunk().unwrap()))
}

fn join([left, right]: [u64; 2]) -> u128 {
    u128::from(right) << 64 | u128::from(left)
}

/// Both halves times x in GF(2^64).
fn times_x(block: u128) -> u128 {
    join(halves(block).map(|half| half << 1 ^ if half >> 63 == 1 { 0x1B } else { 0 }))
}

/// (left, right) -> (right, left ^ right).
fn orthomorphism(block: u128) -> u128 {
    let [left, right] = halves(block);
    join([right, left ^ right])
}

/// The label of the output of AND number `number` of a batch, before which there were `keys` keys.
fn evaluate_and(
    public: u128,
    keys: usize,
    number: usize,
    [a, b]: [u128; 2],
    [g0, g1, g2]: [u64; 3],
    bits: u8,
) -> u128 {
    let key = public ^ (keys + number / PER_KEY + 1) as u128;
    let hash = |label: u128, which: usize| {
        let universal = encrypt(public, (which * PER_KEY + number % PER_KEY) as u128);
        let hash = encrypt(key, label ^ universal) ^ times_x(label);
        (halves(hash)[1], hash & 1 == 1)
    };
    let [(a_half, a_bit), (b_half, b_bit), (sum_half, sum_bit)] =
        [hash(a, 0), hash(b, 1), hash(a ^ b, 2)];
    let (i, j) = (a & 1 == 1, b & 1 == 1);
    let bit = |at: u8| bits >> at & 1 == 1;
    let r1 = a_bit ^ sum_bit ^ bit(0) ^ (i && bit(2)) ^ (i != j && bit(4));
    let r2 = b_bit ^ sum_bit ^ bit(1) ^ (j && bit(3)) ^ (i != j && bit(4));

    let mut left = a_half ^ sum_half ^ if i { g0 } else { halves(b)[0] };
    let mut right = b_half ^ sum_half ^ if j { g1 } else { halves(a)[1] };
    if i != j {
        left ^= g2;
        right ^= g2;
    }
    let mut output = join([left, right]);
    if r1 {
        output ^= a ^ b ^ orthomorphism(a);
    }
    if r2 {
        output ^= a ^ orthomorphism(b);
    }
    output
}

/// The labels of the outputs, from those of the inputs and all tables.
fn evaluate(
    schedule: &CircuitSchedule,
    public: u128,
    inputs: &[Block],
    tables: &[u8],
) -> Vec<u128> {
    let (shape, part) = (schedule.shape(), schedule.part(0));
    assert_eq!(schedule.parts(), 1);
    let mut labels = vec![0; shape.part_places as usize];
    for import in part.imports {
        labels[import.to as usize] = u128::from(inputs[(import.from - FIRST_INPUT) as usize]);
    }
    let (mut keys, mut rest) = (0, tables);
    for batch in part.batches() {
        for gate in batch.linear {
            labels[gate.out as usize] = labels[gate.a as usize] ^ labels[gate.b as usize];
        }
        let count = batch.ands.len();
        let (tables, after) = rest.split_at(GarblingScheme::ThreeHalves.table_len(batch));
        rest = after;
        let half = |at: usize| u64::from_le_bytes(*tables[8 * at..].first_chunk().unwrap());
        let bit = |at: usize| tables[24 * count + at / 8] >> (at % 8) & 1;
        for (number, and) in batch.ands.iter().enumerate() {
            let inputs = [and.a, and.b].map(|place| labels[place as usize]);
            let table = [half(2 * number), half(2 * number + 1), half(2 * count + number)];
            let bits = (0..5).map(|at| bit(5 * number + at) << at).sum();
            labels[and.out as usize] = evaluate_and(public, keys, number, inputs, table, bits);
        }
        keys += count.div_ceil(PER_KEY);
    }
    assert!(rest.is_empty());
    let exported = |place: &Wire| part.exports.iter().find(|it| it.to == *place).unwrap().from;
    shape.outputs.iter().map(|place| labels[exported(place) as usize]).collect()
}

#[test]
fn tables_are_evaluated_as_the_scheme_is_defined() {
    // Two batches with more ANDs than one key has.
    let mut circuit = Circuit::new(&[300, 300]);
    let first: Vec<_> = (0..300).map(|i| circuit.and(2 + i, 302 + i)).collect();
    let outputs: Vec<_> = (1..first.len()).map(|i| circuit.and(first[i - 1], first[i])).collect();
    circuit.output(&outputs);
    let schedule = CircuitSchedule::new(&circuit);
    for seed in 0..4 {
        let shape = schedule.shape();
        let bits: Vec<bool> = (0..600_u32).map(|i| (i * 7 + seed) % 5 < 3).collect();
        let seed = Block::from(u128::from(seed));
        let garbler = Garbler::new(GarblingScheme::ThreeHalves, seed, Block::from(9 << 77), shape);
        let inputs: Vec<Block> = garbler
            .input_pairs(0..600)
            .iter()
            .zip(&bits)
            .map(|(pair, bit)| pair[usize::from(*bit)])
            .collect();
        let mut tables = Vec::new();
        garbler.garble(&mut PartLabelBuffer::default(), &schedule.part(0), &mut tables);
        let found = evaluate(&schedule, garbler.public().into(), &inputs, &tables);
        let values = circuit.evaluate(&bits);
        for (i, (pair, value)) in garbler.output_pairs().iter().zip(values).enumerate() {
            assert_eq!(found[i], u128::from(pair[usize::from(value)]), "output {i}");
        }
    }
}

/// The rank of the linear function that has these values at the unit vectors.
fn rank(mut values: Vec<u128>) -> usize {
    let mut rank = 0;
    while let Some(value) = values.pop() {
        if value == 0 {
            continue;
        }
        rank += 1;
        let top = value.ilog2();
        for other in &mut values {
            if *other >> top & 1 == 1 {
                *other ^= value;
            }
        }
    }
    rank
}

#[test]
fn no_sum_of_halves_of_the_offset_cancels_what_the_hash_adds() {
    // The proof needs that `a(D) ^ L(D)` determines D, for each sum L that a row adds to the right
    // half.
    for sum in 0..4 {
        let of_unit = |unit: u32| {
            let offset = 1_u128 << unit;
            let [left, right] = halves(offset);
            let added = (left & (sum & 1_u64).wrapping_neg()) ^ (right & (sum >> 1).wrapping_neg());
            times_x(offset) ^ join([0, added])
        };
        assert_eq!(rank((0..128).map(of_unit).collect()), 128, "sum {sum}");
    }
    // With `D` itself in place of `a(D)` the right half is lost.
    assert_eq!(rank((0..128).map(|unit| 1_u128 << unit & u128::from(u64::MAX)).collect()), 64);
}
