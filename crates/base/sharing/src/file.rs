//! The share file, which contains one share of a file of any length. This module has no I/O; the
//! layout is in `docs/formats/share.md`.
//!
//! A file is divided into *segments* of [`SEGMENT_LEN`] bytes, the last of which is shorter and may
//! be empty. Each segment is protected by its own [`tamper`] code, and shared together with it. The
//! code also covers the split's parameters and the segment's index. A segment is recognised as the
//! last by its length, which the code covers, too. So an attacker who has read fewer than `k`
//! shares, and changes or forges fewer than `k`, cannot change, swap, drop or append segments, or
//! mix those of two splits, without detection. With more shares an attacker can: there is no key,
//! so `k` forged shares cannot be told from `k` genuine ones.
//!
//! A share file is a [`ShareFileHeader`], followed by its share of every segment. A
//! [`ShareFileEncoder`] or [`ShareFileDecoder`] stores no secret, only the position.

mod header;

pub use header::{
    HEADER_LEN, SEGMENT_LEN, ShareFileHeader, ShareFileHeaderError, SplitId, SplitParameters,
    SplitSelectionError, select_split,
};

use header::{MAGIC, parameters};

use crate::locate::{ShareErrorLocationError, ShareErrorLocator};
use crate::scheme::SharingParameters;
use crate::split::{Joiner, ShareJoinError, ShareSplitError, Splitter};
use crate::tamper;
use random::{RandomError, RandomGenerator};

/// The length of the longest segment with its tamper code, and of each share of it.
pub const PROTECTED_LEN: usize = tamper::OVERHEAD + SEGMENT_LEN;

/// The length of the context of a segment.
const CONTEXT_LEN: usize = MAGIC.len() + 4 + 16 + 8;

/// The context of a segment: what its tamper code covers in addition to its bytes.
fn context(sharing: SharingParameters, id: SplitId, index: u64) -> [u8; CONTEXT_LEN] {
    let mut bytes = [0; CONTEXT_LEN];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&parameters(sharing));
    bytes[12..28].copy_from_slice(&id.0);
    bytes[28..].copy_from_slice(&index.to_be_bytes());
    bytes
}

/// Why a segment could not be encoded.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub enum ShareFileEncodeError {
    /// The buffer has no space for the code, or contains more than a segment.
    #[error("a buffer of {0} bytes holds no segment")]
    WrongLength(usize),
    /// The segment follows one that was shorter, and so the last.
    #[error("a segment after the last")]
    AfterLast,
    /// The buffers for the shares are invalid, or there were no random bytes.
    #[error(transparent)]
    Split(#[from] ShareSplitError),
    /// There were no random bytes.
    #[error(transparent)]
    Random(#[from] RandomError),
}

/// Encodes the segments of a secret as shares, in order.
pub struct ShareFileEncoder {
    splitter: Splitter,
    id: SplitId,
    segments: u64,
    length: u64,
    ended: bool,
}

impl ShareFileEncoder {
    /// Creates an encoder for a new split.
    ///
    /// # Errors
    /// If there are no random bytes for the identifier.
    pub fn new(
        sharing: SharingParameters,
        generator: &mut RandomGenerator,
    ) -> Result<Self, RandomError> {
        let splitter = Splitter::new(sharing);
        Ok(Self { splitter, id: SplitId(generator.array()?), segments: 0, length: 0, ended: false })
    }

    /// Encodes the next segment as shares, in the order of their coordinates, each as long as
    /// `segment`. `segment` begins with [`tamper::OVERHEAD`] bytes of space, which are overwritten,
    /// followed by [`SEGMENT_LEN`] bytes of the secret; only the last segment has fewer.
    ///
    /// # Errors
    /// If a length is wrong, the last segment was encoded already, or there are no random bytes.
    /// The position is then unchanged, and the content of the buffers is useless.
    pub fn encode(
        &mut self,
        segment: &mut [u8],
        shares: &mut [&mut [u8]],
        generator: &mut RandomGenerator,
    ) -> Result<(), ShareFileEncodeError> {
        let len = segment.len();
        if self.ended {
            return Err(ShareFileEncodeError::AfterLast);
        }
        if len > PROTECTED_LEN {
            return Err(ShareFileEncodeError::WrongLength(len));
        }
        let (code, payload) = segment
            .split_first_chunk_mut::<{ tamper::OVERHEAD }>()
            .ok_or(ShareFileEncodeError::WrongLength(len))?;
        let context = context(self.splitter.sharing(), self.id, self.segments);
        tamper::protect_into(code, &[&context, payload], generator)?;
        let added = payload.len();
        self.splitter.split(segment, shares, generator)?;
        self.segments += 1;
        self.length += added as u64;
        self.ended = added < SEGMENT_LEN;
        Ok(())
    }

    /// The parameters of the split, once the last segment, which is not full, is encoded.
    pub fn finish(&self) -> Option<SplitParameters> {
        let (sharing, id, length) = (self.splitter.sharing(), self.id, self.length);
        self.ended.then_some(SplitParameters::new(sharing, id, length))
    }
}

/// Why a segment could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShareFileDecodeError {
    /// A number, a length or a coordinate is wrong, or all segments were decoded already.
    #[error(transparent)]
    Shares(#[from] ShareJoinError),
    /// There are exactly as many shares as are needed, and they were changed.
    #[error(transparent)]
    Tampered(#[from] tamper::TamperedMessage),
    /// There are more shares than are needed, and no subset of them is valid, or two valid ones
    /// differ.
    #[error(transparent)]
    Locate(ShareErrorLocationError),
}

/// Decodes the segments of a secret from shares, in order.
pub struct ShareFileDecoder {
    split: SplitParameters,
    joiner: Joiner,
    locator: ShareErrorLocator,
    index: u64,
}

impl ShareFileDecoder {
    /// Creates a decoder for a split.
    pub fn new(split: SplitParameters) -> Self {
        let (joiner, locator) =
            (Joiner::new(split.sharing()), ShareErrorLocator::new(split.sharing()));
        Self { split, joiner, locator, index: 0 }
    }

    /// The length of each share of the next segment, and of the segment with its code. `None` after
    /// the last segment.
    pub fn next_len(&self) -> Option<usize> {
        let position = self.index.checked_mul(SEGMENT_LEN as u64)?;
        let rest = self.split.length().checked_sub(position)?;
        let payload = usize::try_from(rest).map_or(SEGMENT_LEN, |rest| rest.min(SEGMENT_LEN));
        Some(tamper::OVERHEAD + payload)
    }

    /// The position of the next segment in the secret; after the last segment the length of the
    /// secret.
    pub fn position(&self) -> u64 {
        self.index.saturating_mul(SEGMENT_LEN as u64).min(self.split.length())
    }

    /// Joins and verifies the next segment: [`tamper::OVERHEAD`] bytes of code, followed by bytes
    /// of the secret. `shares[i]` is the share with the coordinate `coordinates[i]`; there must be
    /// at least `k`. Returns which of them are wrong in this segment, in any order. With exactly
    /// `k` shares, none are returned; with more, see [`correct_with`](crate::locate::correct_with)
    /// for when these *coordinates* are right.
    ///
    /// The bytes are those that were split if fewer than `k` of the given shares are changed or
    /// forged, by an attacker who has read fewer than `k`.
    ///
    /// # Errors
    /// If the arguments are inconsistent, too many shares are wrong, or two subsets of them yield
    /// different segments that are both valid. The position is then unchanged, and the content of
    /// `segment` is useless.
    pub fn decode(
        &mut self,
        coordinates: &[u8],
        shares: &[&[u8]],
        segment: &mut [u8],
    ) -> Result<Vec<u8>, ShareFileDecodeError> {
        if self.next_len() != Some(segment.len()) {
            return Err(ShareJoinError::WrongLength.into());
        }
        let sharing = self.split.sharing();
        let context = context(sharing, self.split.id(), self.index);
        let wrong = if shares.len() > usize::from(sharing.threshold()) {
            let accept = |segment: &[u8]| verify(segment, &context).is_ok();
            let found = self.locator.correct_with(coordinates, shares, segment, accept);
            found.map_err(ShareFileDecodeError::Locate)?
        } else {
            self.joiner.join(coordinates, shares, segment)?;
            verify(segment, &context)?;
            Vec::new()
        };
        self.index += 1;
        Ok(wrong)
    }
}

/// Verifies a segment's code, with which it begins.
fn verify(segment: &[u8], context: &[u8]) -> Result<(), tamper::TamperedMessage> {
    let (code, payload) = segment.split_first_chunk().ok_or(tamper::TamperedMessage)?;
    tamper::verify(code, &[context, payload])
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Writes whole share files, as a program would.
    fn encode(sharing: SharingParameters, secret: &[u8]) -> Vec<Vec<u8>> {
        let mut generator = RandomGenerator::seeded().unwrap();
        let mut encoder = ShareFileEncoder::new(sharing, &mut generator).unwrap();
        let mut files = vec![Vec::new(); sharing.shares().into()];
        let mut rest = secret;
        while encoder.finish().is_none() {
            let payload = rest.split_off(..rest.len().min(SEGMENT_LEN)).unwrap();
            let mut segment = [&[0; tamper::OVERHEAD], payload].concat();
            let mut shares = vec![vec![0; segment.len()]; files.len()];
            let mut buffers: Vec<&mut [u8]> = shares.iter_mut().map(Vec::as_mut_slice).collect();
            encoder.encode(&mut segment, &mut buffers, &mut generator).unwrap();
            files.iter_mut().zip(shares).for_each(|(file, share)| file.extend(share));
        }
        let split = encoder.finish().unwrap();
        let headers = split.headers().map(|header| header.encode());
        headers.zip(files).map(|(header, body)| [&header, &body[..]].concat()).collect()
    }

    /// Reads whole share files, as a program would. Also returns the shares that were wrong.
    fn decode(files: &[&[u8]]) -> Result<(Vec<u8>, Vec<u8>), ShareFileDecodeError> {
        let headers: Vec<ShareFileHeader> =
            files.iter().map(|file| ShareFileHeader::parse(file).unwrap()).collect();
        let coordinates: Vec<u8> = headers.iter().map(ShareFileHeader::coordinate).collect();
        let mut decoder = ShareFileDecoder::new(select_split(&headers).unwrap());
        let (mut secret, mut wrong, mut at) = (Vec::new(), Vec::new(), HEADER_LEN);
        while let Some(len) = decoder.next_len() {
            let shares: Option<Vec<&[u8]>> = files.iter().map(|f| f.get(at..at + len)).collect();
            let shares = shares.ok_or(ShareFileDecodeError::Shares(ShareJoinError::WrongLength))?;
            let mut segment = vec![0; len];
            wrong.extend(decoder.decode(&coordinates, &shares, &mut segment)?);
            secret.extend_from_slice(&segment[tamper::OVERHEAD..]);
            at += len;
        }
        Ok((secret, wrong))
    }

    const WHOLE: usize = SEGMENT_LEN;

    #[test]
    fn every_length_comes_back() {
        let sharings =
            [SharingParameters::xor(1), SharingParameters::xor(3), SharingParameters::shamir(1, 2)];
        for sharing in
            sharings.into_iter().chain([SharingParameters::shamir(2, 3)]).map(Result::unwrap)
        {
            for len in [0, 1, 15, WHOLE - 1, WHOLE, WHOLE + 1, 3 * WHOLE] {
                let secret: Vec<u8> = (0..251).cycle().take(len).collect();
                let files = encode(sharing, &secret);
                let enough = usize::from(sharing.threshold());
                for count in enough..=files.len() {
                    let given: Vec<&[u8]> = files.iter().take(count).map(Vec::as_slice).collect();
                    assert_eq!(decode(&given).unwrap(), (secret.clone(), vec![]));
                }
                // One share is as long as the other, and as the documentation says.
                let segments = len / WHOLE + 1;
                assert_eq!(files[0].len(), HEADER_LEN + 32 * segments + len);
                let header = ShareFileHeader::parse(&files[0]).unwrap();
                assert_eq!(header.split().file_len(), Some(files[0].len() as u64));
            }
        }
    }

    #[test]
    fn segments_cannot_be_moved_dropped_or_joined_with_another_splits() {
        let sharing = SharingParameters::shamir(2, 2).unwrap();
        let secret = vec![0; 2 * WHOLE + 9];
        let [first, second] = [(); 2].map(|()| encode(sharing, &secret));
        let cut = |file: &[u8], parts: &[(usize, usize)], length: u64| {
            let mut header = *file.first_chunk::<HEADER_LEN>().unwrap();
            header[29..].copy_from_slice(&length.to_be_bytes());
            let body = &file[HEADER_LEN..];
            let parts = parts.iter().flat_map(|&(start, end)| &body[start..end]);
            header.iter().chain(parts).copied().collect::<Vec<u8>>()
        };
        let (a, b, end) = (PROTECTED_LEN, 2 * PROTECTED_LEN, 2 * PROTECTED_LEN + 32 + 9);
        let len = secret.len() as u64;
        let swapped = [(a, b), (0, a), (b, end)];
        let dropped = [(0, a), (b, end)];
        let doubled = [(0, a), (0, a), (b, end)];
        let shortened = [(0, a), (a, end)];
        for (parts, length) in [
            (&swapped[..], len),
            (&dropped[..], len - WHOLE as u64),
            (&doubled[..], len),
            (&shortened[..], len - 1),
            (&shortened[..], WHOLE as u64 + 9),
            (&shortened[..], 2 * WHOLE as u64),
        ] {
            let files: Vec<Vec<u8>> = first.iter().map(|file| cut(file, parts, length)).collect();
            let files: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
            assert_eq!(
                decode(&files),
                Err(ShareFileDecodeError::Tampered(tamper::TamperedMessage))
            );
        }
        // A share of another split, under this one's header.
        let mixed = [&first[1][..HEADER_LEN], &second[1][HEADER_LEN..]].concat();
        assert_eq!(
            decode(&[&first[0], &mixed]),
            Err(ShareFileDecodeError::Tampered(tamper::TamperedMessage))
        );
    }

    #[test]
    fn nothing_follows_the_last_segment() {
        let mut generator = RandomGenerator::seeded().unwrap();
        let mut encoder =
            ShareFileEncoder::new(SharingParameters::xor(1).unwrap(), &mut generator).unwrap();
        let mut encode = |len: usize| {
            let (mut segment, mut share) = (vec![0; len], vec![0; len]);
            encoder.encode(&mut segment, &mut [&mut share], &mut generator)
        };
        assert!(matches!(encode(31), Err(ShareFileEncodeError::WrongLength(31))));
        assert!(matches!(encode(PROTECTED_LEN + 1), Err(ShareFileEncodeError::WrongLength(_))));
        assert!(encode(PROTECTED_LEN).is_ok());
        assert!(encode(PROTECTED_LEN - 1).is_ok());
        assert!(matches!(encode(32), Err(ShareFileEncodeError::AfterLast)));
    }

    proptest! {
        #[test]
        fn any_change_to_one_of_two_shares_is_noticed(at in HEADER_LEN..269, flip in 1u8..) {
            let mut files = encode(SharingParameters::shamir(2, 3).unwrap(), &[5; 200]);
            files[1][at] ^= flip;
            let noticed = Err(ShareFileDecodeError::Tampered(tamper::TamperedMessage));
            prop_assert_eq!(decode(&[&files[0], &files[1]]), noticed);
            let corrected = Ok((vec![5; 200], vec![2]));
            prop_assert_eq!(decode(&[&files[0], &files[1], &files[2]]), corrected);
        }

        #[test]
        fn any_bytes_are_refused_without_a_panic(
            length in any::<u64>(),
            bodies in vec(vec(any::<u8>(), 0..200), 1..4),
        ) {
            let split = SplitParameters::new(SharingParameters::shamir(2, 3).unwrap(), SplitId([1; 16]), length);
            let mut decoder = ShareFileDecoder::new(split);
            let coordinates: Vec<u8> = (1..).take(bodies.len()).collect();
            let shares: Vec<&[u8]> = bodies.iter().map(Vec::as_slice).collect();
            let mut segment = vec![0; shares[0].len()];
            prop_assert!(decoder.decode(&coordinates, &shares, &mut segment).is_err());
        }
    }
}
