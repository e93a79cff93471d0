//! Parties that deviate to learn something. Each attack succeeds at one level of security and fails
//! at the next.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use blocks::Block;
use circuit::{
    Circuit, CircuitBuilder, CircuitPart, CircuitSchedule, CircuitShape, CircuitSource, Wire,
};

use super::{Output, session};
use crate::wire::{ComputeFrameKind, HEADER_LEN, parse_header};
use crate::{
    ComputeRole, ComputeSecurity, ComputeSettings, Error, MalformedComputeFrame, OutputLearners,
};

fn settings(security: ComputeSecurity) -> ComputeSettings {
    let timeout = Duration::from_secs(5);
    ComputeSettings { security, timeout, ..ComputeSettings::default() }
}

/// The bits of the offset, each of which the evaluator tests by a bit of its input.
const PROBES: usize = 128;

/// The bits with which each probe is compared: a wrong label passes with probability 2^-24.
const REFERENCES: usize = 24;

/// The ANDs of each probe with each reference, all of the evaluator's input. The garbler has a bit.
fn probing_circuit() -> CircuitSchedule {
    let mut builder = CircuitBuilder::new(&[1, u32::try_from(PROBES + REFERENCES).unwrap()]);
    let bits = builder.input(1);
    let (probes, references) = bits.split_at(PROBES);
    let pairs = probes.iter().flat_map(|probe| references.iter().map(move |it| (*probe, *it)));
    let ands: Vec<Wire> = pairs.map(|(probe, it)| builder.and(probe, it)).collect();
    CircuitSchedule::new(&builder.finish(&[&ands]))
}

/// Passes an evaluator's frames on. In row i of the extension, which has `width` bytes, the choice
/// of transfer i is changed.
fn with_inconsistent_choices(evaluator: &UnixStream, garbler: &UnixStream, width: usize) {
    let (mut reader, mut writer) = (evaluator, garbler);
    let mut header = [0; HEADER_LEN];
    while reader.read_exact(&mut header).is_ok() {
        let (kind, length) = parse_header(header).unwrap();
        let mut content = vec![0; length];
        if reader.read_exact(&mut content).is_err() {
            break;
        }
        if kind == ComputeFrameKind::Extend {
            for row in 0..PROBES {
                content[row * width + row / 8] ^= 1 << (row % 8);
            }
        }
        if writer.write_all(&[&header[..], &content].concat()).is_err() {
            break;
        }
    }
    let _ = garbler.shutdown(Shutdown::Write);
}

/// The offset and the result of a garbler that is attacked with inconsistent choices, and the
/// output of the attacker.
fn attack_the_offset(security: ComputeSecurity) -> (Block, [Output; 2]) {
    let schedule = probing_circuit();
    // The rows of a checked extension have a block more.
    let checked = usize::from(security != ComputeSecurity::SemiHonest);
    let width = 16 * ((PROBES + REFERENCES).div_ceil(128) + checked);
    // The garbler is told nothing, so it cannot reject an output.
    let settings = ComputeSettings { learns: OutputLearners::Evaluator, ..settings(security) };
    let (garbler, near) = UnixStream::pair().unwrap();
    let (evaluator, far) = UnixStream::pair().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| with_inconsistent_choices(&far, &near, width));
        scope.spawn(|| {
            let _ = std::io::copy(&mut &near, &mut &far);
            let _ = far.shutdown(Shutdown::Write);
        });
        let schedule = &schedule;
        let attacker = scope.spawn(move || {
            let mut session = session(&evaluator, ComputeRole::Evaluator, settings);
            drop(evaluator);
            session.run(schedule, &[0xff; (PROBES + REFERENCES) / 8])
        });
        let mut session = session(&garbler, ComputeRole::Garbler, settings);
        drop(garbler);
        let offset = session.offset();
        let garbled = session.run(schedule, &[1]);
        drop(session);
        (offset, [garbled, attacker.join().unwrap()])
    })
}

/// Whoever knows the offset knows both labels of every wire, and so the garbler's input.
#[test]
fn semi_honest_an_evaluator_with_inconsistent_choices_learns_the_offset() {
    let (offset, [garbler, evaluator]) = attack_the_offset(ComputeSecurity::SemiHonest);
    garbler.expect("the garbler notices nothing");
    let output = evaluator.unwrap().unwrap();
    let is_right = |at: usize| output[at / 8] >> (at % 8) & 1 == 1;
    let learnt = (0..PROBES).fold(0, |learnt, probe| {
        let passes = (0..REFERENCES).all(|it| is_right(probe * REFERENCES + it));
        learnt | u128::from(!passes) << probe
    });
    assert_eq!(learnt, u128::from(offset));
}

#[test]
fn evaluator_level_an_evaluator_with_inconsistent_choices_is_caught_and_learns_nothing() {
    let (_, [garbler, evaluator]) = attack_the_offset(ComputeSecurity::Evaluator);
    let error = garbler.unwrap_err();
    assert!(matches!(error, Error::Transfer { .. }) && error.is_security(), "{error}");
    // It has no labels of its input.
    evaluator.unwrap_err();
}

/// A circuit that is presented as another one with as many gates.
struct ForgedCircuit {
    schedule: CircuitSchedule,
    shape: CircuitShape,
}

impl ForgedCircuit {
    fn new(circuit: &Circuit, pretended: &CircuitSchedule) -> Self {
        let schedule = CircuitSchedule::new(circuit);
        let digest = pretended.shape().digest;
        let shape = CircuitShape { digest, ..schedule.shape().clone() };
        assert_eq!(shape.ands, pretended.shape().ands);
        Self { schedule, shape }
    }
}

impl CircuitSource for ForgedCircuit {
    fn shape(&self) -> &CircuitShape {
        &self.shape
    }

    fn parts(&self) -> u64 {
        self.schedule.parts()
    }

    fn part(&self, index: u64) -> CircuitPart<'_> {
        self.schedule.part(index)
    }
}

/// The agreed circuit, whose output is zeros.
fn agreed() -> CircuitSchedule {
    CircuitSchedule::new(&circuit_of(circuit::ONE))
}

/// ANDs of each of the evaluator's bits with its sum with a constant. With 1 they are zeros, with 0
/// the bits. An evaluator has the same label of both constants, and does the same for both
/// circuits.
fn circuit_of(constant: Wire) -> Circuit {
    let mut circuit = Circuit::new(&[32, 32]);
    let bits: Vec<Wire> = circuit.input(1).collect();
    let sums: Vec<Wire> = bits.iter().map(|bit| circuit.xor(*bit, constant)).collect();
    let ands: Vec<Wire> = bits.iter().zip(sums).map(|(bit, it)| circuit.and(*bit, it)).collect();
    circuit.output(&ands);
    circuit
}

/// A garbler whose input is zeros garbles another circuit than the agreed one, whose output is the
/// evaluator's input. In dual execution it evaluates the agreed one.
fn attack_the_input(security: ComputeSecurity, input: [u8; 4]) -> [Output; 2] {
    let (here, there) = UnixStream::pair().unwrap();
    let agreed = &agreed();
    let forged = ForgedCircuit::new(&circuit_of(circuit::ZERO), agreed);
    thread::scope(|scope| {
        let victim = scope.spawn(move || {
            let mut session = session(&there, ComputeRole::Evaluator, settings(security));
            drop(there);
            let output = session.run(agreed, &input)?;
            session.finish().map(|()| output)
        });
        let mut session = session(&here, ComputeRole::Garbler, settings(security));
        drop(here);
        let output = match security {
            ComputeSecurity::Malicious => {
                session.run_circuits([&forged, agreed], &[0; 4]).map(Some)
            }
            _ => session.run(&forged, &[0; 4]),
        };
        drop(session);
        [output, victim.join().unwrap()]
    })
}

const SECRET: [u8; 4] = 0xd00d_f00d_u32.to_le_bytes();

#[test]
fn evaluator_level_a_garbler_of_another_circuit_learns_the_input() {
    let [attacker, victim] = attack_the_input(ComputeSecurity::Evaluator, SECRET);
    assert_eq!(attacker.unwrap().as_deref(), Some(&SECRET[..]));
    // The victim does not notice that its output is wrong: the right one is zero.
    assert_eq!(victim.unwrap().as_deref(), Some(&SECRET[..]));
}

#[test]
fn malicious_level_a_garbler_of_another_circuit_is_caught() {
    let [attacker, victim] = attack_the_input(ComputeSecurity::Malicious, SECRET);
    // It learns that the input is not zero: that the outputs differ. No proof shows more.
    let error = attacker.unwrap_err();
    assert!(matches!(error, Error::Disagree | Error::Aborted { .. }), "{error}");
    let error = victim.unwrap_err();
    assert!(matches!(error, Error::Disagree) && error.is_security(), "{error}");
}

/// The bit that can be learnt: with this input both circuits have the same output.
#[test]
fn malicious_level_a_garbler_of_another_circuit_learns_one_bit() {
    let [attacker, victim] = attack_the_input(ComputeSecurity::Malicious, [0; 4]);
    assert_eq!(attacker.unwrap(), victim.as_ref().unwrap().clone());
    assert_eq!(victim.unwrap().as_deref(), Some(&[0; 4][..]), "the output is right");
}

/// The proof of an evaluator with `input`, whose garbler garbles the circuit of this constant.
fn proof_of_victim(garbled: Wire, input: [u8; 4]) -> Vec<u8> {
    let (here, near) = UnixStream::pair().unwrap();
    let (there, far) = UnixStream::pair().unwrap();
    let agreed = &agreed();
    let forged = ForgedCircuit::new(&circuit_of(garbled), agreed);
    let settings = settings(ComputeSecurity::Malicious);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = std::io::copy(&mut &near, &mut &far);
            let _ = far.shutdown(Shutdown::Write);
        });
        let proof = scope.spawn(|| {
            let (mut reader, mut writer, mut proof) = (&far, &near, Vec::new());
            let mut header = [0; HEADER_LEN];
            while reader.read_exact(&mut header).is_ok() {
                let (kind, length) = parse_header(header).unwrap();
                let mut content = vec![0; length];
                reader.read_exact(&mut content).unwrap();
                let _ = writer.write_all(&[&header[..], &content].concat());
                if kind == ComputeFrameKind::Proof {
                    proof = content;
                }
            }
            let _ = near.shutdown(Shutdown::Write);
            proof
        });
        scope.spawn(move || {
            let mut session = session(&there, ComputeRole::Evaluator, settings);
            drop(there);
            let _ = session.run(agreed, &input);
        });
        let mut session = session(&here, ComputeRole::Garbler, settings);
        drop(here);
        let _ = session.run_circuits([&forged, agreed], &[0; 4]);
        drop(session);
        proof.join().unwrap()
    })
}

/// A party whose output is not that of the agreed circuit sends a proof all the same: nothing but
/// the comparison depends on its input.
#[test]
fn malicious_level_a_proof_is_sent_whatever_was_evaluated() {
    let proofs = [(circuit::ONE, SECRET), (circuit::ZERO, [0; 4]), (circuit::ZERO, SECRET)]
        .map(|(garbled, input)| proof_of_victim(garbled, input));
    assert!(proofs.iter().all(|proof| proof.len() == 32), "{proofs:?}");
}

/// A peer without own keys that sends everything back, with the other role.
#[test]
fn malicious_level_a_reflected_set_up_is_refused() {
    for role in [ComputeRole::Garbler, ComputeRole::Evaluator] {
        let (here, there) = UnixStream::pair().unwrap();
        let error = thread::scope(|scope| {
            scope.spawn(|| {
                let (mut reader, mut writer) = (&there, &there);
                let mut hello = [0; HEADER_LEN + 16];
                reader.read_exact(&mut hello).unwrap();
                hello[HEADER_LEN + 8] = role.other() as u8;
                writer.write_all(&hello).unwrap();
                let _ = std::io::copy(&mut reader, &mut writer);
                let _ = there.shutdown(Shutdown::Both);
            });
            let mut session = session(&here, role, settings(ComputeSecurity::Malicious));
            let error = session.run(&agreed(), &[0; 4]).unwrap_err();
            drop(session);
            let _ = here.shutdown(Shutdown::Both);
            error
        });
        let reflected = MalformedComputeFrame::Reflected;
        assert!(
            matches!(&error, Error::Malformed { source, .. } if *source == reflected),
            "{error}"
        );
    }
}
