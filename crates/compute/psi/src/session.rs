//! A run of either party over a connection.

use std::io::{BufReader, BufWriter, Read, Write};

use blocks::Block;
use blocks::aes::Aes128;
use ot::extension::{
    OtExtension, OtExtensionKind, OtExtensionSecurity, OtReceiverSetUp, OtSenderSetUp, SENDER_LEN,
};
use random::RandomGenerator;
use zeroize::{Zeroize as _, Zeroizing};

use crate::code::{self, CODE_BITS, CODE_LEN};
use crate::cuckoo::{self, BinSelector, CHOICES, CuckooTable};
use crate::error::Error;
use crate::hello::{HELLO_LEN, PsiHello, PsiRunDigest, SALT_LEN};
use crate::masks::{self, MaskComparison, NO_ITEM, NumberedMask};
use crate::oblivious_prf::{PIECE_BINS, PrfReceiver, PrfSender};
use crate::terms::{MAX_ITEMS, PsiLearners, PsiRole, PsiTerms};

/// The transfers from which the seeds are made. A sender of masks that chooses inconsistently is
/// refused.
const TRANSFERS: OtExtension =
    OtExtension { kind: OtExtensionKind::Iknp, security: OtExtensionSecurity::MaliciousReceiver };

/// What the sender answers when it knows what is common.
const RECEIVED: u8 = 1;

/// The number of masks that are sent or read at a time.
const PIECE_MASKS: usize = 1 << 16;

/// The buffers of the connection, in bytes.
const BUFFER_LEN: usize = 1 << 18;

/// What a run has found.
#[derive(Clone, Debug)]
pub struct PsiOutcome {
    /// The places of the common items among this party's, in ascending order. `None` if this party
    /// does not learn them.
    pub common: Option<Vec<usize>>,
    /// The number of items that the other party has shown.
    pub other_size: u32,
    /// What both parties have sent.
    pub traffic: PsiTraffic,
}

/// How many bytes the parties send, besides what the connection adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PsiTraffic {
    /// By the receiver, without the common items that it reports.
    pub receiver: u64,
    /// By the sender, without its answer to that.
    pub sender: u64,
}

impl PsiTraffic {
    /// Of a run with so many items.
    #[must_use]
    pub fn of(receiver: usize, sender: usize) -> Self {
        let masks = CHOICES * sender;
        let mask_len = masks::mask_len(receiver, masks);
        let set_up = TRANSFERS.reply_len() + TRANSFERS.message_len(CODE_BITS);
        Self {
            receiver: (HELLO_LEN + SENDER_LEN + cuckoo::bins(receiver) * CODE_LEN) as u64,
            sender: (HELLO_LEN + set_up + masks * mask_len) as u64,
        }
    }
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PsiProgress {
    /// The bytes that were exchanged.
    pub done: u64,
    /// The bytes of the whole run.
    pub of: u64,
}

/// Finds the items that both parties have. Items are different blocks, which should be digests of
/// the values that are compared. Calls `progress` again and again.
///
/// The reads and writes should end with [`TimedOut`](std::io::ErrorKind::TimedOut) if the other
/// party does not answer.
///
/// # Errors
/// If there are too many items, the parties do not agree on the terms, the other party deviates
/// from the protocol, or the connection fails.
pub fn find_common(
    reader: impl Read,
    writer: impl Write,
    terms: &PsiTerms,
    items: &[Block],
    progress: &mut dyn FnMut(PsiProgress),
) -> Result<PsiOutcome, Error> {
    let shown = terms.hidden_size.map_or(items.len(), |size| size as usize);
    if shown > MAX_ITEMS {
        return Err(Error::TooMany { given: shown, most: MAX_ITEMS });
    }
    let most = terms.hidden_size.map_or(MAX_ITEMS, |size| size as usize);
    if items.len() > most {
        return Err(Error::TooMany { given: items.len(), most });
    }
    let random = RandomGenerator::seeded()?;
    let mut link = PsiLink {
        reader: BufReader::with_capacity(BUFFER_LEN, reader),
        writer: BufWriter::with_capacity(BUFFER_LEN, writer),
        random,
    };
    match terms.role {
        PsiRole::Receiver => receive(&mut link, terms, items, progress),
        PsiRole::Sender => send(&mut link, terms, items, progress),
    }
}

/// A connection, and where random bytes are from.
struct PsiLink<R: Read, W: Write> {
    reader: BufReader<R>,
    writer: BufWriter<W>,
    random: RandomGenerator,
}

/// What both parties know after their first messages.
struct PsiRun {
    digest: PsiRunDigest,
    ours: usize,
    other_size: u32,
    traffic: PsiTraffic,
    masks: usize,
    mask_len: usize,
    bins: usize,
}

impl<R: Read, W: Write> PsiLink<R, W> {
    fn block(&mut self) -> Result<Block, Error> {
        Ok(Block::from_bytes(self.random.array()?))
    }

    fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        self.writer.write_all(message)?;
        Ok(())
    }

    fn read(&mut self, len: usize) -> Result<Vec<u8>, Error> {
        let mut message = vec![0; len];
        self.reader.read_exact(&mut message)?;
        Ok(message)
    }

    /// Exchanges the first messages; the receiver's is followed by `rest`.
    fn agree(&mut self, terms: &PsiTerms, items: usize, rest: &[u8]) -> Result<PsiRun, Error> {
        let PsiTerms { role, learners, comparison, .. } = *terms;
        #[expect(clippy::cast_possible_truncation, reason = "at most 2^24")]
        let size = terms.hidden_size.unwrap_or(items as u32);
        let salt: [u8; SALT_LEN] = self.random.array()?;
        let hello = PsiHello { role, learners, size, salt, comparison };
        let ours = hello.to_bytes();
        self.send(&ours)?;
        self.send(rest)?;
        self.writer.flush()?;
        let mut theirs = [0; HELLO_LEN];
        self.reader.read_exact(&mut theirs)?;
        let other_size = hello.check(&theirs)?;
        let (size, other) = (size as usize, other_size as usize);
        let (receiver, sender, digest) = match role {
            PsiRole::Receiver => (size, other, PsiRunDigest::new(&ours, &theirs)),
            PsiRole::Sender => (other, size, PsiRunDigest::new(&theirs, &ours)),
        };
        let masks = CHOICES * sender;
        Ok(PsiRun {
            digest,
            ours: size,
            other_size,
            traffic: PsiTraffic::of(receiver, sender),
            masks,
            mask_len: masks::mask_len(receiver, masks),
            bins: cuckoo::bins(receiver),
        })
    }
}

impl PsiRun {
    fn outcome(&self, common: Option<Vec<usize>>) -> PsiOutcome {
        let Self { other_size, traffic, .. } = *self;
        PsiOutcome { common, other_size, traffic }
    }

    fn selector(&self) -> BinSelector {
        BinSelector::new(self.digest.key(b"bins"), self.bins)
    }

    fn of(&self) -> u64 {
        self.traffic.receiver + self.traffic.sender
    }
}

/// The receiver's part.
fn receive<R: Read, W: Write>(
    link: &mut PsiLink<R, W>,
    terms: &PsiTerms,
    items: &[Block],
    progress: &mut dyn FnMut(PsiProgress),
) -> Result<PsiOutcome, Error> {
    let (offset, seed) = (link.block()?, link.block()?);
    let (set_up, message) = OtSenderSetUp::new(TRANSFERS, offset, seed);
    let run = link.agree(terms, items.len(), &message)?;
    let mut transfers = set_up.receive(&link.read(TRANSFERS.reply_len())?)?;
    let message = link.read(TRANSFERS.message_len(CODE_BITS))?;
    let mut seeds = Zeroizing::new([[Block::ZERO; 2]; CODE_BITS]);
    transfers.random(&message, &mut *seeds)?;

    let table = CuckooTable::new(&run.selector().bins_of(items), run.bins)?;
    let mut prf = PrfReceiver::new(run.digest, &seeds);
    let mut own: Vec<NumberedMask> = Vec::with_capacity(items.len());
    let mut message = Vec::with_capacity(PIECE_BINS * CODE_LEN);
    let mut done = 0;
    for bins in table.bins().chunks(PIECE_BINS) {
        let in_bins: Vec<Option<Block>> =
            bins.iter().map(|item| item.map(|item| items[item as usize])).collect();
        message.clear();
        let values = prf.values(&in_bins, &mut message);
        let of_items = values.iter().zip(bins).filter_map(|(value, item)| value.zip(*item));
        own.extend(of_items.map(|(value, item)| masks::numbered(&value, run.mask_len, item)));
        link.send(&message)?;
        done += message.len() as u64;
        progress(PsiProgress { done, of: run.of() });
    }
    link.writer.flush()?;

    let mut comparison = MaskComparison::new(own);
    let mut left = run.masks;
    while left > 0 {
        let count = left.min(PIECE_MASKS);
        let message = link.read(count * run.mask_len)?;
        if !comparison.compare(&message, run.mask_len) {
            return Err(Error::Malformed("masks that are not in ascending order"));
        }
        left -= count;
        done += message.len() as u64;
        progress(PsiProgress { done, of: run.of() });
    }
    let mut common = comparison.into_found();
    common.sort_unstable();
    if terms.learners == PsiLearners::Both {
        report(link, &run, common.iter().map(|item| items[*item as usize]))?;
    }
    Ok(run.outcome(Some(common.into_iter().map(|item| item as usize).collect())))
}

/// The sender's part.
fn send<R: Read, W: Write>(
    link: &mut PsiLink<R, W>,
    terms: &PsiTerms,
    items: &[Block],
    progress: &mut dyn FnMut(PsiProgress),
) -> Result<PsiOutcome, Error> {
    let run = link.agree(terms, items.len(), &[])?;
    let set_up = OtReceiverSetUp::new(TRANSFERS, link.block()?);
    let (mut transfers, reply) = set_up.receive(&link.read(SENDER_LEN)?)?;
    let secret: Zeroizing<[u8; CODE_LEN]> = Zeroizing::new(link.random.array()?);
    let mut seeds = Zeroizing::new([Block::ZERO; CODE_BITS]);
    let mut message = Vec::new();
    transfers.random(&*secret, &mut *seeds, &mut message)?;
    link.send(&reply)?;
    link.send(&message)?;
    link.writer.flush()?;

    let masks = own_masks(link, &run, code::of_bytes(&*secret), &seeds, items, progress)?;
    let mut done = run.traffic.receiver;
    for masks in masks.chunks(PIECE_MASKS) {
        message.clear();
        masks::append(masks, run.mask_len, &mut message);
        link.send(&message)?;
        done += message.len() as u64;
        progress(PsiProgress { done: done.min(run.of()), of: run.of() });
    }
    link.writer.flush()?;
    let common = match terms.learners {
        PsiLearners::Receiver => None,
        PsiLearners::Both => {
            let common = reported(link, &run, items)?;
            link.send(&[RECEIVED])?;
            link.writer.flush()?;
            Some(common)
        }
    };
    Ok(run.outcome(common))
}

/// The masks of this party's items in each of their bins, and further random ones if it hides how
/// many items it has, in ascending order.
fn own_masks<R: Read, W: Write>(
    link: &mut PsiLink<R, W>,
    run: &PsiRun,
    mut secret: code::CodeWord,
    seeds: &[Block; CODE_BITS],
    items: &[Block],
    progress: &mut dyn FnMut(PsiProgress),
) -> Result<Vec<NumberedMask>, Error> {
    let in_bins = ItemsInBins::new(&run.selector().bins_of(items), run.bins);
    let mut prf = PrfSender::new(run.digest, secret, seeds);
    secret.zeroize();
    let mut masks: Vec<NumberedMask> = Vec::with_capacity(run.masks);
    let (mut first, mut done) = (0, 0);
    while first < run.bins {
        let bins = PIECE_BINS.min(run.bins - first);
        let message = link.read(bins * CODE_LEN)?;
        let numbers = in_bins.numbers(first, bins);
        let of_piece: Vec<(usize, Block)> =
            numbers.iter().map(|(place, item)| (*place, items[*item as usize])).collect();
        let values = prf.values(&message, &of_piece);
        let numbered = values.iter().zip(&numbers);
        masks
            .extend(numbered.map(|(value, (_, item))| masks::numbered(value, run.mask_len, *item)));
        first += bins;
        done += message.len() as u64;
        progress(PsiProgress { done, of: run.of() });
    }
    for _ in CHOICES * items.len()..CHOICES * run.ours {
        masks.push(masks::numbered(&link.random.array()?, run.mask_len, NO_ITEM));
    }
    masks.sort_unstable();
    Ok(masks)
}

/// The items in each bin, of which there may be several.
struct ItemsInBins {
    /// Where the items of each bin begin; one more for the end.
    begins: Vec<u32>,
    items: Vec<u32>,
}

impl ItemsInBins {
    #[expect(clippy::cast_possible_truncation, reason = "there are at most 2^24 items")]
    fn new(choices: &[[u32; CHOICES]], bins: usize) -> Self {
        let mut begins = vec![0_u32; bins + 1];
        for bin in choices.iter().flatten() {
            begins[*bin as usize + 1] += 1;
        }
        for bin in 0..bins {
            begins[bin + 1] += begins[bin];
        }
        let mut ends = begins.clone();
        let mut items = vec![0; CHOICES * choices.len()];
        for (item, bins) in choices.iter().enumerate() {
            for bin in bins {
                let end = &mut ends[*bin as usize];
                items[*end as usize] = item as u32;
                *end += 1;
            }
        }
        Self { begins, items }
    }

    /// The numbers of the items in `count` bins from `first`, each with the place of its bin among
    /// them.
    fn numbers(&self, first: usize, count: usize) -> Vec<(usize, u32)> {
        let in_bin = |place: usize| {
            let bin = first + place;
            let items = &self.items[self.begins[bin] as usize..self.begins[bin + 1] as usize];
            items.iter().map(move |item| (place, *item))
        };
        (0..count).flat_map(in_bin).collect()
    }
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
    run: &PsiRun,
    common: impl Iterator<Item = Block>,
) -> Result<(), Error> {
    let mut marks = marks(&run.digest, common);
    marks.sort_unstable();
    #[expect(clippy::cast_possible_truncation, reason = "at most 2^24")]
    let count = marks.len() as u32;
    link.send(&count.to_be_bytes())?;
    for mark in marks {
        link.send(&mark.to_be_bytes())?;
    }
    link.writer.flush()?;
    if link.read(1)? != [RECEIVED] {
        return Err(Error::Malformed("more than belongs to this run"));
    }
    Ok(())
}

/// The items that the receiver reports.
fn reported<R: Read, W: Write>(
    link: &mut PsiLink<R, W>,
    run: &PsiRun,
    items: &[Block],
) -> Result<Vec<usize>, Error> {
    let mut own: Vec<(u128, usize)> =
        marks(&run.digest, items.iter().copied()).into_iter().zip(0..).collect();
    own.sort_unstable();
    let mut count = [0; 4];
    link.reader.read_exact(&mut count)?;
    let count = u32::from_be_bytes(count) as usize;
    if count > own.len() {
        return Err(Error::Malformed("more common items than this party has"));
    }
    let mut common = Vec::with_capacity(count);
    let mut before = None;
    for _ in 0..count {
        let mut mark = [0; 16];
        link.reader.read_exact(&mut mark)?;
        let mark = u128::from_be_bytes(mark);
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
