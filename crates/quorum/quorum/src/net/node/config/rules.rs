//! `[[rule]]`: which messages are signed without being registered.

use formats::openpgp::OpenPgpKind;
use formats::x509::{CertificatePurpose, DistinguishedName};
use service::config::{ConfigKey, ConfigTable, key};

use crate::protocol::policy::{
    CertificateRule, DocumentRule, FieldRequirement, SignableContent, SigningRule, TokenRule,
};
use crate::protocol::signing::MAX_MESSAGE_LEN;

/// The keys of a rule.
pub(super) const RULE_KEYS: &[ConfigKey] = &[
    key("rule", "format", "\"raw\""),
    key("rule", "prefix", "\"release \""),
    key("rule", "prefix_hex", "\"72656c65617365\""),
    key("rule", "max_len", "200"),
    key("rule", "fields", "[\"type=release\", \"version=*\"]"),
    key("rule", "signatures", "[\"detached\"]"),
    key("rule", "issuer", "\"CN=Office,O=Example\""),
    key("rule", "subject", "\"CN=*.example.org\""),
    key("rule", "names", "[\"*.example.org\"]"),
    key("rule", "purposes", "[\"server-auth\"]"),
    key("rule", "authorities", "false"),
    key("rule", "max_validity", "\"90d\""),
];

/// The kinds of rules, and the keys that each has besides `format` and `max_len`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RuleFormat {
    #[default]
    Raw,
    Json,
    OpenPgp,
    X509Cert,
    Jwt,
}

const FORMATS: [(&str, RuleFormat); 5] = [
    ("raw", RuleFormat::Raw),
    ("json", RuleFormat::Json),
    ("openpgp", RuleFormat::OpenPgp),
    ("x509-cert", RuleFormat::X509Cert),
    ("jwt", RuleFormat::Jwt),
];

impl RuleFormat {
    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Raw => &["prefix", "prefix_hex"],
            Self::Json => &["fields"],
            Self::OpenPgp => &["prefix", "prefix_hex", "signatures"],
            Self::X509Cert => {
                &["issuer", "subject", "names", "purposes", "authorities", "max_validity"]
            }
            Self::Jwt => &["fields", "max_validity"],
        }
    }
}

/// Reads a rule, and reports what is wrong with it.
pub(super) fn read_rule(table: &ConfigTable<'_>) -> Option<SigningRule> {
    let format = match table.get("format") {
        None => RuleFormat::Raw,
        Some(value) => value.choice(&FORMATS)?,
    };
    let max = i64::try_from(MAX_MESSAGE_LEN).unwrap_or(i64::MAX);
    let max_len = match table.get("max_len") {
        None => Some(MAX_MESSAGE_LEN),
        Some(value) => value.integer_in(1..=max),
    };
    let content = match format {
        RuleFormat::Raw => prefix(table).map(SignableContent::Prefix),
        RuleFormat::Json => fields(table).map(SignableContent::Json),
        RuleFormat::OpenPgp => document(table).map(SignableContent::Document),
        RuleFormat::X509Cert => certificate(table).map(SignableContent::Certificate),
        RuleFormat::Jwt => token(table).map(SignableContent::Token),
    };
    let mut others = RULE_KEYS
        .iter()
        .map(|key| key.name)
        .filter(|name| !["format", "max_len"].contains(name) && !format.keys().contains(name));
    // A setting that a rule ignored would be one that does not limit it.
    if let Some((name, value)) = others.find_map(|name| Some((name, table.get(name)?))) {
        let is_typed = match name {
            "authorities" => value.flag().is_some(),
            "prefix" | "prefix_hex" | "issuer" | "subject" | "max_validity" => {
                value.text().is_some()
            }
            _ => value.list().is_some_and(|list| list.iter().all(|it| it.text().is_some())),
        };
        // A value that no format takes is reported as that.
        if is_typed {
            let (what, keys) =
                ("not a setting of a rule of this `format`", format.keys().join(", "));
            value.refuse(what, format!("leave it out: {keys}"));
        }
        return None;
    }
    Some(SigningRule { content: content?, max_len: max_len? })
}

fn prefix(table: &ConfigTable<'_>) -> Option<Vec<u8>> {
    let (text, digits) = (table.get("prefix"), table.get("prefix_hex"));
    let (value, bytes) = match (text, digits) {
        (_, None) => {
            let value = table.require("prefix")?;
            let text = value.text()?;
            (value, text.as_bytes().to_vec())
        }
        (None, Some(value)) => {
            let Ok(bytes) = base16ct::mixed::decode_vec(value.text()?) else {
                value.refuse("not hexadecimal digits", "write two for each byte, as in \"7f45\"");
                return None;
            };
            (value, bytes)
        }
        (Some(_), Some(value)) => {
            value.refuse("both `prefix` and `prefix_hex` are given", "leave one of them out");
            return None;
        }
    };
    if bytes.is_empty() {
        value.refuse("an empty prefix allows every message", "write how the messages begin");
        return None;
    }
    Some(bytes)
}

fn fields(table: &ConfigTable<'_>) -> Option<Vec<FieldRequirement>> {
    let list = table.require("fields")?;
    let fix = "write NAME=VALUE, with * for any characters, or NAME?=VALUE if it may be missing; \
               numbers are whole, and a text that looks like a number is in quotes";
    let fields = list.list()?;
    if fields.is_empty() {
        list.refuse("no fields", fix);
        return None;
    }
    // Parse all, so that all errors are reported.
    let fields = fields.iter().map(|field| field.parsed_or::<FieldRequirement>(fix));
    fields.collect::<Vec<_>>().into_iter().collect()
}

fn document(table: &ConfigTable<'_>) -> Option<DocumentRule> {
    let prefix = prefix(table);
    let kinds = [("detached", OpenPgpKind::Binary), ("cleartext", OpenPgpKind::Cleartext)];
    let kinds = match table.get("signatures") {
        None => Some(vec![OpenPgpKind::Binary]),
        Some(list) => list.list()?.iter().map(|value| value.choice(&kinds)).collect(),
    };
    Some(DocumentRule { prefix: prefix?, kinds: kinds? })
}

fn certificate(table: &ConfigTable<'_>) -> Option<CertificateRule> {
    let fix = "write a name as in \"CN=Office,O=Example\"";
    let name =
        |key: &str| table.require(key).and_then(|value| value.parsed_or::<DistinguishedName>(fix));
    let (issuer, subject) = (name("issuer"), name("subject"));
    let names = match table.get("names") {
        None => Some(Vec::new()),
        Some(list) => list.list()?.iter().map(|it| it.text().map(str::to_owned)).collect(),
    };
    let known = CertificatePurpose::ALL.map(|purpose| (purpose.name(), purpose));
    let purposes = match table.get("purposes") {
        None => Some(vec![CertificatePurpose::ServerAuth]),
        Some(list) => list.list()?.iter().map(|value| value.choice(&known)).collect(),
    };
    let allows_authorities = match table.get("authorities") {
        None => Some(false),
        Some(value) => value.flag(),
    };
    let max_validity_s = max_validity(table);
    Some(CertificateRule {
        issuer: issuer?,
        subject: subject?,
        names: names?,
        purposes: purposes?,
        allows_authorities: allows_authorities?,
        max_validity_s: max_validity_s?,
    })
}

fn token(table: &ConfigTable<'_>) -> Option<TokenRule> {
    let (claims, max_validity_s) = (fields(table), max_validity(table));
    Some(TokenRule { claims: claims?, max_validity_s: max_validity_s? })
}

/// In seconds.
fn max_validity(table: &ConfigTable<'_>) -> Option<u64> {
    let value = table.require("max_validity")?;
    let period = humantime::parse_duration(value.text()?);
    let seconds = period.map(|period| period.as_secs()).ok().filter(|seconds| *seconds > 0);
    if seconds.is_none() {
        value.refuse("not a period", "give one such as \"90d\" or \"1h\"");
    }
    seconds
}

#[cfg(test)]
mod tests {
    use super::super::QuorumNodeConfig;
    use super::*;

    const BEFORE: &str = "identity = \"i\"\npublic_key = \"p\"\nstore = \"s\"\nmaster_key = \"m\"\n\
                          listen = [\"192.0.2.1:6530\"]\nsocket = \"q.sock\"\n[[rule]]\n";

    fn read(rule: &str) -> Result<SigningRule, String> {
        let config = QuorumNodeConfig::from_toml(&format!("{BEFORE}{rule}"));
        let mut config = config.map_err(|problems| problems.first().to_string())?;
        Ok(config.rules.remove(0))
    }

    #[test]
    fn each_format_has_its_rule() {
        assert_eq!(read("prefix_hex = \"7f45\""), Ok(SigningRule::with_prefix(b"\x7fE", 1 << 20)));
        let json = read("format = \"json\"\nfields = [\"type=release\", \"version?=*\"]").unwrap();
        assert!(matches!(json.content, SignableContent::Json(fields) if fields.len() == 2));
        let document = read("format = \"openpgp\"\nprefix = \"object \"\nmax_len = 9").unwrap();
        let rule = DocumentRule { prefix: b"object ".to_vec(), kinds: vec![OpenPgpKind::Binary] };
        assert_eq!(document.content, SignableContent::Document(rule));
        let certificate = read(
            "format = \"x509-cert\"\nissuer = \"CN=Office\"\nsubject = \"CN=*\"\n\
             names = [\"*.example.org\"]\nmax_validity = \"90d\"",
        );
        let SignableContent::Certificate(rule) = certificate.unwrap().content else { panic!() };
        assert_eq!((rule.max_validity_s, rule.allows_authorities), (90 * 86_400, false));
        assert_eq!(rule.purposes, [CertificatePurpose::ServerAuth]);
        let token = read("format = \"jwt\"\nfields = [\"iss=office\"]\nmax_validity = \"1h\"");
        assert!(matches!(token.unwrap().content, SignableContent::Token(_)));
    }

    #[test]
    fn wrong_rules_are_refused() {
        for (rule, expected) in [
            ("max_len = 3", "missing field `prefix`"),
            ("prefix = \"\"", "an empty prefix"),
            ("prefix = \"a\"\nprefix_hex = \"61\"", "both `prefix` and `prefix_hex`"),
            ("prefix_hex = \"6\"", "not hexadecimal digits"),
            ("prefix = \"a\"\nissuer = \"CN=a\"", "not a setting of a rule of this `format`"),
            ("format = \"pdf\"", "pdf"),
            ("format = \"json\"", "missing field `fields`"),
            ("format = \"json\"\nfields = []", "no fields"),
            ("format = \"json\"\nfields = [\"type\"]", "write NAME=VALUE"),
            ("format = \"json\"\nfields = [\"version=1.0\"]", "in quotes"),
            ("format = \"jwt\"\nfields = [\"a=b\"]", "missing field `max_validity`"),
            ("format = \"openpgp\"\nprefix = \"a\"\nsignatures = [\"x\"]", "detached"),
            (
                "format = \"x509-cert\"\nissuer = \"x\"\nsubject = \"CN=*\"\n\
                 max_validity = \"1d\"",
                "CN=Office,O=Example",
            ),
        ] {
            let found = read(rule).unwrap_err();
            assert!(found.contains(expected), "{rule}: {found}");
        }
    }
}
