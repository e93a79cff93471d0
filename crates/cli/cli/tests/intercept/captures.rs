//! What an eavesdropper on one channel finds.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The length of the pieces that are searched for.
const PIECE_LEN: usize = 12;

/// Bytes that occur in no capture by chance.
pub(crate) fn secret(len: usize) -> Vec<u8> {
    std::iter::repeat_with(|| fastrand::u8(..)).take(len).collect()
}

/// Checks that a secret has crossed the channels, and that no capture contains a piece of it.
pub(crate) fn assert_hidden(captures: &[Vec<u8>], secret: &[u8]) {
    for (channel, capture) in captures.iter().enumerate() {
        let (len, needed) = (capture.len(), secret.len());
        assert!(len > needed, "channel {channel} has {len} of {needed} bytes");
        for piece in secret.chunks_exact(PIECE_LEN).step_by(secret.len() / PIECE_LEN / 50 + 1) {
            let found = capture.windows(PIECE_LEN).any(|window| window == piece);
            assert!(!found, "channel {channel} shows what crossed");
        }
    }
}

/// The port of the channels.
pub(crate) const CHANNEL_PORT: u16 = 7000;

/// Captured TCP packets that are not a channel's: their number for each address of the server, as
/// source or destination. Packets of other hosts count for their destination.
pub(crate) fn clear_packets(captures: &[Vec<u8>], channel: u16) -> BTreeMap<IpAddr, usize> {
    let mut clear = BTreeMap::new();
    for (_, packet) in captures.iter().flat_map(|capture| packets(capture)) {
        let Some((from, to)) = tcp_ends(packet) else { continue };
        if from.port() != channel && to.port() != channel {
            let server = if from.port() < to.port() { from } else { to };
            *clear.entry(server.ip()).or_default() += 1;
        }
    }
    clear
}

/// The source and the destination of captured SYNs to this port.
pub(crate) fn opened(captures: &[Vec<u8>], port: u16) -> Vec<(SocketAddr, SocketAddr)> {
    const SYN: u8 = 2;
    let packets = captures.iter().flat_map(|capture| packets(capture));
    let opening = packets.filter_map(|(_, packet)| {
        let tcp = if packet[0] >> 4 == 4 { usize::from(packet[0] & 15) * 4 } else { 40 };
        tcp_ends(packet).filter(|(_, to)| to.port() == port && packet[tcp + 13] & SYN != 0)
    });
    opening.collect()
}

/// The number of captured UDP datagrams to this port.
pub(crate) fn datagrams(captures: &[Vec<u8>], port: u16) -> usize {
    const UDP: u8 = 17;
    let packets = captures.iter().flat_map(|capture| packets(capture));
    let datagrams = packets.filter(|(_, packet)| {
        let (protocol, udp) = match packet[0] >> 4 {
            4 => (packet[9], usize::from(packet[0] & 15) * 4),
            _ => (packet[6], 40),
        };
        protocol == UDP && packet[udp + 2..udp + 4] == port.to_be_bytes()
    });
    datagrams.count()
}

/// The bytes of TCP payload that were captured after a time: for each address of a server at this
/// port, those sent to it and those that it has sent.
pub(crate) fn payload_after(
    captures: &[Vec<u8>],
    port: u16,
    time: SystemTime,
) -> BTreeMap<IpAddr, [usize; 2]> {
    let mut sent = BTreeMap::<IpAddr, [usize; 2]>::new();
    for (at, packet) in captures.iter().flat_map(|capture| packets(capture)) {
        let Some((from, to)) = tcp_ends(packet).filter(|_| at > time) else { continue };
        let (server, way) = if to.port() == port { (to, 0) } else { (from, 1) };
        let len = payload_len(packet);
        if server.port() == port && len > 0 {
            sent.entry(server.ip()).or_default()[way] += len;
        }
    }
    sent
}

/// The length of a TCP packet's payload.
fn payload_len(packet: &[u8]) -> usize {
    let word = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    let (tcp, end) = match packet[0] >> 4 {
        4 => (usize::from(packet[0] & 15) * 4, word(2)),
        _ => (40, 40 + word(4)),
    };
    end - tcp - usize::from(packet[tcp + 12] >> 4) * 4
}

/// The packets of a pcapng capture with this machine's byte order, with their times.
fn packets(capture: &[u8]) -> impl Iterator<Item = (SystemTime, &[u8])> {
    const PACKET: u32 = 6;
    let word = |bytes: &[u8], at: usize| {
        u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
    };
    let mut rest = capture;
    let blocks = std::iter::from_fn(move || {
        let len = (rest.len() >= 12).then(|| word(rest, 4) as usize)?;
        let (block, after) = rest.split_at(len);
        rest = after;
        Some(block)
    });
    blocks.filter(move |block| word(block, 0) == PACKET).map(move |block| {
        let nanos = u64::from(word(block, 12)) << 32 | u64::from(word(block, 16));
        let len = word(block, 20) as usize;
        (UNIX_EPOCH + Duration::from_nanos(nanos), &block[28..28 + len])
    })
}

/// The source and the destination of a TCP packet.
fn tcp_ends(packet: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    const TCP: u8 = 6;
    let (from, to, tcp): (IpAddr, IpAddr, &[u8]) = match packet.first()? >> 4 {
        4 if packet[9] == TCP => {
            let address = |at: usize| <[u8; 4]>::try_from(&packet[at..at + 4]).expect("four bytes");
            (address(12).into(), address(16).into(), &packet[usize::from(packet[0] & 15) * 4..])
        }
        6 if packet[6] == TCP => {
            let address = |at: usize| <[u8; 16]>::try_from(&packet[at..at + 16]).expect("16 bytes");
            (address(8).into(), address(24).into(), &packet[40..])
        }
        _ => return None,
    };
    let port = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
    Some(((from, port(0)).into(), (to, port(2)).into()))
}
