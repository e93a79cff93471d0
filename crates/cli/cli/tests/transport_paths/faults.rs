//! Every transport while its path or its peer fails: each call ends in bounded time with an error
//! that names what it waited for, and nothing but what was sent arrives.

use std::io::{self, Read, Write};
use std::net::UdpSocket;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lab::{EmulatedLinkConditions, EmulatedNetwork, LinkDirection};
use transport::{
    Connection, ConnectionOptions, ConnectionReader, ConnectionSecurity, ConnectionStep,
    ConnectionWriter, Error, Listener, PathEstimate, connect,
};

use crate::emulation::{network, until};
use crate::interruption::uninterrupted;
use crate::{Pair, in_time, pattern, try_thrice};

/// How long a read or write waits in these tests: longer than a busy machine stops an end that goes
/// on.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long connecting may take on a busy machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// What a write may add to that: connections that are being closed send what they have.
const SLACK: Duration = Duration::from_secs(10);

/// What a connection may take while the peer reads nothing, with buffers of a MiB.
const MAX_TAKEN: usize = 64 << 20;

/// The transports with one path; `udp` has no repair, so that a lossy path is none for it.
fn transports(is_lossy: bool) -> impl Iterator<Item = &'static str> {
    let names = transport::names().map(|(name, _)| name);
    names.filter(move |name| *name != "micss" && !(is_lossy && *name == "udp"))
}

/// Two hosts with a link.
struct Hosts {
    network: EmulatedNetwork,
    _directory: tempfile::TempDir,
}

impl Hosts {
    fn new(conditions: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let topology = format!(
            "measure = {{ driver = \"accuracy\", values = {{}} }}\n\
             [hosts.client]\n[hosts.server]\n\
             [links.a]\nhosts = [\"client\", \"server\"]\nboth = {{ {conditions} }}\n"
        );
        Self { network: network(&topology, directory.path()), _directory: directory }
    }

    /// A listener at the server, and the options of a client that uses a transport.
    fn listen(&self, transport: &str) -> (Listener, ConnectionOptions) {
        let open = ConnectionSecurity::open(transport::random_identity().unwrap());
        let key = open.public_key().unwrap();
        let options = |security| ConnectionOptions {
            transport: transport.parse().unwrap(),
            buffer: Some(1 << 20),
            connect_timeout: CONNECT_TIMEOUT,
            handshake_timeout: CONNECT_TIMEOUT,
            timeout: Some(TIMEOUT),
            ..ConnectionOptions::new(security)
        };
        let address = self.network.address("server", "a").unwrap();
        let server = self.network.host("server").unwrap();
        let bind = || Listener::bind(&format!("{address}:0"), &options(open)).unwrap();
        let pinned = ConnectionSecurity::pinned(transport::random_identity().unwrap(), vec![key]);
        (server.run(bind).unwrap(), options(pinned))
    }

    /// A connection by a transport: the client's end and the server's.
    fn connect(&self, transport: &str) -> [Connection; 2] {
        let (listener, mut options) = self.listen(transport);
        // At the measured rate it would lose datagrams when the machine is busy for a moment.
        let slow = PathEstimate { round_trip: Duration::from_millis(10), rate: 12.5e6, loss: 0.0 };
        options.path = (transport == "udp").then_some(slow);
        let address = listener.local_addr().to_string();
        let client = self.network.host("client").unwrap();
        thread::scope(|scope| {
            let accept = move || listener.accept_timeout(2 * CONNECT_TIMEOUT).unwrap().unwrap();
            let accepted = scope.spawn(accept);
            let connected = client.run(|| connect(&address, &options).unwrap()).unwrap();
            [connected, accepted.join().unwrap()]
        })
    }

    fn change_address(&self) {
        let before = self.network.address("client", "a").unwrap();
        let [first, second, third, _] = before.octets();
        let changes =
            [["del", &format!("{before}/24")], ["add", &format!("{first}.{second}.{third}.77/24")]]
                .map(|[change, address]| format!("address {change} {address} dev a"));
        for change in changes {
            let mut command = Command::new("ip");
            command.args(change.split(' '));
            let client = self.network.host("client").unwrap();
            let status = client.run(|| command.status()).unwrap().unwrap();
            assert!(status.success(), "{change}");
        }
    }

    fn cut(&self) {
        for direction in [LinkDirection::Forward, LinkDirection::Back] {
            let lost = EmulatedLinkConditions { loss: 1.0, ..EmulatedLinkConditions::default() };
            self.network.link("a").unwrap().set(direction, lost).unwrap();
        }
    }
}

/// Runs a test with each transport at the same time, so that waiting takes no longer than with one.
fn with_each(is_lossy: bool, run: impl Fn(&'static str) + Sync) {
    thread::scope(|scope| {
        let threads: Vec<_> = transports(is_lossy)
            .map(|name| {
                (
                    name,
                    scope.spawn({
                        let run = &run;
                        move || run(name)
                    }),
                )
            })
            .collect();
        for (name, thread) in threads {
            assert!(thread.join().is_ok(), "{name}");
        }
    });
}

/// Writes until that fails. Returns the error, how much was taken, and how long the last write was.
fn write_on(connection: &mut Connection) -> (io::Error, usize, Duration) {
    let block = vec![7; 1 << 16];
    let mut taken = 0;
    loop {
        let began = Instant::now();
        match connection.write(&block) {
            Ok(count) => taken += count,
            Err(error) => return (error, taken, began.elapsed()),
        }
    }
}

/// An error where `udp` has lost a datagram: the others have filled the queue of the path, or the
/// machine is busy.
fn has_kept_all(name: &str, error: &io::Error) -> Result<(), String> {
    let has_lost = name == "udp" && error.to_string().contains("has lost datagram");
    (!has_lost).then_some(()).ok_or_else(|| error.to_string())
}

fn is_timeout_in(error: &io::Error, expected: ConnectionStep) -> bool {
    matches!(Error::of(error), Some(Error::TimedOut { step, .. }) if *step == expected)
}

pub(crate) fn peer_that_does_not_read() {
    let hosts = Hosts::new("rate_mbit = 300, delay_ms = 5");
    with_each(false, |name| {
        try_thrice(name, || {
            let [mut client, _server] = hosts.connect(name);
            let began = Instant::now();
            let (error, taken, _) = write_on(&mut client);
            let took = began.elapsed();
            has_kept_all(name, &error)?;
            assert!(is_timeout_in(&error, ConnectionStep::Write), "{name}: {error}");
            assert!(taken < MAX_TAKEN, "{name}: {taken} bytes were taken");
            in_time(took, TIMEOUT + SLACK)
        });
    });
}

pub(crate) fn udp_where_datagrams_are_lost() {
    let hosts = Hosts::new("rate_mbit = 100, delay_ms = 5, loss = 0.1");
    let (listener, options) = hosts.listen("udp");
    let address = listener.local_addr().to_string();
    let client = hosts.network.host("client").unwrap();
    // On a busy machine, the path may be measured by too few datagrams.
    try_thrice("a path that loses datagrams", || {
        match client.run(|| connect(&address, &options)).unwrap() {
            Err(error) if error.to_string().contains("loses") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}

pub(crate) fn path_that_dies() {
    let hosts = Hosts::new("rate_mbit = 300, delay_ms = 5");
    let ends: Vec<_> = transports(false).map(|name| (name, hosts.connect(name))).collect();
    thread::scope(|scope| {
        let threads: Vec<_> = ends
            .into_iter()
            .map(|(name, [mut client, mut server])| {
                let reading = scope.spawn(move || io::copy(&mut server, &mut io::sink()));
                (name, scope.spawn(move || write_on(&mut client).0), reading)
            })
            .collect();
        let carried =
            || hosts.network.link("a").unwrap().counts(LinkDirection::Forward).delivered_bytes;
        until("something is carried", || carried() > 3_000_000);
        hosts.cut();
        let began = Instant::now();
        for (name, writing, reading) in threads {
            let [written, read] = [writing.join().unwrap(), reading.join().unwrap().unwrap_err()];
            // The others fill the queue of the path: a datagram of udp may be lost before the cut.
            if has_kept_all(name, &read).is_err() {
                continue;
            }
            assert!(is_timeout_in(&written, ConnectionStep::Write), "{name}: {written}");
            assert!(is_timeout_in(&read, ConnectionStep::Read), "{name}: {read}");
        }
        assert!(began.elapsed() < TIMEOUT + 2 * SLACK, "{:?}", began.elapsed());
    });
}

pub(crate) fn peer_that_disappears() {
    // udp sends all that the receiver had room for, 64 MiB, before it waits.
    let mut pair = Pair::new("rate_mbit = 200, delay_ms = 5");
    let (address, key) = (pair.options[0].clone(), pair.options[2].parse().unwrap());
    let host = pair.network.host("sender").unwrap();
    let connections: Vec<_> = transports(false)
        .map(|name| {
            let security =
                ConnectionSecurity::pinned(transport::random_identity().unwrap(), vec![key]);
            let options = ConnectionOptions {
                transport: name.parse().unwrap(),
                connect_timeout: CONNECT_TIMEOUT,
                handshake_timeout: CONNECT_TIMEOUT,
                timeout: Some(TIMEOUT),
                // On a busy machine udp may see losses of the emulator before it connects.
                accept_loss: true,
                ..ConnectionOptions::new(security)
            };
            (name, host.run(|| connect(&address, &options).unwrap()).unwrap())
        })
        .collect();
    pair.receiver.0.kill().unwrap();
    pair.receiver.0.wait().unwrap();
    thread::scope(|scope| {
        for (name, mut connection) in connections {
            scope.spawn(move || {
                // On a busy machine udp takes long to send what the receiver had room for.
                let (error, taken, waited) = write_on(&mut connection);
                // The kernel of a peer that is gone says so by TCP.
                assert!(Error::of(&error).is_some(), "{name}: {error}");
                assert!(error.to_string().contains("waiting until"), "{name}: {error}");
                assert!(taken < 2 * MAX_TAKEN, "{name}: {taken} bytes were taken");
                assert!(waited < TIMEOUT + SLACK, "{name}: {waited:?}");
            });
        }
    });
}

/// The client gets another address: `burst` and `quic` go on, and others end in time.
pub(crate) fn changed_address() {
    let hosts = Hosts::new("rate_mbit = 300, delay_ms = 5");
    let ends: Vec<_> = transports(false).map(|name| (name, hosts.connect(name))).collect();
    let is_over = &AtomicBool::new(false);
    let received: Vec<_> = ends.iter().map(|_| AtomicUsize::new(0)).collect();
    thread::scope(|scope| {
        let threads: Vec<_> = ends
            .into_iter()
            .zip(&received)
            .map(|((name, [mut client, mut server]), received)| {
                scope.spawn(move || {
                    let mut buffer = vec![0; 1 << 16];
                    while let Ok(count @ 1..) = server.read(&mut buffer) {
                        received.fetch_add(count, Ordering::Relaxed);
                    }
                });
                let writing = scope.spawn(move || {
                    let block = vec![7; 1 << 16];
                    while !is_over.load(Ordering::Relaxed) {
                        client.write_all(&block)?;
                    }
                    Ok::<_, io::Error>(())
                });
                (name, received, writing)
            })
            .collect();
        let is_carried =
            |from: usize, received: &AtomicUsize| received.load(Ordering::Relaxed) > from + 300_000;
        for (name, received, writing) in &threads {
            // udp may have lost a datagram before, which is its error below.
            let is_over = || *name == "udp" && writing.is_finished();
            until(&format!("{name} carries something"), || is_carried(0, received) || is_over());
        }
        hosts.change_address();
        for (name, received, writing) in threads {
            if ["burst", "quic"].contains(&name) {
                // What is on the way arrives in any case.
                let from = received.load(Ordering::Relaxed) + MAX_TAKEN / 16;
                until(&format!("{name} goes on"), || is_carried(from, received));
                assert!(!writing.is_finished(), "{name}: {:?}", writing.join());
            } else {
                let error = writing.join().unwrap().unwrap_err();
                assert!(error.to_string().contains("waiting until the other end takes"), "{name}");
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

pub(crate) fn reordered_and_doubled() {
    let hosts = Hosts::new(
        "rate_mbit = 100, delay_ms = 10, loss = 0.005, reorder = 0.05, reorder_ms = 8, duplicate = 0.05",
    );
    let data = &pattern(2_000_000);
    with_each(true, |name| {
        thread::scope(|scope| {
            // Both have everything before one closes.
            let ends = hosts.connect(name).map(|end| {
                // Nothing is late here.
                end.set_timeout(Some(CONNECT_TIMEOUT)).unwrap();
                scope.spawn(|| exchange(end, data))
            });
            for end in ends {
                let (_connection, read) = end.join().unwrap();
                assert!(read == *data, "{name}: other bytes");
            }
        });
    });
}

/// Writes bytes and reads as many at the same time.
fn exchange(
    connection: Connection,
    data: &[u8],
) -> ((ConnectionReader, ConnectionWriter), Vec<u8>) {
    let (mut reader, mut writer) = connection.split();
    let mut read = vec![0; data.len()];
    thread::scope(|scope| {
        let reading = scope.spawn(|| reader.read_exact(&mut read).unwrap());
        writer.write_all(data).unwrap();
        writer.flush().unwrap();
        reading.join().unwrap();
    });
    ((reader, writer), read)
}

/// A million datagrams, random ones and changed ones of real connections, at a listener.
pub(crate) fn million_datagrams() {
    let pair = Pair::new("delay_ms = 1");
    let address = pair.network.address("receiver", "a").unwrap();
    let host = pair.network.host("receiver").unwrap();
    let resident = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", pair.receiver.0.id()));
        let status = status.unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    let seen = first_datagrams(&pair);
    assert!(seen.len() > 4, "{}", seen.len());
    let before = resident();
    host.run(|| {
        let mut rng = sim::SeededRng::new(1);
        let sockets: Vec<_> = (0..16).map(|_| UdpSocket::bind("0.0.0.0:0").unwrap()).collect();
        for socket in &sockets {
            socket.connect((address, 7000)).unwrap();
        }
        for _ in 0..1_000_000 {
            let mut datagram = rng.pick(&seen).unwrap().clone();
            match rng.below(3) {
                0 => {
                    datagram = (0..rng.index(200)).map(|_| rng.bytes::<1>()[0]).collect();
                }
                1 => {}
                _ => datagram.truncate(1 + rng.index(datagram.len())),
            }
            for _ in 0..rng.index(4) {
                let index = rng.index(datagram.len());
                if let Some(byte) = datagram.get_mut(index) {
                    *byte = rng.bytes::<1>()[0];
                }
            }
            // A full buffer, or a refusal, is no failure.
            let _ = rng.pick(&sockets).unwrap().send(&datagram);
        }
    })
    .unwrap();
    let after = resident();
    println!("{before} kB before, {after} kB after");
    assert!(after < before + (64 << 10), "{before} kB before, {after} kB after");
    // What udp measures depends on how fast the last of them have left the link.
    for name in transports(true) {
        let data = pattern(100_000);
        let sent = pair.send(name, &data, &["--transport", name]).wait_with_output().unwrap();
        crate::succeeded(&sent);
        assert!(std::fs::read(pair.path("out").join(name)).unwrap() == data, "{name}");
    }
}

/// The first datagrams of each transport over UDP, as a socket sees them that answers nothing.
fn first_datagrams(pair: &Pair) -> Vec<Vec<u8>> {
    let address = pair.network.address("receiver", "a").unwrap();
    let bind = || UdpSocket::bind((address, 7001)).unwrap();
    let socket = pair.network.host("receiver").unwrap().run(bind).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let key = pair.options[2].parse().unwrap();
    let host = pair.network.host("sender").unwrap();
    let try_all = || {
        for name in transports(false) {
            let identity = transport::random_identity().unwrap();
            let options = ConnectionOptions {
                transport: name.parse().unwrap(),
                connect_timeout: Duration::from_millis(500),
                ..ConnectionOptions::new(ConnectionSecurity::pinned(identity, vec![key]))
            };
            assert!(host.run(|| connect(&format!("{address}:7001"), &options).is_err()).unwrap());
        }
    };
    let (mut datagrams, mut buffer) = (Vec::new(), [0; 2048]);
    // On a busy machine, few of them may leave in the time for connecting.
    for _ in 0..5 {
        try_all();
        while let Ok(len) = uninterrupted(|| socket.recv(&mut buffer)) {
            datagrams.push(buffer[..len].to_vec());
        }
        if datagrams.len() > 4 {
            break;
        }
    }
    datagrams
}
