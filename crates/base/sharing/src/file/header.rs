//! The header of a share file, and the selection of a split from the headers of several files.

use std::fmt;

use base16ct::HexDisplay;

use crate::scheme::{SecretSharingScheme, SharingParameters, SharingParametersError};
use crate::tamper;

/// The number of bytes of the secret in every segment except the last, which has fewer.
pub const SEGMENT_LEN: usize = 1 << 16;

/// The length of a share file's header, in bytes.
pub const HEADER_LEN: usize = 37;

/// The first bytes of a share file: a byte that is not text, and both kinds of line ends. So if a
/// transfer treats the file as text, it already damages these bytes.
pub(super) const MAGIC: [u8; 8] = *b"\x8BSND\r\n\x1A\n";

/// The version of the format.
const VERSION: u8 = 1;

/// The random, unique identifier of a split. It is displayed as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SplitId(pub(super) [u8; 16]);

impl SplitId {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for SplitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", HexDisplay(&self.0))
    }
}

/// The parameters that all shares of a split have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SplitParameters {
    sharing: SharingParameters,
    id: SplitId,
    length: u64,
}

impl SplitParameters {
    /// The parameters of a split of a secret of this length.
    pub(super) fn new(sharing: SharingParameters, id: SplitId, length: u64) -> Self {
        Self { sharing, id, length }
    }

    /// The scheme and its numbers.
    pub fn sharing(&self) -> SharingParameters {
        self.sharing
    }

    /// The identifier.
    pub fn id(&self) -> SplitId {
        self.id
    }

    /// The length of the secret, in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The length of each share file, in bytes; `None` if that is more than `u64` holds.
    pub fn file_len(&self) -> Option<u64> {
        let codes = self.segments().checked_mul(tamper::OVERHEAD as u64)?;
        codes.checked_add(self.length)?.checked_add(HEADER_LEN as u64)
    }

    /// The number of segments. The last one is shorter than the others, and may be empty.
    pub fn segments(&self) -> u64 {
        self.length / SEGMENT_LEN as u64 + 1
    }

    /// The headers of all its shares, in the order of their coordinates `1..=m`.
    pub fn headers(self) -> impl Iterator<Item = ShareFileHeader> {
        (1..=self.sharing.shares()).map(move |x| ShareFileHeader { split: self, x })
    }

    /// The header of the share with coordinate `x`, or `None` if `x` is not in `1..=m`.
    fn header(self, x: u8) -> Option<ShareFileHeader> {
        (1..=self.sharing.shares()).contains(&x).then_some(ShareFileHeader { split: self, x })
    }
}

/// The header of a share file: the parameters of the split, and the coordinate of the share. Every
/// value of this type is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShareFileHeader {
    split: SplitParameters,
    x: u8,
}

/// Why bytes are not a valid header of a share file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShareFileHeaderError {
    /// There are fewer bytes than a header has.
    #[error("too short for a share file")]
    TooShort,
    /// The first bytes are wrong.
    #[error("not a share file")]
    BadMagic,
    /// The version is not supported.
    #[error("unknown version {0} of the format")]
    Version(u8),
    /// The scheme is not supported.
    #[error("unknown scheme {0}")]
    Scheme(u8),
    /// The numbers are not valid parameters of a sharing.
    #[error("not a valid header: {0}")]
    Sharing(#[from] SharingParametersError),
    /// The split has no share with this coordinate.
    #[error("not a valid header: share {x} of {m}")]
    Coordinate {
        /// The coordinate in the header.
        x: u8,
        /// The number of shares.
        m: u8,
    },
}

impl ShareFileHeader {
    /// The parameters that this share has in common with the others.
    pub fn split(&self) -> SplitParameters {
        self.split
    }

    /// The coordinate of the share, within `1..=m`.
    pub fn coordinate(&self) -> u8 {
        self.x
    }

    /// Encodes the header.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let SplitParameters { sharing, id, length } = self.split;
        let mut bytes = [0; HEADER_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&parameters(sharing));
        bytes[12] = self.x;
        bytes[13..29].copy_from_slice(&id.0);
        bytes[29..].copy_from_slice(&length.to_be_bytes());
        bytes
    }

    /// Parses a header from the beginning of a file, of which [`HEADER_LEN`] bytes suffice.
    ///
    /// # Errors
    /// If that is not a valid header of a share file.
    pub fn parse(bytes: &[u8]) -> Result<Self, ShareFileHeaderError> {
        let bytes = bytes.first_chunk::<HEADER_LEN>().ok_or(ShareFileHeaderError::TooShort)?;
        let [version, scheme, k, m, x] = field(bytes, 8);
        let id = SplitId(field(bytes, 13));
        let length = u64::from_be_bytes(field(bytes, 29));
        if field(bytes, 0) != MAGIC {
            return Err(ShareFileHeaderError::BadMagic);
        }
        if version != VERSION {
            return Err(ShareFileHeaderError::Version(version));
        }
        let sharing = SharingParameters::new(
            scheme_of(scheme).ok_or(ShareFileHeaderError::Scheme(scheme))?,
            k,
            m,
        )?;
        SplitParameters { sharing, id, length }
            .header(x)
            .ok_or(ShareFileHeaderError::Coordinate { x, m })
    }
}

/// The `N` bytes of a header from `start` on.
fn field<const N: usize>(bytes: &[u8; HEADER_LEN], start: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[start + i])
}

/// Version, scheme, threshold and number of shares, as in the header.
pub(super) fn parameters(sharing: SharingParameters) -> [u8; 4] {
    let scheme = match sharing.scheme() {
        SecretSharingScheme::Xor => 1,
        SecretSharingScheme::Shamir => 2,
    };
    [VERSION, scheme, sharing.threshold(), sharing.shares()]
}

/// The scheme with this number, if there is one.
fn scheme_of(number: u8) -> Option<SecretSharingScheme> {
    match number {
        1 => Some(SecretSharingScheme::Xor),
        2 => Some(SecretSharingScheme::Shamir),
        _ => None,
    }
}

/// Why no split can be selected from some headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitSelectionError {
    /// There are no headers.
    #[error("there is no share")]
    NoShares,
    /// All are of the same split, but it needs more shares.
    #[error("{found} shares, where {needed} are needed")]
    TooFew {
        /// The threshold.
        needed: usize,
        /// The number of shares.
        found: usize,
    },
    /// Two headers are of the same share of the same split.
    #[error("two say that they are share {0}")]
    Duplicate(u8),
    /// They are of different splits, and either no split has enough shares, or there are so many
    /// shares of other splits that those might be the genuine ones.
    #[error("the shares are of different splits")]
    MixedSplits {
        /// The split to which more than half of them belong, if there are fewer others than its
        /// threshold.
        majority: Option<SplitParameters>,
    },
}

/// Selects the split to join from the headers of all available share files, some of which may be of
/// another split, or changed.
///
/// It is the split that has at least as many shares as the *largest* threshold in any header, if
/// there are fewer other shares than its own threshold. So if fewer headers than the genuine
/// split's threshold are changed or forged, and at least one genuine header is present, either the
/// genuine split is selected, or none. If as many as that threshold are forged, a forged split may
/// be selected.
///
/// # Errors
/// If no split has enough shares, too many shares are of other splits, or a share of the split is
/// present twice.
pub fn select_split(headers: &[ShareFileHeader]) -> Result<SplitParameters, SplitSelectionError> {
    let needed = headers.iter().map(|header| usize::from(header.split.sharing.threshold())).max();
    let needed = needed.ok_or(SplitSelectionError::NoShares)?;
    let size = |split| headers.iter().filter(|header| header.split == split).count();
    // Of equally large splits any can be taken: either none has enough shares, or the others are
    // too many.
    let largest = headers.iter().map(|header| header.split).max_by_key(|&split| size(split));
    let split = largest.ok_or(SplitSelectionError::NoShares)?;
    let found = size(split);

    if found == headers.len() {
        reject_duplicates(headers, split)?;
        return if found < needed {
            Err(SplitSelectionError::TooFew { needed, found })
        } else {
            Ok(split)
        };
    }
    let many_others = headers.len() - found >= usize::from(split.sharing.threshold());
    if found < needed || many_others {
        let majority = (2 * found > headers.len() && !many_others).then_some(split);
        return Err(SplitSelectionError::MixedSplits { majority });
    }
    reject_duplicates(headers, split)?;
    Ok(split)
}

/// Rejects two headers of `split` with the same coordinate.
fn reject_duplicates(
    headers: &[ShareFileHeader],
    split: SplitParameters,
) -> Result<(), SplitSelectionError> {
    let mut seen = [false; 256];
    for header in headers.iter().filter(|header| header.split == split) {
        if std::mem::replace(&mut seen[usize::from(header.x)], true) {
            return Err(SplitSelectionError::Duplicate(header.x));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn split_of(k: u8, m: u8, id: u8) -> SplitParameters {
        SplitParameters {
            sharing: SharingParameters::shamir(k, m).unwrap(),
            id: SplitId([id; 16]),
            length: 5,
        }
    }

    fn headers(split: SplitParameters, coordinates: &[u8]) -> Vec<ShareFileHeader> {
        coordinates.iter().map(|&x| split.header(x).unwrap()).collect()
    }

    #[test]
    fn header_has_the_documented_layout() {
        let expected = [
            &[0x8B, 0x53, 0x4E, 0x44, 0x0D, 0x0A, 0x1A, 0x0A][..],
            &[1, 2, 2, 3, 3],
            &[7; 16],
            &[0, 0, 0, 0, 0, 0, 0, 5],
        ];
        assert_eq!(split_of(2, 3, 7).header(3).unwrap().encode(), expected.concat()[..]);
    }

    #[test]
    fn bad_headers_have_distinct_errors() {
        let good = split_of(2, 3, 7).header(1).unwrap().encode();
        let with = |at: usize, byte| {
            let mut bytes = good;
            bytes[at] = byte;
            ShareFileHeader::parse(&bytes).unwrap_err()
        };
        assert_eq!(ShareFileHeader::parse(&good[..36]), Err(ShareFileHeaderError::TooShort));
        assert_eq!(with(4, b'\n'), ShareFileHeaderError::BadMagic);
        assert_eq!(with(8, 2), ShareFileHeaderError::Version(2));
        assert_eq!(with(9, 3), ShareFileHeaderError::Scheme(3));
        assert_eq!(
            with(9, 1),
            ShareFileHeaderError::Sharing(SharingParametersError::XorNeedsAll { k: 2, m: 3 })
        );
        assert_eq!(
            with(10, 0),
            ShareFileHeaderError::Sharing(SharingParametersError::ZeroThreshold)
        );
        assert_eq!(with(12, 0), ShareFileHeaderError::Coordinate { x: 0, m: 3 });
        assert_eq!(with(12, 4), ShareFileHeaderError::Coordinate { x: 4, m: 3 });
    }

    #[test]
    fn the_split_to_join_is_the_one_with_enough() {
        let (two, other, five) = (split_of(2, 3, 1), split_of(2, 3, 2), split_of(5, 9, 3));
        let one = split_of(1, 3, 4);
        let given = |groups: &[(SplitParameters, &[u8])]| {
            select_split(
                &groups.iter().flat_map(|&(split, xs)| headers(split, xs)).collect::<Vec<_>>(),
            )
        };
        let mixed = |majority| Err(SplitSelectionError::MixedSplits { majority });
        assert_eq!(given(&[]), Err(SplitSelectionError::NoShares));
        assert_eq!(given(&[(two, &[3])]), Err(SplitSelectionError::TooFew { needed: 2, found: 1 }));
        assert_eq!(given(&[(two, &[3, 1])]), Ok(two));
        assert_eq!(given(&[(two, &[3, 3])]), Err(SplitSelectionError::Duplicate(3)));
        assert_eq!(given(&[(two, &[1]), (other, &[2])]), mixed(None));
        assert_eq!(given(&[(two, &[1, 3]), (other, &[2])]), Ok(two));
        assert_eq!(given(&[(other, &[2]), (two, &[1, 3])]), Ok(two));
        assert_eq!(given(&[(two, &[1, 2]), (other, &[2, 3])]), mixed(None));
        assert_eq!(given(&[(two, &[1, 2]), (five, &[3])]), mixed(Some(two)));
        // If there are as many others as a threshold, they might be the genuine ones.
        assert_eq!(given(&[(two, &[1, 2, 3]), (other, &[1]), (one, &[2])]), mixed(None));
    }

    #[test]
    fn fewer_changed_headers_than_the_threshold_are_never_believed() {
        let honest = split_of(4, 6, 1);
        // An attacker with three shares claims a threshold of at most three.
        for k in 1..=3 {
            for true_shares in 1..=3 {
                let forged = headers(split_of(k, 6, 9), &[4, 5, 6]);
                let shares: Vec<u8> = (1..=true_shares).collect();
                let all = [headers(honest, &shares), forged].concat();
                assert!(select_split(&all).is_err());
            }
        }
    }

    proptest! {
        #[test]
        fn what_parses_is_what_was_written(bytes in vec(any::<u8>(), 0..80), k in 0u8..4) {
            let valid = [&MAGIC[..], &[VERSION, 2, k, 3], &bytes].concat();
            for bytes in [&bytes, &valid] {
                if let Ok(header) = ShareFileHeader::parse(bytes) {
                    prop_assert_eq!(&header.encode()[..], &bytes[..HEADER_LEN]);
                }
            }
        }
    }
}
