//! Streams to and from the original C++ library.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::Instant;

use sunder_sabul::{SabulConfig, connect, listen};
use udp::streams::UdpStream;

const BYTES: usize = 64 << 20;

/// The program with the original library, compiled once.
fn peer() -> &'static Path {
    static PEER: LazyLock<PathBuf> = LazyLock::new(|| {
        let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("libudt-peer");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/libudt/peer.cpp");
        let mut compiler = Command::new("g++");
        compiler.args(["-O2", "-w", "-o"]).arg(&program).args([source, "-ludt", "-lpthread"]);
        assert!(compiler.status().expect("g++ runs").success(), "the peer does not compile");
        program
    });
    &PEER
}

/// A running peer process, killed when dropped.
struct Peer(Child);

impl Peer {
    fn start(arguments: &[String]) -> Self {
        Self(Command::new(peer()).args(arguments).stdout(Stdio::piped()).spawn().unwrap())
    }

    fn ends(&mut self) {
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The bytes of the stream, as the peer computes them.
fn stream_bytes() -> impl Iterator<Item = u8> {
    let mut x = 1_u64;
    let next = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 56) as u8
    };
    std::iter::repeat_with(next).take(1_000_003).collect::<Vec<u8>>().into_iter().cycle()
}

#[test]
fn libudt_receives() {
    let mut peer = Peer::start(&["receive".into(), "0".into(), BYTES.to_string()]);
    let mut lines = BufReader::new(peer.0.stdout.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    let port: u16 = line.strip_prefix("listening ").unwrap().parse().unwrap();
    let mut stream = connect((Ipv4Addr::LOCALHOST, port).into(), SabulConfig::default()).unwrap();
    let bytes: Vec<u8> = stream_bytes().take(BYTES).collect();
    let began = Instant::now();
    stream.write_all(&bytes).unwrap();
    let mut answer = [0];
    stream.read_exact(&mut answer).unwrap();
    eprintln!("{:?} {:?}", began.elapsed(), stream.statistics());
    drop(stream);
    assert!(lines.next().unwrap().unwrap().starts_with("{\"complete_s\""));
    peer.ends();
}

#[test]
fn libudt_sends() {
    let acceptor = listen((Ipv4Addr::LOCALHOST, 0).into(), SabulConfig::default(), 1).unwrap();
    let SocketAddr::V4(local) = acceptor.local_addr() else { unreachable!() };
    let began = Instant::now();
    let mut peer = Peer::start(&[
        "send".into(),
        local.ip().to_string(),
        local.port().to_string(),
        BYTES.to_string(),
    ]);
    let mut stream = acceptor.accept().unwrap().stream;
    check(&mut stream);
    stream.write_all(b"!").unwrap();
    eprintln!("{:?} {:?}", began.elapsed(), stream.statistics());
    stream.finish().unwrap();
    peer.ends();
}

fn check(stream: &mut UdpStream) {
    let mut expected = stream_bytes();
    let mut buffer = vec![0; 1 << 16];
    let mut done = 0;
    while done < BYTES {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "the stream ends at {done}");
        assert!(buffer[..count].iter().all(|byte| Some(*byte) == expected.next()), "at {done}");
        done += count;
    }
}

#[test]
fn a_stream_to_oneself() {
    let acceptor = listen((Ipv4Addr::LOCALHOST, 0).into(), SabulConfig::default(), 1).unwrap();
    let mut stream = connect(acceptor.local_addr(), SabulConfig::default()).unwrap();
    let mut accepted = acceptor.accept().unwrap().stream;
    let bytes: Vec<u8> = stream_bytes().take(BYTES).collect();
    let began = Instant::now();
    let sender = std::thread::spawn(move || {
        stream.write_all(&bytes).unwrap();
        stream.finish().unwrap();
        stream.statistics()
    });
    check(&mut accepted);
    eprintln!("{:?} {:?}", began.elapsed(), sender.join().unwrap());
}
