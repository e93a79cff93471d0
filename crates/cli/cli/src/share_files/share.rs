//! The shares of one split while they are read, and what is wrong with each.

use std::io;
use std::path::Path;

use console::CommandFailure;
use sharing::file::{
    PROTECTED_LEN, ShareFileHeader, SplitParameters, SplitSelectionError, select_split,
};
use zeroize::Zeroizing;

use super::candidate::{FaultyFile, ShareCandidate, too_few, without_copies};
use super::input::InputFile;

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
    /// Selects the split to join, and opens its shares. `unrelated` are files that are no shares.
    ///
    /// # Errors
    /// If too few belong to the same split, or two claim to be the same share and differ.
    pub(crate) fn of(
        candidates: Vec<ShareCandidate>,
        mut unrelated: Vec<FaultyFile>,
    ) -> Result<Self, CommandFailure> {
        let candidates = without_copies(candidates);
        let headers: Vec<ShareFileHeader> = candidates.iter().map(|file| file.header).collect();
        let split =
            select_split(&headers).map_err(|error| explain(error, &candidates, &unrelated))?;
        let mut files = Vec::new();
        for candidate in candidates {
            let header = candidate.header;
            if header.split() != split {
                let reason = "of another split, or its header was changed".into();
                let share = Some(header.coordinate());
                unrelated.push(FaultyFile::changed(&candidate.path, share, reason));
                continue;
            }
            match candidate.open() {
                Ok(input) => files.push(ShareFileReader::new(input, header)),
                Err(faulty) => unrelated.push(faulty),
            }
        }
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
        let named = self.files.iter().filter(|file| coordinates.contains(&file.x()));
        shortened(named.map(ShareFileReader::path))
    }

    /// The missing and unrelated files, as the end of an error message.
    pub(crate) fn losses(&self) -> String {
        self.lost().iter().flat_map(|lost| ["; left out ".to_owned(), lost.to_string()]).collect()
    }

    /// The missing and unrelated files.
    fn lost(&self) -> Vec<FaultyFile> {
        let lost = self.files.iter().filter(|file| !file.is_present());
        lost.filter_map(ShareFileReader::fault).chain(self.unrelated.iter().cloned()).collect()
    }

    fn refuse_too_few(&self) -> Result<(), CommandFailure> {
        let needed = usize::from(self.split.sharing().threshold());
        let found = self.files.iter().filter(|file| file.is_present()).count();
        if found >= needed {
            return Ok(());
        }
        let advice = format!("give {} more", needed - found);
        let message =
            format!("too few shares are intact: {found} of the {needed} that are needed; {advice}");
        Err(too_few(message, &self.lost()))
    }
}

/// One share file, and how far it was read.
pub(crate) struct ShareFileReader {
    input: InputFile,
    header: ShareFileHeader,
    /// Its share of the current segment.
    buffer: Zeroizing<Vec<u8>>,
    /// Why it cannot be used any more, if so.
    lost: Option<FaultyFile>,
    /// The number of segments in which it was wrong, and the position of the first.
    faults: Option<(u64, u64)>,
}

impl ShareFileReader {
    /// A share whose header was read from `input`.
    pub(crate) fn new(input: InputFile, header: ShareFileHeader) -> Self {
        let buffer = Zeroizing::new(vec![0; PROTECTED_LEN]);
        Self { input, header, buffer, lost: None, faults: None }
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
            Ok(_) => Some(
                self.changed(format!("truncated: its data from byte {position} on is missing")),
            ),
            Err(error) => Some(self.unreadable(&error)),
        };
    }

    /// Checks that the file ends here. Marks it as lost otherwise.
    pub(crate) fn read_end(&mut self) {
        self.lost = match self.input.fill(&mut [0]) {
            Ok(0) => None,
            Ok(_) => Some(self.changed("changed: it continues after its end".into())),
            Err(error) => Some(self.unreadable(&error)),
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
        match (faults, &self.lost) {
            (None, lost) => lost.clone(),
            (Some(faults), None) => Some(self.changed(faults)),
            (Some(faults), Some(lost)) => Some(self.changed(format!("{faults}; {}", lost.reason))),
        }
    }

    fn changed(&self, reason: String) -> FaultyFile {
        FaultyFile::changed(self.path(), Some(self.x()), reason)
    }

    fn unreadable(&self, error: &io::Error) -> FaultyFile {
        let reason = format!("cannot be read: {error}");
        FaultyFile::unusable(self.path(), Some(self.x()), reason)
    }
}

/// Explains why these files cannot be joined.
fn explain(
    error: SplitSelectionError,
    files: &[ShareCandidate],
    unrelated: &[FaultyFile],
) -> CommandFailure {
    let message = match error {
        SplitSelectionError::NoShares => return too_few("there is no share".into(), unrelated),
        SplitSelectionError::TooFew { needed, found } => {
            let missing = needed - found;
            let message = format!(
                "too few shares: {found} of the {needed} that are needed; give {missing} more"
            );
            return too_few(message, unrelated);
        }
        SplitSelectionError::Duplicate(x) => {
            let names = names(files.iter().filter(|file| file.header.coordinate() == x));
            format!(
                "{names} both claim to be share {x} and differ: one was changed; give only one of \
                 them"
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
fn groups(files: &[ShareCandidate]) -> String {
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
fn names<'a>(files: impl Iterator<Item = &'a ShareCandidate>) -> String {
    shortened(files.map(|file| file.path.as_path()))
}

/// The first few of these names.
fn shortened<'a>(paths: impl Iterator<Item = &'a Path>) -> String {
    const MAX_SHOWN: usize = 4;
    let names: Vec<String> = paths.map(|path| path.display().to_string()).collect();
    let shown = names[..names.len().min(MAX_SHOWN)].join(", ");
    if names.len() > MAX_SHOWN {
        format!("{shown} and {} more", names.len() - MAX_SHOWN)
    } else {
        shown
    }
}
