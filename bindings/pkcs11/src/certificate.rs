//! X.509 certificates (RFC 5280), of which programs see some fields.

use std::path::Path;

use base64ct::{Base64, Encoding as _};

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

const INTEGER: u8 = 0x02;
const SEQUENCE: u8 = 0x30;
/// The tag of the version of a certificate.
const VERSION: u8 = 0xa0;

/// The longest file, in bytes.
const MAX_FILE_LEN: u64 = 64 << 10;

/// The largest number of certificates in a file.
const MAX_CERTIFICATES: usize = 8;

/// A certificate. The fields are DER, with tag and length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenCertificate {
    pub(crate) whole: Vec<u8>,
    pub(crate) serial: Vec<u8>,
    pub(crate) issuer: Vec<u8>,
    pub(crate) subject: Vec<u8>,
    /// The `SubjectPublicKeyInfo`.
    pub(crate) public_key: Vec<u8>,
}

/// The certificates in a file, in PEM. At least one.
///
/// # Errors
/// If the file cannot be read, or has something else in it: one line.
pub(crate) fn read(path: &Path) -> Result<Vec<TokenCertificate>, String> {
    use std::io::Read as _;
    let mut text = String::new();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(MAX_FILE_LEN).read_to_string(&mut text));
    read.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    parse(&text).ok_or_else(|| {
        format!("{} has no certificates in PEM, or more than {MAX_CERTIFICATES}", path.display())
    })
}

/// The certificates in a text in PEM, which may have other lines between them.
fn parse(text: &str) -> Option<Vec<TokenCertificate>> {
    let blocks = text.split(BEGIN).skip(1).take(MAX_CERTIFICATES + 1);
    let certificates = blocks.map(|block| {
        let (digits, _) = block.split_once(END)?;
        let digits: String = digits.split_ascii_whitespace().collect();
        TokenCertificate::from_der(&Base64::decode_vec(&digits).ok()?)
    });
    let certificates = certificates.collect::<Option<Vec<_>>>()?;
    (1..=MAX_CERTIFICATES).contains(&certificates.len()).then_some(certificates)
}

impl TokenCertificate {
    fn from_der(der: &[u8]) -> Option<Self> {
        let (certificate, rest) = element(der)?;
        let (signed, _) = element(certificate.content(SEQUENCE)?)?;
        let mut fields = signed.content(SEQUENCE)?;
        let mut next = || {
            let (field, rest) = element(fields)?;
            fields = rest;
            Some(field)
        };
        let first = next()?;
        let serial = if first.whole.first() == Some(&VERSION) { next()? } else { first };
        serial.content(INTEGER)?;
        let (_algorithm, issuer, _validity) = (next()?, next()?, next()?);
        let (subject, public_key) = (next()?, next()?);
        let is_sequence = [issuer, subject, public_key].iter().all(|it| it.whole[0] == SEQUENCE);
        (rest.is_empty() && is_sequence).then(|| Self {
            whole: der.to_vec(),
            serial: serial.whole.to_vec(),
            issuer: issuer.whole.to_vec(),
            subject: subject.whole.to_vec(),
            public_key: public_key.whole.to_vec(),
        })
    }
}

/// An element of DER.
#[derive(Clone, Copy)]
struct DerElement<'a> {
    whole: &'a [u8],
    header_len: usize,
}

impl<'a> DerElement<'a> {
    /// The content, if it has this tag.
    fn content(self, tag: u8) -> Option<&'a [u8]> {
        (self.whole.first() == Some(&tag)).then(|| &self.whole[self.header_len..])
    }
}

/// The first element, and what follows it. Lengths of up to two bytes: 64 KiB.
fn element(der: &[u8]) -> Option<(DerElement<'_>, &[u8])> {
    let (header_len, len) = match *der.get(1)? {
        len @ 0..=0x7f => (2, usize::from(len)),
        0x81 => (3, usize::from(*der.get(2)?)),
        0x82 => (4, usize::from(u16::from_be_bytes([*der.get(2)?, *der.get(3)?]))),
        _ => return None,
    };
    let (whole, rest) = der.split_at_checked(header_len + len)?;
    Some((DerElement { whole, header_len }, rest))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    /// A self-signed certificate that `openssl` makes, and its fields as `openssl` prints them.
    fn certificate() -> (String, Vec<u8>) {
        let place = tempfile::tempdir().unwrap();
        let openssl = |arguments: &str| {
            let mut command = Command::new("openssl");
            let output = command.args(arguments.split(' ')).current_dir(place.path()).output();
            let output = output.unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            output.stdout
        };
        openssl(
            "req -x509 -newkey rsa:2048 -nodes -keyout key -out certificate -subj /CN=office \
             -set_serial 0x1234",
        );
        let public = openssl("pkey -in key -pubout -outform DER");
        (std::fs::read_to_string(place.path().join("certificate")).unwrap(), public)
    }

    #[test]
    fn the_fields_of_a_certificate_of_openssl_are_read() {
        let (pem, public) = certificate();
        let chain = parse(&format!("subject=office\n{pem}\n{pem}")).unwrap();
        assert_eq!((chain.len(), &chain[0]), (2, &chain[1]));
        let one = &chain[0];
        assert_eq!((&one.public_key, &one.serial[..]), (&public, &[2, 2, 0x12, 0x34][..]));
        assert_eq!(one.issuer, one.subject);
        assert!(one.subject.ends_with(b"office"));
        assert_eq!(parse(""), None);
        assert_eq!(parse(&pem.repeat(9)), None);
        assert_eq!(parse(&pem.replace('M', "!")), None);
        for len in 0..one.whole.len() {
            assert_eq!(TokenCertificate::from_der(&one.whole[..len]), None, "{len}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_certificate_or_not(
            der in prop::collection::vec(prop_oneof![
                Just(SEQUENCE), Just(INTEGER), Just(0x82), Just(0x81), Just(0), 0_u8..20, any::<u8>()
            ], 0..80),
        ) {
            let _ = TokenCertificate::from_der(&der);
            let _ = parse(&format!("{BEGIN}{}{END}", Base64::encode_string(&der)));
        }
    }
}
