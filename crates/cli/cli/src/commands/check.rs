//! `sunder check`: verifies shares without joining them to a file.

use std::fmt::Write;
use std::path::PathBuf;

use console::{CommandFailure, CommandProgress};
use serde::Serialize;
use sharing::file::{
    SEGMENT_LEN, ShareFileHeader, SplitParameters, SplitSelectionError, select_split,
};
use sharing::tamper;

use crate::commands::split::scheme_name;
use crate::share_files::candidate::{FaultyFile, ShareCandidate, too_few, without_copies};
use crate::share_files::decoding::decode_segments;
use crate::share_files::scan::{ScannedSplit, ShareScan};
use crate::share_files::share::{ShareFileReader, ShareFileSet};

/// Verifies shares without restoring their file.
///
/// Says which shares belong together, how many are missing, and which are damaged. From K shares of
/// a split on, every byte is verified; with more than K, wrong shares are found and named. With
/// fewer, only the length of each share can be checked.
///
/// Where K shares of a split are given, the file is in the memory of this host, a piece at a time,
/// as for `sunder join`. To keep the shares apart, check each where it is kept.
#[derive(clap::Args)]
#[command(after_help = "Example: the shares in two places
  sunder check /mnt/usb plan.pdf.1.share
Exit codes: 0 each split can be joined, and nothing is wrong; 2 shares are
missing; 3 shares were changed or damaged.")]
pub(crate) struct Arguments {
    /// Print one JSON document on standard output
    #[arg(long)]
    json: bool,
    /// The share files, folders with them, or texts, in any order; `-` is standard input
    #[arg(value_name = "SHARE", required = true)]
    shares: Vec<PathBuf>,
}

/// What `--json` prints.
#[derive(Serialize)]
struct CheckDocument {
    splits: Vec<CheckedSplit>,
    /// Files that are meant to be shares and are none.
    wrong: Vec<FaultyFile>,
    /// The number of other files in folders.
    others: usize,
}

/// The result for the shares of one split.
#[derive(Serialize)]
struct CheckedSplit {
    id: String,
    name: Option<String>,
    scheme: &'static str,
    k: u8,
    m: u8,
    bytes: u64,
    result: SplitCheckResult,
    /// Why the result is not `verified`.
    error: Option<String>,
    /// How many more shares are needed.
    needed: usize,
    /// The numbers of the shares that are not among the files.
    missing: Vec<u8>,
    shares: Vec<CheckedShare>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum SplitCheckResult {
    /// The shares restore the file; those that are wrong are named.
    Verified,
    /// There are fewer shares than are needed.
    TooFew,
    /// The shares do not restore the file: some were changed.
    Changed,
}

#[derive(Serialize)]
struct CheckedShare {
    file: String,
    share: u8,
    state: ShareCheckState,
    /// What is wrong.
    reason: Option<String>,
    #[serde(skip)]
    is_changed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum ShareCheckState {
    /// It restores the right file with the others.
    Verified,
    /// The length is right; the bytes are not verified.
    Complete,
    /// It was changed, damaged, or could not be read.
    Wrong,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    let mut scan = ShareScan::of(&arguments.shares)?;
    let splits = scan.splits();
    let lengths = splits.iter().filter_map(|split| split.candidates.first());
    let total = lengths.fold(0u64, |sum, it| sum.saturating_add(it.header.split().length()));
    let progress = CommandProgress::new(Some(total));
    let splits: Vec<CheckedSplit> =
        splits.into_iter().map(|split| CheckedSplit::of(split, &progress)).collect();
    drop(progress);
    let document = CheckDocument { splits, wrong: scan.faulty, others: scan.others };
    if arguments.json {
        console::print_json(&document)?;
    } else {
        document.print()?;
    }
    document.failure().map_or(Ok(()), Err)
}

impl CheckedSplit {
    fn of(scanned: ScannedSplit, progress: &CommandProgress) -> Self {
        let name = scanned.name().map(|name| name.to_string_lossy().into_owned());
        let candidates = without_copies(scanned.candidates);
        let headers: Vec<_> = candidates.iter().map(|it| it.header).collect();
        let shares: Vec<(String, u8)> = candidates
            .iter()
            .map(|it| (it.path.to_string_lossy().into_owned(), it.header.coordinate()))
            .collect();
        let split = headers.first().map(ShareFileHeader::split);
        let (result, wrong, split) = match select_split(&headers) {
            Ok(split) => {
                let (result, wrong) = verify(candidates, progress);
                (result, wrong, Some(split))
            }
            Err(SplitSelectionError::TooFew { needed, found }) => {
                let wrong = read_whole(candidates, progress);
                let message = format!("too few shares: {found} of the {needed} that are needed");
                (Err(too_few(message, &[])), wrong, split)
            }
            Err(_) => {
                let failure = ShareFileSet::of(candidates, Vec::new()).err();
                (failure.map_or(Ok(()), Err), Vec::new(), split)
            }
        };
        Self::new(scanned.id, name, split, shares, &result, &wrong)
    }

    fn new(
        id: String,
        name: Option<String>,
        split: Option<SplitParameters>,
        shares: Vec<(String, u8)>,
        outcome: &Result<(), CommandFailure>,
        wrong: &[FaultyFile],
    ) -> Self {
        let sharing = split.map(|split| split.sharing());
        let (k, m) = sharing.map_or((0, 0), |it| (it.threshold(), it.shares()));
        let result = match outcome {
            Ok(()) => SplitCheckResult::Verified,
            Err(CommandFailure::Refused(_)) => SplitCheckResult::Changed,
            Err(_) => SplitCheckResult::TooFew,
        };
        let shares: Vec<CheckedShare> = shares
            .into_iter()
            .map(|(file, share)| {
                let fault = wrong.iter().find(|it| it.file == file && it.share == Some(share));
                let state = match (fault, result) {
                    (Some(_), _) => ShareCheckState::Wrong,
                    (None, SplitCheckResult::Verified) => ShareCheckState::Verified,
                    (None, _) => ShareCheckState::Complete,
                };
                let is_changed = fault.is_some_and(|fault| fault.is_changed);
                let reason = fault.map(|fault| fault.reason.clone());
                CheckedShare { file, share, state, reason, is_changed }
            })
            .collect();
        let right = |x| shares.iter().any(|it| it.share == x && it.state != ShareCheckState::Wrong);
        let missing = (1..=m).filter(|&x| shares.iter().all(|it| it.share != x)).collect();
        let needed = usize::from(k).saturating_sub((1..=m).filter(|&x| right(x)).count());
        Self {
            id,
            name,
            scheme: sharing.map_or("", |it| scheme_name(it.scheme())),
            k,
            m,
            bytes: split.map_or(0, |split| split.length()),
            result,
            error: outcome.as_ref().err().map(|failure| failure.message().to_owned()),
            needed,
            missing,
            shares,
        }
    }

    fn is_changed(&self) -> bool {
        self.result == SplitCheckResult::Changed || self.shares.iter().any(|it| it.is_changed)
    }

    /// The report for people.
    fn text(&self) -> String {
        // A name must not look like another line of the report.
        let shown = |text: &Option<String>| text.as_deref().map(console::printable);
        let name = shown(&self.name).map_or_else(String::new, |name| format!(" of {name}"));
        let (k, m, bytes) = (self.k, self.m, self.bytes);
        let mut text = format!("split {}{name}: {bytes} bytes, needs {k} of {m} shares", self.id);
        for share in &self.shares {
            let state = match share.state {
                ShareCheckState::Verified => "verified",
                ShareCheckState::Complete => "complete, not verified",
                ShareCheckState::Wrong => "wrong",
            };
            let reason = shown(&share.reason).map(|reason| format!(": {reason}"));
            let _ = write!(
                text,
                "\n  share {}  {}  {state}{}",
                share.share,
                console::printable(&share.file),
                reason.unwrap_or_default()
            );
        }
        if !self.missing.is_empty() {
            let _ = write!(text, "\n  not among the files: {}", numbers(&self.missing));
        }
        let _ = match (self.result, self.needed) {
            (SplitCheckResult::Verified, _) => write!(text, "\n  these shares restore the file"),
            (SplitCheckResult::TooFew, needed) => write!(text, "\n  {needed} more needed"),
            (SplitCheckResult::Changed, _) => {
                write!(text, "\n  {}", shown(&self.error).unwrap_or_default())
            }
        };
        text
    }
}

impl CheckDocument {
    fn print(&self) -> Result<(), CommandFailure> {
        for split in &self.splits {
            split.text().lines().try_for_each(console::print_line)?;
        }
        for wrong in &self.wrong {
            console::print_line(&format!("no share: {wrong}"))?;
        }
        Ok(())
    }

    /// Why the command fails, if it does.
    fn failure(&self) -> Option<CommandFailure> {
        let changed = self.splits.iter().filter(|split| split.is_changed()).count();
        let damaged = self.wrong.iter().filter(|file| file.is_changed).count();
        if changed + damaged > 0 {
            let in_splits =
                (changed > 0).then(|| format!("in {changed} of {} splits", self.splits.len()));
            let in_none = match damaged {
                0 => None,
                1 => Some("a file that belongs to no split".to_owned()),
                more => Some(format!("{more} files that belong to no split")),
            };
            let places: Vec<String> = in_splits.into_iter().chain(in_none).collect();
            return Some(CommandFailure::Refused(format!(
                "shares were changed or damaged: {}; replace them, or join the right ones and \
                 split the file again",
                places.join(", and ")
            )));
        }
        let short = self.splits.iter().filter(|it| it.result != SplitCheckResult::Verified);
        let short: Vec<&CheckedSplit> = short.collect();
        if let [split] = short[..] {
            return Some(CommandFailure::Usage(format!(
                "too few shares of split {}; give {} more",
                split.id, split.needed
            )));
        }
        if !short.is_empty() {
            let count = short.len();
            return Some(CommandFailure::Usage(format!("too few shares of {count} splits")));
        }
        if self.splits.is_empty() {
            return Some(too_few("there is no share".into(), &self.wrong));
        }
        let unreadable = self.splits.iter().flat_map(|split| &split.shares);
        let unreadable = unreadable.filter(|it| it.state == ShareCheckState::Wrong);
        let mut unusable =
            self.wrong.iter().map(|it| &it.file).chain(unreadable.map(|it| &it.file));
        unusable.next().map(|file| CommandFailure::Usage(format!("{file} could not be checked")))
    }
}

/// Joins the shares in memory, a segment at a time, and returns which are wrong.
fn verify(
    candidates: Vec<ShareCandidate>,
    progress: &CommandProgress,
) -> (Result<(), CommandFailure>, Vec<FaultyFile>) {
    let mut shares = match ShareFileSet::of(candidates, Vec::new()) {
        Ok(shares) => shares,
        Err(failure) => return (Err(failure), Vec::new()),
    };
    let result = decode_segments(&mut shares, progress, |_| Ok(()));
    (result, shares.wrong())
}

/// Reads shares of which there are too few. Returns those that are damaged.
fn read_whole(candidates: Vec<ShareCandidate>, progress: &CommandProgress) -> Vec<FaultyFile> {
    let mut faulty = Vec::new();
    for (index, candidate) in candidates.into_iter().enumerate() {
        let header = candidate.header;
        match candidate.open() {
            Ok(input) => {
                let mut share = ShareFileReader::new(input, header);
                // Progress is counted in bytes of the secret, once for each split.
                let progress = (index == 0).then_some(progress);
                read_share(&mut share, &header.split(), progress);
                faulty.extend(share.fault());
            }
            Err(fault) => faulty.push(fault),
        }
    }
    faulty
}

fn read_share(
    share: &mut ShareFileReader,
    split: &SplitParameters,
    progress: Option<&CommandProgress>,
) {
    let mut rest = split.length();
    for _ in 0..split.segments() {
        let payload = usize::try_from(rest).map_or(SEGMENT_LEN, |rest| rest.min(SEGMENT_LEN));
        share.read(tamper::OVERHEAD + payload, split.length() - rest);
        if !share.is_present() {
            return;
        }
        rest -= payload as u64;
        if let Some(progress) = progress {
            progress.advance(payload);
        }
    }
    share.read_end();
}

/// Numbers in ascending order as a list with ranges: `2, 4 to 7`.
fn numbers(numbers: &[u8]) -> String {
    let ranges = numbers.chunk_by(|a, b| a + 1 == *b);
    let ranges = ranges.filter_map(|range| match range {
        [] => None,
        [only] => Some(only.to_string()),
        [first, second] => Some(format!("{first}, {second}")),
        [first, .., last] => Some(format!("{first} to {last}")),
    });
    ranges.collect::<Vec<_>>().join(", ")
}
