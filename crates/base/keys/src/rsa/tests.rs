use std::fs;
use std::path::Path;
use std::process::Command;

use super::*;

/// Runs `openssl` in a folder; panics if it fails.
fn openssl(place: &Path, arguments: &str) {
    let output = Command::new("openssl")
        .args(arguments.split_whitespace())
        .current_dir(place)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A folder with a new key of `openssl`, and its public part.
fn new_key(options: &str) -> (tempfile::TempDir, String) {
    let place = tempfile::tempdir().unwrap();
    openssl(place.path(), &format!("genpkey -algorithm RSA {options} -out key"));
    openssl(place.path(), "pkey -in key -pubout -out public");
    let public = fs::read_to_string(place.path().join("public")).unwrap();
    (place, public)
}

#[test]
fn signatures_of_openssl_are_verified() {
    let (place, public) = new_key("-pkeyopt rsa_keygen_bits:2048");
    let key = RsaPublicKey::from_pem(&public).unwrap();
    assert_eq!(key.to_pem(), public);
    assert_eq!(RsaPublicKey::read(&place.path().join("public")).unwrap(), key);
    openssl(place.path(), "pkey -pubin -in public -outform DER -out der");
    assert_eq!(key.to_der(), fs::read(place.path().join("der")).unwrap());
    for (options, valid) in [
        ("-sha256", true),
        ("-sha256 -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:32", true),
        ("-sha256 -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:20", false),
        ("-sha384", false),
    ] {
        for message in [&b""[..], b"a message", &[0x5a; 10_000]] {
            fs::write(place.path().join("message"), message).unwrap();
            openssl(place.path(), &format!("dgst {options} -sign key -out signature message"));
            let signature = fs::read(place.path().join("signature")).unwrap();
            assert_eq!(key.verify(message, &signature), valid, "{options}");
            assert!(!key.verify(b"another", &signature));
            for byte in [0, 100, 255] {
                let mut wrong = signature.clone();
                wrong[byte] ^= 1;
                assert!(!key.verify(message, &wrong));
            }
            assert!(!key.verify(message, &signature[1..]));
            assert!(!key.verify(message, &[&[0], &signature[..]].concat()));
        }
    }
    for number in [vec![0; 256], vec![0xff; 256], key.modulus()] {
        assert!(!key.verify(b"a message", &number));
    }
}

#[test]
fn signatures_of_openssl_are_verified_in_one_encoding_only() {
    let (place, public) = new_key("-pkeyopt rsa_keygen_bits:2048");
    let key = RsaPublicKey::from_pem(&public).unwrap();
    fs::write(place.path().join("message"), "a message").unwrap();
    for (hash, expected) in [("-sha256", RsaEncoding::Pkcs1), ("-sha512", RsaEncoding::Pkcs1Sha512)]
    {
        openssl(place.path(), &format!("dgst {hash} -sign key -out signature message"));
        let signature = fs::read(place.path().join("signature")).unwrap();
        let pss = RsaEncoding::Pss { salt: [0; SALT_LEN] };
        for encoding in [RsaEncoding::Pkcs1, RsaEncoding::Pkcs1Sha512, pss] {
            let is_right = key.verify_encoding(&encoding, b"a message", &signature);
            assert_eq!(is_right, encoding == expected, "{hash} {encoding:?}");
            assert!(!key.verify_encoding(&encoding, b"another", &signature));
        }
        // Headers of groups are signed with SHA-256 only.
        assert_eq!(key.verify(b"a message", &signature), expected == RsaEncoding::Pkcs1);
    }
    let short = RsaPublicKey::danger_of_any_size(&[0xff; 64]).unwrap();
    assert!(!short.verify_encoding(&RsaEncoding::Pkcs1Sha512, b"a message", &[0; 64]));
    assert!(!short.verify_encoding(&RsaEncoding::Pkcs1Sha512, b"a message", &[]));
}

/// Checks everything that `verify` accepts against the definition of the encoding, with numbers
/// instead of signatures.
#[test]
fn only_the_encoding_itself_is_accepted() {
    let salt = [7; SALT_LEN];
    for len in [128, 256, 512] {
        let encoded = RsaEncoding::Pss { salt }.encode(b"a message", len).unwrap();
        assert_eq!((encoded.len(), encoded[0] >> 7), (len, 0));
        assert_eq!(RsaEncoding::pss_of(&encoded), Some(RsaEncoding::Pss { salt }));
        let encoded = RsaEncoding::Pkcs1.encode(b"a message", len).unwrap();
        assert_eq!((encoded.len(), &encoded[..3]), (len, &[0, 1, 0xff][..]));
    }
    for len in 0..70 {
        let pss = RsaEncoding::Pss { salt }.encode(b"a message", len);
        assert_eq!(pss.is_some(), len >= 66, "{len}");
        assert_eq!(RsaEncoding::Pkcs1.encode(b"a message", len).is_some(), len >= 62, "{len}");
        assert_eq!(RsaEncoding::Pkcs1Sha512.encode(b"a message", len), None, "{len}");
        assert_eq!(RsaEncoding::pss_of(&vec![1; len]).is_some(), len >= 65, "{len}");
    }
}

#[test]
fn other_keys_are_refused() {
    let (_, public) = new_key("-pkeyopt rsa_keygen_bits:1024 -pkeyopt rsa_keygen_pubexp:3");
    assert_eq!(RsaPublicKey::from_pem(&public), Err(RsaKeyError::Exponent));
    let (place, public) = new_key("-pkeyopt rsa_keygen_bits:1088");
    assert_eq!(RsaPublicKey::from_pem(&public), Err(RsaKeyError::Bits(1088)));
    let path = place.path().join("public");
    assert!(matches!(RsaPublicKey::read(&path), Err(KeyFileError::Rsa { .. })));
    assert_eq!(RsaPublicKey::from_pem("a key"), Err(RsaKeyError::Form));
    fs::write(&path, [0xff; 5000]).unwrap();
    let error = RsaPublicKey::read(&path).unwrap_err().to_string();
    assert!(error.contains("exponent 65537 in PEM form") && error.lines().count() == 1, "{error}");
    assert!(matches!(RsaPublicKey::read(place.path()), Err(KeyFileError::Unreadable { .. })));
    fs::remove_file(&path).unwrap();
    let missing = RsaPublicKey::read(&path).unwrap_err();
    assert!(matches!(missing, KeyFileError::Missing { .. }), "{missing}");
    // A new key would not be the one that signs.
    assert!(missing.to_string().ends_with("no such file; copy it from where it is"), "{missing}");

    assert_eq!(RsaPublicKey::new(&[0xfe; 128]), Err(RsaKeyError::Even));
    assert_eq!(RsaPublicKey::new(&[]), Err(RsaKeyError::Bits(0)));
    assert_eq!(RsaPublicKey::new(&[0, 0x7f]), Err(RsaKeyError::Bits(7)));
    let key = RsaPublicKey::new(&[0xff; 128]).unwrap();
    let der = key.to_der();
    for len in 0..der.len() {
        assert!(RsaPublicKey::from_pem(&pem::encode(&der[..len])).is_err());
    }
    let longer = pem::encode(&[&der[..], &[0]].concat());
    assert_eq!(RsaPublicKey::from_pem(&longer), Err(RsaKeyError::Exponent));
}
