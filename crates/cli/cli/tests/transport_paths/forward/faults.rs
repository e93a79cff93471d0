//! A service that does not run, a path that breaks, and an end that is stopped.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use lab::{EmulatedLinkConditions, LinkDirection};
use rustix::process::{Pid, Signal, kill_process};

use super::{ForwardBed, LONG_PATH, TRANSPORTS};
use crate::emulation::until;
use crate::pattern;

/// How long a peer may be silent, and more than a busy machine adds.
const MAX_SILENCE: Duration = Duration::from_secs(45);

/// How long connecting may take, and more than a busy machine adds. A connection that was opened
/// ahead is not used on a path that has broken: it would end after 30 s of silence.
const MAX_CONNECT: Duration = Duration::from_secs(20);

/// A program whose service does not run is told so, and each end says why.
pub(crate) fn target_down() {
    let mut bed = ForwardBed::new(LONG_PATH);
    for transport in TRANSPORTS {
        bed.forward(transport);
        assert_reset(bed.connect(), "the service does not run");
        for (end, reason) in [
            ("forward", "the other end refuses: nobody listens at its target"),
            ("expose", "the target 127.0.0.1:5000: nobody listens there"),
        ] {
            let status = bed.status(end);
            assert_eq!(status["problems"][0]["text"], reason, "{transport}");
            assert!(status["problems"][0]["since_s"].is_number(), "{status}");
            let log = bed.log(if end == "forward" { "forwarder" } else { "exposer" });
            assert!(log.contains(reason), "{transport}: {log}");
        }
    }
    // The problem is over with the next connection.
    let listener = bed.listen();
    let mut program = bed.connect();
    listener.accept().unwrap().0.write_all(b"x").unwrap();
    program.read_exact(&mut [0]).unwrap();
    for end in ["forward", "expose"] {
        assert_eq!(bed.status(end)["problems"].as_array().unwrap().len(), 0);
    }
    // An exposing end that does not run.
    bed.exposer.0.kill().unwrap();
    bed.exposer.0.wait().unwrap();
    bed.forward("tcp");
    assert_reset(bed.connect(), "the other end does not run");
    let status = bed.status("forward");
    let problem = status["problems"][0]["text"].as_str().unwrap();
    assert!(problem.contains("nobody listens there"), "{status}");
}

/// Waits until the program's connection is reset, which no program takes for the end of a stream.
fn assert_reset(mut program: TcpStream, why: &str) {
    let start = Instant::now();
    program.set_read_timeout(Some(MAX_SILENCE)).unwrap();
    let error = io::copy(&mut program, &mut io::sink()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{why}");
    println!("{why}: reset after {:.1?}", start.elapsed());
}

/// See [`broken_path`].
pub(crate) fn broken_path_by_tcp() {
    broken_path("tcp");
}

/// See [`broken_path`].
pub(crate) fn broken_path_by_burst() {
    broken_path("burst");
}

/// See [`broken_path`].
pub(crate) fn broken_path_by_quic() {
    broken_path("quic");
}

/// Both ends of a stream are reset in bounded time, and the next connections have an error until
/// the path is back.
fn broken_path(transport: &str) {
    let mut bed = ForwardBed::new("rate_mbit = 20, delay_ms = 55");
    let listener = bed.listen();
    bed.forward(transport);
    thread::scope(|scope| {
        let service = scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let block = pattern(1 << 16);
            while stream.write_all(&block).is_ok() {}
        });
        let mut program = bed.connect();
        program.read_exact(&mut vec![0; 1 << 20]).unwrap();
        cut(&bed, true);
        assert_reset(program, &format!("{transport}: the path is cut"));
        let start = Instant::now();
        assert_reset(bed.connect(), &format!("{transport}: a new one"));
        assert!(start.elapsed() < MAX_CONNECT, "{transport}: {:?}", start.elapsed());
        let status = bed.status("forward");
        assert_eq!(status["problems"].as_array().unwrap().len(), 1, "{status}");
        service.join().unwrap();
    });
    cut(&bed, false);
    thread::scope(|scope| {
        let service = scope.spawn(|| listener.accept().unwrap().0.write_all(b"back").unwrap());
        let mut back = Vec::new();
        bed.connect().read_to_end(&mut back).unwrap();
        assert_eq!(back, b"back", "{transport}");
        service.join().unwrap();
    });
    assert_eq!(bed.status("forward")["problems"].as_array().unwrap().len(), 0);
}

/// A connection on which nothing is sent stays open, for longer than a peer may be silent.
pub(crate) fn idle() {
    let mut bed = ForwardBed::new(LONG_PATH);
    let listener = bed.listen();
    for transport in TRANSPORTS {
        bed.forward(transport);
        let mut program = bed.connect();
        let (mut service, _) = listener.accept().unwrap();
        let start = Instant::now();
        until("a peer would be taken for dead", || start.elapsed() > MAX_SILENCE);
        service.write_all(b"x").unwrap();
        program.read_exact(&mut [0]).unwrap();
        program.write_all(b"y").unwrap();
        service.read_exact(&mut [0]).unwrap();
    }
}

/// Loses everything, or nothing.
fn cut(bed: &ForwardBed, is_cut: bool) {
    for direction in LinkDirection::BOTH {
        let before = bed.network.conditions("a", direction).unwrap();
        let changed = EmulatedLinkConditions { loss: if is_cut { 1.0 } else { 0.0 }, ..before };
        bed.network.link("a").unwrap().set(direction, changed).unwrap();
    }
}

/// A stopped end accepts nothing more. What is under way may finish for a while.
pub(crate) fn stop() {
    let mut bed = ForwardBed::new(LONG_PATH);
    let listener = bed.listen();
    bed.forward("tcp");
    let mut program = bed.connect();
    let (mut service, _) = listener.accept().unwrap();
    let mut idle = bed.connect();
    let (mut idle_service, _) = listener.accept().unwrap();
    let forwarder = bed.forwarder.as_mut().unwrap();
    kill_process(Pid::from_child(&forwarder.0), Signal::TERM).unwrap();
    until("it stops", || bed.log("forwarder").contains("stopping"));
    service.write_all(&pattern(1_000_000)).unwrap();
    drop(service);
    let mut received = Vec::new();
    program.read_to_end(&mut received).unwrap();
    assert!(received == pattern(1_000_000));
    drop(program);
    // The other one is ended: no program takes that for the end of its stream.
    assert_eq!(idle.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(idle_service.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert!(bed.forwarder.as_mut().unwrap().0.wait().unwrap().success());
}
