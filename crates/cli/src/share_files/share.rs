//! The share files that are given to a command, and what is wrong with which.

use std::fmt;
use std::io;
use std::path::Path;

use serde::Serialize;
use sharing::file::{HEADER_LEN, Header, PROTECTED_LEN, SelectError, Split, select_split};
use zeroize::Zeroizing;

use super::input::Input;
use crate::failure::Failure;

/// A file that is not right, and why.
#[derive(Serialize)]
pub(crate) struct Wrong {
    /// The file, as it was given.
    pub(crate) file: String,
    /// Which share it says it is, if it says so.
    pub(crate) share: Option<u8>,
    /// What is wrong.
    pub(crate) reason: String,
}

impl Wrong {
    fn new(path: &Path, share: Option<u8>, reason: String) -> Self {
        Self { file: path.to_string_lossy().into_owned(), share, reason }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.file, self.reason)
    }
}

/// Shares of one split, at least as many as it needs.
pub(crate) struct Shares {
    /// What they are shares of.
    pub(crate) split: Split,
    /// The shares.
    pub(crate) files: Vec<ShareFile>,
    /// Files that were given besides, and are no shares of this split.
    pub(crate) strangers: Vec<Wrong>,
}

impl Shares {
    /// Reads the headers of all files and finds out what is to be joined.
    ///
    /// # Errors
    /// When a file was given twice, or not enough are shares of one split.
    pub(crate) fn of(inputs: Vec<Input>) -> Result<Self, Failure> {
        refuse_twins(&inputs)?;
        let mut candidates = Vec::new();
        let mut strangers = Vec::new();
        for input in inputs {
            match ShareFile::begin(input) {
                Ok(file) => candidates.push(file),
                Err(wrong) => strangers.push(wrong),
            }
        }
        let headers: Vec<Header> = candidates.iter().map(|file| file.header).collect();
        let split =
            select_split(&headers).map_err(|error| explain(error, &candidates, &strangers))?;
        let (files, others): (Vec<_>, Vec<_>) =
            candidates.into_iter().partition(|file| file.header.split() == split);
        strangers.extend(
            others
                .iter()
                .map(|file| file.wrong("of another split, or its header was changed".into())),
        );
        Ok(Self { split, files, strangers })
    }

    /// Reads the shares of the segment that begins at `position` in the secret.
    ///
    /// # Errors
    /// When too few are there.
    pub(crate) fn read(&mut self, len: usize, position: u64) -> Result<(), Failure> {
        let present = self.files.iter_mut().filter(|file| file.is_present());
        present.for_each(|file| file.read(len, position));
        self.refuse_too_few()
    }

    /// Reads on after the last segment, where there should be nothing.
    ///
    /// # Errors
    /// When too few end there.
    pub(crate) fn read_end(&mut self) -> Result<(), Failure> {
        self.files.iter_mut().filter(|file| file.is_present()).for_each(ShareFile::read_end);
        self.refuse_too_few()
    }

    /// Notes that the shares with these coordinates are wrong in the segment at `position`.
    pub(crate) fn blame(&mut self, coordinates: &[u8], position: u64) {
        let wrong = self.files.iter_mut().filter(|file| coordinates.contains(&file.x()));
        wrong.for_each(|file| file.blame(position));
    }

    /// All that was found wrong.
    pub(crate) fn wrong(self) -> Vec<Wrong> {
        let files = self.files.iter().filter_map(ShareFile::verdict);
        files.chain(self.strangers).collect()
    }

    /// The names of the shares with these coordinates.
    pub(crate) fn names_of(&self, coordinates: &[u8]) -> String {
        names(self.files.iter().filter(|file| coordinates.contains(&file.x())))
    }

    /// What is missing, to end an error message with.
    pub(crate) fn losses(&self) -> String {
        let lost = self.files.iter().filter(|file| !file.is_present());
        let lost = lost.filter_map(ShareFile::verdict).map(|wrong| wrong.to_string());
        let strangers = self.strangers.iter().map(Wrong::to_string);
        lost.chain(strangers).flat_map(|wrong| ["; left out ".to_owned(), wrong]).collect()
    }

    fn refuse_too_few(&self) -> Result<(), Failure> {
        let needed = usize::from(self.split.sharing().threshold());
        let found = self.files.iter().filter(|file| file.is_present()).count();
        if found >= needed {
            return Ok(());
        }
        let advice = format!("give {} more", needed - found);
        let losses = self.losses();
        Err(Failure::Refused(format!(
            "too few shares are whole: {found} of the {needed} that are needed; {advice}{losses}"
        )))
    }
}

/// One share file, as far as it has been read.
pub(crate) struct ShareFile {
    input: Input,
    header: Header,
    /// Its share of the segment that is being joined.
    buffer: Zeroizing<Vec<u8>>,
    /// Why it is of no more use, once it is not.
    lost: Option<String>,
    /// In how many segments it was wrong, and where the first of them begins.
    faults: Option<(u64, u64)>,
}

impl ShareFile {
    fn begin(mut input: Input) -> Result<Self, Wrong> {
        let mut bytes = [0; HEADER_LEN];
        let header = input
            .fill(&mut bytes)
            .map_err(|error| cannot_be_read(&error))
            .and_then(|len| Header::parse(&bytes[..len]).map_err(|error| error.to_string()));
        match header {
            Ok(header) => {
                let buffer = Zeroizing::new(vec![0; PROTECTED_LEN]);
                Ok(Self { input, header, buffer, lost: None, faults: None })
            }
            Err(reason) => Err(Wrong::new(input.path(), None, reason)),
        }
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        self.input.path()
    }

    /// Which share it says it is.
    pub(crate) fn x(&self) -> u8 {
        self.header.x()
    }

    /// Whether it has been of use so far.
    pub(crate) fn is_present(&self) -> bool {
        self.lost.is_none()
    }

    /// Its share of the segment that was read last, `len` bytes long.
    pub(crate) fn part(&self, len: usize) -> &[u8] {
        &self.buffer[..len]
    }

    /// Reads its share of the segment that begins at `position` in the secret. It is lost if that
    /// is not there.
    pub(crate) fn read(&mut self, len: usize, position: u64) {
        self.lost = match self.input.fill(&mut self.buffer[..len]) {
            Ok(count) if count == len => None,
            Ok(_) => Some(format!("cut off: what it has from byte {position} on is missing")),
            Err(error) => Some(cannot_be_read(&error)),
        };
    }

    /// Reads on after the last segment. It is lost if there is anything.
    pub(crate) fn read_end(&mut self) {
        self.lost = match self.input.fill(&mut [0]) {
            Ok(0) => None,
            Ok(_) => Some("changed: it goes on after its end".into()),
            Err(error) => Some(cannot_be_read(&error)),
        };
    }

    /// Notes that its share of the segment at `position` is wrong.
    pub(crate) fn blame(&mut self, position: u64) {
        let (count, first) = self.faults.unwrap_or((0, position));
        self.faults = Some((count + 1, first));
    }

    /// What is wrong with it, if something is.
    pub(crate) fn verdict(&self) -> Option<Wrong> {
        let segments = self.header.split().segments();
        let faults = self.faults.map(|(count, first)| {
            format!("changed in {count} of {segments} segments, first from byte {first} on")
        });
        let reasons: Vec<String> = faults.into_iter().chain(self.lost.clone()).collect();
        (!reasons.is_empty()).then(|| self.wrong(reasons.join("; ")))
    }

    fn wrong(&self, reason: String) -> Wrong {
        Wrong::new(self.path(), Some(self.x()), reason)
    }
}

fn cannot_be_read(error: &io::Error) -> String {
    format!("cannot be read: {error}")
}

/// Refuses one file under two names, or twice under one.
fn refuse_twins(inputs: &[Input]) -> Result<(), Failure> {
    for (i, input) in inputs.iter().enumerate() {
        if let Some(twin) = inputs[..i].iter().find(|other| other.is_same_file(input)) {
            let (one, other) = (twin.path().display(), input.path().display());
            return Err(Failure::Usage(if twin.path() == input.path() {
                format!("{one} was given twice; give each share once")
            } else {
                format!("{one} and {other} are the same file; give each share once")
            }));
        }
    }
    Ok(())
}

/// Says why these files cannot be joined.
fn explain(error: SelectError, files: &[ShareFile], strangers: &[Wrong]) -> Failure {
    let message = match error {
        SelectError::NoShares => "there is no share to join".to_owned(),
        SelectError::TooFew { needed, found } => format!(
            "too few shares: {found} of the {needed} that are needed; give {} more",
            needed - found
        ),
        SelectError::Duplicate(x) => {
            let names = names(files.iter().filter(|file| file.x() == x));
            format!(
                "{names} both say that they are share {x}: copies, or changed; give one of them"
            )
        }
        SelectError::MixedSplits { majority: Some(split) } => {
            let names = names(files.iter().filter(|file| file.header.split() != split));
            format!(
                "the shares do not belong together: unlike most, {names} comes from another split, \
                 or its header was changed; leave it out, and give enough of the others"
            )
        }
        SelectError::MixedSplits { majority: None } => format!(
            "the shares do not belong together: {}; nothing here tells which are the true ones; \
             give enough shares of one split, and no others",
            groups(files)
        ),
    };
    let message =
        strangers.iter().fold(message, |message, wrong| format!("{message}; left out {wrong}"));
    Failure::Refused(message)
}

/// Which files say that they are of which split.
fn groups(files: &[ShareFile]) -> String {
    let mut splits: Vec<Split> = Vec::new();
    for split in files.iter().map(|file| file.header.split()) {
        if !splits.contains(&split) {
            splits.push(split);
        }
    }
    let group = |split: &Split| {
        let members = files.iter().filter(|file| file.header.split() == *split);
        let (id, k) = (split.id(), split.sharing().threshold());
        format!("split {id} (which needs {k}) has {}", names(members))
    };
    splits.iter().map(group).collect::<Vec<_>>().join("; ")
}

/// The files' names, or those of the first few.
fn names<'a>(files: impl Iterator<Item = &'a ShareFile>) -> String {
    const MAX_SHOWN: usize = 4;
    let names: Vec<String> = files.map(|file| file.path().display().to_string()).collect();
    let shown = names[..names.len().min(MAX_SHOWN)].join(", ");
    if names.len() > MAX_SHOWN {
        format!("{shown} and {} more", names.len() - MAX_SHOWN)
    } else {
        shown
    }
}
