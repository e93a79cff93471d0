//! Streams of a program: exact in both directions, half-closed, many at a time, and not read.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::{ForwardBed, LONG_PATH, TRANSPORTS};
use crate::emulation::{Process, until};
use crate::{in_time, pattern, try_thrice};

/// The length of a stream in each direction.
const LEN: usize = 20_000_000;

/// The number of connections at a time.
const CONNECTIONS: usize = 200;

/// What an end may use for a connection that is not read, beside what it uses without one: its
/// buffers, and those of the transport.
const MAX_GROWTH_KIB: u64 = 80 << 10;

/// Both directions at a time. Each ends while the other one goes on.
pub(crate) fn exact_streams() {
    let mut bed = ForwardBed::new(LONG_PATH);
    let listener = bed.listen();
    let (up, down) = (pattern(LEN), pattern(LEN + 77));
    for transport in TRANSPORTS {
        bed.forward(transport);
        let start = Instant::now();
        thread::scope(|scope| {
            let service = scope.spawn(|| {
                let (stream, _) = listener.accept().unwrap();
                let writing = scope.spawn({
                    let (mut stream, down) = (stream.try_clone().unwrap(), &down);
                    move || stream.write_all(down).unwrap()
                });
                assert!(read_to_end(&stream) == up, "{transport}: from the program");
                writing.join().unwrap();
                // Only after the end of the program's stream.
                (&stream).write_all(b"all has arrived").unwrap();
            });
            let program = bed.connect();
            let writing = scope.spawn({
                let (mut stream, up) = (program.try_clone().unwrap(), &up);
                move || {
                    stream.write_all(up).unwrap();
                    stream.shutdown(Shutdown::Write).unwrap();
                }
            });
            let received = read_to_end(&program);
            assert!(received[..down.len()] == down, "{transport}: from the service");
            assert_eq!(received[down.len()..], *b"all has arrived", "{transport}");
            writing.join().unwrap();
            service.join().unwrap();
        });
        println!("{transport}: {LEN} bytes in each direction, {:.1?}", start.elapsed());
        until("the connection is closed", || bed.status("forward")["open"] == 0);
    }
    let exposed = bed.status("expose");
    assert_eq!(exposed["forwarded"], 3, "{exposed}");
    assert_eq!(exposed["from_clients_bytes"], 3 * LEN, "{exposed}");
}

fn read_to_end(mut stream: &TcpStream) -> Vec<u8> {
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    received
}

/// All are opened before the first one is used.
pub(crate) fn many_connections() {
    let mut bed = ForwardBed::new(LONG_PATH);
    let listener = bed.listen();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || {
                let mut stream = stream.unwrap();
                let mut request = [0; 4];
                stream.read_exact(&mut request).unwrap();
                stream.write_all(&request.repeat(1000)).unwrap();
            });
        }
    });
    for transport in TRANSPORTS {
        bed.forward(transport);
        try_thrice(transport, || {
            let start = Instant::now();
            let programs: Vec<TcpStream> = (0..CONNECTIONS).map(|_| bed.connect()).collect();
            for (i, mut program) in programs.iter().enumerate() {
                program.write_all(&u32::try_from(i).unwrap().to_be_bytes()).unwrap();
            }
            for (i, program) in programs.iter().enumerate() {
                let expected = u32::try_from(i).unwrap().to_be_bytes().repeat(1000);
                let (mut program, mut received) = (program, Vec::new());
                // It is reset if the other end cannot be reached in time: on a busy machine.
                let read = program.read_to_end(&mut received);
                read.map_err(|error| format!("connection {i}: {error}"))?;
                assert!(received == expected, "{transport}: {i}");
            }
            let took = start.elapsed();
            println!("{transport}: {CONNECTIONS} connections, {took:.1?}");
            in_time(took, Duration::from_secs(30))
        });
    }
}

/// The first connection waits for the handshake of the transport, and the next ones do not. A
/// connection that was opened ahead and is gone is not used.
pub(crate) fn short_connections() {
    let mut bed = ForwardBed::new(LONG_PATH);
    let listener = bed.listen();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4];
            stream.read_exact(&mut request).unwrap();
            stream.write_all(&request).unwrap();
        }
    });
    for transport in TRANSPORTS {
        bed.forward(transport);
        try_thrice(transport, || {
            let times = ping_times(&bed);
            println!("{transport}: {times:.0?}");
            in_time(*times[1..].iter().min().unwrap(), Duration::from_millis(200))
        });
    }
    bed.exposer.0.kill().unwrap();
    bed.exposer.0.wait().unwrap();
    let start = Instant::now();
    let error = bed.connect().read(&mut [0]).unwrap_err();
    println!("without the other end: {error} after {:.1?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(60));
}

/// How long connections take, one after another, on each of which a few bytes are sent back.
fn ping_times(bed: &ForwardBed) -> Vec<Duration> {
    let ping = |_| {
        let start = Instant::now();
        let mut program = bed.connect();
        program.write_all(b"ping").unwrap();
        assert_eq!(read_to_end(&program), b"ping");
        let took = start.elapsed();
        // A person or a script needs some time, too, in which the next one is opened.
        until("a moment has passed", || start.elapsed() > Duration::from_millis(600));
        took
    };
    (0..6).map(ping).collect()
}

/// A program that does not read stops the service, and the ends do not buffer without a limit.
pub(crate) fn slow_reader() {
    let mut bed = ForwardBed::new("rate_mbit = 500, delay_ms = 5");
    let listener = bed.listen();
    // Once for each transport, until its program is gone.
    let service = thread::spawn(move || {
        TRANSPORTS.map(|_| {
            let (mut stream, _) = listener.accept().unwrap();
            let block = pattern(1 << 16);
            let mut blocks = 0_u64;
            while stream.write_all(&block).is_ok() {
                blocks += 1;
            }
            blocks << 16
        })
    });
    for transport in TRANSPORTS {
        bed.forward(transport);
        let ends = [&bed.exposer, bed.forwarder.as_ref().unwrap()];
        let before = ends.map(resident_kib);
        let mut program = bed.connect();
        let mut first = vec![0; 1 << 16];
        program.read_exact(&mut first).unwrap();
        assert!(first == pattern(1 << 16));
        // Until nothing more is forwarded for a second.
        let forwarded = || bed.status("expose")["to_clients_bytes"].as_u64().unwrap();
        let (mut last, mut since) = (forwarded(), Instant::now());
        until("the service waits", || {
            let now = forwarded();
            if now != last {
                (last, since) = (now, Instant::now());
            }
            since.elapsed() > Duration::from_secs(1)
        });
        let grown = [0, 1].map(|i| resident_kib(ends[i]).saturating_sub(before[i]));
        println!("{transport}: {last} bytes were forwarded, grown by {grown:?} KiB");
        assert!(grown.iter().all(|kib| *kib < MAX_GROWTH_KIB), "{transport}: {grown:?}");
        // It goes on when the program reads again.
        let mut read = vec![0; 30 << 20];
        program.read_exact(&mut read).unwrap();
        assert!(read.chunks(1 << 16).all(|block| *block == first), "{transport}");
        drop(program);
    }
    let written = service.join().unwrap();
    println!("the service has written {written:?}");
}

/// The memory that a process has in use.
fn resident_kib(process: &Process) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.0.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
