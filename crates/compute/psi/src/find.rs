//! Which items both parties have: the masks of items by an oblivious pseudorandom function.

use std::io::{Read, Write};

use blocks::Block;
use blocks::aes::Aes128;
use ot::extension::{OtReceiverSetUp, OtSenderSetUp, SENDER_LEN};
use zeroize::{Zeroize as _, Zeroizing};

use crate::code::{CODE_BITS, CODE_BLOCKS, CodeWord};
use crate::cuckoo::{self, BinSelector, CHOICES, CuckooTable};
use crate::error::Error;
use crate::hello::PsiRunDigest;
use crate::link::PsiLink;
use crate::masks::{self, MaskComparison, NO_ITEM, NumberedMask};
use crate::oblivious_prf::{self, PIECE_BINS, PrfReceiver, PrfSender, TRANSFERS};
use crate::run::{PsiProgress, PsiRun};
use crate::terms::PsiLearners;

/// The number of masks that are sent or read at a time.
const PIECE_MASKS: usize = 1 << 16;

/// The receiver chooses the key of the bins, and sends it with its first rows. A sender that had a
/// part in it could search for a key with which a guessed set finds no bins, and would see whether
/// the run fails.
fn selector(run: &PsiRun, key: Block) -> BinSelector {
    BinSelector::new(key, cuckoo::bins(run.receiver))
}

/// The receiver's part: the places of the common items, in ascending order.
pub(crate) fn receive<R: Read, W: Write>(
    link: &mut PsiLink<R, W>,
    run: &PsiRun,
    learners: PsiLearners,
    items: &[Block],
    set_up: OtSenderSetUp,
    progress: &mut dyn FnMut(PsiProgress),
) -> Result<Vec<usize>, Error> {
    let mut transfers = set_up.receive(&link.read(TRANSFERS.reply_len())?)?;
    let message = link.read(TRANSFERS.message_len(CODE_BITS))?;
    let mut seeds = Zeroizing::new(vec![[Block::ZERO; 2]; CODE_BITS]);
    transfers.random(&message, &mut seeds)?;

    let key = link.block()?;
    let table = CuckooTable::new(&selector(run, key).bins_of(items), cuckoo::bins(run.receiver))?;
    link.send(&key.to_bytes())?;
    let mut prf = PrfReceiver::new(run.digest, &seeds, link.block()?);
    let mut own: Vec<NumberedMask> = Vec::with_capacity(items.len());
    let mut done = 0;
    for bins in table.bins().chunks(PIECE_BINS) {
        let in_bins: Vec<Option<Block>> =
            bins.iter().map(|item| item.map(|item| items[item as usize])).collect();
        let (values, message) = prf.values(&in_bins);
        let of_items = values.iter().zip(bins).filter_map(|(value, item)| value.zip(*item));
        own.extend(of_items.map(|(value, item)| masks::numbered(&value, run.mask_len, item)));
        link.send(&message)?;
        done += message.len();
        progress(run.progress(done));
    }
    link.flush()?;

    let mut comparison = MaskComparison::new(own);
    let mut left = CHOICES * run.sender;
    while left > 0 {
        let count = left.min(PIECE_MASKS);
        let message = link.read(count * run.mask_len)?;
        if !comparison.compare(&message, run.mask_len) {
            return Err(Error::Malformed("masks that are not in ascending order"));
        }
        left -= count;
        done += message.len();
        progress(run.progress(done));
    }
    let mut common = comparison.into_found();
    common.sort_unstable();
    if learners == PsiLearners::Both {
        report(link, &run.digest, common.iter().map(|item| items[*item as usize]))?;
    }
    Ok(common.into_iter().map(|item| item as usize).collect())
}

/// The sender's part: the places of the common items, if it learns them.
pub(crate) fn send<R: Read, W: Write>(
    link: &mut PsiLink<R, W>,
    run: &PsiRun,
    learners: PsiLearners,
    items: &[Block],
    progress: &mut dyn FnMut(PsiProgress),
) -> Result<Option<Vec<usize>>, Error> {
    let set_up = OtReceiverSetUp::new(TRANSFERS, link.block()?);
    let (mut transfers, reply) = set_up.receive(&link.read(SENDER_LEN)?)?;
    let mut secret = Zeroizing::new([Block::ZERO; CODE_BLOCKS]);
    link.random.fill(Block::bytes_of_mut(&mut *secret))?;
    let mut seeds = Zeroizing::new([Block::ZERO; CODE_BITS]);
    let mut message = Vec::new();
    transfers.random(Block::bytes_of(&*secret), &mut *seeds, &mut message)?;
    link.send(&reply)?;
    link.send(&message)?;
    link.flush()?;

    let mut done = 0;
    let masks = own_masks(link, run, *secret, &seeds, items, &mut |len| {
        done += len;
        progress(run.progress(done));
    })?;
    for masks in masks.chunks(PIECE_MASKS) {
        message.clear();
        masks::append(masks, run.mask_len, &mut message);
        link.send(&message)?;
        done += message.len();
        progress(run.progress(done));
    }
    link.flush()?;
    match learners {
        PsiLearners::Receiver => Ok(None),
        PsiLearners::Both => Ok(Some(reported(link, run, items)?)),
    }
}

/// The masks of this party's items in each of their bins, and further random ones if it hides how
/// many items it has, in ascending order.
fn own_masks<R: Read, W: Write>(
    link: &mut PsiLink<R, W>,
    run: &PsiRun,
    mut secret: CodeWord,
    seeds: &[Block; CODE_BITS],
    items: &[Block],
    received: &mut dyn FnMut(usize),
) -> Result<Vec<NumberedMask>, Error> {
    let all_bins = cuckoo::bins(run.receiver);
    let key = Block::from_bytes(link.read_array()?);
    let in_bins = items_in_bins(&selector(run, key).bins_of(items));
    let mut in_bins = &in_bins[..];
    let mut prf = PrfSender::new(run.digest, secret, seeds);
    secret.zeroize();
    let mut masks: Vec<NumberedMask> = Vec::with_capacity(CHOICES * run.sender);
    let mut first = 0;
    while first < all_bins {
        let bins = PIECE_BINS.min(all_bins - first);
        let message = link.read(oblivious_prf::piece_len(bins))?;
        prf.receive(bins, &message)?;
        let count = in_bins.partition_point(|it| (it.bin as usize) < first + bins);
        let (in_piece, rest) = in_bins.split_at(count);
        masks.extend(in_piece.iter().map(|&ItemInBin { bin, item }| {
            let value = prf.value(first, bin as usize - first, items[item as usize]);
            masks::numbered(&value, run.mask_len, item)
        }));
        in_bins = rest;
        first += bins;
        received(message.len());
    }
    for _ in CHOICES * items.len()..CHOICES * run.sender {
        masks.push(masks::numbered(&link.random.array()?, run.mask_len, NO_ITEM));
    }
    masks.sort_unstable();
    Ok(masks)
}

/// An item in one of its bins.
struct ItemInBin {
    bin: u32,
    item: u32,
}

/// The items in all of their bins, in ascending order of the bins. They take memory for this
/// party's items, and none for the bins, of which the other party says how many there are.
fn items_in_bins(choices: &[[u32; CHOICES]]) -> Vec<ItemInBin> {
    let mut in_bins = Vec::with_capacity(CHOICES * choices.len());
    for (item, &bins) in (0..).zip(choices) {
        in_bins.extend(bins.map(|bin| ItemInBin { bin, item }));
    }
    in_bins.sort_unstable_by_key(|it| u64::from(it.bin) << 32 | u64::from(it.item));
    in_bins
}

/// What stands for each common item in the receiver's report. It depends on the item and the run
/// only. The place of its mask would show its bin, which depends on the receiver's other items too.
fn marks(run: &PsiRunDigest, items: impl Iterator<Item = Block>) -> Vec<u128> {
    let mut marks: Vec<Block> = items.collect();
    Aes128::new(run.key(b"report")).encrypt(&mut marks);
    marks.into_iter().map(u128::from).collect()
}

/// Reports the common items to the sender.
fn report<R: Read, W: Write>(
    link: &mut PsiLink<R, W>,
    run: &PsiRunDigest,
    common: impl Iterator<Item = Block>,
) -> Result<(), Error> {
    let mut marks = marks(run, common);
    marks.sort_unstable();
    #[expect(clippy::cast_possible_truncation, reason = "at most 2^24")]
    let count = marks.len() as u32;
    link.send(&count.to_be_bytes())?;
    for mark in marks {
        link.send(&mark.to_be_bytes())?;
    }
    link.finish_report()
}

/// The items that the receiver reports. Takes and acknowledges the whole report before it looks at
/// a mark: the receiver would see from an earlier end whether this party has an item.
fn reported<R: Read, W: Write>(
    link: &mut PsiLink<R, W>,
    run: &PsiRun,
    items: &[Block],
) -> Result<Vec<usize>, Error> {
    let count = u32::from_be_bytes(link.read_array()?) as usize;
    if count > run.receiver.min(run.sender) {
        return Err(Error::Malformed("more common items than a party has"));
    }
    let mut reported = Vec::new();
    for _ in 0..count {
        reported.push(u128::from_be_bytes(link.read_array()?));
    }
    link.acknowledge_report()?;

    let mut own: Vec<(u128, usize)> =
        marks(&run.digest, items.iter().copied()).into_iter().zip(0..).collect();
    own.sort_unstable();
    let mut common = Vec::with_capacity(count);
    let mut before = None;
    for mark in reported {
        let place = own.binary_search_by_key(&mark, |(mark, _)| *mark);
        match place {
            Ok(place) if before < Some(mark) => common.push(own[place].1),
            _ => return Err(Error::Malformed("a common item that is none of this party's")),
        }
        before = Some(mark);
    }
    common.sort_unstable();
    Ok(common)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hello::HELLO_LEN;
    use crate::run::{PsiTraffic, mask_len};
    use crate::terms::PsiFunction;

    #[test]
    fn items_are_found_in_each_of_their_bins() {
        let last = u32::MAX;
        let in_bins = items_in_bins(&[[7, 0, last], [3, 7, 1], [last, 7, 2]]);
        let in_bins: Vec<(u32, u32)> = in_bins.iter().map(|it| (it.bin, it.item)).collect();
        let expected =
            [(0, 0), (1, 1), (2, 2), (3, 1), (7, 0), (7, 1), (7, 2), (last, 0), (last, 2)];
        assert_eq!(in_bins, expected);
    }

    /// A receiver that reports an item sees the same answer, whether the sender has it or not.
    #[test]
    fn a_report_is_acknowledged_before_it_is_looked_at() {
        let run = PsiRun {
            digest: PsiRunDigest::new(&[1; HELLO_LEN], &[2; HELLO_LEN]),
            receiver: 2,
            sender: 3,
            mask_len: mask_len(&PsiFunction::Common, 2, 3),
            traffic: PsiTraffic::of(2, 3),
            other_size: 2,
            decimals: 0,
        };
        let own = [4_u128, 5, 6].map(Block::from);
        for (item, expected) in [(5_u128, Some(vec![1])), (7, None)] {
            let mark = marks(&run.digest, std::iter::once(Block::from(item)))[0];
            let message = [&1_u32.to_be_bytes()[..], &mark.to_be_bytes()].concat();
            let mut answer = Vec::new();
            let mut link = PsiLink::new(&*message, &mut answer).unwrap();
            assert_eq!(reported(&mut link, &run, &own).ok(), expected);
            drop(link);
            assert_eq!(answer, [1]);
        }
        let (too_many, mut answer) = (3_u32.to_be_bytes(), Vec::new());
        let mut link = PsiLink::new(&too_many[..], &mut answer).unwrap();
        assert!(reported(&mut link, &run, &own).is_err(), "more than the receiver has");
        drop(link);
        assert!(answer.is_empty());
    }
}
