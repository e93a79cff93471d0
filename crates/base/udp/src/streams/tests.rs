//! Tests of the driver with a minimal protocol over loopback.

mod toy;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::slot::{UdpStreamKey, UdpStreamSlot};
use super::{UdpStream, UdpStreamAcceptor, connect};
use crate::socket::{SocketBinding, UdpBatchSocket};
use toy::{Toy, ToyEndpoint};

fn socket() -> UdpBatchSocket {
    UdpBatchSocket::bind(&SocketBinding { local: (Ipv4Addr::LOCALHOST, 0).into(), device: None })
        .unwrap()
}

/// A listener of the protocols "a" and "b".
fn listener(backlog: usize) -> UdpStreamAcceptor {
    let endpoints: Vec<Box<dyn super::UdpStreamEndpoint>> =
        vec![Box::new(ToyEndpoint::new("a")), Box::new(ToyEndpoint::new("b"))];
    UdpStreamAcceptor::new(socket(), endpoints, backlog).unwrap()
}

fn connect_to(listener: &UdpStreamAcceptor, protocol: &'static str) -> UdpStream {
    connect(socket(), Box::new(Toy::client(protocol, listener.local_addr()))).unwrap()
}

fn pair() -> (UdpStream, UdpStream) {
    let listener = listener(1);
    (connect_to(&listener, "a"), listener.accept().unwrap().stream)
}

#[test]
fn protocols_share_a_socket() {
    let listener = listener(10);
    let stranger = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    stranger.send_to(b"what is this", listener.local_addr()).unwrap();
    for protocol in ["a", "b", "a", "b"] {
        let mut client = connect_to(&listener, protocol);
        let accepted = listener.accept().unwrap();
        assert_eq!(accepted.protocol, protocol);
        let mut server = accepted.stream;
        client.write_all(b"to the server").unwrap();
        server.write_all(b"to the client").unwrap();
        client.finish().unwrap();
        server.finish().unwrap();
        let (mut there, mut back) = (String::new(), String::new());
        server.read_to_string(&mut there).unwrap();
        client.read_to_string(&mut back).unwrap();
        assert_eq!((&*there, &*back), ("to the server", "to the client"));
        let counted = client.statistics();
        assert_eq!((counted.bytes_written, counted.bytes_read), (13, 13));
    }
}

#[test]
fn the_driver_gets_the_lock_before_a_program_that_takes_it_again() {
    let key = UdpStreamKey { endpoint: 0, id: 0 };
    let slot = UdpStreamSlot::new(key, Box::new(Toy::client("a", ([127, 0, 0, 1], 9).into())));
    let driver_was_first = |_: &i32| {
        let has_driven = AtomicBool::new(false);
        thread::scope(|scope| {
            let held = slot.lock_for_program();
            scope.spawn(|| {
                let _shared = slot.lock_for_driver();
                has_driven.store(true, Ordering::Relaxed);
            });
            while !slot.is_driver_waiting.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            // By now it usually sleeps.
            thread::sleep(Duration::from_millis(1));
            drop(held);
            let _again = slot.lock_for_program();
            has_driven.load(Ordering::Relaxed)
        })
    };
    let count = (0..100).filter(driver_was_first).count();
    assert!(count >= 90, "{count} of 100");
}

#[test]
fn a_closed_port_is_an_error_after_a_second() {
    let closed = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let error = connect(socket(), Box::new(Toy::client("a", closed))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    let unroutable = SocketAddr::from(([255, 255, 255, 255], 9));
    assert!(connect(socket(), Box::new(Toy::client("a", unroutable))).is_err());
}

#[test]
fn halves_work_in_their_own_threads() {
    let (client, mut server) = pair();
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|i| (i / 7).to_le_bytes()[0]).collect();
    let mut writer = client.clone();
    let to_write = bytes.clone();
    let writing = thread::spawn(move || {
        // More than the buffer of the test protocol, so that the writer must wait.
        writer.write_all(&to_write).unwrap();
        writer.finish().unwrap();
    });
    let echoing = thread::spawn(move || {
        let mut buffer = vec![0; 10_000];
        loop {
            let count = server.read(&mut buffer).unwrap();
            if count == 0 {
                return server.finish().unwrap();
            }
            server.write_all(&buffer[..count]).unwrap();
        }
    });
    let mut back = Vec::new();
    (&client).read_to_end(&mut back).unwrap();
    assert!(back == bytes);
    writing.join().unwrap();
    echoing.join().unwrap();
}

#[test]
fn what_was_written_arrives_although_the_stream_is_dropped() {
    let (mut client, mut server) = pair();
    let bytes = vec![7; 100_000];
    client.write_all(&bytes).unwrap();
    drop(client);
    let mut read = Vec::new();
    server.read_to_end(&mut read).unwrap();
    assert!(read == bytes);
}

#[test]
fn waiting_ends_with_the_timeout_or_when_the_stream_is_closed() {
    let (client, _server) = pair();
    client.set_timeout(Some(Duration::from_millis(1)));
    assert_eq!((&client).read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
    client.set_timeout(None);
    let reader = client.clone();
    let reading = thread::spawn(move || (&reader).read(&mut [0]).unwrap_err().kind());
    client.close();
    assert_eq!(reading.join().unwrap(), ErrorKind::NotConnected);
    assert_eq!((&client).write(&[0]).unwrap_err().kind(), ErrorKind::NotConnected);
}

#[test]
fn a_listener_without_room_refuses() {
    let listener = listener(1);
    let first = connect_to(&listener, "a");
    let second = connect(socket(), Box::new(Toy::client("b", listener.local_addr())));
    assert_eq!(second.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    drop(listener.accept().unwrap());
    drop(first);
    connect_to(&listener, "b");
}

#[test]
fn a_closed_listener_wakes_who_accepts() {
    let listener = listener(1);
    let mut client = connect_to(&listener, "a");
    let mut server = listener.accept().unwrap().stream;
    thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept().unwrap_err().to_string());
        listener.close();
        assert_eq!(accepting.join().unwrap(), "the listener was closed");
    });
    // Accepted connections continue.
    client.write_all(b"x").unwrap();
    server.read_exact(&mut [0]).unwrap();
}

#[test]
fn a_protocol_that_panics_ends_its_connections_with_an_error() {
    let (client, server) = pair();
    let SocketAddr::V4(_) = client.peer_addr() else { panic!("not the loopback") };
    (&client).write_all(toy::POISON).unwrap();
    let error = (&server).read(&mut [0; 100]).unwrap_err();
    assert_eq!(error.to_string(), "the socket of the connection has failed");
}
