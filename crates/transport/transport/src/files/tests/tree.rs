//! Transfers of several files and directories.

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::{Receiving, pattern, refusal, security};
use crate::files::part::{PartialFile, PartialFileError};
use crate::files::{FileSendError, FileTransferEvent, SentTree, send_tree};
use crate::net::connect;
use crate::options::{ConnectionOptions, TransportChoice};
use crate::protocol::file::{FileName, FileReceiverMessage, FileTransferFailureReason};

fn send(receiving: &Receiving, paths: &[PathBuf]) -> Result<SentTree, FileSendError> {
    send_tree(paths, receiving.connecting(), |_| {})
}

/// A directory `docs` with files and directories of all kinds.
fn docs(place: &Path) -> PathBuf {
    let docs = place.join("docs");
    fs::create_dir_all(docs.join("a/b")).unwrap();
    fs::create_dir(docs.join("empty")).unwrap();
    for (name, len) in [("a/b/large", 3_000_001), ("a/small", 7), ("none", 0), ("z", 262_144)] {
        fs::write(docs.join(name), pattern(len)).unwrap();
    }
    fs::set_permissions(docs.join("z"), Permissions::from_mode(0o500)).unwrap();
    fs::set_permissions(docs.join("a/b"), Permissions::from_mode(0o550)).unwrap();
    docs
}

/// Checks that two directories have the same files, times and permissions.
fn assert_same(one: &Path, two: &Path) {
    let names = |path: &Path| {
        let mut names: Vec<_> =
            fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(one), names(two));
    for name in names(one) {
        let (one, two) = (one.join(&name), two.join(&name));
        let [first, second] = [&one, &two].map(|path| path.symlink_metadata().unwrap());
        let attributes = |it: &fs::Metadata| (it.mode(), it.mtime(), it.mtime_nsec());
        assert_eq!(attributes(&first), attributes(&second), "{}", one.display());
        if first.is_dir() {
            assert_same(&one, &two);
        } else {
            assert!(fs::read(&one).unwrap() == fs::read(&two).unwrap(), "{}", one.display());
        }
    }
}

#[test]
fn a_directory_arrives_with_its_times_and_permissions_and_is_not_sent_again() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let docs = docs(from.path());
    fs::write(from.path().join("single"), "text").unwrap();
    let paths = [docs.clone(), from.path().join("single")];
    let receiving = Receiving::new(to.path(), false);
    let sent = send(&receiving, &paths).unwrap();
    assert_eq!((sent.files, sent.bytes, sent.resumed_from), (5, 3_262_156, 0));
    assert_same(from.path(), to.path());
    let again = send(&receiving, &paths).unwrap();
    assert_eq!((again.files, again.resumed_from), (5, again.bytes));
    // One more file, and nothing else.
    fs::write(docs.join("empty/new"), "new").unwrap();
    let again = send(&receiving, &paths).unwrap();
    assert_eq!(again.bytes - again.resumed_from, 3);
    assert_eq!(fs::read(to.path().join("docs/empty/new")).unwrap(), b"new");
}

#[test]
fn parts_are_continued_if_they_are_the_beginning() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let docs = docs(from.path());
    fs::create_dir_all(to.path().join("docs/a/b")).unwrap();
    fs::write(to.path().join("docs/a/b/.large.part"), &pattern(3_000_001)[..2_000_000]).unwrap();
    fs::write(to.path().join("docs/.z.part"), [9; 1000]).unwrap();
    fs::write(to.path().join("docs/a/.small.part"), [9; 1000]).unwrap();
    let sent = send(&Receiving::new(to.path(), false), slice::from_ref(&docs)).unwrap();
    assert_eq!(sent.resumed_from, 2_001_000);
    for name in ["a/b/large", "a/small", "none", "z"] {
        assert!(
            fs::read(docs.join(name)).unwrap()
                == fs::read(to.path().join("docs").join(name)).unwrap()
        );
    }
    assert!(!to.path().join("docs/.z.part").exists());
}

/// A connection that broke before the files had their names has left parts with the permissions of
/// the files.
#[test]
fn parts_that_may_not_be_written_are_continued() {
    thread::spawn(continue_unwritable_parts).join().unwrap();
}

fn continue_unwritable_parts() {
    // Root could write them nevertheless. The threads that this one starts inherit that it cannot.
    let mut sets = capabilities(None).unwrap();
    sets.effective.remove(CapabilitySet::DAC_OVERRIDE);
    set_capabilities(None, sets).unwrap();
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let docs = docs(from.path());
    fs::set_permissions(docs.join("a/b"), Permissions::from_mode(0o750)).unwrap();
    fs::create_dir(to.path().join("docs")).unwrap();
    for (name, mode) in [("z", 0o444), ("none", 0o000)] {
        let part = to.path().join(format!("docs/.{name}.part"));
        fs::copy(docs.join(name), &part).unwrap();
        fs::set_permissions(&part, Permissions::from_mode(mode)).unwrap();
        fs::set_permissions(docs.join(name), Permissions::from_mode(0o400)).unwrap();
    }
    let receiving = Receiving::new(to.path(), false);
    let sent = send(&receiving, slice::from_ref(&docs)).unwrap();
    assert_eq!(sent.resumed_from, 262_144);
    for name in ["none", "z"] {
        let there = to.path().join("docs").join(name);
        assert!(fs::read(&there).unwrap() == fs::read(docs.join(name)).unwrap(), "{name}");
        assert_eq!(there.metadata().unwrap().mode() & 0o777, 0o400, "{name}");
    }
    // The same of a single file.
    let one = docs.join("z");
    fs::copy(&one, to.path().join(".z.part")).unwrap();
    assert_eq!(receiving.send(&one).unwrap().resumed_from, 262_144);
    // Another receiver is about to publish one with its permissions.
    let published = File::create(to.path().join(".busy.part")).unwrap();
    published.lock().unwrap();
    published.set_permissions(Permissions::from_mode(0o444)).unwrap();
    let busy = PartialFile::open(to.path(), &FileName::parse(b"busy").unwrap(), 0);
    assert!(matches!(busy, Err(PartialFileError::Busy(_))), "{busy:?}");
    assert_eq!(published.metadata().unwrap().mode() & 0o777, 0o444);
}

#[test]
fn other_files_are_not_replaced_and_nothing_is_created_then() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let docs = docs(from.path());
    fs::create_dir(to.path().join("docs")).unwrap();
    fs::write(to.path().join("docs/z"), "another").unwrap();
    let refused = refusal(send(&Receiving::new(to.path(), false), slice::from_ref(&docs)));
    assert_eq!(refused, FileTransferFailureReason::Exists);
    assert_eq!(fs::read_dir(to.path().join("docs")).unwrap().count(), 1);
    send(&Receiving::new(to.path(), true), slice::from_ref(&docs)).unwrap();
    assert!(fs::read(to.path().join("docs/z")).unwrap() == fs::read(docs.join("z")).unwrap());
}

#[test]
fn links_and_hidden_files_are_skipped_and_links_at_the_receiver_are_not_followed() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let docs = docs(from.path());
    symlink("/etc/passwd", docs.join("link")).unwrap();
    symlink("..", docs.join("up")).unwrap();
    fs::write(docs.join(".bashrc"), "evil").unwrap();
    let sent = send(&Receiving::new(to.path(), false), slice::from_ref(&docs)).unwrap();
    assert_eq!((sent.files, sent.skipped.count), (4, 3));
    assert!(!to.path().join("docs/link").exists() && !to.path().join("docs/.bashrc").exists());
    // The receiver has a link where the sender has a directory or a part.
    for (link, is_top) in [("docs", true), ("docs/a", false)] {
        let (to, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        if !is_top {
            fs::create_dir(to.path().join("docs")).unwrap();
        }
        symlink(elsewhere.path(), to.path().join(link)).unwrap();
        let refused = refusal(send(&Receiving::new(to.path(), true), slice::from_ref(&docs)));
        assert_eq!(refused, FileTransferFailureReason::Exists, "{link}");
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }
    let (to, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir(to.path().join("docs")).unwrap();
    fs::write(elsewhere.path().join("target"), "old").unwrap();
    symlink(elsewhere.path().join("target"), to.path().join("docs/.z.part")).unwrap();
    let refused = refusal(send(&Receiving::new(to.path(), true), &[docs]));
    assert_eq!(refused, FileTransferFailureReason::System);
    assert_eq!(fs::read(elsewhere.path().join("target")).unwrap(), b"old");
}

/// Someone who may change a directory that another user sends makes a link in place of a listed
/// file, to one that only the sender may read.
#[test]
fn links_that_are_made_after_the_list_are_not_followed() {
    for (link, file) in [("docs/z", "docs/z"), ("docs/a", "docs/a/small")] {
        let [from, to, elsewhere] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let docs = docs(from.path());
        let (listed, moved) = (from.path().join(link), elsewhere.path().join("moved"));
        let receiving = Receiving::new(to.path(), false);
        let sent = send_tree(slice::from_ref(&docs), receiving.connecting(), |event| {
            if matches!(event, FileTransferEvent::Offered { .. }) {
                // Its length, time and permissions stay.
                fs::rename(&listed, &moved).unwrap();
                symlink(&moved, &listed).unwrap();
            }
        });
        assert!(matches!(sent, Err(FileSendError::Changed { .. })), "{link}: {sent:?}");
        assert!(!to.path().join(file).exists(), "{link}");
    }
}

/// A sender of its own making, with names that lead elsewhere.
#[test]
fn evil_paths_are_refused_before_anything_is_created() {
    let to = tempfile::tempdir().unwrap();
    let inbox = to.path().join("inbox");
    fs::create_dir(&inbox).unwrap();
    let receiving = Receiving::new(&inbox, true);
    for path in ["../evil", "/tmp/evil", "a/../../evil", ".ssh", "a\0b", "\u{202e}gpj.exe", "a/b"] {
        let mut connection = receiving.connect().unwrap();
        let mut bytes = vec![6, 1, 0, 0, 0, 1, 0];
        bytes.extend([0; 8 + 4 + 8 + 4]);
        bytes.extend(u16::try_from(path.len()).unwrap().to_be_bytes());
        bytes.extend(path.as_bytes());
        connection.write_all(&bytes).unwrap();
        connection.flush().unwrap();
        let answer = FileReceiverMessage::read(&mut connection).unwrap();
        assert!(matches!(answer, FileReceiverMessage::Failed(_)), "{path}: {answer:?}");
        assert_eq!(fs::read_dir(&inbox).unwrap().count(), 0, "{path}");
        assert_eq!(fs::read_dir(to.path()).unwrap().count(), 1, "{path}");
    }
}

/// Passes everything on after a time, as a path of this one-way delay does.
fn delaying_forwarder(to: String, delay: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for inward in listener.incoming() {
            let (inward, outward) = (inward.unwrap(), TcpStream::connect(&to).unwrap());
            for (mut from, mut to) in
                [(inward.try_clone().unwrap(), outward.try_clone().unwrap()), (outward, inward)]
            {
                let (give, take) = channel::<(Instant, Vec<u8>)>();
                thread::spawn(move || {
                    let mut buffer = vec![0; 1 << 16];
                    while let Ok(count) = from.read(&mut buffer)
                        && count > 0
                        && give.send((Instant::now() + delay, buffer[..count].to_vec())).is_ok()
                    {
                    }
                });
                thread::spawn(move || {
                    for (due, bytes) in take {
                        thread::sleep(due.saturating_duration_since(Instant::now()));
                        if to.write_all(&bytes).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(std::net::Shutdown::Write);
                });
            }
        }
    });
    address
}

/// With a round trip for each, 10,000 files would take 18 minutes over 110 ms.
#[test]
fn ten_thousand_files_do_not_take_a_round_trip_each() {
    const FILES: usize = 10_000;
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let many = from.path().join("many");
    for directory in 0..10 {
        let directory = many.join(directory.to_string());
        fs::create_dir_all(&directory).unwrap();
        for file in 0..FILES / 10 {
            fs::write(directory.join(file.to_string()), pattern(1000 + file)).unwrap();
        }
    }
    let receiving = Receiving::new(to.path(), false);
    let address = delaying_forwarder(receiving.address.clone(), Duration::from_millis(55));
    let options = ConnectionOptions {
        transport: TransportChoice::Named("tcp"),
        ..ConnectionOptions::new(security(1, 2))
    };
    let start = Instant::now();
    let sent =
        send_tree(slice::from_ref(&many), move |_| connect(&address, &options), |_| {}).unwrap();
    println!("{FILES} files, {} bytes over 110 ms: {:?}", sent.bytes, start.elapsed());
    assert_eq!((sent.files, sent.connections), (FILES, 1));
    assert!(start.elapsed() < Duration::from_millis(110) * 1000, "a tenth of the round trips");
    for name in ["0/0", "5/999", "9/500"] {
        let [one, two] =
            [&many, &to.path().join("many")].map(|it| fs::read(it.join(name)).unwrap());
        assert!(one == two, "{name}");
    }
}
