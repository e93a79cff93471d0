//! Certificates (RFC 5280) and certification requests (RFC 2986).
//!
//! What is signed is the `TBSCertificate` or the `CertificationRequestInfo`. The parsers here
//! accept less than the standards do: version 3, known attributes and extensions, each at most
//! once.

mod name;

use std::fmt;

use keys::AnyPublicKey;
use sha1::{Digest as _, Sha1};

use crate::der::{self, BIT_STRING, BOOLEAN, DerReader, OCTET_STRING, OID, SEQUENCE, SET};
use crate::{FormatError, SignatureAlgorithm, time_text};

pub use name::{AlternativeName, DistinguishedName};

/// The version of a certificate: 3, with its tag.
const VERSION_3: [u8; 5] = [0xa0, 3, 2, 1, 2];

const SUBJECT_KEY_ID: [u8; 3] = [0x55, 0x1d, 14];
const KEY_USAGE: [u8; 3] = [0x55, 0x1d, 15];
const SUBJECT_ALT_NAME: [u8; 3] = [0x55, 0x1d, 17];
const BASIC_CONSTRAINTS: [u8; 3] = [0x55, 0x1d, 19];
const AUTHORITY_KEY_ID: [u8; 3] = [0x55, 0x1d, 35];
const EXTENDED_KEY_USAGE: [u8; 3] = [0x55, 0x1d, 37];

/// `extensionRequest` (RFC 2985, 5.4.2).
const EXTENSION_REQUEST: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 14];

/// The bits of `keyUsage` by which a key signs certificates (5) and revocation lists (6), in the
/// first byte.
const SIGNS_CERTIFICATES: u8 = 0b0000_0110;
const DIGITAL_SIGNATURE: u8 = 0b1000_0000;

/// The most names in a certificate.
const MAX_NAMES: usize = 256;

/// What a key may be used for: the known purposes of `extKeyUsage` (RFC 5280, 4.2.1.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificatePurpose {
    /// A server in TLS.
    ServerAuth,
    /// A client in TLS.
    ClientAuth,
    /// Signatures of programs.
    CodeSigning,
    /// Electronic mail.
    EmailProtection,
}

impl CertificatePurpose {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::ServerAuth, Self::ClientAuth, Self::CodeSigning, Self::EmailProtection];

    /// Its name in options and configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::ServerAuth => "server-auth",
            Self::ClientAuth => "client-auth",
            Self::CodeSigning => "code-signing",
            Self::EmailProtection => "email-protection",
        }
    }

    fn oid(self) -> [u8; 8] {
        let last = match self {
            Self::ServerAuth => 1,
            Self::ClientAuth => 2,
            Self::CodeSigning => 3,
            Self::EmailProtection => 4,
        };
        [0x2b, 6, 1, 5, 5, 7, 3, last]
    }
}

/// What a certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFields {
    /// The serial number, big-endian, 1 to 20 bytes.
    pub serial: Vec<u8>,
    /// The algorithm of the signer's key.
    pub algorithm: SignatureAlgorithm,
    /// The name of the signer.
    pub issuer: DistinguishedName,
    /// From when it is valid, in seconds since 1970.
    pub not_before: u64,
    /// Until when it is valid, in seconds since 1970.
    pub not_after: u64,
    /// The name of the subject.
    pub subject: DistinguishedName,
    /// The subject's key: a `SubjectPublicKeyInfo` in DER.
    pub key: Vec<u8>,
    /// Whether the subject may sign certificates: of `basicConstraints` or `keyUsage`.
    pub is_authority: bool,
    /// Further names of the subject.
    pub names: Vec<AlternativeName>,
    /// What the key may be used for. Anything, if empty.
    pub purposes: Vec<CertificatePurpose>,
}

/// What a certification request says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificationRequestFields {
    /// The name of the subject.
    pub subject: DistinguishedName,
    /// The subject's key: a `SubjectPublicKeyInfo` in DER.
    pub key: Vec<u8>,
    /// Further names of the subject.
    pub names: Vec<AlternativeName>,
}

impl CertificateFields {
    /// The `TBSCertificate`, in DER. `issuer_key` is the key that signs, of the same algorithm.
    pub fn to_signed_bytes(&self, issuer_key: &AnyPublicKey) -> Vec<u8> {
        let validity = der::sequence(&[&der::time(self.not_before), &der::time(self.not_after)]);
        let mut extensions = Vec::new();
        let mut add = |oid: [u8; 3], is_critical, content: &[u8]| {
            extensions.extend(extension(oid, is_critical, content));
        };
        let constraints: &[u8] = if self.is_authority { &[BOOLEAN, 1, 0xff] } else { &[] };
        add(BASIC_CONSTRAINTS, true, &der::value(SEQUENCE, constraints));
        // The first byte counts the bits that are left out at the end.
        let usage: [u8; 2] = if self.is_authority {
            [1, DIGITAL_SIGNATURE | SIGNS_CERTIFICATES]
        } else {
            [7, DIGITAL_SIGNATURE]
        };
        add(KEY_USAGE, true, &der::value(BIT_STRING, &usage));
        if !self.purposes.is_empty() {
            let purposes = self.purposes.iter().map(|it| der::value(OID, &it.oid()));
            let purposes: Vec<Vec<u8>> = purposes.collect();
            add(EXTENDED_KEY_USAGE, false, &der::value(SEQUENCE, &purposes.concat()));
        }
        let subject_id = key_identifier(&self.key).unwrap_or_default();
        add(SUBJECT_KEY_ID, false, &der::value(OCTET_STRING, &subject_id));
        let issuer_id = key_identifier(&issuer_key.to_der()).unwrap_or_default();
        add(AUTHORITY_KEY_ID, false, &der::sequence(&[&der::value(0x80, &issuer_id)]));
        if !self.names.is_empty() {
            // Critical without another name of the subject (RFC 5280, 4.2.1.6).
            add(SUBJECT_ALT_NAME, self.subject.is_empty(), &names_to_der(&self.names));
        }
        der::sequence(&[
            &VERSION_3,
            &der::integer(&self.serial),
            self.algorithm.to_der(),
            &self.issuer.to_der(),
            &validity,
            &self.subject.to_der(),
            &self.key,
            &der::value(0xa3, &der::value(SEQUENCE, &extensions)),
        ])
    }

    /// Parses a `TBSCertificate` in DER.
    ///
    /// # Errors
    /// If it is anything else, or has an attribute or extension that is not known here.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        Self::read(bytes).ok_or(FormatError::Certificate)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut tbs = der::whole(SEQUENCE, bytes)?;
        tbs.0 = tbs.0.strip_prefix(&VERSION_3)?;
        let serial = tbs.unsigned().filter(|it| (1..=20).contains(&it.len()))?.to_vec();
        let (algorithm, rest) = SignatureAlgorithm::strip(tbs.0)?;
        tbs.0 = rest;
        let issuer = DistinguishedName::read(&mut tbs)?;
        let mut validity = tbs.enter(SEQUENCE)?;
        let (not_before, not_after) = (validity.time()?, validity.time()?);
        let is_all = validity.is_at_end();
        let subject = DistinguishedName::read(&mut tbs)?;
        let key = tbs.take_encoded(SEQUENCE)?.to_vec();
        key_identifier(&key)?;
        let mut tagged = tbs.enter(0xa3)?;
        let read = X509Extensions::read(&mut tagged)?;
        let is_all = is_all && tagged.is_at_end() && tbs.is_at_end();
        let X509Extensions { is_authority, names, purposes } = read;
        (is_all && not_before <= not_after).then_some(Self {
            serial,
            algorithm,
            issuer,
            not_before,
            not_after,
            subject,
            key,
            is_authority,
            names,
            purposes,
        })
    }
}

impl CertificationRequestFields {
    /// The `CertificationRequestInfo`, in DER.
    pub fn to_signed_bytes(&self) -> Vec<u8> {
        let attributes = if self.names.is_empty() {
            Vec::new()
        } else {
            let names = extension(SUBJECT_ALT_NAME, false, &names_to_der(&self.names));
            let extensions = der::value(SET, &der::value(SEQUENCE, &names));
            der::sequence(&[&der::value(OID, &EXTENSION_REQUEST), &extensions])
        };
        let attributes = der::value(0xa0, &attributes);
        der::sequence(&[&der::integer(&[0]), &self.subject.to_der(), &self.key, &attributes])
    }

    /// Parses a `CertificationRequestInfo` in DER.
    ///
    /// # Errors
    /// If it is anything else, or has an attribute or extension that is not known here.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        Self::read(bytes).ok_or(FormatError::CertificationRequest)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut info = der::whole(SEQUENCE, bytes)?;
        info.unsigned().filter(|version| version.is_empty())?;
        let subject = DistinguishedName::read(&mut info)?;
        let key = info.take_encoded(SEQUENCE)?.to_vec();
        key_identifier(&key)?;
        let mut attributes = info.enter(0xa0)?;
        let mut names = Vec::new();
        if let Some(mut attribute) = attributes.enter(SEQUENCE) {
            attribute.take(OID).filter(|oid| *oid == EXTENSION_REQUEST)?;
            let mut set = attribute.enter(SET)?;
            let read = X509Extensions::read(&mut set)?;
            if read.is_authority || !set.is_at_end() || !attribute.is_at_end() {
                return None;
            }
            names = read.names;
        }
        let is_all = attributes.is_at_end() && info.is_at_end();
        is_all.then_some(Self { subject, key, names })
    }
}

/// The extensions that are known.
#[derive(Default)]
struct X509Extensions {
    is_authority: bool,
    names: Vec<AlternativeName>,
    purposes: Vec<CertificatePurpose>,
}

impl X509Extensions {
    fn read(reader: &mut DerReader<'_>) -> Option<Self> {
        let mut list = reader.enter(SEQUENCE)?;
        let mut extensions = Self::default();
        let mut seen = Vec::new();
        while !list.is_at_end() {
            let mut extension = list.enter(SEQUENCE)?;
            let oid: [u8; 3] = extension.take(OID)?.try_into().ok()?;
            if extension.take(BOOLEAN).is_some_and(|critical| critical != [0xff]) {
                return None;
            }
            let content = extension.take(OCTET_STRING)?;
            if !extension.is_at_end() || seen.contains(&oid) {
                return None;
            }
            seen.push(oid);
            extensions.add(oid, content)?;
        }
        Some(extensions)
    }

    fn add(&mut self, oid: [u8; 3], content: &[u8]) -> Option<()> {
        match oid {
            SUBJECT_KEY_ID => {
                let mut reader = DerReader(content);
                reader.take(OCTET_STRING)?;
                reader.is_at_end().then_some(())
            }
            AUTHORITY_KEY_ID => {
                let mut reader = der::whole(SEQUENCE, content)?;
                reader.take(0x80)?;
                reader.is_at_end().then_some(())
            }
            BASIC_CONSTRAINTS => {
                let mut reader = der::whole(SEQUENCE, content)?;
                if let Some(is_authority) = reader.take(BOOLEAN) {
                    self.is_authority |= is_authority == [0xff];
                    (is_authority == [0xff]).then_some(())?;
                    // The longest chain below it.
                    let _ = reader.unsigned();
                }
                reader.is_at_end().then_some(())
            }
            KEY_USAGE => {
                let mut reader = DerReader(content);
                let bits = reader.take(BIT_STRING)?;
                let (unused, bits) = bits.split_first()?;
                let first = *bits.first()?;
                self.is_authority |= first & SIGNS_CERTIFICATES != 0;
                (*unused < 8 && bits.len() <= 2 && reader.is_at_end()).then_some(())
            }
            EXTENDED_KEY_USAGE => {
                let mut reader = der::whole(SEQUENCE, content)?;
                while !reader.is_at_end() {
                    let oid = reader.take(OID)?;
                    let known = CertificatePurpose::ALL.into_iter().find(|it| it.oid() == oid)?;
                    self.purposes.push(known);
                }
                (1..=CertificatePurpose::ALL.len()).contains(&self.purposes.len()).then_some(())
            }
            SUBJECT_ALT_NAME => {
                let mut reader = der::whole(SEQUENCE, content)?;
                while !reader.is_at_end() {
                    self.names.push(AlternativeName::read(&mut reader)?);
                }
                (1..=MAX_NAMES).contains(&self.names.len()).then_some(())
            }
            _ => None,
        }
    }
}

fn extension(oid: [u8; 3], is_critical: bool, content: &[u8]) -> Vec<u8> {
    let critical: &[u8] = if is_critical { &[BOOLEAN, 1, 0xff] } else { &[] };
    der::sequence(&[&der::value(OID, &oid), critical, &der::value(OCTET_STRING, content)])
}

fn names_to_der(names: &[AlternativeName]) -> Vec<u8> {
    let names: Vec<u8> = names.iter().flat_map(AlternativeName::to_der).collect();
    der::value(SEQUENCE, &names)
}

/// The SHA-1 of the key in a `SubjectPublicKeyInfo` (RFC 5280, 4.2.1.2). It names a key and
/// protects nothing. `None` if the bytes are no such thing.
fn key_identifier(key: &[u8]) -> Option<[u8; 20]> {
    let mut info = der::whole(SEQUENCE, key)?;
    info.enter(SEQUENCE)?;
    let bits = info.take(BIT_STRING)?.strip_prefix(&[0])?;
    info.is_at_end().then(|| Sha1::digest(bits).into())
}

/// The key in a text in PEM ("BEGIN PUBLIC KEY"), of any algorithm, in DER. `None` if there is
/// none.
pub fn key_from_pem(text: &str) -> Option<Vec<u8>> {
    let key = der::from_pem("PUBLIC KEY", text)?;
    key_identifier(&key)?;
    Some(key)
}

/// What is signed with its algorithm and its signature, in PEM.
pub(crate) fn signed_to_pem(
    label: &str,
    signed: &[u8],
    algorithm: SignatureAlgorithm,
    signature: &[u8],
) -> String {
    der::pem(label, &der::sequence(&[signed, algorithm.to_der(), &der::bit_string(signature)]))
}

/// One line: what it says.
impl fmt::Display for CertificateFields {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_authority { "certificate of an authority" } else { "certificate" };
        write!(out, "{kind} for {}{}", Shown(&self.subject), ListedNames(&self.names))?;
        write!(out, " by {}", Shown(&self.issuer))?;
        let (from, to) = (time_text(self.not_before), time_text(self.not_after));
        write!(out, ", valid from {from} to {to}")?;
        let purposes: Vec<&str> = self.purposes.iter().map(|it| it.name()).collect();
        let purposes =
            if purposes.is_empty() { "anything".to_owned() } else { purposes.join(", ") };
        write!(out, ", for {purposes}, serial {:x}", base16ct::HexDisplay(&self.serial))?;
        write!(out, ", key with SHA-256 {}", crate::sha256_text(&self.key))
    }
}

/// One line: what it says.
impl fmt::Display for CertificationRequestFields {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ListedNames(&self.names);
        write!(out, "certification request for {}{names}", Shown(&self.subject))?;
        write!(out, ", key with SHA-256 {}", crate::sha256_text(&self.key))
    }
}

struct Shown<'a>(&'a DistinguishedName);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Quoted: a value must not look like the rest of the line.
        if self.0.is_empty() {
            out.write_str("(no name)")
        } else {
            write!(out, "{:?}", self.0.to_string())
        }
    }
}

struct ListedNames<'a>(&'a [AlternativeName]);

impl fmt::Display for ListedNames<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        let names: Vec<String> =
            self.0.iter().map(|name| format!("{:?}", name.to_string())).collect();
        write!(out, " ({})", names.join(", "))
    }
}
