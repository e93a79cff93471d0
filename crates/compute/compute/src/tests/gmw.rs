//! Tests of GMW against plain evaluation.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;

use circuit::{Circuit, CircuitBuilder, CircuitSchedule, FIRST_INPUT, generate};

use super::traces::{Recorded, check_uniform, frames, recorded_of};
use super::{BLOCK, ENCRYPTED, KEY, expected, refused, run, session};
use crate::predict::PredictedTraffic;
use crate::wire::ComputeFrameKind;
use crate::{
    ComputeProtocol, ComputeRole, ComputeSettings, Error, OutputLearners, PhaseFigures,
    TransferKind,
};

fn gmw() -> ComputeSettings {
    ComputeSettings { protocol: ComputeProtocol::Gmw, ..ComputeSettings::default() }
}

/// A circuit in an order, and the inputs of both parties.
struct Instance<'a> {
    schedule: CircuitSchedule,
    inputs: [&'a [u8]; 2],
    expected: Vec<u8>,
}

/// Runs instances on one set-up. What each phase took, for both parties.
fn check(instances: &[Instance<'_>], settings: ComputeSettings) -> [Vec<PhaseFigures>; 2] {
    let (here, there) = UnixStream::pair().unwrap();
    let party = |socket: UnixStream, role: ComputeRole| {
        let mut session = session(&socket, role, settings);
        drop(socket);
        for (number, instance) in instances.iter().enumerate() {
            let input = instance.inputs[role as usize - 1];
            let output = session.run(&instance.schedule, input)?;
            assert!(output.as_ref() == Some(&instance.expected), "instance {number}");
        }
        let figures = session.figures().to_vec();
        session.finish().map(|()| figures)
    };
    let figures: [Result<_, Error>; 2] = thread::scope(|scope| {
        let evaluator = scope.spawn(|| party(there, ComputeRole::Evaluator));
        let garbler = party(here, ComputeRole::Garbler);
        [garbler, evaluator.join().unwrap()]
    });
    figures.map(Result::unwrap)
}

/// Checks a circuit in both orders, on `times` random inputs of each party.
fn check_random(name: &str, circuit: &Circuit, times: u64) {
    let counts = [circuit.garbler_inputs(), circuit.evaluator_inputs()];
    let mut rng = fastrand::Rng::with_seed(times ^ u64::from(counts[0]));
    let mut random = |bits: u32| -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..bits.div_ceil(8)).map(|_| rng.u8(..)).collect();
        if let Some(last) = bytes.last_mut().filter(|_| !bits.is_multiple_of(8)) {
            *last &= (1 << (bits % 8)) - 1;
        }
        bytes
    };
    let inputs: Vec<[Vec<u8>; 2]> = (0..times).map(|_| counts.map(&mut random)).collect();
    let orders = [CircuitSchedule::in_one_part(circuit), CircuitSchedule::new(circuit)];
    let instances: Vec<Instance<'_>> = inputs
        .iter()
        .zip(orders.iter().cycle())
        .map(|([ours, theirs], schedule)| {
            let inputs = [&ours[..], &theirs[..]];
            let expected = expected(circuit, inputs);
            Instance { schedule: schedule.clone(), inputs, expected }
        })
        .collect();
    check(&instances, gmw());
    println!("{name}: {} ANDs, {times} times", circuit.counts().ands);
}

#[test]
fn aes_128_is_that_of_fips_197_with_every_kind_of_transfers() {
    let schedule = CircuitSchedule::in_one_part(&generate::aes128());
    let instance = || Instance {
        schedule: schedule.clone(),
        inputs: [&KEY, &BLOCK],
        expected: ENCRYPTED.to_vec(),
    };
    for transfers in TransferKind::ALL {
        check(&[instance(), instance()], ComputeSettings { transfers, ..gmw() });
    }
    // Appendix C.1.
    let key: Vec<u8> = (0..16).collect();
    let block: Vec<u8> = (0..16).map(|at| 0x11 * at).collect();
    let encrypted = 0x69c4_e0d8_6a7b_0430_d8cd_b780_70b4_c55a_u128.to_be_bytes();
    let inputs = [&key[..], &block[..]];
    check(&[Instance { schedule, inputs, expected: encrypted.to_vec() }], gmw());
}

#[test]
fn sha_256_is_that_of_fips_180_4() {
    // "abc", padded, and divided between the parties.
    let mut block = [0; 64];
    block[..4].copy_from_slice(b"abc\x80");
    block[63] = 24;
    let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let digest: Vec<u8> =
        (0..32).map(|at| u8::from_str_radix(&digest[2 * at..][..2], 16).unwrap()).collect();
    let instance = |split: usize| {
        let (ours, theirs) = block.split_at(split);
        let circuit = generate::sha256(u32::try_from(split).unwrap());
        let schedule = CircuitSchedule::in_one_part(&circuit);
        Instance { schedule, inputs: [ours, theirs], expected: digest.clone() }
    };
    check(&[0, 3, 32, 64].map(instance), gmw());
}

#[test]
fn every_generated_circuit_is_right_on_random_inputs() {
    check_random("aes128", &generate::aes128(), 20);
    check_random("sha256", &generate::sha256(32), 4);
    check_random("sha256_message", &generate::sha256_message(70, 50), 2);
    check_random("minimum", &generate::minimum(30, 41, 20), 20);
    check_random("millionaires", &generate::millionaires(64), 20);
    check_random("intersection", &generate::intersection(20, 12), 10);
    check_random("edit_distance", &generate::edit_distance(12, 9, 2), 20);
}

#[test]
fn the_whole_minimum_of_25_000_numbers() {
    // More triples than are made ahead, in levels of many batches.
    check_random("mincut", &generate::min_cut(), 2);
}

/// Circuits that others published; they are not part of this repository.
#[test]
fn published_circuits_are_right_on_random_inputs() {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/circuits");
    let folder = std::env::var_os("SUNDER_CIRCUITS").map_or_else(beside, PathBuf::from);
    for name in [
        "adder_32bit.txt",
        "mult_32x32.txt",
        "AES-non-expanded.txt",
        "bristol-fashion-aes_128.txt",
        "bristol-fashion-sha256.txt",
        "sha-256.txt",
    ] {
        match std::fs::read(folder.join(name)) {
            Ok(text) => check_random(name, &circuit::bristol::read(&text).unwrap(), 4),
            Err(error) => eprintln!("skipped: {name}: {error}"),
        }
    }
}

/// Gates of one wire twice, of constants, NOTs and copies; outputs that nothing computes, and wires
/// that nothing reads.
#[test]
fn random_circuits_are_right() {
    let mut rng = fastrand::Rng::with_seed(3);
    let circuits: Vec<Circuit> = (0..150)
        .map(|_| {
            let mut circuit = Circuit::new(&[rng.u32(0..9), rng.u32(0..20)]);
            for _ in 0..rng.u32(0..300) {
                let wires = circuit.wires();
                let (a, b) = (rng.u32(..wires), rng.u32(wires - wires.min(12)..wires));
                match rng.u32(..8) {
                    0..4 => circuit.and(a, b),
                    4..7 => circuit.xor(a, b),
                    _ => circuit.not(a),
                };
            }
            let outputs: Vec<u32> = (0..20).map(|_| rng.u32(..circuit.wires())).collect();
            circuit.output(&outputs);
            circuit
        })
        .collect();
    let input = [0x5a, 0x96, 0x3c];
    let instances: Vec<Instance<'_>> = circuits
        .iter()
        .map(|circuit| {
            let bytes = |bits: u32| &input[..bits.div_ceil(8) as usize];
            let inputs = [bytes(circuit.garbler_inputs()), bytes(circuit.evaluator_inputs())];
            let schedule = CircuitSchedule::in_one_part(circuit);
            Instance { schedule, inputs, expected: expected(circuit, inputs) }
        })
        .collect();
    check(&instances, gmw());
}

#[test]
fn a_level_of_more_ands_than_an_exchange() {
    // All products of a bit of each party, and their sums in columns.
    let mut circuit = Circuit::new(&[1_030, 1_024]);
    let (ours, theirs) = (circuit.input(0), circuit.input(1));
    let mut sums = vec![circuit::ZERO; 1_024];
    for a in ours {
        for (sum, b) in sums.iter_mut().zip(theirs.clone()) {
            let product = circuit.and(a, b);
            *sum = circuit.xor(product, *sum);
        }
    }
    circuit.output(&sums);
    check_random("products", &circuit, 1);
}

#[test]
fn the_output_goes_to_whom_both_have_chosen() {
    let circuit = generate::aes128();
    for (learns, learners) in [
        (OutputLearners::Both, [true, true]),
        (OutputLearners::Garbler, [true, false]),
        (OutputLearners::Evaluator, [false, true]),
    ] {
        let settings = ComputeSettings { learns, ..gmw() };
        let outputs = run([&circuit; 2], [&KEY, &BLOCK], [settings; 2], 2);
        for (output, is_learner) in outputs.into_iter().zip(learners) {
            assert_eq!(output.unwrap(), is_learner.then(|| ENCRYPTED.to_vec()), "{learns:?}");
        }
    }
}

#[test]
fn parties_may_have_no_input_and_circuits_no_ands() {
    for inputs in [[9, 0], [0, 9], [5, 11]] {
        let mut builder = CircuitBuilder::new(&inputs);
        let all = [builder.input(0), builder.input(1)].concat();
        let sum = builder.count_ones(&all);
        let circuits = [
            builder.finish(&[&sum, &all, &[circuit::ONE, circuit::ZERO]]),
            CircuitBuilder::new(&inputs).finish(&[&all, &[circuit::ONE, FIRST_INPUT]]),
        ];
        let bytes = inputs.map(|bits| vec![1; bits.div_ceil(8) as usize]);
        let given = [&bytes[0][..], &bytes[1][..]];
        for circuit in circuits {
            let right = expected(&circuit, given);
            for output in run([&circuit; 2], given, [gmw(); 2], 2) {
                assert_eq!(output.unwrap().as_ref(), Some(&right), "{inputs:?}");
            }
        }
    }
}

#[test]
fn the_predicted_bytes_are_those_that_are_sent() {
    let circuit = generate::minimum(900, 900, 20);
    let schedule = CircuitSchedule::in_one_part(&circuit);
    let input = [0x3c; 2_250];
    let expected = expected(&circuit, [&input, &input]);
    let instance =
        || Instance { schedule: schedule.clone(), inputs: [&input; 2], expected: expected.clone() };
    for transfers in TransferKind::ALL {
        let settings = ComputeSettings { transfers, ..gmw() };
        let [garbler, evaluator] = check(&[instance(), instance()], settings);
        let traffic = PredictedTraffic::of(&schedule, &settings, 2);
        let sum = |figures: &[PhaseFigures], of: fn(&PhaseFigures) -> u64| -> u64 {
            figures.iter().map(of).sum()
        };
        let sent = [&garbler, &evaluator].map(|it| sum(it, |phase| phase.bytes_sent));
        let received = [&evaluator, &garbler].map(|it| sum(it, |phase| phase.bytes_received));
        assert_eq!([traffic.garbler, traffic.evaluator], sent, "{transfers:?}");
        assert_eq!(sent, received, "{transfers:?}");
        // In each instance those of the seeds, of the levels and of the output, and one more.
        assert_eq!(traffic.round_trips, (2 * (circuit.depth() + 2) + 1).div_ceil(2));
    }
}

#[test]
fn gmw_mismatched_computations_are_rejected_with_a_reason() {
    let aes = generate::aes128();
    for settings in [[gmw(), ComputeSettings::default()], [ComputeSettings::default(), gmw()]] {
        for error in refused([&aes; 2], [&KEY, &BLOCK], settings) {
            assert_eq!(error, "the protocol (--protocol) is not the same at both parties");
        }
    }
    let private = ComputeSettings { learns: OutputLearners::Evaluator, ..gmw() };
    for error in refused([&aes; 2], [&KEY, &BLOCK], [gmw(), private]) {
        assert!(error.contains("who learns the output"), "{error}");
    }
    let sha = generate::sha256(16);
    for error in refused([&aes, &sha], [&KEY, &[0; 48]], [gmw(); 2]) {
        assert!(error.contains("128 and 128 bits to 128"), "{error}");
    }
    let [garbler, evaluator] = refused([&aes; 2], [&KEY[1..], &BLOCK], [gmw(); 2]);
    assert!(garbler.contains("120 bits, the circuit takes 128"), "{garbler}");
    assert!(evaluator.contains("its input does not fit"), "{evaluator}");
}

#[test]
fn no_two_transcripts_are_equal_and_the_offset_is_in_none() {
    let schedule = CircuitSchedule::in_one_part(&generate::aes128());
    let run = |instances| recorded_of(&schedule, gmw(), [&KEY, &BLOCK], None, instances);
    let [first, second] = [run(2), run(2)];
    let offset = first.offset.to_bytes();
    for sent in &first.sent {
        assert!(!sent.windows(16).any(|window| window == offset));
    }
    for kind in [
        ComputeFrameKind::Base,
        ComputeFrameKind::Share,
        ComputeFrameKind::Triples,
        ComputeFrameKind::Open,
        ComputeFrameKind::Output,
    ] {
        let halves = |Recorded { sent, .. }: &Recorded| -> Vec<Vec<u8>> {
            let all = sent.iter().map(|sent| frames(sent, kind)).filter(|all| !all.is_empty());
            // Of both instances; the set-up is one.
            let per_instance = if kind == ComputeFrameKind::Base { 1 } else { 2 };
            let parts =
                all.map(|all| all.chunks(all.len() / per_instance).map(<[u8]>::to_vec).collect());
            parts.collect::<Vec<Vec<Vec<u8>>>>().concat()
        };
        let mut all = [halves(&first), halves(&second)].concat();
        let count = all.len();
        assert!(count >= 4, "{kind:?}");
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count, "{kind:?}");
    }
}

/// With inputs of zeros only: without masks everything would be 0.
#[test]
fn what_is_opened_and_the_columns_of_the_triples_are_uniform() {
    const WIDTH: u32 = 4_096;
    let mut circuit = Circuit::new(&[WIDTH, WIDTH]);
    let mut wires: Vec<u32> = (FIRST_INPUT..FIRST_INPUT + 2 * WIDTH).collect();
    // Levels of whole bytes: there are no bits in between that are always 0.
    for _ in 0..50 {
        let ands = wires.iter().zip(wires.iter().cycle().skip(1));
        wires = ands.map(|(a, b)| circuit.and(*a, *b)).collect();
    }
    circuit.output(&wires);
    let zeros = vec![0; WIDTH as usize / 8];
    let schedule = CircuitSchedule::in_one_part(&circuit);
    let Recorded { sent, .. } = recorded_of(&schedule, gmw(), [&zeros, &zeros], None, 1);
    let columns = frames(&sent[1], ComputeFrameKind::Triples);
    assert_eq!(columns.len(), 50 * 2 * WIDTH as usize * 32);
    check_uniform("columns", &columns);
    for sent in &sent {
        let opened = frames(sent, ComputeFrameKind::Open);
        assert_eq!(opened.len(), 50 * 2 * WIDTH as usize / 4);
        check_uniform("opened", &opened);
        let share = frames(sent, ComputeFrameKind::Output);
        let ones: u32 = share.iter().map(|byte| byte.count_ones()).sum();
        // 8,192 bits: 8 standard deviations.
        assert!(ones.abs_diff(WIDTH) < 8 * 46, "{ones}");
    }
    let [ours, theirs] = sent.each_ref().map(|sent| frames(sent, ComputeFrameKind::Output));
    assert_eq!(ours, theirs);
}
