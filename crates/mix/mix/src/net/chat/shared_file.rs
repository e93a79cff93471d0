//! Small files in messages: their text, and the files that were offered and not saved yet.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use base64ct::{Base64Unpadded, Encoding as _};
use encoding::{FieldReader, FieldWrite as _};
use keys::IdentityPublicKey;
use keys::storage;
use zeroize::Zeroizing;

/// The name of the file with the offers.
pub(super) const FILE: &str = "offers";

/// The longest content of a file, in bytes: its text is a message.
pub const MAX_SHARED_FILE_LEN: usize = 48_000;

/// What the text of a file begins with. A person does not type the first character, which separates
/// files in ASCII.
const PREFIX: &str = "\u{1c}sunder file 1\n";

const VERSION: u8 = 2;
/// The version without the senders' keys. It is read.
const VERSION_WITHOUT_KEYS: u8 = 1;
const MAX_NAME_LEN: usize = 100;
/// The most offers of one member, and of all.
const MAX_OFFERS_EACH: usize = 4;
const MAX_OFFERS: usize = 64;
/// How many names are tried for a file.
const MAX_NAMES_TRIED: usize = 1000;

/// A file in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SharedFile {
    /// Not to be trusted.
    pub(super) name: String,
    pub(super) content: Vec<u8>,
}

impl SharedFile {
    /// The text of the message.
    ///
    /// # Errors
    /// The error message, if the file is empty or too long.
    pub(super) fn to_text(&self) -> Result<String, String> {
        let len = self.content.len();
        if len == 0 {
            return Err("the file is empty".into());
        }
        if len > MAX_SHARED_FILE_LEN {
            return Err(format!(
                "the file has {len} bytes: at most {MAX_SHARED_FILE_LEN} can be sent"
            ));
        }
        let content = Base64Unpadded::encode_string(&self.content);
        Ok(format!("{PREFIX}{}\n{content}", safe_name(&self.name)))
    }

    /// The file in a text; `None` if it is not one.
    pub(super) fn from_text(text: &str) -> Option<Self> {
        let (name, content) = text.strip_prefix(PREFIX)?.split_once('\n')?;
        let content = Base64Unpadded::decode_vec(content).ok()?;
        let is_valid = !content.is_empty() && content.len() <= MAX_SHARED_FILE_LEN;
        is_valid.then(|| Self { name: safe_name(name), content })
    }

    /// How it is shown in a conversation.
    pub(super) fn label(&self) -> String {
        format!("[file {}, {} bytes]", self.name, self.content.len())
    }

    /// Writes the file into a folder, which is created if it does not exist. An existing file is
    /// not replaced: a number is added to the name. Only the user can read it.
    pub(super) fn save(&self, folder: &Path) -> io::Result<PathBuf> {
        storage::create_private_directory(folder)?;
        let name = safe_name(&self.name);
        let (stem, extension) = match name.rsplit_once('.') {
            Some((stem, extension)) => (stem, format!(".{extension}")),
            None => (&*name, String::new()),
        };
        for number in 1..=MAX_NAMES_TRIED {
            let added = if number == 1 { String::new() } else { format!("-{number}") };
            let path = folder.join(format!("{stem}{added}{extension}"));
            match storage::create(&path, &self.content, 0o600) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                created => return created.map(|()| path),
            }
        }
        Err(io::Error::new(ErrorKind::AlreadyExists, "too many files have this name"))
    }
}

/// The last component of a name, without what a shell, a file manager or another system could
/// misunderstand.
fn safe_name(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let is_safe = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let mut safe: String = last.chars().map(|c| if is_safe(c) { c } else { '_' }).collect();
    while safe.len() > MAX_NAME_LEN {
        safe.pop();
    }
    // Neither hidden, nor an option, nor a folder.
    match safe.trim_matches(['.', '-', '_']) {
        "" => "file".into(),
        name => name.to_owned(),
    }
}

/// A file that was offered.
pub(super) struct FileOffer {
    pub(super) number: u32,
    /// The sender's name when the file arrived.
    pub(super) from: String,
    /// The sender's key, if it is known.
    pub(super) key: Option<IdentityPublicKey>,
    pub(super) file: SharedFile,
}

/// The files that were offered and neither saved nor declined.
#[derive(Default)]
pub(super) struct FileOffers {
    offers: Vec<FileOffer>,
    /// The greatest number in this run. None is given twice: a file must not take the place of
    /// another one that the user means.
    last: u32,
    /// The numbers in this run of files that are being saved, and of those that were saved.
    saving: BTreeSet<u32>,
    saved: BTreeSet<u32>,
}

/// Why a file is not saved now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FileOfferError {
    /// There is none, or it was dropped.
    #[error("there is no file {0}")]
    Unknown(u32),
    /// It was accepted.
    #[error("file {0} was accepted already")]
    Accepted(u32),
}

impl FileOffers {
    /// Adds a file of a member, whose key may be unknown. Returns its number, which is that of the
    /// same file if it was offered before; `None` if too many wait.
    pub(super) fn add(
        &mut self,
        key: Option<IdentityPublicKey>,
        from: &str,
        file: &SharedFile,
    ) -> Option<u32> {
        let is_of_sender = |offer: &&FileOffer| offer.key == key && offer.from == from;
        let mut of_sender = self.offers.iter().filter(is_of_sender);
        if let Some(same) = of_sender.find(|offer| offer.file == *file) {
            return Some(same.number);
        }
        let count = self.offers.iter().filter(is_of_sender).count();
        if count >= MAX_OFFERS_EACH || self.offers.len() >= MAX_OFFERS {
            return None;
        }
        let number = self.last.saturating_add(1);
        self.last = number;
        self.offers.push(FileOffer { number, from: from.to_owned(), key, file: file.clone() });
        Some(number)
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &FileOffer> {
        self.offers.iter()
    }

    /// The file with a number, to be saved. It is returned once, unless
    /// [`FileOffers::handle_not_saved`] is called.
    ///
    /// # Errors
    /// If there is no such file, or it was accepted before.
    pub(super) fn accept(&mut self, number: u32) -> Result<SharedFile, FileOfferError> {
        if self.saved.contains(&number) || self.saving.contains(&number) {
            return Err(FileOfferError::Accepted(number));
        }
        let file = self.offers.iter().find(|offer| offer.number == number);
        let file = file.ok_or(FileOfferError::Unknown(number))?.file.clone();
        self.saving.insert(number);
        Ok(file)
    }

    /// A file that was accepted is saved.
    pub(super) fn handle_saved(&mut self, number: u32) {
        self.remove(number);
        self.saving.remove(&number);
        self.saved.insert(number);
    }

    /// A file that was accepted could not be saved, and can be accepted again.
    pub(super) fn handle_not_saved(&mut self, number: u32) {
        self.saving.remove(&number);
    }

    /// Drops a file.
    ///
    /// # Errors
    /// If there is no such file, or it was accepted before.
    pub(super) fn decline(&mut self, number: u32) -> Result<(), FileOfferError> {
        if self.saved.contains(&number) || self.saving.contains(&number) {
            return Err(FileOfferError::Accepted(number));
        }
        if self.remove(number) { Ok(()) } else { Err(FileOfferError::Unknown(number)) }
    }

    /// Removes a file. Returns whether there was one.
    fn remove(&mut self, number: u32) -> bool {
        let before = self.offers.len();
        self.offers.retain(|offer| offer.number != number);
        self.offers.len() < before
    }

    /// The encoded files. Secret.
    pub(super) fn encode(&self) -> Zeroizing<Vec<u8>> {
        let len = self.offers.iter().map(|offer| 512 + offer.file.content.len()).sum::<usize>();
        let mut out = Zeroizing::new(Vec::with_capacity(1 + len));
        out.push(VERSION);
        for FileOffer { number, from, key, file } in &self.offers {
            out.put_u32(*number);
            out.put_text(from);
            out.put_counted(key.map(|key| key.to_bytes()).as_ref().map_or(&[], |key| &key[..]));
            out.put_counted(file.name.as_bytes());
            out.put_counted(&file.content);
        }
        out
    }

    /// The files that [`Self::encode`] has encoded; `None` if they are not valid.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = FieldReader::new(bytes);
        let version = reader.u8().ok()?;
        if ![VERSION, VERSION_WITHOUT_KEYS].contains(&version) {
            return None;
        }
        let mut offers = Vec::new();
        while !reader.is_empty() {
            let (number, from) = (reader.u32().ok()?, reader.text().ok()?.to_owned());
            let key = match version {
                VERSION => reader.counted().ok()?,
                _ => &[],
            };
            let key = match key {
                [] => None,
                key => Some(IdentityPublicKey::from_bytes(key.try_into().ok()?).ok()?),
            };
            let name = String::from_utf8(reader.counted().ok()?.to_vec()).ok()?;
            let content = reader.counted().ok()?.to_vec();
            offers.push(FileOffer { number, from, key, file: SharedFile { name, content } });
        }
        let last = offers.iter().map(|offer| offer.number).max().unwrap_or(0);
        Some(Self { offers, last, ..Self::default() })
    }
}

#[cfg(test)]
mod tests {
    use keys::IdentitySecretKey;
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::content::MAX_TEXT_LEN;

    fn file(name: &str, content: &[u8]) -> SharedFile {
        SharedFile { name: name.into(), content: content.into() }
    }

    #[test]
    fn a_file_of_any_bytes_fits_into_a_message() {
        let content: Vec<u8> = (0..251).cycle().take(MAX_SHARED_FILE_LEN).collect();
        let largest = file(&"n".repeat(1000), &content);
        let text = largest.to_text().unwrap();
        assert!(text.len() <= MAX_TEXT_LEN, "{}", text.len());
        assert_eq!(SharedFile::from_text(&text).unwrap().content, content);
        assert!(file("x", &vec![0; MAX_SHARED_FILE_LEN + 1]).to_text().is_err());
        assert!(file("x", &[]).to_text().is_err());
        for other in ["hello", PREFIX, "\u{1c}sunder file 1\nx\n*", "\u{1c}sunder file 1\nx\n"] {
            assert_eq!(SharedFile::from_text(other), None);
        }
    }

    #[test]
    fn names_of_files_are_safe() {
        for (name, safe) in [
            ("plan.txt", "plan.txt"),
            ("../../.ssh/authorized_keys", "authorized_keys"),
            ("C:\\autoexec.bat", "autoexec.bat"),
            (".bashrc", "bashrc"),
            ("-rf", "rf"),
            ("a b;\u{202e}c\n.txt", "a_b__c_.txt"),
            ("..", "file"),
            ("", "file"),
            ("\u{dc}bersicht.pdf", "\u{dc}bersicht.pdf"),
        ] {
            assert_eq!(safe_name(name), safe);
        }
        assert!(safe_name(&"\u{dc}".repeat(500)).len() <= MAX_NAME_LEN);
    }

    #[test]
    fn a_saved_file_replaces_no_other() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("received");
        let names = [(); 3].map(|()| file("a.txt", b"x").save(&folder).unwrap());
        let names = names.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned());
        assert_eq!(names, ["a.txt", "a-2.txt", "a-3.txt"]);
    }

    #[test]
    fn a_member_cannot_fill_the_offers() {
        let mut offers = FileOffers::default();
        let key = |number| Some(IdentitySecretKey::new(&[number; 32]).public());
        let number = |offers: &mut FileOffers, at: u8| offers.add(key(2), "bob", &file("a", &[at]));
        let numbers: Vec<_> = (0..6).map(|at| number(&mut offers, at)).collect();
        assert_eq!(numbers, [Some(1), Some(2), Some(3), Some(4), None, None]);
        assert_eq!(offers.add(None, "carol", &file("b", b"b")), Some(5));
        // After a crash it is offered again.
        assert_eq!(number(&mut offers, 1), Some(2));
        assert!(offers.remove(1) && !offers.remove(1));
        // The number of a file that was the last one is not used again.
        assert!(offers.remove(5));
        assert_eq!(offers.add(None, "carol", &file("b", b"b")), Some(6));
        // Another key that has the name takes no place of bob's.
        assert_eq!(offers.add(key(3), "bob", &file("a", &[1])), Some(7));
        assert!(offers.remove(7));
        let mut offers = FileOffers::decode(&offers.encode()).unwrap();
        let senders: Vec<_> = offers.iter().map(|offer| (&*offer.from, offer.key)).collect();
        let bob = ("bob", key(2));
        assert_eq!(senders, [bob, bob, bob, ("carol", None)]);
        assert_eq!(number(&mut offers, 9), Some(7));
        assert_eq!(offers.accept(6), Ok(file("b", b"b")));
    }

    #[test]
    fn a_file_is_accepted_once() {
        let mut offers = FileOffers::default();
        let accepted = |number| Err(FileOfferError::Accepted(number));
        for content in [b"1", b"2"] {
            offers.add(None, "bob", &file("a", content));
        }
        assert_eq!(offers.accept(1), Ok(file("a", b"1")));
        assert_eq!(offers.accept(1), accepted(1), "it is being saved");
        assert_eq!(offers.decline(1), Err(FileOfferError::Accepted(1)));
        // The disk is full.
        offers.handle_not_saved(1);
        assert_eq!(offers.accept(1), Ok(file("a", b"1")));
        offers.handle_saved(1);
        assert_eq!(offers.accept(1), accepted(1));
        assert_eq!(offers.accept(3), Err(FileOfferError::Unknown(3)));
        assert_eq!(offers.decline(2), Ok(()));
        assert_eq!(offers.accept(2), Err(FileOfferError::Unknown(2)));
        assert_eq!(accepted(1).unwrap_err().to_string(), "file 1 was accepted already");
    }

    #[test]
    fn offers_of_the_version_before_are_read() {
        let mut bytes = vec![VERSION_WITHOUT_KEYS];
        bytes.put_u32(3);
        bytes.put_text("bob");
        bytes.put_counted(b"a.txt");
        bytes.put_counted(b"x");
        let mut offers = FileOffers::decode(&bytes).unwrap();
        let all: Vec<_> = offers.iter().map(|it| (it.number, &*it.from, it.key)).collect();
        assert_eq!(all, [(3, "bob", None)]);
        assert_eq!(offers.accept(3), Ok(file("a.txt", b"x")));
    }

    proptest! {
        #[test]
        fn any_text_of_a_partner_is_a_file_with_a_safe_name_or_none(
            name in ".{0,50}",
            content in "[A-Za-z0-9+/=]{0,40}",
        ) {
            if let Some(file) = SharedFile::from_text(&format!("{PREFIX}{name}\n{content}")) {
                prop_assert_eq!(safe_name(&file.name), file.name.clone());
                prop_assert!(!file.name.is_empty() && !file.name.starts_with(['.', '-']));
                prop_assert!(!file.name.contains(['/', '\\', '\0', '\n']));
            }
        }

        #[test]
        fn any_bytes_are_offers_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for version in [VERSION, VERSION_WITHOUT_KEYS] {
                let _ = FileOffers::decode(&[&[version][..], &bytes].concat());
            }
        }
    }
}
