//! The attacker's changes to its channels. It knows the content, reads its channels before the
//! receiver, and has recorded other streams.

use std::ops::Range;

use random::RandomGenerator;
use sharing::tamper;
use sunder_micss::record::{HEADER_LEN, MicssRecordKind};

use super::wire::Recording;

/// The positions of a record's tag, kind and length.
const TAG: Range<usize> = 16..32;
const KIND: usize = 32;
const LENGTH: Range<usize> = 33..36;

/// A way to change a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Attack {
    /// Flips one bit.
    Flip,
    /// Differences that replace the payload by one of the attacker's choice.
    Replace,
    /// The same, with a tag that is valid if the attacker guesses the point. (For an unchanged tag,
    /// the guess is zero.)
    ReplaceAndGuess,
    /// The same, with a random difference to the point.
    ReplaceAndShift,
    /// Differences that make the tag and the known parts of the message zero.
    Blank,
    /// Another kind, so that data become an end or an abort.
    Kind,
    /// A shorter length: what follows is taken for the next record's code.
    Shorten,
    /// The same, with a forged next record in the known payload.
    ShortenToForged,
    /// A longer length: the next record's code becomes payload.
    Lengthen,
    /// The length that merges two records.
    Merge,
    /// Deletes a byte.
    Delete,
    /// Inserts a byte.
    Insert,
    /// Duplicates a byte.
    Duplicate,
    /// Swaps two bytes.
    Swap,
    /// Deletes a record.
    DeleteRecord,
    /// Duplicates a record.
    DuplicateRecord,
    /// Swaps two records.
    SwapRecords,
    /// A record of another stream with the same plaintext.
    Replay,
    /// All of another stream with the same plaintext.
    ReplayAll,
    /// One channel's bytes on all of the attacker's channels.
    Cross,
    /// Nothing from some byte on.
    Truncate,
    /// Noise from some byte on.
    Noise,
    /// Zeros in place of a record.
    Zero,
}

impl Attack {
    pub(crate) const ALL: [Self; 23] = [
        Self::Flip,
        Self::Replace,
        Self::ReplaceAndGuess,
        Self::ReplaceAndShift,
        Self::Blank,
        Self::Kind,
        Self::Shorten,
        Self::ShortenToForged,
        Self::Lengthen,
        Self::Merge,
        Self::Delete,
        Self::Insert,
        Self::Duplicate,
        Self::Swap,
        Self::DeleteRecord,
        Self::DuplicateRecord,
        Self::SwapRecords,
        Self::Replay,
        Self::ReplayAll,
        Self::Cross,
        Self::Truncate,
        Self::Noise,
        Self::Zero,
    ];
}

/// An attacker on some of the channels.
pub(crate) struct Attacker {
    channels: Vec<usize>,
    random: RandomGenerator,
}

impl std::fmt::Debug for Attacker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "attacker on {:?}", self.channels)
    }
}

impl Attacker {
    pub(crate) fn new(channels: Vec<usize>) -> Self {
        Self { channels, random: RandomGenerator::seeded().unwrap() }
    }

    /// What arrives instead of the recording. `other` is a stream with the same plaintext.
    pub(crate) fn apply(
        &mut self,
        attack: Attack,
        recording: &Recording,
        other: &Recording,
    ) -> Vec<Vec<u8>> {
        let mut shares = recording.shares.clone();
        let record = self.below(recording.records());
        match attack {
            Attack::Flip
            | Attack::Replace
            | Attack::ReplaceAndGuess
            | Attack::ReplaceAndShift
            | Attack::Blank
            | Attack::Kind
            | Attack::Shorten
            | Attack::ShortenToForged
            | Attack::Lengthen
            | Attack::Merge => {
                let difference = self.difference(attack, recording, record);
                self.add(&mut shares, &difference);
            }
            Attack::Delete | Attack::Insert | Attack::Duplicate | Attack::Swap => {
                self.edit_bytes(attack, &mut shares);
            }
            Attack::DeleteRecord | Attack::DuplicateRecord | Attack::SwapRecords => {
                self.edit_records(attack, recording, &mut shares);
            }
            Attack::Replay => {
                for &channel in &self.channels {
                    let range = recording.record(record);
                    shares[channel][range.clone()].copy_from_slice(&other.shares[channel][range]);
                }
            }
            Attack::ReplayAll => {
                for &channel in &self.channels {
                    shares[channel].clone_from(&other.shares[channel]);
                }
            }
            Attack::Cross => {
                let place = self.below(self.channels.len());
                let from = self.channels[place];
                for &channel in &self.channels {
                    shares[channel].clone_from(&recording.shares[from]);
                }
            }
            Attack::Truncate => {
                let at = self.below(recording.len());
                self.channels.iter().for_each(|&channel| shares[channel].truncate(at));
            }
            Attack::Noise => {
                let at = self.below(recording.len());
                for &channel in &self.channels {
                    self.random.fill(&mut shares[channel][at..]).unwrap();
                }
            }
            Attack::Zero => {
                for &channel in &self.channels {
                    shares[channel][recording.record(record)].fill(0);
                }
            }
        }
        shares
    }

    /// The difference to add to the joined stream, byte by byte.
    fn difference(&mut self, attack: Attack, recording: &Recording, record: usize) -> Vec<u8> {
        let mut difference = vec![0; recording.len()];
        let whole = recording.record(record);
        let (kind, payload) = &recording.sent[record];
        let known = message(*kind, payload);
        let changed = &mut difference[whole.start..];
        match attack {
            Attack::Flip => {
                let bit = self.below(8 * changed.len());
                changed[bit / 8] ^= 1 << (bit % 8);
            }
            Attack::Replace | Attack::ReplaceAndGuess | Attack::ReplaceAndShift => {
                let wanted = self.another(&known);
                xor(&mut changed[KIND..], &known);
                xor(&mut changed[KIND..], &wanted);
                if matches!(attack, Attack::ReplaceAndGuess) {
                    guess(&mut changed[TAG], &known, &wanted);
                } else if matches!(attack, Attack::ReplaceAndShift) {
                    self.random.fill(&mut changed[..TAG.end]).unwrap();
                }
            }
            Attack::Blank => {
                self.random.fill(&mut changed[TAG]).unwrap();
                xor(&mut changed[KIND..], &known);
            }
            Attack::Kind => {
                let wanted = [
                    MicssRecordKind::Data,
                    MicssRecordKind::Finish,
                    MicssRecordKind::Abort,
                    MicssRecordKind::Opened,
                ][self.below(4)];
                changed[KIND] ^= *kind as u8 ^ wanted as u8;
            }
            Attack::Shorten => self.set_length(changed, payload.len(), |len, below| below(len)),
            Attack::ShortenToForged => self.hide_record(changed, &known),
            Attack::Lengthen => {
                self.set_length(changed, payload.len(), |len, below| len + 1 + below(300));
            }
            Attack::Merge => {
                let next = recording.bounds.get(record + 2).copied().unwrap_or(whole.end);
                let both = next - whole.start - HEADER_LEN;
                self.set_length(changed, payload.len(), |_, _| both);
            }
            _ => unreachable!("not a difference"),
        }
        difference
    }

    /// Another message of the same length, possibly with another kind.
    fn another(&mut self, known: &[u8]) -> Vec<u8> {
        let mut wanted = known.to_vec();
        if wanted.len() == 4 {
            wanted[0] ^= 1;
        } else if self.below(2) == 0 {
            self.random.fill(&mut wanted[4..]).unwrap();
        } else {
            let place = 4 + self.below(wanted.len() - 4);
            wanted[place] = !wanted[place];
        }
        wanted
    }

    /// Ends the record early, and turns the rest of the known payload into a whole record.
    fn hide_record(&mut self, changed: &mut [u8], known: &[u8]) {
        let payload = known.len() - 4;
        let Some(free) = payload.checked_sub(HEADER_LEN) else {
            return self.set_length(changed, payload, |len, _| len / 2);
        };
        let shorter = self.below(free + 1);
        self.set_length(changed, payload, |_, _| shorter);
        let forged_payload = vec![0x41; free - shorter];
        let forged = message(MicssRecordKind::Data, &forged_payload);
        let code = tamper::protect(&[&forged], &mut self.random).unwrap();
        let place = HEADER_LEN + shorter;
        xor(&mut changed[place..], &known[4 + shorter..]);
        xor(&mut changed[place..], &[&code[..], &forged].concat());
    }

    fn set_length(
        &mut self,
        changed: &mut [u8],
        len: usize,
        wanted: impl FnOnce(usize, &mut dyn FnMut(usize) -> usize) -> usize,
    ) {
        let wanted = wanted(len, &mut |bound| self.below(bound.max(1)));
        let bytes = |len: usize| u32::try_from(len).unwrap().to_be_bytes();
        xor(&mut changed[LENGTH], &bytes(len ^ wanted)[1..]);
    }

    /// Adds a difference to the joined stream, distributed over the attacker's channels so that
    /// each looks random.
    fn add(&mut self, shares: &mut [Vec<u8>], difference: &[u8]) {
        let mut last = difference.to_vec();
        let (&chosen, others) = self.channels.split_first().unwrap();
        for &channel in others {
            let mut mask = vec![0; last.len()];
            self.random.fill(&mut mask).unwrap();
            xor(&mut shares[channel], &mask);
            xor(&mut last, &mask);
        }
        xor(&mut shares[chosen], &last);
    }

    fn edit_bytes(&mut self, attack: Attack, shares: &mut [Vec<u8>]) {
        let len = shares[0].len();
        let (at, with, value) = (self.below(len), self.below(len), self.below(256));
        for &channel in &self.channels {
            let share = &mut shares[channel];
            match attack {
                Attack::Delete => _ = share.remove(at),
                Attack::Insert => share.insert(at, value.to_le_bytes()[0]),
                Attack::Duplicate => share.insert(at, share[at]),
                _ => share.swap(at, with),
            }
        }
    }

    fn edit_records(&mut self, attack: Attack, recording: &Recording, shares: &mut [Vec<u8>]) {
        let (one, two) = (self.below(recording.records()), self.below(recording.records()));
        let mut order: Vec<usize> = (0..recording.records()).collect();
        match attack {
            Attack::DeleteRecord => _ = order.remove(one),
            Attack::DuplicateRecord => order.insert(one, one),
            _ => order.swap(one, two),
        }
        for &channel in &self.channels {
            let share = &recording.shares[channel];
            shares[channel] = order
                .iter()
                .flat_map(|&record| &share[recording.record(record)])
                .copied()
                .collect();
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        let number = u64::from_le_bytes(self.random.array().unwrap());
        usize::try_from(number % bound as u64).unwrap()
    }
}

/// Makes the tag valid for the point one, the only point except zero for which that is easy: the
/// tag is then the sum of all blocks.
fn guess(tag: &mut [u8], known: &[u8], wanted: &[u8]) {
    for message in [known, wanted] {
        message.chunks(tag.len()).for_each(|block| xor(tag, block));
    }
}

/// The bytes that a record's code protects.
fn message(kind: MicssRecordKind, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes();
    bytes[0] = kind as u8;
    [&bytes[..], payload].concat()
}

fn xor(bytes: &mut [u8], with: &[u8]) {
    bytes.iter_mut().zip(with).for_each(|(byte, with)| *byte ^= with);
}
