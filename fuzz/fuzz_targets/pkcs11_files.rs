//! The files of the PKCS #11 module, its configuration and certificates, and the names in
//! certificates: any text or bytes, and changed ones.
#![no_main]

mod changes;

use std::path::Path;
use std::sync::LazyLock;

use arbitrary::Arbitrary;
use changes::Changes;
use formats::certificate::{CertificateParts, certificates_in_pem};
use formats::cms::{CmsAttributes, SignerCertificate};
use formats::x509::{AlternativeName, CertificateFields, DistinguishedName, key_from_pem};
use formats::{SignatureAlgorithm, SignatureFormat};
use keys::{AnyPublicKey, RsaPublicKey};
use libfuzzer_sys::fuzz_target;

const ALGORITHM: SignatureAlgorithm = SignatureAlgorithm::RsaSha256;

static KEY: LazyLock<AnyPublicKey> =
    LazyLock::new(|| RsaPublicKey::new(&[0xc5; 256]).expect("it is odd").into());

/// A certificate in PEM and in DER, a public key, and a configuration.
static EXAMPLES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let name = || "CN=www.example.org,O=Example".parse().expect("a name");
    let certificate = CertificateFields {
        serial: vec![1],
        algorithm: ALGORITHM,
        issuer: name(),
        not_before: 1,
        not_after: 2_600_000_000,
        subject: name(),
        key: KEY.to_der(),
        is_authority: true,
        names: vec![],
        purposes: vec![],
    };
    let signed = certificate.to_signed_bytes(&KEY);
    let pem =
        SignatureFormat::X509Cert.wrap(&signed, &[1; 256], &KEY, None).expect("a certificate");
    let der = certificates_in_pem(&String::from_utf8_lossy(&pem)).expect("PEM").remove(0);
    let config = b"[[quorum]]\nlabel = \"office\"\nsockets = [\"a\"]\ncertificate = \"b\"\n";
    vec![pem, der, KEY.to_pem().into_bytes(), config.to_vec()]
});

#[derive(Arbitrary, Debug)]
struct Input {
    any: Vec<u8>,
    changes: Changes,
}

fuzz_target!(|input: Input| {
    for bytes in [&input.any, &input.changes.of_one(&EXAMPLES)] {
        certificate(bytes);
        let text = String::from_utf8_lossy(bytes);
        for der in certificates_in_pem(&text).unwrap_or_default() {
            certificate(&der);
        }
        if let Ok(certificate) = SignerCertificate::from_pem(&text, &KEY) {
            // It is that of the key, so the signature is not refused.
            let attributes = CmsAttributes::of(b"", ALGORITHM, Some(1)).to_signed_bytes();
            let signed =
                SignatureFormat::Cms.wrap(&attributes, &[1; 256], &KEY, Some(&certificate));
            signed.expect("attributes and their certificate");
        }
        let _ = key_from_pem(&text);
        if let Err(problems) = sunder_pkcs11::config::parse(&text, Path::new("/etc")) {
            assert_eq!(problems.first().in_one_line(&text).lines().count(), 1);
        }
        if let Ok(name) = text.parse::<DistinguishedName>() {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        if let Ok(name) = text.parse::<AlternativeName>() {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
    }
});

/// The fields follow one another in the certificate.
fn certificate(der: &[u8]) {
    let Some(CertificateParts { serial, issuer, subject, public_key }) =
        CertificateParts::parse(der)
    else {
        return;
    };
    let mut rest = der;
    for field in [serial, issuer, subject, public_key] {
        let at = rest.windows(field.len()).position(|window| window == field);
        rest = &rest[at.expect("it is a part") + field.len()..];
    }
}
