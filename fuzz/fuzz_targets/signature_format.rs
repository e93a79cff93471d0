//! Messages that are to be signed in a format: any bytes, and changed ones of each format.
#![no_main]

mod changes;

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use changes::Changes;
use formats::SignatureFormat;
use formats::cms::CmsAttributes;
use formats::jwt::{JwtAlgorithm, token};
use formats::openpgp::{OpenPgpKind, document, key_with_user_id};
use formats::x509::{CertificateFields, CertificatePurpose, CertificationRequestFields};
use keys::RsaPublicKey;
use libfuzzer_sys::fuzz_target;

static KEY: LazyLock<RsaPublicKey> =
    LazyLock::new(|| RsaPublicKey::new(&[0xc5; 256]).expect("it is odd"));

static EXAMPLES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let name = || "CN=www.example.org,O=Example".parse().expect("a name");
    let names = || vec!["*.example.org".parse().expect("a name"), "::1".parse().expect("a name")];
    let certificate = CertificateFields {
        serial: vec![1],
        issuer: name(),
        not_before: 1,
        not_after: 2_600_000_000,
        subject: name(),
        key: KEY.to_der(),
        is_authority: true,
        names: names(),
        purposes: CertificatePurpose::ALL.to_vec(),
    };
    let request =
        CertificationRequestFields { subject: name(), key: KEY.to_der(), names: names() };
    vec![
        certificate.to_signed_bytes(&KEY),
        request.to_signed_bytes(),
        CmsAttributes::of(b"", Some(1)).to_signed_bytes(),
        document(&KEY, b"a\nb", OpenPgpKind::Cleartext, 1).expect("a text"),
        document(&KEY, b"a\nb", OpenPgpKind::Binary, 1).expect("bytes"),
        key_with_user_id(&KEY, "a").expect("a user ID"),
        token(&KEY, b"{\"a\":[1,2.5,null,true,\"b\"]}", JwtAlgorithm::Ps256).expect("claims"),
    ]
});

#[derive(Arbitrary, Debug)]
struct Input {
    any: Vec<u8>,
    changes: Changes,
}

fuzz_target!(|input: Input| {
    for message in [&input.any, &input.changes.of_one(&EXAMPLES)] {
        let found = SignatureFormat::of(message);
        for format in SignatureFormat::ALL {
            let Ok(line) = format.describe(message) else { continue };
            // No message has two formats.
            assert_eq!(found, Ok(format));
            assert!(!line.contains('\n'));
            format.encoding(message).expect("it is of the format");
            let _ = format.check_key(message, &KEY);
            let _ = format.wrap(message, &[1; 256], None);
        }
    }
});
