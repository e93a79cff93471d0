//! `sunder status`: shows the daemons on this host and the state of their channels.

mod scrape;

use std::fmt;
use std::fs;
use std::io::{ErrorKind, IsTerminal};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use console::CommandFailure;
use keys::trusted::{TrustError, TrustedFolder};
use serde::Serialize;
use service::metrics::Exposition;
#[cfg(feature = "tunnel")]
use service::status::ServiceStatus;
use service::status::{ServiceProblem, directory};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{DaemonStatus, LEGENDS, daemon_names};
use crate::checks::listeners::OwnListeners;
#[cfg(feature = "tunnel")]
use crate::checks::{closed, finding::CheckFinding};

/// Shows the daemons on this host, and the state of their channels.
#[derive(clap::Args)]
#[command(after_help = help())]
pub(crate) struct Arguments {
    /// Show only the daemons of these names or kinds, such as office, proxy-office or proxy
    /// [default: all]
    #[arg(value_name = "NAME", conflicts_with = "listen")]
    names: Vec<String>,

    /// Print one JSON document: a list with an entry for each daemon, with an `error` if it does
    /// not answer
    #[arg(long)]
    json: bool,

    /// Update the page every second, with rates, until interrupted
    #[arg(long, conflicts_with = "json")]
    watch: bool,

    /// Print metrics in the Prometheus text format
    #[arg(long, conflicts_with_all = ["json", "watch"])]
    metrics: bool,

    /// Serve the metrics over HTTP at this address, until interrupted
    #[arg(long, value_name = "ADDRESS:PORT", requires = "metrics")]
    listen: Option<SocketAddr>,
}

fn help() -> String {
    // Daemons with one kind of page have one legend.
    let mut legends = LEGENDS.to_vec();
    legends.dedup();
    format!(
        "Example: sunder status --watch
One daemon: sunder status office, or sunder status proxy-office if several
daemons have this name

A daemon is {},
or sunder transport relay, expose or forward.

{}

`–` is an unknown value; rates and `behind` need --watch.

Daemons are searched for in $RUNTIME_DIRECTORY or, without it, in /run/sunder
for root and in $XDG_RUNTIME_DIR/sunder for other users, and in the
subdirectories there.",
        daemon_names(),
        legends.join("\n\n")
    )
}

/// The time within which a daemon must answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The interval of updates.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum length of an answer, in bytes.
const MAX_ANSWER_LEN: u64 = 1 << 20;

/// Stands for an unknown value.
pub(super) const UNKNOWN: &str = "–";

/// A daemon that does not answer. It displays as one line for a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct UnresponsiveDaemon {
    kind: String,
    name: String,
    error: String,
}

impl UnresponsiveDaemon {
    fn new(socket: &Path, error: String) -> Self {
        let stem = socket.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let (kind, name) = stem.split_once('-').unwrap_or((&stem, ""));
        Self { kind: kind.into(), name: name.into(), error }
    }
}

impl fmt::Display for UnresponsiveDaemon {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}: {}", self.kind, self.name, self.error)
    }
}

/// The daemons on this host.
struct FoundDaemons {
    answers: Vec<DaemonStatus>,
    silent: Vec<UnresponsiveDaemon>,
}

/// An entry of the JSON document.
#[derive(Serialize)]
#[serde(untagged)]
enum DaemonDocument<'a> {
    Answer {
        #[serde(flatten)]
        status: &'a DaemonStatus,
        /// What is wrong, since when, and what to do.
        problems: Vec<ServiceProblem>,
    },
    Silent(&'a UnresponsiveDaemon),
}

/// Shows the daemons.
///
/// # Errors
/// If no daemon runs here, or none answers. The JSON document is printed all the same.
pub(crate) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    if let Some(address) = arguments.listen {
        return scrape::serve(address);
    }
    let runtime = service::runtime()?;
    let names = &arguments.names;
    let daemons = runtime.block_on(find_all()).and_then(|all| all.with_names(names));
    if arguments.json {
        let all = daemons.as_ref().map_or_else(|_| Vec::new(), FoundDaemons::entries);
        console::print_json(&all)?;
        return daemons.and_then(FoundDaemons::answers).map(drop);
    }
    #[cfg(feature = "tunnel")]
    {
        let running = daemons.as_ref().map_or(&[][..], |daemons| &daemons.answers);
        for CheckFinding { message, fix, .. } in closed_without_tunnel(running) {
            console::warning(&format!("{message}: {}", fix.unwrap_or_default()));
        }
    }
    let daemons = daemons?;
    for silent in &daemons.silent {
        console::warning(&silent.to_string());
    }
    let mut before = daemons.answers()?;
    if arguments.metrics {
        return console::print(metrics(&before).trim_end().as_bytes());
    }
    console::print(pages(&before, None).as_bytes())?;
    if !arguments.watch {
        return Ok(());
    }
    loop {
        thread::sleep(REFRESH_INTERVAL);
        let now = runtime.block_on(find_all())?.with_names(names)?.answers()?;
        if std::io::stdout().is_terminal() {
            console::print(b"\x1b[H\x1b[2J")?;
        }
        console::print(pages(&now, Some(&before)).as_bytes())?;
        before = now;
    }
}

/// The daemons that run on this host and answer; none if they cannot be asked.
pub(super) fn running() -> Vec<DaemonStatus> {
    let asked = service::runtime().ok().map(|runtime| runtime.block_on(ask_all()));
    asked.and_then(Result::ok).unwrap_or_default()
}

/// Where the daemon of this kind and name listens, if it runs on this host and says so.
pub(super) fn own_listeners(kind: &str, name: &str) -> OwnListeners {
    let running = running();
    let own = running.iter().find(|daemon| (daemon.kind(), daemon.name()) == (kind, name));
    OwnListeners(own.map(DaemonStatus::listen).unwrap_or_default())
}

/// The tunnels for which this host is closed although they are not among these daemons.
#[cfg(feature = "tunnel")]
pub(super) fn closed_without_tunnel(running: &[DaemonStatus]) -> Vec<CheckFinding> {
    let devices = running.iter().filter_map(|daemon| match daemon {
        DaemonStatus::Tunnel(tunnel) => Some(tunnel.name()),
        _ => None,
    });
    closed::closed_without_tunnel(&devices.collect::<Vec<_>>())
}

impl FoundDaemons {
    fn entries(&self) -> Vec<DaemonDocument<'_>> {
        let silent = self.silent.iter().map(DaemonDocument::Silent);
        let answers = self.answers.iter();
        let answers =
            answers.map(|status| DaemonDocument::Answer { status, problems: status.problems() });
        answers.chain(silent).collect()
    }

    /// Those with one of these names, or all if there are no names.
    ///
    /// # Errors
    /// If no daemon has one of the names.
    fn with_names(mut self, names: &[String]) -> Result<Self, CommandFailure> {
        let answers = self.answers.iter().map(|it| (it.kind(), it.name()));
        let silent = self.silent.iter().map(|it| (it.kind.as_str(), it.name.as_str()));
        let all: Vec<(&str, &str)> = answers.chain(silent).collect();
        let missing = names.iter().find(|name| !all.iter().any(|daemon| is_named(name, *daemon)));
        if let Some(missing) = missing {
            let all: Vec<String> =
                all.iter().map(|(kind, name)| format!("{kind}-{name}")).collect();
            let all = all.join(", ");
            return Err(CommandFailure::Failed(format!(
                "no daemon here has the name {missing}: there are {all}"
            )));
        }
        let is_wanted =
            |daemon: (&str, &str)| names.is_empty() || names.iter().any(|it| is_named(it, daemon));
        self.answers.retain(|it| is_wanted((it.kind(), it.name())));
        self.silent.retain(|it| is_wanted((&it.kind, &it.name)));
        Ok(self)
    }

    /// Those that answer.
    ///
    /// # Errors
    /// If there are none.
    fn answers(self) -> Result<Vec<DaemonStatus>, CommandFailure> {
        match (self.answers.is_empty(), self.silent.first()) {
            (false, _) => Ok(self.answers),
            (true, None) => Err(nothing("there is no status socket")),
            (true, Some(silent)) => Err(nothing(&format!("none answers: {silent}"))),
        }
    }
}

/// Whether the user wrote the name or the kind of this daemon, or both.
fn is_named(written: &str, (kind, name): (&str, &str)) -> bool {
    written == name
        || written == kind
        || written.strip_prefix(kind).and_then(|it| it.strip_prefix('-')) == Some(name)
}

fn nothing(why: &str) -> CommandFailure {
    CommandFailure::Failed(format!("no daemon runs here: {why}"))
}

/// The daemons that answer.
async fn ask_all() -> Result<Vec<DaemonStatus>, CommandFailure> {
    find_all().await?.answers()
}

/// Asks all daemons at the same time, so that one that does not answer hides no other.
async fn find_all() -> Result<FoundDaemons, CommandFailure> {
    let directory = directory().ok_or_else(|| nothing("RUNTIME_DIRECTORY is not set"))?;
    let shown = directory.display();
    let unreadable = || nothing(&format!("{shown} cannot be read; run this as the service's user"));
    let folder = TrustedFolder::new(&directory).map_err(|error| match error {
        TrustError::Unreadable { .. } => unreadable(),
        // Another user may have created the sockets there.
        error => nothing(&error.to_string()),
    })?;
    let mut sockets = sockets(&directory, &folder).map_err(|_| unreadable())?;
    sockets.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut asking = JoinSet::new();
    for (index, (path, folder)) in sockets.into_iter().enumerate() {
        asking.spawn(async move {
            let late = format!("it has not answered within {} s", ANSWER_TIMEOUT.as_secs());
            let answer = timeout(ANSWER_TIMEOUT, ask(&path, &folder)).await.unwrap_or(Err(late));
            (index, answer.map_err(|error| UnresponsiveDaemon::new(&path, error)))
        });
    }
    let mut asked = asking.join_all().await;
    asked.sort_by_key(|(index, _)| *index);
    let mut daemons = FoundDaemons { answers: Vec::new(), silent: Vec::new() };
    for (_, answer) in asked {
        match answer {
            Ok(status) => daemons.answers.push(status),
            Err(silent) => daemons.silent.push(silent),
        }
    }
    Ok(daemons)
}

/// The sockets in a directory and in its subdirectories, if those are trusted as well, each with
/// its directory.
fn sockets(
    directory: &Path,
    folder: &TrustedFolder,
) -> std::io::Result<Vec<(PathBuf, TrustedFolder)>> {
    let entries = |directory: &Path| -> std::io::Result<Vec<PathBuf>> {
        Ok(fs::read_dir(directory)?.flatten().map(|entry| entry.path()).collect())
    };
    let own = entries(directory)?;
    // Directories of other users cannot be read.
    let inner = own.iter().filter_map(|path| Some((entries(path).ok()?, path)));
    let inner = inner.filter_map(|(entries, path)| Some((entries, TrustedFolder::new(path).ok()?)));
    let mut all: Vec<(PathBuf, TrustedFolder)> = inner
        .flat_map(|(entries, folder)| entries.into_iter().map(move |path| (path, folder.clone())))
        .collect();
    all.extend(own.into_iter().map(|path| (path, folder.clone())));
    all.retain(|(path, _)| path.extension().is_some_and(|end| end == "sock"));
    Ok(all)
}

/// Asks the daemon at a socket in this directory, if its user is trusted there.
///
/// # Errors
/// In words, if it does not answer.
async fn ask(path: &Path, folder: &TrustedFolder) -> Result<DaemonStatus, String> {
    let shown = path.display();
    let stream = UnixStream::connect(path).await.map_err(|error| match error.kind() {
        ErrorKind::ConnectionRefused => {
            format!("it was killed, and has left {shown}; start it again, or rm {shown}")
        }
        _ => format!("{shown} does not answer: {error}"),
    })?;
    let broken = |error: std::io::Error| format!("{shown} does not answer: {error}");
    let user = stream.peer_cred().map_err(broken)?.uid();
    if !folder.trusts(user) {
        return Err(format!("user {user} answers at {shown}, and is not trusted: rm {shown}"));
    }
    let mut text = String::new();
    stream.take(MAX_ANSWER_LEN).read_to_string(&mut text).await.map_err(broken)?;
    let unknown = |_| {
        "it has another version than this command: install the same version for \
                       both"
            .to_owned()
    };
    let mut status: DaemonStatus = serde_json::from_str(&text).map_err(unknown)?;
    status.take_name_of(path);
    Ok(status)
}

/// The metrics of all daemons, in the Prometheus text format.
fn metrics(all: &[DaemonStatus]) -> String {
    let mut exposition = Exposition::default();
    for daemon in all {
        daemon.expose(&mut exposition);
    }
    exposition.text()
}

/// The pages of all daemons, with the rates since `before`.
fn pages(now: &[DaemonStatus], before: Option<&[DaemonStatus]>) -> String {
    let page = |status: &DaemonStatus| {
        let before = before
            .into_iter()
            .flatten()
            .find(|other| (other.kind(), other.name()) == (status.kind(), status.name()));
        let before = before.filter(|before| before.uptime_s() < status.uptime_s());
        let page = status.page(before);
        let problems: Vec<String> = status.problems().iter().map(ToString::to_string).collect();
        if problems.is_empty() {
            return page;
        }
        format!("{}\n\n{}", page.trim_end(), problems.join("\n"))
    };
    let pages = now.iter().map(page).collect::<Vec<_>>().join("\n\n");
    // A terminal interprets control characters.
    pages.lines().map(console::printable).collect::<Vec<_>>().join("\n")
}

/// A number, or [`UNKNOWN`].
pub(super) fn format_number(number: Option<f64>, digits: usize, unit: &str) -> String {
    number.map_or_else(|| UNKNOWN.to_owned(), |number| format!("{number:.digits$}{unit}"))
}

/// The rate in Mbit/s of a counter of bytes; both values come with their time in seconds.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
pub(super) fn rate(now: (f64, u64), before: Option<(f64, u64)>) -> Option<f64> {
    let (since, bytes) = before?;
    Some(now.1.saturating_sub(bytes) as f64 * 8e-6 / (now.0 - since))
}
