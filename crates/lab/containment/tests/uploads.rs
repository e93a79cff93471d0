//! Folders and archives that try to leave the place into which they are copied, or to fill it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use sunder_containment::{UploadBounds, UploadedFolder};
use tar::{Builder, EntryType, Header};
use tempfile::TempDir;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// Bounds that are soon reached.
const BOUNDS: UploadBounds = UploadBounds { files: 100, bytes: 1 << 20 };

/// A directory with an empty one, `to`, into which uploads are copied.
fn place() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("to")).unwrap();
    place
}

/// Copies an upload into the directory `to`; the error is one line. Nothing is written beside it.
fn unpacked(place: &TempDir, upload: &Path) -> Result<(), String> {
    let before = names(place.path());
    let folder = UploadedFolder::open(upload).map_err(|error| error.to_string())?;
    let checked = folder.names(&BOUNDS).map_err(|error| error.to_string());
    if upload.is_file() {
        // An archive in memory gets the same answer.
        let in_memory = UploadedFolder::names_in_archive(&fs::read(upload).unwrap(), &BOUNDS);
        assert_eq!(in_memory.map_err(|error| error.to_string()), checked);
    }
    let copied = folder.unpack(&place.path().join("to"), &BOUNDS);
    assert_eq!(names(place.path()), before);
    copied.map_err(|error| error.to_string())?;
    // The check before may pass what the copy refuses, but not the reverse.
    checked.map(drop)
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().flatten();
    let mut names: Vec<_> = entries.map(|it| it.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// An entry of a tar archive, whose path and target are written as they are.
fn add(builder: &mut Builder<impl Write>, kind: EntryType, path: &str, target: &str, data: &[u8]) {
    let mut header = Header::new_gnu();
    header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
    header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o4755);
    header.set_size(data.len() as u64);
    header.set_cksum();
    builder.append(&header, data).unwrap();
}

/// Makes a tar archive.
fn tar(place: &TempDir, entries: &[(EntryType, &str, &str)]) -> std::path::PathBuf {
    let path = place.path().join("upload.tar");
    let mut builder = Builder::new(File::create(&path).unwrap());
    for (kind, path, target) in entries {
        let data: &[u8] = if *kind == EntryType::Regular { b"data\n" } else { b"" };
        add(&mut builder, *kind, path, target, data);
    }
    builder.into_inner().unwrap();
    path
}

#[test]
fn archives_of_each_kind_are_unpacked() {
    let place = place();
    let from = place.path().join("pair");
    fs::create_dir_all(from.join("data")).unwrap();
    fs::write(from.join("run.sh"), "echo said\n").unwrap();
    fs::set_permissions(from.join("run.sh"), PermissionsExt::from_mode(0o6755)).unwrap();
    fs::write(from.join("data/page"), "a page\n").unwrap();
    symlink("data/page", from.join("link")).unwrap();
    fs::hard_link(from.join("data/page"), from.join("other")).unwrap();
    let archive = |name: &str, options: &[&str]| {
        let path = place.path().join(name);
        let mut tar = Command::new("tar");
        tar.args(options).arg(&path).arg("-C").arg(&from).arg(".");
        assert!(tar.status().unwrap().success());
        path
    };
    let uploads = [
        from.clone(),
        archive("a.tar", &["-cf"]),
        archive("a.tgz", &["-czf"]),
        archive("posix.tar", &["--format=posix", "-cf"]),
        zip_of(&place),
    ];
    for upload in uploads {
        let to = place.path().join("to");
        fs::remove_dir_all(&to).unwrap();
        fs::create_dir(&to).unwrap();
        unpacked(&place, &upload).unwrap();
        assert_eq!(names(&to), ["data", "link", "other", "run.sh"], "{}", upload.display());
        assert_eq!(fs::read_to_string(to.join("link")).unwrap(), "a page\n");
        assert_eq!(fs::read_to_string(to.join("other")).unwrap(), "a page\n");
        // Executable, but without the rights of its owner.
        let mode = to.join("run.sh").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o755);
    }
}

/// A zip archive of the same folder.
fn zip_of(place: &TempDir) -> std::path::PathBuf {
    let path = place.path().join("a.zip");
    let mut zip = ZipWriter::new(File::create(&path).unwrap());
    let options = SimpleFileOptions::default();
    zip.add_directory("data", options).unwrap();
    for (name, text, mode) in [
        ("data/page", "a page\n", 0o644),
        ("other", "a page\n", 0o644),
        ("run.sh", "echo\n", 0o755),
    ] {
        zip.start_file(name, options.unix_permissions(mode)).unwrap();
        zip.write_all(text.as_bytes()).unwrap();
    }
    zip.add_symlink("link", "data/page", options).unwrap();
    zip.finish().unwrap();
    path
}

#[test]
fn entries_that_leave_the_folder_are_refused_by_name() {
    use EntryType::{Block, Char, Directory, Fifo, Link, Regular, Symlink};
    for (entries, expected) in [
        (&[(Regular, "../evil", "")][..], "../evil: leaves the folder"),
        (&[(Regular, "a/../../evil", "")], "a/../../evil: leaves the folder"),
        (&[(Regular, "/tmp/evil", "")], "/tmp/evil: is a path from /"),
        (&[(Directory, "../evil", "")], "../evil: leaves the folder"),
        (&[(Symlink, "l", "/etc/shadow")], "l: leads to /etc/shadow, a path from /"),
        (&[(Symlink, "l", "../..")], "l: leads to ../.., outside the folder"),
        (&[(Symlink, "a/l", "../../evil")], "a/l: leads to ../../evil, outside the folder"),
        // The first link leads up, so that the second one would leave the folder.
        (
            &[(Directory, "a", ""), (Symlink, "a/up", ".."), (Symlink, "l", "a/up/../evil")],
            "l: leads to a/up/../evil, with .. after a name",
        ),
        // A file below a link: the link comes last, and its place is taken.
        (&[(Symlink, "d", "."), (Regular, "d/evil", "")], "d: is in the folder twice"),
        (&[(Regular, "f", ""), (Regular, "f", "")], "f: is in the folder twice"),
        (&[(Regular, "f", ""), (Regular, "f/g", "")], "f: is in the folder twice"),
        (&[(Link, "h", "/etc/shadow")], "/etc/shadow: is a path from /"),
        (&[(Link, "h", "../evil")], "../evil: leaves the folder"),
        (&[(Link, "h", "none")], "h: is a hard link to none, which is no file of the folder"),
        (&[(Symlink, "l", "f"), (Link, "h", "l"), (Regular, "f", "")], "h: is a hard link to l"),
        (&[(Char, "dev/null", "")], "dev/null: is a device or a pipe"),
        (&[(Block, "sda", "")], "sda: is a device or a pipe"),
        (&[(Fifo, "pipe", "")], "pipe: is a device or a pipe"),
        (&[(EntryType::new(b'Q'), "odd", "")], "odd: is of an unknown kind"),
    ] {
        let place = place();
        let upload = tar(&place, entries);
        let error = unpacked(&place, &upload).unwrap_err();
        println!("{error}");
        assert!(error.starts_with(expected), "{error}; expected {expected}");
    }
}

#[test]
fn folders_that_leave_themselves_are_refused_by_name() {
    for (make, expected) in [
        (
            (|at: &Path| symlink("/etc/shadow", at.join("l"))) as fn(&Path) -> io::Result<()>,
            "l: leads to /etc/shadow, a path from /",
        ),
        (|at| symlink("../to", at.join("l")), "l: leads to ../to, outside the folder"),
        (|at| UnixListener::bind(at.join("s")).map(drop), "s: is a device, a pipe or a socket"),
    ] {
        let place = place();
        let from = place.path().join("from");
        fs::create_dir(&from).unwrap();
        make(&from).unwrap();
        let error = unpacked(&place, &from).unwrap_err();
        println!("{error}");
        assert!(error.starts_with(expected), "{error}; expected {expected}");
    }
    let device = UploadedFolder::open(Path::new("/dev/null")).unwrap_err().to_string();
    assert_eq!(device, "/dev/null is neither a folder nor an archive (tar, tar.gz or zip)");
}

/// A gzip stream of so many zeros.
fn zeros(length: u64) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    io::copy(&mut io::Read::take(io::repeat(0), length), &mut encoder).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_bomb_of_42_kb_is_refused() {
    let place = place();
    let path = place.path().join("bomb.tgz");
    let mut builder =
        Builder::new(GzEncoder::new(File::create(&path).unwrap(), Compression::best()));
    let mut header = Header::new_gnu();
    header.set_path("zeros").unwrap();
    header.set_size(42 << 20);
    header.set_cksum();
    builder.append(&header, io::Read::take(io::repeat(0), 42 << 20)).unwrap();
    builder.into_inner().unwrap().finish().unwrap();
    let length = path.metadata().unwrap().len();
    assert!(length < 45_000, "{length}");
    let error = unpacked(&place, &path).unwrap_err();
    println!("{length} bytes: {error}");
    assert_eq!(error, "the upload is too large: its files may have 1 MiB");
    let written = place.path().join("to/zeros").metadata().unwrap().len();
    assert!(written <= BOUNDS.bytes, "{written}");
}

/// A zip archive of 400 files with the same content, which is there once: 42 kB of 8 GB.
fn overlapping_bomb() -> Vec<u8> {
    let mut zip = ZipWriter::new(io::Cursor::new(Vec::new()));
    zip.start_file("0", SimpleFileOptions::default()).unwrap();
    io::copy(&mut io::Read::take(io::repeat(0), 20 << 20), &mut zip).unwrap();
    let one = zip.finish().unwrap().into_inner();
    let index = one.windows(4).rposition(|it| it == b"PK\x01\x02").unwrap();
    let end = one.windows(4).rposition(|it| it == b"PK\x05\x06").unwrap();
    let mut bomb = one[..index].to_vec();
    for _ in 0..400 {
        bomb.extend(&one[index..end]);
    }
    let length = u32::try_from(bomb.len() - index).unwrap();
    let mut last = one[end..].to_vec();
    last[8..10].copy_from_slice(&400_u16.to_le_bytes());
    last[10..12].copy_from_slice(&400_u16.to_le_bytes());
    last[12..16].copy_from_slice(&length.to_le_bytes());
    bomb.extend(last);
    bomb
}

#[test]
fn a_zip_whose_files_share_their_content_is_refused() {
    let place = place();
    let path = place.path().join("bomb.zip");
    fs::write(&path, overlapping_bomb()).unwrap();
    let length = path.metadata().unwrap().len();
    assert!(length < 45_000, "{length}");
    let error = unpacked(&place, &path).unwrap_err();
    println!("{length} bytes: {error}");
}

#[test]
fn too_many_entries_and_too_long_headers_are_refused() {
    let place = place();
    let path = place.path().join("many.tgz");
    let mut builder =
        Builder::new(GzEncoder::new(File::create(&path).unwrap(), Compression::best()));
    for number in 0..=BOUNDS.files {
        add(&mut builder, EntryType::Regular, &number.to_string(), "", b"");
    }
    builder.into_inner().unwrap().finish().unwrap();
    let error = unpacked(&place, &path).unwrap_err();
    assert_eq!(error, "the upload is too large: it may have 100 files and folders");

    // A name of a gigabyte, which a reader would keep in memory.
    let path = place.path().join("name.tgz");
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::GNULongName);
    header.set_size(1 << 30);
    header.set_cksum();
    encoder.write_all(header.as_bytes()).unwrap();
    let start = encoder.finish().unwrap();
    // A second member of the stream: the content of the name.
    let rest = zeros(8 << 20);
    let mut file = File::create(&path).unwrap();
    file.write_all(&start).and_then(|()| file.write_all(&rest)).unwrap();
    let error = unpacked(&place, &path).unwrap_err();
    println!("{error}");
    assert_eq!(error, "the archive is too large: its headers");
}

#[test]
fn what_is_no_archive_is_refused_in_one_line() {
    let place = place();
    for (content, expected) in [
        (&b"#!/bin/sh\n"[..], "is neither a folder nor an archive"),
        (b"", "is neither a folder nor an archive"),
        (b"\x1f\x8b\x08\x00broken", "the archive: "),
        (b"PK\x03\x04broken", "the archive: "),
    ] {
        let path = place.path().join("upload");
        fs::write(&path, content).unwrap();
        let error = unpacked(&place, &path).unwrap_err();
        println!("{error}");
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
    }
}
