//! A part of packets that do not fit one datagram. Its symbol has the kind
//! [`SymbolKind::Part`](super::datagram::SymbolKind::Part), and this content:
//!
//! | length | field |
//! |---|---|
//! | 1 | 1 if it is the second part, and 2 if transport checksums are still to be computed |
//! | 4 | identifier, the same in both parts; consecutive |
//! | | bytes of the packets |

use crate::protocol::wire::datagram::SymbolKind;

/// The length of the fields before the bytes of the packets.
pub const PART_HEADER_LEN: usize = 5;

const SECOND: u8 = 1;
const PARTIAL_CHECKSUM: u8 = 2;

/// One of the two parts of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketsPart<'a> {
    /// The identifier, the same in both parts.
    pub id: u32,
    /// Whether it is the second part.
    pub is_second: bool,
    /// Whether transport checksums are still to be computed.
    pub has_partial_checksum: bool,
    /// Its bytes of the packets.
    pub bytes: &'a [u8],
}

impl<'a> PacketsPart<'a> {
    /// Parses the content of a symbol. `None` if it is malformed.
    pub fn parse(content: &'a [u8]) -> Option<Self> {
        let ([flags, id @ ..], bytes) = content.split_first_chunk::<PART_HEADER_LEN>()?;
        (*flags <= SECOND | PARTIAL_CHECKSUM).then_some(Self {
            id: u32::from_be_bytes(*id),
            is_second: flags & SECOND != 0,
            has_partial_checksum: flags & PARTIAL_CHECKSUM != 0,
            bytes,
        })
    }

    /// Appends the content to a symbol.
    pub fn append(&self, symbol: &mut Vec<u8>) {
        let second = if self.is_second { SECOND } else { 0 };
        let partial = if self.has_partial_checksum { PARTIAL_CHECKSUM } else { 0 };
        symbol.push(second | partial);
        symbol.extend(self.id.to_be_bytes());
        symbol.extend_from_slice(self.bytes);
    }

    /// The kind of a symbol that would have both parts.
    pub fn kind(&self) -> SymbolKind {
        if self.has_partial_checksum { SymbolKind::PartialPacket } else { SymbolKind::Packet }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_as_specified() {
        let part =
            PacketsPart { id: 7, is_second: true, has_partial_checksum: true, bytes: &[8, 9] };
        let mut symbol = vec![0];
        part.append(&mut symbol);
        assert_eq!(symbol, [0, 3, 0, 0, 0, 7, 8, 9]);
        assert_eq!(PacketsPart::parse(&symbol[1..]), Some(part));
        assert_eq!(
            (PacketsPart::parse(&[4, 0, 0, 0, 7, 8]), PacketsPart::parse(&[3, 0, 0, 0])),
            (None, None)
        );
    }
}
