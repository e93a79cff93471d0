use proptest::prelude::*;

use super::cipher::EPOCH_BITS;
use super::*;

const BOTH: [RecordCipher; 2] = [RecordCipher::Aes256Gcm, RecordCipher::ChaCha20Poly1305];

/// What an end reads of a stream that arrives in pieces of these lengths, repeated cyclically, and
/// whether the stream has ended.
fn received(
    mut opener: RecordOpener,
    stream: &[u8],
    pieces: &[usize],
) -> Result<(Vec<u8>, bool), InvalidRecordError> {
    let (mut received, mut rest) = (Vec::new(), stream);
    let mut pieces = pieces.iter().copied().cycle();
    loop {
        match opener.poll()? {
            OpenedRecord::Data => {
                let mut data = [0; 1000];
                let len = opener.read(&mut data);
                received.extend(&data[..len]);
            }
            OpenedRecord::End => return Ok((received, true)),
            OpenedRecord::Incomplete if rest.is_empty() => return Ok((received, false)),
            OpenedRecord::Incomplete => {
                let space = opener.receive_space();
                let count = pieces.next().unwrap_or(1).min(space.len()).min(rest.len());
                assert!(count > 0);
                space[..count].copy_from_slice(&rest[..count]);
                rest = &rest[count..];
                opener.commit_received(count);
            }
        }
    }
}

fn opener(cipher: RecordCipher) -> RecordOpener {
    RecordOpener::new(cipher, &[1; 32])
}

fn seal(sealer: &mut RecordSealer, chunk: &[u8]) -> Vec<u8> {
    let mut record = RecordBuffer::new();
    assert_eq!(record.extend(chunk), chunk.len());
    sealer.seal(&mut record).to_vec()
}

fn sealed(cipher: RecordCipher, chunks: &[&[u8]]) -> Vec<u8> {
    let mut sealer = RecordSealer::new(cipher, &[1; 32]);
    chunks.iter().flat_map(|chunk| seal(&mut sealer, chunk)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_stream_arrives_whole_however_it_is_cut(
        chunks in prop::collection::vec(prop_oneof![1..100_usize, Just(MAX_CHUNK_LEN)], 0..8),
        pieces in prop::collection::vec(prop_oneof![1..100_usize, 1..300_000_usize], 1..8),
        cipher in prop::sample::select(BOTH.to_vec()),
    ) {
        let chunks: Vec<Vec<u8>> =
            chunks.iter().zip(0_u8..).map(|(len, byte)| vec![byte; *len]).collect();
        let mut all: Vec<&[u8]> = chunks.iter().map(|chunk| &chunk[..]).collect();
        all.push(&[]);
        let seen = received(opener(cipher), &sealed(cipher, &all), &pieces);
        prop_assert_eq!(seen, Ok((chunks.concat(), true)));
    }

    #[test]
    fn no_changed_byte_is_delivered(
        at in 0..300_usize,
        bit in 0..8_u8,
        cipher in prop::sample::select(BOTH.to_vec()),
    ) {
        let chunks: [&[u8]; 4] = [&[1; 70], &[2; 70], &[3; 70], &[]];
        let mut stream = sealed(cipher, &chunks);
        let at = at % stream.len();
        stream[at] ^= 1 << bit;
        let before = (at / 88).min(3) * 70;
        // If a length was increased beyond what follows, this is not an error yet.
        if let Ok((data, has_ended)) = received(opener(cipher), &stream, &[10]) {
            prop_assert!(!has_ended);
            prop_assert_eq!(data.len(), before);
        }
    }
}

#[test]
fn records_are_not_repeated_skipped_or_swapped() {
    for cipher in BOTH {
        let one = sealed(cipher, &[&[1; 10]]);
        let both = sealed(cipher, &[&[1; 10], &[2; 10]]);
        let two = &both[one.len()..];
        let seen = |stream: &[u8]| received(opener(cipher), stream, &[7]);
        assert_eq!(seen(&[&one[..], &one].concat()), Err(InvalidRecordError));
        assert_eq!(seen(two), Err(InvalidRecordError));
        assert_eq!(seen(&[two, &one].concat()), Err(InvalidRecordError));
        // A stream that is cut after a record has not ended.
        assert_eq!(seen(&one), Ok((vec![1; 10], false)));
    }
}

#[test]
fn impossible_lengths_are_refused_at_once() {
    for len in 0..16_u16 {
        let seen = received(opener(RecordCipher::Aes256Gcm), &len.to_be_bytes(), &[2]);
        assert_eq!(seen, Err(InvalidRecordError));
    }
}

/// The key changes at both ends, and a record of the earlier epoch is rejected.
#[test]
fn keys_change() {
    for cipher in BOTH {
        let mut sealer = RecordSealer::new(cipher, &[1; 32]);
        let last = (1 << EPOCH_BITS) - 1;
        sealer.skip_to(last);
        let records = [seal(&mut sealer, b"last"), seal(&mut sealer, b"first")];
        let mut at_last = opener(cipher);
        at_last.skip_to(last);
        assert_eq!(received(at_last, &records.concat(), &[9]), Ok((b"lastfirst".to_vec(), false)));
        // The number is of the new epoch, the key of the old one.
        let mut of_old = RecordSealer::new(cipher, &[1; 32]);
        of_old.skip_to(0);
        let mut at_first = opener(cipher);
        at_first.skip_to(last + 1);
        let seen = received(at_first, &seal(&mut of_old, b"first"), &[9]);
        assert_eq!(seen, Err(InvalidRecordError));
    }
}

#[test]
fn other_secrets_and_ciphers_open_nothing() {
    let stream = sealed(RecordCipher::Aes256Gcm, &[b"text"]);
    let other = RecordOpener::new(RecordCipher::Aes256Gcm, &[2; 32]);
    assert_eq!(received(other, &stream, &[100]), Err(InvalidRecordError));
    assert_eq!(
        received(opener(RecordCipher::ChaCha20Poly1305), &stream, &[100]),
        Err(InvalidRecordError)
    );
}

#[test]
fn both_ends_take_the_cipher_that_is_fast_at_both() {
    let [aes, chacha] = BOTH;
    assert_eq!(aes.negotiate(aes), aes);
    for (one, other) in [(aes, chacha), (chacha, aes), (chacha, chacha)] {
        assert_eq!(one.negotiate(other), chacha);
    }
}

#[test]
fn a_record_holds_one_chunk() {
    let mut record = RecordBuffer::new();
    assert_eq!(record.extend(&vec![1; MAX_CHUNK_LEN + 9]), MAX_CHUNK_LEN);
    assert!(record.is_full() && record.extend(&[1]) == 0);
    let mut sealer = RecordSealer::new(RecordCipher::fastest(), &[1; 32]);
    assert_eq!(sealer.seal(&mut record).len(), MAX_RECORD_LEN);
    assert!(record.is_empty());
    record.extend(b"plain");
    assert_eq!(record.take_plaintext(), b"plain");
    assert!(record.is_empty());
}

/// Keys and nonces match the specification, as implemented independently with Python's
/// `cryptography` and HMAC-SHA-256 from its standard library.
#[test]
fn records_are_those_of_another_implementation() {
    let [aes, chacha] = BOTH;
    let expected: &[u8] = b"\x00\x16\x1c\x33\x17\xf3\x15\xa9\xd2\xdc\xf1\xf8\x25\
        \x6c\x2f\xa5\x50\x1b\xf5\x35\x2a\xd6\xda\x3f";
    assert_eq!(sealed(aes, &[b"Sunder"]), expected);
    let expected: &[u8] = b"\x00\x16\x8f\xcb\x5a\x8e\x0d\xad\x5c\xe1\xd0\x90\xff\
        \xa2\x98\x2e\x4f\xb7\xc4\xd2\x63\xe4\xde\xa7";
    assert_eq!(sealed(chacha, &[b"Sunder"]), expected);
}
