//! The messages of transfers of several files and directories, specified in
//! `docs/protocols/transport.md`.

use std::collections::HashSet;
use std::io::{self, Read};

use super::file::{DIGEST_LEN, FileAttributes, FileName, array, invalid};

/// The kind of the sender's first message.
pub(crate) const TREE_KIND: u8 = 6;

/// The kind of the message before the data of an entry.
pub(crate) const ENTRY_KIND: u8 = 7;

/// The kind of the receiver's list of files that it does not have.
pub(crate) const WANTED_KIND: u8 = 20;

/// The kind of the sender's sign of life.
const WORKING_KIND: u8 = 4;

const VERSION: u8 = 1;

/// The largest number of files and directories.
pub(crate) const MAX_ENTRIES: usize = 200_000;

/// The largest number of names in a path.
pub(crate) const MAX_DEPTH: usize = 32;

/// The longest path, in bytes.
pub(crate) const MAX_PATH_LEN: usize = 1024;

/// The largest number of names in all paths together, and of their bytes: they bound the memory of
/// a list.
const MAX_NAMES: usize = 1_000_000;
const MAX_PATH_BYTES: usize = 16 << 20;

/// A relative path whose names are all safe to create.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TreePath(Vec<FileName>);

impl TreePath {
    /// The path with these names; `None` if it has none, or is too deep or too long.
    pub(crate) fn new(names: Vec<FileName>) -> Option<Self> {
        let len: usize = names.iter().map(|name| name.as_str().len() + 1).sum();
        let is_valid = (1..=MAX_DEPTH).contains(&names.len()) && len <= MAX_PATH_LEN + 1;
        is_valid.then_some(Self(names))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let names: Result<Vec<_>, _> =
            bytes.split(|byte| *byte == b'/').map(FileName::parse).collect();
        Self::new(names.ok()?)
    }

    /// Its names, from the top.
    pub(crate) fn names(&self) -> &[FileName] {
        &self.0
    }

    /// Its last name.
    pub(crate) fn name(&self) -> &FileName {
        &self.0[self.0.len() - 1]
    }

    /// A path below this directory.
    pub(crate) fn join(&self, name: FileName) -> Option<Self> {
        Self::new(self.0.iter().cloned().chain([name]).collect())
    }

    fn order(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(FileName::as_str)
    }
}

impl std::fmt::Display for TreePath {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, name) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "/" };
            write!(out, "{separator}{name}")?;
        }
        Ok(())
    }
}

/// The size of several paths together.
#[derive(Default)]
struct PathsSize {
    names: usize,
    bytes: usize,
}

impl PathsSize {
    /// Adds a path, while all of them are within the limits.
    fn add(&mut self, path: &TreePath) -> io::Result<()> {
        self.names += path.names().len();
        self.bytes += path.names().iter().map(|name| name.as_str().len()).sum::<usize>();
        if self.names > MAX_NAMES || self.bytes > MAX_PATH_BYTES {
            return Err(invalid("the paths are too long: send fewer directories at a time"));
        }
        Ok(())
    }
}

/// A file or a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TreeEntry {
    pub(crate) path: TreePath,
    pub(crate) attributes: FileAttributes,
    /// The length of a file in bytes; `None` for a directory.
    pub(crate) length: Option<u64>,
}

/// Several files and directories: each directory before what it contains, and every path once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TreeManifest(Vec<TreeEntry>);

impl TreeManifest {
    /// Sorts and checks the entries.
    ///
    /// # Errors
    /// If there are none, too many, two with the same path, or one whose directory is missing.
    pub(crate) fn new(mut entries: Vec<TreeEntry>) -> io::Result<Self> {
        entries.sort_by(|one, other| one.path.order().cmp(other.path.order()));
        Self::checked(entries)
    }

    fn checked(entries: Vec<TreeEntry>) -> io::Result<Self> {
        if entries.is_empty() || entries.len() > MAX_ENTRIES {
            return Err(invalid("there are no files, or more than 200,000"));
        }
        let is_sorted = entries.is_sorted_by(|one, other| one.path.order().lt(other.path.order()));
        if !is_sorted {
            return Err(invalid("two files have the same name"));
        }
        let mut directories = HashSet::new();
        for entry in &entries {
            let (_, parent) = entry.path.names().split_last().unwrap_or((entry.path.name(), &[]));
            if !parent.is_empty() && !directories.contains(parent) {
                return Err(invalid("the directory of a file is missing"));
            }
            if entry.length.is_none() {
                directories.insert(entry.path.names());
            }
        }
        let mut size = PathsSize::default();
        entries.iter().try_for_each(|entry| size.add(&entry.path))?;
        let lengths = entries.iter().filter_map(|entry| entry.length);
        let total = lengths.into_iter().try_fold(0_u64, u64::checked_add);
        total.ok_or_else(|| invalid("the files are too long"))?;
        Ok(Self(entries))
    }

    /// The entries.
    pub(crate) fn entries(&self) -> &[TreeEntry] {
        &self.0
    }

    /// The number of files.
    pub(crate) fn file_count(&self) -> usize {
        self.0.iter().filter(|entry| entry.length.is_some()).count()
    }

    /// The length of all files, in bytes.
    pub(crate) fn total(&self) -> u64 {
        self.0.iter().filter_map(|entry| entry.length).sum()
    }

    /// Encodes the first message.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![TREE_KIND, VERSION];
        bytes.extend(u32::try_from(self.0.len()).expect("there are few").to_be_bytes());
        for TreeEntry { path, attributes, length } in &self.0 {
            bytes.push(u8::from(length.is_none()));
            bytes.extend(length.unwrap_or(0).to_be_bytes());
            attributes.encode(&mut bytes);
            let path = path.to_string();
            bytes.extend(u16::try_from(path.len()).expect("a path is short").to_be_bytes());
            bytes.extend(path.as_bytes());
        }
        bytes
    }

    /// Reads the rest of the first message, after its kind.
    ///
    /// # Errors
    /// As for the reader, and if the message is invalid.
    pub(crate) fn read(from: &mut impl Read) -> io::Result<Self> {
        let [version] = array(from)?;
        if version != VERSION {
            return Err(invalid("the sender has another version of Sunder"));
        }
        let count = u32::from_be_bytes(array(from)?) as usize;
        if count > MAX_ENTRIES {
            return Err(invalid("there are more than 200,000 files"));
        }
        let mut entries = Vec::new();
        let mut size = PathsSize::default();
        for _ in 0..count {
            let [kind] = array(from)?;
            let length = u64::from_be_bytes(array(from)?);
            let attributes = FileAttributes::read(from)?;
            let len = usize::from(u16::from_be_bytes(array(from)?));
            if kind > 1 || (kind == 1 && length > 0) || len > MAX_PATH_LEN {
                return Err(invalid("an entry is invalid"));
            }
            let mut path = vec![0; len];
            from.read_exact(&mut path)?;
            let path = TreePath::parse(&path);
            let path = path.ok_or_else(|| invalid("the path of a file is not accepted"))?;
            size.add(&path)?;
            entries.push(TreeEntry { path, attributes, length: (kind == 0).then_some(length) });
        }
        Self::checked(entries)
    }
}

/// What the receiver has of a file that it wants: the index of its entry, and a number of bytes.
pub(crate) type WantedFile = (u32, u64);

/// Encodes the receiver's list.
pub(crate) fn encode_wanted(files: &[WantedFile]) -> Vec<u8> {
    let mut bytes = vec![WANTED_KIND];
    bytes.extend(u32::try_from(files.len()).expect("there are few").to_be_bytes());
    for (index, have) in files {
        bytes.extend(index.to_be_bytes());
        bytes.extend(have.to_be_bytes());
    }
    bytes
}

/// Reads the receiver's list, after its kind, for these entries.
///
/// # Errors
/// As for the reader, and if the list is invalid.
pub(crate) fn read_wanted(
    from: &mut impl Read,
    manifest: &TreeManifest,
) -> io::Result<Vec<WantedFile>> {
    let count = u32::from_be_bytes(array(from)?) as usize;
    if count > manifest.0.len() {
        return Err(invalid("the receiver wants more files than there are"));
    }
    let mut files = Vec::new();
    for _ in 0..count {
        let (index, have) = (u32::from_be_bytes(array(from)?), u64::from_be_bytes(array(from)?));
        let length = manifest.0.get(index as usize).and_then(|entry| entry.length);
        if length.is_none_or(|length| have > length) {
            return Err(invalid("the receiver wants a file that there is not"));
        }
        if files.last().is_some_and(|(last, _)| *last >= index) {
            return Err(invalid("the receiver wants a file twice, or in another order"));
        }
        files.push((index, have));
    }
    Ok(files)
}

/// The message before the data of a file: its entry, from where, and the digest of everything
/// before that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeFileStart {
    pub(crate) index: u32,
    pub(crate) offset: u64,
    pub(crate) digest: [u8; DIGEST_LEN],
}

impl TreeFileStart {
    /// Encodes the message.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![ENTRY_KIND];
        bytes.extend(self.index.to_be_bytes());
        bytes.extend(self.offset.to_be_bytes());
        bytes.extend(self.digest);
        bytes
    }

    /// Reads the message, which may follow signs of life.
    ///
    /// # Errors
    /// As for the reader, and if it is another message.
    pub(crate) fn read(from: &mut impl Read) -> io::Result<Self> {
        loop {
            match array::<1>(from)? {
                [ENTRY_KIND] => break,
                [WORKING_KIND] => {}
                _ => return Err(invalid("an unexpected message")),
            }
        }
        let (index, offset) = (u32::from_be_bytes(array(from)?), u64::from_be_bytes(array(from)?));
        Ok(Self { index, offset, digest: array(from)? })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(path: &str, length: Option<u64>) -> TreeEntry {
        let path = TreePath::parse(path.as_bytes()).unwrap();
        let attributes = FileAttributes { permissions: 0o640, changed_at: (-5, 7) };
        TreeEntry { path, attributes, length }
    }

    #[test]
    fn messages_are_read_as_they_were_sent() {
        let entries =
            vec![entry("b", Some(7)), entry("a/c", Some(0)), entry("a", None), entry("a/b", None)];
        let manifest = TreeManifest::new(entries).unwrap();
        assert_eq!(manifest.total(), 7);
        let bytes = manifest.encode();
        assert_eq!(TreeManifest::read(&mut &bytes[1..]).unwrap(), manifest);
        for end in 1..bytes.len() {
            assert!(TreeManifest::read(&mut &bytes[1..end]).is_err(), "{end}");
        }
        let bytes = encode_wanted(&[(2, 0), (3, 7)]);
        assert_eq!(read_wanted(&mut &bytes[1..], &manifest).unwrap(), [(2, 0), (3, 7)]);
        for wrong in [(0, 0), (2, 1), (9, 0)] {
            assert!(read_wanted(&mut &encode_wanted(&[wrong])[1..], &manifest).is_err());
        }
        for wrong in [[(2, 0), (2, 0)], [(3, 0), (2, 0)]] {
            assert!(read_wanted(&mut &encode_wanted(&wrong)[1..], &manifest).is_err());
        }
        let start = TreeFileStart { index: 3, offset: 5, digest: [9; 32] };
        assert_eq!(TreeFileStart::read(&mut &start.encode()[..]).unwrap(), start);
    }

    #[test]
    fn paths_lead_nowhere_else() {
        for wrong in
            ["", "/", "/etc", "..", "a/..", "a/../b", "a//b", "a/", "./a", "a/.ssh", "a\0", "a\\b"]
        {
            assert_eq!(TreePath::parse(wrong.as_bytes()), None, "{wrong:?}");
        }
        assert!(TreePath::parse(&[b'a', b'/'].repeat(MAX_DEPTH + 1)[..=2 * MAX_DEPTH]).is_none());
        assert!(TreePath::parse(&[b'a', b'/'].repeat(MAX_DEPTH)[..2 * MAX_DEPTH - 1]).is_some());
    }

    #[test]
    fn all_paths_together_are_bounded() {
        let directory = |index: usize| {
            let long = "x".repeat(200);
            entry(&format!("a/{index:05}-{long}"), None)
        };
        let list =
            |count| [entry("a", None)].into_iter().chain((0..count).map(directory)).collect();
        let fits = MAX_PATH_BYTES / 207;
        assert!(TreeManifest::new(list(fits)).is_ok());
        assert!(TreeManifest::new(list(fits + 1)).is_err());
        let mut size = PathsSize::default();
        let deep = TreePath::parse(&[b'a', b'/'].repeat(MAX_DEPTH)[..2 * MAX_DEPTH - 1]).unwrap();
        assert!((0..MAX_NAMES / MAX_DEPTH).all(|_| size.add(&deep).is_ok()));
        assert!(size.add(&deep).is_err());
    }

    #[test]
    fn an_ambiguous_manifest_is_refused() {
        for entries in [
            vec![],
            vec![entry("a", None), entry("a", Some(1))],
            vec![entry("a", Some(1)), entry("a/b", Some(1))],
            vec![entry("a/b", Some(1))],
            vec![entry("a", Some(u64::MAX)), entry("b", Some(1))],
        ] {
            assert!(TreeManifest::new(entries.clone()).is_err(), "{entries:?}");
        }
        // Not in order.
        let entries = vec![entry("b", None), entry("a", None)];
        let bytes = TreeManifest(entries).encode();
        assert!(TreeManifest::read(&mut &bytes[1..]).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = TreeManifest::read(&mut &bytes[..]);
            let _ = TreeFileStart::read(&mut &bytes[..]);
        }
    }
}
