//! The file that the ceremony writes for one server: `docs/formats/quorum.md`.

use encoding::{FieldError, FieldReader, FieldWrite as _};
use keys::RsaPublicKey;
use random::{RandomError, RandomGenerator};
use rsa_arithmetic::DealerKey;
use rsa_arithmetic::integer::SecretInteger;
use rsa_arithmetic::key::GroupPublicKey;
use rsa_arithmetic::modulus::RsaModulus;
use zeroize::Zeroizing;

use crate::protocol::combination::{Label, ServerIndex};
use crate::protocol::group::{GroupHeader, GroupHeaderKind, QuorumGroup};
use crate::protocol::refresh::ShareWitnesses;
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
    /// The witnesses of all shares.
    pub witnesses: ShareWitnesses,
    /// The server.
    pub server: ServerIndex,
    /// All shares that this server must hold. Secret.
    pub shares: Vec<(Label, SecretInteger)>,
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
}

impl From<FieldError> for QuorumShareFileError {
    fn from(error: FieldError) -> Self {
        Self::Malformed(error.into())
    }
}

impl QuorumShareFile {
    /// Splits a key, and returns a file for each server of the first group, whose epoch begins at
    /// `time`.
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
        let secret = |_| VotingSecret::random(generator);
        let secrets = combination.servers().map(secret).collect::<Result<Vec<_>, _>>()?;
        let keys = secrets.iter().map(|secret| Some(secret.public())).collect();
        let header = GroupHeader::first(group.clone(), keys, witnesses.digest(), Some(time));
        let file = |(server, voting)| Self {
            key: key.group().clone(),
            header: header.clone(),
            witnesses: witnesses.clone(),
            server,
            shares: combination
                .labels_of(server)
                .map(|label| (label, split.share(label)))
                .collect(),
            voting,
        };
        Ok(combination.servers().zip(secrets).map(file).collect())
    }

    /// The bytes of the file.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut out = Zeroizing::new(Vec::with_capacity(self.encoded_len()));
        out.extend(MAGIC);
        out.extend([VERSION, self.server.0]);
        out.put_counted(&self.key.modulus().to_be_bytes());
        out.put_counted(&self.header.to_bytes());
        out.put_counted(&self.witnesses.to_bytes());
        out.put_count(self.shares.len());
        for (label, share) in &self.shares {
            out.put_u16(label.0);
            out.extend_from_slice(&share.to_be_bytes());
        }
        out.extend_from_slice(self.voting.to_bytes());
        let digest = Sha256Digest::of(&[&out]);
        out.extend(digest.0);
        out
    }

    /// An upper bound on the length of the file, so that the buffer, which is secret, is never
    /// moved.
    fn encoded_len(&self) -> usize {
        let share_len = self.shares.iter().map(|(_, share)| 2 + share.to_be_bytes().len());
        let public = self.key.modulus().byte_len() + self.witnesses.to_bytes().len();
        let header = self.header.to_bytes().len();
        160 + public + header + share_len.sum::<usize>()
    }

    /// Parses a file and checks all of its content: the header and the shares match the witnesses,
    /// and the server has all shares that it must hold.
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
        let combination = header.group.combination().clone();
        let is_first = header.kind == GroupHeaderKind::Epoch && header.run == 0;
        if !is_first || !header.is_next(None) {
            return Err(MalformedEncoding("its header is not that of a first epoch").into());
        }
        let witnesses = reader.counted()?;
        let witnesses = ShareWitnesses::parse(witnesses, combination.label_count(), &modulus)
            .filter(|it| it.digest() == header.witnesses)
            .ok_or(MalformedEncoding("its witnesses are not those of its header"))?;
        let g_0 = modulus.product(combination.labels().map(|label| witnesses.witness(label)));
        let key = GroupPublicKey::new(modulus, g_0)
            .map_err(|_| MalformedEncoding("its witnesses are not those of a key"))?;
        let range = ShareRange::new(key.modulus().bits());
        let expected: Vec<Label> = combination.labels_of(server).collect();
        if expected.is_empty() || usize::try_from(reader.u32()?) != Ok(expected.len()) {
            return Err(MalformedEncoding("it has not as many shares as a server has").into());
        }
        let mut shares = Vec::with_capacity(expected.len());
        for label in expected {
            if reader.label()? != label {
                return Err(MalformedEncoding("it has a share of another server").into());
            }
            let share = range.parse(reader.bytes(range.encoded_len())?);
            let share = share.ok_or(MalformedEncoding("a share is out of its range"))?;
            shares.push((label, share));
        }
        let voting = VotingSecret::from_bytes(Zeroizing::new(reader.take()?));
        if header.voting.get(usize::from(server.0)) != Some(&Some(voting.public())) {
            return Err(MalformedEncoding("its voting key is not the one of its header").into());
        }
        reader.finish()?;
        let powers = key.powers_of_g(&[range.bits()], shares.len());
        for (label, share) in &shares {
            if !powers.pow(share).has_same_square(witnesses.witness(*label)) {
                return Err(QuorumShareFileError::Share(*label));
            }
        }
        Ok(Self { key, header, witnesses, server, shares, voting })
    }

    /// The group's public key.
    pub fn public(&self) -> &RsaPublicKey {
        self.key.public()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::testing::share_files;

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
                file.shares.iter().map(|(label, share)| (*label, share.to_be_bytes())).collect()
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
    fn share_file_content_is_checked_even_if_the_digest_is_right() {
        let refused = |change: &dyn Fn(&mut QuorumShareFile)| {
            let mut file = share_files().remove(1);
            change(&mut file);
            QuorumShareFile::parse(&file.to_bytes()).err().expect("it is refused")
        };
        let other_share = refused(&|file| {
            let one = SecretInteger::from_unsigned(file.shares[0].1.bits(), &[1]);
            file.shares[0].1.add(&one);
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
