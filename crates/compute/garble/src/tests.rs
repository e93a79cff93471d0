//! Tests each scheme against a plain evaluation, and the statistics of tables.

mod circuits;

use std::collections::HashSet;

use blocks::Block;
use blocks::aes::AesKernel;
use blocks::prg::Prg;
use circuit::{Circuit, CircuitSchedule, CircuitSource, generate};
use proptest::prelude::*;
use sha2::{Digest, Sha256};
use sim::statistics::{ChiSquared, byte_counts};

use crate::workers::with_workers;
use crate::{Error, Evaluator, Garbler, GarblingScheme, PartLabelBuffer};

/// The results of a run.
struct Run {
    outputs: Vec<bool>,
    output_labels: Vec<[Block; 2]>,
    offset: Block,
    public: Block,
    decoding: Vec<bool>,
    tables: Vec<u8>,
}

/// Garbles and evaluates with two kernels, and checks that the labels of the outputs are theirs.
fn run(
    scheme: GarblingScheme,
    schedule: &CircuitSchedule,
    bits: &[bool],
    seed: u128,
    kernels: [AesKernel; 2],
) -> Run {
    let offset = Block::from(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835));
    let shape = schedule.shape();
    let garbler = Garbler::with_kernel(scheme, Block::from(seed), offset, shape, kernels[0]);
    let mut evaluator = Evaluator::with_kernel(scheme, garbler.public(), shape, kernels[1]);
    for (input, pair) in (0..).zip(garbler.input_pairs(0..shape.inputs())) {
        evaluator.set_input(input, pair[usize::from(bits[input as usize])]);
    }
    let mut tables = Vec::new();
    let (mut here, mut there) = (PartLabelBuffer::default(), PartLabelBuffer::default());
    for part in (0..schedule.parts()).map(|index| schedule.part(index)) {
        let start = tables.len();
        garbler.garble(&mut here, &part, &mut tables);
        assert_eq!(tables.len() - start, scheme.part_len(&part));
        assert_eq!(evaluator.evaluate(&mut there, &part, &tables[start..]), Ok(()));
    }
    let decoding = garbler.decoding();
    let outputs = evaluator.decode(&decoding).unwrap();
    let output_labels = garbler.output_pairs();
    for (i, label) in evaluator.output_labels().iter().enumerate() {
        let expected = output_labels[i][usize::from(outputs[i])];
        assert_eq!(label.to_bytes(), expected.to_bytes(), "output {i}");
    }
    let (offset, public) = (garbler.offset(), garbler.public());
    Run { outputs, output_labels, offset, public, decoding, tables }
}

fn best(scheme: GarblingScheme, schedule: &CircuitSchedule, bits: &[bool], seed: u128) -> Run {
    run(scheme, schedule, bits, seed, [AesKernel::best(); 2])
}

/// AES with the key and block of FIPS 197, appendix C.1.
fn aes() -> (CircuitSchedule, Vec<bool>) {
    let key: Vec<u8> = (0..16).collect();
    let block: Vec<u8> = (0..16).map(|i| 0x11 * i).collect();
    let bits = circuit::bits::of_bytes(&[key, block].concat());
    (CircuitSchedule::new(&generate::aes128()), bits)
}

#[test]
fn aes_is_that_of_fips_197_in_every_scheme_with_every_kernel() {
    let (schedule, bits) = aes();
    let expected = [
        0x69, 0xC4, 0xE0, 0xD8, 0x6A, 0x7B, 0x04, 0x30, 0xD8, 0xCD, 0xB7, 0x80, 0x70, 0xB4, 0xC5,
        0x5A,
    ];
    for scheme in GarblingScheme::ALL {
        let mut first = None;
        let kernels = AesKernel::available();
        for pair in kernels.iter().zip(kernels.iter().rev()) {
            let run = run(scheme, &schedule, &bits, 5, [*pair.0, *pair.1]);
            assert_eq!(circuit::bits::to_bytes(&run.outputs), expected, "{scheme}, {pair:?}");
            let tables = first.get_or_insert_with(|| run.tables.clone());
            assert!(*tables == run.tables, "{scheme}: other tables with {}", pair.0);
        }
    }
}

/// A circuit of three and four inputs whose gates are chosen by the blocks. It has gates with equal
/// inputs, constants, and outputs that are inputs or constants.
fn random_circuit(blocks: &[Block]) -> Circuit {
    let mut circuit = Circuit::new(&[3, 4]);
    for block in blocks {
        let [kind, a, b, ..] = block.to_bytes();
        // Mostly of late wires, so that the circuit is deep.
        let wires = circuit.wires();
        let wire = |byte: u8| {
            if byte < 128 {
                wires - 1 - u32::from(byte) % wires.min(12)
            } else {
                u32::from(byte) % wires
            }
        };
        let (a, b) = (wire(a), wire(b));
        match kind % 8 {
            0..4 => circuit.and(a, b),
            4..7 => circuit.xor(a, b),
            _ => circuit.not(a),
        };
    }
    let outputs: Vec<_> = (0..circuit.wires()).rev().take(16).chain([0, 1, 2, 8]).collect();
    circuit.output(&outputs);
    circuit
}

proptest! {
    #[test]
    fn any_circuit_gives_what_a_plain_evaluation_gives(
        seed in any::<u128>(),
        gates in 0..500_usize,
        inputs in any::<[bool; 7]>(),
        kernel in 0..4_usize,
    ) {
        let mut blocks = vec![Block::ZERO; gates];
        Prg::new(Block::from(seed)).fill(&mut blocks);
        let circuit = random_circuit(&blocks);
        let schedule = CircuitSchedule::new(&circuit);
        let expected = circuit.evaluate(&inputs);
        let kernels = AesKernel::available();
        let kernels = [kernels[kernel % kernels.len()], kernels[0]];
        for scheme in GarblingScheme::ALL {
            let run = run(scheme, &schedule, &inputs, seed, kernels);
            prop_assert_eq!(&run.outputs, &expected, "{}", scheme);
        }
    }
}

#[test]
fn one_gate_of_each_kind_is_right_for_all_inputs_and_colours() {
    let mut circuit = Circuit::new(&[1, 1]);
    let (a, b) = (2, 3);
    let outputs = [
        circuit.and(a, b),
        circuit.xor(a, b),
        circuit.not(a),
        circuit.and(a, a),
        circuit.xor(b, b),
        circuit.and(a, 1),
        circuit.and(0, b),
    ];
    circuit.output(&outputs);
    let schedule = CircuitSchedule::new(&circuit);
    for scheme in GarblingScheme::ALL {
        for seed in 0..64 {
            for inputs in [[false, false], [false, true], [true, false], [true, true]] {
                let run = best(scheme, &schedule, &inputs, seed);
                assert_eq!(run.outputs, circuit.evaluate(&inputs), "{scheme}, {inputs:?}");
            }
        }
    }
}

#[test]
fn batches_of_any_number_of_gates_are_right() {
    for ands in (1..40).chain([63, 64, 65, 100]) {
        let mut circuit = Circuit::new(&[ands, ands]);
        let outputs: Vec<_> = (0..ands).map(|i| circuit.and(2 + i, 2 + ands + i)).collect();
        circuit.output(&outputs);
        let schedule = CircuitSchedule::new(&circuit);
        let bits: Vec<_> = (0..2 * ands).map(|i| i * 7 % 5 < 3).collect();
        for scheme in GarblingScheme::ALL {
            for kernel in AesKernel::available() {
                let run = run(scheme, &schedule, &bits, 1, [kernel; 2]);
                assert_eq!(run.outputs, circuit.evaluate(&bits), "{scheme}, {kernel}, {ands}");
            }
        }
    }
}

#[test]
fn tables_have_the_length_that_the_scheme_states() {
    let (schedule, bits) = aes();
    let (mut xors, mut and_bytes, mut and_eights) = (0, 0, 0);
    let parts = (0..schedule.parts()).map(|index| schedule.part(index));
    for batch in parts.flat_map(|part| part.batches()) {
        xors += batch.linear.iter().filter(|gate| gate.is_xor()).count();
        and_bytes += batch.ands.len().div_ceil(8);
        and_eights += 5 * batch.ands.len().div_ceil(8);
    }
    let ands = usize::try_from(schedule.shape().ands).unwrap();
    assert_eq!(xors as u64, schedule.shape().xors);
    let expected = [
        (GarblingScheme::HalfGates, 32 * ands),
        (GarblingScheme::HalfGatesKeyed, 32 * ands),
        (GarblingScheme::FixedKey, 32 * ands),
        (GarblingScheme::Glnp15, 16 * xors + 32 * ands + and_bytes),
        (GarblingScheme::ThreeHalves, 24 * ands + and_eights),
    ];
    assert_eq!(expected.map(|(scheme, _)| scheme), GarblingScheme::ALL);
    for (scheme, len) in expected {
        assert_eq!(best(scheme, &schedule, &bits, 3).tables.len(), len, "{scheme}");
    }
    let saved = 1.0 - (24.0 + 5.0 / 8.0) / 32.0;
    assert!(saved > 0.23, "three halves saves {saved} of the bytes of half gates");
}

/// How often uniform bytes would fail by chance. The seeds are fixed.
const FALSE_ALARM: f64 = 1e-5;

#[test]
fn tables_and_labels_are_uniform() {
    let (schedule, bits) = aes();
    for scheme in GarblingScheme::ALL {
        let runs: Vec<_> = (0..20).map(|seed| best(scheme, &schedule, &bits, seed)).collect();
        for place in 0..16 {
            let tables = runs.iter().flat_map(|run| run.tables.iter().skip(place).step_by(16));
            let uniform = ChiSquared::of_uniform(&byte_counts(tables.copied()));
            assert!(uniform.passes(FALSE_ALARM), "{scheme}: place {place} of tables: {uniform:?}");
        }
        for value in 0..2 {
            let labels = runs.iter().flat_map(|run| &run.output_labels);
            let bytes = labels.flat_map(|pair| pair[value].to_bytes());
            let uniform = ChiSquared::of_uniform(&byte_counts(bytes));
            assert!(uniform.passes(FALSE_ALARM), "{scheme}: the labels of {value}: {uniform:?}");
        }
    }
}

#[test]
fn labels_of_inputs_are_uniform() {
    let (schedule, _) = aes();
    for scheme in GarblingScheme::ALL {
        let mut prg = Prg::new(Block::from(3));
        let pairs: Vec<_> = (0..20)
            .flat_map(|_| {
                let (seed, offset) = (prg.block(), prg.block());
                Garbler::new(scheme, seed, offset, schedule.shape()).input_pairs(0..256)
            })
            .collect();
        for value in 0..2 {
            for place in 0..16 {
                let bytes = pairs.iter().map(|pair| pair[value].to_bytes()[place]);
                let uniform = ChiSquared::of_uniform(&byte_counts(bytes));
                assert!(
                    uniform.passes(FALSE_ALARM),
                    "{scheme}: byte {place} of {value}: {uniform:?}"
                );
            }
        }
    }
}

#[test]
#[allow(clippy::cast_precision_loss)] // Some thousands.
fn the_colours_of_labels_are_uniform() {
    // The decoding bit of an output, and the bit that an evaluator sees, do not reveal it.
    let (schedule, bits) = aes();
    for scheme in GarblingScheme::ALL {
        let runs: Vec<_> = (0..40).map(|seed| best(scheme, &schedule, &bits, seed)).collect();
        let total = runs.iter().map(|run| run.decoding.len()).sum::<usize>();
        let set = runs.iter().flat_map(|run| &run.decoding).filter(|bit| **bit).count();
        // Five standard deviations.
        let bound = 5.0 * (total as f64).sqrt() / 2.0;
        assert!((set as f64 - total as f64 / 2.0).abs() < bound, "{scheme}: {set} of {total}");
    }
}

#[test]
fn the_offset_is_never_in_the_tables() {
    let (schedule, bits) = aes();
    for scheme in GarblingScheme::ALL.into_iter().filter(|scheme| scheme.has_offset()) {
        let run = best(scheme, &schedule, &bits, 11);
        let offset = run.offset.to_bytes();
        for half in offset.chunks(8) {
            assert!(!run.tables.windows(8).any(|window| window == half), "{scheme}");
        }
        // Neither is it the difference of any two blocks.
        let blocks: HashSet<_> =
            run.tables.as_chunks().0.iter().map(|block| u128::from_le_bytes(*block)).collect();
        let offset = u128::from(run.offset);
        assert!(!blocks.iter().any(|block| blocks.contains(&(block ^ offset))), "{scheme}");
    }
}

#[test]
fn the_same_inputs_never_give_the_same_tables() {
    let (schedule, bits) = aes();
    for scheme in GarblingScheme::ALL {
        let blocks = |seed| -> HashSet<[u8; 8]> {
            let run = best(scheme, &schedule, &bits, seed);
            let len = run.tables.len() / 8 * 8;
            // The last bytes of a batch are bits, so its next is not at a multiple of eight.
            run.tables[..len].chunks(8).map(|chunk| chunk.try_into().unwrap()).collect()
        };
        let (first, second) = (blocks(1), blocks(2));
        let common = first.intersection(&second).count();
        assert_eq!(common, 0, "{scheme}");
    }
}

/// What goes over the wire for AES of FIPS 197 with seed 5, hashed. A change here is a change of
/// the wire format, which needs a new protocol version in `compute`.
const WIRE: [u64; 5] = [
    0xE4CF_9601_47B4_C287, // half-gates
    0xD381_A787_E826_120D, // half-gates-keyed
    0x77C3_BF91_5C99_12A4, // fixed-key
    0x376A_B8E0_EA7E_F5CB, // glnp15
    0x9FEE_8C57_DB73_F653, // three-halves
];

#[test]
fn the_wire_format_is_unchanged() {
    let (schedule, bits) = aes();
    let found = GarblingScheme::ALL.map(|scheme| {
        let run = best(scheme, &schedule, &bits, 5);
        let mut hash = Sha256::new();
        hash.update(run.public.to_bytes());
        hash.update(&run.tables);
        hash.update(circuit::bits::to_bytes(&run.decoding));
        let digest: [u8; 32] = hash.finalize().into();
        u64::from_be_bytes(*digest.first_chunk().unwrap())
    });
    assert_eq!(found.map(|hash| format!("{hash:016X}")), WIRE.map(|hash| format!("{hash:016X}")));
}

#[test]
fn tables_of_another_length_are_an_error_and_change_nothing() {
    let (schedule, bits) = aes();
    let shape = schedule.shape();
    for scheme in GarblingScheme::ALL {
        let garbler = Garbler::new(scheme, Block::from(1), Block::from(2), shape);
        let mut evaluator = Evaluator::new(scheme, garbler.public(), shape);
        for (input, pair) in (0..).zip(garbler.input_pairs(0..shape.inputs())) {
            evaluator.set_input(input, pair[usize::from(bits[input as usize])]);
        }
        let mut memory = PartLabelBuffer::default();
        for part in (0..schedule.parts()).map(|index| schedule.part(index)) {
            let mut tables = Vec::new();
            garbler.garble(&mut memory, &part, &mut tables);
            let needed = tables.len();
            tables.push(0xA5);
            for available in [0, 1, needed / 2, needed - 1, needed + 1] {
                let error = evaluator.evaluate(&mut memory, &part, &tables[..available]);
                assert_eq!(error, Err(Error::TablesLen { needed, available }));
            }
            assert_eq!(evaluator.evaluate(&mut memory, &part, &tables[..needed]), Ok(()));
        }
        let decoding = garbler.decoding();
        let output = circuit::bits::to_bytes(&evaluator.decode(&decoding).unwrap());
        assert_eq!(output[..4], [0x69, 0xC4, 0xE0, 0xD8], "{scheme}");
        let (needed, available) = (128, 127);
        let error = evaluator.decode(&decoding[1..]);
        assert_eq!(error, Err(Error::Decoding { needed, available }));
    }
}

#[test]
fn any_tables_of_the_right_length_are_evaluated() {
    let (schedule, bits) = aes();
    let mut prg = Prg::new(Block::from(8));
    for scheme in GarblingScheme::ALL {
        let shape = schedule.shape();
        let garbler = Garbler::new(scheme, Block::from(1), Block::from(2), shape);
        let mut evaluator = Evaluator::new(scheme, garbler.public(), shape);
        for (input, pair) in (0..).zip(garbler.input_pairs(0..shape.inputs())) {
            evaluator.set_input(input, pair[usize::from(bits[input as usize])]);
        }
        for part in (0..schedule.parts()).map(|index| schedule.part(index)) {
            let mut tables = vec![0; scheme.part_len(&part)];
            prg.fill_bytes(&mut tables);
            evaluator.evaluate(&mut PartLabelBuffer::default(), &part, &tables).unwrap();
        }
        let pairs = garbler.output_pairs();
        for (label, pair) in evaluator.output_labels().iter().zip(pairs) {
            assert!(pair.iter().all(|known| known.to_bytes() != label.to_bytes()), "{scheme}");
        }
    }
}

#[test]
fn input_labels_can_be_set() {
    let (schedule, bits) = aes();
    let shape = schedule.shape();
    let mut labels = vec![Block::ZERO; 256];
    Prg::new(Block::from(77)).fill(&mut labels);
    for scheme in GarblingScheme::ALL {
        let mut garbler = Garbler::new(scheme, Block::from(1), Block::from(2), shape);
        let mut evaluator = Evaluator::new(scheme, garbler.public(), shape);
        for (input, (label, bit)) in (0..).zip(labels.iter().zip(&bits)) {
            garbler.set_input(input, *bit, *label);
            evaluator.set_input(input, *label);
            let [pair] = garbler.input_pairs(input..input + 1)[..] else { panic!("one pair") };
            assert_eq!(pair[usize::from(*bit)].to_bytes(), label.to_bytes());
            assert_ne!(pair[0].lsb(), pair[1].lsb());
            let labels = garbler.input_labels(input..input + 1);
            let expected = if scheme.has_offset() { &pair[..1] } else { &pair[..] };
            assert_eq!(Block::bytes_of(&labels), Block::bytes_of(expected), "{scheme}");
        }
        let mut memory = PartLabelBuffer::default();
        for part in (0..schedule.parts()).map(|index| schedule.part(index)) {
            let mut tables = Vec::new();
            garbler.garble(&mut memory, &part, &mut tables);
            evaluator.evaluate(&mut memory, &part, &tables).unwrap();
        }
        let output = evaluator.decode(&garbler.decoding()).unwrap();
        assert_eq!(circuit::bits::to_bytes(&output)[..4], [0x69, 0xC4, 0xE0, 0xD8], "{scheme}");
    }
}

/// Does `work` for all parts of a circuit in threads. Returns the tables that it leaves.
fn in_threads(
    threads: usize,
    schedule: &CircuitSchedule,
    tables: Vec<Vec<u8>>,
    work: impl Fn(&mut PartLabelBuffer, &mut (u64, Vec<u8>)) + Sync,
) -> Vec<Vec<u8>> {
    let mut done = Vec::new();
    with_workers(threads, work, |workers| {
        for (index, tables) in (0..schedule.parts()).zip(tables) {
            if !workers.has_room() {
                done.extend(workers.take());
            }
            workers.add((index, tables), schedule.part(index).dependencies);
        }
        done.extend(std::iter::from_fn(|| workers.take()));
    });
    done.into_iter().map(|(_, tables)| tables).collect()
}

#[test]
fn tables_do_not_depend_on_the_number_of_threads() {
    let circuit = generate::minimum(1_500, 1_500, 16);
    let schedule = CircuitSchedule::new(&circuit);
    let shape = schedule.shape();
    assert!(schedule.parts() > 6, "{}", schedule.parts());
    let bits: Vec<bool> = (0..shape.inputs()).map(|at| at * 7 % 11 < 5).collect();
    let expected = circuit.evaluate(&bits);
    for scheme in GarblingScheme::ALL {
        let mut first = None;
        for threads in [1, 2, 4, 7] {
            let garbler = Garbler::new(scheme, Block::from(1), Block::from(2), shape);
            let mut evaluator = Evaluator::new(scheme, garbler.public(), shape);
            for (input, pair) in (0..).zip(garbler.input_pairs(0..shape.inputs())) {
                evaluator.set_input(input, pair[usize::from(bits[input as usize])]);
            }
            let none = vec![Vec::new(); usize::try_from(schedule.parts()).unwrap()];
            let tables = in_threads(threads, &schedule, none, |memory, (index, tables)| {
                garbler.garble(memory, &schedule.part(*index), tables);
            });
            let tables = in_threads(threads, &schedule, tables, |memory, (index, tables)| {
                evaluator.evaluate(memory, &schedule.part(*index), tables).unwrap();
            });
            assert_eq!(evaluator.decode(&garbler.decoding()).unwrap(), expected, "{scheme}");
            assert!(*first.get_or_insert_with(|| tables.clone()) == tables, "{scheme}, {threads}");
        }
    }
}

#[test]
fn garbling_scheme_names_round_trip() {
    for scheme in GarblingScheme::ALL {
        assert_eq!(scheme.name().parse(), Ok(scheme));
    }
    let error = "half".parse::<GarblingScheme>().unwrap_err().to_string();
    assert!(error.contains("'half'") && error.contains("three-halves"), "{error}");
    assert_eq!(GarblingScheme::default(), GarblingScheme::HalfGates);
}
