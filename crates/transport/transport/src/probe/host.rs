//! The capabilities of this host.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::thread;
use std::time::Instant;

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use udp::SocketBinding;

use super::packet::HostCapabilities;
use crate::model::TcpCongestionControl;

/// The requested buffer size: more than Linux's default limits.
const WANTED_BUFFER: usize = 256 << 20;
/// How much is read to measure the reading rate.
const READ_LEN: usize = 4 << 20;
const BLOCK_LEN: usize = 64 << 10;

/// The capabilities of this host. `congestion`: TCP's congestion control, if not the system's
/// default. They are measured once per process, which takes some milliseconds.
pub(crate) fn info(congestion: Option<&str>) -> HostCapabilities {
    static INFO: OnceLock<HostCapabilities> = OnceLock::new();
    let info = *INFO.get_or_init(measure);
    let congestion = congestion.map_or(info.congestion, TcpCongestionControl::named);
    HostCapabilities { congestion, ..info }
}

fn measure() -> HostCapabilities {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).ok();
    let send = socket.as_ref().and_then(|socket| {
        socket.set_send_buffer_size(WANTED_BUFFER).ok()?;
        socket.send_buffer_size().ok()
    });
    let recv = socket.as_ref().and_then(|socket| {
        socket.set_recv_buffer_size(WANTED_BUFFER).ok()?;
        socket.recv_buffer_size().ok()
    });
    let congestion = socket.and_then(|socket| socket.tcp_congestion().ok());
    let congestion = congestion.map_or(TcpCongestionControl::Cubic, |name| {
        let name = String::from_utf8_lossy(&name);
        TcpCongestionControl::named(name.trim_end_matches('\0'))
    });
    let any = SocketBinding { local: ([127, 0, 0, 1], 0).into(), device: None };
    let udp = udp::UdpBatchSocket::bind(&any).ok();
    let udp = udp.and_then(|socket| SockRef::from(&socket).recv_buffer_size().ok());
    HostCapabilities {
        tcp_send_buffer: usable(send, "tcp_wmem"),
        tcp_recv_buffer: usable(recv, "tcp_rmem"),
        udp_recv_buffer: udp.unwrap_or(0) as u64 / 2,
        reading_rate: reading_rate().unwrap_or(0),
        congestion,
        has_mptcp: Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).is_ok(),
    }
}

/// The stream bytes that fit into a buffer: about half of its size, because the kernel uses the
/// rest. The size is the one that was set, or the limit to which the kernel lets it grow.
fn usable(set: Option<usize>, limits: &str) -> u64 {
    let grown = fs::read_to_string(format!("/proc/sys/net/ipv4/{limits}")).ok();
    let grown = grown.and_then(|text| text.split_whitespace().nth(2)?.parse().ok());
    set.unwrap_or(0).max(grown.unwrap_or(0)) as u64 / 2
}

/// The rate at which a thread reads from a socket, in bytes/s.
fn reading_rate() -> Option<u64> {
    let (mut from, mut to) = UnixStream::pair().ok()?;
    let writing = thread::Builder::new().name("reading-rate".into()).spawn(move || {
        let block = vec![0; BLOCK_LEN];
        (0..READ_LEN / BLOCK_LEN).all(|_| to.write_all(&block).is_ok())
    });
    let writing = writing.ok()?;
    let start = Instant::now();
    let mut block = vec![0; BLOCK_LEN];
    let mut left = READ_LEN;
    while left > 0 {
        match from.read(&mut block).ok()? {
            0 => return None,
            count => left = left.saturating_sub(count),
        }
    }
    let seconds = start.elapsed().as_secs_f64().max(1e-6);
    writing.join().ok()?;
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate, rounded"
    )]
    Some((READ_LEN as f64 / seconds) as u64)
}
