//! The Cryptographic Message Syntax (RFC 5652): signatures that are detached from their content.
//!
//! What is signed is a set of signed attributes: the type of the content (`data`), its digest, and
//! the time. Signatures without signed attributes are not made here. The digest is a SHA-256 for
//! RSA keys, and a SHA-512 for Ed25519 keys (RFC 8419, 3.1).

use std::fmt;

use keys::AnyPublicKey;
use sha2::{Digest as _, Sha256, Sha512};

use crate::certificate::CertificateParts;
use crate::der::{self, DerReader, OCTET_STRING, OID, SEQUENCE, SET};
use crate::{FormatError, SignatureAlgorithm, time_text};

const CONTENT_TYPE: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 3];
const MESSAGE_DIGEST: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 4];
const SIGNING_TIME: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 5];
const DATA: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 1];
const SIGNED_DATA: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 2];

/// The `AlgorithmIdentifier`s of SHA-256 and SHA-512, without parameters (RFC 5754, 2).
const SHA_256: [u8; 13] = [SEQUENCE, 11, OID, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1];
const SHA_512: [u8; 13] = [SEQUENCE, 11, OID, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 3];

/// What the signed attributes say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CmsAttributes {
    /// The digest of the content.
    pub digest: CmsDigest,
    /// When it was signed, in seconds since 1970.
    pub time: Option<u64>,
}

/// The digest of a content. It determines the algorithm of the signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmsDigest {
    /// SHA-256, for RSA.
    Sha256([u8; 32]),
    /// SHA-512, for Ed25519.
    Sha512([u8; 64]),
}

impl CmsDigest {
    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Sha256(digest) => digest,
            Self::Sha512(digest) => digest,
        }
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let sha256 = bytes.try_into().map(Self::Sha256);
        sha256.or_else(|_| bytes.try_into().map(Self::Sha512)).ok()
    }

    fn name(self) -> &'static str {
        match self {
            Self::Sha256(_) => "SHA-256",
            Self::Sha512(_) => "SHA-512",
        }
    }
}

impl CmsAttributes {
    /// The attributes for a content that is signed with this algorithm.
    pub fn of(content: &[u8], algorithm: SignatureAlgorithm, time: Option<u64>) -> Self {
        let digest = match algorithm {
            SignatureAlgorithm::RsaSha256 => CmsDigest::Sha256(Sha256::digest(content).into()),
            SignatureAlgorithm::Ed25519 => CmsDigest::Sha512(Sha512::digest(content).into()),
        };
        Self { digest, time }
    }

    /// The algorithm of the signature.
    pub fn algorithm(&self) -> SignatureAlgorithm {
        match self.digest {
            CmsDigest::Sha256(_) => SignatureAlgorithm::RsaSha256,
            CmsDigest::Sha512(_) => SignatureAlgorithm::Ed25519,
        }
    }

    /// The signed attributes as a `SET OF`, in DER (RFC 5652, 5.4).
    pub fn to_signed_bytes(&self) -> Vec<u8> {
        let attribute = |oid: [u8; 9], value: &[u8]| {
            der::sequence(&[&der::value(OID, &oid), &der::value(SET, value)])
        };
        let mut attributes = vec![
            attribute(CONTENT_TYPE, &der::value(OID, &DATA)),
            attribute(MESSAGE_DIGEST, &der::value(OCTET_STRING, self.digest.as_bytes())),
        ];
        attributes.extend(self.time.map(|time| attribute(SIGNING_TIME, &der::time(time))));
        // The order of DER.
        attributes.sort();
        der::value(SET, &attributes.concat())
    }

    /// Parses signed attributes.
    ///
    /// # Errors
    /// If they are anything that [`Self::to_signed_bytes`] does not write.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        Self::read(bytes).filter(|it| it.to_signed_bytes() == bytes).ok_or(FormatError::Cms)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut attributes = der::whole(SET, bytes)?;
        let (mut digest, mut time) = (None, None);
        while !attributes.is_at_end() {
            let mut attribute = attributes.enter(SEQUENCE)?;
            let oid: [u8; 9] = attribute.take(OID)?.try_into().ok()?;
            let mut values = attribute.enter(SET)?;
            match oid {
                CONTENT_TYPE => {
                    values.take(OID).filter(|oid| *oid == DATA)?;
                }
                MESSAGE_DIGEST => digest = Some(CmsDigest::from_bytes(values.take(OCTET_STRING)?)?),
                SIGNING_TIME => time = Some(values.time()?),
                _ => return None,
            }
        }
        Some(Self { digest: digest?, time })
    }
}

/// The certificate of the signer, in DER.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignerCertificate {
    der: Vec<u8>,
    /// The `IssuerAndSerialNumber`, in DER.
    issuer_and_serial: Vec<u8>,
}

impl SignerCertificate {
    /// The first certificate in a text in PEM, if it is for this key.
    ///
    /// # Errors
    /// If there is none, or if it is for another key.
    pub fn from_pem(text: &str, key: &AnyPublicKey) -> Result<Self, FormatError> {
        let der = der::from_pem("CERTIFICATE", text).ok_or(FormatError::NoCertificate)?;
        let parts = CertificateParts::parse(&der).ok_or(FormatError::NoCertificate)?;
        if parts.public_key != key.to_der() {
            return Err(FormatError::CertificateOfAnotherKey);
        }
        let issuer_and_serial = der::sequence(&[parts.issuer, parts.serial]);
        Ok(Self { der, issuer_and_serial })
    }
}

/// The signature as a `SignedData` without its content, in DER. It contains the certificate.
pub(crate) fn signed_data(
    attributes: &[u8],
    algorithm: SignatureAlgorithm,
    signature: &[u8],
    certificate: &SignerCertificate,
) -> Vec<u8> {
    let digest_algorithm = match algorithm {
        SignatureAlgorithm::RsaSha256 => &SHA_256,
        SignatureAlgorithm::Ed25519 => &SHA_512,
    };
    // The same set with the tag of the field.
    let content = DerReader(attributes).take(SET).unwrap_or_default();
    let signer = der::sequence(&[
        &der::integer(&[1]),
        &certificate.issuer_and_serial,
        digest_algorithm,
        &der::value(0xa0, content),
        algorithm.to_der(),
        &der::value(OCTET_STRING, signature),
    ]);
    let signed = der::sequence(&[
        &der::integer(&[1]),
        &der::value(SET, digest_algorithm),
        &der::sequence(&[&der::value(OID, &DATA)]),
        &der::value(0xa0, &certificate.der),
        &der::value(SET, &signer),
    ]);
    der::sequence(&[&der::value(OID, &SIGNED_DATA), &der::value(0xa0, &signed)])
}

/// One line: what they say.
impl fmt::Display for CmsAttributes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "CMS signature of the content with {} ", self.digest.name())?;
        write!(out, "{:x}", base16ct::HexDisplay(self.digest.as_bytes()))?;
        self.time.map_or(Ok(()), |time| write!(out, ", at {}", time_text(time)))
    }
}
