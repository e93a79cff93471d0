//! Changed files, of which the receiver has an older version.

use std::io::{Read, Write};

use proptest::prelude::*;
use sha2::{Digest, Sha256};
use sim::SeededRng;
use tempfile::TempDir;

use super::*;
use crate::files::chunking::chunks_of;
use crate::protocol::file::{
    ChunkLengths, FileAttributes, FileChunk, FileChunkList, FileChunkRun, FileName,
    FileReceiverMessage, FileSenderMessage, OlderChunks, RebuildPlan, RebuildSource,
};

fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = SeededRng::new(seed);
    (0..len.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).take(len).collect()
}

/// A receiver that replaces files, and has this version of the file `a`.
struct ReceiverWithOlder {
    to: TempDir,
    receiving: Receiving,
}

impl ReceiverWithOlder {
    fn new(older: &[u8]) -> Self {
        let to = tempfile::tempdir().unwrap();
        fs::write(to.path().join("a"), older).unwrap();
        let receiving = Receiving::new(to.path(), true);
        Self { to, receiving }
    }

    fn file(&self) -> Vec<u8> {
        fs::read(self.to.path().join("a")).unwrap()
    }

    fn part(&self) -> std::path::PathBuf {
        self.to.path().join(".a.part")
    }

    /// Sends this version. Returns how many bytes of it were sent.
    fn send(&self, newer: &[u8]) -> usize {
        let from = tempfile::tempdir().unwrap();
        let path = from.path().join("a");
        fs::write(&path, newer).unwrap();
        let sent = self.receiving.send(&path).unwrap();
        assert!(self.file() == newer);
        assert!(!self.part().exists());
        assert_eq!(sent.sha256, base16ct::lower::encode_string(&Sha256::digest(newer)));
        newer.len() - usize::try_from(sent.resumed_from).unwrap()
    }
}

#[test]
fn only_what_has_changed_is_sent() {
    let old = random_bytes(1, 5_000_000);
    let mut changed = old.clone();
    changed[2_000_000..2_100_000].fill(7);
    let inserted = [b"x", &old[..]].concat();
    let shorter = [&old[..1_000_000], &old[1_700_000..]].concat();
    let moved = [&old[3_000_000..], &old[..3_000_000]].concat();
    let appended = [&old[..], &random_bytes(2, 300_000)].concat();
    for (name, new, most) in [
        // The end, which is shorter than other chunks.
        ("the same", &old, 1023),
        ("a changed part", &changed, 200_000),
        ("a byte at the front", &inserted, 50_000),
        ("a part removed", &shorter, 50_000),
        ("parts in another order", &moved, 100_000),
        ("a part appended", &appended, 350_000),
        ("another file", &random_bytes(3, 5_000_000), 5_000_000),
    ] {
        let sent = ReceiverWithOlder::new(&old).send(new);
        assert!(sent <= most, "{name}: {sent}");
    }
}

#[test]
fn files_whose_chunks_are_not_compared_are_sent_whole() {
    let long = random_bytes(1, 2_000_000);
    for (old, new) in [(&long[..1_000_000], &long[..]), (&long[..], &long[..1_000_000])] {
        assert_eq!(ReceiverWithOlder::new(old).send(new), new.len());
    }
    // A link is replaced and not read.
    let receiver = ReceiverWithOlder::new(b"");
    fs::write(receiver.to.path().join("other"), &long).unwrap();
    fs::remove_file(receiver.to.path().join("a")).unwrap();
    std::os::unix::fs::symlink("other", receiver.to.path().join("a")).unwrap();
    assert_eq!(receiver.send(&long), long.len());
}

/// Makes the new file from its chunks and the older version, without a connection.
fn rebuilt(old: &[u8], new: &[u8], kept: usize) -> (Vec<u8>, u64) {
    let mut list = FileChunkList::new(new.len() as u64).unwrap();
    let lengths = list.lengths();
    let mut older = OlderChunks::default();
    let mut offset = 0;
    for chunk in chunks_of(old, lengths) {
        let (chunk, data) = chunk.unwrap();
        older.add(offset, chunk);
        offset += data.len() as u64;
    }
    for chunk in chunks_of(new, lengths) {
        list.add(chunk.unwrap().0).unwrap();
    }
    assert!(list.is_complete());
    let kept = kept % (list.chunks().len() + 1);
    let plan = RebuildPlan::new(&list, kept, &older);
    let at = |range: std::ops::Range<u64>| {
        usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()
    };
    let mut sent: Vec<u8> = list
        .ranges(&plan.wanted)
        .unwrap()
        .into_iter()
        .flat_map(|range| &new[at(range)])
        .copied()
        .collect();
    let sent_len = sent.len() as u64;
    assert_eq!(plan.bytes_from_sender(), sent_len);
    let begin: usize = list.chunks()[..kept].iter().map(|chunk| chunk.len as usize).sum();
    let mut made = new[..begin].to_vec();
    for step in plan.steps {
        match step.source {
            RebuildSource::Older(offset) => made.extend(&old[at(offset..offset + step.len)]),
            RebuildSource::Sender => {
                made.extend(sent.drain(..usize::try_from(step.len).unwrap()));
            }
        }
    }
    assert!(sent.is_empty());
    (made, sent_len)
}

/// A change of a file.
#[derive(Clone, Debug)]
enum Edit {
    Insert(usize, usize),
    Remove(usize, usize),
    Overwrite(usize, usize),
    /// Copies bytes from one place to another.
    Copy(usize, usize, usize),
    /// Writes zeros, whose chunks are all the same.
    Clear(usize, usize),
}

impl Edit {
    fn any() -> impl Strategy<Value = Self> {
        let (at, len) = (0..2_000_000_usize, prop_oneof![1..100_usize, 1..200_000_usize]);
        prop_oneof![
            (at.clone(), len.clone()).prop_map(|(at, len)| Self::Insert(at, len)),
            (at.clone(), len.clone()).prop_map(|(at, len)| Self::Remove(at, len)),
            (at.clone(), len.clone()).prop_map(|(at, len)| Self::Overwrite(at, len)),
            (at.clone(), at.clone(), len.clone()).prop_map(|(to, at, len)| Self::Copy(to, at, len)),
            (at, len).prop_map(|(at, len)| Self::Clear(at, len)),
        ]
    }

    fn apply(&self, file: &mut Vec<u8>, seed: u64) {
        let end = file.len();
        let range = |at: usize, len: usize| at.min(end)..(at + len).min(end);
        match *self {
            Self::Insert(at, len) => {
                let at = at.min(file.len());
                file.splice(at..at, random_bytes(seed, len));
            }
            Self::Remove(at, len) => drop(file.drain(range(at, len))),
            Self::Overwrite(at, len) => {
                let range = range(at, len);
                let bytes = random_bytes(seed, range.len());
                file[range].copy_from_slice(&bytes);
            }
            Self::Copy(to, at, len) => {
                let (to, bytes) = (to.min(file.len()), file[range(at, len)].to_vec());
                file.splice(to..to, bytes);
            }
            Self::Clear(at, len) => file[range(at, len)].fill(0),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_rebuilt_file_is_the_new_one(
        edits in prop::collection::vec(Edit::any(), 0..8), kept in any::<usize>(),
    ) {
        let old = random_bytes(1, 2_000_000);
        let mut new = old.clone();
        for (seed, edit) in (2..).zip(&edits) {
            edit.apply(&mut new, seed);
        }
        prop_assume!(new.len() >= 1 << 20);
        let (made, sent) = rebuilt(&old, &new, kept);
        prop_assert!(made == new);
        // Each edit changes some 200,000 bytes and the chunks at its ends, which may be cut in
        // other places until both files have a common end of a chunk.
        prop_assert!(sent <= 300_000 * edits.len() as u64, "{sent}");
    }
}

#[test]
fn a_transfer_of_changes_goes_on_after_breaks() {
    let old = random_bytes(1, 20_000_000);
    let mut new = old.clone();
    for at in (0..new.len()).step_by(100_000) {
        new[at] ^= 1;
    }
    let receiver = ReceiverWithOlder::new(&old);
    let from = tempfile::tempdir().unwrap();
    let path = from.path().join("a");
    fs::write(&path, &new).unwrap();
    let (breaks, part) = (AtomicU32::new(0), receiver.part());
    let connecting = receiver.receiving.connecting();
    let connect = move |preferences| {
        let connection = connecting(preferences)?;
        if breaks.fetch_add(1, Ordering::Relaxed) < 3 {
            let (closer, part) = (connection.closer(), part.clone());
            let before = fs::metadata(&part).map_or(0, |part| part.len());
            thread::spawn(move || {
                while fs::metadata(&part).map_or(0, |part| part.len()) < before + 1_000_000 {
                    thread::yield_now();
                }
                closer.close();
            });
        }
        Ok(connection)
    };
    let sent = send(&path, connect, |_| {}).unwrap();
    assert!(sent.connections >= 2, "{}", sent.connections);
    assert!(receiver.file() == new);
    assert!(!receiver.part().exists());
}

#[test]
fn what_an_earlier_attempt_has_left_is_kept_as_far_as_it_is_of_the_file() {
    let new = random_bytes(2, 3_000_000);
    let mut wrong = new[..2_000_000].to_vec();
    wrong[1_000_000] ^= 1;
    for (left, most) in
        [(&new[..2_000_000], 1_100_000), (&new[..], 50_000), (&wrong, 2_100_000), (&[7], 3_000_000)]
    {
        let receiver = ReceiverWithOlder::new(&random_bytes(1, 3_000_000));
        fs::write(receiver.part(), left).unwrap();
        let sent = receiver.send(&new);
        assert!(sent <= most, "{sent} {most}");
    }
}

/// The sender's end of a connection, in the hands of an attacker.
struct HostileSender {
    connection: Connection,
    new: Vec<u8>,
}

impl HostileSender {
    /// Offers this file, and waits until the receiver asks for its chunks.
    fn offer(receiver: &ReceiverWithOlder, new: Vec<u8>) -> Self {
        let connection = receiver.receiving.connect().unwrap();
        let mut sender = Self { connection, new };
        let attributes = FileAttributes { permissions: 0o600, changed_at: (0, 0) };
        let name = FileName::parse(b"a").unwrap();
        let length = sender.new.len() as u64;
        sender.send(&FileSenderMessage::Offer { is_eager: false, length, attributes, name });
        assert_eq!(sender.next(), FileReceiverMessage::HaveOlder);
        sender
    }

    fn send(&mut self, message: &FileSenderMessage) {
        // The receiver may have given up.
        let _ = self.connection.write_all(&message.encode());
        let _ = self.connection.flush();
    }

    fn chunks(&self) -> Vec<FileChunk> {
        let lengths = ChunkLengths::of_file(self.new.len() as u64).unwrap();
        chunks_of(&self.new[..], lengths).map(|chunk| chunk.unwrap().0).collect()
    }

    /// The receiver's next message other than progress.
    fn next(&mut self) -> FileReceiverMessage {
        loop {
            match FileReceiverMessage::read(&mut self.connection).unwrap() {
                FileReceiverMessage::Progress(_) => {}
                message => return message,
            }
        }
    }

    fn failure(&mut self) -> FileTransferFailureReason {
        match self.next() {
            FileReceiverMessage::Failed(failure) => failure.reason,
            message => panic!("{message:?}"),
        }
    }
}

#[test]
fn an_impossible_list_of_chunks_is_refused() {
    let old = random_bytes(1, 2_000_000);
    let receiver = ReceiverWithOlder::new(&old);
    let with = |change: fn(&mut Vec<FileChunk>)| {
        let mut sender = HostileSender::offer(&receiver, old.clone());
        let mut chunks = sender.chunks();
        change(&mut chunks);
        for chunks in chunks.chunks(1000) {
            sender.send(&FileSenderMessage::Chunks(chunks.to_vec()));
        }
        let end = FileSenderMessage::End([0; 32]);
        sender.send(&end);
        assert_eq!(sender.failure(), FileTransferFailureReason::Protocol);
    };
    with(|chunks| chunks[0].len = 0);
    with(|chunks| chunks[0].len = 1000);
    with(|chunks| chunks[0].len = u32::MAX);
    with(|chunks| chunks[0].len = 40_000);
    // More than the file, which is found at its end.
    with(|chunks| {
        let last = chunks.len() - 1;
        chunks[last].len += 1;
    });
    // Less than the file.
    with(|chunks| chunks.truncate(chunks.len() - 1));
    assert!(receiver.file() == old);
    // A message with more chunks than allowed, or none.
    for count in [0_u32, 1025, u32::MAX] {
        let mut sender = HostileSender::offer(&receiver, old.clone());
        let bytes = [&[9][..], &count.to_be_bytes()].concat();
        sender.connection.write_all(&bytes).unwrap();
        assert_eq!(sender.failure(), FileTransferFailureReason::Protocol);
    }
    assert!(receiver.file() == old);
    assert!(!receiver.part().exists());
}

#[test]
fn more_data_than_is_wanted_is_refused() {
    let old = random_bytes(1, 2_000_000);
    let receiver = ReceiverWithOlder::new(&old);
    let mut new = old.clone();
    new[1_000_000] ^= 1;
    let mut sender = HostileSender::offer(&receiver, new);
    let chunks = sender.chunks();
    sender.send(&FileSenderMessage::Chunks(chunks));
    let FileReceiverMessage::WantedChunks(wanted) = sender.next() else { panic!() };
    assert_eq!(wanted.len(), 1);
    sender.send(&FileSenderMessage::Data(200_000));
    sender.connection.write_all(&vec![0; 200_000]).unwrap();
    sender.connection.flush().unwrap();
    assert_eq!(sender.failure(), FileTransferFailureReason::Protocol);
    assert!(receiver.file() == old);
}

/// A list with digests of other chunks, or data that is not of the chunk, makes another file than
/// the one whose digest is stated. Then all data is sent, and its digest decides.
#[test]
fn false_digests_and_data_cannot_replace_the_file() {
    let old = random_bytes(1, 2_000_000);
    let receiver = ReceiverWithOlder::new(&old);
    for is_right_later in [false, true] {
        let mut new = old.clone();
        new[1_000_000] ^= 1;
        let digest = Sha256::digest(&new).into();
        let mut sender = HostileSender::offer(&receiver, new);
        let chunks = sender.chunks();
        sender.send(&FileSenderMessage::Chunks(chunks));
        let FileReceiverMessage::WantedChunks(wanted) = sender.next() else { panic!() };
        let [FileChunkRun { first, count: 1 }] = wanted[..] else { panic!("{wanted:?}") };
        let len = sender.chunks()[first as usize].len as usize;
        sender.send(&FileSenderMessage::Data(len));
        sender.connection.write_all(&vec![0; len]).unwrap();
        sender.send(&FileSenderMessage::End(digest));
        assert_eq!(sender.next(), FileReceiverMessage::Have(0));
        assert!(receiver.file() == old);
        sender.send(&FileSenderMessage::Start { offset: 0, digest: [0; 32] });
        let mut data = sender.new.clone();
        data[7] ^= u8::from(!is_right_later);
        for data in data.chunks(200_000) {
            sender.send(&FileSenderMessage::Data(data.len()));
            sender.connection.write_all(data).unwrap();
        }
        sender.send(&FileSenderMessage::End(digest));
        if is_right_later {
            assert_eq!(sender.next(), FileReceiverMessage::Done);
            assert!(receiver.file() == sender.new);
        } else {
            assert_eq!(sender.failure(), FileTransferFailureReason::Digest);
            assert!(receiver.file() == old);
        }
    }
}

#[test]
fn a_sender_does_not_learn_short_ends_of_an_older_version() {
    let old = random_bytes(1, 1_200_000);
    let lengths = ChunkLengths::of_file(old.len() as u64).unwrap();
    let last = chunks_of(&old[..], lengths).last().unwrap().unwrap().0;
    let old = old[..old.len() - last.len as usize + 10].to_vec();
    let receiver = ReceiverWithOlder::new(&old);
    let mut sender = HostileSender::offer(&receiver, old);
    let chunks = sender.chunks();
    assert_eq!(chunks.last().unwrap().len, 10);
    let last = u32::try_from(chunks.len() - 1).unwrap();
    sender.send(&FileSenderMessage::Chunks(chunks));
    let wanted = vec![FileChunkRun { first: last, count: 1 }];
    assert_eq!(sender.next(), FileReceiverMessage::WantedChunks(wanted));
}

/// Answers an offer of 2 MB with these messages, the second one after the list of chunks. Returns
/// the sender's error.
fn answered(answers: Vec<FileReceiverMessage>) -> FileSendError {
    let from = tempfile::tempdir().unwrap();
    let path = from.path().join("a");
    fs::write(&path, random_bytes(1, 2_000_000)).unwrap();
    let listener = Listener::bind("127.0.0.1:0", &ConnectionOptions::new(security(2, 1))).unwrap();
    let receiving = Receiving { address: listener.local_addr().to_string() };
    thread::spawn(move || {
        while let Ok(mut connection) = listener.accept() {
            let mut listed = 0;
            for (index, answer) in answers.iter().enumerate() {
                if index > 0 {
                    while listed < 2_000_000_u32 {
                        match FileSenderMessage::read(&mut connection).unwrap().unwrap() {
                            FileSenderMessage::Data(len) => {
                                let data = &mut (&mut connection).take(len as u64);
                                io::copy(data, &mut io::sink()).unwrap();
                            }
                            FileSenderMessage::Chunks(chunks) => {
                                listed += chunks.iter().map(|chunk| chunk.len).sum::<u32>();
                            }
                            _ => {}
                        }
                    }
                }
                let _ = connection.write_all(&answer.encode());
                let _ = connection.flush();
            }
            while connection.discard(&mut [0; 4096]).is_ok_and(|count| count > 0) {}
        }
    });
    receiving.send(&path).unwrap_err()
}

#[test]
fn impossible_wishes_of_a_receiver_end_the_transfer() {
    let run = |first, count| FileChunkRun { first, count };
    let twice = vec![FileReceiverMessage::HaveOlder, FileReceiverMessage::HaveOlder];
    let unlisted = vec![FileReceiverMessage::WantedChunks(vec![run(0, 1)])];
    for answers in [twice, unlisted] {
        let error = answered(answers);
        assert!(error.to_string().contains("the receiver"), "{error}");
    }
    for wanted in [
        vec![run(0, 0)],
        vec![run(0, u32::MAX)],
        vec![run(u32::MAX, u32::MAX)],
        vec![run(100_000, 1)],
        vec![run(0, 2), run(1, 1)],
        vec![run(1, 1), run(0, 1)],
    ] {
        let answers =
            vec![FileReceiverMessage::HaveOlder, FileReceiverMessage::WantedChunks(wanted.clone())];
        let error = answered(answers);
        assert!(error.to_string().contains("wants chunks"), "{wanted:?}: {error}");
    }
}
