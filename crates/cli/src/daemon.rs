//! What the commands that keep running have in common: how they read their configuration, what
//! they ask of the system, their log, and how they stop.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Read};
use std::path::Path;

use rustix::process::{Resource, Rlimit, getpid, getrlimit, kill_process, setrlimit};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};
use tracing_subscriber::EnvFilter;

use crate::console;
use crate::failure::Failure;

/// The longest configuration. Whoever names a disk by mistake is told so before memory runs out.
const MAX_CONFIG: u64 = 1 << 20;

/// Descriptors that a process needs besides those of its streams.
const SPARE_FILES: usize = 64;

/// Reads the configuration of `sunder COMMAND`.
///
/// # Errors
/// When there is no such file, or it is no such configuration: what is wrong, and in which line.
pub(crate) fn load<T, E: Mistake>(
    command: &str,
    path: &Path,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, Failure> {
    let text = read(path).map_err(|error| refuse(path, &error))?;
    parse(&text).map_err(|error| {
        let path = path.display();
        let place = Place::of(error.at(), &text);
        let line = place.line.map(|line| format!(", line {line}")).unwrap_or_default();
        let key = place.key.map(|key| format!("{key}: ")).unwrap_or_default();
        let example = format!("example: sunder {command} --help");
        let has_doctor = ["proxy", "serve", "tunnel"].contains(&command);
        let doctor = if has_doctor {
            format!(", all mistakes: sunder doctor --config {path}")
        } else {
            String::new()
        };
        Failure::Usage(format!("{path}{line}: {key}{error}; {example}{doctor}"))
    })
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let read = File::open(path)?.take(MAX_CONFIG + 1).read_to_string(&mut text)?;
    if read as u64 > MAX_CONFIG {
        return Err(ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

fn refuse(path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    Failure::Usage(match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            format!("no such file: {path}; check its name")
        }
        ErrorKind::IsADirectory => format!("{path} is a directory; name a file in it"),
        ErrorKind::InvalidData | ErrorKind::FileTooLarge => {
            format!("{path} is not a configuration: it must be text in UTF-8, 1 MiB at most")
        }
        _ => format!("cannot read {path}: {error}"),
    })
}

/// Why a configuration is none, and what is known of the place.
pub(crate) trait Mistake: std::fmt::Display {
    /// What to look for in the text.
    fn at(&self) -> At<'_>;
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

impl Mistake for remicss::config::ConfigError {
    fn at(&self) -> At<'_> {
        match self {
            Self::Toml(error) => At::Toml(error),
            Self::Range { key, .. } => At::Key(key),
            Self::Channels { .. } | Self::End { .. } | Self::Conflict(_) => At::Whole,
        }
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

/// Runs a service to its end, with its log on standard error.
///
/// # Errors
/// When the service fails, or cannot begin.
pub(crate) fn run(service: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    start_log()?;
    let runtime = runtime()?;
    let result = runtime.block_on(service);
    // A name that is still being looked up must not hold up the end.
    runtime.shutdown_background();
    result
}

/// A runtime with a thread for each processor.
///
/// # Errors
/// When the system gives no threads.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    Runtime::new().map_err(|error| Failure::Failed(format!("cannot start threads: {error}")))
}

fn start_log() -> Result<(), Failure> {
    let levels = std::env::var("RUST_LOG").unwrap_or_default();
    let levels = if levels.is_empty() { "info" } else { &levels };
    let filter = EnvFilter::try_new(levels).map_err(|error| {
        let error = error.to_string().replace('\n', " ");
        Failure::Usage(format!("RUST_LOG={levels}: {error}; RUST_LOG=debug shows more than usual"))
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(console::wants_colour(&io::stderr()))
        .with_writer(io::stderr)
        .init();
    Ok(())
}

/// What of a configuration takes descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Files {
    /// The most streams.
    pub(crate) streams: usize,
    /// How many descriptors each takes: one a channel and one for the application.
    pub(crate) each: usize,
    /// The connections that wait for a stream.
    pub(crate) waiting: usize,
}

impl Files {
    /// Lets this process have as many descriptors as the system allows. If that is not enough, returns what
    /// is possible, and warns if streams are fewer.
    pub(crate) fn budget(self) -> Self {
        let Some(limit) = raise_open_files() else { return self };
        let possible = self.within(usize::try_from(limit).unwrap_or(usize::MAX));
        if possible.streams < self.streams {
            warn!(
                "{} streams need {} open files, but the system allows {limit}: {} streams are \
                 possible; lower max_streams, or raise the limit (LimitNOFILE= in a unit of systemd, \
                 or ulimit -Hn)",
                self.streams,
                self.needed(),
                possible.streams
            );
        }
        possible
    }

    fn needed(self) -> usize {
        self.streams.saturating_mul(self.each).saturating_add(self.waiting + SPARE_FILES)
    }

    /// A quarter of the descriptors is enough for those that wait.
    fn within(self, limit: usize) -> Self {
        if self.needed() <= limit {
            return self;
        }
        let waiting = self.waiting.min(limit / 4).max(1);
        let left = limit.saturating_sub(waiting + SPARE_FILES);
        Self { streams: self.streams.min(left / self.each).max(1), waiting, ..self }
    }
}

/// Raises the limit of open files as far as it goes without privileges. Returns it, if there is
/// one.
pub(crate) fn raise_open_files() -> Option<u64> {
    let limits = getrlimit(Resource::Nofile);
    if limits.current == limits.maximum {
        return limits.current;
    }
    let raised = Rlimit { current: limits.maximum, maximum: limits.maximum };
    // Where that is not allowed, what there was has to do.
    if setrlimit(Resource::Nofile, raised).is_ok() { limits.maximum } else { limits.current }
}

/// The signals by which a person or the system asks a service to stop.
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// From here on, these signals no longer end the process by themselves.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Failure::Failed(format!("cannot wait for signals: {error}")))
        };
        let (interrupt, terminate) =
            (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate })
    }

    /// Waits for the next of them.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Runs a service until a signal comes, and then, told to `stop`, as long as it needs to do so in good
/// order; a second signal breaks it off. Returns what it returns.
///
/// # Errors
/// When it was broken off.
pub(crate) async fn until_stopped<T>(
    mut signals: StopSignals,
    service: impl Future<Output = T>,
    stop: impl FnOnce(),
) -> Result<T, Failure> {
    tokio::pin!(service);
    tokio::select! {
        ended = &mut service => return Ok(ended),
        () = signals.next() => {}
    }
    info!("stopping: what is under way may finish for a few seconds; a second signal ends it");
    stop();
    tokio::select! {
        ended = &mut service => {
            info!("stopped");
            Ok(ended)
        }
        () = signals.next() => {
            let message = "stopped by a second signal; what was under way was broken off";
            Err(Failure::Failed(message.into()))
        }
    }
}

/// Has a service load its configuration again whenever SIGHUP comes, on a thread that may wait, and take it.
/// What does not work is logged, and what was in force stays so. If SIGHUP comes because its terminal has
/// closed, the service is to stop.
pub(crate) fn reload_on_hangup<T: Send + 'static, F>(
    mut hangup: Signal,
    load: impl Fn() -> Result<T, Failure> + Clone + Send + 'static,
    take: impl Fn(T) -> F + Send + 'static,
) where
    F: Future<Output = io::Result<()>> + Send,
{
    let had_terminal = io::stderr().is_terminal();
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            if had_terminal && !io::stderr().is_terminal() {
                // The stop that this causes is in good order.
                let _ = kill_process(getpid(), rustix::process::Signal::TERM);
                return;
            }
            let loaded = tokio::task::spawn_blocking(load.clone()).await;
            let taken = match loaded {
                Ok(Ok(config)) => take(config).await.map_err(|error| error.to_string()),
                Ok(Err(failure)) => Err(failure.message().to_owned()),
                Err(panic) => Err(panic.to_string()),
            };
            match taken {
                Ok(()) => info!("the configuration was read again, and is in force"),
                Err(error) => warn!("the configuration before stays in force: {error}"),
            }
        }
    });
}

/// From here on, SIGHUP does not end the process by itself.
///
/// # Errors
/// When the system refuses.
pub(crate) fn hangups() -> Result<Signal, Failure> {
    let failed = |error| Failure::Failed(format!("cannot wait for signals: {error}"));
    signal(SignalKind::hangup()).map_err(failed)
}

#[cfg(test)]
pub(crate) mod tests {
    use micss::config::{ClientConfig, ConfigError, ServerConfig};

    use super::*;

    /// The settings that a reader of TOML knows, by what it says of one, `x`, that it does not know.
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
    fn streams_fit_the_open_files() {
        let wanted = Files { streams: 4096, each: 4, waiting: 8192 };
        assert_eq!(wanted.within(4096 * 4 + 8192 + SPARE_FILES), wanted);
        for limit in [64, 256, 1024, 4096, 20_000] {
            let possible = wanted.within(limit);
            assert!(possible.streams >= 1 && possible.streams < wanted.streams, "{possible:?}");
            assert!(possible.needed() <= limit.max(SPARE_FILES + 32), "{limit}: {possible:?}");
        }
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
