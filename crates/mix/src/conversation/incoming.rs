//! Fragments of a partner, until they are messages.

use std::collections::BTreeMap;

use zeroize::Zeroizing;

use super::WINDOW;
use crate::content::{Content, MAX_TEXT_LEN};
use crate::state::{Reader, StateError, put_bytes};

/// The stream of fragments from a partner.
#[derive(Default)]
pub(super) struct Incoming {
    /// Its number, or 0 if nothing has arrived.
    stream: u64,
    /// All fragments up to this one have arrived.
    received: u32,
    /// The text of those that no message has ended yet.
    text: Zeroizing<Vec<u8>>,
    /// Whether that text is longer than a message may be, and was dropped.
    too_long: bool,
    /// Fragments that arrived before others, and whether each is the last one of its message.
    ahead: BTreeMap<u32, (bool, Zeroizing<Vec<u8>>)>,
    /// Whether a fragment has arrived since the last acknowledgement.
    acknowledgement_due: bool,
}

impl Incoming {
    pub(super) fn is_acknowledgement_due(&self) -> bool {
        self.acknowledgement_due
    }

    /// The acknowledgement to write: the stream, and up to which fragment it has arrived.
    pub(super) fn acknowledge(&mut self) -> (u64, u32) {
        self.acknowledgement_due = false;
        (self.stream, self.received)
    }

    /// Takes a fragment. Returns the messages that it completes, or `None` if nothing has changed
    /// that has to be stored.
    pub(super) fn receive(&mut self, content: &Content<'_>) -> Option<Vec<String>> {
        if content.number == 0 {
            return None;
        }
        // Also of one that is ignored: the acknowledgement of it may be lost, and that of a lower
        // stream tells the sender that there was a greater one.
        self.acknowledgement_due = true;
        if content.stream > self.stream {
            let stream = content.stream;
            *self = Self { stream, acknowledgement_due: true, ..Self::default() };
        }
        let ahead = content.number.saturating_sub(self.received);
        if content.stream < self.stream || !(1..=WINDOW).contains(&ahead) {
            return None;
        }
        let fragment = (content.last, Zeroizing::new(content.text.to_vec()));
        self.ahead.insert(content.number, fragment);
        (ahead == 1).then(|| self.join())
    }

    /// Takes the fragments that are complete up to the next that is missing.
    fn join(&mut self) -> Vec<String> {
        let mut messages = Vec::new();
        while let Some((last, text)) = self.ahead.remove(&(self.received + 1)) {
            self.received += 1;
            self.too_long |= self.text.len() + text.len() > MAX_TEXT_LEN;
            if self.too_long {
                self.text = Zeroizing::default();
            } else {
                // In a new buffer: one that grows would leave a copy behind that is not wiped.
                let mut joined = Zeroizing::new(Vec::with_capacity(self.text.len() + text.len()));
                joined.extend_from_slice(&self.text);
                joined.extend_from_slice(&text);
                self.text = joined;
            }
            if last {
                let text = std::mem::take(&mut self.text);
                if !std::mem::take(&mut self.too_long) {
                    messages.push(String::from_utf8_lossy(&text).into_owned());
                }
            }
        }
        messages
    }

    /// At most how many bytes are stored.
    pub(super) fn stored_len(&self) -> usize {
        32 + self.text.len()
    }

    /// What has arrived ahead of others is not stored: it is not acknowledged either.
    pub(super) fn encode(&self, out: &mut Zeroizing<Vec<u8>>) {
        out.extend_from_slice(&self.stream.to_be_bytes());
        out.extend_from_slice(&self.received.to_be_bytes());
        out.push(u8::from(self.too_long));
        put_bytes(out, &self.text);
    }

    pub(super) fn decode(state: &mut Reader<'_>) -> Result<Self, StateError> {
        Ok(Self {
            stream: state.u64()?,
            received: state.u32()?,
            too_long: state.byte()? != 0,
            text: Zeroizing::new(state.bytes(MAX_TEXT_LEN)?.to_vec()),
            ..Self::default()
        })
    }
}
