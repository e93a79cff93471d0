//! Delivers what was received: packets to their sink, the rest as notes for the monitor.

use std::time::Duration;

use crate::protocol::endpoint::event::PacketSink;
use crate::protocol::recv::symbol_sink::{ControlShare, SymbolSink};
use crate::protocol::wire::datagram::SymbolKind;

/// Something received that the monitor must handle.
pub(super) enum MonitorNote {
    Share(ControlShare),
    Message { number: u64, bytes: Vec<u8>, at: Duration },
}

/// Delivers packets to a sink, and keeps the rest as notes.
pub(super) struct PacketDelivery<'a, P> {
    pub(super) packets: &'a mut P,
    pub(super) notes: &'a mut Vec<MonitorNote>,
    pub(super) at: Duration,
}

impl<P: PacketSink> SymbolSink for PacketDelivery<'_, P> {
    fn packets(&mut self, kind: SymbolKind, packets: &[u8]) {
        self.packets.take(kind, packets);
    }

    fn control(&mut self, number: u64, message: &[u8]) {
        self.notes.push(MonitorNote::Message { number, bytes: message.to_vec(), at: self.at });
    }

    fn control_share(&mut self, share: ControlShare) {
        self.notes.push(MonitorNote::Share(share));
    }
}
