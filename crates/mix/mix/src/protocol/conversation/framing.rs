//! The framing of a message in a stream, and the digests of streams.

use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::protocol::content::{ConversationDigest, DIGEST_LEN, MAX_TEXT_LEN};

/// The length of a message's header: its stamp, and a digest of stamp and text.
const HEAD_LEN: usize = 8 + DIGEST_LEN;
/// The maximum length of a message with its header, in bytes.
pub(super) const MAX_FRAMED_LEN: usize = HEAD_LEN + MAX_TEXT_LEN;

/// The message's bytes in a stream: stamp, digest, text. A receiver uses the stamp to recognise the
/// message in another stream, and the digest to check that it is complete.
pub(super) fn frame(stamp: u64, text: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut framed = Zeroizing::new(Vec::with_capacity(HEAD_LEN + text.len()));
    framed.extend_from_slice(&stamp.to_be_bytes());
    framed.extend_from_slice(&digest_of(b"sunder mix message 2", stamp.to_be_bytes(), text));
    framed.extend_from_slice(text);
    framed
}

/// A complete message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FramedMessage<'a> {
    pub(super) stamp: u64,
    /// The digest of stamp and text.
    pub(super) digest: ConversationDigest,
    pub(super) text: &'a [u8],
}

/// The parts of a message; `None` if it is not complete.
pub(super) fn parse(framed: &[u8]) -> Option<FramedMessage<'_>> {
    let (stamp, rest) = framed.split_first_chunk()?;
    let (digest, text) = rest.split_first_chunk::<DIGEST_LEN>()?;
    let is_whole = *digest == digest_of(b"sunder mix message 2", *stamp, text);
    is_whole.then_some(FramedMessage { stamp: u64::from_be_bytes(*stamp), digest: *digest, text })
}

/// The text of a message that [`frame`] returned.
pub(super) fn text_of(framed: &[u8]) -> &[u8] {
    &framed[HEAD_LEN..]
}

/// The digest of a stream without fragments.
pub(super) fn begin(stream: u64) -> ConversationDigest {
    digest_of(b"sunder mix stream 2", stream.to_be_bytes(), &[])
}

/// The digest of a stream after one more fragment.
pub(super) fn chain(before: ConversationDigest, last: bool, fragment: &[u8]) -> ConversationDigest {
    let kind: &[u8] = if last { b"sunder mix last 2" } else { b"sunder mix part 2" };
    digest_of(kind, before, fragment)
}

fn digest_of(label: &[u8], head: [u8; 8], text: &[u8]) -> ConversationDigest {
    let all = Sha256::new().chain_update(label).chain_update(head).chain_update(text).finalize();
    *all.first_chunk().expect("a SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_messages_are_rejected() {
        let framed = frame(7, b"at eight");
        let parsed = parse(&framed).unwrap();
        assert_eq!((parsed.stamp, parsed.text), (7, &b"at eight"[..]));
        assert_eq!(text_of(&framed), b"at eight");
        assert!((0..framed.len()).all(|len| parse(&framed[..len]).is_none()));
        for at in 0..framed.len() {
            let mut changed = framed.clone();
            changed[at] ^= 1;
            assert_eq!(parse(&changed), None);
        }
    }

    #[test]
    fn stream_digests_are_distinct() {
        let of = |stream, parts: &[(bool, &[u8])]| {
            parts.iter().fold(begin(stream), |before, (last, text)| chain(before, *last, text))
        };
        let all = [
            of(1, &[]),
            of(2, &[]),
            of(1, &[(false, b"a"), (true, b"b")]),
            of(1, &[(true, b"a"), (true, b"b")]),
            of(1, &[(true, b"ab")]),
            of(1, &[(true, b"ab"), (true, b"")]),
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
    }
}
