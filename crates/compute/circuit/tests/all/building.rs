//! The builder: arithmetic, sorting, tables and folding against plain Rust.

use sunder_circuit::{
    Circuit, CircuitBuilder, FIRST_INPUT, ONE, Wire, ZERO, constant, sign_extended,
};

use crate::common::{check_schedule, evaluate, number, random_circuit, random_inputs, value};

/// Checks a function of two numbers of some widths, on 1,000 random pairs.
fn check_pairs(
    [x_bits, y_bits]: [u32; 2],
    build: impl Fn(&mut CircuitBuilder, &[Wire], &[Wire]) -> Vec<Wire>,
    function: impl Fn(u64, u64) -> u64,
) {
    let mut builder = CircuitBuilder::new(&[x_bits, y_bits]);
    let [x, y] = [builder.input(0), builder.input(1)];
    let output = build(&mut builder, &x, &y);
    let circuit = builder.finish(&[&output]);
    let mut rng = fastrand::Rng::with_seed(u64::from(x_bits));
    let mut pairs: Vec<(u64, u64)> =
        (0..998).map(|_| (rng.u64(..1 << x_bits), rng.u64(..1 << y_bits))).collect();
    pairs.extend([(0, 0), ((1 << x_bits) - 1, (1 << y_bits) - 1)]);
    let inputs: Vec<Vec<bool>> =
        pairs.iter().map(|&(x, y)| [number(x, x_bits), number(y, y_bits)].concat()).collect();
    for ((x, y), output) in pairs.into_iter().zip(evaluate(&circuit, &inputs)) {
        assert_eq!(value(&output), function(x, y), "{x_bits} bits: {x} and {y}");
    }
}

#[test]
fn integers_of_any_width_are_computed_as_in_rust() {
    for bits in [1, 2, 3, 7, 16, 31] {
        let all = (1_u64 << bits) - 1;
        let both = [bits, bits];
        check_pairs(both, CircuitBuilder::add, |x, y| (x + y) & all);
        check_pairs(both, CircuitBuilder::subtract, |x, y| x.wrapping_sub(y) & all);
        check_pairs(both, CircuitBuilder::multiply, |x, y| x * y);
        check_pairs(both, |b, x, y| vec![b.less(x, y)], |x, y| (x < y).into());
        check_pairs(both, |b, x, y| vec![b.equal(x, y)], |x, y| (x == y).into());
        let select = |b: &mut CircuitBuilder, x: &[Wire], y: &[Wire]| {
            let condition = b.less(x, y);
            b.select(condition, x, y)
        };
        check_pairs(both, select, u64::min);
        check_pairs([bits, 6], CircuitBuilder::shift_left, |x, by| (x << by) & all);
        check_pairs([bits, 6], CircuitBuilder::shift_right, |x, by| x >> by);
        let ones = |b: &mut CircuitBuilder, x: &[Wire], _: &[Wire]| b.count_ones(x);
        check_pairs([bits, 0], ones, |x, _| x.count_ones().into());
    }
    check_pairs([5, 9], CircuitBuilder::multiply, |x, y| x * y);
    check_pairs([3, 3], |b, x, y| vec![b.or(x[0], y[0])], |x, y| (x | y) & 1);
}

/// The number that the low `bits` bits of `value` are in two's complement.
fn signed(value: u64, bits: u32) -> i64 {
    if bits == 0 { 0 } else { (value << (64 - bits)).cast_signed() >> (64 - bits) }
}

#[test]
fn numbers_are_divided_as_in_rust() {
    for (a_bits, b_bits) in [(1, 1), (4, 4), (8, 3), (3, 8), (16, 16), (31, 7), (24, 31), (0, 3)] {
        let [all_a, all_b] = [a_bits, b_bits].map(|bits| (1_u64 << bits) - 1);
        let widths = [a_bits, b_bits];
        // A divisor of 0 gives what the documentation says.
        let divide = |x: u64, y: u64| x.checked_div(y).unwrap_or(all_a);
        let modulo = |x: u64, y: u64| x.checked_rem(y).unwrap_or(x) & all_b;
        check_pairs(widths, |b, x, y| b.divide(x, y).0, divide);
        check_pairs(widths, |b, x, y| b.divide(x, y).1, modulo);
        let signed_divide = |x: u64, y: u64| {
            let (x, y) = (signed(x, a_bits), signed(y, b_bits));
            let otherwise = if x < 0 { 1 } else { -1 };
            let quotient = if y == 0 { otherwise } else { x.wrapping_div(y) };
            quotient.cast_unsigned() & all_a
        };
        let signed_modulo = |x: u64, y: u64| {
            let (x, y) = (signed(x, a_bits), signed(y, b_bits));
            let remainder = if y == 0 { x } else { x.wrapping_rem(y) };
            remainder.cast_unsigned() & all_b
        };
        check_pairs(widths, |b, x, y| b.divide_signed(x, y).0, signed_divide);
        check_pairs(widths, |b, x, y| b.divide_signed(x, y).1, signed_modulo);
    }
}

#[test]
fn every_small_pair_is_divided_as_in_rust() {
    let mut builder = CircuitBuilder::new(&[5, 5]);
    let [x, y] = [builder.input(0), builder.input(1)];
    let (quotient, remainder) = builder.divide(&x, &y);
    let (signed_quotient, signed_remainder) = builder.divide_signed(&x, &y);
    let circuit = builder.finish(&[&quotient, &remainder, &signed_quotient, &signed_remainder]);
    let pairs: Vec<(u64, u64)> = (0..32).flat_map(|x| (1..32).map(move |y| (x, y))).collect();
    let inputs: Vec<Vec<bool>> =
        pairs.iter().map(|&(x, y)| [number(x, 5), number(y, 5)].concat()).collect();
    for ((x, y), output) in pairs.into_iter().zip(evaluate(&circuit, &inputs)) {
        let (sx, sy) = (signed(x, 5), signed(y, 5));
        let expected =
            [x / y, x % y, (sx / sy).cast_unsigned() & 31, (sx % sy).cast_unsigned() & 31];
        let values: Vec<u64> = output.chunks(5).map(value).collect();
        assert_eq!(values, expected, "{x} and {y}");
    }
}

#[test]
fn signed_numbers_of_any_width_are_computed_as_in_rust() {
    for bits in [1, 2, 3, 7, 16, 31] {
        let all = (1_u64 << bits) - 1;
        let both = [bits, bits];
        let of = |value: u64| signed(value, bits);
        check_pairs(both, |b, x, _| b.negate(x), |x, _| x.wrapping_neg() & all);
        check_pairs(both, |b, x, _| b.absolute(x), |x, _| of(x).unsigned_abs());
        check_pairs(
            both,
            |b, x, y| b.negate_if(y[0], x),
            |x, y| (if y & 1 == 1 { x.wrapping_neg() } else { x }) & all,
        );
        check_pairs(both, |b, x, y| vec![b.less_signed(x, y)], |x, y| (of(x) < of(y)).into());
        check_pairs(both, CircuitBuilder::multiply_signed, |x, y| {
            (of(x) * of(y)).cast_unsigned() & ((1 << (2 * bits)) - 1)
        });
        check_pairs([bits, 6], CircuitBuilder::shift_right_signed, |x, by| {
            (of(x) >> by).cast_unsigned() & all
        });
        check_pairs(
            both,
            |_, x, _| sign_extended(x, 40),
            |x, _| of(x).cast_unsigned() & ((1 << 40) - 1),
        );
        check_pairs(both, |b, x, _| vec![b.any(x)], |x, _| (x != 0).into());
    }
    let product = |x, y| (signed(x, 5) * signed(y, 9)).cast_unsigned() & ((1 << 14) - 1);
    check_pairs([5, 9], CircuitBuilder::multiply_signed, product);
}

#[test]
fn a_list_has_zeros_after_its_end() {
    for count in 1..20_u64 {
        let list: Vec<Vec<Wire>> = (0..count).map(|i| constant(i * 7 + 1, 8)).collect();
        let chosen = |b: &mut CircuitBuilder, index: &[Wire], _: &[Wire]| b.choose(&list, index);
        check_pairs([6, 0], chosen, |i, _| if i < count { i * 7 + 1 } else { 0 });
    }
}

#[test]
fn an_embedded_circuit_computes_the_same() {
    let mut rng = fastrand::Rng::with_seed(11);
    for _ in 0..300 {
        let gates = rng.usize(..100);
        let mut circuit = random_circuit(&mut rng, gates);
        let last = circuit.wires() - 1;
        circuit.output(&[last, ZERO]);
        let mut builder = CircuitBuilder::new(circuit.input_values());
        let inputs: Vec<Vec<Wire>> =
            (0..circuit.input_values().len()).map(|index| builder.input(index)).collect();
        let inputs: Vec<&[Wire]> = inputs.iter().map(Vec::as_slice).collect();
        let outputs = builder.embed(&circuit, &inputs);
        let outputs: Vec<&[Wire]> = outputs.iter().map(Vec::as_slice).collect();
        let embedding = builder.finish(&outputs);
        assert_eq!(embedding.output_values(), circuit.output_values());
        let words = random_inputs(&mut rng, circuit.first_gate() - FIRST_INPUT);
        assert_eq!(embedding.evaluate_64(&words), circuit.evaluate_64(&words));
    }
}

#[test]
fn an_operation_takes_one_and_a_bit() {
    assert_eq!(ands(CircuitBuilder::add), 31);
    assert_eq!(ands(CircuitBuilder::subtract), 31);
    assert_eq!(ands(|b, x, y| vec![b.less(x, y)]), 32);
    assert_eq!(ands(|b, x, y| vec![b.equal(x, y)]), 31);
    assert_eq!(ands(|b, x, y| b.select(x[0], x, y)), 32);
    assert_eq!(ands(|b, x, _| b.count_ones(x)), 32 - 1);
    assert_eq!(ands(|b, x, y| vec![b.less_signed(x, y)]), 32);
    assert_eq!(ands(|b, x, _| b.negate(x)), 30);
    assert!(ands(|b, x, y| b.divide(x, y).0) <= 33 * 33);
    assert_eq!(ands(|b, x, _| b.add(x, &constant(0, 32))), 0);
    assert_eq!(ands(|b, x, _| b.multiply(x, &constant(8, 32))), 0);
}

fn ands(build: impl Fn(&mut CircuitBuilder, &[Wire], &[Wire]) -> Vec<Wire>) -> u64 {
    let mut builder = CircuitBuilder::new(&[32, 32]);
    let [x, y] = [builder.input(0), builder.input(1)];
    let output = build(&mut builder, &x, &y);
    builder.finish(&[&output]).counts().ands
}

#[test]
fn lists_are_sorted_and_merged() {
    let mut rng = fastrand::Rng::with_seed(7);
    for n in 0..20_u32 {
        for first in [0, n / 2, n] {
            let mut builder = CircuitBuilder::new(&[n * 6]);
            let values: Vec<Vec<Wire>> = builder.input(0).chunks(6).map(<[Wire]>::to_vec).collect();
            let sorted = builder.sort(&values).concat();
            let (a, b) = values.split_at(first as usize);
            let merged = builder.merge(a, b).concat();
            let circuit = builder.finish(&[&sorted, &merged]);
            let lists: Vec<Vec<u64>> = (0..100)
                .map(|_| {
                    let mut list: Vec<u64> = (0..n).map(|_| rng.u64(..64)).collect();
                    list[..first as usize].sort_unstable();
                    list[first as usize..].sort_unstable();
                    list
                })
                .collect();
            let inputs: Vec<Vec<bool>> = lists
                .iter()
                .map(|list| list.iter().flat_map(|&n| number(n, 6)).collect())
                .collect();
            for (mut list, output) in lists.into_iter().zip(evaluate(&circuit, &inputs)) {
                list.sort_unstable();
                let (sorted, merged) = output.split_at(output.len() / 2);
                let values = |bits: &[bool]| bits.chunks(6).map(value).collect::<Vec<u64>>();
                assert_eq!(values(merged), list, "{first} of {n}");
                assert_eq!(values(sorted), list);
            }
        }
    }
}

#[test]
fn unsorted_lists_are_sorted() {
    let mut rng = fastrand::Rng::with_seed(8);
    let mut builder = CircuitBuilder::new(&[30 * 8]);
    let values: Vec<Vec<Wire>> = builder.input(0).chunks(8).map(<[Wire]>::to_vec).collect();
    let sorted = builder.sort(&values).concat();
    let circuit = builder.finish(&[&sorted]);
    let lists: Vec<Vec<u64>> =
        (0..1_000).map(|_| (0..30).map(|_| rng.u64(..256)).collect()).collect();
    let inputs: Vec<Vec<bool>> =
        lists.iter().map(|list| list.iter().flat_map(|&n| number(n, 8)).collect()).collect();
    for (mut list, output) in lists.into_iter().zip(evaluate(&circuit, &inputs)) {
        list.sort_unstable();
        assert_eq!(output.chunks(8).map(value).collect::<Vec<u64>>(), list);
    }
}

#[test]
fn tables_give_the_entry_of_the_index() {
    let mut rng = fastrand::Rng::with_seed(9);
    for index_bits in 0..9_u32 {
        for bits in [1, 8, 64] {
            let table: Vec<u64> = (0..1 << index_bits).map(|_| rng.u64(..)).collect();
            let mut builder = CircuitBuilder::new(&[index_bits]);
            let index = builder.input(0);
            let entry = builder.look_up(&table, bits, &index);
            let values: Vec<Vec<Wire>> = table.iter().map(|&it| constant(it, bits)).collect();
            let chosen = builder.choose(&values, &index);
            let circuit = builder.finish(&[&entry, &chosen]);
            let inputs: Vec<Vec<bool>> =
                (0..1 << index_bits).map(|i| number(i, index_bits)).collect();
            for (&expected, output) in table.iter().zip(evaluate(&circuit, &inputs)) {
                let expected = if bits == 64 { expected } else { expected & ((1 << bits) - 1) };
                assert_eq!(value(&output[..bits]), expected);
                assert_eq!(value(&output[bits..]), expected);
            }
        }
    }
}

#[test]
fn constants_and_equal_gates_are_folded() {
    let mut builder = CircuitBuilder::new(&[2]);
    let [x, y] = [FIRST_INPUT, FIRST_INPUT + 1];
    let not_x = builder.not(x);
    let x_y = builder.xor(x, y);
    let both = builder.and(x, y);
    assert_eq!(builder.xor(x, x), ZERO);
    assert_eq!(builder.xor(x, ZERO), x);
    assert_eq!(builder.xor(x, ONE), not_x);
    assert_eq!(builder.xor(x, not_x), ONE);
    assert_eq!(builder.xor(x_y, y), x);
    assert_eq!(builder.not(not_x), x);
    assert_eq!([builder.not(ZERO), builder.not(ONE)], [ONE, ZERO]);
    assert_eq!(builder.and(x, not_x), ZERO);
    assert_eq!(builder.and(x, ONE), x);
    assert_eq!(builder.and(ZERO, x), ZERO);
    assert_eq!(builder.and(y, x), both);
    assert_eq!(builder.finish(&[&[both]]).len(), 1);
}

/// Every circuit that is built again gate by gate computes the same with no more gates.
#[test]
fn folding_changes_no_function() {
    for seed in 0..2_000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let circuit = random_circuit(&mut rng, 200);
        let folded = rebuild(&circuit);
        assert!(folded.counts().ands <= circuit.counts().ands);
        let inputs = random_inputs(&mut rng, circuit.first_gate() - FIRST_INPUT);
        assert_eq!(folded.evaluate_64(&inputs), circuit.evaluate_64(&inputs), "seed {seed}");
        check_schedule(&folded, &mut rng);
    }
}

fn rebuild(circuit: &Circuit) -> Circuit {
    let mut builder = CircuitBuilder::new(circuit.input_values());
    let mut wires: Vec<Wire> = (0..circuit.first_gate()).collect();
    for (i, gate) in circuit.gates().enumerate() {
        let [a, b] = [gate.a, gate.b].map(|wire| wires[wire as usize]);
        let is_and = circuit.gate(circuit.first_gate() + u32::try_from(i).unwrap()).unwrap().kind
            == sunder_circuit::GateKind::And;
        wires.push(if is_and { builder.and(a, b) } else { builder.xor(a, b) });
    }
    let outputs: Vec<Wire> = circuit.outputs().iter().map(|&wire| wires[wire as usize]).collect();
    builder.finish(&[&outputs])
}
