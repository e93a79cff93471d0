use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use keys::IdentitySecretKey;

use super::*;
use crate::error::{ConnectionStep, Error};
use crate::options::{ConnectionOptions, ConnectionSecurity, TransportChoice};
use crate::protocol::handshake::{HandshakeRefusal, TransportHandshakeError};

fn secret(number: u8) -> IdentitySecretKey {
    IdentitySecretKey::new(&[number; 32])
}

fn listener(security: ConnectionSecurity) -> (Listener, String) {
    let listener = Listener::bind("127.0.0.1:0", &ConnectionOptions::new(security)).unwrap();
    let address = listener.local_addr().to_string();
    (listener, address)
}

fn pinned(own: u8, peer: u8) -> ConnectionSecurity {
    ConnectionSecurity::pinned(secret(own), vec![secret(peer).public()])
}

/// Bytes with a pattern that detects reordering.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + (i >> 8) * 7).to_le_bytes()[0]).collect()
}

/// The transports.
fn all() -> impl Iterator<Item = &'static str> {
    crate::names().map(|(name, _)| name)
}

fn options(transport: &'static str, security: ConnectionSecurity) -> ConnectionOptions {
    ConnectionOptions {
        transport: TransportChoice::Named(transport),
        ..ConnectionOptions::new(security)
    }
}

/// Both ends of a connection.
fn pair(
    transport: &'static str,
    server: ConnectionSecurity,
    client: ConnectionSecurity,
) -> (Connection, Connection) {
    let (listener, address) = listener(server);
    // Two channels.
    let address = if transport == "micss" { format!("{address},{address}") } else { address };
    let one = connect(&address, &options(transport, client)).unwrap();
    let two = listener.accept().unwrap();
    assert_eq!([one.transport(), two.transport()], [transport; 2]);
    (one, two)
}

/// A kernel resets a TCP connection that is closed with unread data, and drops what it has sent.
#[test]
fn all_arrives_of_a_sender_that_reads_nothing() {
    let secure = all().map(|transport| (transport, pinned(2, 1), pinned(1, 2)));
    let insecure = all()
        .map(|transport| (transport, ConnectionSecurity::Insecure, ConnectionSecurity::Insecure));
    for (transport, server, client) in secure.chain(insecure) {
        let (mut one, mut two) = pair(transport, server, client);
        // If the kernel's buffers are too small for it, the test fails instead of hanging.
        one.set_timeout(Some(Duration::from_secs(60))).unwrap();
        let data = pattern(400_000);
        let (left, has_left) = mpsc::channel();
        let reader = thread::spawn(move || {
            // The connecting end waits 5 s for a peer that does not read, then gives up.
            if transport != "micss" {
                has_left.recv().unwrap();
            }
            let mut received = Vec::new();
            let read = two.read_to_end(&mut received);
            read.unwrap_or_else(|error| panic!("{transport}: {error}"));
            two.finish().unwrap_or_else(|error| panic!("{transport}: {error}"));
            received
        });
        one.write_all(&data).unwrap();
        one.finish().unwrap();
        drop(one);
        let _ = left.send(());
        assert!(reader.join().unwrap() == data, "{transport}");
    }
}

#[test]
fn bytes_of_both_directions_arrive_whole_and_in_order() {
    let secure = all().map(|transport| (transport, pinned(2, 1), pinned(1, 2)));
    let insecure = all()
        .map(|transport| (transport, ConnectionSecurity::Insecure, ConnectionSecurity::Insecure));
    for (transport, server, client) in secure.chain(insecure) {
        let is_secure = matches!(server, ConnectionSecurity::Noise { .. });
        let (mut one, mut two) = pair(transport, server, client);
        let expected = is_secure.then(|| (secret(2).public(), secret(1).public()));
        assert_eq!(one.peer().zip(two.peer()), expected);
        let data = pattern(1_000_003);
        let (sent, answered) = (data.clone(), data.clone());
        let other = thread::spawn(move || {
            let mut received = Vec::new();
            // In pieces of odd sizes, which stay in the buffer until this end reads.
            for piece in answered.chunks(777) {
                two.write_all(piece).unwrap();
            }
            two.read_to_end(&mut received).unwrap();
            two.finish().unwrap();
            (received, two.statistics())
        });
        let mut received = vec![0; data.len()];
        one.write_all(&sent).unwrap();
        one.read_exact(&mut received).unwrap();
        assert!(received == data);
        one.finish().unwrap_or_else(|error| panic!("{transport}: {error}"));
        assert_eq!(one.read(&mut received).unwrap(), 0);
        let (received, statistics) = other.join().unwrap();
        assert!(received == data);
        let len = data.len() as u64;
        assert_eq!((statistics.bytes_sent, statistics.bytes_received), (len, len));
        // It reports nothing about the paths of several channels.
        let path = statistics.path;
        let is_known = path.round_trip.is_some() && path.congestion.is_some();
        assert_eq!(is_known, transport != "micss");
    }
}

#[test]
fn the_halves_work_in_two_threads() {
    for transport in all() {
        let (one, two) = pair(transport, pinned(2, 1), pinned(1, 2));
        let (mut reader, mut writer) = one.split();
        let data = pattern(500_000);
        thread::scope(|scope| {
            scope.spawn(|| {
                writer.write_all(&data).unwrap();
                writer.finish().unwrap();
            });
            scope.spawn(|| std::io::copy(&mut two.split().0, &mut std::io::sink()).unwrap());
            // The other end was dropped, which ends its stream.
            let mut rest = Vec::new();
            reader.read_to_end(&mut rest).unwrap();
            assert!(rest.is_empty());
        });
    }
}

/// Connects many clients at the same time. Returns how many the program serves, and how many are
/// told that it is busy. Without `is_prompt`, the program accepts only after the first client has
/// been told so, and the second half of the clients comes when the first half is connected or has
/// been told: those in a handshake over UDP when the listener gets full are still connected.
fn crowd(
    transport: &'static str,
    security: [ConnectionSecurity; 2],
    len: usize,
    is_prompt: bool,
) -> [usize; 2] {
    let [server, client] = security;
    let (listener, address) = listener(server);
    let address = if transport == "micss" { format!("{address},{address}") } else { address };
    let (sender, results) = mpsc::channel::<Result<(), String>>();
    // On a busy machine, hundreds of handshakes take longer than one may take by default.
    let connect_timeout = Duration::from_secs(30);
    let options = ConnectionOptions { connect_timeout, ..options(transport, client) };
    let settled = AtomicUsize::new(0);
    let ask = |sender: mpsc::Sender<Result<(), String>>| {
        let connected = connect(&address, &options);
        settled.fetch_add(1, Ordering::Relaxed);
        let served = match connected {
            Ok(mut connection) => {
                let read = connection.read_exact(&mut [0]);
                // Waits until the other end has everything. A client that was told so has ended.
                let _ = connection.finish();
                read.map_err(|error| {
                    let own = Error::of(&error).map(|error| format!("{error:?}"));
                    own.unwrap_or_else(|| error.to_string())
                })
            }
            Err(error) => Err(format!("{error:?}")),
        };
        sender.send(served).unwrap();
    };
    thread::scope(|scope| {
        for number in 0..len {
            while !is_prompt && number == len / 2 && settled.load(Ordering::Relaxed) < number {
                thread::park_timeout(Duration::from_millis(5));
            }
            let (ask, sender) = (&ask, sender.clone());
            thread::Builder::new().stack_size(1 << 19).spawn_scoped(scope, || ask(sender)).unwrap();
        }
        let (mut counts, mut connections, mut wrong) = ([0, 0], Vec::new(), Vec::new());
        let (mut is_accepting, begin) = (is_prompt, Instant::now());
        while counts[0] + counts[1] < len {
            while let Ok(served) = results.try_recv() {
                counts[usize::from(served.is_err())] += 1;
                wrong.extend(served.err().filter(|error| !error.contains("Busy")));
                is_accepting = true;
            }
            let limit = Duration::from_millis(5);
            // If no client is told so, the test fails instead of waiting forever.
            is_accepting |= begin.elapsed() > Duration::from_secs(30);
            if !is_accepting {
                thread::park_timeout(limit);
            } else if let Some(mut connection) = listener.accept_timeout(limit).unwrap()
                && connection.write_all(&[1]).and_then(|()| connection.flush()).is_ok()
            {
                connections.push(connection);
            }
        }
        assert!(wrong.is_empty(), "{transport}: {wrong:?}");
        counts
    })
}

#[test]
fn a_crowd_of_one_address_is_served() {
    for transport in all().filter(|name| *name != "micss") {
        for security in [
            [ConnectionSecurity::Insecure, ConnectionSecurity::Insecure],
            [pinned(2, 1), pinned(1, 2)],
        ] {
            let counts = crowd(transport, security, 100, true);
            assert_eq!(counts, [100, 0], "{transport}");
        }
    }
}

#[test]
fn a_crowd_is_refused_as_busy() {
    for transport in all().filter(|name| *name != "micss") {
        for security in [
            [ConnectionSecurity::Insecure, ConnectionSecurity::Insecure],
            [pinned(2, 1), pinned(1, 2)],
        ] {
            let [served, busy] = crowd(transport, security, 400, false);
            println!("{transport}: {served} served, {busy} busy");
            assert!(served >= 100 && busy >= 1, "{transport}: {served}, {busy}");
        }
    }
}

/// Each of 1,000 simultaneous clients is served, or is told that the program is busy.
#[test]
#[ignore = "a thousand sockets and threads for each transport"]
fn a_thousand_clients_of_one_address() {
    println!("| transport | | served | busy |");
    println!("|---|---|---|---|");
    for transport in all().filter(|name| *name != "micss") {
        for (name, security) in [
            ("insecure", [ConnectionSecurity::Insecure, ConnectionSecurity::Insecure]),
            ("encrypted", [pinned(2, 1), pinned(1, 2)]),
        ] {
            let [served, busy] = crowd(transport, security, 1000, true);
            println!("| {transport} | {name} | {served} | {busy} |");
        }
    }
}

fn refused(server: ConnectionSecurity, client: ConnectionSecurity) -> TransportHandshakeError {
    let (listener, address) = listener(server);
    // Without encryption, the refusal comes with the first read.
    let error = match connect(&address, &ConnectionOptions::new(client)) {
        Ok(mut connection) => connection.read(&mut [0]).unwrap_err().downcast().unwrap(),
        Err(error) => error,
    };
    drop(listener);
    match error {
        Error::Security { source, .. } => source,
        error => panic!("{error}"),
    }
}

#[test]
fn a_wrong_key_or_mode_is_refused_with_its_reason() {
    let is = |refusal| TransportHandshakeError::Refused(refusal);
    assert_eq!(refused(pinned(2, 1), pinned(1, 3)), is(HandshakeRefusal::OtherKey));
    assert_eq!(refused(pinned(2, 3), pinned(1, 2)), is(HandshakeRefusal::NotExpected));
    assert_eq!(refused(pinned(2, 1), ConnectionSecurity::Insecure), is(HandshakeRefusal::Plain));
    assert_eq!(refused(ConnectionSecurity::Insecure, pinned(1, 2)), is(HandshakeRefusal::Noise));
    let (_listener, address) = listener(ConnectionSecurity::open(secret(2)));
    let error = connect(&address, &ConnectionOptions::new(ConnectionSecurity::open(secret(1))))
        .unwrap_err();
    assert!(matches!(error, Error::NoKey { .. }));
}

/// An end that reads later, or again, gets the reason, too.
#[test]
fn an_end_without_encryption_reads_why_it_is_refused() {
    let (_listener, address) = listener(pinned(2, 1));
    for transport in ["tcp", "mptcp", "sabul", "udp"] {
        let mut one = connect(&address, &options(transport, ConnectionSecurity::Insecure)).unwrap();
        // Until it is refused.
        for _ in 0..100 {
            if one.write_all(&pattern(60_000)).and_then(|()| one.flush()).is_err() {
                break;
            }
        }
        for _ in 0..2 {
            let error = one.read(&mut [0]).unwrap_err();
            let is_plain = matches!(
                Error::of(&error),
                Some(Error::Security {
                    source: TransportHandshakeError::Refused(HandshakeRefusal::Plain),
                    ..
                })
            );
            assert!(is_plain, "{transport}: {error}");
        }
    }
}

/// It has sent its first message, so it is not evicted.
#[test]
fn a_refused_connection_that_stays_is_closed() {
    let options = ConnectionOptions {
        handshake_timeout: Duration::from_secs(600),
        ..ConnectionOptions::new(pinned(2, 1))
    };
    let listener = Listener::bind("127.0.0.1:0", &options).unwrap();
    let mut stream = TcpStream::connect(listener.local_addr()).unwrap();
    stream.write_all(b"SNDRTRPT\x02\x00").unwrap();
    let mut refusal = Vec::new();
    stream.read_to_end(&mut refusal).unwrap();
    assert_eq!(refusal, HandshakeRefusal::Plain.answer());
    let start = Instant::now();
    while stream.write_all(&[0]).is_ok() {
        assert!(start.elapsed() < Duration::from_secs(60), "it is still open");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_end_that_does_not_answer_is_named_with_the_step() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let options = ConnectionOptions {
        handshake_timeout: Duration::from_millis(50),
        ..ConnectionOptions::new(pinned(1, 2))
    };
    // On a busy machine the time may be over before the first message is sent.
    let is_of_answer =
        |error: &Error| matches!(error, Error::TimedOut { step: ConnectionStep::Answer, .. });
    let mut errors = (0..10).map(|_| connect(&address, &options).unwrap_err());
    let error = errors.find(is_of_answer).expect("it waits for the answer");
    let text = format!(
        "{address}: waiting for the handshake's answer: nothing for 0.05 s: does Sunder listen on this port?"
    );
    assert_eq!(error.to_string(), text);
}

#[test]
fn a_read_and_a_write_wait_for_a_limited_time() {
    for transport in all() {
        let (mut one, _two) = pair(transport, pinned(2, 1), pinned(1, 2));
        one.set_timeout(Some(Duration::from_millis(50))).unwrap();
        let error = one.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        assert!(matches!(
            Error::of(&error),
            Some(Error::TimedOut { step: ConnectionStep::Read, .. })
        ));
        // The other end does not read.
        let data = pattern(60_000);
        let error = loop {
            if let Err(error) = one.write(&data) {
                break error;
            }
        };
        assert!(matches!(
            Error::of(&error),
            Some(Error::TimedOut { step: ConnectionStep::Write, .. })
        ));
        assert!(one.write(&[0]).is_err());
    }
}

#[test]
fn a_stream_that_is_cut_is_no_end() {
    for transport in all() {
        let (mut one, mut two) = pair(transport, pinned(2, 1), pinned(1, 2));
        two.closer().close();
        assert_eq!(two.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::ConnectionAborted);
        let error = one.read(&mut [0]).unwrap_err();
        assert!(matches!(Error::of(&error), Some(Error::Truncated { .. })), "{error}");
    }
}

#[test]
fn outsiders_keep_nobody_out() {
    let mut seen = Vec::new();
    // A busy machine may delay some.
    let is_soon = (0..3).any(|_| {
        let took = connect_beside_outsiders();
        let is_soon = matches!(&took, Ok(took) if *took < Duration::from_secs(5));
        seen.push(took);
        is_soon
    });
    assert!(is_soon, "{seen:?}");
}

/// How long it takes to connect while others hold connections.
fn connect_beside_outsiders() -> Result<Duration, Error> {
    let (listener, address) = listener(pinned(2, 1));
    let mut idle = Vec::new();
    for i in 0..200 {
        let mut stream = TcpStream::connect(&address).unwrap();
        // Some send garbage, some the beginning of a handshake, some nothing.
        let sent: &[u8] = [&b"GET / HTTP/1.1\r\n\r\n"[..], b"SNDRTRPT\x02\x01", b""][i % 3];
        stream.write_all(sent).unwrap();
        idle.push(stream);
    }
    let start = Instant::now();
    let one = connect(&address, &ConnectionOptions::new(pinned(1, 2)))?;
    assert_eq!(listener.accept().unwrap().peer(), Some(secret(1).public()));
    drop(one);
    Ok(start.elapsed())
}

#[test]
fn a_closed_listener_refuses() {
    let (listener, address) = listener(pinned(2, 1));
    drop(listener);
    let error = connect(&address, &ConnectionOptions::new(pinned(1, 2))).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Io { step: ConnectionStep::Connect("tcp") | ConnectionStep::Answer, .. }
        ),
        "{error}"
    );
}

#[test]
fn addresses_are_of_a_host_and_a_port() {
    for wrong in ["", "host", ":1", "host:", "host:65536", "::1:80", "[::1]"] {
        let error =
            connect(wrong, &ConnectionOptions::new(ConnectionSecurity::Insecure)).unwrap_err();
        assert!(matches!(error, Error::Address { .. }), "{wrong}: {error}");
    }
}

/// A signal that interrupts system calls does not prolong a limit.
#[test]
#[expect(unsafe_code, reason = "signals have no safe interface")]
fn signals_do_not_prolong_a_read() {
    extern "C" fn ignore(_signal: libc::c_int) {}
    // SAFETY: the handler does nothing; all-zero bytes are a valid structure, without SA_RESTART.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ignore as extern "C" fn(libc::c_int) as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
    }
    for transport in all() {
        let mut times = Vec::new();
        // A busy machine may delay some.
        let is_in_time = (0..3).any(|_| {
            let took = time_of_interrupted_read(transport);
            assert!(took >= Duration::from_secs(1), "{transport}: {took:?}");
            times.push(took);
            took < Duration::from_secs(3)
        });
        assert!(is_in_time, "{transport}, three times: {times:?}");
    }
}

/// The time of a read with a limit of 1 s that signals interrupt.
#[expect(unsafe_code, reason = "signals have no safe interface")]
fn time_of_interrupted_read(transport: &'static str) -> Duration {
    let (mut one, two) = pair(transport, pinned(2, 1), pinned(1, 2));
    one.set_timeout(Some(Duration::from_secs(1))).unwrap();
    let (ended, is_over) = mpsc::channel();
    // SAFETY: the thread exists until it has received that all is over.
    let reader = unsafe { libc::pthread_self() };
    let (error, took) = thread::scope(|scope| {
        scope.spawn(move || {
            while is_over.recv_timeout(Duration::from_millis(40)).is_err() {
                // SAFETY: as above.
                unsafe { libc::pthread_kill(reader, libc::SIGUSR1) };
            }
        });
        let start = Instant::now();
        let read = one.read(&mut [0]);
        let took = start.elapsed();
        ended.send(()).unwrap();
        (read.unwrap_err(), took)
    });
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut, "{transport}");
    drop(two);
    took
}

/// What a child does with its copies of connections and listeners changes nothing at its parent.
#[test]
#[expect(unsafe_code, reason = "a fork has no safe interface")]
fn a_forked_child_does_not_disturb_its_parent() {
    for transport in all() {
        let (listener, address) = listener(pinned(2, 1));
        let address = if transport == "micss" { format!("{address},{address}") } else { address };
        let mut one = connect(&address, &options(transport, pinned(1, 2))).unwrap();
        let mut two = listener.accept().unwrap();
        one.write_all(b"before").unwrap();
        // SAFETY: the child uses its own memory only, and ends without the parent's destructors.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let is_refused = one.write_all(b"child").and_then(|()| one.flush()).is_err()
                && two.read(&mut [0; 8]).is_err()
                && one.finish().is_err()
                && listener.accept().is_err();
            one.closer().close();
            drop((one, two, listener));
            // SAFETY: it ends the child.
            unsafe { libc::_exit(i32::from(!is_refused)) };
        }
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut status = -1;
        // SAFETY: the status is a valid place for one number.
        while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
            assert!(Instant::now() < deadline, "{transport}: the child hangs");
            thread::park_timeout(Duration::from_millis(5));
        }
        assert_eq!(status, 0, "{transport}");
        one.write_all(b" and after").unwrap();
        two.write_all(b"answer").unwrap();
        let (mut there, mut back) = (Vec::new(), Vec::new());
        thread::scope(|scope| {
            scope.spawn(|| one.finish().unwrap());
            two.read_to_end(&mut there).unwrap();
            two.finish().unwrap();
        });
        one.read_to_end(&mut back).unwrap();
        assert_eq!(
            (&there[..], &back[..]),
            (&b"before and after"[..], &b"answer"[..]),
            "{transport}"
        );
        let mut again = connect(&address, &options(transport, pinned(1, 2))).unwrap();
        again.finish().unwrap();
        listener.accept().unwrap();
    }
}
