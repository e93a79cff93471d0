//! A run of either party over a connection.

use std::io::{Read, Write};

use blocks::Block;
use ot::extension::OtSenderSetUp;

use crate::count;
use crate::cuckoo;
use crate::encrypted_sum::MAX_SUM;
use crate::error::Error;
use crate::find;
use crate::hello::{self, HELLO_LEN, PsiHello, PsiRunDigest, SALT_LEN, VERSION_LEN};
use crate::link::PsiLink;
use crate::oblivious_prf::TRANSFERS;
use crate::run::{PsiProgress, PsiRun, PsiTraffic, mask_len};
use crate::terms::{
    MAX_DECIMALS, MAX_ITEMS, PsiFunction, PsiLearners, PsiNumbers, PsiRole, PsiTerms,
};

/// What a run has found.
#[derive(Clone, Debug)]
pub struct PsiOutcome {
    /// The places of the common items among this party's, in ascending order. `None` if this party
    /// does not learn them.
    pub common: Option<Vec<usize>>,
    /// The number of common items. `None` if this party does not learn it.
    pub count: Option<usize>,
    /// The sum of the sender's numbers for them. `None` if this party does not learn it.
    pub sum: Option<PsiSum>,
    /// The number of items that the other party has shown.
    pub other_size: u32,
    /// What both parties have sent.
    pub traffic: PsiTraffic,
}

/// A sum of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PsiSum {
    /// In units of the last decimal place.
    pub value: i64,
    /// The number of decimal places.
    pub decimals: u8,
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
    PsiSession::agree(reader, writer, terms, items, PsiFunction::Common)?.run(progress)
}

/// A run whose parties have agreed on the terms. So far, each has told the other only the terms and
/// its number of items.
pub struct PsiSession<'a, R: Read, W: Write> {
    link: PsiLink<R, W>,
    learners: PsiLearners,
    items: &'a [Block],
    function: PsiFunction<'a>,
    run: PsiRun,
    begun: BegunRun,
}

/// A role, and what a party of this role has begun.
enum BegunRun {
    /// With its part of the transfers, if masks are computed by these.
    Receiver(Option<OtSenderSetUp>),
    Sender,
}

impl<'a, R: Read, W: Write> PsiSession<'a, R, W> {
    /// Exchanges the first messages. Items are different blocks, which should be digests of the
    /// values that are compared.
    ///
    /// The reads and writes should end with [`TimedOut`](std::io::ErrorKind::TimedOut) if the other
    /// party does not answer.
    ///
    /// # Errors
    /// If there are too many items, the numbers are too large, the parties do not agree, or the
    /// connection fails.
    ///
    /// # Panics
    /// If this party is the sender and has not one number for each item, or they have more decimal
    /// places than [`MAX_DECIMALS`].
    pub fn agree(
        reader: R,
        writer: W,
        terms: &PsiTerms,
        items: &'a [Block],
        function: PsiFunction<'a>,
    ) -> Result<Self, Error> {
        let PsiTerms { role, learners, comparison, .. } = *terms;
        let size = shown_size(terms, items.len())?;
        if let (PsiRole::Sender, PsiFunction::Sum(numbers)) = (role, &function) {
            check_numbers(numbers, items.len())?;
        }
        let mut link = PsiLink::new(reader, writer)?;
        let salt: [u8; SALT_LEN] = link.random.array()?;
        let hello = PsiHello { role, learners, function, size, salt, comparison };
        let ours = hello.to_bytes();
        link.send(&ours)?;
        let begun = match (role, &function) {
            (PsiRole::Sender, _) => BegunRun::Sender,
            (PsiRole::Receiver, PsiFunction::Common) => {
                let (set_up, message) = OtSenderSetUp::new(TRANSFERS, link.block()?, link.block()?);
                link.send(&message)?;
                BegunRun::Receiver(Some(set_up))
            }
            (PsiRole::Receiver, _) => BegunRun::Receiver(None),
        };
        link.flush()?;
        let mut theirs = [0; HELLO_LEN];
        let version: [u8; VERSION_LEN] = link.read_array()?;
        hello::check_version(version)?;
        theirs[..VERSION_LEN].copy_from_slice(&version);
        theirs[VERSION_LEN..].copy_from_slice(&link.read(HELLO_LEN - VERSION_LEN)?);
        let other = hello.check(&theirs)?;
        let (size, theirs_size) = (size as usize, other.size as usize);
        let (receiver, sender, digest) = match role {
            PsiRole::Receiver => (size, theirs_size, PsiRunDigest::new(&ours, &theirs)),
            PsiRole::Sender => (theirs_size, size, PsiRunDigest::new(&theirs, &ours)),
        };
        let mask_len = mask_len(&function, receiver, sender);
        let traffic = PsiTraffic::of_function(&function, receiver, sender);
        let decimals = match (role, &function) {
            (PsiRole::Sender, PsiFunction::Sum(numbers)) => numbers.decimals,
            _ => other.decimals,
        };
        let other_size = other.size;
        let run = PsiRun { digest, receiver, sender, mask_len, traffic, other_size, decimals };
        Ok(Self { link, learners, items, function, run, begun })
    }

    /// The number of items with which the other party can ask in this run, if it deviates from the
    /// protocol: 0 if it learns nothing, and otherwise at least 1, because a receiver of sums
    /// without items can still learn a number. A receiver of which items are common can use every
    /// bin, however few items it shows.
    #[must_use]
    pub fn other_guesses(&self) -> u64 {
        let size = self.run.other_size;
        match (&self.begun, &self.function) {
            (BegunRun::Receiver(_), _) if self.learners == PsiLearners::Receiver => 0,
            (BegunRun::Sender, PsiFunction::Common) => cuckoo::bins(size as usize) as u64,
            _ => size.max(1).into(),
        }
    }

    /// Limits [`Self::other_guesses`].
    ///
    /// # Errors
    /// If they are more. The other party has learnt nothing then but the terms and the size.
    pub fn limit_guesses(&self, most: u64) -> Result<(), Error> {
        let guesses = self.other_guesses();
        if guesses > most { Err(Error::TooManyGuesses { guesses, most }) } else { Ok(()) }
    }

    /// Computes the result. Calls `progress` again and again.
    ///
    /// # Errors
    /// If the other party deviates from the protocol, or the connection fails.
    pub fn run(self, progress: &mut dyn FnMut(PsiProgress)) -> Result<PsiOutcome, Error> {
        let Self { mut link, learners, items, function, run, begun } = self;
        let (mut common, mut count, mut sum) = (None, None, None);
        match (begun, &function) {
            (BegunRun::Receiver(Some(set_up)), _) => {
                common = Some(find::receive(&mut link, &run, learners, items, set_up, progress)?);
            }
            (BegunRun::Sender, PsiFunction::Common) => {
                common = find::send(&mut link, &run, learners, items, progress)?;
            }
            (BegunRun::Receiver(None), _) => {
                let sums = matches!(function, PsiFunction::Sum(_));
                let counted = count::receive(link, &run, learners, items, sums, progress)?;
                (count, sum) = (Some(counted.count), counted.sum);
            }
            (BegunRun::Sender, _) => {
                let numbers = match &function {
                    PsiFunction::Sum(numbers) => Some(numbers.values),
                    _ => None,
                };
                let counted = count::send(&mut link, &run, learners, items, numbers, progress)?;
                (count, sum) = counted.map_or((None, None), |it| (Some(it.count), it.sum));
            }
        }
        Ok(PsiOutcome {
            count: count.or(common.as_ref().map(Vec::len)),
            common,
            sum: sum.map(|value| PsiSum { value, decimals: run.decimals }),
            other_size: run.other_size,
            traffic: run.traffic,
        })
    }
}

/// The number of items that a party shows.
///
/// # Errors
/// If it has more, or these are too many.
fn shown_size(terms: &PsiTerms, items: usize) -> Result<u32, Error> {
    let shown = terms.hidden_size.map_or(items, |size| size as usize);
    let most = shown.min(MAX_ITEMS);
    let given = items.max(shown);
    if given > most {
        return Err(Error::TooMany { given, most });
    }
    #[expect(clippy::cast_possible_truncation, reason = "at most 2^24")]
    let shown = shown as u32;
    Ok(shown)
}

/// # Errors
/// If numbers are too large to be summed.
fn check_numbers(numbers: &PsiNumbers<'_>, items: usize) -> Result<(), Error> {
    assert!(numbers.values.len() == items, "one number for each item");
    assert!(numbers.decimals <= MAX_DECIMALS, "at most so many decimal places");
    let sum: u128 = numbers.values.iter().map(|value| u128::from(value.unsigned_abs())).sum();
    if sum > u128::from(MAX_SUM.unsigned_abs()) {
        return Err(Error::TooLarge { most: MAX_SUM });
    }
    Ok(())
}
