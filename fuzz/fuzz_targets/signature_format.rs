//! Messages that are to be signed in a format: any bytes, and changed ones of each format.
#![no_main]

mod changes;

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use changes::Changes;
use formats::{SignatureAlgorithm, SignatureFormat};
use formats::cms::CmsAttributes;
use formats::jwt::{JwtAlgorithm, token};
use formats::openpgp::{OpenPgpKind, document, key_with_user_id};
use formats::x509::{CertificateFields, CertificatePurpose, CertificationRequestFields};
use keys::{AnyPublicKey, Ed25519PublicKey, RsaPublicKey};
use libfuzzer_sys::fuzz_target;

static RSA_KEY: LazyLock<RsaPublicKey> =
    LazyLock::new(|| RsaPublicKey::new(&[0xc5; 256]).expect("it is odd"));

/// The example of RFC 8032, 7.1, and the RSA key.
static KEYS: LazyLock<[AnyPublicKey; 2]> = LazyLock::new(|| {
    let point = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    let mut bytes = [0; 32];
    for (byte, digits) in bytes.iter_mut().zip(point.as_bytes().chunks(2)) {
        let digits = str::from_utf8(digits).expect("digits");
        *byte = u8::from_str_radix(digits, 16).expect("digits");
    }
    [RSA_KEY.clone().into(), Ed25519PublicKey::from_bytes(&bytes).expect("a key").into()]
});

static EXAMPLES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let mut examples: Vec<Vec<u8>> = KEYS.iter().flat_map(examples_of).collect();
    examples.extend([
        document(&RSA_KEY, b"a\nb", OpenPgpKind::Cleartext, 1).expect("a text"),
        document(&RSA_KEY, b"a\nb", OpenPgpKind::Binary, 1).expect("bytes"),
        key_with_user_id(&RSA_KEY, "a").expect("a user ID"),
        token(&KEYS[0], b"{}", JwtAlgorithm::Ps256).expect("claims"),
    ]);
    examples
});

fn examples_of(group_key: &AnyPublicKey) -> Vec<Vec<u8>> {
    let name = || "CN=www.example.org,O=Example".parse().expect("a name");
    let names = || vec!["*.example.org".parse().expect("a name"), "::1".parse().expect("a name")];
    let algorithm = SignatureAlgorithm::of(group_key);
    let certificate = CertificateFields {
        serial: vec![1],
        algorithm,
        issuer: name(),
        not_before: 1,
        not_after: 2_600_000_000,
        subject: name(),
        key: group_key.to_der(),
        is_authority: true,
        names: names(),
        purposes: CertificatePurpose::ALL.to_vec(),
    };
    let request =
        CertificationRequestFields { subject: name(), key: group_key.to_der(), names: names() };
    vec![
        certificate.to_signed_bytes(group_key),
        request.to_signed_bytes(),
        CmsAttributes::of(b"", algorithm, Some(1)).to_signed_bytes(),
        token(
            group_key,
            b"{\"a\":[1,2.5,null,true,\"b\"]}",
            JwtAlgorithm::default_of(group_key),
        )
        .expect("claims"),
    ]
}

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
            for key in &*KEYS {
                format.encoding(message, key).expect("it is of the format");
                let _ = format.check_key(message, key);
                let _ = format.wrap(message, &[1; 256], key, None);
            }
        }
    }
});
