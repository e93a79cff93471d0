//! Two parties on a pair of sockets.

mod attacks;
mod faults;
mod gmw;
mod traces;

use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use circuit::{Circuit, CircuitBuilder, CircuitSchedule, bits, generate};

use crate::predict::{PredictedTraffic, ShutdownOnDropWriter};
use crate::{
    ComputeRole, ComputeSecurity, ComputeSession, ComputeSettings, Error, GarblingScheme,
    OutputLearners, PhaseFigures, TransferKind,
};

/// A session over a socket.
fn session(socket: &UnixStream, role: ComputeRole, settings: ComputeSettings) -> ComputeSession {
    socket.set_read_timeout(Some(settings.timeout)).unwrap();
    socket.set_write_timeout(Some(settings.timeout)).unwrap();
    let [reader, writer] = [(); 2].map(|()| socket.try_clone().unwrap());
    ComputeSession::over(reader, ShutdownOnDropWriter(writer), role, settings).unwrap()
}

type Output = Result<Option<Vec<u8>>, Error>;

/// Runs both parties `times`; the outputs of the last instance.
fn run(
    circuits: [&Circuit; 2],
    inputs: [&[u8]; 2],
    settings: [ComputeSettings; 2],
    times: u32,
) -> [Output; 2] {
    let (here, there) = UnixStream::pair().unwrap();
    let schedules = circuits.map(CircuitSchedule::new);
    let party = |socket: UnixStream, role: ComputeRole| {
        let at = role as usize - 1;
        let mut session = session(&socket, role, settings[at]);
        drop(socket);
        let mut output = None;
        for _ in 0..times {
            output = session.run(&schedules[at], inputs[at])?;
        }
        session.finish().map(|()| output)
    };
    thread::scope(|scope| {
        let evaluator = scope.spawn(|| party(there, ComputeRole::Evaluator));
        let garbler = party(here, ComputeRole::Garbler);
        [garbler, evaluator.join().unwrap()]
    })
}

/// What both parties compute without protection.
fn expected(circuit: &Circuit, inputs: [&[u8]; 2]) -> Vec<u8> {
    let mut all = Vec::new();
    for (input, count) in inputs.iter().zip([circuit.garbler_inputs(), circuit.evaluator_inputs()])
    {
        all.extend(&bits::of_bytes(input)[..count as usize]);
    }
    bits::to_bytes(&circuit.evaluate(&all))
}

const KEY: [u8; 16] = 0x2b7e_1516_28ae_d2a6_abf7_1588_09cf_4f3c_u128.to_be_bytes();
const BLOCK: [u8; 16] = 0x3243_f6a8_885a_308d_3131_98a2_e037_0734_u128.to_be_bytes();
const ENCRYPTED: [u8; 16] = 0x3925_841d_02dc_09fb_dc11_8597_196a_0b32_u128.to_be_bytes();

/// Each scheme with each level of security.
fn schemes_and_levels() -> impl Iterator<Item = (GarblingScheme, ComputeSecurity)> {
    let levels = |scheme| ComputeSecurity::ALL.map(|security| (scheme, security));
    GarblingScheme::ALL.into_iter().flat_map(levels)
}

#[test]
fn aes_128_is_that_of_fips_197_in_every_scheme() {
    let circuit = generate::aes128();
    for (scheme, security) in schemes_and_levels() {
        let settings = ComputeSettings { scheme, security, ..ComputeSettings::default() };
        let outputs = run([&circuit; 2], [&KEY, &BLOCK], [settings; 2], 3);
        for output in outputs {
            let output = output.unwrap();
            assert_eq!(output.as_deref(), Some(&ENCRYPTED[..]), "{scheme:?}, {security}");
        }
    }
}

#[test]
fn the_output_goes_to_whom_both_have_chosen() {
    let circuit = generate::aes128();
    for (learns, learners) in [
        (OutputLearners::Both, [true, true]),
        (OutputLearners::Garbler, [true, false]),
        (OutputLearners::Evaluator, [false, true]),
    ] {
        let settings = ComputeSettings { learns, ..ComputeSettings::default() };
        let outputs = run([&circuit; 2], [&KEY, &BLOCK], [settings; 2], 2);
        for (output, is_learner) in outputs.into_iter().zip(learners) {
            assert_eq!(output.unwrap(), is_learner.then(|| ENCRYPTED.to_vec()), "{learns:?}");
        }
    }
}

#[test]
fn parties_may_have_no_input_and_outputs_may_be_inputs_and_constants() {
    for inputs in [[9, 0], [0, 9], [5, 11]] {
        let mut builder = CircuitBuilder::new(&inputs);
        let all = [builder.input(0), builder.input(1)].concat();
        let sum = builder.count_ones(&all);
        let circuit = builder.finish(&[&sum, &all, &[circuit::ONE, circuit::ZERO]]);
        let bytes = inputs.map(|bits| vec![1; bits.div_ceil(8) as usize]);
        let given = [&bytes[0][..], &bytes[1][..]];
        let right = expected(&circuit, given);
        for security in ComputeSecurity::ALL {
            let settings = ComputeSettings { security, ..ComputeSettings::default() };
            for output in run([&circuit; 2], given, [settings; 2], 2) {
                assert_eq!(output.unwrap().as_ref(), Some(&right), "{inputs:?}, {security}");
            }
        }
    }
}

#[test]
fn every_kind_of_transfers_gives_the_labels() {
    let circuit = generate::aes128();
    for kind in TransferKind::ALL {
        for security in ComputeSecurity::ALL {
            let settings =
                ComputeSettings { transfers: kind, security, ..ComputeSettings::default() };
            for output in run([&circuit; 2], [&KEY, &BLOCK], [settings; 2], 2) {
                let output = output.unwrap();
                assert_eq!(output.as_deref(), Some(&ENCRYPTED[..]), "{kind:?}, {security}");
            }
        }
    }
}

#[test]
fn the_predicted_bytes_are_those_that_are_sent() {
    let circuit = generate::minimum(900, 900, 20);
    let schedule = CircuitSchedule::new(&circuit);
    let learners = [OutputLearners::Both, OutputLearners::Evaluator, OutputLearners::Garbler];
    let cases = schemes_and_levels().zip(learners.into_iter().cycle());
    for ((scheme, security), learns) in cases {
        let is_dual = security == ComputeSecurity::Malicious;
        let learns = if is_dual { OutputLearners::Both } else { learns };
        let settings = ComputeSettings { scheme, security, learns, ..ComputeSettings::default() };
        let (here, there) = UnixStream::pair().unwrap();
        let sent = |socket: UnixStream, role: ComputeRole| {
            let mut session = session(&socket, role, settings);
            for _ in 0..2 {
                session.run(&schedule, &[0x3c; 2_250]).unwrap();
            }
            let figures = session.figures();
            session.finish().unwrap();
            figures
        };
        let [garbler, evaluator] = thread::scope(|scope| {
            let evaluator = scope.spawn(|| sent(there, ComputeRole::Evaluator));
            [sent(here, ComputeRole::Garbler), evaluator.join().unwrap()]
        });
        let received = |figures: &[PhaseFigures]| -> u64 {
            figures.iter().map(|phase| phase.bytes_received).sum()
        };
        let traffic = PredictedTraffic::of(&schedule, &settings, 2);
        let sent = |figures: &[PhaseFigures]| -> u64 {
            figures.iter().map(|phase| phase.bytes_sent).sum()
        };
        assert_eq!((traffic.garbler, traffic.evaluator), (sent(&garbler), sent(&evaluator)));
        assert_eq!(traffic.garbler, received(&evaluator), "{scheme}, {security}");
        assert_eq!(traffic.evaluator, received(&garbler), "{scheme}, {security}");
    }
}

#[test]
fn transfers_span_several_frames() {
    let circuit = generate::minimum(3_000, 3_000, 20);
    let inputs: Vec<Vec<u8>> = (0..2_u32)
        .map(|party| (0..7_500_u32).map(|at| (at * 31 + party).to_le_bytes()[0]).collect())
        .collect();
    let inputs = [&inputs[0][..], &inputs[1][..]];
    let right = expected(&circuit, inputs);
    for (scheme, security) in schemes_and_levels() {
        let settings = ComputeSettings { scheme, security, ..ComputeSettings::default() };
        for output in run([&circuit; 2], inputs, [settings; 2], 1) {
            assert_eq!(output.unwrap().as_ref(), Some(&right), "{scheme:?}, {security}");
        }
    }
}

/// More outputs than the hashes of one frame are for, and the parties' inputs as outputs.
#[test]
fn hashes_of_outputs_span_several_frames() {
    let circuit = CircuitBuilder::new(&[20_000, 17]);
    let all = [circuit.input(0), circuit.input(1)].concat();
    let circuit = circuit.finish(&[&all]);
    let inputs = [&vec![0x5c; 2_500][..], &[0x35, 0x72, 1]];
    let right = expected(&circuit, inputs);
    let settings =
        ComputeSettings { security: ComputeSecurity::Malicious, ..ComputeSettings::default() };
    for output in run([&circuit; 2], inputs, [settings; 2], 2) {
        assert_eq!(output.unwrap().as_ref(), Some(&right));
    }
}

#[test]
fn against_both_parties_no_output_is_private() {
    let circuit = generate::aes128();
    for learns in [OutputLearners::Garbler, OutputLearners::Evaluator] {
        let security = ComputeSecurity::Malicious;
        let settings = ComputeSettings { security, learns, ..ComputeSettings::default() };
        let errors = refused([&circuit; 2], [&KEY, &BLOCK], [settings; 2]);
        assert!(errors.iter().any(|error| error.contains("leave out --output-to")), "{errors:?}");
    }
}

/// The errors of both parties.
fn refused(
    circuits: [&Circuit; 2],
    inputs: [&[u8]; 2],
    settings: [ComputeSettings; 2],
) -> [String; 2] {
    run(circuits, inputs, settings, 1).map(|output| {
        let error = output.unwrap_err().to_string();
        assert!(!error.contains('\n'), "{error}");
        error
    })
}

/// Checks that both parties say what differs. One that compares late may only say what the other
/// has found.
fn assert_differ(errors: &[String; 2], what: &str) {
    let found = "it computes another circuit, or has other settings";
    assert!(errors.iter().any(|error| error.contains(what)), "{errors:?}");
    assert!(errors.iter().all(|it| it.contains(what) || it.contains(found)), "{errors:?}");
}

#[test]
fn mismatched_computations_are_rejected_with_a_reason() {
    let settings =
        ComputeSettings { timeout: Duration::from_secs(5), ..ComputeSettings::default() };
    let aes = generate::aes128();
    let mut other = CircuitBuilder::new(&[128, 128]);
    let [a, b] = [other.input(0), other.input(1)];
    let sum = other.add(&a, &b);
    let other = other.finish(&[&sum]);
    assert_differ(
        &refused([&aes, &other], [&KEY, &BLOCK], [settings; 2]),
        "the circuit is not the",
    );
    let sha = generate::sha256(16);
    let errors = refused([&aes, &sha], [&KEY, &[0; 48]], [settings; 2]);
    assert_differ(&errors, "128 and 128 bits to 128");
    let private = ComputeSettings { learns: OutputLearners::Evaluator, ..settings };
    let errors = refused([&aes; 2], [&KEY, &BLOCK], [settings, private]);
    assert_differ(&errors, "who learns the output");
    for (ours, theirs) in [(0, 1), (1, 2), (2, 0)] {
        let levels = [ours, theirs].map(|at| ComputeSecurity::ALL[at]);
        let both = levels.map(|security| ComputeSettings { security, ..settings });
        let errors = refused([&aes; 2], [&KEY, &BLOCK], both);
        assert_differ(&errors, "give both the same");
    }
    let scheme = ComputeSettings { scheme: GarblingScheme::FixedKey, ..settings };
    assert_differ(&refused([&aes; 2], [&KEY, &BLOCK], [scheme, settings]), "scheme");
    let [garbler, evaluator] = refused([&aes; 2], [&KEY[1..], &BLOCK], [settings; 2]);
    assert!(garbler.contains("120 bits, the circuit takes 128"), "{garbler}");
    assert!(evaluator.contains("its input does not fit"), "{evaluator}");
}
