use formats::SignatureAlgorithm;
use formats::jwt::{JwtAlgorithm, token};
use formats::openpgp::document;
use keys::{AnyPublicKey, RsaPublicKey};

use super::*;
use crate::protocol::group::{GroupKeyKind, HEADER_MAGIC};
use crate::protocol::policy::{MessageRefusal, check_signable};

const NOW: UnixSeconds = UnixSeconds(1_700_000_000);

fn rsa_key() -> RsaPublicKey {
    RsaPublicKey::new(&[0xc5; 256]).unwrap()
}

fn key() -> AnyPublicKey {
    rsa_key().into()
}

fn fields<const N: usize>(fields: [&str; N]) -> Vec<FieldRequirement> {
    fields.map(|field| field.parse().unwrap()).to_vec()
}

fn allows(content: &SignableContent, message: &[u8]) -> bool {
    let rules = [SigningRule { content: content.clone(), max_len: 1_000 }];
    check_signable(message, GroupKeyKind::Rsa, &rules, false, NOW).is_ok()
}

fn certificate_rule() -> CertificateRule {
    CertificateRule {
        issuer: "CN=Office".parse().unwrap(),
        subject: "CN=*.example.org,O=Example".parse().unwrap(),
        names: vec!["*.example.org".into(), "192.0.2.1".into()],
        purposes: vec![CertificatePurpose::ServerAuth],
        allows_authorities: false,
        max_validity_s: 86_400,
    }
}

fn certificate() -> CertificateFields {
    CertificateFields {
        serial: vec![1],
        algorithm: SignatureAlgorithm::RsaSha256,
        issuer: "CN=Office".parse().unwrap(),
        not_before: NOW.0,
        not_after: NOW.0 + 86_400,
        subject: "CN=www.example.org,O=Example".parse().unwrap(),
        key: key().to_der(),
        is_authority: false,
        names: vec!["www.example.org".parse().unwrap(), "192.0.2.1".parse().unwrap()],
        purposes: vec![CertificatePurpose::ServerAuth],
    }
}

#[test]
fn certificates_are_allowed_only_within_their_rule() {
    let content = SignableContent::Certificate(certificate_rule());
    let message = |certificate: &CertificateFields| certificate.to_signed_bytes(&key());
    assert!(allows(&content, &message(&certificate())));
    let name = |name: &str| vec![name.parse().unwrap()];
    let subject = |subject: &str| subject.parse().unwrap();
    for wrong in [
        CertificateFields { issuer: subject("CN=Another"), ..certificate() },
        CertificateFields { subject: subject("CN=www.example.org"), ..certificate() },
        CertificateFields { subject: subject("O=Example,CN=www.example.org"), ..certificate() },
        CertificateFields { subject: subject("CN=www.example.com,O=Example"), ..certificate() },
        CertificateFields { names: name("www.example.com"), ..certificate() },
        CertificateFields { names: name("a.b.example.org"), ..certificate() },
        CertificateFields { names: name("example.org"), ..certificate() },
        CertificateFields { names: name("*.example.org"), ..certificate() },
        CertificateFields { names: name("192.0.2.2"), ..certificate() },
        CertificateFields { names: name("a@www.example.org"), ..certificate() },
        CertificateFields { is_authority: true, ..certificate() },
        CertificateFields { purposes: vec![], ..certificate() },
        CertificateFields { purposes: vec![CertificatePurpose::CodeSigning], ..certificate() },
        CertificateFields { not_after: NOW.0 + 86_401, ..certificate() },
        CertificateFields { not_before: NOW.0 - 3_601, ..certificate() },
    ] {
        assert!(!allows(&content, &message(&wrong)), "{wrong}");
    }
    let authority = CertificateFields { is_authority: true, ..certificate() };
    let rule = CertificateRule { allows_authorities: true, ..certificate_rule() };
    assert!(allows(&SignableContent::Certificate(rule), &message(&authority)));
}

/// Programs that find no name of a host in the extension look for one in the subject.
#[test]
fn names_in_the_subject_are_names_of_the_rule() {
    let allows = |pattern: &str, subject: &str, names: &[&str]| {
        let mut rule = CertificateRule { subject: pattern.parse().unwrap(), ..certificate_rule() };
        rule.names.push("a@example.org".into());
        let names = names.iter().map(|name| name.parse().unwrap()).collect();
        let subject = subject.parse().unwrap();
        let message = CertificateFields { subject, names, ..certificate() }.to_signed_bytes(&key());
        allows(&SignableContent::Certificate(rule), &message)
    };
    for names in [&[][..], &["192.0.2.1"], &["www.example.org"]] {
        for (subject, expected) in [
            ("CN=www.example.org", true),
            ("CN=192.0.2.1", true),
            ("CN=a@example.org", true),
            ("CN=An example.com office", true),
            ("CN=www.example.com", false),
            ("CN=www.example.com.", false),
            ("CN=b\u{fc}cher.example", false),
            ("CN=*.example.org", false),
            ("CN=w*.example.org", false),
            ("CN=localhost", false),
            ("CN=192.0.2.2", false),
            ("CN=b@example.org", false),
        ] {
            assert_eq!(allows("CN=*", subject, names), expected, "{subject} {names:?}");
        }
        // The rule of the guide.
        assert!(!allows("CN=*.example.org", "CN=*.example.org", names));
        assert!(allows("CN=*.example.org", "CN=www.example.org", names));
        let both = "CN=*,emailAddress=*";
        assert!(allows(both, "CN=An office,emailAddress=a@example.org", names));
        assert!(!allows(both, "CN=An office,emailAddress=b@example.org", names));
        assert!(!allows(both, "CN=An office,emailAddress=b", names));
        // Each of several.
        assert!(!allows("CN=*,CN=*", "CN=www.example.org,CN=www.example.com", names));
    }
}

#[test]
fn json_objects_have_exactly_the_required_fields() {
    let content = SignableContent::Json(fields(["type=release", "version=1.*", "count?=3"]));
    for (message, expected) in [
        (r#"{"type":"release","version":"1.2"}"#, true),
        (r#" {"version": "1.", "count": 3, "type": "release"}"#, true),
        (r#"{"type":"release","version":"2.1.2"}"#, false),
        (r#"{"type":"release"}"#, false),
        (r#"{"type":"release","version":"1.2","more":1}"#, false),
        (r#"{"type":"release","version":"1.2","count":4}"#, false),
        (r#"{"type":"release","version":"1.2","count":[3]}"#, false),
        (r#"{"type":"release","version":"1.\u0000"}"#, false),
        (r#"{"type":"release","type":"release","version":"1.2"}"#, false),
        (r#"{"type":"other","type":"release","version":"1.2"}"#, false),
        (r#"{"type":"release","version":"1.2"} x"#, false),
        (r#"["type","release"]"#, false),
    ] {
        assert_eq!(allows(&content, message.as_bytes()), expected, "{message}");
    }
}

/// A text is no number and no truth value, even if they are written alike.
#[test]
fn fields_have_the_type_of_their_pattern() {
    for (pattern, value, expected) in [
        ("false", "false", true),
        ("false", "\"false\"", false),
        ("3", "3", true),
        ("3", "\"3\"", false),
        ("3", "3.0", false),
        ("-3", "-3", true),
        ("18446744073709551615", "18446744073709551615", true),
        ("18446744073709551615", "18446744073709551616", false),
        ("9007199254740993", "9007199254740992", false),
        ("1.*", "\"1.5\"", true),
        ("1.*", "1.5e300", false),
        ("*", "true", false),
        ("*", "3", false),
        ("\"3\"", "\"3\"", true),
        ("\"3\"", "3", false),
        ("\"1.0\"", "\"1.0\"", true),
        ("null", "null", false),
    ] {
        let content = SignableContent::Json(fields([&format!("a={pattern}")]));
        let message = format!("{{\"a\":{value}}}");
        assert_eq!(allows(&content, message.as_bytes()), expected, "{pattern} {value}");
    }
    for wrong in ["a=1.5", "a=1.0", "a=1e3", "a?=18446744073709551616"] {
        assert_eq!(wrong.parse::<FieldRequirement>(), Err(InvalidFieldRequirement), "{wrong}");
    }
}

#[test]
fn tokens_end_in_time_and_have_exactly_the_required_claims() {
    let claims = fields(["iss=office", "sub=*"]);
    let content = SignableContent::Token(TokenRule { claims, max_validity_s: 3_600 });
    for (claims, expected) in [
        (r#"{"iss":"office","sub":"a","exp":1700003600}"#, true),
        (r#"{"iss":"office","sub":"a","exp":1700003600,"iat":1,"nbf":1700000000}"#, true),
        (r#"{"iss":"office","sub":"a","exp":1700003601}"#, false),
        (r#"{"iss":"office","sub":"a","exp":"1700003600"}"#, false),
        (r#"{"iss":"office","sub":"a","exp":1700003600.5}"#, false),
        (r#"{"iss":"office","sub":"a"}"#, false),
        (r#"{"iss":"another","sub":"a","exp":1700003600}"#, false),
        (r#"{"iss":"office","sub":"a","exp":1700003600,"admin":true}"#, false),
    ] {
        let message = token(&key(), claims.as_bytes(), JwtAlgorithm::Rs256).unwrap();
        assert_eq!(allows(&content, &message), expected, "{claims}");
    }
}

#[test]
fn documents_begin_as_required_and_have_the_kind() {
    let rule = DocumentRule { prefix: b"object ".to_vec(), kinds: vec![OpenPgpKind::Binary] };
    let content = SignableContent::Document(rule);
    let message = |text: &[u8], kind| document(&rsa_key(), text, kind, 1_700_000_000).unwrap();
    assert!(allows(&content, &message(b"object 1", OpenPgpKind::Binary)));
    assert!(!allows(&content, &message(b"object 1", OpenPgpKind::Cleartext)));
    assert!(!allows(&content, &message(b"tree 1", OpenPgpKind::Binary)));
    assert!(allows(
        &content,
        &message(&[b"object ", &[b'a'; 993][..]].concat(), OpenPgpKind::Binary)
    ));
    assert!(!allows(
        &content,
        &message(&[b"object ", &[b'a'; 994][..]].concat(), OpenPgpKind::Binary)
    ));
    assert!(!allows(&content, b"object 1"));
}

/// A rule for one format allows no message of another one, and no rule allows a header.
#[test]
fn rules_allow_neither_other_formats_nor_headers() {
    let certificate = certificate().to_signed_bytes(&key());
    let document = document(&rsa_key(), b"release 1", OpenPgpKind::Binary, 1_700_000_000).unwrap();
    let token = token(&key(), b"{}", JwtAlgorithm::Rs256).unwrap();
    for message in [&certificate, &document, &token] {
        let prefix = SignableContent::Prefix(message[..4].to_vec());
        assert!(!allows(&prefix, message), "{message:?}");
        assert!(allows(&prefix, &[&message[..4], b" text"].concat()));
    }
    // The last five bytes are a trailer of OpenPGP, version 3: the document has the prefix, too.
    let prefix = SignableContent::Prefix(b"SSHSIG\0".to_vec());
    let signed = [b"SSHSIG\0", &[0x80; 64][..], &[0, 0x80, 0, 0, 1]].concat();
    assert!(allows(&prefix, &signed));
    assert!(allows(&SignableContent::Prefix(signed[..71].to_vec()), &signed));
    assert!(!allows(&SignableContent::Prefix(signed[..72].to_vec()), &signed));
    let header = [&HEADER_MAGIC[..], b"header"].concat();
    let document =
        openpgp::document(&rsa_key(), &header, OpenPgpKind::Binary, 1_700_000_000).unwrap();
    let rule = DocumentRule { prefix: vec![HEADER_MAGIC[0]], kinds: vec![OpenPgpKind::Binary] };
    let rules = [
        SigningRule::with_prefix(&HEADER_MAGIC[..1], 1_000),
        SigningRule { content: SignableContent::Document(rule), max_len: 1_000 },
    ];
    for message in [&header, &document] {
        assert_eq!(
            check_signable(message, GroupKeyKind::Rsa, &rules, false, NOW),
            Err(MessageRefusal::Header)
        );
        assert_eq!(
            check_signable(message, GroupKeyKind::Rsa, &rules, true, NOW),
            Err(MessageRefusal::Header)
        );
    }
}

#[test]
fn patterns_match_whole_texts() {
    for (pattern, text, expected) in [
        ("", "", true),
        ("a", "a", true),
        ("a", "ab", false),
        ("*", "", true),
        ("*", "a\nb", false),
        ("a*", "ab", true),
        ("*b", "ab", true),
        ("a*a", "a", false),
        ("a*b*c", "a-b-b-c", true),
        ("a*bc*c", "abc", false),
        ("a*b*c", "acb", false),
        ("**", "x", true),
    ] {
        assert_eq!(is_match(pattern, text), expected, "{pattern} {text}");
    }
    for wrong in ["", "a", "=a", "?=a"] {
        assert_eq!(wrong.parse::<FieldRequirement>(), Err(InvalidFieldRequirement), "{wrong}");
    }
}
