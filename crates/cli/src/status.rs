//! `sunder status`: what runs on this host, and how its channels are.

use std::io::{IsTerminal, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use remicss::status::{Channel, Dropped, Status};
use remicss::tunnel::status_directory;

use crate::console;
use crate::failure::Failure;
use crate::table::{Side, aligned};

/// Shows the tunnels that run here: what was achieved, beside what the model says, and each channel.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder status --watch\n\n\
    Tunnels are found in $RUNTIME_DIRECTORY, or in /run/sunder by root, or in $XDG_RUNTIME_DIR/sunder.")]
pub(crate) struct Arguments {
    /// Print one JSON document, a list with an entry for each tunnel
    #[arg(long)]
    json: bool,

    /// Show it again every second, with rates, until interrupted
    #[arg(long, conflicts_with = "json")]
    watch: bool,
}

/// How long a tunnel may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often it is shown again.
const PERIOD: Duration = Duration::from_secs(1);

/// The longest answer.
const MAX_ANSWER: u64 = 1 << 20;

/// Shows what runs.
///
/// # Errors
/// When nothing runs here, or does not answer.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut before = ask_all()?;
    if arguments.json {
        return console::print_json(&before);
    }
    console::print(pages(&before, None).as_bytes())?;
    if !arguments.watch {
        return Ok(());
    }
    loop {
        thread::sleep(PERIOD);
        let now = ask_all()?;
        if std::io::stdout().is_terminal() {
            console::print(b"\x1b[H\x1b[2J")?;
        }
        console::print(pages(&now, Some(&before)).as_bytes())?;
        before = now;
    }
}

/// Asks every tunnel that runs here.
fn ask_all() -> Result<Vec<Status>, Failure> {
    let nothing = |why: &str| Failure::Failed(format!("no tunnel runs here: {why}"));
    let directory = status_directory().ok_or_else(|| nothing("RUNTIME_DIRECTORY is not set"))?;
    let shown = directory.display();
    let Ok(entries) = std::fs::read_dir(&directory) else {
        return Err(nothing(&format!("{shown} cannot be read; run this as the tunnel's user")));
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "sock")).collect();
    paths.sort();
    // A socket that nobody answers at is left from a tunnel that was killed.
    let answers: Vec<Status> = paths.iter().filter_map(|path| ask(path)).collect();
    if answers.is_empty() {
        Err(nothing(&format!("nobody answers in {shown}")))
    } else {
        Ok(answers)
    }
}

fn ask(path: &Path) -> Option<Status> {
    let stream = UnixStream::connect(path).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut text = String::new();
    stream.take(MAX_ANSWER).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// All tunnels, with the rates since `before`.
fn pages(now: &[Status], before: Option<&[Status]>) -> String {
    let page = |status: &Status| {
        let before = before.into_iter().flatten().find(|other| other.device == status.device);
        page(status, before.filter(|before| before.uptime_s < status.uptime_s))
    };
    now.iter().map(page).collect::<Vec<_>>().join("\n\n")
}

fn page(now: &Status, before: Option<&Status>) -> String {
    let state = if now.associated { "associated" } else { "not associated" };
    let running = format!("{}  {state}, running for {:.0} s", now.device, now.uptime_s);
    let mut first = [Side::Right; 3];
    first[0] = Side::Left;
    let mut second = [Side::Right; 9];
    second[..2].fill(Side::Left);
    let averages = aligned(&first, &averages(now, before));
    let channels = aligned(&second, &channels(now, before));
    format!("{running}\n\n{averages}\n{channels}{}", dropped(&now.dropped))
}

/// What was not passed on, in a line; nothing if all was.
fn dropped(dropped: &Dropped) -> String {
    let reasons = [
        (dropped.queued, "the channels were too slow"),
        (dropped.below_floor, "too few channels were up"),
        (dropped.unconnected, "there was no peer"),
        (dropped.too_long, "too long"),
        (dropped.tampered, "changed on the way"),
        (dropped.strange, "from strangers"),
        (dropped.malformed, "malformed"),
        (dropped.duplicate, "came twice"),
        (dropped.refused, "the device did not take them"),
    ];
    let named = reasons.iter().filter(|(count, _)| *count > 0);
    let named: Vec<String> = named.map(|(count, why)| format!("{count} ({why})")).collect();
    if named.is_empty() { String::new() } else { format!("\ndropped: {}\n", named.join(", ")) }
}

/// The names of columns as a row.
fn heads<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).to_vec()
}

fn averages(now: &Status, before: Option<&Status>) -> Vec<Vec<String>> {
    let predicted = now.predicted;
    let said = |number: Option<f64>, digits: usize, unit: &str| {
        number.map_or_else(|| "–".to_owned(), |number| format!("{number:.digits$}{unit}"))
    };
    let row = |name: &str, achieved: String, predicted: String| {
        vec![name.to_owned(), achieved, predicted]
    };
    let speed = |bytes: fn(&Status) -> u64| rate(now, before, bytes);
    let percent = |part: f64| 100.0 * part;
    vec![
        heads(["", "achieved", "predicted"]),
        row(
            "kappa",
            said(Some(now.achieved.kappa), 3, ""),
            said(predicted.map(|p| p.kappa), 3, ""),
        ),
        row("mu", said(Some(now.achieved.mu), 3, ""), said(predicted.map(|p| p.mu), 3, "")),
        row(
            "risk",
            said(now.achieved.risk.map(percent), 2, " %"),
            said(predicted.map(|p| percent(p.risk)), 2, " %"),
        ),
        row(
            "loss",
            said(Some(percent(now.achieved.loss)), 2, " %"),
            said(predicted.map(|p| percent(p.loss)), 2, " %"),
        ),
        row(
            "delay",
            said(now.achieved.delay_ms, 1, " ms"),
            said(predicted.map(|p| p.delay_ms), 1, " ms"),
        ),
        row(
            "rate out",
            said(speed(|status| status.achieved.sent_bytes), 1, " Mbit/s"),
            said(predicted.map(|p| p.rate_mbit), 1, " Mbit/s"),
        ),
        row(
            "rate in",
            said(speed(|status| status.achieved.received_bytes), 1, " Mbit/s"),
            "–".into(),
        ),
    ]
}

fn channels(now: &Status, before: Option<&Status>) -> Vec<Vec<String>> {
    let channel = |(index, channel): (usize, &Channel)| {
        let speed = |bytes: fn(&Channel) -> u64| {
            rate(now, before, |status| status.channels.get(index).map_or(0, bytes))
                .map_or_else(|| "–".to_owned(), |rate| format!("{rate:.1}"))
        };
        vec![
            (index + 1).to_string(),
            channel.state.clone(),
            format!("{:.2}", channel.risk),
            format!("{:.1}", channel.rate_mbit),
            format!("{:.2} %", 100.0 * channel.loss),
            format!("{:.1} ms", channel.delay_ms),
            speed(|channel| channel.sent_bytes),
            speed(|channel| channel.received_bytes),
            channel.faults.to_string(),
        ]
    };
    let names = [
        "channel",
        "state",
        "risk",
        "Mbit/s",
        "loss",
        "delay",
        "out, Mbit/s",
        "in, Mbit/s",
        "wrong",
    ];
    let rows = now.channels.iter().enumerate().map(channel);
    [heads(names)].into_iter().chain(rows).collect()
}

/// How fast a count of bytes has grown, in Mbit/s.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn rate(now: &Status, before: Option<&Status>, bytes: impl Fn(&Status) -> u64) -> Option<f64> {
    let before = before?;
    let grown = bytes(now).saturating_sub(bytes(before));
    Some(grown as f64 * 8e-6 / (now.uptime_s - before.uptime_s))
}
