//! What the commands that keep running have in common: how they read their configuration, and what
//! they give to other commands.

use std::io;
use std::path::Path;

use keys::trusted::TrustedFolder;
use service::config::{Problems, read_file};
use service::status::{ServiceStatus, StatusSocket};

use crate::console;
use crate::failure::Failure;

/// Reads the configuration of `sunder COMMAND`.
///
/// # Errors
/// When there is no such file, or it is no such configuration: what is wrong, and in which line.
pub(crate) fn load<T, E: Mistake>(
    command: &str,
    path: &Path,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, Failure> {
    let text = read_file(path).map_err(|error| Failure::Usage(error.to_string()))?;
    parse(&text).map_err(|error| {
        let path = path.display();
        let example = format!("example: sunder {command} --help");
        let has_doctor = ["proxy", "serve", "tunnel"].contains(&command);
        let doctor = if has_doctor {
            format!(", all mistakes: sunder doctor --config {path}")
        } else {
            String::new()
        };
        Failure::Usage(format!("{path}{}; {example}{doctor}", error.in_one_line(&text)))
    })
}

/// Why a configuration is none, and what is known of the place.
pub(crate) trait Mistake: std::fmt::Display {
    /// What to look for in the text.
    fn at(&self) -> At<'_>;

    /// The place and what is wrong there.
    fn in_one_line(&self, text: &str) -> String {
        let place = Place::of(self.at(), text);
        let line = place.line.map(|line| format!(", line {line}")).unwrap_or_default();
        let key = place.key.map(|key| format!("{key}: ")).unwrap_or_default();
        format!("{line}: {key}{self}")
    }
}

/// What a mistake is about.
#[derive(Clone, Copy)]
pub(crate) enum At<'a> {
    /// What the reader of TOML says.
    Toml(&'a toml::de::Error),
    /// A text in quotes.
    Text(&'a str),
    /// The last of some texts in quotes, and its key.
    Last(&'a str, &'a str),
    /// A key.
    Key(&'a str),
    /// A key and its value.
    Number(&'a str, usize),
    /// All of it.
    Whole,
}

/// A TOML reader's error as one line.
#[derive(Debug)]
pub(crate) struct TomlMistake(toml::de::Error);

impl From<toml::de::Error> for TomlMistake {
    fn from(error: toml::de::Error) -> Self {
        Self(error)
    }
}

impl std::fmt::Display for TomlMistake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.message().replace('\n', " "))
    }
}

impl Mistake for TomlMistake {
    fn at(&self) -> At<'_> {
        At::Toml(&self.0)
    }
}

impl Mistake for micss::config::ConfigError {
    fn at(&self) -> At<'_> {
        match self {
            Self::Toml(error) => At::Toml(error),
            Self::Target { text, .. }
            | Self::Matching { text, .. }
            | Self::Interface { text, .. } => At::Text(text),
            Self::Range { key, found, .. } => At::Number(key, *found),
            Self::Twice { text } => At::Last("addresses", text),
            Self::Directory(error) => error.at(),
            Self::Channels { .. } | Self::NothingToDo => At::Whole,
        }
    }
}

impl Mistake for Problems {
    fn at(&self) -> At<'_> {
        At::Whole
    }

    fn in_one_line(&self, text: &str) -> String {
        self.first().in_one_line(text)
    }
}

/// Where in a configuration something is wrong, as far as that is known.
#[derive(Default)]
struct Place {
    /// Counted from 1.
    line: Option<usize>,
    /// Only where the message does not name it.
    key: Option<String>,
}

impl Place {
    fn of(at: At<'_>, text: &str) -> Self {
        let first = |is: &dyn Fn(&str) -> bool| {
            let line = text.lines().position(is).map(|index| index + 1);
            Self { line, key: None }
        };
        match at {
            At::Toml(error) => Self::of_toml(error, text),
            At::Text(value) => first(&|line| line.contains(&format!("\"{value}\""))),
            At::Last(_, value) => {
                let quoted = format!("\"{value}\"");
                let lines = text.lines().enumerate().filter(|(_, line)| line.contains(&quoted));
                Self { line: lines.last().map(|(index, _)| index + 1), key: None }
            }
            At::Key(key) => first(&|line| line.trim_start().starts_with(key)),
            At::Number(key, value) => first(&|line| {
                let number = line.split_once('=').map(|(name, rest)| {
                    let digits = rest.trim_start().split(|c: char| !c.is_ascii_digit()).next();
                    (name.trim(), digits.and_then(|digits| digits.parse().ok()))
                });
                number == Some((key, Some(value)))
            }),
            At::Whole => Self::default(),
        }
    }

    fn of_toml(error: &toml::de::Error, text: &str) -> Self {
        let Some(span) = error.span() else { return Self::default() };
        let before = text.get(..span.start).unwrap_or(text);
        let index = before.matches('\n').count();
        let line = text.lines().nth(index).unwrap_or_default().trim();
        if error.message().starts_with("missing field") {
            // It is reported where its table begins, which for the outermost says nothing.
            let line = line.starts_with('[').then_some(index + 1);
            return Self { line, key: None };
        }
        let key = line.split_once('=').map(|(key, _)| key.trim().to_owned());
        let key = key.filter(|key| !error.message().contains(&format!("`{key}`")));
        Self { line: Some(index + 1), key }
    }
}

/// A command that keeps running, with what `sunder status` and `sunder doctor` need of it.
pub(crate) trait Daemon {
    /// The command's name.
    const NAME: &'static str;
    /// What it says about itself at its status socket.
    type Status: ServiceStatus;

    /// What `sunder status` shows of it, with the rates since `before`.
    fn page(now: &Self::Status, before: Option<&Self::Status>) -> String;
}

/// Answers at the status socket of a daemon, until what it returns is dropped.
pub(crate) fn answer_status<D: Daemon>(
    status: impl Fn() -> D::Status + Send + 'static,
) -> Option<StatusSocket> {
    let check =
        |directory: &Path| TrustedFolder::new(directory).map(drop).map_err(io::Error::other);
    StatusSocket::open(D::NAME, check, status)
}

/// Runs a service to its end, with its log on standard error.
///
/// # Errors
/// When the service fails, or cannot begin.
pub(crate) fn run(service: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    service::log::start(console::wants_colour(&io::stderr()))?;
    service::run(service)
}

#[cfg(test)]
pub(crate) mod tests {
    use micss::config::{ClientConfig, ConfigError, ServerConfig};

    use super::*;

    /// The settings that a reader of TOML knows, by what it says of one, `x`, that it does not
    /// know.
    pub(crate) fn settings(error: &str) -> Vec<&str> {
        let names: Vec<_> = error.split('`').skip(3).step_by(2).collect();
        assert!(error.contains("unknown field `x`") && !names.is_empty(), "{error}");
        names
    }

    /// Whether a text names this setting.
    pub(crate) fn names(text: &str, setting: &str) -> bool {
        text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == setting)
    }

    /// What is said about a configuration in `x.toml`.
    fn said<T>(text: &str, parse: impl FnOnce(&str) -> Result<T, ConfigError>) -> String {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.toml");
        std::fs::write(&path, text).unwrap();
        let Err(failure) = load("serve", &path, parse) else { panic!("{text}: taken") };
        assert_eq!(failure.code(), 2);
        let message = failure.message().strip_prefix(&directory.path().display().to_string());
        let (message, _) = message.unwrap().split_once("; example: sunder serve --help, ").unwrap();
        message.trim_start_matches('/').to_owned()
    }

    #[test]
    fn mistakes_are_found_by_line_and_key() {
        for (text, expected) in [
            (
                "listen = [\"1.2.3.4:5\"]\n\nallow = [\"x\"]\n",
                "x.toml, line 3: allow = \"x\": no port",
            ),
            (
                "allow = []\nlisten = [\"1.2.3.4\"]\n",
                "x.toml, line 2: listen: invalid socket address",
            ),
            (
                "allow = []\nlisten = [\n  \"1.2.3.4\",\n]\n",
                "x.toml, line 3: invalid socket address",
            ),
            ("allow = []\n", "x.toml: missing field `listen`"),
            ("# none\nallow = []\nrng = \"os\"\n", "x.toml: missing field `listen`"),
            ("allow = []\nlisten = []\n", "x.toml: 0 channels: give 1 to 16"),
            ("listen = []\nalow = []\n", "x.toml, line 2: unknown field `alow`"),
            (
                "listen = [\"1.2.3.4:5\"]\nallow = []\nmin_channels = 17\n",
                "x.toml, line 3: min_channels = 17: give 1 to 16",
            ),
            ("listen = [\n", "x.toml, line 1: "),
        ] {
            let said = said(text, ServerConfig::from_toml);
            assert!(said.starts_with(expected), "{said}");
            assert!(!said.contains('\n'), "{said}");
        }
        let text = "socks = \"127.0.0.1:0\"\n[[channel]]\nserver = \"1.2.3.4:5\"\nsource = \"x\"\n";
        let invalid = said(text, ClientConfig::from_toml);
        assert_eq!(invalid, "x.toml, line 4: source: invalid IP address syntax");
        let missing = said("socks = \"127.0.0.1:0\"\n\n[[channel]]\n", ClientConfig::from_toml);
        assert_eq!(missing, "x.toml, line 3: missing field `server`");
    }

    #[test]
    fn what_is_no_text_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        let said = |path: &Path| load("serve", path, ServerConfig::from_toml).unwrap_err();
        assert!(said(&path).message().starts_with("no such file"));
        assert!(said(directory.path()).message().contains("is a directory"));
        for bytes in [vec![0xFF], vec![b'#'; (1 << 20) + 1]] {
            std::fs::write(&path, bytes).unwrap();
            let failure = said(&path);
            assert!(failure.message().contains("must be text"), "{}", failure.message());
            assert_eq!(failure.code(), 2);
        }
    }
}
