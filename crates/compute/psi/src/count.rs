//! How many items both parties have, and the sum of the sender's numbers for them.
//!
//! Each party has a secret factor, and multiplies the points of its own items and of the other's by
//! it. Points of the same item are then equal at both, whoever was first (Huberman, Franklin, Hogg,
//! 1999). The sender returns the receiver's points as sorted masks, and sends its own in a random
//! order, each with an encrypted number: so the receiver learns how many are equal, and adds the
//! encryptions of their numbers (Ion and others, 2020, figure 2). It blinds the sum, and the sender
//! decrypts it.

use std::io::{Read, Write};

use blocks::Block;
use curve25519_dalek::scalar::Scalar;
use random::RandomGenerator;
use subtle::Choice;
use zeroize::{Zeroize, Zeroizing};

use crate::encrypted_sum::{self, ENCRYPTION_LEN, EncryptedSum, MAX_SUM, SumKey, SumPublicKey};
use crate::error::Error;
use crate::link::PsiLink;
use crate::masks::{self, NO_ITEM};
use crate::points::{POINT_LEN, decode, encode_doubled, mask_of_point, point_of_item};
use crate::run::{PsiProgress, PsiRun};
use crate::terms::PsiLearners;
use crate::threads::in_threads;

/// The number of points that are sent or read at a time.
const PIECE_POINTS: usize = 1 << 12;

/// How many items are common.
pub(crate) struct PsiCount {
    pub(crate) count: usize,
    pub(crate) sum: Option<i64>,
}

/// The receiver's part.
pub(crate) fn receive<R: Read, W: Write>(
    mut link: PsiLink<R, W>,
    run: &PsiRun,
    learners: PsiLearners,
    items: &[Block],
    sums: bool,
    progress: &mut dyn FnMut(PsiProgress),
) -> Result<PsiCount, Error> {
    let factor = Zeroizing::new(link.scalar()?.div_by_2());
    let own = in_random_order(&mut link, items.iter().map(|item| (*item, ())), run.receiver)?;
    let mut done = 0;
    for items in own.chunks(PIECE_POINTS) {
        let points = in_threads(items, |items| {
            let multiples =
                items.iter().map(|(item, ())| point_of_item(&item.to_bytes()) * *factor);
            Ok(encode_doubled(&Zeroizing::new(multiples.collect::<Vec<_>>())))
        })?;
        for points in points {
            link.send(points.as_flattened())?;
        }
        link.flush()?;
        done += items.len() * POINT_LEN;
        progress(run.progress(done));
    }
    let mut comparison = PointComparison::new(read_masks(&mut link, run, &mut done)?);
    let key = if sums { Some(SumPublicKey::from_bytes(&link.read_array()?)?) } else { None };

    let row_len = row_len(sums);
    let mut left = run.sender;
    while left > 0 {
        let message = link.read(left.min(PIECE_POINTS) * row_len)?;
        let rows: Vec<&[u8]> = message.chunks_exact(row_len).collect();
        let parts = in_threads(&rows, |rows| {
            let points = rows.iter().map(|row| Ok(decode(first_point(row))? * *factor));
            let points = Zeroizing::new(points.collect::<Result<Vec<_>, Error>>()?);
            let encoded = encode_doubled(&points);
            let masks =
                encoded.iter().map(|it| masks::mask(&mask_of_point(&run.digest, it), run.mask_len));
            let places: Vec<Option<usize>> = masks.map(|mask| comparison.place(mask)).collect();
            let sum = sum_of(rows, &places)?;
            Ok((places, sum))
        })?;
        for (places, sum) in parts {
            comparison.add(&places, &sum);
        }
        left -= rows.len();
        done += message.len();
        progress(run.progress(done));
    }
    let count = comparison.count;
    let Some(key) = key else {
        if learners == PsiLearners::Both {
            report(&mut link, count, None)?;
        }
        return Ok(PsiCount { count, sum: None });
    };
    let blinding = link.scalar()?;
    let uniform = Zeroizing::new(link.random.array()?);
    link.send(&key.blind(comparison.sum, &blinding, &uniform))?;
    link.flush()?;
    let decrypted = link.read_array()?;
    // How long the search for the sum takes depends on the sum. If only this party learns it, the
    // connection ends before.
    let link = if learners == PsiLearners::Both { Some(link) } else { None };
    let sum = encrypted_sum::unblind(&decrypted, &blinding)?;
    let sum = sum.ok_or(Error::Malformed("a sum that is too large"))?;
    if let Some(mut link) = link {
        report(&mut link, count, Some(sum))?;
    }
    Ok(PsiCount { count, sum: Some(sum) })
}

/// The sender's part: the result, if it learns it. `numbers` are those of its items, if they are
/// summed.
pub(crate) fn send<R: Read, W: Write>(
    link: &mut PsiLink<R, W>,
    run: &PsiRun,
    learners: PsiLearners,
    items: &[Block],
    numbers: Option<&[i64]>,
    progress: &mut dyn FnMut(PsiProgress),
) -> Result<Option<PsiCount>, Error> {
    let factor = Zeroizing::new(link.scalar()?.div_by_2());
    let numbered = items.iter().enumerate().map(|(place, item)| {
        let number = numbers.and_then(|numbers| numbers.get(place)).copied();
        (*item, number.unwrap_or_default())
    });
    let own = in_random_order(link, numbered, run.sender)?;
    let mut done = 0;
    let masks = masks_of_points(link, run, &factor, &mut |len| {
        done += len;
        progress(run.progress(done));
    })?;
    let mut message = Vec::new();
    masks::append(&masks, run.mask_len, &mut message);
    link.send(&message)?;
    done += message.len();

    let key = SumKey::new(&Zeroizing::new(link.random.array()?));
    if numbers.is_some() {
        link.send(&key.public())?;
    }
    for rows in own.chunks(PIECE_POINTS) {
        let parts = in_threads(rows, |rows| {
            let mut points = Zeroizing::new(Vec::with_capacity(3 * rows.len()));
            let mut random = RandomGenerator::seeded()?;
            for (item, number) in rows {
                points.push(point_of_item(&item.to_bytes()) * *factor);
                if numbers.is_some() {
                    let uniform = Zeroizing::new(random.array()?);
                    points.extend(key.encrypt_half(*number, &uniform));
                }
            }
            Ok(encode_doubled(&points))
        })?;
        for points in parts {
            link.send(points.as_flattened())?;
            done += points.as_flattened().len();
        }
        link.flush()?;
        progress(run.progress(done));
    }
    link.flush()?;
    if numbers.is_some() {
        let blinded: [u8; ENCRYPTION_LEN] = link.read_array()?;
        link.send(&key.decrypt(&blinded)?)?;
        link.flush()?;
    }
    match learners {
        PsiLearners::Receiver => Ok(None),
        PsiLearners::Both => reported(link, run, numbers.is_some()).map(Some),
    }
}

/// The length of what the sender sends for one of its items, in bytes.
fn row_len(sums: bool) -> usize {
    POINT_LEN + if sums { ENCRYPTION_LEN } else { 0 }
}

fn first_point(row: &[u8]) -> &[u8; POINT_LEN] {
    row.first_chunk().expect("a row begins with a point")
}

/// This party's items, with what belongs to them, and random ones that hide how many there are.
fn in_random_order<R: Read, W: Write, T: Copy + Default + Zeroize>(
    link: &mut PsiLink<R, W>,
    items: impl ExactSizeIterator<Item = (Block, T)>,
    size: usize,
) -> Result<Zeroizing<Vec<(Block, T)>>, Error> {
    let mut own = Zeroizing::new(Vec::with_capacity(size));
    own.extend(items);
    while own.len() < size {
        own.push((link.block()?, T::default()));
    }
    // Fisher and Yates.
    for last in (1..size).rev() {
        let drawn = u128::from_le_bytes(link.random.array()?) % (last as u128 + 1);
        own.swap(last, usize::try_from(drawn).unwrap_or(last));
    }
    Ok(own)
}

/// The masks of the receiver's points, in ascending order.
fn masks_of_points<R: Read, W: Write>(
    link: &mut PsiLink<R, W>,
    run: &PsiRun,
    factor: &Scalar,
    received: &mut dyn FnMut(usize),
) -> Result<Vec<u128>, Error> {
    let mut masks = Vec::new();
    let mut left = run.receiver;
    while left > 0 {
        let message = link.read(left.min(PIECE_POINTS) * POINT_LEN)?;
        let (encoded, _) = message.as_chunks::<POINT_LEN>();
        let parts = in_threads(encoded, |encoded| {
            let points = encoded.iter().map(|encoded| Ok(decode(encoded)? * factor));
            let points = Zeroizing::new(points.collect::<Result<Vec<_>, Error>>()?);
            let digests = encode_doubled(&points);
            let digests = digests.iter().map(|it| mask_of_point(&run.digest, it));
            Ok(digests.map(|it| masks::numbered(&it, run.mask_len, NO_ITEM)).collect::<Vec<_>>())
        })?;
        masks.extend(parts.into_iter().flatten());
        left -= encoded.len();
        received(message.len());
    }
    masks.sort_unstable();
    // Equal points would show the receiver by their number which of its items they belong to.
    if !masks.is_sorted_by(|a, b| a < b) {
        return Err(Error::Malformed("equal points"));
    }
    Ok(masks)
}

/// The masks of this party's points that the sender returns.
fn read_masks<R: Read, W: Write>(
    link: &mut PsiLink<R, W>,
    run: &PsiRun,
    done: &mut usize,
) -> Result<Vec<u128>, Error> {
    let message = link.read(run.receiver * run.mask_len)?;
    *done += message.len();
    let masks: Vec<u128> = masks::parse(&message, run.mask_len).collect();
    if !masks.is_sorted_by(|a, b| a < b) {
        return Err(Error::Malformed("masks that are not in ascending order"));
    }
    Ok(masks)
}

/// The receiver's comparison of points with the masks of its own, in ascending order.
struct PointComparison {
    masks: Vec<u128>,
    is_found: Vec<bool>,
    count: usize,
    sum: EncryptedSum,
}

impl PointComparison {
    fn new(masks: Vec<u128>) -> Self {
        let is_found = vec![false; masks.len()];
        Self { masks, is_found, count: 0, sum: EncryptedSum::zero() }
    }

    fn place(&self, mask: u128) -> Option<usize> {
        self.masks.binary_search(&mask).ok()
    }

    /// Adds what is common among some of the sender's points. A point that is there twice is
    /// counted once, and is no error: the sender would see from an error that its item is common.
    fn add(&mut self, places: &[Option<usize>], sum: &EncryptedSum) {
        for place in places.iter().flatten() {
            self.count += usize::from(!std::mem::replace(&mut self.is_found[*place], true));
        }
        self.sum.add_if(sum, Choice::from(1));
    }
}

/// The sum of the encryptions in rows that have a place. The time does not show which these are.
fn sum_of(rows: &[&[u8]], places: &[Option<usize>]) -> Result<EncryptedSum, Error> {
    let mut sum = EncryptedSum::zero();
    for (row, place) in rows.iter().zip(places) {
        let Some(encryption) = row[POINT_LEN..].first_chunk::<ENCRYPTION_LEN>() else { continue };
        let encryption = EncryptedSum::from_bytes(encryption)?;
        sum.add_if(&encryption, Choice::from(u8::from(place.is_some())));
    }
    Ok(sum)
}

/// Reports the result to the sender.
fn report<R: Read, W: Write>(
    link: &mut PsiLink<R, W>,
    count: usize,
    sum: Option<i64>,
) -> Result<(), Error> {
    #[expect(clippy::cast_possible_truncation, reason = "at most 2^24")]
    let count = count as u32;
    link.send(&count.to_be_bytes())?;
    if let Some(sum) = sum {
        link.send(&sum.to_be_bytes())?;
    }
    link.finish_report()
}

/// What the receiver reports.
fn reported<R: Read, W: Write>(
    link: &mut PsiLink<R, W>,
    run: &PsiRun,
    sums: bool,
) -> Result<PsiCount, Error> {
    let count = u32::from_be_bytes(link.read_array()?) as usize;
    let sum = if sums { Some(i64::from_be_bytes(link.read_array()?)) } else { None };
    if count > run.receiver.min(run.sender) {
        return Err(Error::Malformed("more common items than a party has"));
    }
    if sum.is_some_and(|sum| sum.unsigned_abs() > MAX_SUM.unsigned_abs()) {
        return Err(Error::Malformed("a sum that is too large"));
    }
    link.acknowledge_report()?;
    Ok(PsiCount { count, sum })
}
