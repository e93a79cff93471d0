//! Reads the UDP datagrams in a pcapng capture.
//!
//! Supports files from a tap on a link, and those that tcpdump or Wireshark save as pcapng from
//! Ethernet, raw IP and loopback interfaces. Skips fragments and all packets other than UDP over
//! IP.

use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};

/// The maximum length of a block, in bytes. Packets have at most 64 KiB.
const MAX_BLOCK_LEN: usize = 1 << 20;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;

const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const ETHERNET: u16 = 1;
const RAW: u16 = 101;

/// A captured datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedDatagram {
    /// The source.
    pub from: SocketAddr,
    /// The destination.
    pub to: SocketAddr,
    /// The payload of the datagram.
    pub payload: Vec<u8>,
}

/// The datagrams of a pcapng file, in the file's order.
#[derive(Debug)]
pub struct PcapngReader<R> {
    file: R,
    is_big_endian: bool,
    /// Whether a section header was read. A file begins with one.
    has_begun: bool,
    /// The link types of the section's interfaces.
    interfaces: Vec<u16>,
}

impl<R: Read> PcapngReader<R> {
    /// Reads from the start of a file.
    pub fn new(file: R) -> Self {
        Self { file, is_big_endian: false, has_begun: false, interfaces: Vec::new() }
    }

    /// The next datagram; `None` at the end of the file.
    ///
    /// # Errors
    /// If the file cannot be read or is not pcapng.
    pub fn next_datagram(&mut self) -> io::Result<Option<CapturedDatagram>> {
        while let Some((kind, body)) = self.next_block()? {
            match kind {
                SECTION => self.interfaces.clear(),
                INTERFACE => self.interfaces.push(self.u16(&body, 0)?),
                PACKET => {
                    if let Some(datagram) = self.datagram(&body)? {
                        return Ok(Some(datagram));
                    }
                }
                _ => {}
            }
        }
        Ok(None)
    }

    fn next_block(&mut self) -> io::Result<Option<(u32, Vec<u8>)>> {
        let mut head = [0; 8];
        match self.file.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let mut rest = Vec::new();
        if head[..4] == SECTION.to_ne_bytes() {
            // The section header states the byte order, also of its own length.
            let mut magic = [0; 4];
            self.file.read_exact(&mut magic)?;
            self.is_big_endian = match magic {
                _ if u32::from_be_bytes(magic) == BYTE_ORDER => true,
                _ if u32::from_le_bytes(magic) == BYTE_ORDER => false,
                _ => return Err(damaged("its byte order is unknown")),
            };
            self.has_begun = true;
            rest.extend(magic);
        } else if !self.has_begun {
            return Err(damaged(
                "it is not pcapng (tcpdump's own format: convert it with editcap)",
            ));
        }
        let kind = self.u32(&head, 0)?;
        let length = usize::try_from(self.u32(&head, 4)?).unwrap_or(usize::MAX);
        if !(12..=MAX_BLOCK_LEN).contains(&length) || length % 4 != 0 {
            return Err(damaged("a block has an impossible length"));
        }
        let read = rest.len();
        rest.resize(length - 8, 0);
        self.file.read_exact(&mut rest[read..]).map_err(|_| damaged("it ends within a block"))?;
        rest.truncate(length - 12);
        Ok(Some((kind, rest)))
    }

    /// The UDP datagram in a packet block.
    fn datagram(&self, body: &[u8]) -> io::Result<Option<CapturedDatagram>> {
        let interface = self.u32(body, 0)? as usize;
        let length = self.u32(body, 12)? as usize;
        let packet = body.get(20..20 + length).ok_or_else(|| damaged("a packet is cut off"))?;
        let packet = match self.interfaces.get(interface) {
            Some(&RAW) => packet,
            Some(&ETHERNET) => packet.get(14..).unwrap_or_default(),
            _ => return Ok(None),
        };
        Ok(datagram(packet))
    }

    fn u32(&self, bytes: &[u8], at: usize) -> io::Result<u32> {
        let word = bytes.get(at..).and_then(|rest| rest.first_chunk()).copied();
        let word: [u8; 4] = word.ok_or_else(|| damaged("a block is too short"))?;
        Ok(if self.is_big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) })
    }

    fn u16(&self, bytes: &[u8], at: usize) -> io::Result<u16> {
        let half = bytes.get(at..).and_then(|rest| rest.first_chunk()).copied();
        let half: [u8; 2] = half.ok_or_else(|| damaged("a block is too short"))?;
        Ok(if self.is_big_endian { u16::from_be_bytes(half) } else { u16::from_le_bytes(half) })
    }
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The UDP datagram in an IP packet, if the packet is one and is not truncated.
fn datagram(packet: &[u8]) -> Option<CapturedDatagram> {
    const UDP: u8 = 17;
    let (from, to, rest): (IpAddr, IpAddr, &[u8]) = match packet.first()? >> 4 {
        4 => {
            let header = usize::from(packet[0] & 0x0f) * 4;
            let length = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
            let is_fragment = (packet.get(6)? & 0x3f, *packet.get(7)?) != (0, 0);
            if header < 20 || is_fragment || *packet.get(9)? != UDP {
                return None;
            }
            let address = |at: usize| Some(IpAddr::from(*packet.get(at..)?.first_chunk::<4>()?));
            (address(12)?, address(16)?, packet.get(header..length)?)
        }
        6 => {
            let length = 40 + usize::from(u16::from_be_bytes([*packet.get(4)?, *packet.get(5)?]));
            if *packet.get(6)? != UDP {
                return None;
            }
            let address = |at: usize| Some(IpAddr::from(*packet.get(at..)?.first_chunk::<16>()?));
            (address(8)?, address(24)?, packet.get(40..length)?)
        }
        _ => return None,
    };
    let (head, payload) = rest.split_first_chunk::<8>()?;
    let port = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    Some(CapturedDatagram {
        from: SocketAddr::new(from, port(0)),
        to: SocketAddr::new(to, port(2)),
        payload: payload.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 12).unwrap().to_le_bytes();
        [&kind.to_le_bytes()[..], &length, body, &length].concat()
    }

    /// A file with one interface and these packets.
    fn file(link_type: u16, packets: &[Vec<u8>]) -> Vec<u8> {
        let section = [&BYTE_ORDER.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
        let interface = [&link_type.to_le_bytes()[..], &[0; 6]].concat();
        let mut file = [block(SECTION, &section), block(INTERFACE, &interface)].concat();
        for packet in packets {
            let length = u32::try_from(packet.len()).unwrap().to_le_bytes();
            let mut body = [&[0; 12][..], &length, &length, packet].concat();
            body.resize(body.len().next_multiple_of(4), 0);
            file.extend(block(PACKET, &body));
        }
        file
    }

    /// 192.0.2.1:1000 to 192.0.2.2:2000.
    fn packet(payload: &[u8]) -> Vec<u8> {
        let length = u16::try_from(28 + payload.len()).unwrap().to_be_bytes();
        let mut packet = vec![0x45, 0, length[0], length[1], 0, 0, 0x40, 0, 64, 17, 0, 0];
        packet.extend([192, 0, 2, 1, 192, 0, 2, 2, 3, 0xe8, 7, 0xd0, 0, 0, 0, 0]);
        packet.extend(payload);
        packet
    }

    fn all(file: &[u8]) -> io::Result<Vec<CapturedDatagram>> {
        let mut capture = PcapngReader::new(file);
        std::iter::from_fn(|| capture.next_datagram().transpose()).collect()
    }

    #[test]
    fn datagrams_are_found_in_raw_and_in_ethernet_captures() {
        let expected = CapturedDatagram {
            from: "192.0.2.1:1000".parse().unwrap(),
            to: "192.0.2.2:2000".parse().unwrap(),
            payload: b"share".to_vec(),
        };
        let other = vec![0x45; 30];
        let expected = [expected];
        assert_eq!(all(&file(RAW, &[packet(b"share"), other])).unwrap(), expected);
        let frame = [&[0; 14][..], &packet(b"share")].concat();
        assert_eq!(all(&file(ETHERNET, &[frame])).unwrap(), expected);
        assert_eq!(all(&file(9, &[packet(b"share")])).unwrap(), []);
    }

    #[test]
    fn other_files_are_rejected() {
        assert!(all(b"").unwrap().is_empty());
        let pcap = [&[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0][..], &[0; 16]].concat();
        assert!(all(&pcap).unwrap_err().to_string().contains("editcap"));
        let good = file(RAW, &[packet(b"share")]);
        assert!(all(&good[..good.len() - 1]).unwrap_err().to_string().contains("ends within"));
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_parsed(bytes: Vec<u8>, place in any::<proptest::sample::Index>(), byte: u8) {
            let _ = all(&bytes);
            let mut good = file(RAW, &[packet(b"share"), packet(b"another")]);
            let place = place.index(good.len());
            good[place] = byte;
            let _ = all(&good);
        }
    }
}
