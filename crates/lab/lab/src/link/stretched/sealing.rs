//! Frames of a stretched link as encrypted datagrams, pure.
//!
//! `docs/protocols/agent.md` specifies the datagrams. A frame is cut into pieces, wherever the cuts
//! are, so that packets of any length cross a path with any MTU of 1,428 bytes or more.

use std::collections::BTreeMap;

use bytes::Bytes;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use tun::MAX_FRAME_LEN;
use udp::DatagramBatch;

/// The maximum length of a datagram, in bytes. With the headers of IPv4 and UDP it fits paths with
/// an MTU of 1,428 bytes.
const MAX_DATAGRAM_LEN: usize = 1400;

/// The length of the header: the datagram's number, when its frame was due at the sender, its place
/// among the pieces of the frame, and how many there are.
const HEADER_LEN: usize = 18;

/// The length of the authentication code at the end, in bytes.
const TAG_LEN: usize = 16;

/// The length of each piece of a frame except the last, in bytes.
const PIECE_LEN: usize = MAX_DATAGRAM_LEN - HEADER_LEN - TAG_LEN;

/// The maximum number of frames of which the pieces are remembered: those that are incomplete, and
/// those that are complete, so that no datagram counts twice.
const MAX_FRAMES: usize = 1024;

/// The maximum length of the frames that are incomplete, in bytes. The oldest are dropped.
const MAX_INCOMPLETE_LEN: usize = 4 << 20;

/// The key of one direction of a link.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StretchedLinkKey(pub(crate) [u8; 32]);

impl std::fmt::Debug for StretchedLinkKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StretchedLinkKey")
    }
}

impl StretchedLinkKey {
    fn cipher(&self) -> LessSafeKey {
        let key = UnboundKey::new(&AES_256_GCM, &self.0).expect("a key has 32 bytes");
        LessSafeKey::new(key)
    }
}

/// Encrypts the frames of one direction.
#[derive(Debug)]
pub(super) struct FrameSealer {
    cipher: LessSafeKey,
    /// The number of the next datagram.
    next: u64,
}

impl FrameSealer {
    pub(super) fn new(key: &StretchedLinkKey) -> Self {
        Self { cipher: key.cipher(), next: 0 }
    }

    /// Appends the datagrams of a frame to a batch. A frame is at most [`MAX_FRAME_LEN`] long. It
    /// was due to be sent at this time of the sender's clock.
    pub(super) fn seal(&mut self, frame: &[u8], due: u64, batch: &mut DatagramBatch) {
        let pieces = frame.len().div_ceil(PIECE_LEN);
        let count = u8::try_from(pieces).expect("a frame has at most 48 pieces");
        for (index, piece) in (0..count).zip(frame.chunks(PIECE_LEN)) {
            let datagram = batch.reserve(HEADER_LEN + piece.len() + TAG_LEN);
            let (header, rest) = datagram.split_at_mut(HEADER_LEN);
            header[..8].copy_from_slice(&self.next.to_be_bytes());
            header[8..16].copy_from_slice(&due.to_be_bytes());
            header[16..].copy_from_slice(&[index, count]);
            let (bytes, tag) = rest.split_at_mut(piece.len());
            bytes.copy_from_slice(piece);
            let (nonce, header) = (nonce(self.next), Aad::from(&*header));
            let sealed = self.cipher.seal_in_place_separate_tag(nonce, header, bytes);
            tag.copy_from_slice(sealed.expect("a piece is short").as_ref());
            self.next += 1;
        }
    }
}

/// Decrypts the datagrams of one direction and joins the pieces of frames.
#[derive(Debug)]
pub(super) struct FrameOpener {
    cipher: LessSafeKey,
    /// The frames by the number of their first datagram.
    frames: BTreeMap<u64, FramePieces>,
    /// Datagrams of frames before this number are too late.
    oldest: u64,
    /// The number of the datagram that was the first to arrive.
    first: Option<u64>,
    /// One more than the greatest number of a datagram.
    end: u64,
    /// How many datagrams have arrived.
    arrived: u64,
    /// Memory for a datagram.
    scratch: Vec<u8>,
    /// The length of the frames that are incomplete.
    incomplete_len: usize,
}

/// The pieces of a frame.
#[derive(Debug)]
struct FramePieces {
    count: u8,
    /// A bit for each piece that has arrived.
    arrived: u64,
    /// Empty if the frame is complete.
    bytes: Vec<u8>,
    len: usize,
}

impl FrameOpener {
    pub(super) fn new(key: &StretchedLinkKey) -> Self {
        Self {
            cipher: key.cipher(),
            frames: BTreeMap::new(),
            oldest: 0,
            first: None,
            end: 0,
            arrived: 0,
            scratch: Vec::new(),
            incomplete_len: 0,
        }
    }

    /// Adds a datagram. Returns the frame that it completes, and when that was due at the sender,
    /// by the sender's clock. What was not sealed with the same key, or was here before, changes
    /// nothing.
    pub(super) fn open(&mut self, datagram: &[u8]) -> Option<(Bytes, u64)> {
        let (header, rest) = datagram.split_first_chunk::<HEADER_LEN>()?;
        let number = u64::from_be_bytes(*header.first_chunk::<8>()?);
        let due = u64::from_be_bytes(*header[8..].first_chunk::<8>()?);
        let [index, count] = *header.last_chunk::<2>()?;
        let max_count = MAX_FRAME_LEN.div_ceil(PIECE_LEN);
        let is_possible = index < count
            && usize::from(count) <= max_count
            && rest.len() > TAG_LEN
            && rest.len() <= PIECE_LEN + TAG_LEN
            && (index + 1 == count || rest.len() == PIECE_LEN + TAG_LEN);
        let first = number.checked_sub(index.into())?;
        if !is_possible || first < self.oldest {
            return None;
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(rest);
        let header = Aad::from(header);
        let piece = self.cipher.open_in_place(nonce(number), header, &mut self.scratch).ok()?;
        // It is genuine: from here on, the state changes.
        let max_len = usize::from(count) * PIECE_LEN;
        let frame = self.frames.entry(first).or_insert_with(|| {
            self.incomplete_len += max_len;
            FramePieces { count, arrived: 0, bytes: vec![0; max_len], len: 0 }
        });
        let bit = 1 << index;
        if frame.count != count || frame.arrived & bit != 0 {
            return None;
        }
        frame.arrived |= bit;
        let place = usize::from(index) * PIECE_LEN;
        frame.bytes[place..place + piece.len()].copy_from_slice(piece);
        if index + 1 == count {
            frame.len = place + piece.len();
        }
        self.arrived += 1;
        self.first.get_or_insert(number);
        self.end = self.end.max(number.saturating_add(1));
        let is_complete = frame.arrived.count_ones() == u32::from(count);
        let complete = is_complete.then(|| {
            let mut bytes = std::mem::take(&mut frame.bytes);
            self.incomplete_len -= bytes.len();
            bytes.truncate(frame.len);
            (Bytes::from(bytes), due)
        });
        while (self.frames.len() > MAX_FRAMES || self.incomplete_len > MAX_INCOMPLETE_LEN)
            && let Some((oldest, frame)) = self.frames.pop_first()
        {
            self.incomplete_len -= frame.bytes.len();
            self.oldest = oldest + 1;
        }
        complete
    }

    /// Whether a datagram has arrived.
    pub(super) fn has_any(&self) -> bool {
        self.arrived > 0
    }

    /// How many of the datagrams from the first to the last that have arrived have not.
    pub(super) fn lost(&self) -> u64 {
        (self.end - self.first.unwrap_or(self.end)).saturating_sub(self.arrived)
    }
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: StretchedLinkKey = StretchedLinkKey([7; 32]);

    const DUE: u64 = 1 << 40;

    fn frame(len: usize, seed: u64) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(seed);
        std::iter::repeat_with(|| random.u8(..)).take(len).collect()
    }

    fn datagrams(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let (mut sealer, mut batch) = (FrameSealer::new(&KEY), DatagramBatch::default());
        for frame in frames {
            sealer.seal(frame, DUE, &mut batch);
        }
        let runs = batch.runs();
        runs.flat_map(|(bytes, len)| bytes.chunks(len).map(<[u8]>::to_vec)).collect()
    }

    proptest! {
        #[test]
        fn sealed_frames_arrive_once_in_any_order(
            lens in proptest::collection::vec(1..=MAX_FRAME_LEN, 1..5),
            seed in any::<u64>(),
        ) {
            let frames: Vec<Vec<u8>> = lens.iter().map(|len| frame(*len, seed)).collect();
            let mut datagrams = datagrams(&frames);
            // Each twice.
            datagrams.extend(datagrams.clone());
            fastrand::Rng::with_seed(seed).shuffle(&mut datagrams);
            let mut opener = FrameOpener::new(&KEY);
            let opened = datagrams.iter().filter_map(|it| opener.open(it));
            let mut opened: Vec<(Vec<u8>, u64)> =
                opened.map(|(frame, due)| (frame.to_vec(), due)).collect();
            opened.sort();
            let mut frames: Vec<(Vec<u8>, u64)> = frames.into_iter().map(|it| (it, DUE)).collect();
            frames.sort();
            prop_assert_eq!(opened, frames);
            prop_assert_eq!(opener.lost(), 0);
        }

        #[test]
        fn bytes_that_were_not_sealed_change_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..1500)) {
            let mut opener = FrameOpener::new(&KEY);
            prop_assert_eq!(opener.open(&bytes), None);
            prop_assert!(opener.frames.is_empty() && opener.end == 0);
        }
    }

    #[test]
    fn first_pieces_alone_do_not_fill_the_memory() {
        let frames: Vec<Vec<u8>> = (0..500).map(|i| frame(MAX_FRAME_LEN, i)).collect();
        let mut opener = FrameOpener::new(&KEY);
        for datagram in datagrams(&frames) {
            if datagram[HEADER_LEN - 2] == 0 {
                opener.open(&datagram);
            }
            let held: usize = opener.frames.values().map(|frame| frame.bytes.len()).sum();
            assert_eq!(held, opener.incomplete_len);
            assert!(held <= MAX_INCOMPLETE_LEN);
        }
        assert!(opener.frames.len() > 50);
    }

    #[test]
    fn a_changed_datagram_of_a_link_is_dropped_at_every_byte() {
        let [datagram] = <[Vec<u8>; 1]>::try_from(datagrams(&[frame(60, 1)])).unwrap();
        let mut opener = FrameOpener::new(&KEY);
        for i in 0..datagram.len() {
            let mut changed = datagram.clone();
            changed[i] ^= 1;
            assert_eq!(opener.open(&changed), None, "{i}");
            assert_eq!(opener.open(&datagram[..i]), None, "{i}");
        }
        assert!(opener.frames.is_empty());
        assert!(FrameOpener::new(&StretchedLinkKey([8; 32])).open(&datagram).is_none());
        assert_eq!(opener.open(&datagram).unwrap(), (frame(60, 1).into(), DUE));
        // A replay.
        assert_eq!(opener.open(&datagram), None);
    }

    #[test]
    fn lost_datagrams_of_a_link_are_counted_and_old_frames_forgotten() {
        let frames: Vec<Vec<u8>> = (0..3000).map(|i| frame(2000, i)).collect();
        let datagrams = datagrams(&frames);
        assert_eq!(datagrams.len(), 6000);
        let mut opener = FrameOpener::new(&KEY);
        // The second piece of each third frame is missing.
        let kept = datagrams.iter().enumerate().filter(|(i, _)| i % 6 != 1);
        let opened = kept.filter_map(|(_, datagram)| opener.open(datagram)).count();
        assert_eq!(opened, 2000);
        assert_eq!(opener.lost(), 1000);
        assert!(opener.frames.len() <= MAX_FRAMES);
        // Too late, and a replay of what is forgotten.
        assert_eq!(opener.open(&datagrams[1]), None);
        assert_eq!(opener.open(&datagrams[2]), None);
        assert_eq!(opener.lost(), 1000);
    }
}
