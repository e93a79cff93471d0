//! The destinations of the packets in captures of links.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// The type of a block of pcapng with a packet.
const PACKET: u32 = 6;

/// The number of packets to each destination, in a capture of a link that was removed.
pub(crate) fn destinations(capture: &Path) -> BTreeMap<IpAddr, usize> {
    let bytes = fs::read(capture).unwrap();
    let mut counts = BTreeMap::new();
    for packet in packets(&bytes) {
        let destination = match packet[0] >> 4 {
            4 => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(&packet[16..20]).unwrap())),
            _ => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(&packet[24..40]).unwrap())),
        };
        *counts.entry(destination).or_default() += 1;
    }
    counts
}

/// The packets of a pcapng capture with this machine's byte order.
fn packets(capture: &[u8]) -> impl Iterator<Item = &[u8]> {
    let word = |bytes: &[u8], at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut rest = capture;
    let blocks = std::iter::from_fn(move || {
        let len = (rest.len() >= 12).then(|| word(rest, 4) as usize)?;
        let (block, after) = rest.split_at(len);
        rest = after;
        Some(block)
    });
    let packets = blocks.filter(move |block| word(block, 0) == PACKET);
    packets.map(move |block| &block[28..28 + word(block, 20) as usize])
}
