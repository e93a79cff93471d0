//! The share files given to a command, and what is wrong with each.

use std::fmt;
use std::io;
use std::path::Path;

use console::CommandFailure;
use serde::Serialize;
use sharing::file::{
    HEADER_LEN, PROTECTED_LEN, ShareFileHeader, SplitParameters, SplitSelectionError, select_split,
};
use zeroize::Zeroizing;

use super::input::InputFile;

/// A faulty file.
#[derive(Serialize)]
pub(crate) struct FaultyFile {
    /// The file, as it was given.
    pub(crate) file: String,
    /// The number of the share, if the file states one.
    pub(crate) share: Option<u8>,
    /// What is wrong.
    pub(crate) reason: String,
}

impl FaultyFile {
    fn new(path: &Path, share: Option<u8>, reason: String) -> Self {
        Self { file: path.to_string_lossy().into_owned(), share, reason }
    }
}

impl fmt::Display for FaultyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.file, self.reason)
    }
}

/// The shares of one split, at least as many as are needed.
pub(crate) struct ShareFileSet {
    /// The split that they belong to.
    pub(crate) split: SplitParameters,
    /// The shares.
    pub(crate) files: Vec<ShareFileReader>,
    /// Other files that were given, which are not shares of this split.
    pub(crate) unrelated: Vec<FaultyFile>,
}

impl ShareFileSet {
    /// Reads the headers of all files and selects the split to join.
    ///
    /// # Errors
    /// If a file was given twice, or too few belong to the same split.
    pub(crate) fn of(inputs: Vec<InputFile>) -> Result<Self, CommandFailure> {
        refuse_duplicates(&inputs)?;
        let mut candidates = Vec::new();
        let mut unrelated = Vec::new();
        for input in inputs {
            match ShareFileReader::begin(input) {
                Ok(file) => candidates.push(file),
                Err(wrong) => unrelated.push(wrong),
            }
        }
        let headers: Vec<ShareFileHeader> = candidates.iter().map(|file| file.header).collect();
        let split =
            select_split(&headers).map_err(|error| explain(error, &candidates, &unrelated))?;
        let (files, others): (Vec<_>, Vec<_>) =
            candidates.into_iter().partition(|file| file.header.split() == split);
        unrelated.extend(
            others
                .iter()
                .map(|file| file.wrong("of another split, or its header was changed".into())),
        );
        Ok(Self { split, files, unrelated })
    }

    /// Reads the shares of the segment that begins at `position` in the secret.
    ///
    /// # Errors
    /// If too few can be read.
    pub(crate) fn read(&mut self, len: usize, position: u64) -> Result<(), CommandFailure> {
        let present = self.files.iter_mut().filter(|file| file.is_present());
        present.for_each(|file| file.read(len, position));
        self.refuse_too_few()
    }

    /// Checks that the files end after the last segment.
    ///
    /// # Errors
    /// If too few end there.
    pub(crate) fn read_end(&mut self) -> Result<(), CommandFailure> {
        self.files.iter_mut().filter(|file| file.is_present()).for_each(ShareFileReader::read_end);
        self.refuse_too_few()
    }

    /// Records that the shares with these coordinates are wrong in the segment at `position`.
    pub(crate) fn mark_faulty(&mut self, coordinates: &[u8], position: u64) {
        let wrong = self.files.iter_mut().filter(|file| coordinates.contains(&file.x()));
        wrong.for_each(|file| file.mark_faulty(position));
    }

    /// All faulty files.
    pub(crate) fn wrong(self) -> Vec<FaultyFile> {
        let files = self.files.iter().filter_map(ShareFileReader::fault);
        files.chain(self.unrelated).collect()
    }

    /// The names of the shares with these coordinates.
    pub(crate) fn names_of(&self, coordinates: &[u8]) -> String {
        names(self.files.iter().filter(|file| coordinates.contains(&file.x())))
    }

    /// The missing and unrelated files, as the end of an error message.
    pub(crate) fn losses(&self) -> String {
        let lost = self.files.iter().filter(|file| !file.is_present());
        let lost = lost.filter_map(ShareFileReader::fault).map(|wrong| wrong.to_string());
        let unrelated = self.unrelated.iter().map(FaultyFile::to_string);
        lost.chain(unrelated).flat_map(|wrong| ["; left out ".to_owned(), wrong]).collect()
    }

    fn refuse_too_few(&self) -> Result<(), CommandFailure> {
        let needed = usize::from(self.split.sharing().threshold());
        let found = self.files.iter().filter(|file| file.is_present()).count();
        if found >= needed {
            return Ok(());
        }
        let advice = format!("give {} more", needed - found);
        let losses = self.losses();
        Err(CommandFailure::Refused(format!(
            "too few shares are intact: {found} of the {needed} that are needed; {advice}{losses}"
        )))
    }
}

/// One share file, and how far it was read.
pub(crate) struct ShareFileReader {
    input: InputFile,
    header: ShareFileHeader,
    /// Its share of the current segment.
    buffer: Zeroizing<Vec<u8>>,
    /// Why it cannot be used any more, if so.
    lost: Option<String>,
    /// The number of segments in which it was wrong, and the position of the first.
    faults: Option<(u64, u64)>,
}

impl ShareFileReader {
    fn begin(mut input: InputFile) -> Result<Self, FaultyFile> {
        let mut bytes = [0; HEADER_LEN];
        let header =
            input.fill(&mut bytes).map_err(|error| cannot_be_read(&error)).and_then(|len| {
                ShareFileHeader::parse(&bytes[..len]).map_err(|error| error.to_string())
            });
        match header {
            Ok(header) => {
                let buffer = Zeroizing::new(vec![0; PROTECTED_LEN]);
                Ok(Self { input, header, buffer, lost: None, faults: None })
            }
            Err(reason) => Err(FaultyFile::new(input.path(), None, reason)),
        }
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        self.input.path()
    }

    /// The number of the share that it states.
    pub(crate) fn x(&self) -> u8 {
        self.header.coordinate()
    }

    /// Whether it could be used so far.
    pub(crate) fn is_present(&self) -> bool {
        self.lost.is_none()
    }

    /// Its share of the last segment, `len` bytes long.
    pub(crate) fn part(&self, len: usize) -> &[u8] {
        &self.buffer[..len]
    }

    /// Reads its share of the segment that begins at `position` in the secret. Marks it as lost if
    /// the share is not complete.
    pub(crate) fn read(&mut self, len: usize, position: u64) {
        self.lost = match self.input.fill(&mut self.buffer[..len]) {
            Ok(count) if count == len => None,
            Ok(_) => Some(format!("truncated: its data from byte {position} on is missing")),
            Err(error) => Some(cannot_be_read(&error)),
        };
    }

    /// Checks that the file ends here. Marks it as lost otherwise.
    pub(crate) fn read_end(&mut self) {
        self.lost = match self.input.fill(&mut [0]) {
            Ok(0) => None,
            Ok(_) => Some("changed: it continues after its end".into()),
            Err(error) => Some(cannot_be_read(&error)),
        };
    }

    /// Records that its share of the segment at `position` is wrong.
    pub(crate) fn mark_faulty(&mut self, position: u64) {
        let (count, first) = self.faults.unwrap_or((0, position));
        self.faults = Some((count + 1, first));
    }

    /// What is wrong with it, if anything.
    pub(crate) fn fault(&self) -> Option<FaultyFile> {
        let segments = self.header.split().segments();
        let faults = self.faults.map(|(count, first)| {
            format!("changed in {count} of {segments} segments, first from byte {first} on")
        });
        let reasons: Vec<String> = faults.into_iter().chain(self.lost.clone()).collect();
        (!reasons.is_empty()).then(|| self.wrong(reasons.join("; ")))
    }

    fn wrong(&self, reason: String) -> FaultyFile {
        FaultyFile::new(self.path(), Some(self.x()), reason)
    }
}

fn cannot_be_read(error: &io::Error) -> String {
    format!("cannot be read: {error}")
}

/// Refuses one file under two names, and a name given twice.
fn refuse_duplicates(inputs: &[InputFile]) -> Result<(), CommandFailure> {
    for (i, input) in inputs.iter().enumerate() {
        if let Some(duplicate) = inputs[..i].iter().find(|other| other.is_same_file(input)) {
            let (one, other) = (duplicate.path().display(), input.path().display());
            return Err(CommandFailure::Usage(if duplicate.path() == input.path() {
                format!("{one} was given twice; give each share once")
            } else {
                format!("{one} and {other} are the same file; give each share once")
            }));
        }
    }
    Ok(())
}

/// Explains why these files cannot be joined.
fn explain(
    error: SplitSelectionError,
    files: &[ShareFileReader],
    unrelated: &[FaultyFile],
) -> CommandFailure {
    let message = match error {
        SplitSelectionError::NoShares => "there is no share to join".to_owned(),
        SplitSelectionError::TooFew { needed, found } => format!(
            "too few shares: {found} of the {needed} that are needed; give {} more",
            needed - found
        ),
        SplitSelectionError::Duplicate(x) => {
            let names = names(files.iter().filter(|file| file.x() == x));
            format!(
                "{names} both claim to be share {x}: they are copies, or one was changed; give \
                 only one of them"
            )
        }
        SplitSelectionError::MixedSplits { majority: Some(split) } => {
            let names = names(files.iter().filter(|file| file.header.split() != split));
            format!(
                "the shares do not belong together: unlike most, {names} comes from another split, \
                 or its header was changed; leave it out, and give enough of the others"
            )
        }
        SplitSelectionError::MixedSplits { majority: None } => format!(
            "the shares do not belong together: {}; nothing shows which are genuine; give enough \
             shares of one split, and no others",
            groups(files)
        ),
    };
    let message =
        unrelated.iter().fold(message, |message, wrong| format!("{message}; left out {wrong}"));
    CommandFailure::Refused(message)
}

/// The splits that the files claim to belong to.
fn groups(files: &[ShareFileReader]) -> String {
    let mut splits: Vec<SplitParameters> = Vec::new();
    for split in files.iter().map(|file| file.header.split()) {
        if !splits.contains(&split) {
            splits.push(split);
        }
    }
    let group = |split: &SplitParameters| {
        let members = files.iter().filter(|file| file.header.split() == *split);
        let (id, k) = (split.id(), split.sharing().threshold());
        format!("split {id} (which needs {k}) has {}", names(members))
    };
    splits.iter().map(group).collect::<Vec<_>>().join("; ")
}

/// The names of the files, or of the first few.
fn names<'a>(files: impl Iterator<Item = &'a ShareFileReader>) -> String {
    const MAX_SHOWN: usize = 4;
    let names: Vec<String> = files.map(|file| file.path().display().to_string()).collect();
    let shown = names[..names.len().min(MAX_SHOWN)].join(", ");
    if names.len() > MAX_SHOWN {
        format!("{shown} and {} more", names.len() - MAX_SHOWN)
    } else {
        shown
    }
}
