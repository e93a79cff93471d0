//! Uploaded archives: nothing is written outside the copy, and no more than is allowed.
#![no_main]

use std::fs;
use std::io::{Cursor, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use arbitrary::Arbitrary;
use containment::{UploadBounds, UploadedFolder};
use libfuzzer_sys::fuzz_target;
use tar::{Builder, EntryType, Header};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

const BOUNDS: UploadBounds = UploadBounds { files: 16, bytes: 4096 };

#[derive(Arbitrary, Debug)]
struct Input {
    archive: ArchiveInput,
    /// Bytes that replace bytes of the archive.
    changes: Vec<(u16, u8)>,
}

#[derive(Arbitrary, Debug)]
enum ArchiveInput {
    Bytes(Vec<u8>),
    Tar(Vec<EntryInput>),
    Zip(Vec<EntryInput>),
}

#[derive(Arbitrary, Debug)]
struct EntryInput {
    /// The type's letter in a tar archive.
    kind: u8,
    mode: u32,
    path: Vec<NameInput>,
    target: Vec<NameInput>,
    content: Vec<u8>,
}

/// A few names, so that entries meet each other.
#[derive(Arbitrary, Debug)]
enum NameInput {
    A,
    B,
    Parent,
    Root,
    Other(String),
}

fuzz_target!(|input: Input| {
    let place = tempfile::tempdir().unwrap();
    let upload = place.path().join("upload");
    fs::write(&upload, archive(&input)).unwrap();
    let copy = place.path().join("copy");
    fs::create_dir(&copy).unwrap();
    let Ok(folder) = UploadedFolder::open(&upload) else { return };
    let checked = folder.names(&BOUNDS).map_err(|error| is_one_line(&error.to_string()));
    let copied = folder.unpack(&copy, &BOUNDS).map_err(|error| is_one_line(&error.to_string()));
    // The check may pass what the copy refuses, but not the reverse.
    assert!(copied.is_err() || checked.is_ok());
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
    let mut bytes = 0;
    check_directory(&copy, &copy, &mut bytes);
    assert!(bytes <= BOUNDS.bytes, "{bytes} bytes");
});

fn is_one_line(message: &str) {
    assert!(!message.contains('\n'), "{message}");
}

/// Checks that a directory has no device, no special permission and no link that leads outside.
/// Counts the bytes of its files, those with several names once.
fn check_directory(copy: &Path, directory: &Path, bytes: &mut u64) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let metadata = path.symlink_metadata().unwrap();
        if metadata.is_symlink() {
            if let Ok(target) = path.canonicalize() {
                assert!(target.starts_with(copy.canonicalize().unwrap()), "{}", target.display());
            }
            continue;
        }
        assert_eq!(metadata.mode() & 0o7000, 0);
        if metadata.is_dir() {
            check_directory(copy, &path, bytes);
        } else {
            assert!(metadata.is_file());
            *bytes += if metadata.nlink() == 1 { metadata.len() } else { 0 };
        }
    }
}

fn archive(input: &Input) -> Vec<u8> {
    let mut archive = match &input.archive {
        ArchiveInput::Bytes(bytes) => bytes.clone(),
        ArchiveInput::Tar(entries) => tar_archive(entries),
        ArchiveInput::Zip(entries) => zip_archive(entries),
    };
    for &(at, byte) in &input.changes {
        if let Some(place) = archive.get_mut(usize::from(at)) {
            *place = byte;
        }
    }
    archive
}

fn tar_archive(entries: &[EntryInput]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for entry in entries {
        let mut header = Header::new_gnu();
        // As they are, which the library's functions for paths would refuse.
        copy_prefix(&mut header.as_old_mut().name, path(&entry.path).as_bytes());
        copy_prefix(&mut header.as_old_mut().linkname, path(&entry.target).as_bytes());
        header.set_entry_type(EntryType::new(entry.kind));
        header.set_mode(entry.mode);
        header.set_size(entry.content.len() as u64);
        header.set_cksum();
        builder.append(&header, &entry.content[..]).unwrap();
    }
    builder.into_inner().unwrap()
}

fn copy_prefix(field: &mut [u8], bytes: &[u8]) {
    let length = bytes.len().min(field.len());
    field[..length].copy_from_slice(&bytes[..length]);
}

fn zip_archive(entries: &[EntryInput]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for entry in entries {
        let options = SimpleFileOptions::default().unix_permissions(entry.mode);
        // The library refuses some names, such as a second one that is equal.
        let _ = match entry.kind {
            b'2' => writer.add_symlink(path(&entry.path), path(&entry.target), options),
            b'5' => writer.add_directory(path(&entry.path), options),
            _ => writer
                .start_file(path(&entry.path), options)
                .and_then(|()| Ok(writer.write_all(&entry.content)?)),
        };
    }
    writer.finish().map(Cursor::into_inner).unwrap_or_default()
}

fn path(names: &[NameInput]) -> String {
    let name = |name: &NameInput| match name {
        NameInput::A => "a".to_owned(),
        NameInput::B => "b".to_owned(),
        NameInput::Parent => "..".to_owned(),
        NameInput::Root => String::new(),
        NameInput::Other(name) => name.clone(),
    };
    names.iter().map(name).collect::<Vec<_>>().join("/")
}
