//! The file that the ceremony writes for one server: `docs/formats/quorum.md`.

use std::sync::Arc;

use encoding::{FieldError, FieldReader, FieldWrite as _};
use keys::RsaPublicKey;
use random::{RandomError, RandomGenerator};
use rsa_arithmetic::DealerKey;
use rsa_arithmetic::key::GroupPublicKey;
use rsa_arithmetic::modulus::RsaModulus;
use threshold_rsa::RsaDealingError;
use zeroize::Zeroizing;

use crate::protocol::combination::{Label, ServerIndex};
use crate::protocol::group::{GroupHeader, GroupHeaderKind, GroupKeyKind, QuorumGroup};
use crate::protocol::key_sharing::{KeySharing, KeySigner, largest_group};
use crate::protocol::refresh::ShareWitnesses;
use crate::protocol::server::EncodedShareList;
use crate::protocol::share::ShareRange;
use crate::protocol::unix_seconds::UnixSeconds;
use crate::protocol::voting::VotingSecret;
use crate::protocol::wire::{MalformedEncoding, QuorumFields as _, Sha256Digest};

/// The first bytes of a share file.
const MAGIC: [u8; 16] = *b"SNDR-QUORUM-SHR\0";

/// The version of the format.
const VERSION: u8 = 1;

/// The largest length of a share file, in bytes. With f = 4 and 4096 bits, a file has 630,000
/// bytes.
pub(crate) const MAX_SHARE_FILE_LEN: u64 = 1 << 20;

/// The key material that the ceremony writes for one server.
pub struct QuorumShareFile {
    /// The group's key.
    pub key: GroupPublicKey,
    /// The header of the first epoch.
    pub header: GroupHeader,
    /// The witnesses of all combinatorial shares, or the sharing by a polynomial, encoded.
    pub witnesses: Vec<u8>,
    /// The server.
    pub server: ServerIndex,
    /// All combinatorial shares that this server must hold, or its row of a polynomial. Secret.
    pub shares: EncodedShareList,
    /// Its voting key for the first epoch. Secret.
    pub voting: VotingSecret,
}

/// Why bytes are not a share file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuorumShareFileError {
    /// It is malformed.
    #[error(transparent)]
    Malformed(#[from] MalformedEncoding),
    /// It is damaged.
    #[error("it is damaged: its last 32 bytes are not the SHA-256 of those before")]
    Damaged,
    /// A share does not match its witness.
    #[error("share {0} is not the one that its witness belongs to")]
    Share(Label),
    /// The row is not that of the server.
    #[error("its row is not that of the server in the sharing")]
    Row,
}

impl From<FieldError> for QuorumShareFileError {
    fn from(error: FieldError) -> Self {
        Self::Malformed(error.into())
    }
}

impl QuorumShareFile {
    /// Splits a key into combinatorial shares, and returns a file for each server of the first
    /// group, whose epoch begins at `time`.
    ///
    /// # Errors
    /// If the operating system gives no random bytes.
    pub fn deal(
        key: &DealerKey,
        group: &QuorumGroup,
        time: UnixSeconds,
        generator: &mut RandomGenerator,
    ) -> Result<Vec<Self>, RandomError> {
        let combination = group.combination();
        let range = ShareRange::new(key.group().modulus().bits());
        let split = range.split(key.private_exponent(), combination, generator)?;
        let powers = key.group().powers_of_g(&[range.bits()], combination.label_count());
        let elements = combination.labels().map(|label| powers.pow(&split.share(label))).collect();
        let witnesses = ShareWitnesses::new(elements);
        let share = |label| (label, split.share(label).to_be_bytes());
        let shares = combination
            .servers()
            .map(|server| combination.labels_of(server).map(share).collect())
            .collect();
        let secrets = voting_secrets(group, generator)?;
        let keys = secrets.iter().map(|secret| Some(secret.public())).collect();
        let header = GroupHeader::first(group.clone(), keys, witnesses.digest(), Some(time));
        Ok(files(key.group(), &header, &witnesses.to_bytes(), shares, secrets))
    }

    /// Shares a key by a polynomial, and returns a file for each server of the first group, whose
    /// epoch begins at `time`. The key can move to groups of all sizes.
    ///
    /// # Errors
    /// If the operating system gives no random bytes.
    ///
    /// # Panics
    /// Never: no group is larger than the largest one.
    pub fn deal_polynomial(
        key: &DealerKey,
        group: &QuorumGroup,
        time: UnixSeconds,
        generator: &mut RandomGenerator,
    ) -> Result<Vec<Self>, RandomError> {
        let dealt = threshold_rsa::deal(key, group.size(), largest_group(), generator);
        let dealt = dealt.map_err(|error| match error {
            RsaDealingError::Random(error) => error,
            RsaDealingError::Size => unreachable!("no group is larger than the largest one"),
        })?;
        let sharing = KeySharing::Rsa(Arc::new(dealt[0].sharing().clone()));
        let rows = dealt.iter().map(|share| vec![(Label(0), share.to_bytes())]).collect();
        let secrets = voting_secrets(group, generator)?;
        let keys = secrets.iter().map(|secret| Some(secret.public())).collect();
        let header = GroupHeader {
            key: GroupKeyKind::RsaPolynomial,
            ..GroupHeader::first(group.clone(), keys, sharing.digest(), Some(time))
        };
        Ok(files(key.group(), &header, &sharing.to_bytes(), rows, secrets))
    }

    /// The bytes of the file.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut out = Zeroizing::new(Vec::with_capacity(self.encoded_len()));
        out.extend(MAGIC);
        out.extend([VERSION, self.server.0]);
        out.put_counted(&self.key.modulus().to_be_bytes());
        out.put_counted(&self.header.to_bytes());
        out.put_counted(&self.witnesses);
        out.put_count(self.shares.len());
        for (label, share) in &self.shares {
            out.put_u16(label.0);
            out.extend_from_slice(share);
        }
        out.extend_from_slice(self.voting.to_bytes());
        let digest = Sha256Digest::of(&[&out]);
        out.extend(digest.0);
        out
    }

    /// An upper bound on the length of the file, so that the buffer, which is secret, is never
    /// moved.
    fn encoded_len(&self) -> usize {
        let share_len = self.shares.iter().map(|(_, share)| 2 + share.len());
        let public = self.key.modulus().byte_len() + self.witnesses.len();
        let header = self.header.to_bytes().len();
        160 + public + header + share_len.sum::<usize>()
    }

    /// Parses a file and checks all of its content: the header and the shares match the witnesses
    /// or the sharing, and the server has all shares that it must hold.
    ///
    /// # Errors
    /// If the bytes are not a valid file.
    pub fn parse(bytes: &[u8]) -> Result<Self, QuorumShareFileError> {
        let (content, digest) = bytes
            .split_last_chunk::<32>()
            .ok_or(MalformedEncoding("too short for a share file"))?;
        if !content.starts_with(&MAGIC) {
            return Err(MalformedEncoding("not a share file of a quorum").into());
        }
        if Sha256Digest::of(&[content]).0 != *digest {
            return Err(QuorumShareFileError::Damaged);
        }
        let mut reader = FieldReader::new(&content[MAGIC.len()..]);
        if reader.u8()? != VERSION {
            return Err(MalformedEncoding("of a version that this program does not know").into());
        }
        let server = reader.server()?;
        let modulus = RsaModulus::from_be_bytes(reader.counted()?)
            .map_err(|_| MalformedEncoding("its modulus is not one of a key"))?;
        let header = GroupHeader::parse(reader.counted()?)?;
        let is_first = header.kind == GroupHeaderKind::Epoch && header.run == 0;
        if !is_first || !header.is_next(None) || header.group.member(server).is_none() {
            return Err(MalformedEncoding("its header is not that of a first epoch").into());
        }
        let witnesses = reader.counted()?.to_vec();
        let count = reader.u32()?;
        let content = if header.key == GroupKeyKind::RsaPolynomial {
            read_row(&modulus, &header, &witnesses, (server, count), &mut reader)
        } else {
            read_combinatorial(modulus, &header, &witnesses, (server, count), &mut reader)
        };
        let (key, shares) = content?;
        let voting = VotingSecret::from_bytes(Zeroizing::new(reader.take()?));
        if header.voting.get(usize::from(server.0)) != Some(&Some(voting.public())) {
            return Err(MalformedEncoding("its voting key is not the one of its header").into());
        }
        reader.finish()?;
        Ok(Self { key, header, witnesses, server, shares, voting })
    }

    /// The group's public key.
    pub fn public(&self) -> &RsaPublicKey {
        self.key.public()
    }
}

/// A voting key for each server.
fn voting_secrets(
    group: &QuorumGroup,
    generator: &mut RandomGenerator,
) -> Result<Vec<VotingSecret>, RandomError> {
    group.servers().map(|_| VotingSecret::random(generator)).collect()
}

/// The file of each server, with its shares and its voting key.
fn files(
    key: &GroupPublicKey,
    header: &GroupHeader,
    witnesses: &[u8],
    shares: Vec<EncodedShareList>,
    secrets: Vec<VotingSecret>,
) -> Vec<QuorumShareFile> {
    let servers = header.group.servers().zip(shares).zip(secrets);
    let file = |((server, shares), voting)| QuorumShareFile {
        key: key.clone(),
        header: header.clone(),
        witnesses: witnesses.to_vec(),
        server,
        shares,
        voting,
    };
    servers.map(file).collect()
}

/// The group's key, and the shares of a server.
type CheckedShares = Result<(GroupPublicKey, EncodedShareList), QuorumShareFileError>;

/// Reads and checks the combinatorial shares of a server.
fn read_combinatorial(
    modulus: RsaModulus,
    header: &GroupHeader,
    witnesses: &[u8],
    (server, count): (ServerIndex, u32),
    reader: &mut FieldReader<'_>,
) -> CheckedShares {
    let combination = header.group.combination();
    let witnesses = ShareWitnesses::parse(witnesses, combination.label_count(), &modulus)
        .filter(|it| it.digest() == header.witnesses)
        .ok_or(MalformedEncoding("its witnesses are not those of its header"))?;
    let g_0 = modulus.product(combination.labels().map(|label| witnesses.witness(label)));
    let key = GroupPublicKey::new(modulus, g_0)
        .map_err(|_| MalformedEncoding("its witnesses are not those of a key"))?;
    let range = ShareRange::new(key.modulus().bits());
    let expected: Vec<Label> = combination.labels_of(server).collect();
    if usize::try_from(count) != Ok(expected.len()) {
        return Err(MalformedEncoding("it has not as many shares as a server has").into());
    }
    let powers = key.powers_of_g(&[range.bits()], expected.len());
    let mut shares = EncodedShareList::with_capacity(expected.len());
    for label in expected {
        if reader.label()? != label {
            return Err(MalformedEncoding("it has a share of another server").into());
        }
        let bytes = reader.bytes(range.encoded_len())?;
        let share = range.parse(bytes).ok_or(MalformedEncoding("a share is out of its range"))?;
        if !powers.pow(&share).has_same_square(witnesses.witness(label)) {
            return Err(QuorumShareFileError::Share(label));
        }
        shares.push((label, Zeroizing::new(bytes.to_vec())));
    }
    Ok((key, shares))
}

/// Reads and checks the row of a server.
fn read_row(
    modulus: &RsaModulus,
    header: &GroupHeader,
    witnesses: &[u8],
    (server, count): (ServerIndex, u32),
    reader: &mut FieldReader<'_>,
) -> CheckedShares {
    let public = RsaPublicKey::danger_of_any_size(&modulus.to_be_bytes())
        .map_err(|_| MalformedEncoding("its modulus is not one of a key"))?;
    let is_signed = KeySharing::digest_of(witnesses) == header.witnesses;
    let sharing = if is_signed { KeySharing::parse_rsa(&public, witnesses) } else { None };
    let Some(KeySharing::Rsa(sharing)) = sharing.filter(|it| it.size() == header.group.size())
    else {
        return Err(MalformedEncoding("its sharing is not that of its header").into());
    };
    if count != 1 || reader.label()? != Label(0) {
        return Err(MalformedEncoding("it does not have one row").into());
    }
    let row = reader.bytes(sharing.key().share_len(sharing.size()))?;
    let key = sharing.key().group().clone();
    let participant = server.participant().ok_or(QuorumShareFileError::Row)?;
    let signer = KeySigner::from_bytes(&KeySharing::Rsa(sharing), participant, row);
    signer.ok_or(QuorumShareFileError::Row)?;
    Ok((key, vec![(Label(0), Zeroizing::new(row.to_vec()))]))
}

#[cfg(test)]
mod tests {
    use rsa_arithmetic::fixture::small_key;

    use super::*;
    use crate::protocol::testing::{group, share_files};

    #[test]
    fn each_server_gets_its_shares() {
        let files = share_files();
        assert_eq!(files.len(), 4);
        for (server, file) in files[0].header.group.combination().servers().zip(&files) {
            let bytes = file.to_bytes();
            assert!(bytes.len() <= file.encoded_len());
            let parsed = QuorumShareFile::parse(&bytes).unwrap();
            assert_eq!((parsed.server, &parsed.header), (server, &file.header));
            assert_eq!(parsed.key, file.key);
            let shares = |file: &QuorumShareFile| -> Vec<_> {
                file.shares.iter().map(|(label, share)| (*label, share.clone())).collect()
            };
            assert!(shares(&parsed) == shares(file));
            assert_eq!(Some(parsed.voting.public()), file.header.voting[usize::from(server.0)]);
            assert_eq!(file.shares.len(), 3);
        }
    }

    #[test]
    fn changed_or_truncated_share_files_are_rejected() {
        let file = share_files().remove(0);
        let bytes = file.to_bytes();
        for index in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[index] ^= 1;
            assert!(QuorumShareFile::parse(&changed).is_err(), "byte {index}");
            assert!(QuorumShareFile::parse(&bytes[..index]).is_err(), "{index} bytes");
        }
    }

    #[test]
    fn a_row_of_a_polynomial_is_checked() {
        let mut generator = RandomGenerator::seeded().unwrap();
        let files = QuorumShareFile::deal_polynomial(
            &small_key(),
            &group(1, 1),
            UnixSeconds(1_800_000_000),
            &mut generator,
        );
        for (server, file) in (0..).map(ServerIndex).zip(files.unwrap()) {
            let bytes = file.to_bytes();
            assert!(bytes.len() <= file.encoded_len());
            let parsed = QuorumShareFile::parse(&bytes).unwrap();
            assert_eq!((parsed.server, &parsed.header), (server, &file.header));
            assert_eq!((&parsed.key, parsed.shares.len()), (&file.key, 1));
            assert!(parsed.shares == file.shares);
            let refused = |change: &dyn Fn(&mut QuorumShareFile)| {
                let mut changed = QuorumShareFile::parse(&bytes).unwrap();
                change(&mut changed);
                QuorumShareFile::parse(&changed.to_bytes()).err().expect("it is refused")
            };
            let wrong = refused(&|file| *file.shares[0].1.last_mut().unwrap() ^= 1);
            assert_eq!(wrong, QuorumShareFileError::Row);
            let is_malformed = |error| matches!(error, QuorumShareFileError::Malformed(_));
            // The first byte of g_0, and of the constant.
            for place in [0, 128 + 2] {
                assert!(is_malformed(refused(&|file| file.witnesses[place] ^= 1)));
            }
            assert!(is_malformed(refused(&|file| file.header.key = GroupKeyKind::Rsa)));
            assert!(is_malformed(refused(&|file| _ = file.shares.pop())));
            assert!(is_malformed(refused(&|file| file.server = ServerIndex(4))));
        }
    }

    #[test]
    fn share_file_content_is_checked_even_if_the_digest_is_right() {
        let refused = |change: &dyn Fn(&mut QuorumShareFile)| {
            let mut file = share_files().remove(1);
            change(&mut file);
            QuorumShareFile::parse(&file.to_bytes()).err().expect("it is refused")
        };
        let other_share = refused(&|file| {
            *file.shares[0].1.last_mut().unwrap() ^= 1;
        });
        assert_eq!(other_share, QuorumShareFileError::Share(Label(0)));
        let is_malformed =
            |error: QuorumShareFileError| matches!(error, QuorumShareFileError::Malformed(_));
        assert!(is_malformed(refused(&|file| file.server = ServerIndex(0))));
        assert!(is_malformed(refused(&|file| file.server = ServerIndex(4))));
        assert!(is_malformed(refused(&|file| _ = file.shares.pop())));
        assert!(is_malformed(refused(&|file| file.header.epoch = 2)));
        assert!(is_malformed(refused(&|file| file.header.voting[1] = file.header.voting[0])));
        assert!(is_malformed(refused(&|file| file.header.witnesses = Sha256Digest([0; 32]))));
        assert!(is_malformed(refused(&|file| file.header.kind = GroupHeaderKind::Refresh)));
    }
}
