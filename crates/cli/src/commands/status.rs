//! `sunder status`: what runs on this host, and how its channels are.

mod scrape;

use std::fs;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use keys::trusted::{TrustError, TrustedFolder};
use service::metrics::Exposition;
use service::status::directory;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::DaemonStatus;
use crate::console;
use crate::failure::Failure;

/// Shows what runs here: proxies, servers and tunnels, and how each of their channels is.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder status --watch\n\n\
    Of a tunnel, `out` is what this end sends: a channel's state, loss and delay that way are as the peer\n\
    reports them. `in` is what arrives here. A rate that is `set` is from the configuration, a `guess` is\n\
    what a tunnel starts with, and `at least` is what a channel carried that was asked for no more; else\n\
    it was measured. `wrong` counts shares that were changed.\n\
    Of a proxy or a server, `behind` is how much of the time streams waited for a channel while another had\n\
    brought more, and `ready` counts connections that wait for a stream.\n\
    `–` is not known; rates, and `behind`, take --watch.\n\n\
    What runs is found in $RUNTIME_DIRECTORY, or in /run/sunder by root, or in $XDG_RUNTIME_DIR/sunder,\n\
    and in the directories there.")]
pub(crate) struct Arguments {
    /// Print one JSON document, a list with an entry for each that runs
    #[arg(long)]
    json: bool,

    /// Show it again every second, with rates, until interrupted
    #[arg(long, conflicts_with = "json")]
    watch: bool,

    /// Print it as Prometheus reads it
    #[arg(long, conflicts_with_all = ["json", "watch"])]
    metrics: bool,

    /// Answer Prometheus over HTTP at this address, until interrupted
    #[arg(long, value_name = "ADDRESS:PORT", requires = "metrics")]
    listen: Option<SocketAddr>,
}

/// How long one may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often it is shown again.
const PERIOD: Duration = Duration::from_secs(1);

/// The longest answer.
const MAX_ANSWER: u64 = 1 << 20;

/// What is not known.
pub(super) const UNKNOWN: &str = "–";

/// Shows what runs.
///
/// # Errors
/// When nothing runs here, or does not answer.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(address) = arguments.listen {
        return scrape::serve(address);
    }
    let runtime = service::runtime()?;
    let mut before = runtime.block_on(ask_all())?;
    if arguments.json {
        return console::print_json(&before);
    }
    if arguments.metrics {
        return console::print(metrics(&before).trim_end().as_bytes());
    }
    console::print(pages(&before, None).as_bytes())?;
    if !arguments.watch {
        return Ok(());
    }
    loop {
        thread::sleep(PERIOD);
        let now = runtime.block_on(ask_all())?;
        if std::io::stdout().is_terminal() {
            console::print(b"\x1b[H\x1b[2J")?;
        }
        console::print(pages(&now, Some(&before)).as_bytes())?;
        before = now;
    }
}

/// Asks everyone who runs here, all at the same time: one that does not answer hides no other.
async fn ask_all() -> Result<Vec<DaemonStatus>, Failure> {
    let nothing = |why: &str| Failure::Failed(format!("nothing runs here: {why}"));
    let directory = directory().ok_or_else(|| nothing("RUNTIME_DIRECTORY is not set"))?;
    let shown = directory.display();
    let unreadable = || nothing(&format!("{shown} cannot be read; run this as the service's user"));
    let folder = TrustedFolder::new(&directory).map_err(|error| match error {
        TrustError::Unreadable { .. } => unreadable(),
        // Whatever answers there may be somebody else's.
        error => nothing(&error.to_string()),
    })?;
    let mut sockets = sockets(&directory, &folder).map_err(|_| unreadable())?;
    sockets.sort_by(|(one, _), (other, _)| one.cmp(other));
    // A socket that nobody answers at is left from a service that was killed.
    let mut asking = JoinSet::new();
    for (place, (path, folder)) in sockets.into_iter().enumerate() {
        asking.spawn(async move {
            (place, timeout(PATIENCE, ask(&path, &folder)).await.ok().flatten())
        });
    }
    let mut answers = asking.join_all().await;
    answers.sort_by_key(|(place, _)| *place);
    let answers: Vec<DaemonStatus> = answers.into_iter().filter_map(|(_, told)| told).collect();
    if answers.is_empty() {
        Err(nothing(&format!("nobody answers in {shown}")))
    } else {
        Ok(answers)
    }
}

/// The sockets in a directory, and in those of the directories there that are trusted as it is.
/// Each with the one that it is in.
fn sockets(
    directory: &Path,
    folder: &TrustedFolder,
) -> std::io::Result<Vec<(PathBuf, TrustedFolder)>> {
    let entries = |directory: &Path| -> std::io::Result<Vec<PathBuf>> {
        Ok(fs::read_dir(directory)?.flatten().map(|entry| entry.path()).collect())
    };
    let own = entries(directory)?;
    // Those of other users cannot be read.
    let inner = own.iter().filter_map(|path| Some((entries(path).ok()?, path)));
    let inner = inner.filter_map(|(entries, path)| Some((entries, TrustedFolder::new(path).ok()?)));
    let mut all: Vec<(PathBuf, TrustedFolder)> = inner
        .flat_map(|(entries, folder)| entries.into_iter().map(move |path| (path, folder.clone())))
        .collect();
    all.extend(own.into_iter().map(|path| (path, folder.clone())));
    all.retain(|(path, _)| path.extension().is_some_and(|end| end == "sock"));
    Ok(all)
}

/// Asks whoever listens at a socket in this folder, if it is somebody who is trusted there.
async fn ask(path: &Path, folder: &TrustedFolder) -> Option<DaemonStatus> {
    let stream = UnixStream::connect(path).await.ok()?;
    let user = stream.peer_cred().ok()?.uid();
    if !folder.trusts(user) {
        let path = path.display();
        console::warning(&format!(
            "user {user} answers at {path}, which is not believed: rm {path}"
        ));
        return None;
    }
    let mut text = String::new();
    stream.take(MAX_ANSWER).read_to_string(&mut text).await.ok()?;
    let mut told: DaemonStatus = serde_json::from_str(&text).ok()?;
    told.take_name_of(path);
    Some(told)
}

/// The metrics of all that run, as Prometheus reads them.
fn metrics(all: &[DaemonStatus]) -> String {
    let mut exposition = Exposition::default();
    for daemon in all {
        daemon.expose(&mut exposition);
    }
    exposition.text()
}

/// All that run, with the rates since `before`.
fn pages(now: &[DaemonStatus], before: Option<&[DaemonStatus]>) -> String {
    let page = |told: &DaemonStatus| {
        let before = before
            .into_iter()
            .flatten()
            .find(|other| (other.kind(), other.name()) == (told.kind(), told.name()));
        let before = before.filter(|before| before.uptime_s() < told.uptime_s());
        told.page(before)
    };
    let pages = now.iter().map(page).collect::<Vec<_>>().join("\n\n");
    // A terminal may obey what a service says.
    pages.lines().map(console::printable).collect::<Vec<_>>().join("\n")
}

/// A number, if it is known.
pub(super) fn said(number: Option<f64>, digits: usize, unit: &str) -> String {
    number.map_or_else(|| UNKNOWN.to_owned(), |number| format!("{number:.digits$}{unit}"))
}

/// How fast a count of bytes at a time in seconds has grown since before, in Mbit/s.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
pub(super) fn rate(now: (f64, u64), before: Option<(f64, u64)>) -> Option<f64> {
    let (since, bytes) = before?;
    Some(now.1.saturating_sub(bytes) as f64 * 8e-6 / (now.0 - since))
}
