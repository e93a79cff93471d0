//! The other end, and what it makes of what it gets.

use std::fmt;

use sharing::Sharing;
use sunder_micss::incoming::{Incoming, SEED_LEN};
use sunder_micss::record::RecordError;

use super::wire::Item;

/// What became of a changed stream.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It was refused. All that was delivered before had been sent.
    Error(RecordError),
    /// The receiver waits for bytes that do not come, with patience that ends.
    Waiting,
    /// It waits, and would do so for ever.
    WaitingForEver,
    /// It delivered something that was not sent, or not there.
    Delivered(Item),
    /// All was delivered as if nothing had been changed.
    Unharmed,
}

/// Receives what is on the channels. Nothing more comes then, and no end.
pub(crate) fn receive(shares: &[Vec<u8>], sent: &[Item]) -> Verdict {
    let sharing = Sharing::xor(u8::try_from(shares.len()).unwrap()).unwrap();
    let mut incoming = Incoming::new(sharing, [7; SEED_LEN]);
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
            return Verdict::Unharmed;
        }
        let Some(channel) = incoming.wanted().find(|&i| given[i] < shares[i].len()) else {
            let bounded = incoming.patience().is_some();
            return if bounded { Verdict::Waiting } else { Verdict::WaitingForEver };
        };
        let rest = &shares[channel][given[channel]..];
        let space = incoming.space(channel);
        let len = rest.len().min(space.len());
        space[..len].copy_from_slice(&rest[..len]);
        incoming.filled(channel, len);
        given[channel] += len;
    }
}

/// How attempts ended.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) errors: usize,
    pub(crate) waiting: usize,
}

impl Tally {
    /// Counts a verdict on a changed stream.
    pub(crate) fn count(&mut self, verdict: Verdict, attempt: impl Fn() -> String) {
        match verdict {
            Verdict::Error(RecordError::Tampered) => self.errors += 1,
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
