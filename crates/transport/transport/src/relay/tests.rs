use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use keys::{IdentitySecretKey, SharedKey};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use udp::streams::now;

use super::*;
use crate::net::{Connection, Listener, connect};
use crate::options::{ConnectionOptions, ConnectionSecurity};
use crate::protocol::relay::{RelayRequest, RelayResponse, RelaySecret, STILL_PRESENT};
use crate::protocol::relay_binding::{BINDING_GRANT_LEN, BindingGrant, RelayBinding, request};
use crate::{ConnectionPath, ConnectionStep, Error, TransportChoice};

/// A relay that runs until this is dropped.
struct Running {
    address: SocketAddr,
    source: RelayStatusSource,
    _stop: oneshot::Sender<()>,
    _runtime: Runtime,
}

fn relay() -> Running {
    relay_at("127.0.0.1:0")
}

fn relay_at(address: &str) -> Running {
    let runtime = Runtime::new().unwrap();
    let relay = runtime.block_on(RelayServer::bind(address.parse().unwrap())).unwrap();
    let (address, source) = (relay.local_addr().unwrap(), relay.status_source().unwrap());
    let (stop, stopped) = oneshot::channel();
    runtime.spawn(relay.run(async { _ = stopped.await }));
    Running { address, source, _stop: stop, _runtime: runtime }
}

impl Running {
    /// Waits until the status satisfies a condition, as events are counted with a small delay.
    fn until(&self, holds: impl Fn(&RelayStatus) -> bool) -> RelayStatus {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let status = self.source.status();
            if holds(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "{status:?}");
            thread::yield_now();
        }
    }
}

fn options(own: u8, peer: u8) -> ConnectionOptions {
    let secret = |number| IdentitySecretKey::new(&[number; 32]);
    ConnectionOptions::new(ConnectionSecurity::pinned(secret(own), vec![secret(peer).public()]))
}

/// Two ends that have met by this transport and path. Direct paths are given up soon, so a busy
/// machine may be too late for some: up to three times. Also returns how often they have met.
fn met(
    address: &str,
    options: &ConnectionOptions,
    listener: &Listener,
    expected: (&str, ConnectionPath),
) -> (Connection, Connection, u64) {
    let mut seen = Vec::new();
    for times in 1..=3 {
        let one = connect(address, options).unwrap();
        let two = listener.accept().unwrap();
        if [&one, &two].iter().all(|end| (end.transport(), end.path()) == expected) {
            return (one, two, times);
        }
        let ends = [&one, &two].map(|end| format!("{}, {:?}", end.transport(), end.path()));
        seen.push(ends);
    }
    panic!("three times not {expected:?}: {seen:?}");
}

#[test]
fn two_parties_meet_again_and_again() {
    let relay = relay();
    let (listener, token) = Listener::via(&relay.address.to_string(), &options(2, 1)).unwrap();
    let address = format!("{token}@{}", relay.address);
    let over = |transport| ConnectionOptions { transport, ..options(1, 2) };
    let choices = [
        (TransportChoice::Named("tcp"), "tcp", ConnectionPath::RelayedTcp),
        (TransportChoice::Auto, "burst", ConnectionPath::Direct),
        (TransportChoice::Named("burst"), "burst", ConnectionPath::Direct),
    ];
    let mut joined = 0;
    for (round, (choice, transport, path)) in (0_u8..).zip(choices) {
        let (mut one, mut two, times) = met(&address, &over(choice), &listener, (transport, path));
        joined += times;
        assert_eq!(two.peer(), Some(IdentitySecretKey::new(&[1; 32]).public()));
        let data = vec![round; 1_000_000];
        let sent = data.clone();
        let writing = thread::spawn(move || {
            one.write_all(&sent).unwrap();
            one.finish().unwrap();
            let mut answer = Vec::new();
            one.read_to_end(&mut answer).unwrap();
            answer
        });
        let mut received = Vec::new();
        two.read_to_end(&mut received).unwrap();
        assert!(received == data);
        two.write_all(b"ok").unwrap();
        two.finish().unwrap();
        assert_eq!(writing.join().unwrap(), b"ok");
    }
    let status = relay.until(|status| status.joined == joined && status.pairs == 0);
    assert_eq!(
        (&status.listen, status.refused),
        (&relay.address.to_string(), RelayRefusalCounts::default())
    );
    assert!((1_000_000..1_100_000).contains(&status.to_waiting_bytes), "{status:?}");
    assert!((6..10_000).contains(&status.from_waiting_bytes), "{status:?}");
    assert!(status.datagram_bytes < 10_000, "{status:?}");
}

#[test]
fn a_wrong_token_or_transport_is_named() {
    let relay = relay();
    let (_listener, token) = Listener::via(&relay.address.to_string(), &options(2, 1)).unwrap();
    for wrong in ["", "00", "x"] {
        let error = connect(&format!("{wrong}@{}", relay.address), &options(1, 2)).unwrap_err();
        assert!(matches!(error, Error::Address { .. }), "{error}");
    }
    let sabul = ConnectionOptions { transport: TransportChoice::Named("sabul"), ..options(1, 2) };
    let error = connect(&format!("{token}@{}", relay.address), &sabul).unwrap_err();
    assert!(matches!(error, Error::Address { .. }), "{error}");
    // A relay that does not exist.
    let error = connect(&format!("{token}@127.0.0.1:1"), &options(1, 2)).unwrap_err();
    assert!(matches!(error, Error::Io { step: ConnectionStep::Relay, .. }), "{error}");
}

fn ask(relay: &Running, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(relay.address).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

fn byte(stream: &mut TcpStream) -> u8 {
    let mut byte = [0];
    stream.read_exact(&mut byte).unwrap();
    byte[0]
}

#[test]
fn those_who_ask_for_nothing_or_wait_too_often_keep_nobody_out() {
    let relay = relay();
    let mut idle: Vec<TcpStream> = (0..100).map(|_| ask(&relay, b"SNDR")).collect();
    let mut rubbish = ask(&relay, &[b'x'; 42]);
    assert_eq!(byte(&mut rubbish), RelayResponse::Refused as u8);
    // One source waits under many tokens: the oldest are evicted.
    for number in 0..100 {
        let secret = RelaySecret::new(zeroize::Zeroizing::new([number; 32]));
        let mut waiting = ask(&relay, &*RelayRequest::Wait(secret).encode());
        assert_eq!(byte(&mut waiting), RelayResponse::Waiting as u8);
        idle.push(waiting);
    }
    let (listener, token) = Listener::via(&relay.address.to_string(), &options(2, 1)).unwrap();
    let one = connect(&format!("{token}@{}", relay.address), &options(1, 2)).unwrap();
    listener.accept().unwrap();
    let status = relay.until(|status| status.refused.evicted_arriving >= 68);
    assert!(status.waiting <= 33, "{status:?}");
    assert!(status.refused.evicted_waiting >= 68, "{status:?}");
    assert_eq!((status.refused.malformed, status.waited >= 101), (1, true), "{status:?}");
    drop((one, idle));
}

#[test]
fn who_has_gone_is_not_connected() {
    let relay = relay();
    let secret = || RelaySecret::new(zeroize::Zeroizing::new([7; 32]));
    let mut waiting = ask(&relay, &*RelayRequest::Wait(secret()).encode());
    assert_eq!(byte(&mut waiting), RelayResponse::Waiting as u8);
    drop(waiting);
    // The sender connects first.
    let mut sender = ask(&relay, &*RelayRequest::Connect(secret().token()).encode());
    let mut waiting = ask(&relay, &*RelayRequest::Wait(secret()).encode());
    take(&mut waiting);
    assert_eq!(byte(&mut sender), RelayResponse::Connected as u8);
    grant(&mut waiting);
    sender.write_all(b"there").unwrap();
    let mut received = [0; 5];
    waiting.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"there");
}

#[test]
fn who_does_not_answer_is_not_connected() {
    let relay = relay();
    let secret = || RelaySecret::new(zeroize::Zeroizing::new([7; 32]));
    // The newest connection is tried first. One of them is dead, and one belongs to another
    // program.
    let wait = || {
        let mut waiting = ask(&relay, &*RelayRequest::Wait(secret()).encode());
        assert_eq!(byte(&mut waiting), RelayResponse::Waiting as u8);
        waiting
    };
    let [mut waiting, _dead, mut other] = [wait(), wait(), wait()];
    let mut sender = ask(&relay, &*RelayRequest::Connect(secret().token()).encode());
    while byte(&mut other) != RelayResponse::Connected as u8 {}
    other.write_all(&[STILL_PRESENT + 1]).unwrap();
    take(&mut waiting);
    assert_eq!(byte(&mut sender), RelayResponse::Connected as u8);
    relay.until(|status| status.joined == 1 && status.waiting == 0);
}

/// Waits until another party connects, and answers.
fn take(waiting: &mut TcpStream) {
    while byte(waiting) != RelayResponse::Connected as u8 {}
    waiting.write_all(&[STILL_PRESENT]).unwrap();
}

/// Reads what a party needs to bind a UDP address.
fn grant(stream: &mut TcpStream) -> BindingGrant {
    let mut bytes = [0; BINDING_GRANT_LEN];
    stream.read_exact(&mut bytes).unwrap();
    BindingGrant::parse(&bytes)
}

/// A connection from an address of this host.
fn ask_from(last: u8, relay: &Running, bytes: &[u8]) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, last], 0)).into()).unwrap();
    socket.connect(&relay.address.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.write_all(bytes).unwrap();
    stream
}

#[test]
fn a_source_has_a_part_of_the_pairs() {
    let relay = relay();
    let secret = |number| RelaySecret::new(zeroize::Zeroizing::new([number; 32]));
    let join = |last: u8, number: u8| {
        let mut waiting = ask_from(last, &relay, &*RelayRequest::Wait(secret(number)).encode());
        let answer = byte(&mut waiting);
        if answer != RelayResponse::Waiting as u8 {
            return Err(answer);
        }
        let token = secret(number).token();
        let mut other = ask_from(last, &relay, &*RelayRequest::Connect(token).encode());
        take(&mut waiting);
        match byte(&mut other) {
            0 => Ok([waiting, other]),
            answer => Err(answer),
        }
    };
    let pairs: Vec<_> = (0..64).map(|number| join(1, number).unwrap()).collect();
    assert_eq!(join(1, 64).unwrap_err(), RelayResponse::Refused as u8);
    let token = secret(65).token();
    let mut looking = ask_from(1, &relay, &*RelayRequest::Connect(token).encode());
    assert_eq!(byte(&mut looking), RelayResponse::Refused as u8);
    let other = join(2, 66).unwrap();
    relay.until(|it| (it.refused.too_many_pairs, it.pairs, it.joined) == (2, 65, 65));
    drop(pairs);
    relay.until(|status| status.pairs == 1);
    drop((join(1, 67).unwrap(), other));
    relay.until(|status| status.pairs == 0);
}

#[test]
fn a_token_under_which_nobody_waits_takes_no_place() {
    let relay = relay();
    let token = RelaySecret::new(zeroize::Zeroizing::new([9; 32])).token();
    let mut looking = ask(&relay, &*RelayRequest::Connect(token).encode());
    let mut silent = ask(&relay, b"");
    silent.shutdown(std::net::Shutdown::Write).unwrap();
    relay.until(|status| status.refused.silent == 1 && status.pairs == 0);
    assert_eq!(byte(&mut looking), RelayResponse::Nobody as u8);
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    relay.until(|status| status.refused.unknown_token == 1 && status.pairs == 0);
}

/// Two connected parties, and what they need to bind UDP addresses.
fn granted(relay: &Running) -> [(TcpStream, BindingGrant); 2] {
    let secret = || RelaySecret::new(zeroize::Zeroizing::new([7; 32]));
    let mut waiting = ask(relay, &*RelayRequest::Wait(secret()).encode());
    assert_eq!(byte(&mut waiting), RelayResponse::Waiting as u8);
    let mut connecting = ask(relay, &*RelayRequest::Connect(secret().token()).encode());
    take(&mut waiting);
    assert_eq!(byte(&mut connecting), RelayResponse::Connected as u8);
    [connecting, waiting].map(|mut stream| {
        let grant = grant(&mut stream);
        (stream, grant)
    })
}

fn udp_socket(relay: &Running) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(relay.address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket
}

/// Receives a datagram. A process that is stopped and goes on is interrupted.
fn receive(socket: &UdpSocket, to: &mut [u8]) -> usize {
    loop {
        match socket.recv(to) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            received => return received.unwrap(),
        }
    }
}

/// Binds a UDP address at the relay.
fn bound(relay: &Running, grant: &BindingGrant) -> UdpSocket {
    let socket = udp_socket(relay);
    let mut binding = RelayBinding::new(grant, now());
    while !binding.is_bound() {
        if let Some(request) = binding.poll_transmit(now()) {
            socket.send(&request).unwrap();
            let mut answer = [0; 200];
            let len = receive(&socket, &mut answer);
            assert!(len <= request.len(), "{len}");
            binding.handle_datagram(now(), &answer[..len]);
        }
    }
    assert_eq!(binding.observed(), Some(socket.local_addr().unwrap()));
    socket
}

/// Nothing is forwarded before both have proven their addresses, from a stranger, or after the pair
/// has ended. A stranger gets nothing.
#[test]
fn datagrams_are_forwarded_between_the_parties_of_a_pair_only() {
    let relay = relay();
    let [(connecting, one), (waiting, two)] = granted(&relay);
    let one_socket = bound(&relay, &one);
    one_socket.send(b"early").unwrap();
    relay.until(|status| status.dropped_datagrams == 1);
    let two_socket = bound(&relay, &two);
    let stranger = udp_socket(&relay);
    let key = SharedKey::new(&[9; 32]);
    stranger.send(b"data").unwrap();
    stranger.send(&request(one.id, &key, [0; 16])).unwrap();
    stranger.send(&[0; 1400]).unwrap();
    one_socket.send(b"to two").unwrap();
    let mut received = [0; 200];
    let len = receive(&two_socket, &mut received);
    assert_eq!(&received[..len], b"to two");
    two_socket.send(b"to one").unwrap();
    let len = receive(&one_socket, &mut received);
    assert_eq!(&received[..len], b"to one");
    // The relay handles datagrams in order: it would have answered the stranger before.
    stranger.set_nonblocking(true).unwrap();
    assert!(stranger.recv(&mut received).is_err());
    relay.until(|status| (status.dropped_datagrams, status.datagram_bytes) == (4, 12));
    drop((connecting, waiting));
    relay.until(|status| status.pairs == 0);
    one_socket.send(b"late").unwrap();
    relay.until(|status| status.dropped_datagrams == 5);
    two_socket.set_nonblocking(true).unwrap();
    assert!(two_socket.recv(&mut received).is_err());
}

/// The parties then use TCP, and the operator sees why.
#[test]
fn a_udp_port_that_another_program_uses_is_a_problem_of_the_status() {
    let relay = relay_at("0.0.0.0:0");
    let local = SocketAddr::from(([127, 0, 0, 1], relay.address.port()));
    let relay = Running { address: local, ..relay };
    let other = UdpSocket::bind(local).unwrap();
    drop(granted(&relay));
    let problem = relay.until(|status| status.problem.is_some()).problem.unwrap();
    assert!(problem.text.contains(&format!("no datagrams are received at {local}")), "{problem}");
    drop(other);
    let [(_connecting, grant), _waiting] = granted(&relay);
    bound(&relay, &grant);
    relay.until(|status| status.problem.is_none());
}
