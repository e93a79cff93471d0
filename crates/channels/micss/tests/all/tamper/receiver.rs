//! The receiver of changed streams.

use std::fmt;

use sharing::SharingParameters;
use sunder_micss::incoming::{IncomingRecords, SEED_LEN};
use sunder_micss::record::MicssRecordError;

use super::wire::Item;

/// The outcome for a changed stream.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It was rejected. Everything that was delivered before had been sent.
    Error(MicssRecordError),
    /// The receiver waits for bytes that do not arrive, for a bounded time.
    Waiting,
    /// It waits, for an unbounded time.
    WaitingForever,
    /// It delivered something that was not sent, or not at this position.
    Delivered(Item),
    /// Everything was delivered as sent.
    Unchanged,
}

/// Receives the bytes of the channels. No more bytes and no end follow.
pub(crate) fn receive(shares: &[Vec<u8>], sent: &[Item]) -> Verdict {
    let sharing = SharingParameters::xor(u8::try_from(shares.len()).unwrap()).unwrap();
    let mut incoming = IncomingRecords::new(sharing, [7; SEED_LEN]);
    let mut given = vec![0; shares.len()];
    let mut expected = sent.iter();
    loop {
        loop {
            let received = match incoming.take_next() {
                Ok(Some(received)) => received,
                Ok(None) => break,
                Err(error) => return Verdict::Error(error),
            };
            match expected.next() {
                Some((kind, payload)) if *kind == received.kind && payload == received.payload => {}
                _ => return Verdict::Delivered((received.kind, received.payload.to_vec())),
            }
        }
        if expected.as_slice().is_empty() {
            return Verdict::Unchanged;
        }
        let Some(channel) = incoming.wanted().find(|&i| given[i] < shares[i].len()) else {
            let bounded = incoming.next_record_timeout().is_some();
            return if bounded { Verdict::Waiting } else { Verdict::WaitingForever };
        };
        let rest = &shares[channel][given[channel]..];
        let space = incoming.space(channel);
        let len = rest.len().min(space.len());
        space[..len].copy_from_slice(&rest[..len]);
        incoming.filled(channel, len);
        given[channel] += len;
    }
}

/// The outcomes of the attempts.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) errors: usize,
    pub(crate) waiting: usize,
}

impl Tally {
    /// Counts an outcome for a changed stream.
    pub(crate) fn count(&mut self, verdict: Verdict, attempt: impl Fn() -> String) {
        match verdict {
            Verdict::Error(MicssRecordError::Tampered) => self.errors += 1,
            Verdict::Waiting => self.waiting += 1,
            Verdict::Delivered(item) => panic!("{}: delivered {item:?}", attempt()),
            other => panic!("{}: {other:?}", attempt()),
        }
    }

    pub(crate) fn attempts(&self) -> usize {
        self.errors + self.waiting
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { errors, waiting } = self;
        let attempts = self.attempts();
        write!(f, "{attempts} attempts: 0 accepted, {errors} refused, {waiting} left waiting")
    }
}
