//! The history of a chat: an append-only file of encrypted messages.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use keys::sealed::SealedKey;
use random::RandomGenerator;

use super::super::state::{StateFileError, StateFolder};
use super::contacts::ContactTrust;

/// The name of the file.
const FILE: &str = "history";

/// Longer than any entry.
const MAX_ENTRY_LEN: usize = 128 << 10;

/// What an interrupted write leaves, at most: an entry after its length.
const MAX_TORN_LEN: u64 = 4 + MAX_ENTRY_LEN as u64;

/// Length of an entry's header: the time, the kind, and the length of the name.
const HEAD_LEN: usize = 8 + 1 + 1;

/// The kind of a message of this member. That of another member's message is 0, or 1 plus the
/// number of the trust in its key. A version before knew only 0 and 1.
const OWN: u8 = 1;

/// A message in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatHistoryEntry {
    /// When it was sent or arrived, to the microsecond.
    pub at: SystemTime,
    /// Whether it was sent by this member.
    pub is_own: bool,
    /// The other member.
    pub name: String,
    /// The trust in the sender's key when the message arrived. [`ContactTrust::Seen`] if this
    /// member has sent it, or a version that did not keep the trust has stored it.
    pub trust: ContactTrust,
    /// The text.
    pub text: String,
}

/// Why the history cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ChatHistoryError {
    /// It cannot be read or written.
    #[error("history {}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A message cannot be encrypted.
    #[error(transparent)]
    State(#[from] StateFileError),
}

/// An open history. Each entry is sealed for its position, so entries can be removed only at the
/// end, and cannot be reordered.
pub(super) struct ChatHistory {
    file: File,
    path: PathBuf,
    key: SealedKey,
    count: u64,
    /// The bytes of all entries.
    len: u64,
}

impl ChatHistory {
    /// Opens the history of a member. Also returns its last entries, at most `max`. Passes over
    /// entries that are damaged, and removes the rest of an interrupted write.
    ///
    /// # Errors
    /// When it cannot be read, or ends with more than one entry that cannot be read. It is then
    /// unchanged.
    pub(super) fn open(
        folder: &StateFolder,
        key: SealedKey,
        max: usize,
    ) -> Result<(Self, Vec<ChatHistoryEntry>), ChatHistoryError> {
        let path = folder.path().join(FILE);
        let failed = |source| ChatHistoryError::Io { path: path.clone(), source };
        let mut options = OpenOptions::new();
        let options = options.read(true).append(true).create(true).mode(0o600);
        let mut file = options.open(&path).map_err(failed)?;
        let (mut count, mut whole, mut last) = (0, 0, Vec::new());
        let (mut place, mut end) = (0, 0);
        while let Some((len, sealed)) = read_entry(&mut file).map_err(failed)? {
            let opened = key.open(name_of(place).as_bytes(), &sealed);
            (place, end) = (place + 1, end + len);
            let Some(entry) = opened.and_then(|it| decode(&it)) else { continue };
            if last.len() == 2 * max {
                last.drain(..max);
            }
            last.push(entry);
            (count, whole) = (place, end);
        }
        let left = file.metadata().map_err(failed)?.len().saturating_sub(whole);
        if left > MAX_TORN_LEN {
            let why = format!("its last {left} B cannot be read: move it to another directory");
            return Err(failed(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        file.set_len(whole).map_err(failed)?;
        last.drain(..last.len().saturating_sub(max));
        Ok((Self { file, path, key, count, len: whole }, last))
    }

    /// Appends an entry, and returns when it is on the disk.
    ///
    /// # Errors
    /// When it cannot be written. The file is then unchanged.
    pub(super) fn add(&mut self, message: &ChatHistoryEntry) -> Result<(), ChatHistoryError> {
        let name = name_of(self.count);
        let mut generator = RandomGenerator::system();
        let sealed = self.key.seal(name.as_bytes(), &encode(message), &mut generator);
        let sealed = sealed.map_err(StateFileError::from)?;
        let len = u32::try_from(sealed.len()).unwrap_or(u32::MAX);
        let entry = [&len.to_be_bytes()[..], &sealed].concat();
        let written = self.file.write_all(&entry).and_then(|()| self.file.sync_data());
        written.map_err(|source| {
            let _ = self.file.set_len(self.len);
            ChatHistoryError::Io { path: self.path.clone(), source }
        })?;
        (self.count, self.len) = (self.count + 1, self.len + entry.len() as u64);
        Ok(())
    }
}

/// The name for which the entry at this position is sealed.
fn name_of(place: u64) -> String {
    format!("{FILE} {place}")
}

/// The next entry, and its length in the file; `None` at the end, or before a part of one.
fn read_entry(file: &mut File) -> io::Result<Option<(u64, Vec<u8>)>> {
    let mut len = [0; 4];
    if !read_whole(file, &mut len)? {
        return Ok(None);
    }
    let len = u32::from_be_bytes(len) as usize;
    if len > MAX_ENTRY_LEN {
        return Ok(None);
    }
    let mut sealed = vec![0; len];
    Ok(read_whole(file, &mut sealed)?.then_some((4 + len as u64, sealed)))
}

fn read_whole(file: &mut File, to: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(to) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn encode(entry: &ChatHistoryEntry) -> Vec<u8> {
    let since = entry.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let micros = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
    let name = &entry.name.as_bytes()[..entry.name.len().min(255)];
    let len = u8::try_from(name.len()).unwrap_or(u8::MAX);
    let kind = match (entry.is_own, entry.trust) {
        (true, _) => OWN,
        (false, ContactTrust::Seen) => 0,
        (false, trust) => OWN + trust as u8,
    };
    let head = [kind, len];
    [&micros.to_be_bytes()[..], &head, name, entry.text.as_bytes()].concat()
}

fn decode(entry: &[u8]) -> Option<ChatHistoryEntry> {
    let (head, rest) = entry.split_first_chunk::<HEAD_LEN>()?;
    let (micros, [kind, len]) = head
        .split_first_chunk::<8>()
        .map(|(micros, rest)| (u64::from_be_bytes(*micros), [rest[0], rest[1]]))?;
    let (name, text) = rest.split_at_checked(usize::from(len))?;
    Some(ChatHistoryEntry {
        at: SystemTime::UNIX_EPOCH + Duration::from_micros(micros),
        is_own: kind == OWN,
        trust: ContactTrust::from_number(kind.saturating_sub(OWN))?,
        name: String::from_utf8(name.to_vec()).ok()?,
        text: String::from_utf8(text.to_vec()).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use keys::IdentitySecretKey;

    use super::super::super::state::state_key;
    use super::*;

    fn entry(text: &str) -> ChatHistoryEntry {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        let is_own = text.len() == 1;
        let trust = match text.len() {
            9 => ContactTrust::Verified,
            6 => ContactTrust::Changed,
            _ => ContactTrust::Seen,
        };
        ChatHistoryEntry { at, is_own, name: "bob".into(), trust, text: text.into() }
    }

    fn open(folder: &StateFolder, max: usize) -> (ChatHistory, Vec<ChatHistoryEntry>) {
        ChatHistory::open(folder, state_key(&IdentitySecretKey::new(&[1; 32])), max).unwrap()
    }

    #[test]
    fn entries_of_the_version_before_are_read() {
        for (kind, is_own) in [(0, false), (1, true)] {
            let decoded = decode(&[&[0; 8][..], &[kind, 3], b"bobhello"].concat()).unwrap();
            assert_eq!((decoded.is_own, decoded.trust), (is_own, ContactTrust::Seen));
            assert_eq!((&*decoded.name, &*decoded.text), ("bob", "hello"));
        }
        assert_eq!(decode(&[&[0; 8][..], &[4, 3], b"bobhello"].concat()), None);
    }

    #[test]
    fn chat_history_is_encrypted_and_survives_a_torn_write() {
        let place = tempfile::tempdir().unwrap();
        let folder = StateFolder::open(place.path()).unwrap();
        let texts = ["a", "two words", "", "漢字", "e"];
        for (before, text) in texts.iter().enumerate() {
            let (mut history, last) = open(&folder, 10);
            assert_eq!(last.len(), before);
            history.add(&entry(text)).unwrap();
        }
        assert_eq!(open(&folder, 10).1, texts.map(entry));
        assert_eq!(open(&folder, 2).1, [entry("漢字"), entry("e")]);
        let bytes = fs::read(place.path().join(FILE)).unwrap();
        assert!(!bytes.windows(5).any(|window| window == b"words"));
        // A write that was interrupted.
        fs::write(place.path().join(FILE), &bytes[..bytes.len() - 1]).unwrap();
        let (mut history, last) = open(&folder, 10);
        assert_eq!(last.len(), 4);
        history.add(&entry("f")).unwrap();
        assert_eq!(open(&folder, 10).1.last(), Some(&entry("f")));
    }

    /// One wrong byte, after which there are others.
    #[test]
    fn damage_removes_no_entry_after_it() {
        let place = tempfile::tempdir().unwrap();
        let folder = StateFolder::open(place.path()).unwrap();
        for text in ["a", "two words", "漢字"] {
            open(&folder, 10).0.add(&entry(text)).unwrap();
        }
        let path = place.path().join(FILE);
        let mut bytes = fs::read(&path).unwrap();
        // In the content of the second one.
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let (mut history, last) = open(&folder, 10);
        assert_eq!(last, [entry("a"), entry("漢字")]);
        history.add(&entry("f")).unwrap();
        assert_eq!(open(&folder, 10).1, [entry("a"), entry("漢字"), entry("f")]);
        // A wrong length, after which nothing is found.
        let mut bytes = vec![0_u8; MAX_ENTRY_LEN + 8];
        bytes[..4].fill(0xff);
        fs::write(&path, &bytes).unwrap();
        let key = state_key(&IdentitySecretKey::new(&[1; 32]));
        let error = ChatHistory::open(&folder, key, 10).err().unwrap();
        assert!(error.to_string().ends_with("move it to another directory"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
}
