use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;

use keys::SecretKey;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use super::*;
use crate::net::{Listener, connect};
use crate::options::{Options, Security};
use crate::protocol::relay::{Answer, Request, Secret};
use crate::{Choice, Error, Step};

/// A relay, until this is dropped.
struct Running {
    address: SocketAddr,
    _stop: oneshot::Sender<()>,
    _runtime: Runtime,
}

fn relay() -> Running {
    let runtime = Runtime::new().unwrap();
    let relay = runtime.block_on(Relay::bind("127.0.0.1:0".parse().unwrap())).unwrap();
    let address = relay.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    runtime.spawn(relay.run(async { _ = stopped.await }));
    Running { address, _stop: stop, _runtime: runtime }
}

fn options(own: u8, peer: u8) -> Options {
    let secret = |number| SecretKey::new(&[number; 32]);
    Options::new(Security::pinned(secret(own), vec![secret(peer).public()]))
}

#[test]
fn two_parties_meet_again_and_again() {
    let relay = relay();
    let (listener, token) = Listener::via(&relay.address.to_string(), &options(2, 1)).unwrap();
    let address = format!("{token}@{}", relay.address);
    for round in 0..3_u8 {
        let mut one = connect(&address, &options(1, 2)).unwrap();
        let mut two = listener.accept().unwrap();
        assert_eq!(two.peer(), Some(SecretKey::new(&[1; 32]).public()));
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
}

#[test]
fn a_wrong_token_or_transport_is_named() {
    let relay = relay();
    let (_listener, token) = Listener::via(&relay.address.to_string(), &options(2, 1)).unwrap();
    for wrong in ["", "00", "x"] {
        let error = connect(&format!("{wrong}@{}", relay.address), &options(1, 2)).unwrap_err();
        assert!(matches!(error, Error::Address { .. }), "{error}");
    }
    let sabul = Options { transport: Choice::Named("sabul"), ..options(1, 2) };
    let error = connect(&format!("{token}@{}", relay.address), &sabul).unwrap_err();
    assert!(matches!(error, Error::Address { .. }), "{error}");
    // A relay that is not there.
    let error = connect(&format!("{token}@127.0.0.1:1"), &options(1, 2)).unwrap_err();
    assert!(matches!(error, Error::Io { step: Step::Relay, .. }), "{error}");
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
    assert_eq!(byte(&mut rubbish), Answer::Refused as u8);
    // One source waits under many tokens: the oldest are ended.
    for number in 0..100 {
        let secret = Secret::new(zeroize::Zeroizing::new([number; 32]));
        let mut waiting = ask(&relay, &*Request::Wait(secret).encode());
        assert_eq!(byte(&mut waiting), Answer::Waiting as u8);
        idle.push(waiting);
    }
    let (listener, token) = Listener::via(&relay.address.to_string(), &options(2, 1)).unwrap();
    let one = connect(&format!("{token}@{}", relay.address), &options(1, 2)).unwrap();
    listener.accept().unwrap();
    drop((one, idle));
}

#[test]
fn who_has_gone_is_not_connected() {
    let relay = relay();
    let secret = || Secret::new(zeroize::Zeroizing::new([7; 32]));
    let mut waiting = ask(&relay, &*Request::Wait(secret()).encode());
    assert_eq!(byte(&mut waiting), Answer::Waiting as u8);
    drop(waiting);
    // The sender is there first.
    let mut sender = ask(&relay, &*Request::Connect(secret().token()).encode());
    let mut waiting = ask(&relay, &*Request::Wait(secret()).encode());
    assert_eq!(byte(&mut sender), Answer::Connected as u8);
    while byte(&mut waiting) != Answer::Connected as u8 {}
    sender.write_all(b"there").unwrap();
    let mut received = [0; 5];
    waiting.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"there");
}
