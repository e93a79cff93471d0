//! Joins the two parts of packets that did not fit one datagram.

use std::collections::VecDeque;

use zeroize::Zeroizing;

use crate::protocol::recv::symbol_sink::{ControlShare, SymbolSink};
use crate::protocol::wire::datagram::SymbolKind;
use crate::protocol::wire::part::PacketsPart;

/// The maximum number of parts that wait for their other part. The oldest are evicted.
const MAX_WAITING_PARTS: usize = 64;

/// The parts of verified symbols whose other part has not arrived.
#[derive(Default)]
pub(super) struct PartJoiner(VecDeque<WaitingPacketsPart>);

struct WaitingPacketsPart {
    id: u32,
    is_second: bool,
    bytes: Zeroizing<Vec<u8>>,
}

impl PartJoiner {
    /// Takes a part. Returns the packets if the other part was waiting.
    fn join(&mut self, part: &PacketsPart<'_>) -> Option<Zeroizing<Vec<u8>>> {
        let is_other =
            |other: &WaitingPacketsPart| other.id == part.id && other.is_second != part.is_second;
        if let Some(place) = self.0.iter().position(is_other) {
            let other = self.0.remove(place)?;
            let (first, second) = if part.is_second {
                (&other.bytes[..], part.bytes)
            } else {
                (part.bytes, &other.bytes[..])
            };
            return Some(Zeroizing::new([first, second].concat()));
        }
        if self.0.len() >= MAX_WAITING_PARTS {
            self.0.pop_front();
        }
        let bytes = Zeroizing::new(part.bytes.to_vec());
        self.0.push_back(WaitingPacketsPart { id: part.id, is_second: part.is_second, bytes });
        None
    }
}

/// Joins parts, and delivers everything else as it is.
pub(super) struct JoinedDelivery<'a, D> {
    pub(super) joiner: &'a mut PartJoiner,
    pub(super) deliver: &'a mut D,
}

impl<D: SymbolSink> SymbolSink for JoinedDelivery<'_, D> {
    fn packets(&mut self, kind: SymbolKind, packets: &[u8]) {
        if kind != SymbolKind::Part {
            return self.deliver.packets(kind, packets);
        }
        let Some(part) = PacketsPart::parse(packets) else { return };
        if let Some(packets) = self.joiner.join(&part) {
            self.deliver.packets(part.kind(), &packets);
        }
    }

    fn control(&mut self, number: u64, message: &[u8]) {
        self.deliver.control(number, message);
    }

    fn control_share(&mut self, share: ControlShare) {
        self.deliver.control_share(share);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(id: u32, is_second: bool, bytes: &[u8]) -> PacketsPart<'_> {
        PacketsPart { id, is_second, has_partial_checksum: false, bytes }
    }

    #[test]
    fn parts_are_joined_in_any_order() {
        let mut joiner = PartJoiner::default();
        assert_eq!(joiner.join(&part(1, false, &[1, 2])), None);
        assert_eq!(joiner.join(&part(2, true, &[5])), None);
        assert_eq!(**joiner.join(&part(1, true, &[3])).unwrap(), [1, 2, 3]);
        assert_eq!(**joiner.join(&part(2, false, &[4])).unwrap(), [4, 5]);
        assert!(joiner.0.is_empty());
    }

    #[test]
    fn parts_that_wait_are_bounded_and_the_oldest_is_evicted() {
        let mut joiner = PartJoiner::default();
        for id in 0..=64 {
            assert_eq!(joiner.join(&part(id, false, &[0])), None);
        }
        assert_eq!(joiner.0.len(), MAX_WAITING_PARTS);
        assert_eq!(joiner.join(&part(0, true, &[1])), None);
        assert!(joiner.join(&part(64, true, &[1])).is_some());
    }
}
