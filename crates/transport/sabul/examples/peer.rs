//! Sends or receives a stream of pseudorandom bytes: the counterpart of `tests/libudt/peer.cpp`,
//! with the same arguments, stream and output.
//!
//! usage: `peer send HOST PORT BYTES | peer receive PORT BYTES`

use std::io::{Error, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant;

use sunder_sabul::{SabulConfig, connect, listen};
use udp::streams::UdpStream;

/// The stream repeats this many pseudorandom bytes.
const PERIOD: usize = 1_000_003;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let config =
        SabulConfig { send_buffer: 256 << 20, receive_buffer: 256 << 20, ..SabulConfig::default() };
    match arguments[..] {
        ["send", host, port, bytes] => {
            let peer = SocketAddr::new(host.parse::<IpAddr>()?, port.parse()?);
            let began = Instant::now();
            let mut stream = connect(peer, config)?;
            println!("connected {:.4}", began.elapsed().as_secs_f64());
            let began = Instant::now();
            send(&mut stream, bytes.parse()?)?;
            println!("{{\"complete_s\": {:.4}}}", began.elapsed().as_secs_f64());
        }
        ["receive", port, bytes] => {
            let local = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port.parse()?);
            let acceptor = listen(local, config, 1)?;
            println!("listening {}", acceptor.local_addr().port());
            let mut stream = acceptor.accept()?.stream;
            let began = Instant::now();
            receive(&mut stream, bytes.parse()?)?;
            println!("{{\"complete_s\": {:.4}}}", began.elapsed().as_secs_f64());
        }
        _ => return Err("usage: peer send HOST PORT BYTES | peer receive PORT BYTES".into()),
    }
    Ok(())
}

fn send(stream: &mut UdpStream, total: usize) -> Result<(), Error> {
    let period = period();
    let mut left = total;
    while left > 0 {
        let count = left.min(PERIOD);
        stream.write_all(&period[..count])?;
        left -= count;
    }
    // The answer confirms that everything has arrived.
    stream.read_exact(&mut [0])
}

fn receive(stream: &mut UdpStream, total: usize) -> Result<(), Error> {
    let period = period();
    let mut buffer = vec![0; 1 << 18];
    let mut done = 0;
    while done < total {
        let at = done % PERIOD;
        let want = buffer.len().min(total - done).min(PERIOD - at);
        let count = stream.read(&mut buffer[..want])?;
        if count == 0 || buffer[..count] != period[at..at + count] {
            return Err(Error::other(format!("other bytes, or none, at {done}")));
        }
        done += count;
    }
    stream.write_all(b"!")?;
    stream.finish()
}

fn period() -> Vec<u8> {
    let mut x = 1_u64;
    let next = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        x.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(PERIOD).collect()
}
