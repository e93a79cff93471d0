//! Shares that were found in the files given to a command, before it is known which are used.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use console::CommandFailure;
use serde::Serialize;
use sharing::file::{HEADER_LEN, ShareFileHeader};
use zeroize::Zeroizing;

use super::input::InputFile;

/// A faulty file.
#[derive(Clone, Serialize)]
pub(crate) struct FaultyFile {
    /// The file, as it was given.
    pub(crate) file: String,
    /// The number of the share, if the file states one.
    pub(crate) share: Option<u8>,
    /// What is wrong.
    pub(crate) reason: String,
    /// Whether a share was changed, and not only left out, mistyped or not readable.
    #[serde(skip)]
    pub(crate) is_changed: bool,
}

impl FaultyFile {
    /// A file that is not used, although nobody need have changed it.
    pub(crate) fn unusable(path: &Path, share: Option<u8>, reason: String) -> Self {
        let file = path.to_string_lossy().into_owned();
        Self { file, share, reason, is_changed: false }
    }

    /// A share that is not as `split` wrote it.
    pub(crate) fn changed(path: &Path, share: Option<u8>, reason: String) -> Self {
        Self { is_changed: true, ..Self::unusable(path, share, reason) }
    }
}

impl fmt::Display for FaultyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.file, self.reason)
    }
}

/// A share with a valid header. Its file is open only if it could not be opened again.
pub(crate) struct ShareCandidate {
    /// The file, as it was given.
    pub(crate) path: PathBuf,
    /// Its header.
    pub(crate) header: ShareFileHeader,
    contents: CandidateContents,
}

enum CandidateContents {
    /// A file that is opened again when it is used, so that many files are not open at a time.
    Closed,
    /// A pipe or standard input, of which the header was read.
    Open(InputFile),
    /// A whole share, from a text.
    Memory(Zeroizing<Vec<u8>>),
}

impl ShareCandidate {
    /// A share of which only the header was read from `input`.
    pub(crate) fn of_file(input: InputFile, header: ShareFileHeader) -> Self {
        let path = input.path().to_owned();
        let contents = if input.is_reopenable() {
            CandidateContents::Closed
        } else {
            CandidateContents::Open(input)
        };
        Self { path, header, contents }
    }

    /// A whole share that was read from the text at `path`.
    pub(crate) fn of_bytes(
        bytes: Zeroizing<Vec<u8>>,
        header: ShareFileHeader,
        path: &Path,
    ) -> Self {
        Self { path: path.to_owned(), header, contents: CandidateContents::Memory(bytes) }
    }

    /// Opens the file, behind its header.
    ///
    /// # Errors
    /// If it cannot be opened again, or has another header now.
    pub(crate) fn open(self) -> Result<InputFile, FaultyFile> {
        let share = Some(self.header.coordinate());
        let unusable = |reason| FaultyFile::unusable(&self.path, share, reason);
        let mut input = match self.contents {
            CandidateContents::Open(input) => return Ok(input),
            CandidateContents::Memory(bytes) => InputFile::from_bytes(bytes, &self.path),
            CandidateContents::Closed => {
                let opened = InputFile::open(&self.path);
                opened.map_err(|failure| unusable(failure.message().to_owned()))?
            }
        };
        let mut bytes = [0; HEADER_LEN];
        let read = input.fill(&mut bytes).map_err(|error| unusable(error.to_string()))?;
        if ShareFileHeader::parse(&bytes[..read]) != Ok(self.header) {
            return Err(unusable("it was changed while it was read".into()));
        }
        Ok(input)
    }

    /// Whether both have the same contents, as far as they can be read again.
    fn is_copy_of(&self, other: &Self) -> bool {
        let (Some(mut one), Some(mut other)) = (self.reopened(), other.reopened()) else {
            return false;
        };
        let mut buffers = [0; 2].map(|_: i32| Zeroizing::new(vec![0u8; 1 << 16]));
        let [first, second] = &mut buffers;
        loop {
            let (Ok(len), Ok(other_len)) = (one.fill(first), other.fill(second)) else {
                return false;
            };
            if first[..len] != second[..other_len] {
                return false;
            }
            if len == 0 {
                return true;
            }
        }
    }

    fn reopened(&self) -> Option<InputFile> {
        match &self.contents {
            CandidateContents::Closed => InputFile::open(&self.path).ok(),
            CandidateContents::Open(_) => None,
            CandidateContents::Memory(bytes) => {
                Some(InputFile::from_bytes(bytes.clone(), &self.path))
            }
        }
    }
}

/// Leaves out shares that are byte for byte copies of the first with the same header.
pub(crate) fn without_copies(candidates: Vec<ShareCandidate>) -> Vec<ShareCandidate> {
    let mut kept: Vec<ShareCandidate> = Vec::new();
    let mut places = HashMap::new();
    for candidate in candidates {
        match places.get(&candidate.header) {
            Some(&place) if candidate.is_copy_of(&kept[place]) => {}
            Some(_) => kept.push(candidate),
            None => {
                places.insert(candidate.header, kept.len());
                kept.push(candidate);
            }
        }
    }
    kept
}

/// Why a command cannot go on for want of shares: tampering if a share was changed, wrong input
/// otherwise.
pub(crate) fn too_few(message: String, faulty: &[FaultyFile]) -> CommandFailure {
    let message = faulty.iter().fold(message, |message, it| format!("{message}; left out {it}"));
    if faulty.iter().any(|file| file.is_changed) {
        CommandFailure::Refused(message)
    } else {
        CommandFailure::Usage(message)
    }
}
