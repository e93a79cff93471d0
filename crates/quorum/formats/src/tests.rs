//! Messages of each format, and bytes that could be of two.

use keys::{Ed25519PublicKey, IdentitySecretKey, RsaPublicKey};
use proptest::prelude::*;

use super::*;
use crate::jwt::token;
use crate::openpgp::{OpenPgpKind, document, key_with_user_id};
use crate::x509::{AlternativeName, CertificatePurpose};

fn rsa_key() -> RsaPublicKey {
    let mut modulus = [0xc5; 256];
    modulus[255] = 0x0d;
    RsaPublicKey::new(&modulus).unwrap()
}

fn key() -> AnyPublicKey {
    rsa_key().into()
}

fn ed25519_key() -> AnyPublicKey {
    let public = IdentitySecretKey::new(&[7; 32]).public();
    Ed25519PublicKey::from_bytes(&public.to_bytes()).unwrap().into()
}

fn certificate() -> CertificateFields {
    certificate_by(&key())
}

fn certificate_by(key: &AnyPublicKey) -> CertificateFields {
    CertificateFields {
        serial: vec![0xf1, 2, 3],
        algorithm: SignatureAlgorithm::of(key),
        issuer: "CN=Office,O=A\\, B".parse().unwrap(),
        not_before: 1_700_000_000,
        not_after: 2_600_000_000,
        subject: "CN=www.example.org".parse().unwrap(),
        key: key.to_der(),
        is_authority: false,
        names: ["www.example.org", "*.example.org", "192.0.2.1", "2001:db8::1", "a@example.org"]
            .map(|name| name.parse::<AlternativeName>().unwrap())
            .to_vec(),
        purposes: vec![CertificatePurpose::ServerAuth, CertificatePurpose::CodeSigning],
    }
}

/// A message of each format.
fn messages() -> Vec<(SignatureFormat, Vec<u8>)> {
    let rsa = rsa_key();
    let document =
        |kind| document(&rsa, b"- a text \nof two lines\n", kind, 1_700_000_000).unwrap();
    let mut messages = messages_of(&key(), JwtAlgorithm::Ps256);
    messages.extend([
        (SignatureFormat::OpenPgp, document(OpenPgpKind::Binary)),
        (SignatureFormat::OpenPgp, document(OpenPgpKind::Cleartext)),
        (SignatureFormat::OpenPgpKey, key_with_user_id(&rsa, "Office <a@example.org>").unwrap()),
    ]);
    messages
}

/// A message of each format that signs with every kind of key.
fn messages_of(key: &AnyPublicKey, algorithm: JwtAlgorithm) -> Vec<(SignatureFormat, Vec<u8>)> {
    let request = CertificationRequestFields {
        subject: "CN=www.example.org,C=US".parse().unwrap(),
        key: key.to_der(),
        names: vec!["www.example.org".parse().unwrap()],
    };
    let attributes =
        |time| CmsAttributes::of(b"a", SignatureAlgorithm::of(key), time).to_signed_bytes();
    vec![
        (SignatureFormat::Raw, b"release 1.0\n".to_vec()),
        (SignatureFormat::X509Csr, request.to_signed_bytes()),
        (SignatureFormat::X509Cert, certificate_by(key).to_signed_bytes(key)),
        (SignatureFormat::Cms, attributes(Some(1_700_000_000))),
        (SignatureFormat::Cms, attributes(None)),
        (SignatureFormat::Jwt, token(key, b"{\"sub\": \"a\"}", algorithm).unwrap()),
    ]
}

#[test]
fn each_message_is_of_its_format_and_of_no_other() {
    for (format, message) in messages() {
        assert_eq!(SignatureFormat::of(&message), Ok(format));
        for other in SignatureFormat::ALL {
            let described = other.describe(&message);
            if other == format {
                assert_eq!(described.unwrap().lines().count(), 1);
            } else {
                assert_eq!(described, Err(FormatError::OtherFormat(format)));
            }
        }
        assert_eq!(format.check_key(&message, &key()), Ok(()));
    }
}

/// What is prepared for one kind of key is not signed by the other: verifiers would refuse it.
#[test]
fn each_message_is_for_one_kind_of_key() {
    let ed25519 = messages_of(&ed25519_key(), JwtAlgorithm::EdDsa);
    for (format, message) in &ed25519 {
        assert_eq!(SignatureFormat::of(message), Ok(*format));
        assert_eq!(format.check_key(message, &ed25519_key()), Ok(()));
        assert_eq!(format.encoding(message, &ed25519_key()), Ok(FormatEncoding::Ed25519));
    }
    let both = [(messages(), ed25519_key()), (ed25519, key())];
    for (messages, other) in both {
        for (format, message) in messages {
            let expected = match format {
                SignatureFormat::Raw => Ok(()),
                SignatureFormat::X509Csr => Err(FormatError::OtherKey),
                SignatureFormat::OpenPgp | SignatureFormat::OpenPgpKey => {
                    Err(FormatError::SignsDigest)
                }
                _ => Err(FormatError::OtherAlgorithm),
            };
            assert_eq!(format.check_key(&message, &other), expected, "{format:?}");
        }
    }
    for (key, algorithm) in [
        (key(), JwtAlgorithm::EdDsa),
        (ed25519_key(), JwtAlgorithm::Rs256),
        (ed25519_key(), JwtAlgorithm::Ps256),
    ] {
        assert_eq!(token(&key, b"{}", algorithm), Err(FormatError::OtherAlgorithm));
    }
}

#[test]
fn certificates_and_requests_are_parsed_to_their_fields() {
    let bytes = certificate().to_signed_bytes(&key());
    assert_eq!(CertificateFields::parse(&bytes), Ok(certificate()));
    let authority = CertificateFields { is_authority: true, names: vec![], ..certificate() };
    let bytes = authority.to_signed_bytes(&key());
    assert_eq!(CertificateFields::parse(&bytes), Ok(authority.clone()));
    let shown = authority.to_string();
    assert!(
        shown.starts_with("certificate of an authority for \"CN=www.example.org\" by "),
        "{shown}"
    );
    // A value does not look like the rest of the line.
    let other = CertificateFields { subject: "CN=a by CN=b\"".parse().unwrap(), ..certificate() };
    assert!(other.to_string().contains(r#" for "CN=a by CN=b\"" ("#), "{other}");
    let name: x509::DistinguishedName = "CN=Office, O=A\\, B\\\\C".parse().unwrap();
    assert_eq!(name.to_string(), "CN=Office,O=A\\, B\\\\C");
    for wrong in ["", "CN", "CN=", "XX=a", "CN=a,,O=b", "C=\u{e9}", "CN=a\nb", "CN=a\\"] {
        assert!(wrong.parse::<x509::DistinguishedName>().is_err(), "{wrong:?}");
    }
}

/// An attacker has something registered in one format that a verifier of another would accept.
#[test]
fn bytes_that_two_formats_sign_are_of_none() {
    let key = rsa_key();
    // A certificate whose last bytes, in its last name, are a trailer of OpenPGP.
    let signed = document(&key, b"", OpenPgpKind::Binary, 1_700_000_000).unwrap();
    let mut fields = der::sequence(&[&[0xa0, 3, 2, 1, 2], &der::value(0x04, &signed)]);
    assert!(OpenPgpMessage::parse(&fields).is_ok());
    assert_eq!(SignatureFormat::of(&fields), Err(FormatError::Ambiguous));
    // Signed attributes, likewise.
    fields = der::value(der::SET, &der::sequence(&[&[der::OID, 1, 1], &der::value(4, &signed)]));
    assert_eq!(SignatureFormat::of(&fields), Err(FormatError::Ambiguous));
    // A token whose payload is not encoded (RFC 7797), with a trailer of OpenPGP.
    let header = "eyJhbGciOiJSUzI1NiIsImI2NCI6ZmFsc2UsImNyaXQiOlsiYjY0Il19.".as_bytes();
    let token = document(&key, header, OpenPgpKind::Binary, 1_700_000_000).unwrap();
    assert_eq!(SignatureFormat::of(&token), Err(FormatError::Ambiguous));
    assert_eq!(
        SignatureFormat::of(&[header, b"any text"].concat()),
        Err(FormatError::Unsupported(SignatureFormat::Jwt))
    );
}

/// Bytes that are registered as they are must not be accepted in a format by a lenient verifier.
#[test]
fn lenient_forms_are_not_raw() {
    let certificate = certificate().to_signed_bytes(&key());
    let content = &certificate[4..];
    let lengths: [&[u8]; 3] =
        [&[0x80], &[0x83, 0, certificate[2], certificate[3]], &certificate[1..4]];
    for len in lengths {
        let end: &[u8] = if len == [0x80] { &[0, 0] } else { &[] };
        let lenient = [&[der::SEQUENCE], len, content, end].concat();
        assert_ne!(SignatureFormat::of(&lenient), Ok(SignatureFormat::Raw));
    }
    // A revocation list of version 1 begins with an algorithm.
    let list = der::sequence(&[SignatureAlgorithm::RsaSha256.to_der(), &[der::SEQUENCE, 0]]);
    assert_eq!(
        SignatureFormat::of(&list),
        Err(FormatError::Unsupported(SignatureFormat::X509Cert))
    );
    // Tags in the long form, which OpenSSL accepts.
    let attributes = CmsAttributes::of(b"a", SignatureAlgorithm::RsaSha256, None).to_signed_bytes();
    let long = |tag: u8, number: u8, rest: &[u8]| [&[tag, number], rest].concat();
    for lenient in [
        long(0x3f, 0x10, &certificate[1..]),
        [&[0x3f, 0x80], &long(0x80, 0x10, &certificate[1..])[..]].concat(),
        der::value(der::SEQUENCE, &long(0xbf, 0, &content[1..])),
        der::value(der::SEQUENCE, &long(0x1f, 2, &[1, 0])),
        der::sequence(&[&der::value(der::SEQUENCE, &long(0x1f, der::OID, &[1, 1]))]),
        long(0x3f, 0x11, &attributes[1..]),
        der::value(der::SET, &long(0x3f, 0x10, &attributes[3..])),
    ] {
        assert_ne!(SignatureFormat::of(&lenient), Ok(SignatureFormat::Raw), "{lenient:02x?}");
    }
    // OpenPGP, version 3: the type of a signature and a time; version 5 and 6.
    let unsupported = Err(FormatError::Unsupported(SignatureFormat::OpenPgp));
    let time = 1_700_000_000_u32.to_be_bytes();
    assert_eq!(SignatureFormat::of(&[b"a", &[0], &time[..]].concat()), unsupported);
    for (version, len) in [(5, &[0, 0, 0, 0, 0, 0, 0, 6][..]), (6, &[0, 0, 0, 6])] {
        let hashed = [version, 0, 1, 8, 0, 0];
        let message = [b"a", &hashed[..], &[version, 0xff], len].concat();
        assert_eq!(SignatureFormat::of(&message), unsupported, "{version}");
    }
}

/// Decoders of base64 skip characters, and differ in what they do with the last bits.
#[test]
fn headers_of_lenient_decoders_are_not_raw() {
    let digits = base64ct::Base64UrlUnpadded::encode_string;
    let header = r#"{"alg":"RS256"}"#;
    let wide: Vec<u8> = header.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let encoded = digits(header.as_bytes());
    for lenient in [
        format!("!!!!{encoded}"),
        format!("----{encoded}"),
        format!("////{encoded}"),
        format!("{}IB", digits(br#"{"alg":"RS256" "#)),
        format!("77u_{encoded}"),
        format!("77u/{encoded}"),
        digits(&wide),
        digits(format!("{}{header}", " ".repeat(1 << 17)).as_bytes()),
        digits(b"{\n \"alg\":\"RS256\"}"),
    ] {
        let found = SignatureFormat::of(format!("{lenient}.e30").as_bytes());
        assert_ne!(found, Ok(SignatureFormat::Raw), "{}", &lenient[..20]);
    }
}

/// An attacker has the group certify another key as its own.
#[test]
fn a_user_id_is_bound_to_the_key_that_signs_alone() {
    let own = key_with_user_id(&rsa_key(), "Office <a@example.org>").unwrap();
    let other = RsaPublicKey::new(&[0xc7; 256]).unwrap();
    let other = key_with_user_id(&other, "Office <a@example.org>").unwrap();
    let trailer = |message: &[u8]| message[message.len() - openpgp::MAX_TRAILER_LEN..].to_vec();
    let content = &other[..other.len() - openpgp::MAX_TRAILER_LEN];
    let attack = [content, &trailer(&own)].concat();
    let unsupported = Err(FormatError::Unsupported(SignatureFormat::OpenPgp));
    assert_eq!(SignatureFormat::of(&attack), unsupported);
    assert_eq!(OpenPgpKeyMessage::parse(&attack), Err(FormatError::OpenPgpKey));
    // Each key with its own trailer, of which one is the group's.
    assert_eq!(
        SignatureFormat::of(&[content, &trailer(&other)].concat()),
        Ok(SignatureFormat::OpenPgpKey)
    );
    assert_eq!(SignatureFormat::OpenPgpKey.check_key(&other, &key()), Err(FormatError::OtherKey));
    let shown = SignatureFormat::OpenPgpKey.describe(&own).unwrap();
    let fingerprint = openpgp::fingerprint(&rsa_key());
    assert!(shown.ends_with(&format!("{:X}", base16ct::HexDisplay(&fingerprint))), "{shown}");
}

/// A trailer of OpenPGP of version 3 is five bytes, of which most files have some at their end.
#[test]
fn files_that_end_like_a_trailer_of_version_3_are_raw_unless_they_are_keys_or_texts() {
    let time = 1_700_000_000_u32.to_be_bytes();
    let of = |content: &[u8], kind: u8| SignatureFormat::of(&[content, &[kind], &time].concat());
    let unsupported = Err(FormatError::Unsupported(SignatureFormat::OpenPgp));
    let image = [&b"SSHSIG"[..], &[0x80; 64]].concat();
    assert_eq!(of(&image, 0), Ok(SignatureFormat::Raw));
    assert_eq!(openpgp::version_3_content(&[&image[..], &[1], &time].concat()), Some(&image[..]));
    assert_eq!(openpgp::version_3_content(&[&image[..], &[2], &time].concat()), None);
    assert_eq!(openpgp::version_3_content(&[&image[..], &[1], &[0; 4]].concat()), None);
    let text = "Suite: stable\nDescription: \u{fc}ber\n";
    for kind in [0, 1] {
        assert_eq!(of(text.as_bytes(), kind), unsupported);
        assert_eq!(of(&[text.as_bytes(), &[0xfc, 0xfc]].concat(), kind), unsupported);
    }
    let key = key_with_user_id(&rsa_key(), "a").unwrap();
    for kind in [0x10, 0x13, 0x18, 0x30] {
        assert_eq!(of(&key[..key.len() - openpgp::MAX_TRAILER_LEN], kind), unsupported);
        assert_eq!(of(&image, kind), Ok(SignatureFormat::Raw));
    }
}

#[test]
fn ordinary_files_are_raw() {
    for text in [
        "",
        "0",
        "1.0\n",
        "0fe1c1d0c2c3f4b8  image.iso\n",
        "{\"type\":\"release\"}",
        "file.name\n",
        "a.b.c",
        "SSHSIG",
    ] {
        assert_eq!(SignatureFormat::of(text.as_bytes()), Ok(SignatureFormat::Raw), "{text:?}");
    }
    // Digits in every length: the second digit could be a length.
    for len in 0..300 {
        let text = vec![b'0'; len];
        assert_eq!(SignatureFormat::of(&text), Ok(SignatureFormat::Raw), "{len}");
    }
}

#[test]
fn texts_are_canonical_and_other_bytes_are_no_texts() {
    let key = rsa_key();
    let signed = |text: &[u8]| document(&key, text, OpenPgpKind::Cleartext, 1_700_000_000);
    let message = signed(b"- a\t \n\nb").unwrap();
    let parsed = OpenPgpMessage::parse(&message).unwrap();
    assert_eq!((parsed.content, parsed.created), (&b"- a\r\n\r\nb"[..], 1_700_000_000));
    // The digest is that of a file with LF, as most are.
    let shown = SignatureFormat::OpenPgp.describe(&signed(b"a\nb\n").unwrap()).unwrap();
    let fingerprint = openpgp::fingerprint(&key);
    assert_eq!(
        shown,
        format!(
            "cleartext OpenPGP signature of 4 bytes with SHA-256 {}, as lines that end with LF, \
             at 2023-11-14T22:13:20Z, by the key {:X}",
            sha256_text(b"a\nb\n"),
            base16ct::HexDisplay(&fingerprint)
        )
    );
    let form =
        SignatureFormat::OpenPgp.wrap(&message, &[1; 256], &key.clone().into(), None).unwrap();
    let form = String::from_utf8(form).unwrap();
    let begin =
        "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n- - a\n\nb\n-----BEGIN PGP SIG";
    assert!(form.starts_with(begin), "{form}");
    for wrong in [&b"\xff"[..], b"a\rb", b"a\0b"] {
        assert_eq!(signed(wrong), Err(FormatError::NotText));
    }
}

#[test]
fn claims_are_unambiguous_objects() {
    let token = |claims: &str| token(&key(), claims.as_bytes(), JwtAlgorithm::Rs256);
    for wrong in ["", "[]", "1", "{\"a\":1,\"a\":1}", "{\"a\":{\"b\":1,\"b\":2}}", "{}{}"] {
        assert_eq!(token(wrong), Err(FormatError::Claims), "{wrong}");
    }
    assert_eq!(json::parse_object(&vec![b'['; 100_000]), None);
    // A header with more than an algorithm, a type and a key.
    for header in [r#"{"alg":"none"}"#, r#"{"alg":"RS256","crit":["b64"]}"#, r#"{"typ":"JWT"}"#] {
        let digits = base64ct::Base64UrlUnpadded::encode_string;
        let message = format!("{}.{}", digits(header.as_bytes()), digits(b"{}"));
        assert_eq!(JwtMessage::parse(message.as_bytes()), Err(FormatError::Jwt), "{header}");
    }
    let message = token("{}").unwrap();
    assert!(JwtMessage::parse(&[&message[..], b"="].concat()).is_err());
}

/// RFC 7638, 3.1.
#[test]
fn the_thumbprint_of_a_key_is_that_of_the_standard() {
    let modulus = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tS\
        oc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FD\
        W2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6\
        WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw";
    let modulus = base64ct::Base64UrlUnpadded::decode_vec(modulus).unwrap();
    let key = jwt::json_web_key(&RsaPublicKey::new(&modulus).unwrap().into());
    assert_eq!(key["kid"], "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs");
    assert_eq!(key["e"], "AQAB");
    // RFC 8037, A.2 and A.3.
    let point = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
    let point = base64ct::Base64UrlUnpadded::decode_vec(point).unwrap();
    let key = Ed25519PublicKey::from_bytes(point.as_slice().try_into().unwrap()).unwrap();
    assert_eq!(
        jwt::json_web_key(&key.into()).to_string(),
        "{\"crv\":\"Ed25519\",\"kid\":\"kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k\",\
         \"kty\":\"OKP\",\"use\":\"sig\",\"x\":\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\"}"
    );
}

proptest! {
    /// Whatever was changed, it is refused or parsed, and has a form only if it is parsed.
    #[test]
    fn changed_messages_are_refused_or_parsed(
        which in 0..15_usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let mut messages = messages();
        messages.extend(messages_of(&ed25519_key(), JwtAlgorithm::EdDsa));
        let mut message = messages.swap_remove(which).1;
        for (at, byte) in changes {
            let at = at.index(message.len());
            message[at] = byte;
        }
        if is_cut {
            message.truncate(cut.index(message.len()));
        }
        let found = SignatureFormat::of(&message);
        for format in SignatureFormat::ALL {
            if let Ok(line) = format.describe(&message) {
                prop_assert_eq!(found, Ok(format));
                prop_assert!(!line.contains('\n'));
                for key in [key(), ed25519_key()] {
                    let _ = format.encoding(&message, &key).unwrap();
                    let _ = format.check_key(&message, &key);
                    let _ = format.wrap(&message, &[1; 256], &key, None);
                }
            }
        }
    }

    #[test]
    fn any_bytes_have_at_most_one_format(message in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = SignatureFormat::of(&message);
    }
}
