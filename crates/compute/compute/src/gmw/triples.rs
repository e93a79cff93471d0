//! Triples: shared random bits a and b, and shares of c = a AND b. Each is used for one AND.
//!
//! Let a1, b1 be the shares of the garbler and a2, b2 those of the evaluator. Then c has two terms
//! that involve both parties: a1 b2 and a2 b1. Each takes one random transfer, in which the
//! evaluator chooses with its own bit (Asharov, Lindell, Schneider, Zohner 2013). For a1 b2, the
//! garbler gets bits x0 and x1 and sets a1 = x0 + x1. The evaluator gets the one that it chose with
//! b2, which is x0 + a1 b2. All transfers have the same direction, so one set-up suffices, and the
//! garbler sends no reply.

use std::sync::mpsc::{Receiver, SyncSender};

use blocks::Block;
use blocks::prg::Prg;
use zeroize::{Zeroize as _, Zeroizing};

use super::words;
use crate::error::{ComputePhase, Error};
use crate::party::{ComputeParty, ObliviousTransferSetUp};
use crate::settings::ComputeRole;
use crate::wire::ComputeFrameKind;

/// The number of triples of a frame.
pub(crate) const FRAME_TRIPLES: usize = 1 << 13;

/// The maximum number of frames of triples that are made ahead of the gates. The evaluator's
/// messages for them, 256 KiB each, must fit into the garbler's queue, so that a frame *open* can
/// arrive behind them.
pub(super) const MAX_READY_FRAMES: usize = 64;

/// One party's shares of triples, as packed bits. All three have the same number of words.
#[derive(Default)]
pub(crate) struct AndTriples {
    pub(crate) a: Vec<u64>,
    pub(crate) b: Vec<u64>,
    pub(crate) c: Vec<u64>,
}

impl Drop for AndTriples {
    fn drop(&mut self) {
        self.a.zeroize();
        self.b.zeroize();
        self.c.zeroize();
    }
}

/// The numbers of triples in the frames for `ands` ANDs. Each is a multiple of 64.
pub(crate) fn parts(ands: u64) -> impl Iterator<Item = usize> {
    let rest = usize::try_from(ands % FRAME_TRIPLES as u64).unwrap_or(0);
    let last = (rest > 0).then(|| rest.next_multiple_of(64));
    (0..ands / FRAME_TRIPLES as u64).map(|_| FRAME_TRIPLES).chain(last)
}

/// The number of transfers for a number of triples.
pub(crate) const fn transfers(triples: usize) -> usize {
    2 * triples
}

/// Makes the triples of all ANDs. The evaluator's choices are derived from the seed.
///
/// # Errors
/// If the transfers fail, or the consumer of the triples has ended.
pub(super) fn make(
    party: &ComputeParty,
    setup: &mut ObliviousTransferSetUp,
    ands: u64,
    seed: Block,
    made: &SyncSender<AndTriples>,
) -> Result<(), Error> {
    if ands == 0 {
        return Ok(());
    }
    let transfers = setup.wait()?;
    party.figures.enter(ComputePhase::Triples);
    match party.role {
        ComputeRole::Garbler => receive(party, transfers.sender()?, ands, made)?,
        ComputeRole::Evaluator => send(party, transfers.receiver()?, ands, seed, made)?,
    }
    party.figures.leave(ComputePhase::Triples);
    Ok(())
}

/// The garbler's part: it sends in the transfers, and receives their columns.
fn receive(
    party: &ComputeParty,
    sender: &mut ot::extension::OtExtensionSender,
    ands: u64,
    made: &SyncSender<AndTriples>,
) -> Result<(), Error> {
    let ComputeParty { frames, figures, settings, .. } = party;
    let mut keys = Zeroizing::new(Vec::with_capacity(transfers(FRAME_TRIPLES)));
    for count in parts(ands) {
        let message = frames.triples(settings.extension().message_len(transfers(count)))?;
        let triples =
            figures.count(ComputePhase::Triples, || of_sender(sender, &message, count, &mut keys));
        frames.recycle(message);
        made.send(triples.map_err(triples_error)?).map_err(|_| Error::Failed)?;
    }
    Ok(())
}

/// The evaluator's part.
fn send(
    party: &ComputeParty,
    receiver: &mut ot::extension::OtExtensionReceiver,
    ands: u64,
    seed: Block,
    made: &SyncSender<AndTriples>,
) -> Result<(), Error> {
    let ComputeParty { frames, figures, .. } = party;
    let mut choices = Prg::new(seed);
    let mut keys = Zeroizing::new(Vec::with_capacity(transfers(FRAME_TRIPLES)));
    for count in parts(ands) {
        let mut frame = frames.frame(ComputeFrameKind::Triples);
        let triples = figures.count(ComputePhase::Triples, || {
            of_receiver(receiver, &mut choices, count, &mut keys, frame.content())
        });
        frames.send(frame)?;
        made.send(triples.map_err(triples_error)?).map_err(|_| Error::Failed)?;
    }
    Ok(())
}

fn triples_error(error: ot::Error) -> Error {
    Error::from(error).in_phase(ComputePhase::Triples)
}

/// The garbler's triples, from the evaluator's message. `count` must be a multiple of 64.
pub(crate) fn of_sender(
    sender: &mut ot::extension::OtExtensionSender,
    message: &[u8],
    count: usize,
    keys: &mut Vec<[Block; 2]>,
) -> Result<AndTriples, ot::Error> {
    keys.resize(transfers(count), [Block::ZERO; 2]);
    sender.random(message, keys)?;
    let zeros = pack_bits(keys, |[zero, _]| zero.lsb());
    let sums = pack_bits(keys, |[zero, one]| zero.lsb() ^ one.lsb());
    let (a, b) = sums.split_at(sums.len() / 2);
    Ok(triples(a, b, &zeros))
}

/// The evaluator's triples. Appends its message. `count` must be a multiple of 64.
pub(crate) fn of_receiver(
    receiver: &mut ot::extension::OtExtensionReceiver,
    choices: &mut Prg,
    count: usize,
    keys: &mut Vec<Block>,
    message: &mut Vec<u8>,
) -> Result<AndTriples, ot::Error> {
    let mut chosen = Zeroizing::new(vec![Block::ZERO; transfers(count) / 128]);
    choices.fill(&mut chosen);
    let chosen = Block::bytes_of(&chosen);
    keys.resize(transfers(count), Block::ZERO);
    receiver.random(chosen, keys, message)?;
    let (words, _) = chosen.as_chunks();
    let own = words.iter().map(|word| u64::from_le_bytes(*word));
    let own: Zeroizing<Vec<u64>> = Zeroizing::new(own.collect());
    // The choices of the first half were b.
    let (b, a) = own.split_at(own.len() / 2);
    Ok(triples(a, b, &pack_bits(keys, |key| key.lsb())))
}

/// Triples with these a and b, and the shares of the mixed products that were transferred.
fn triples(a: &[u64], b: &[u64], transferred: &[u64]) -> AndTriples {
    let (first, second) = transferred.split_at(transferred.len() / 2);
    let shares = first.iter().zip(second).map(|(first, second)| first ^ second);
    let c = shares.zip(a.iter().zip(b)).map(|(shares, (a, b))| shares ^ (a & b));
    AndTriples { c: c.collect(), a: a.to_vec(), b: b.to_vec() }
}

/// A bit of each item, packed.
fn pack_bits<T>(items: &[T], bit: impl Fn(&T) -> bool) -> Zeroizing<Vec<u64>> {
    let (groups, _) = items.as_chunks::<64>();
    let word = |group: &[T; 64]| words::pack(&std::array::from_fn(|at| u8::from(bit(&group[at]))));
    Zeroizing::new(groups.iter().map(word).collect())
}

/// A buffered supply of triples, which can be taken in any number.
pub(super) struct AndTripleSupply {
    made: Receiver<AndTriples>,
    /// The triples that were made but not completely taken.
    rest: AndTriples,
    /// The number of triples of `rest` that were taken.
    taken: usize,
}

impl AndTripleSupply {
    /// A supply from which at most `most` triples are taken at a time.
    pub(super) fn new(made: Receiver<AndTriples>, most: usize) -> Self {
        // The maximum length, so that the vectors are never reallocated, which would leave copies
        // of secrets.
        let words = || Vec::with_capacity((most + 2 * FRAME_TRIPLES) / 64);
        Self { made, rest: AndTriples { a: words(), b: words(), c: words() }, taken: 0 }
    }

    /// Replaces `triples` by the next `count`. Bits of a word that has fewer are 0.
    ///
    /// # Errors
    /// If no more are made.
    pub(super) fn take(&mut self, count: usize, triples: &mut AndTriples) -> Result<(), Error> {
        self.fill(count)?;
        for (rest, bits) in [
            (&self.rest.a, &mut triples.a),
            (&self.rest.b, &mut triples.b),
            (&self.rest.c, &mut triples.c),
        ] {
            copy(rest, self.taken, count, bits);
        }
        self.taken += count;
        Ok(())
    }

    /// Waits until `count` triples are available.
    fn fill(&mut self, count: usize) -> Result<(), Error> {
        let Self { made, rest, taken } = self;
        while 64 * rest.a.len() - *taken < count {
            let more = made.recv().map_err(|_| Error::Failed)?;
            for (rest, more) in
                [(&mut rest.a, &more.a), (&mut rest.b, &more.b), (&mut rest.c, &more.c)]
            {
                rest.drain(..*taken / 64);
                rest.extend_from_slice(more);
            }
            *taken %= 64;
        }
        Ok(())
    }
}

/// Copies `count` bits from bit `start` on.
fn copy(from: &[u64], start: usize, count: usize, to: &mut Vec<u64>) {
    let (first, shift) = (start / 64, start % 64);
    to.clear();
    to.extend((first..).take(count.div_ceil(64)).map(|at| {
        let next = from.get(at + 1).map_or(0, |next| (next << 1) << (63 - shift));
        from[at] >> shift | next
    }));
    if let Some(last) = to.last_mut() {
        // Bits of later triples must not be sent with these.
        *last &= u64::MAX >> (count.next_multiple_of(64) - count);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use ot::extension::{
        OtExtension, OtExtensionKind, OtExtensionSecurity, OtReceiverSetUp, OtSenderSetUp,
    };

    use super::*;

    #[test]
    fn triples_are_shares_of_the_product() {
        let mut random = Prg::new(Block::from(1));
        for kind in OtExtensionKind::ALL {
            for security in
                [OtExtensionSecurity::SemiHonest, OtExtensionSecurity::MaliciousReceiver]
            {
                let extension = OtExtension { kind, security };
                let (sender, message) =
                    OtSenderSetUp::new(extension, random.block(), random.block());
                let (mut receiver, reply) =
                    OtReceiverSetUp::new(extension, random.block()).receive(&message).unwrap();
                let mut sender = sender.receive(&reply).unwrap();
                for count in [64, FRAME_TRIPLES, 64 * 3] {
                    let mut message = Vec::new();
                    let theirs = of_receiver(
                        &mut receiver,
                        &mut random,
                        count,
                        &mut Vec::new(),
                        &mut message,
                    );
                    assert_eq!(message.len(), extension.message_len(transfers(count)));
                    let theirs = theirs.unwrap();
                    let ours = of_sender(&mut sender, &message, count, &mut Vec::new()).unwrap();
                    check(&ours, &theirs, count);
                }
            }
        }
    }

    fn check(ours: &AndTriples, theirs: &AndTriples, count: usize) {
        let mut ones = [0; 6];
        for i in 0..count / 64 {
            let a = ours.a[i] ^ theirs.a[i];
            let b = ours.b[i] ^ theirs.b[i];
            assert_eq!(ours.c[i] ^ theirs.c[i], a & b);
            let of = |it: &AndTriples| [it.a[i], it.b[i], it.c[i]];
            for (ones, word) in ones.iter_mut().zip([of(ours), of(theirs)].concat()) {
                *ones += word.count_ones() as usize;
            }
        }
        assert_eq!(ours.a.len(), count / 64);
        if count == FRAME_TRIPLES {
            // Each share is a fair bit: 8 standard deviations.
            let deviation = |ones: usize| ones.abs_diff(count / 2) < 8 * 46;
            assert!(ones.into_iter().all(deviation), "{ones:?}");
        }
    }

    #[test]
    fn any_number_of_bits_is_taken_in_order() {
        let mut rng = fastrand::Rng::with_seed(2);
        let words: Vec<u64> = (0..300).map(|_| rng.u64(..)).collect();
        let (sender, made) = sync_channel(words.len());
        let mut left = &words[..];
        while !left.is_empty() {
            let (part, rest) = left.split_at(rng.usize(1..=left.len().min(9)));
            let [a, b, c] = [0, 1, 2].map(|n| part.iter().map(|word| word ^ n).collect());
            sender.send(AndTriples { a, b, c }).unwrap();
            left = rest;
        }
        drop(sender);
        let mut supply = AndTripleSupply::new(made, 400);
        let (mut taken, mut triples) = (0, AndTriples::default());
        let bit = |words: &[u64], at: usize| words[at / 64] >> (at % 64) & 1;
        while taken < 64 * words.len() {
            let count = rng.usize(1..400).min(64 * words.len() - taken);
            supply.take(count, &mut triples).unwrap();
            assert_eq!(triples.a.len(), count.div_ceil(64));
            for at in 0..64 * triples.a.len() {
                let expected = if at < count { bit(&words, taken + at) } else { 0 };
                assert_eq!(bit(&triples.a, at), expected, "{count} from {taken}");
                let of_b = u64::from(at < count && (taken + at) % 64 == 0);
                assert_eq!(bit(&triples.b, at), expected ^ of_b);
            }
            taken += count;
        }
        supply.take(1, &mut triples).unwrap_err();
    }

    #[test]
    fn parts_are_whole_words_for_all_ands() {
        for ands in [0, 1, 64, 65, 8_191, 8_192, 8_193, 1_000_000] {
            let parts: Vec<usize> = parts(ands).collect();
            let made: usize = parts.iter().sum();
            assert!((ands..ands + 64).contains(&(made as u64)), "{ands}");
            assert!(parts.iter().all(|part| part % 64 == 0 && (1..=FRAME_TRIPLES).contains(part)));
        }
    }
}
