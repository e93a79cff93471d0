//! Where what was received goes: packets to their taker, the rest into notes for the monitor.

use std::time::Duration;

use crate::endpoint::event::Packets;
use crate::recv::deliver::{ControlShare, Deliver};
use crate::wire::datagram::Kind;

/// What is to be told to the monitor.
pub(super) enum Note {
    Share(ControlShare),
    Message { number: u64, bytes: Vec<u8>, at: Duration },
}

/// Where what is not packets goes: into notes.
pub(super) struct Delivery<'a, P> {
    pub(super) packets: &'a mut P,
    pub(super) notes: &'a mut Vec<Note>,
    pub(super) at: Duration,
}

impl<P: Packets> Deliver for Delivery<'_, P> {
    fn packets(&mut self, kind: Kind, packets: &[u8]) {
        self.packets.take(kind, packets);
    }

    fn control(&mut self, number: u64, message: &[u8]) {
        self.notes.push(Note::Message { number, bytes: message.to_vec(), at: self.at });
    }

    fn control_share(&mut self, share: ControlShare) {
        self.notes.push(Note::Share(share));
    }
}
