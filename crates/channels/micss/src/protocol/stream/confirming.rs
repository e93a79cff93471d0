//! A client's wait for the Confirms (MICSS, III-D, step 5).

use std::time::Duration;

use association::{
    AssociationClientEvent, AssociationMessage, ClientHandshakeAbort, ConfirmCollector, CookieList,
};

use crate::protocol::incoming::ChannelLossReason;

/// The Confirms that have arrived so far.
pub(super) struct PendingConfirms {
    handshake: ConfirmCollector,
    /// The Confirm that the server must send on each channel.
    confirm: Vec<u8>,
    channels: Vec<ChannelConfirm>,
    /// The number of Confirms that are needed, and of those that have arrived.
    needed: usize,
    confirmed: usize,
    /// The time since when enough have arrived.
    enough_since: Option<Duration>,
}

/// What has arrived on a channel.
#[derive(Clone)]
struct ChannelConfirm {
    bytes: Vec<u8>,
    len: usize,
    /// Whether nothing more is read.
    is_done: bool,
}

impl PendingConfirms {
    /// Waits for the Confirms of this list.
    pub(super) fn new(list: CookieList) -> Self {
        let terms = list.terms();
        let confirm = AssociationMessage::Confirm(list.clone()).encode();
        let channel = ChannelConfirm { bytes: vec![0; confirm.len()], len: 0, is_done: false };
        Self {
            // The stream has its own deadline.
            handshake: ConfirmCollector::new(list, Duration::MAX),
            confirm,
            channels: vec![channel; terms.channels().into()],
            needed: terms.threshold().into(),
            confirmed: 0,
            enough_since: None,
        }
    }

    /// The channels whose Confirm is not complete.
    pub(super) fn wanted(&self) -> Vec<usize> {
        (0..self.channels.len()).filter(|&channel| !self.channels[channel].is_done).collect()
    }

    /// The buffer for a channel's next bytes: only up to the end of its Confirm, so that the
    /// records after it are not read.
    pub(super) fn space(&mut self, channel: usize) -> &mut [u8] {
        let ChannelConfirm { bytes, len, .. } = &mut self.channels[channel];
        &mut bytes[*len..]
    }

    /// Records that a channel has filled `len` bytes of its space, or has ended if there are none.
    /// Returns the reason to drop it, if its Confirm is wrong.
    pub(super) fn handle_received(
        &mut self,
        channel: usize,
        len: usize,
        now: Duration,
    ) -> Option<ChannelLossReason> {
        let known = &mut self.channels[channel];
        known.len += len;
        if len == 0 {
            return Some(ChannelLossReason::Ended);
        }
        if known.len < known.bytes.len() {
            return None;
        }
        if known.bytes != self.confirm {
            return Some(ChannelLossReason::Tampered);
        }
        known.is_done = true;
        self.handshake.handle_bytes(channel, &known.bytes, now);
        self.confirmed += 1;
        if self.confirmed == self.needed {
            self.enough_since = Some(now);
        }
        None
    }

    /// Continues without a channel. If it had confirmed, the wait continues until enough of the
    /// remaining channels have confirmed.
    pub(super) fn exclude(&mut self, channel: usize) {
        if !std::mem::replace(&mut self.channels[channel].is_done, true) {
            self.handshake.exclude(channel);
            return;
        }
        self.confirmed -= 1;
        if self.confirmed < self.needed {
            self.enough_since = None;
        }
    }

    /// The error of a stream that cannot continue without a channel that does not bring its
    /// Confirm.
    pub(super) fn reject(&mut self, channel: usize, now: Duration) -> Option<ClientHandshakeAbort> {
        let ChannelConfirm { bytes, len, .. } = &self.channels[channel];
        if *len == bytes.len() {
            self.handshake.handle_bytes(channel, bytes, now);
        } else {
            self.handshake.handle_closed(channel);
        }
        match self.handshake.poll_event()? {
            AssociationClientEvent::Aborted { reason } => Some(reason),
            AssociationClientEvent::Associated { .. } => None,
        }
    }

    /// The time since when enough Confirms have arrived.
    pub(super) fn enough_since(&self) -> Option<Duration> {
        self.enough_since
    }

    /// Whether every channel that is not excluded has confirmed.
    pub(super) fn is_confirmed(&mut self) -> bool {
        matches!(self.handshake.poll_event(), Some(AssociationClientEvent::Associated { .. }))
    }
}
