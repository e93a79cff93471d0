//! Parties that crash, stall or send invalid frames, in each phase.

use std::io::{self, Cursor, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use circuit::{CircuitSchedule, generate};
use sha2::{Digest as _, Sha256};

use super::{BLOCK, KEY, Output, session};
use crate::queue::WeightedQueue;
use crate::wire::{ComputeFrame, ComputeFrameKind, ComputeHello, HEADER_LEN, parse_header};
use crate::{
    ComputeAbortReason, ComputeProtocol, ComputeRole, ComputeSecurity, ComputeSession,
    ComputeSettings, Error, TransferKind,
};

/// How long the parties wait for each other.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A fault at the first frame of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The connection is cut in place of it.
    Cut,
    /// Nothing more comes, but the connection stays.
    Stall,
    /// It is replaced by bytes that are not a frame.
    Garbage,
    /// Its last byte is missing.
    Short,
    /// It has a byte too many.
    Long,
    /// Its kind is changed to the next one.
    Other,
}

const FAULTS: [Fault; 6] =
    [Fault::Cut, Fault::Stall, Fault::Garbage, Fault::Short, Fault::Long, Fault::Other];

/// The frames of an instance, and of what comes before it.
const FRAMES: [ComputeFrameKind; 15] = [
    ComputeFrameKind::Hello,
    ComputeFrameKind::Base,
    ComputeFrameKind::Begin,
    ComputeFrameKind::Labels,
    ComputeFrameKind::Extend,
    ComputeFrameKind::Answer,
    ComputeFrameKind::Tables,
    ComputeFrameKind::Decoding,
    ComputeFrameKind::Result,
    ComputeFrameKind::Share,
    ComputeFrameKind::Triples,
    ComputeFrameKind::Open,
    ComputeFrameKind::Output,
    ComputeFrameKind::Hashes,
    ComputeFrameKind::Proof,
];

/// Passes frames on to an end. The first frame of the extension comes with another kind, after the
/// last hashes, so that the receiver has its output by then.
fn relay_late(from: &UnixStream, to: &UnixStream, kind: ComputeFrameKind) {
    let (mut reader, mut writer) = (from, to);
    let (mut held, mut have_hashes_passed) = (None, false);
    let mut header = [0; HEADER_LEN];
    while reader.read_exact(&mut header).is_ok() {
        let (passed, length) = parse_header(header).unwrap();
        let mut content = vec![0; length];
        if reader.read_exact(&mut content).is_err() {
            break;
        }
        // Either can be first.
        have_hashes_passed |= passed == ComputeFrameKind::Hashes;
        let mut frames = Vec::new();
        match passed {
            ComputeFrameKind::Extend => held = Some((kind, content)),
            _ => frames.push((passed, content)),
        }
        if have_hashes_passed {
            frames.extend(held.take());
        }
        let frames = frames.iter().map(|(kind, it)| ComputeFrame::of(*kind, it).into_bytes());
        if writer.write_all(&frames.collect::<Vec<_>>().concat()).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[test]
fn a_late_frame_of_another_kind_ends_both_parties_of_dual_execution() {
    let security = ComputeSecurity::Malicious;
    let settings = ComputeSettings { timeout: TIMEOUT, security, ..ComputeSettings::default() };
    let schedule = &CircuitSchedule::new(&generate::aes128());
    for kind in [
        ComputeFrameKind::Base,
        ComputeFrameKind::Answer,
        ComputeFrameKind::Tables,
        ComputeFrameKind::Decoding,
        ComputeFrameKind::Hashes,
    ] {
        let (garbler, near) = UnixStream::pair().unwrap();
        let (evaluator, far) = UnixStream::pair().unwrap();
        let run = |socket: UnixStream, role: ComputeRole, input: &[u8]| {
            let mut session = session(&socket, role, settings);
            drop(socket);
            session.run(schedule, input).unwrap_err()
        };
        let ended = WeightedQueue::new(1);
        let errors = thread::scope(|scope| {
            scope.spawn(|| relay(&near, &far, None, &ended));
            scope.spawn(|| relay_late(&far, &near, kind));
            let other = scope.spawn(|| run(evaluator, ComputeRole::Evaluator, &BLOCK));
            [run(garbler, ComputeRole::Garbler, &KEY), other.join().unwrap()]
        });
        assert!(matches!(errors[0], Error::Malformed { .. }), "{kind:?}: {errors:?}");
        // The connection can be closed before it can read the reason.
        let is_end = matches!(errors[1], Error::Aborted { .. } | Error::Ended { .. });
        assert!(is_end, "{kind:?}: {errors:?}");
    }
}

/// Passes frames on, with a fault at the first of a kind.
fn relay(
    from: &UnixStream,
    to: &UnixStream,
    mut fault: Option<(ComputeFrameKind, Fault)>,
    ended: &WeightedQueue<()>,
) {
    let (mut reader, mut writer) = (from, to);
    let mut header = [0; HEADER_LEN];
    while reader.read_exact(&mut header).is_ok() {
        let (kind, length) = parse_header(header).unwrap();
        let mut content = vec![0; length];
        if reader.read_exact(&mut content).is_err() {
            break;
        }
        match fault.take_if(|(at, _)| *at == kind).map(|(_, fault)| fault) {
            None => {}
            Some(Fault::Cut) => {
                let _ = from.shutdown(Shutdown::Both);
                break;
            }
            Some(Fault::Stall) => {
                ended.pop();
                break;
            }
            Some(Fault::Garbage) => {
                header = [0xee; HEADER_LEN];
                content = vec![0xee; 64];
            }
            Some(Fault::Short) => {
                content.pop();
                header[1..].copy_from_slice(&u32::try_from(content.len()).unwrap().to_be_bytes());
            }
            Some(Fault::Long) => {
                content.push(0);
                header[1..].copy_from_slice(&u32::try_from(content.len()).unwrap().to_be_bytes());
            }
            Some(Fault::Other) => header[0] = header[0] % 9 + 1,
        }
        if writer.write_all(&[&header[..], &content].concat()).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Runs both parties with a fault in the frames of one of them. Returns their results, and the
/// duration.
fn run_with(
    schedule: &CircuitSchedule,
    settings: ComputeSettings,
    (from, kind, fault): (ComputeRole, ComputeFrameKind, Fault),
) -> ([Output; 2], Duration) {
    let start = Instant::now();
    let (garbler, near) = UnixStream::pair().unwrap();
    let (evaluator, far) = UnixStream::pair().unwrap();
    let party = |socket: UnixStream, role: ComputeRole, input: &[u8]| {
        let mut session = session(&socket, role, settings);
        drop(socket);
        let output = session.run(schedule, input)?;
        session.finish().map(|()| output)
    };
    let at = |role| (role == from).then_some((kind, fault));
    let ended = WeightedQueue::new(1);
    thread::scope(|scope| {
        scope.spawn(|| relay(&near, &far, at(ComputeRole::Garbler), &ended));
        scope.spawn(|| relay(&far, &near, at(ComputeRole::Evaluator), &ended));
        let other = scope.spawn(|| party(evaluator, ComputeRole::Evaluator, &BLOCK));
        let garbled = party(garbler, ComputeRole::Garbler, &KEY);
        let outputs = [garbled, other.join().unwrap()];
        let took = start.elapsed();
        ended.close();
        for socket in [&near, &far] {
            let _ = socket.shutdown(Shutdown::Both);
        }
        (outputs, took)
    })
}

#[test]
fn every_fault_in_every_phase_ends_both_parties_with_an_error_of_one_line() {
    check_all(ComputeProtocol::Yao, ComputeSecurity::Evaluator, 12);
}

#[test]
fn every_fault_in_every_phase_of_gmw_ends_both_parties_with_an_error_of_one_line() {
    check_all(ComputeProtocol::Gmw, ComputeSecurity::SemiHonest, 13);
}

#[test]
fn every_fault_in_every_phase_of_dual_execution_ends_both_parties_with_an_error_of_one_line() {
    check_all(ComputeProtocol::Yao, ComputeSecurity::Malicious, 20);
}

/// Checks every fault in the first frame of each kind of each party.
fn check_all(protocol: ComputeProtocol, security: ComputeSecurity, kinds_of_frames: usize) {
    let settings =
        ComputeSettings { timeout: TIMEOUT, protocol, security, ..ComputeSettings::default() };
    let schedule = &CircuitSchedule::new(&generate::aes128());
    let roles = |kind: ComputeFrameKind| {
        let roles = [ComputeRole::Garbler, ComputeRole::Evaluator].into_iter();
        roles.filter(move |role| kind.is_from(*role, security)).map(move |role| (role, kind))
    };
    let frames = FRAMES.into_iter().filter(|kind| kind.is_of(protocol)).flat_map(roles);
    let frames: Vec<(ComputeRole, ComputeFrameKind)> = frames.collect();
    assert_eq!(frames.len(), kinds_of_frames);
    for fault in FAULTS {
        thread::scope(|scope| {
            for &(from, kind) in &frames {
                // In dual execution this frame is empty.
                let is_empty = security.is_dual() && kind == ComputeFrameKind::Decoding;
                if !(is_empty && fault == Fault::Short) {
                    scope.spawn(move || check(schedule, settings, (from, kind, fault)));
                }
            }
        });
    }
}

fn check(
    schedule: &CircuitSchedule,
    settings: ComputeSettings,
    (from, kind, fault): (ComputeRole, ComputeFrameKind, Fault),
) {
    let (outputs, took) = run_with(schedule, settings, (from, kind, fault));
    let case = format!("{fault:?} in {kind:?} from the {from}: {outputs:?}");
    // A party waits for the timeout, and then briefly for the other's reason.
    assert!(took < 8 * TIMEOUT, "{took:?} {case}");
    let [garbler, evaluator] = outputs;
    // The last frame of a party ends its run: it cannot know that the other party has not received
    // it.
    let receiver = if from == ComputeRole::Garbler { evaluator } else { garbler };
    let error = receiver.expect_err(&case);
    assert!(!matches!(error, Error::Failed), "{case}");
    assert!(!error.to_string().contains('\n'), "{case}");
}

#[test]
fn a_party_that_is_not_this_program_is_named() {
    let (here, there) = UnixStream::pair().unwrap();
    let settings = ComputeSettings { timeout: TIMEOUT, ..ComputeSettings::default() };
    let mut session = session(&here, ComputeRole::Evaluator, settings);
    (&there).write_all(b"SSH-2.0-OpenSSH_10.0\r\n").unwrap();
    let source = &CircuitSchedule::new(&generate::aes128());
    let error = session.run(source, &BLOCK).unwrap_err();
    assert!(error.to_string().contains("does not speak this protocol"), "{error}");
    let error = session.run(source, &BLOCK).unwrap_err();
    assert!(matches!(error, Error::Failed));
}

#[test]
fn aborts_carry_their_reason() {
    for role in [ComputeRole::Garbler, ComputeRole::Evaluator] {
        let (here, there) = UnixStream::pair().unwrap();
        let settings = ComputeSettings { timeout: TIMEOUT, ..ComputeSettings::default() };
        let mut other = session(&there, role.other(), settings);
        let leaving = session(&here, role, settings);
        drop((here, there));
        let error = thread::scope(|scope| {
            scope.spawn(|| leaving.give_up(ComputeAbortReason::Circuit));
            other.run(&CircuitSchedule::new(&generate::aes128()), &BLOCK).unwrap_err()
        });
        assert!(
            matches!(error, Error::Aborted { reason: ComputeAbortReason::Circuit, .. }),
            "{error}"
        );
    }
}

#[test]
fn a_party_that_is_stopped_says_so() {
    for role in [ComputeRole::Garbler, ComputeRole::Evaluator] {
        for protocol in [ComputeProtocol::Yao, ComputeProtocol::Gmw] {
            let (here, there) = UnixStream::pair().unwrap();
            let settings =
                ComputeSettings { timeout: TIMEOUT, protocol, ..ComputeSettings::default() };
            let mut other = session(&there, role.other(), settings);
            let mut stopped = session(&here, role, settings);
            drop((here, there));
            let stopper = stopped.stopper();
            let schedule = &CircuitSchedule::new(&generate::aes128());
            let [ours, theirs] = thread::scope(|scope| {
                let ours = scope.spawn(move || stopped.run(schedule, &KEY).unwrap_err());
                // Before it runs, or while it waits for the other party.
                stopper.stop();
                let theirs = other.run(schedule, &BLOCK).unwrap_err();
                drop(other);
                [ours.join().unwrap(), theirs]
            });
            assert!(matches!(ours, Error::Stopped), "{ours}");
            assert!(
                matches!(theirs, Error::Aborted { reason: ComputeAbortReason::Stopped, .. }),
                "{theirs}"
            );
        }
    }
}

/// The garbler's error when bits of the evaluator's frames of a kind are changed.
fn refused_with_change(changed: ComputeFrameKind, settings: ComputeSettings) -> Error {
    let schedule = CircuitSchedule::new(&generate::aes128());
    let (garbler, near) = UnixStream::pair().unwrap();
    let (evaluator, far) = UnixStream::pair().unwrap();
    let settings = ComputeSettings { timeout: TIMEOUT, ..settings };
    let ended = WeightedQueue::new(1);
    thread::scope(|scope| {
        scope.spawn(|| relay(&near, &far, None, &ended));
        scope.spawn(|| {
            let (mut reader, mut writer) = (&far, &near);
            let mut header = [0; HEADER_LEN];
            while reader.read_exact(&mut header).is_ok() {
                let (kind, length) = parse_header(header).unwrap();
                let mut content = vec![0; length];
                if reader.read_exact(&mut content).is_err() {
                    break;
                }
                if kind == changed {
                    // The receiver uses some of the tables and hashes only.
                    let is_single = kind == ComputeFrameKind::Extend;
                    let bytes = if is_single { 3..4 } else { 0..length };
                    content[bytes].iter_mut().for_each(|byte| *byte ^= 1);
                }
                let _ = writer.write_all(&[&header[..], &content].concat());
            }
        });
        scope.spawn(|| {
            let mut session = session(&evaluator, ComputeRole::Evaluator, settings);
            // The garbler may give up before.
            let _ = session.run(&schedule, &BLOCK);
            drop((session, evaluator));
        });
        let mut session = session(&garbler, ComputeRole::Garbler, settings);
        let error = session.run(&schedule, &KEY).unwrap_err();
        drop((session, garbler));
        for socket in [&near, &far] {
            let _ = socket.shutdown(Shutdown::Both);
        }
        error
    })
}

#[test]
fn an_unproven_result_is_rejected() {
    let error = refused_with_change(ComputeFrameKind::Result, ComputeSettings::default());
    assert!(matches!(error, Error::Unproven), "{error}");
    assert!(error.is_security());
}

#[test]
fn an_unproven_output_of_dual_execution_is_rejected() {
    let settings =
        ComputeSettings { security: ComputeSecurity::Malicious, ..ComputeSettings::default() };
    for changed in [ComputeFrameKind::Tables, ComputeFrameKind::Hashes, ComputeFrameKind::Proof] {
        let error = refused_with_change(changed, settings);
        assert!(matches!(error, Error::Disagree), "{changed:?}: {error}");
        assert!(error.is_security());
    }
}

#[test]
fn transfers_that_fail_the_check_are_a_failed_security_check() {
    for (transfers, security) in TransferKind::ALL.into_iter().flat_map(|kind| {
        [ComputeSecurity::Evaluator, ComputeSecurity::Malicious].map(|level| (kind, level))
    }) {
        let settings = ComputeSettings { security, transfers, ..ComputeSettings::default() };
        let error = refused_with_change(ComputeFrameKind::Extend, settings);
        assert!(matches!(error, Error::Transfer { .. }), "{error}");
        assert!(error.is_security(), "{error}");
    }
}

#[test]
fn tables_in_short_frames_take_no_more_memory_than_in_long_ones() {
    // A million frames of one byte: with what each takes beside its content, more than 32 MiB.
    let settings =
        ComputeSettings { timeout: Duration::from_millis(100), ..ComputeSettings::default() };
    let hello = ComputeHello::new(ComputeRole::Garbler, &settings);
    let mut sent = ComputeFrame::of(ComputeFrameKind::Hello, &hello.to_bytes()).into_bytes();
    sent.extend(ComputeFrame::of(ComputeFrameKind::Tables, &[0]).into_bytes().repeat(1_000_000));
    let session =
        ComputeSession::over(Cursor::new(sent), io::sink(), ComputeRole::Evaluator, settings);
    let source = &CircuitSchedule::new(&generate::aes128());
    let error = session.unwrap().run(source, &BLOCK).unwrap_err();
    assert!(matches!(error, Error::Malformed { .. }), "{error}");
}

/// Gives bytes without end, and says when it is dropped.
struct Endless(Sender<()>);

impl Read for Endless {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        bytes.fill(0xee);
        Ok(bytes.len())
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

#[test]
fn a_party_that_never_stops_sending_is_not_read_for_ever() {
    let (dropped, has_dropped) = channel();
    let settings =
        ComputeSettings { timeout: Duration::from_millis(100), ..ComputeSettings::default() };
    let session =
        ComputeSession::over(Endless(dropped), io::sink(), ComputeRole::Garbler, settings);
    let source = &CircuitSchedule::new(&generate::aes128());
    let error = session.unwrap().run(source, &KEY).unwrap_err();
    assert!(matches!(error, Error::NotThisProtocol), "{error}");
    has_dropped.recv_timeout(Duration::from_secs(20)).expect("reading ends");
}

/// A connection whose other end has closed it. It takes a while to drop a half of it.
struct Closed(Sender<()>);

impl Read for Closed {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Ok(0)
    }
}

impl Write for Closed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        Sha256::digest(vec![0; 8 << 20]);
        let _ = self.0.send(());
    }
}

#[test]
fn a_failed_session_leaves_no_threads() {
    let (dropped, has_dropped) = channel();
    let (reader, writer) = (Closed(dropped.clone()), Closed(dropped));
    let session =
        ComputeSession::over(reader, writer, ComputeRole::Garbler, ComputeSettings::default());
    let mut session = session.unwrap();
    session.run(&CircuitSchedule::new(&generate::aes128()), &KEY).unwrap_err();
    drop(session);
    assert_eq!(has_dropped.try_iter().count(), 2);
}
