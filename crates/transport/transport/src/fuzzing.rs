//! Helpers for fuzz targets, which pass bytes to the parsers and to connections.

mod datagrams;

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use keys::IdentitySecretKey;
use keys::noise::EphemeralKey;
use records::{InvalidRecordError, OpenedRecord, RecordBuffer, RecordCipher, RecordOpener};
use zeroize::Zeroizing;

use crate::files::FileReceiver;
use crate::net::{Connection, PlaintextAnswer};
use crate::protocol::file::{FileReceiverMessage, FileSenderMessage};
use crate::protocol::handshake::{
    CONFIRM_LEN, HandshakeInitiator, HandshakeMode, HandshakeRefusal, PREFIX_LEN, REPLY_LEN,
    REQUEST_LEN, TransportSession, answer,
};
use crate::protocol::relay;
use crate::protocol::tree::{TREE_KIND, TreeManifest};
use crate::stream::{ByteStream, PathStatistics};

pub use crate::probe::fuzzing as probe;
pub use crate::transports::udp::fuzzing as udp;
pub use datagrams::{DatagramStep, datagrams};

/// Passes any bytes to every parser, and checks that what is parsed is encoded to the same bytes.
///
/// # Panics
/// If it is not.
pub fn parsers(bytes: &[u8]) {
    if let Some(prefix) = bytes.first_chunk::<PREFIX_LEN>()
        && let Ok(mode) = HandshakeMode::parse(prefix)
    {
        assert_eq!(mode.prefix(), *prefix);
    }
    if let Some(byte) = bytes.first()
        && let Ok(refusal) = HandshakeRefusal::parse(*byte)
    {
        assert_eq!(refusal.answer()[1], *byte);
    }
    if let Some(request) = bytes.first_chunk::<{ relay::REQUEST_LEN }>()
        && let Some(relay::RelayRequest::Wait(secret)) = relay::RelayRequest::parse(request)
    {
        assert_eq!(*relay::RelayRequest::Wait(secret).encode(), *request);
    }
    let mut rest = bytes;
    while let Ok(Ok(message)) = FileSenderMessage::read(&mut rest) {
        assert!(bytes[..bytes.len() - rest.len()].ends_with(&message.encode()));
    }
    let mut rest = bytes;
    if let Ok(manifest) = TreeManifest::read(&mut rest) {
        assert_eq!(manifest.encode()[1..], bytes[..bytes.len() - rest.len()]);
    }
    let mut rest = bytes;
    while let Ok(message) = FileReceiverMessage::read(&mut rest) {
        let encoded = message.encode();
        // Characters of the failure's text may have been removed.
        if !matches!(message, FileReceiverMessage::Failed(_)) {
            assert!(bytes[..bytes.len() - rest.len()].ends_with(&encoded));
        }
    }
}

/// Checks that the handshake fails if bytes of the other end are changed.
///
/// # Panics
/// If it does not.
pub fn handshake(change: impl Fn(&[u8]) -> Vec<u8>) {
    let (_, request) = connect();
    let seen = cut::<REQUEST_LEN>(&change(&request), &request);
    assert_eq!(answered(&seen).is_some(), seen == request);
    let (initiator, request) = connect();
    let (_, reply) = answered(&request).expect("the real request");
    let reply: [u8; REPLY_LEN] = *reply.last_chunk().expect("a reply is that long");
    let seen = cut(&change(&reply), &reply);
    assert_eq!(initiator.finish(&seen).is_ok(), seen == reply);
    let (initiator, request) = connect();
    let (mut two, reply) = answered(&request).expect("the real request");
    let reply = reply.last_chunk().expect("a reply is that long");
    let (_, confirm) = initiator.finish(reply).expect("the real reply");
    let confirm: [u8; CONFIRM_LEN] = *confirm.first_chunk().expect("a record is that long");
    let seen = cut(&change(&confirm), &confirm);
    assert_eq!(two.confirm(&seen).is_ok(), seen == confirm);
}

/// Checks that data changed in transit never makes an end receive what was not sent.
///
/// # Panics
/// If it does.
pub fn records(chunks: &[Vec<u8>], pieces: &[u16], change: impl Fn(&[u8]) -> Vec<u8>) {
    let (one, two) = sessions();
    let (mut sealer, mut stream) = (one.sealer, Vec::new());
    let chunks = chunks.iter().filter(|chunk| !chunk.is_empty());
    let mut record = RecordBuffer::new();
    for chunk in chunks.clone() {
        assert_eq!(record.extend(chunk), chunk.len());
        stream.extend(sealer.seal(&mut record));
    }
    record.extend(&[]);
    stream.extend(sealer.seal(&mut record));
    let sent = chunks.flatten().copied().collect::<Vec<u8>>();
    let changed = change(&stream);
    let mut received = Vec::new();
    let end = deliver(two.opener, &changed, pieces, &mut received);
    assert!(sent.starts_with(&received), "nothing but what was sent");
    if changed == stream {
        assert_eq!((end, received.len()), (Ok(true), sent.len()));
    } else if end == Ok(true) {
        // What follows the end does not matter.
        assert!(changed.starts_with(&stream) && received == sent);
    }
}

/// Returns whether the stream has ended.
fn deliver(
    mut opener: RecordOpener,
    mut stream: &[u8],
    pieces: &[u16],
    received: &mut Vec<u8>,
) -> Result<bool, InvalidRecordError> {
    let mut pieces = pieces.iter().map(|len| usize::from(*len).max(1)).cycle();
    loop {
        match opener.poll()? {
            OpenedRecord::Data => {
                let mut data = [0; 1000];
                let len = opener.read(&mut data);
                received.extend(&data[..len]);
            }
            OpenedRecord::End => return Ok(true),
            OpenedRecord::Incomplete if stream.is_empty() => return Ok(false),
            OpenedRecord::Incomplete => {
                let space = opener.receive_space();
                let count = pieces.next().unwrap_or(1000).min(space.len()).min(stream.len());
                space[..count].copy_from_slice(&stream[..count]);
                stream = &stream[count..];
                opener.commit_received(count);
            }
        }
    }
}

/// Checks that a sender of these bytes creates nothing outside the directory, and nothing in it but
/// its file, or the files of its list.
///
/// # Panics
/// If that does not hold.
pub fn sender(directory: &Path, bytes: &[u8]) {
    let inside = directory.join("inside");
    std::fs::create_dir_all(&inside).expect("a directory for the test");
    let stream = Arc::new(Memory(Mutex::new(bytes.iter().copied().collect())));
    let connection = Connection::plain(stream, "a sender".into(), PlaintextAnswer::Nothing);
    let _ = FileReceiver::new(&inside, false).receive(connection, |_| {});
    let names = |directory: &Path| {
        let entries = std::fs::read_dir(directory).expect("it is there");
        entries.map(|entry| entry.expect("an entry").file_name()).collect::<Vec<_>>()
    };
    assert_eq!(names(directory), ["inside"]);
    assert!(names(&inside).len() <= 1 || bytes.first() == Some(&TREE_KIND));
    std::fs::remove_dir_all(&inside).expect("it is there");
}

/// A stream that reads these bytes, and accepts all writes.
struct Memory(Mutex<VecDeque<u8>>);

impl ByteStream for Memory {
    fn read(&self, to: &mut [u8]) -> io::Result<usize> {
        io::Read::read(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), to)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn finish(&self) -> io::Result<()> {
        Ok(())
    }

    fn close(&self) {}

    fn set_timeout(&self, _timeout: Option<Duration>) -> io::Result<()> {
        Ok(())
    }

    fn peer_addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, 1).into()
    }

    fn transport(&self) -> &'static str {
        "memory"
    }

    fn statistics(&self) -> PathStatistics {
        PathStatistics::default()
    }
}

fn secret(number: u8) -> IdentitySecretKey {
    IdentitySecretKey::new(&[number; 32])
}

fn ephemeral(number: u8) -> EphemeralKey {
    EphemeralKey(Zeroizing::new([number; 32]))
}

fn connect() -> (HandshakeInitiator, [u8; REQUEST_LEN]) {
    let (initiator, hello) = HandshakeInitiator::new(
        &secret(1),
        &secret(2).public(),
        RecordCipher::fastest(),
        ephemeral(3),
    );
    (initiator, *hello.last_chunk().expect("a hello is longer"))
}

fn answered(request: &[u8; REQUEST_LEN]) -> Option<(TransportSession, [u8; 1 + REPLY_LEN])> {
    answer(&secret(2), request, |_| true, RecordCipher::fastest(), ephemeral(4)).ok()
}

fn sessions() -> (TransportSession, TransportSession) {
    let (initiator, request) = connect();
    let (mut two, reply) = answered(&request).expect("the real request");
    let reply = reply.last_chunk().expect("a reply is that long");
    let (one, confirm) = initiator.finish(reply).expect("the real reply");
    let confirm = confirm.first_chunk().expect("a record is that long");
    two.confirm(confirm).expect("the real record");
    (one, two)
}

/// The bytes, truncated to the length, or extended with those of `rest`.
fn cut<const N: usize>(bytes: &[u8], rest: &[u8; N]) -> [u8; N] {
    let mut all = *rest;
    let len = bytes.len().min(N);
    all[..len].copy_from_slice(&bytes[..len]);
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_bytes_are_refused_or_understood(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            parsers(&bytes);
        }

        #[test]
        fn changed_bytes_are_refused(
            at in any::<prop::sample::Index>(), to in any::<u8>(), chunks in prop::collection::vec(
                prop::collection::vec(any::<u8>(), 0..300), 0..4
            ), pieces in prop::collection::vec(any::<u16>(), 0..3),
        ) {
            let change = |bytes: &[u8]| {
                let mut bytes = bytes.to_vec();
                let at = at.index(bytes.len());
                bytes[at] = to;
                bytes
            };
            handshake(change);
            records(&chunks, &pieces, change);
            records(&chunks, &pieces, <[u8]>::to_vec);
        }

        #[test]
        fn a_sender_creates_its_file_only(
            name in "[./a\\\\]{0,9}", rest in prop::collection::vec(0..6_u8, 0..40),
        ) {
            let directory = tempfile::tempdir().unwrap();
            let mut bytes = vec![1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 4, 0];
            bytes.push(u8::try_from(name.len()).unwrap());
            bytes.extend(name.as_bytes());
            bytes.extend(rest);
            sender(directory.path(), &bytes);
        }
    }
}
