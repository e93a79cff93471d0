//! X.509 certificates (RFC 5280), of which programs see some fields.

use std::path::Path;

use formats::certificate::{CertificateParts, certificates_in_pem};

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
    let certificates = certificates_in_pem(text)?;
    if !(1..=MAX_CERTIFICATES).contains(&certificates.len()) {
        return None;
    }
    certificates.into_iter().map(TokenCertificate::from_der).collect()
}

impl TokenCertificate {
    fn from_der(whole: Vec<u8>) -> Option<Self> {
        let CertificateParts { serial, issuer, subject, public_key } =
            CertificateParts::parse(&whole)?;
        let [serial, issuer, subject, public_key] =
            [serial, issuer, subject, public_key].map(<[u8]>::to_vec);
        Some(Self { whole, serial, issuer, subject, public_key })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

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
            assert_eq!(TokenCertificate::from_der(one.whole[..len].to_vec()), None, "{len}");
        }
    }
}
