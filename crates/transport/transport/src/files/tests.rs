mod older;
mod tree;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Instant, UNIX_EPOCH};

use keys::IdentitySecretKey;

use super::*;
use crate::net::{Connection, Listener, connect};
use crate::options::{ConnectionOptions, ConnectionSecurity, TransportChoice};
use crate::{Error, FileTransferFailureReason};

fn secret(number: u8) -> IdentitySecretKey {
    IdentitySecretKey::new(&[number; 32])
}

fn security(own: u8, peer: u8) -> ConnectionSecurity {
    ConnectionSecurity::pinned(secret(own), vec![secret(peer).public()])
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + (i >> 8) * 7).to_le_bytes()[0]).collect()
}

/// A receiver that stores files in a directory, with a thread for each connection, until it is
/// dropped.
struct Receiving {
    address: String,
}

impl Receiving {
    fn new(directory: &Path, overwrites: bool) -> Self {
        let options = ConnectionOptions::new(security(2, 1));
        Self::at(Listener::bind("127.0.0.1:0", &options).unwrap(), directory, overwrites)
    }

    fn at(listener: Listener, directory: &Path, overwrites: bool) -> Self {
        let address = listener.local_addr().to_string();
        let receiver = Arc::new(FileReceiver::new(directory, overwrites));
        thread::spawn(move || {
            while let Ok(connection) = listener.accept() {
                let receiver = receiver.clone();
                thread::spawn(move || receiver.receive(connection, |_| {}));
            }
        });
        Self { address }
    }

    fn connect(&self) -> Result<Connection, Error> {
        self.connecting()(ConnectionPreferences::default())
    }

    fn connecting(
        &self,
    ) -> impl Fn(ConnectionPreferences) -> Result<Connection, Error> + Send + Sync + 'static {
        let address = self.address.clone();
        move |_| connect(&address, &ConnectionOptions::new(security(1, 2)))
    }

    fn send(&self, path: &Path) -> Result<SentFile, FileSendError> {
        send(path, self.connecting(), |_| {})
    }
}

fn refusal<T>(result: Result<T, FileSendError>) -> FileTransferFailureReason {
    match result.err().unwrap() {
        FileSendError::Refused(failure) => failure.reason,
        error => panic!("{error}"),
    }
}

#[test]
fn files_arrive_whole() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let receiving = Receiving::new(to.path(), false);
    for len in [0, 1, 262_144, 3_000_001] {
        let name = format!("file {len}");
        let (path, data) = (from.path().join(&name), pattern(len));
        fs::write(&path, &data).unwrap();
        let sent = receiving.send(&path).unwrap();
        assert_eq!((sent.bytes, sent.resumed_from, sent.connections), (len as u64, 0, 1));
        assert!(fs::read(to.path().join(&name)).unwrap() == data);
        // Sends it again: the same file exists.
        let again = receiving.send(&path).unwrap();
        assert_eq!((again.resumed_from, again.sha256), (len as u64, sent.sha256));
    }
    assert_eq!(fs::read_dir(to.path()).unwrap().count(), 4);
}

#[test]
fn files_arrive_by_each_transport_over_ipv6() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Ok(listener) = Listener::bind("[::1]:0", &ConnectionOptions::new(security(2, 1))) else {
        eprintln!("SKIPPED: this host has no IPv6");
        return;
    };
    let receiving = Receiving::at(listener, to.path(), false);
    // `udp` may lose something on a busy host.
    for transport in ["tcp", "sabul", "burst", "quic", "micss"] {
        let path = from.path().join(transport);
        fs::write(&path, pattern(100_000)).unwrap();
        let address = match transport {
            "micss" => format!("{0},{0}", receiving.address),
            _ => receiving.address.clone(),
        };
        let options = ConnectionOptions {
            transport: TransportChoice::Named(transport),
            ..ConnectionOptions::new(security(1, 2))
        };
        let sent = send(&path, move |_| connect(&address, &options), |_| {}).unwrap();
        assert_eq!(sent.transport, transport);
        assert!(fs::read(to.path().join(transport)).unwrap() == pattern(100_000), "{transport}");
    }
}

#[test]
fn another_file_is_replaced_only_if_the_receiver_overwrites() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (path, there) = (from.path().join("a"), to.path().join("a"));
    fs::write(&path, b"new").unwrap();
    for old in [&b"old"[..], b"longer"] {
        fs::write(&there, old).unwrap();
        let receiving = Receiving::new(to.path(), false);
        assert_eq!(refusal(receiving.send(&path)), FileTransferFailureReason::Exists);
        assert_eq!(fs::read(&there).unwrap(), old);
    }
    // A link is not followed either.
    fs::remove_file(&there).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &there).unwrap();
    assert_eq!(
        refusal(Receiving::new(to.path(), false).send(&path)),
        FileTransferFailureReason::Exists
    );
    let sent = Receiving::new(to.path(), true).send(&path).unwrap();
    assert_eq!(sent.bytes, 3);
    assert!(!there.is_symlink());
    assert_eq!(fs::read(&there).unwrap(), b"new");
}

#[test]
fn what_an_earlier_attempt_has_left_is_used_if_it_is_of_the_file() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (path, part) = (from.path().join("a"), to.path().join(".a.part"));
    let data = pattern(2_000_000);
    fs::write(&path, &data).unwrap();
    let receiving = Receiving::new(to.path(), false);
    let mut wrong = data[..1_000_000].to_vec();
    wrong[999_999] ^= 1;
    let longer = [&data[..], b"more"].concat();
    for (left, resumed) in
        [(&data[..1_000_000], 1_000_000), (&data[..], 2_000_000), (&wrong, 1_000_000), (&longer, 0)]
    {
        fs::write(&part, left).unwrap();
        let sent = receiving.send(&path).unwrap();
        assert_eq!(sent.resumed_from, resumed);
        assert!(fs::read(to.path().join("a")).unwrap() == data);
        assert!(!part.exists());
        fs::remove_file(to.path().join("a")).unwrap();
    }
}

#[test]
fn a_transfer_goes_on_after_breaks() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = from.path().join("a");
    let data = pattern(30_000_000);
    fs::write(&path, &data).unwrap();
    let receiving = Receiving::new(to.path(), false);
    let breaks = AtomicU32::new(0);
    let part = to.path().join(".a.part");
    let connecting = receiving.connecting();
    let connect = move |preferences| {
        let connection = connecting(preferences)?;
        if breaks.fetch_add(1, Ordering::Relaxed) < 3 {
            let (closer, part) = (connection.closer(), part.clone());
            let before = fs::metadata(&part).map_or(0, |part| part.len());
            thread::spawn(move || {
                // Breaks the connection when more data has arrived.
                while fs::metadata(&part).map_or(0, |part| part.len()) < before + 1_000_000 {
                    thread::yield_now();
                }
                closer.close();
            });
        }
        Ok(connection)
    };
    let mut pauses = 0;
    let sent = send(&path, connect, |event| {
        pauses += u32::from(matches!(event, FileTransferEvent::Broken { .. }));
    });
    assert_eq!(sent.unwrap().connections, 4);
    assert_eq!(pauses, 3);
    assert!(fs::read(to.path().join("a")).unwrap() == data);
}

#[test]
fn only_files_with_usable_names_are_sent() {
    let from = tempfile::tempdir().unwrap();
    let never = |_| -> Result<Connection, Error> { unreachable!() };
    let hidden = from.path().join(".hidden");
    fs::write(&hidden, b"").unwrap();
    assert!(matches!(send(&hidden, never, |_| {}), Err(FileSendError::Name { .. })));
    assert!(matches!(send(from.path(), never, |_| {}), Err(FileSendError::Kind { .. })));
    let missing = from.path().join("missing");
    assert!(matches!(send(&missing, never, |_| {}), Err(FileSendError::File { .. })));
}

#[test]
fn a_sender_that_breaks_the_rules_gets_the_failure_reason() {
    use std::io::{Read as _, Write as _};

    use crate::protocol::file::{FileReceiverMessage, FileSenderMessage};

    let to = tempfile::tempdir().unwrap();
    let receiving = Receiving::new(to.path(), false);
    let offer = |name: &str| {
        let mut bytes = vec![1, 3, 1, 0, 0, 0, 0, 0, 0, 0, 4];
        bytes.extend([0; 16]);
        bytes.extend([0, u8::try_from(name.len()).unwrap()]);
        bytes.extend(name.as_bytes());
        bytes
    };
    let data = |len| FileSenderMessage::Data(len).encode();
    let end = FileSenderMessage::End([0; 32]).encode();
    let mut of_older_sunder = offer("a");
    of_older_sunder[1] = 2;
    for (sent, reason) in [
        (of_older_sunder, FileTransferFailureReason::Protocol),
        (offer("../a"), FileTransferFailureReason::Name),
        (offer(".a"), FileTransferFailureReason::Name),
        (vec![99], FileTransferFailureReason::Protocol),
        (data(4), FileTransferFailureReason::Protocol),
        ([offer("a"), offer("a")].concat(), FileTransferFailureReason::Protocol),
        ([offer("a"), data(5), vec![0; 5]].concat(), FileTransferFailureReason::Protocol),
        (
            [offer("a"), data(3), vec![0; 3], end.clone()].concat(),
            FileTransferFailureReason::Protocol,
        ),
        ([offer("b"), data(4), vec![0; 4], end].concat(), FileTransferFailureReason::Digest),
    ] {
        let mut connection = receiving.connect().unwrap();
        connection.write_all(&sent).unwrap();
        let failure = loop {
            match FileReceiverMessage::read(&mut connection).unwrap() {
                FileReceiverMessage::Failed(failure) => break failure,
                FileReceiverMessage::Done => panic!("{sent:?}"),
                _ => {}
            }
        };
        assert_eq!(failure.reason, reason, "{sent:?}");
        connection.finish().unwrap();
        assert_eq!(connection.read(&mut [0]).unwrap(), 0);
    }
    // If the digest is wrong, there is nothing to resume from.
    assert_eq!(fs::read_dir(to.path()).unwrap().count(), 1, "the part of a");
}

#[test]
fn permissions_and_times_arrive() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let receiving = Receiving::new(to.path(), false);
    let changed_at = UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_000);
    for permissions in [0o600, 0o640, 0o755] {
        let name = format!("{permissions:o}");
        let path = from.path().join(&name);
        fs::write(&path, b"secret").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(permissions)).unwrap();
        fs::File::open(&path).unwrap().set_modified(changed_at).unwrap();
        receiving.send(&path).unwrap();
        let there = fs::metadata(to.path().join(&name)).unwrap();
        // As far as the receiver's umask allows.
        let mode = there.permissions().mode() & 0o777;
        assert_eq!((mode & !permissions, mode & 0o700), (0, permissions & 0o700));
        assert_eq!(there.modified().unwrap(), changed_at);
    }
}

#[test]
fn a_part_is_for_its_owner_only() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (path, part) = (from.path().join("a"), to.path().join(".a.part"));
    fs::write(&path, pattern(2_000_000)).unwrap();
    // A part from an earlier version, which others may read.
    fs::write(&part, pattern(1_000_000)).unwrap();
    fs::set_permissions(&part, Permissions::from_mode(0o644)).unwrap();
    let listener = Listener::bind("127.0.0.1:0", &ConnectionOptions::new(security(2, 1))).unwrap();
    let receiving = Receiving { address: listener.local_addr().to_string() };
    let receiver = FileReceiver::new(to.path(), false);
    let (modes, seen) = channel();
    thread::spawn(move || {
        let received = receiver.receive(listener.accept().unwrap(), |event| {
            if matches!(event, FileTransferEvent::Comparing) {
                modes.send(fs::metadata(&part).unwrap().permissions().mode() & 0o777).unwrap();
            }
        });
        received.unwrap();
    });
    assert_eq!(receiving.send(&path).unwrap().resumed_from, 1_000_000);
    assert_eq!(seen.recv().unwrap(), 0o600);
}

#[test]
fn a_file_that_is_changed_meanwhile_is_not_sent_as_good() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let receiving = Receiving::new(to.path(), false);
    for len in [1000, 1001, 10] {
        let path = from.path().join("a");
        fs::write(&path, pattern(1000)).unwrap();
        let (connecting, changed) = (receiving.connecting(), path.clone());
        let connect = move |preferences| {
            let mut file = fs::File::create(&changed).unwrap();
            io::Write::write_all(&mut file, &vec![7; len]).unwrap();
            connecting(preferences)
        };
        let error = send(&path, connect, |_| {}).unwrap_err();
        assert!(matches!(error, FileSendError::Changed { .. }), "{error}");
        assert!(!to.path().join("a").exists());
    }
}

/// A receiver that is silent on its first connection, and receives files on later ones.
fn silent_at_first(directory: &Path, kept: Sender<Connection>) -> Receiving {
    let listener = Listener::bind("127.0.0.1:0", &ConnectionOptions::new(security(2, 1))).unwrap();
    let address = listener.local_addr().to_string();
    let receiver = FileReceiver::new(directory, false);
    thread::spawn(move || {
        kept.send(listener.accept().unwrap()).unwrap();
        while let Ok(connection) = listener.accept() {
            let _ = receiver.receive(connection, |_| {});
        }
    });
    Receiving { address }
}

#[test]
fn another_connection_takes_the_place_of_a_silent_one() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = from.path().join("a");
    // More than the buffers hold, so that the sender waits for the receiver.
    let data = pattern(30_000_000);
    fs::write(&path, &data).unwrap();
    let (kept, _silent) = channel();
    let receiving = silent_at_first(to.path(), kept);
    let begin = Instant::now();
    let (connecting, is_first) = (receiving.connecting(), AtomicBool::new(true));
    let connect = move |preferences: ConnectionPreferences| {
        let is_first = is_first.swap(false, Ordering::Relaxed);
        assert_eq!(preferences.has_short_segments, !is_first, "long packets may be lost");
        connecting(preferences)
    };
    let mut silences = 0;
    let sent = send(&path, connect, |event| {
        silences += u32::from(matches!(event, FileTransferEvent::Silent { .. }));
    });
    assert_eq!((sent.unwrap().connections, silences), (2, 1));
    assert!(begin.elapsed() < IDLE_TIMEOUT, "it waited for that time");
    assert!(fs::read(to.path().join("a")).unwrap() == data);
}

#[test]
fn a_silent_connection_that_recovers_goes_on() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = from.path().join("a");
    let data = pattern(3_000_000);
    fs::write(&path, &data).unwrap();
    let (kept, silent) = channel();
    let receiving = silent_at_first(to.path(), kept);
    let (connecting, connects) = (receiving.connecting(), AtomicU32::new(0));
    let (asks, is_asked) = channel();
    let directory = to.path().to_owned();
    thread::spawn(move || {
        let connection = silent.recv().unwrap();
        is_asked.recv().unwrap();
        FileReceiver::new(&directory, false).receive(connection, |_| {}).unwrap();
    });
    let connect = move |preferences| {
        if connects.fetch_add(1, Ordering::Relaxed) > 0 {
            asks.send(()).unwrap();
            // The path stays broken longer for a new connection.
            thread::sleep(IDLE_TIMEOUT);
        }
        connecting(preferences)
    };
    let begin = Instant::now();
    let sent = send(&path, connect, |_| {}).unwrap();
    assert_eq!(sent.connections, 1);
    assert!(begin.elapsed() < IDLE_TIMEOUT, "it waited for that time");
    assert!(fs::read(to.path().join("a")).unwrap() == data);
}

#[test]
fn another_sender_of_the_same_file_takes_the_place_of_a_silent_one() {
    use std::io::Write as _;

    use crate::protocol::file::{FileAttributes, FileName, FileReceiverMessage, FileSenderMessage};

    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = from.path().join("a");
    fs::write(&path, pattern(1000)).unwrap();
    let listener =
        Listener::bind("127.0.0.1:0", &ConnectionOptions::new(ConnectionSecurity::open(secret(2))))
            .unwrap();
    let address = listener.local_addr().to_string();
    let receiver = Arc::new(FileReceiver::new(to.path(), false));
    thread::spawn(move || {
        while let Ok(connection) = listener.accept() {
            let receiver = receiver.clone();
            thread::spawn(move || receiver.receive(connection, |_| {}));
        }
    });
    let by = move |sender| {
        let address = address.clone();
        move |_: ConnectionPreferences| {
            connect(&address, &ConnectionOptions::new(security(sender, 2)))
        }
    };
    // A sender that was switched off after its offer.
    let mut silent = by(1)(ConnectionPreferences::default()).unwrap();
    let attributes = FileAttributes { permissions: 0o600, changed_at: (0, 0) };
    let name = FileName::parse(b"a").unwrap();
    let offer = FileSenderMessage::Offer { is_eager: true, length: 1000, attributes, name };
    silent.write_all(&offer.encode()).unwrap();
    assert_eq!(FileReceiverMessage::read(&mut silent).unwrap(), FileReceiverMessage::Have(0));
    let mut busy = 0;
    let sent = send(&path, by(3), |event| {
        busy += u32::from(matches!(event, FileTransferEvent::Broken { .. }));
    });
    assert!(sent.is_ok() && busy > 0);
    assert!(fs::read(to.path().join("a")).unwrap() == pattern(1000));
}
