//! What daemons have in common: how they read their configuration, and what `sunder status` and
//! `sunder doctor` use of them.

use std::io;
use std::path::Path;

use console::CommandFailure;
use keys::trusted::TrustedFolder;
use service::config::{ConfigKeys, ConfigProblems, read_file};
use service::status::{ServiceStatus, StatusSocket, name_of};

use crate::checks::finding::CheckFinding;
use crate::checks::listeners::OwnListeners;

/// A command that keeps running, with what `sunder status` needs of it.
pub(crate) trait Daemon {
    /// The name of its pages and sockets.
    const NAME: &'static str;
    /// What the help of `sunder status` says of its page.
    const LEGEND: &'static str;
    /// What it reports at its status socket.
    type Status: ServiceStatus;

    /// What `sunder status` shows of it, with the rates since `before`.
    fn page(now: &Self::Status, before: Option<&Self::Status>) -> String;
}

/// A [`Daemon`] that has a configuration, with what `sunder doctor` needs of it.
pub(crate) trait ConfiguredDaemon: Daemon {
    /// The keys that its configuration may have.
    const KEYS: ConfigKeys;
    /// Its configuration.
    type Config;

    /// Reads its configuration from the text of a file in the directory `config_dir`.
    ///
    /// # Errors
    /// When the text is no such configuration: all its problems.
    fn parse(text: &str, config_dir: &Path) -> Result<Self::Config, ConfigProblems>;

    /// The name of its status with the configuration of this file.
    fn status_name(_config: &Self::Config, path: &Path) -> String {
        name_of(path)
    }

    /// Tests on this host what the configuration asks for. It changes nothing, and does not disturb
    /// what is running. `own` is where this daemon listens, if it runs.
    ///
    /// # Errors
    /// When the system gives no threads for the tests.
    fn examine(
        config: &Self::Config,
        own: &OwnListeners,
    ) -> Result<Vec<CheckFinding>, CommandFailure>;
}

/// Finds the listeners of the running daemon with a name.
pub(crate) type OwnListenersOf<'a> = &'a dyn Fn(&str) -> OwnListeners;

/// What `sunder doctor` uses of a [`ConfiguredDaemon`] daemon.
#[derive(Clone, Copy)]
pub(crate) struct DaemonExamination {
    /// See [`Daemon::NAME`].
    pub(crate) name: &'static str,
    /// See [`ConfiguredDaemon::KEYS`].
    pub(crate) keys: ConfigKeys,
    /// All problems of a text that is meant to be its configuration.
    pub(crate) problems: fn(&str) -> Option<ConfigProblems>,
    /// See [`ConfiguredDaemon::examine`]: the findings for a text without problems, of this file.
    pub(crate) findings:
        fn(&str, &Path, OwnListenersOf<'_>) -> Result<Vec<CheckFinding>, CommandFailure>,
}

impl DaemonExamination {
    /// That of a daemon.
    pub(crate) const fn of<D: ConfiguredDaemon>() -> Self {
        Self {
            name: D::NAME,
            keys: D::KEYS,
            problems: |text| D::parse(text, Path::new("")).err(),
            findings: |text, path, own_listeners| {
                let refused =
                    |problems: ConfigProblems| CommandFailure::Usage(problems.to_string());
                let config = D::parse(text, config_dir(path)).map_err(refused)?;
                D::examine(&config, &own_listeners(&D::status_name(&config, path)))
            },
        }
    }
}

/// Reads the configuration of `sunder COMMAND`. `other_owner` finds the daemon to which the text
/// belongs, if that is another one. `more` is added to an error.
///
/// # Errors
/// When there is no such file, or it is no such configuration: the first problem, with its line.
pub(crate) fn load_file<T>(
    command: &str,
    path: &Path,
    parse: impl FnOnce(&str) -> Result<T, ConfigProblems>,
    other_owner: impl FnOnce(&str) -> Option<&'static str>,
    more: &str,
) -> Result<T, CommandFailure> {
    let text = read_file(path).map_err(|error| CommandFailure::Usage(error.to_string()))?;
    parse(&text).map_err(|problems| {
        let (path, problem) = (path.display(), problems.first());
        CommandFailure::Usage(if let Some(owner) = other_owner(&text) {
            format!(
                "{path} is a configuration of sunder {owner}, not of sunder {command}: \
                 give another file, or run sunder {owner} --config {path}"
            )
        } else {
            let problem = problem.in_one_line(&text);
            format!("{path}{problem}; example: sunder {command} --help{more}")
        })
    })
}

/// The directory that a configuration is in.
pub(crate) fn config_dir(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// Answers at the status socket of a daemon until the returned value is dropped. It is called
/// before the daemon prints that it listens, so that a reader of that line can ask at once.
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
pub(crate) fn run(
    service: impl Future<Output = Result<(), CommandFailure>>,
) -> Result<(), CommandFailure> {
    service::log::start(console::wants_colour(&io::stderr()))?;
    service::run(service)
}

#[cfg(test)]
pub(crate) mod tests {
    use micss::config::{MicssClientConfig, MicssServerConfig};

    use super::*;

    /// Whether a text names this setting.
    pub(crate) fn names(text: &str, setting: &str) -> bool {
        text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == setting)
    }

    /// The error message for a configuration in `x.toml`.
    fn load_error<T>(text: &str, parse: impl FnOnce(&str) -> Result<T, ConfigProblems>) -> String {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.toml");
        std::fs::write(&path, text).unwrap();
        let loaded = load_file("serve", &path, parse, |_| None, ", all errors");
        let Err(failure) = loaded else { panic!("{text}: taken") };
        assert_eq!(failure.code(), 2);
        let message = failure.message().strip_prefix(&directory.path().display().to_string());
        let (message, _) = message.unwrap().split_once("; example: sunder serve --help, ").unwrap();
        message.trim_start_matches('/').to_owned()
    }

    #[test]
    fn configuration_errors_have_line_and_key() {
        for (text, expected) in [
            (
                "listen = [\"1.2.3.4:5\"]\n\nallow = [\"x\"]\n",
                "x.toml, line 3: allow = \"x\": no port",
            ),
            ("allow = []\nlisten = [\"1.2.3.4\"]\n", "x.toml, line 2: invalid socket address"),
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
            let message = load_error(text, MicssServerConfig::from_toml);
            assert!(message.starts_with(expected), "{message}");
            assert!(!message.contains('\n'), "{message}");
        }
        let text = "socks = \"127.0.0.1:0\"\n[[channel]]\nserver = \"1.2.3.4:5\"\nsource = \"x\"\n";
        let invalid = load_error(text, MicssClientConfig::from_toml);
        let fix = "write it as in: source = \"192.0.2.20\"";
        assert_eq!(invalid, format!("x.toml, line 4: invalid IP address syntax: {fix}"));
        let missing =
            load_error("socks = \"127.0.0.1:0\"\n\n[[channel]]\n", MicssClientConfig::from_toml);
        assert_eq!(missing, "x.toml, line 3: missing field `server`");
    }

    #[test]
    fn what_is_no_text_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        let failure_of = |path: &Path| {
            load_file("serve", path, MicssServerConfig::from_toml, |_| None, "").unwrap_err()
        };
        assert!(failure_of(&path).message().starts_with("no such file"));
        assert!(failure_of(directory.path()).message().contains("is a directory"));
        for bytes in [vec![0xFF], vec![b'#'; (1 << 20) + 1]] {
            std::fs::write(&path, bytes).unwrap();
            let failure = failure_of(&path);
            assert!(failure.message().contains("must be text"), "{}", failure.message());
            assert_eq!(failure.code(), 2);
        }
    }
}
