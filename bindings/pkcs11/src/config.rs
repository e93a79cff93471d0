//! Which quorums there are.
//!
//! `SUNDER_PKCS11_SOCKET` names the sockets of one quorum, separated by colons. Without it, the
//! file that `SUNDER_PKCS11_CONFIG` names is read, or else `/etc/sunder-pkcs11.toml`. Programs with
//! more permissions than their callers (setuid) read this file only.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use service::config::{ConfigKeys, ConfigProblem, ConfigProblems, ConfigTable, key, read};

/// The variable that names the sockets of one quorum.
pub const SOCKET_VARIABLE: &str = "SUNDER_PKCS11_SOCKET";

/// The variable that names the configuration.
pub const CONFIG_VARIABLE: &str = "SUNDER_PKCS11_CONFIG";

/// The configuration if the variables name none. Not in `/etc/sunder`, which only root can read.
pub const CONFIG_FILE: &str = "/etc/sunder-pkcs11.toml";

/// The label of a token that has no other.
const DEFAULT_LABEL: &str = "quorum";

/// The longest label, in bytes: the standard has 32.
const MAX_LABEL_LEN: usize = 32;

const MAX_QUORUMS: usize = 16;
const MAX_SOCKETS: usize = 16;

const KEYS: ConfigKeys = ConfigKeys(&[&[
    key("", "quorum", "[{ label = \"office\", sockets = [\"/run/sunder/quorum-office/api\"] }]"),
    key("quorum", "label", "\"office\""),
    key("quorum", "sockets", "[\"/run/sunder/quorum-office/api\"]"),
    key("quorum", "certificate", "\"office-certificate.pem\""),
]]);

/// A quorum of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenConfig {
    /// The label of the token and of its key, of 1 to 32 bytes.
    pub label: String,
    /// The sockets of the servers of the group, of which the first is asked first. At least one.
    pub sockets: Vec<PathBuf>,
    /// The file with the certificate of the group's key, and then of its issuers, in PEM.
    pub certificate: Option<PathBuf>,
}

/// The quorums of this process.
///
/// # Errors
/// If the configuration cannot be read or has errors: one line.
pub fn load() -> Result<Vec<TokenConfig>, String> {
    if let Some(sockets) = variable(SOCKET_VARIABLE) {
        let sockets: Vec<PathBuf> =
            env::split_paths(&sockets).filter(|it| !it.as_os_str().is_empty()).collect();
        if sockets.is_empty() || sockets.len() > MAX_SOCKETS {
            return Err(format!("{SOCKET_VARIABLE} names {} sockets, not 1 to 16", sockets.len()));
        }
        return Ok(vec![TokenConfig { label: DEFAULT_LABEL.into(), sockets, certificate: None }]);
    }
    let path = variable(CONFIG_VARIABLE).map_or_else(|| CONFIG_FILE.into(), PathBuf::from);
    let text = service::config::read_file(&path).map_err(|error| {
        format!("{error}; or name a server's socket in the variable {SOCKET_VARIABLE}")
    })?;
    let place = path.parent().unwrap_or(Path::new(""));
    parse(&text, place)
        .map_err(|problems| format!("{}{}", path.display(), problems.first().in_one_line(&text)))
}

/// A variable of the environment. A program that has more permissions than its caller (setuid, or
/// capabilities of its file) has none: its caller must not choose what it connects to or reads.
fn variable(name: &str) -> Option<OsString> {
    // SAFETY: it reads what the kernel has told the process.
    let has_more = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    if has_more { None } else { env::var_os(name) }
}

/// The quorums of a configuration in the folder `place`, to which paths are relative.
///
/// # Errors
/// All problems of the text.
pub fn parse(text: &str, place: &Path) -> Result<Vec<TokenConfig>, ConfigProblems> {
    read(text, KEYS, |table| {
        let tables = table.tables("quorum");
        if !(1..=MAX_QUORUMS).contains(&tables.len()) {
            let what = format!("{} quorums", tables.len());
            table.report(ConfigProblem::new(what, "give 1 to 16 tables [[quorum]]"));
        }
        // Read all, so that all errors are reported.
        let quorums: Vec<_> = tables.iter().map(|table| read_quorum(table, place)).collect();
        quorums.into_iter().collect()
    })
}

fn read_quorum(table: &ConfigTable<'_>, place: &Path) -> Option<TokenConfig> {
    let label = table.get("label").map_or_else(
        || Some(DEFAULT_LABEL.to_owned()),
        |value| {
            let text = value.text()?;
            if (1..=MAX_LABEL_LEN).contains(&text.len()) {
                return Some(text.to_owned());
            }
            value.refuse(format!("a label of {} bytes", text.len()), "give 1 to 32 bytes");
            None
        },
    );
    let sockets = table.require("sockets").and_then(|value| {
        let sockets = value.list()?;
        if !(1..=MAX_SOCKETS).contains(&sockets.len()) {
            value.refuse(format!("{} sockets", sockets.len()), "give 1 to 16");
            return None;
        }
        let paths = sockets.iter().map(|socket| Some(place.join(socket.text()?)));
        paths.collect::<Option<Vec<_>>>()
    });
    let certificate = match table.get("certificate") {
        Some(value) => Some(place.join(value.text()?)),
        None => None,
    };
    Some(TokenConfig { label: label?, sockets: sockets?, certificate })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUIDE: &str = include_str!("../../../docs/guides/quorum-programs.md");

    #[test]
    fn the_example_in_the_guide_is_a_configuration_with_all_settings() {
        let text = GUIDE.split("```toml\n[[quorum]]").nth(1).unwrap().split("```").next().unwrap();
        let read = parse(&format!("[[quorum]]{text}"), Path::new("/etc")).unwrap();
        let [office] = &read[..] else { panic!("{read:?}") };
        assert_eq!((office.label.as_str(), office.sockets.len()), ("office", 2));
        assert!(office.certificate.as_ref().unwrap().is_absolute());
        for name in KEYS.names("quorum") {
            assert!(GUIDE.contains(&format!("`{name}`")), "{name}: not in the guide");
        }
    }

    #[test]
    fn wrong_configurations_of_tokens_are_refused_with_the_remedy() {
        let long = format!("[[quorum]]\nsockets = [\"a\"]\nlabel = \"{}\"", "a".repeat(33));
        for (text, expected) in [
            ("", "0 quorums: give 1 to 16"),
            ("[[quorum]]", "sockets"),
            ("[[quorum]]\nsockets = []", "0 sockets: give 1 to 16"),
            ("[[quorum]]\nsockets = [\"a\"]\nlabel = \"\"", "a label of 0 bytes"),
            (&long, "a label of 33 bytes"),
            ("[[quorum]]\nsocket = [\"a\"]", "expected one of `label`, `sockets`"),
            ("[[quorum]]\nsockets = [\"a\"]\ncertificate = 1", "expected a string"),
        ] {
            let problems = parse(text, Path::new("")).unwrap_err();
            let line = problems.first().in_one_line(text);
            assert!(line.contains(expected), "{text}: {line}");
        }
        let read = parse("[[quorum]]\nsockets = [\"a\", \"/b\"]", Path::new("/etc")).unwrap();
        assert_eq!(read[0].sockets, [PathBuf::from("/etc/a"), PathBuf::from("/b")]);
        assert_eq!(read[0].label, "quorum");
    }
}
