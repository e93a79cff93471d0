//! `sunder transport send`.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use console::CommandFailure;
use console::signals;
use serde::Serialize;
use transport::choice::TransportDecision;
use transport::files::{
    self, ConnectionPreferences, FileSendError, FileTransferEvent, SentFile, SentStream, SentTree,
};
use transport::{
    Connection, ConnectionCloser, ConnectionOptions, ConnectionPath, ConnectionSecurity,
    ExchangeProfile, FileTransferFailureReason, SendLimit, TransferRole, connect, names,
};

use super::connecting::TransportConnectOptions;
use super::failed;
use super::pairing::{self, CodeMeeting, CodeOption};
use super::progress::TransferProgress;

/// Sends files and directories to a host that runs `sunder transport receive`.
///
/// If the connection breaks or is silent, it connects again and resumes where it stopped. So does
/// another `send` of the same files after this one was stopped. The receiver checks the SHA-256
/// digest of each file. Files keep their permissions and their modification times. Of several
/// files, those that the receiver has with the same length and time are not sent again. In
/// directories, links, special files and names that begin with a dot are skipped.
///
/// The file - is standard input, of any length, for a receiver with --out -. It is not resumed. If
/// this command ends early, the receiver reports that the stream is incomplete.
#[derive(clap::Args)]
#[command(after_help = help())]
pub(super) struct Arguments {
    /// The file, or several files and directories, or - for standard input; and last the receiver's
    /// address, as the receiver prints it; TOKEN@HOST:PORT if it waits at a relay, or the relay's
    /// HOST:PORT with --code; several addresses, separated by commas, to send shares over several
    /// networks
    // One list, because clap takes no options between a list and what follows it.
    #[arg(value_name = "FILE|DIR... HOST:PORT", required = true)]
    files_and_address: Vec<PathBuf>,
    #[command(flatten)]
    connecting: TransportConnectOptions,
    #[command(flatten)]
    code: CodeOption,
    /// The largest rate, with kbit, Mbit or Gbit (per second), at least 400kbit
    #[arg(long, value_name = "RATE")]
    limit: Option<SendLimit>,
    /// Show why auto uses this transport
    #[arg(long)]
    explain: bool,
    /// Print one JSON document on standard output
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// The files and directories, and the address.
    ///
    /// # Errors
    /// If one of them is missing or cannot be read, or the address is not text.
    fn files_and_address(&self) -> Result<(&[PathBuf], &str), CommandFailure> {
        let split = self.files_and_address.split_last().filter(|(_, files)| !files.is_empty());
        let (address, files) = split.ok_or_else(|| {
            let what = "name a file and, last, the receiver's address, HOST:PORT";
            CommandFailure::Usage(what.into())
        })?;
        let address = address.to_str().ok_or_else(|| {
            CommandFailure::Usage(format!("{}: no address; use HOST:PORT", address.display()))
        })?;
        // Before a connection is made, or a code is used.
        for file in files.iter().filter(|file| !is_standard_input(file)) {
            file.metadata().map_err(|error| CommandFailure::reading(file, &error))?;
        }
        Ok((files, address))
    }

    /// Whether standard input is sent.
    ///
    /// # Errors
    /// If it is named beside others, or is already used for the code.
    fn sends_standard_input(&self, files: &[PathBuf]) -> Result<bool, CommandFailure> {
        let usage = |text: &str| Err(CommandFailure::Usage(text.into()));
        match files {
            _ if !files.iter().any(|file| is_standard_input(file)) => Ok(false),
            [_] if self.code.is_read_from_standard_input() => {
                usage("standard input is sent, so that --code - cannot read the code there")
            }
            [_] => Ok(true),
            _ => usage("- is standard input, and can only be sent alone; write ./- for a file"),
        }
    }
}

fn is_standard_input(file: &Path) -> bool {
    file.as_os_str() == "-"
}

fn help() -> String {
    let transports = names().map(|(name, about)| format!("  {name:6}  {about}\n"));
    format!(
        "Transports:\n{}\n\
         Example: sunder transport send plan.pdf 192.0.2.10:7000 --key 3d40...660c\n\n\
         Exit code 3 says that the other end has another key or does not know yours, that\n\
         what arrived was changed, or that the digests differ.",
        transports.collect::<String>()
    )
}

/// What `--json` prints for several files and directories.
#[derive(Serialize)]
struct TransportSendTreeDocument<'a> {
    files: usize,
    bytes: u64,
    resumed_from: u64,
    skipped: usize,
    transport: &'a str,
    path: &'a str,
    connections: u32,
    elapsed_s: f64,
    rate_mbit: f64,
}

/// What `--json` prints for standard input.
#[derive(Serialize)]
struct TransportSendStreamDocument<'a> {
    bytes: u64,
    sha256: &'a str,
    transport: &'a str,
    path: &'a str,
    elapsed_s: f64,
    rate_mbit: f64,
}

/// What `--json` prints for one file.
#[derive(Serialize)]
struct TransportSendDocument<'a> {
    file: &'a str,
    bytes: u64,
    resumed_from: u64,
    sha256: &'a str,
    transport: &'a str,
    path: &'a str,
    connections: u32,
    elapsed_s: f64,
    rate_mbit: f64,
}

/// Sends the file.
///
/// # Errors
/// When it cannot be read, there is no connection, or the receiver does not take it.
pub(super) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    let (files, address) = arguments.files_and_address()?;
    let is_stream = arguments.sends_standard_input(files)?;
    let connecting = &arguments.connecting;
    let mut options = if arguments.code.is_given() {
        connecting.lasting_options_before_pairing()?
    } else {
        connecting.lasting_options()?
    };
    if matches!(options.security, ConnectionSecurity::Insecure) {
        console::warning("insecure: an attacker on the path can read and change the file");
    }
    options.exchange = exchange(files);
    let (address, resume) = if arguments.code.is_given() {
        meet_receiver(arguments, files, address, &mut options)?
    } else {
        (address.to_owned(), "the same command resumes where this one stopped".to_owned())
    };
    let is_at_relay = address.contains('@');
    match files {
        _ if is_stream => {
            let resume = "a stream is not resumed: start both ends again".to_owned();
            let sent = send(arguments, &address, &options, resume, |connecting, observe| {
                files::send_stream(io::stdin(), connecting, observe)
            })?;
            report_stream(arguments, &sent, is_at_relay)
        }
        [file] if !file.is_dir() => {
            let sent = send(arguments, &address, &options, resume, |connecting, observe| {
                files::send(file, connecting, observe)
            })?;
            report(arguments, &sent, is_at_relay)
        }
        several => {
            let sent = send(arguments, &address, &options, resume, |connecting, observe| {
                files::send_tree(several, connecting, observe)
            })?;
            report_tree(arguments, &sent, is_at_relay)
        }
    }
}

/// Pairs this end with a receiver by a code. Returns the receiver's address, and how to resume.
fn meet_receiver(
    arguments: &Arguments,
    files: &[PathBuf],
    address: &str,
    options: &mut ConnectionOptions,
) -> Result<(String, String), CommandFailure> {
    if arguments.connecting.has_key() {
        return Err(CommandFailure::Usage("give --key or --code, not both".into()));
    }
    let meeting = match arguments.code.typed()? {
        Some(code) => CodeMeeting::Typed(code, address.to_owned()),
        None => CodeMeeting::ShowVia(address.to_owned()),
    };
    // With --json, standard output is for the document.
    let announce = |relay: &str, code: &str| {
        let out = if is_standard_input(&files[0]) { "-" } else { "DIR" };
        let line = format!("sunder transport receive --via {relay} --out {out} --code {code}");
        if arguments.json {
            console::note(&line);
            return Ok(());
        }
        console::print_line(&line)
    };
    let (paired, address) =
        pairing::meet(meeting, &options.security, TransferRole::Sender, announce)?;
    let peer = paired.peer().clone();
    paired.complete().map_err(|error| pairing::pairing_failed(&error))?;
    options.security = pairing::pinned(&options.security, peer.key);
    let address = match peer.relay_token {
        Some(token) => format!("{token}@{address}"),
        None => address,
    };
    let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    let (files, key) = (files.join(" "), peer.key);
    let resume = format!("to resume: sunder transport send {files} {address} --key {key}");
    Ok((address, resume))
}

/// The exchange for which a transport is chosen.
fn exchange(files: &[PathBuf]) -> Option<ExchangeProfile> {
    let [file] = files else { return None };
    let sent = file.metadata().ok().filter(Metadata::is_file)?.len();
    Some(ExchangeProfile { sent, received: 0, rounds: 1 })
}

/// What a result says of the path to a receiver that was met at a relay.
fn path_from_relay(is_at_relay: bool, path: ConnectionPath) -> String {
    if is_at_relay { format!(", path: {path}") } else { String::new() }
}

fn explain(connection: &Connection, is_at_relay: bool) {
    let name = connection.transport();
    let line = match connection.decision() {
        None if is_at_relay => match connection.path() {
            ConnectionPath::Direct => format!("{name}: datagrams reach the receiver directly"),
            ConnectionPath::RelayedDatagrams => format!(
                "{name}: datagrams do not reach the receiver directly, and the relay forwards them"
            ),
            ConnectionPath::RelayedTcp => format!("{name}: no datagrams reach the receiver"),
        },
        Some(TransportDecision { reason, .. }) => format!("{name}: {reason}"),
        None => format!("{name}: as --transport says"),
    };
    console::note(&line);
}

/// Opens a connection with these preferences.
type BoxedConnectFunction =
    Box<dyn Fn(ConnectionPreferences) -> Result<Connection, transport::Error> + Send + Sync>;

fn send<T>(
    arguments: &Arguments,
    address: &str,
    options: &ConnectionOptions,
    resume: String,
    send: impl FnOnce(
        BoxedConnectFunction,
        &mut dyn FnMut(FileTransferEvent<'_>),
    ) -> Result<T, FileSendError>,
) -> Result<T, CommandFailure> {
    let current = Arc::new(Mutex::new(None));
    end_on_signal(current.clone(), resume)?;
    let limit = arguments.limit.clone();
    let (to, options, explains) = (address.to_owned(), options.clone(), arguments.explain);
    let connecting = move |preferences| {
        let ConnectionPreferences { avoids_udp, has_short_segments } = preferences;
        let options = ConnectionOptions { avoids_udp, has_short_segments, ..options.clone() };
        let connection = connect(&to, &options)?;
        if let Some(limit) = &limit {
            connection.limit_sending(limit);
        }
        *lock(&current) = Some(connection.closer());
        if explains {
            explain(&connection, to.contains('@'));
        }
        Ok(connection)
    };
    let mut shown = TransferProgress::default();
    let sent = send(Box::new(connecting), &mut |event| shown.show(&event));
    drop(shown);
    sent.map_err(|error| refused(&error, address))
}

/// A signal closes the connection before it ends the command, so that the receiver knows at once.
fn end_on_signal(
    current: Arc<Mutex<Option<ConnectionCloser>>>,
    resume: String,
) -> Result<(), CommandFailure> {
    let end = move || {
        if let Some(closer) = &*lock(&current) {
            closer.close();
        }
        console::note(&format!("stopped; {resume}"));
    };
    signals::run_on_signal(end)
        .map_err(|error| CommandFailure::Failed(format!("cannot handle signals: {error}")))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refused(error: &FileSendError, address: &str) -> CommandFailure {
    match error {
        FileSendError::Connect(error) => failed(error),
        FileSendError::File { .. }
        | FileSendError::Kind { .. }
        | FileSendError::Name { .. }
        | FileSendError::TooMany
        | FileSendError::Tree(_) => CommandFailure::Usage(error.to_string()),
        FileSendError::Refused(failure)
            if matches!(
                failure.reason,
                FileTransferFailureReason::Digest | FileTransferFailureReason::Changed
            ) =>
        {
            CommandFailure::Refused(error.to_string())
        }
        FileSendError::Broken(source) => {
            let message = format!("{error}; send it again: {address} keeps what it has received");
            match transport::Error::of(source) {
                Some(source) if source.is_security() => CommandFailure::Refused(error.to_string()),
                _ => CommandFailure::Failed(message),
            }
        }
        FileSendError::StreamBroken(source) => match transport::Error::of(source) {
            Some(source) if source.is_security() => CommandFailure::Refused(error.to_string()),
            _ => CommandFailure::Failed(error.to_string()),
        },
        FileSendError::Refused(_) | FileSendError::Changed { .. } | FileSendError::Stream(_) => {
            CommandFailure::Failed(error.to_string())
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "the rate is for a person")]
fn report(arguments: &Arguments, sent: &SentFile, is_at_relay: bool) -> Result<(), CommandFailure> {
    let elapsed_s = sent.elapsed.as_secs_f64();
    let rate_mbit = (sent.bytes - sent.resumed_from) as f64 * 8e-6 / elapsed_s;
    if arguments.json {
        return console::print_json(&TransportSendDocument {
            file: sent.name.as_str(),
            bytes: sent.bytes,
            resumed_from: sent.resumed_from,
            sha256: &sent.sha256,
            transport: sent.transport,
            path: &sent.path.to_string(),
            connections: sent.connections,
            elapsed_s,
            rate_mbit,
        });
    }
    let SentFile { name, bytes, sha256, transport, .. } = sent;
    let resumed = match sent.resumed_from {
        0 => String::new(),
        there => format!(", {there} of which were already there"),
    };
    console::print_line(&format!(
        "{name}: {bytes} bytes{resumed}, in {elapsed_s:.1} s by {transport}{} ({rate_mbit:.1} \
         Mbit/s)",
        path_from_relay(is_at_relay, sent.path)
    ))?;
    console::print_line(&format!("SHA-256 {sha256}, checked by the receiver"))
}

#[allow(clippy::cast_precision_loss, reason = "the rate is for a person")]
fn report_stream(
    arguments: &Arguments,
    sent: &SentStream,
    is_at_relay: bool,
) -> Result<(), CommandFailure> {
    let SentStream { bytes, sha256, transport, path, elapsed } = sent;
    let elapsed_s = elapsed.as_secs_f64();
    let rate_mbit = *bytes as f64 * 8e-6 / elapsed_s;
    if arguments.json {
        return console::print_json(&TransportSendStreamDocument {
            bytes: *bytes,
            sha256,
            transport,
            path: &path.to_string(),
            elapsed_s,
            rate_mbit,
        });
    }
    console::print_line(&format!(
        "{bytes} bytes, in {elapsed_s:.1} s by {transport}{} ({rate_mbit:.1} Mbit/s)",
        path_from_relay(is_at_relay, *path)
    ))?;
    console::print_line(&format!("SHA-256 {sha256}, checked by the receiver"))
}

#[allow(clippy::cast_precision_loss, reason = "the rate is for a person")]
fn report_tree(
    arguments: &Arguments,
    sent: &SentTree,
    is_at_relay: bool,
) -> Result<(), CommandFailure> {
    let SentTree { files, bytes, resumed_from, skipped, transport, .. } = sent;
    for path in &skipped.first {
        console::note(&format!("not sent: {}", path.display()));
    }
    if skipped.count > 0 {
        console::warning(&format!(
            "{} links, special files and hidden or unusual names were not sent",
            skipped.count
        ));
    }
    let elapsed_s = sent.elapsed.as_secs_f64();
    let rate_mbit = (bytes - resumed_from) as f64 * 8e-6 / elapsed_s;
    if arguments.json {
        return console::print_json(&TransportSendTreeDocument {
            files: *files,
            bytes: *bytes,
            resumed_from: *resumed_from,
            skipped: skipped.count,
            transport,
            path: &sent.path.to_string(),
            connections: sent.connections,
            elapsed_s,
            rate_mbit,
        });
    }
    let resumed = match resumed_from {
        0 => String::new(),
        there => format!(", {there} of which were already there"),
    };
    console::print_line(&format!(
        "{files} files: {bytes} bytes{resumed}, in {elapsed_s:.1} s by {transport}{} \
         ({rate_mbit:.1} Mbit/s), all digests checked by the receiver",
        path_from_relay(is_at_relay, sent.path)
    ))
}
