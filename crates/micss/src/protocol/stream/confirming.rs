//! A client's wait for the Confirms (paper 001, III-D, step 5).

use std::time::Duration;

use association::{ClientAbort, ClientEvent, ConfirmCollector, List, Message};

use crate::protocol::incoming::{LATE_CHANNEL_TIMEOUT, Loss};

/// What has come of the Confirms so far.
pub(super) struct Confirming {
    handshake: ConfirmCollector,
    /// What the server sends on each channel, if it sends what it must.
    confirm: Vec<u8>,
    channels: Vec<Channel>,
    /// How many Confirms are needed, and how many have come.
    needed: usize,
    confirmed: usize,
    /// Until when the others are waited for, once enough have come.
    deadline: Option<Duration>,
}

/// What has come on a channel.
#[derive(Clone)]
struct Channel {
    bytes: Vec<u8>,
    len: usize,
    /// Nothing more is read.
    is_done: bool,
}

impl Confirming {
    /// A wait for the Confirms of this list.
    pub(super) fn new(list: List) -> Self {
        let terms = list.terms();
        let confirm = Message::Confirm(list.clone()).encode();
        let channel = Channel { bytes: vec![0; confirm.len()], len: 0, is_done: false };
        Self {
            // The stream has a deadline of its own.
            handshake: ConfirmCollector::new(list, Duration::MAX),
            confirm,
            channels: vec![channel; terms.channels().into()],
            needed: terms.threshold().into(),
            confirmed: 0,
            deadline: None,
        }
    }

    /// The channels whose Confirm is not complete.
    pub(super) fn wanted(&self) -> Vec<usize> {
        (0..self.channels.len()).filter(|&channel| !self.channels[channel].is_done).collect()
    }

    /// Where a channel's next bytes go: no further than its Confirm, so that the records behind it
    /// stay where they are.
    pub(super) fn space(&mut self, channel: usize) -> &mut [u8] {
        let Channel { bytes, len, .. } = &mut self.channels[channel];
        &mut bytes[*len..]
    }

    /// A channel has filled `len` bytes of its space, or has ended if there are none. Returns why it
    /// is to be lost, if it has not brought its Confirm.
    pub(super) fn handle_received(
        &mut self,
        channel: usize,
        len: usize,
        now: Duration,
    ) -> Option<Loss> {
        let known = &mut self.channels[channel];
        known.len += len;
        if len == 0 {
            return Some(Loss::Ended);
        }
        if known.len < known.bytes.len() {
            return None;
        }
        if known.bytes != self.confirm {
            return Some(Loss::Tampered);
        }
        known.is_done = true;
        self.handshake.handle_bytes(channel, &known.bytes, now);
        self.confirmed += 1;
        if self.confirmed == self.needed {
            self.deadline = Some(now + LATE_CHANNEL_TIMEOUT);
        }
        None
    }

    /// The stream goes on without a channel. It may have confirmed: the others are waited for then
    /// until enough of those that are left have.
    pub(super) fn exclude(&mut self, channel: usize) {
        if !std::mem::replace(&mut self.channels[channel].is_done, true) {
            self.handshake.exclude(channel);
            return;
        }
        self.confirmed -= 1;
        if self.confirmed < self.needed {
            self.deadline = None;
        }
    }

    /// The stream cannot go on without a channel, which does not bring its Confirm. Returns what is
    /// wrong.
    pub(super) fn reject(&mut self, channel: usize, now: Duration) -> Option<ClientAbort> {
        let Channel { bytes, len, .. } = &self.channels[channel];
        if *len == bytes.len() {
            self.handshake.handle_bytes(channel, bytes, now);
        } else {
            self.handshake.handle_closed(channel);
        }
        match self.handshake.poll_event()? {
            ClientEvent::Aborted { reason } => Some(reason),
            ClientEvent::Associated { .. } => None,
        }
    }

    /// Until when the Confirms of the others are waited for.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.deadline
    }

    /// Whether every channel has confirmed that is not excluded.
    pub(super) fn is_confirmed(&mut self) -> bool {
        matches!(self.handshake.poll_event(), Some(ClientEvent::Associated { .. }))
    }
}
