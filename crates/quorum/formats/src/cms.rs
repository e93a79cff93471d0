//! The Cryptographic Message Syntax (RFC 5652): signatures that are detached from their content.
//!
//! What is signed is a set of signed attributes: the type of the content (`data`), its SHA-256, and
//! the time. Signatures without signed attributes are not made here.

use std::fmt;

use keys::RsaPublicKey;
use sha2::{Digest as _, Sha256};

use crate::certificate::CertificateParts;
use crate::der::{self, DerReader, OCTET_STRING, OID, SEQUENCE, SET, SHA256_WITH_RSA};
use crate::{FormatError, time_text};

const CONTENT_TYPE: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 3];
const MESSAGE_DIGEST: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 4];
const SIGNING_TIME: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 5];
const DATA: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 1];
const SIGNED_DATA: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 2];

/// The `AlgorithmIdentifier` of SHA-256, without parameters (RFC 5754, 2).
const SHA_256: [u8; 13] = [SEQUENCE, 11, OID, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1];

/// What the signed attributes say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CmsAttributes {
    /// The SHA-256 of the content.
    pub digest: [u8; 32],
    /// When it was signed, in seconds since 1970.
    pub time: Option<u64>,
}

impl CmsAttributes {
    /// The attributes for a content.
    pub fn of(content: &[u8], time: Option<u64>) -> Self {
        Self { digest: Sha256::digest(content).into(), time }
    }

    /// The signed attributes as a `SET OF`, in DER (RFC 5652, 5.4).
    pub fn to_signed_bytes(&self) -> Vec<u8> {
        let attribute = |oid: [u8; 9], value: &[u8]| {
            der::sequence(&[&der::value(OID, &oid), &der::value(SET, value)])
        };
        let mut attributes = vec![
            attribute(CONTENT_TYPE, &der::value(OID, &DATA)),
            attribute(MESSAGE_DIGEST, &der::value(OCTET_STRING, &self.digest)),
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
                MESSAGE_DIGEST => digest = Some(values.take(OCTET_STRING)?.try_into().ok()?),
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
    pub fn from_pem(text: &str, key: &RsaPublicKey) -> Result<Self, FormatError> {
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
    signature: &[u8],
    certificate: &SignerCertificate,
) -> Vec<u8> {
    // The same set with the tag of the field.
    let content = DerReader(attributes).take(SET).unwrap_or_default();
    let signer = der::sequence(&[
        &der::integer(&[1]),
        &certificate.issuer_and_serial,
        &SHA_256,
        &der::value(0xa0, content),
        &SHA256_WITH_RSA,
        &der::value(OCTET_STRING, signature),
    ]);
    let signed = der::sequence(&[
        &der::integer(&[1]),
        &der::value(SET, &SHA_256),
        &der::sequence(&[&der::value(OID, &DATA)]),
        &der::value(0xa0, &certificate.der),
        &der::value(SET, &signer),
    ]);
    der::sequence(&[&der::value(OID, &SIGNED_DATA), &der::value(0xa0, &signed)])
}

/// One line: what they say.
impl fmt::Display for CmsAttributes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "CMS signature of the content with SHA-256 ")?;
        write!(out, "{:x}", base16ct::HexDisplay(&self.digest))?;
        self.time.map_or(Ok(()), |time| write!(out, ", at {}", time_text(time)))
    }
}
