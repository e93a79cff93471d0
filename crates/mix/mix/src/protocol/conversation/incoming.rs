//! Reassembles a partner's fragments into messages.

use std::collections::BTreeMap;

use encoding::{FieldReader, FieldWrite as _};
use zeroize::Zeroizing;

use super::MIN_WINDOW;
use super::framing::{FramedMessage, MAX_FRAMED_LEN, begin, chain, parse};
use crate::protocol::content::{
    ConversationDigest, DIGEST_LEN, FragmentAcknowledgement, SlotContent,
};
use crate::protocol::state::ConversationStateError;

/// The number of shown messages that are remembered. It is more than a partner can have sent
/// without an acknowledgement, so only a partner with an old state sends older ones.
const SHOWN: usize = 64;

/// The stream of fragments from a partner.
#[derive(Default)]
pub(super) struct IncomingFragments {
    /// The number of the stream, or 0 if nothing has arrived.
    stream: u64,
    /// The number of the last fragment up to which all have arrived.
    received: u32,
    /// The digest of these fragments.
    digest: ConversationDigest,
    /// The fragments so far of the incomplete message.
    partial_message: Zeroizing<Vec<u8>>,
    /// Whether the rest of the stream is rejected.
    is_refused: bool,
    /// The stamps and digests of the shown messages with the greatest stamps, over all streams.
    shown: BTreeMap<u64, ConversationDigest>,
    /// The reorder buffer: fragments that arrived ahead of others, and whether each is the last of
    /// its message.
    out_of_order: BTreeMap<u32, (bool, Zeroizing<Vec<u8>>)>,
    /// Whether a fragment has arrived since the last acknowledgement.
    acknowledgement_due: bool,
}

/// Whether a message was already shown.
#[derive(Debug, PartialEq, Eq)]
enum DuplicateCheck {
    New,
    Shown,
    /// It is older than all remembered messages, or another message has its stamp.
    Uncertain,
}

impl IncomingFragments {
    pub(super) fn is_acknowledgement_due(&self) -> bool {
        self.acknowledgement_due
    }

    /// The last acknowledgement is lost. It is due again if there is something to acknowledge.
    pub(super) fn acknowledge_again(&mut self) {
        self.acknowledgement_due |= self.stream > 0;
    }

    /// The stream and the acknowledgement to write.
    pub(super) fn acknowledge(&mut self) -> (u64, FragmentAcknowledgement) {
        self.acknowledgement_due = false;
        let acknowledgement = if self.is_refused {
            FragmentAcknowledgement::Refused(self.shown.keys().last().copied().unwrap_or(0))
        } else {
            FragmentAcknowledgement::Received(self.received, self.digest)
        };
        (self.stream, acknowledgement)
    }

    /// Handles a fragment. Returns the messages that it completes, or `None` if no change must be
    /// stored.
    pub(super) fn receive(&mut self, content: &SlotContent<'_>) -> Option<Vec<String>> {
        if content.number == 0 {
            return None;
        }
        // An ignored fragment is acknowledged too: an earlier acknowledgement of it may be lost,
        // and the sender of a lower stream learns in this way that there was a greater one.
        self.acknowledgement_due = true;
        if content.stream > self.stream {
            self.begin(content.stream);
        }
        let ahead = content.number.saturating_sub(self.received);
        let is_due = content.stream == self.stream && !self.is_refused;
        if !is_due || !(1..=MIN_WINDOW).contains(&ahead) {
            return None;
        }
        let fragment = (content.last, Zeroizing::new(content.text.to_vec()));
        self.out_of_order.insert(content.number, fragment);
        (ahead == 1).then(|| self.take_contiguous())
    }

    /// Begins another stream, and drops the incomplete parts of the previous one.
    fn begin(&mut self, stream: u64) {
        let shown = std::mem::take(&mut self.shown);
        let digest = begin(stream);
        *self = Self { stream, digest, shown, acknowledgement_due: true, ..Self::default() };
    }

    /// Takes the contiguous fragments up to the next missing one.
    fn take_contiguous(&mut self) -> Vec<String> {
        let mut messages = Vec::new();
        while let Some((last, fragment)) = self.out_of_order.remove(&(self.received + 1)) {
            // Uses a new buffer, because a growing one would leave copies that are not wiped.
            let len = self.partial_message.len() + fragment.len();
            let mut joined = Zeroizing::new(Vec::with_capacity(len));
            joined.extend_from_slice(&self.partial_message);
            joined.extend_from_slice(&fragment);
            let ended = if last { parse(&joined) } else { None };
            let known = ended.map(|message| self.known(&message));
            if len > MAX_FRAMED_LEN
                || last && matches!(known, None | Some(DuplicateCheck::Uncertain))
            {
                self.refuse();
                break;
            }
            if let (Some(message), Some(DuplicateCheck::New)) = (ended, known) {
                messages.push(String::from_utf8_lossy(message.text).into_owned());
                self.shown.insert(message.stamp, message.digest);
                if self.shown.len() > SHOWN {
                    self.shown.pop_first();
                }
            }
            self.received += 1;
            self.digest = chain(self.digest, last, &fragment);
            self.partial_message = if last { Zeroizing::default() } else { joined };
        }
        messages
    }

    fn known(&self, message: &FramedMessage<'_>) -> DuplicateCheck {
        let is_later = self.shown.keys().next().is_none_or(|first| message.stamp > *first);
        match self.shown.get(&message.stamp) {
            Some(digest) if *digest == message.digest => DuplicateCheck::Shown,
            None if is_later || self.shown.len() < SHOWN => DuplicateCheck::New,
            _ => DuplicateCheck::Uncertain,
        }
    }

    fn refuse(&mut self) {
        self.is_refused = true;
        self.partial_message = Zeroizing::default();
        self.out_of_order.clear();
    }

    /// At most how many bytes are stored.
    pub(super) fn stored_len(&self) -> usize {
        32 + self.partial_message.len() + (8 + DIGEST_LEN) * self.shown.len()
    }

    /// The reorder buffer is not stored, because its fragments are not acknowledged.
    pub(super) fn encode(&self, out: &mut Zeroizing<Vec<u8>>) {
        out.extend_from_slice(&self.stream.to_be_bytes());
        out.extend_from_slice(&self.received.to_be_bytes());
        out.extend_from_slice(&self.digest);
        out.push(u8::from(self.is_refused));
        out.put_counted(&self.partial_message);
        out.push(u8::try_from(self.shown.len()).expect("as few as are known"));
        for (stamp, digest) in &self.shown {
            out.extend_from_slice(&stamp.to_be_bytes());
            out.extend_from_slice(digest);
        }
    }

    pub(super) fn decode(state: &mut FieldReader<'_>) -> Result<Self, ConversationStateError> {
        let mut incoming = Self {
            stream: state.u64()?,
            received: state.u32()?,
            digest: state.take()?,
            is_refused: state.u8()? != 0,
            partial_message: Zeroizing::new(state.counted_up_to(MAX_FRAMED_LEN)?.to_vec()),
            ..Self::default()
        };
        let count = usize::from(state.u8()?);
        for _ in 0..count {
            incoming.shown.insert(state.u64()?, state.take()?);
        }
        let is_state = count <= SHOWN && incoming.shown.len() == count;
        if is_state { Ok(incoming) } else { Err(ConversationStateError) }
    }
}
