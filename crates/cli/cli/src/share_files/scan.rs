//! Finds the shares in files, folders and texts.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use console::CommandFailure;
use sharing::file::{HEADER_LEN, ShareFileHeader, ShareFileHeaderError};
use sharing::paper::{PaperShareCollector, has_label};
use zeroize::Zeroizing;

use super::candidate::{FaultyFile, ShareCandidate};
use super::input::{InputFile, is_dash};
use super::names::{is_named_like_a_share, original_name};

/// The largest number of files in a folder, and of shares in all.
const MAX_FILES: usize = 16_384;

/// The largest number of shares from texts.
const MAX_PAPER_SHARES: usize = 4_096;

/// The longest text, in bytes.
const MAX_TEXT_LEN: usize = 1 << 20;

/// The first bytes of a share file by which a damaged one is recognised, whatever its name is.
const MAGIC_BEGINNING: &[u8] = b"\x8BSND";

/// How the pages of `split --paper` begin, and what to do with one that is given as a share.
const PAGE_BEGINNING: &[u8] = b"<!DOCTYPE html>";
const PAGE_ADVICE: &str = "a page to print: write its lines, or what its codes say, into a text";

/// The shares in the files given to a command.
#[derive(Default)]
pub(crate) struct ShareScan {
    /// The shares with a valid header, in the order of the files.
    pub(crate) candidates: Vec<ShareCandidate>,
    /// Files that are meant to be shares, or were given by name, and are none.
    pub(crate) faulty: Vec<FaultyFile>,
    /// The number of other files in folders.
    pub(crate) others: usize,
    /// Whether one of the paths is a folder.
    pub(crate) has_folder: bool,
    paper_shares: usize,
    seen: HashMap<(u64, u64), PathBuf>,
}

/// The shares of one split identifier.
pub(crate) struct ScannedSplit {
    /// The identifier, in hexadecimal digits.
    pub(crate) id: String,
    /// Its shares.
    pub(crate) candidates: Vec<ShareCandidate>,
}

impl ScannedSplit {
    /// The name of the split file, if all shares agree on it.
    pub(crate) fn name(&self) -> Option<PathBuf> {
        let mut names = self.candidates.iter().map(|it| original_name(&it.path));
        let first = names.next().flatten()?;
        names.all(|name| name == Some(first)).then(|| PathBuf::from(first))
    }
}

impl ShareScan {
    /// Reads the headers of all files. Of a folder, all files in it are read, and not those of
    /// folders in it.
    ///
    /// # Errors
    /// If a file was given twice or cannot be opened, or there are too many.
    pub(crate) fn of(paths: &[PathBuf]) -> Result<Self, CommandFailure> {
        let mut scan = Self::default();
        for path in paths {
            if !is_dash(path) && path.is_dir() {
                scan.has_folder = true;
                scan.add_folder(path)?;
            } else {
                let input = InputFile::open(path)?;
                scan.refuse_duplicate(&input)?;
                scan.add(input, true)?;
            }
        }
        Ok(scan)
    }

    /// The shares by the identifiers of their splits, in the order of the files.
    pub(crate) fn splits(&mut self) -> Vec<ScannedSplit> {
        let mut splits: Vec<ScannedSplit> = Vec::new();
        let mut places = HashMap::new();
        for candidate in self.candidates.drain(..) {
            let id = candidate.header.split().id();
            let place = *places.entry(id).or_insert_with(|| {
                splits.push(ScannedSplit { id: id.to_string(), candidates: Vec::new() });
                splits.len() - 1
            });
            splits[place].candidates.push(candidate);
        }
        splits
    }

    fn add_folder(&mut self, folder: &Path) -> Result<(), CommandFailure> {
        let entries = fs::read_dir(folder);
        let mut entries: Vec<PathBuf> = entries
            .and_then(|entries| {
                let paths = entries.map(|entry| entry.map(|entry| entry.path()));
                paths.take(MAX_FILES + 1).collect::<io::Result<Vec<PathBuf>>>()
            })
            .map_err(|error| CommandFailure::reading(folder, &error))?;
        if entries.len() > MAX_FILES {
            let folder = folder.display();
            return Err(CommandFailure::Usage(format!(
                "{folder} has more than {MAX_FILES} files; give a folder with the shares alone"
            )));
        }
        entries.sort();
        // Not pipes and devices, which could wait for ever.
        for path in entries.into_iter().filter(|path| path.is_file()) {
            match InputFile::open(&path) {
                Ok(input) => {
                    let identity = input.identity();
                    if !identity.is_some_and(|identity| self.seen.contains_key(&identity)) {
                        self.seen.extend(identity.map(|identity| (identity, path)));
                        self.add(input, false)?;
                    }
                }
                Err(failure) if is_named_like_a_share(&path) => {
                    let reason = failure.message().to_owned();
                    self.faulty.push(FaultyFile::unusable(&path, None, reason));
                }
                Err(_) => self.others += 1,
            }
        }
        Ok(())
    }

    /// Refuses one file under two names, and a name given twice.
    fn refuse_duplicate(&mut self, input: &InputFile) -> Result<(), CommandFailure> {
        let Some(identity) = input.identity() else { return Ok(()) };
        let Some(other) = self.seen.insert(identity, input.path().to_owned()) else {
            return Ok(());
        };
        let (one, other) = (other.display(), input.path().display());
        Err(CommandFailure::Usage(if one.to_string() == other.to_string() {
            format!("{one} was given twice; give each share once")
        } else {
            format!("{one} and {other} are the same file; give each share once")
        }))
    }

    /// Adds the share in a file, or the shares in a text. Other files are faulty if they are meant
    /// to be shares: if they were `given` by name, or are named like a share, or begin like one.
    fn add(&mut self, mut input: InputFile, given: bool) -> Result<(), CommandFailure> {
        let path = input.path().to_owned();
        let mut beginning = Zeroizing::new(vec![0u8; HEADER_LEN]);
        match input.fill(&mut beginning) {
            Ok(len) => beginning.truncate(len),
            Err(error) => {
                let reason = format!("cannot be read: {error}");
                self.faulty.push(FaultyFile::unusable(&path, None, reason));
                return Ok(());
            }
        }
        let error = match ShareFileHeader::parse(&beginning) {
            Ok(header) => {
                self.candidates.push(ShareCandidate::of_file(input, header));
                return self.refuse_too_many();
            }
            Err(error) => error,
        };
        if self.add_text(&beginning, &mut input)? {
            return self.refuse_too_many();
        }
        let is_named = is_named_like_a_share(&path);
        let begins = beginning.starts_with(MAGIC_BEGINNING);
        // A folder has many files that are no shares.
        let is_meant = is_named || begins || given;
        let is_other =
            matches!(error, ShareFileHeaderError::BadMagic | ShareFileHeaderError::TooShort);
        if !is_meant {
            self.others += 1;
        } else if is_other && !is_named && !begins {
            let is_page = beginning.starts_with(PAGE_BEGINNING);
            let reason = if is_page { PAGE_ADVICE.to_owned() } else { error.to_string() };
            self.faulty.push(FaultyFile::unusable(&path, None, reason));
        } else {
            self.faulty.push(FaultyFile::changed(&path, None, error.to_string()));
        }
        Ok(())
    }

    /// Adds the shares of a text. Returns whether it is one.
    fn add_text(
        &mut self,
        beginning: &[u8],
        input: &mut InputFile,
    ) -> Result<bool, CommandFailure> {
        let is_text = |byte: &u8| !byte.is_ascii_control() || byte.is_ascii_whitespace();
        // The pages of `split --paper` contain lines, and are to be printed, not read.
        let is_markup = beginning.starts_with(b"<");
        let is_long = input.len().is_some_and(|len| len > MAX_TEXT_LEN as u64);
        if is_long || is_markup || beginning.is_empty() || !beginning.iter().all(is_text) {
            return Ok(false);
        }
        let mut text = Zeroizing::new(vec![0u8; MAX_TEXT_LEN]);
        text[..beginning.len()].copy_from_slice(beginning);
        let read = input.fill(&mut text[beginning.len()..]);
        let read = read.map_err(|error| CommandFailure::reading(input.path(), &error))?;
        text.truncate(beginning.len() + read);
        let text = Zeroizing::new(String::from_utf8_lossy(&text).into_owned());
        if !text.lines().any(has_label) {
            return Ok(false);
        }
        let (shares, wrong) = read_text(&text, input.path());
        self.paper_shares += shares.len();
        self.candidates.extend(shares);
        self.faulty.extend(wrong);
        Ok(true)
    }

    fn refuse_too_many(&self) -> Result<(), CommandFailure> {
        if self.candidates.len() > MAX_FILES || self.paper_shares > MAX_PAPER_SHARES {
            let message = format!(
                "more than {MAX_FILES} shares, or {MAX_PAPER_SHARES} from texts; give fewer"
            );
            return Err(CommandFailure::Usage(message));
        }
        Ok(())
    }
}

/// Reads the lines of shares in a text. Empty lines, and those that begin with `#`, are left out.
fn read_text(text: &str, path: &Path) -> (Vec<ShareCandidate>, Vec<FaultyFile>) {
    const MAX_SHOWN: usize = 4;
    let mut collector = PaperShareCollector::default();
    let mut wrong = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        if let Err(error) = collector.add(line) {
            wrong.push(format!("line {number}: {error}"));
        }
    }
    let mut shares = Vec::new();
    let mut faulty = Vec::new();
    for (label, share) in collector.finish() {
        let header = share
            .as_ref()
            .map_err(ToString::to_string)
            .and_then(|bytes| ShareFileHeader::parse(bytes).map_err(|error| error.to_string()));
        match (header, share) {
            (Ok(header), Ok(bytes)) => shares.push(ShareCandidate::of_bytes(bytes, header, path)),
            (Err(reason), _) => wrong.push(format!("share {label}: {reason}")),
            (Ok(_), Err(_)) => {}
        }
    }
    if !wrong.is_empty() {
        let more = wrong.len().saturating_sub(MAX_SHOWN);
        let shown = wrong[..wrong.len().min(MAX_SHOWN)].join(", ");
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let reason = format!("{shown}{more}; compare them with the page");
        faulty.push(FaultyFile::unusable(path, None, reason));
    }
    (shares, faulty)
}
