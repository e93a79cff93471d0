//! `sunder transport receive`.

mod output;

use std::io::ErrorKind::UnexpectedEof;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use console::CommandFailure;
use console::signals;
use keys::IdentityPublicKey;
use transport::files::{FileReceiveError, FileReceiver, ReceivedFile, TransferLimiter};
use transport::{
    Connection, ConnectionOptions, ConnectionPath, ConnectionSecurity, FileTransferFailureReason,
    Listener, TransferRole,
};

use super::pairing::{self, CodeMeeting, CodeOption};
use super::progress::TransferProgress;
use super::{failed, reachable, security};

/// The maximum number of files at a time.
const MAX_FILES: usize = 64;

/// The maximum number of senders at a time that are told that they have to wait.
const MAX_REFUSALS: usize = 64;

/// Receives files and directories into a directory, from hosts that run `sunder transport send`.
///
/// Prints the command for the other host. An incomplete file is .NAME.part. When the file is sent
/// again, the transfer resumes from there, even if this command was stopped in between. A file that
/// exists is not replaced, unless --overwrite is given. Anyone who knows the printed key can send;
/// --peer admits only some senders. With --code, the printed command contains a code of four words
/// in place of the key. Each code is for one attempt: after a wrong one, this command ends.
///
/// With --out -, it writes one stream (or one file) to standard output and ends. If the sender ends
/// early or the connection breaks, the exit code is not 0, and what was written is incomplete.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// The address for senders; all transports share its port number
    #[arg(long, value_name = "ADDR", required_unless_present = "via")]
    listen: Option<String>,
    /// Wait at a relay instead, if this host cannot be reached from outside
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "listen")]
    via: Option<String>,
    /// The directory for the files; - writes one stream to standard output
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Exit after one complete file, or one complete transfer of several
    #[arg(long)]
    once: bool,
    /// Replace files that exist. Of a changed file, only the changed parts are sent
    #[arg(long)]
    overwrite: bool,
    /// The file with this end's key, so that it stays the same [default: a new one for each run]
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    identity: Option<PathBuf>,
    /// The public key of a sender; may be given several times [default: anyone who knows this end's
    /// key]
    #[arg(long, value_name = "KEY", conflicts_with_all = ["insecure", "code"])]
    peer: Vec<IdentityPublicKey>,
    #[command(flatten)]
    code: CodeOption,
    /// Receive without encryption: anyone can send, and an attacker on the path can change the
    /// files
    #[arg(long)]
    insecure: bool,
}

const HELP: &str = "\
Example: sunder transport receive --listen 0.0.0.0:7000 --out inbox \\
             --identity receive.key
receive.key has 64 hexadecimal digits: sunder key new receive.key
Then, on the other host: the command that this one prints.
A stream: sunder transport receive --listen 0.0.0.0:7000 --out - | tar x";

impl Arguments {
    /// Whether standard output is for the received data.
    fn writes_stream(&self) -> bool {
        self.out.as_os_str() == "-"
    }

    /// Prints a line: on standard error if standard output is for the received data.
    fn say(&self, line: &str) -> Result<(), CommandFailure> {
        if self.writes_stream() {
            console::note(line);
            return Ok(());
        }
        console::print_line(line)
    }

    /// What the printed command names as the file.
    fn sent(&self) -> &'static str {
        if self.writes_stream() { "-" } else { "FILE" }
    }
}

/// Receives until it is stopped, or one file if that was asked for.
///
/// # Errors
/// When it cannot listen, or the directory cannot be used.
pub(super) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    if arguments.writes_stream() && arguments.overwrite {
        return Err(CommandFailure::Usage("--overwrite is for files: omit it with --out -".into()));
    }
    if !arguments.writes_stream() && !arguments.out.is_dir() {
        let out = arguments.out.display();
        return Err(CommandFailure::Usage(format!("{out} is not a directory: create it first")));
    }
    let security = security(arguments.identity.as_ref(), &arguments.peer, arguments.insecure)?;
    let options = ConnectionOptions::new(security);
    service::log::start(console::wants_colour(&std::io::stderr()))?;
    let listener = if arguments.code.is_given() {
        listen_to_paired(arguments, options)?
    } else {
        listen(arguments, &options)?
    };
    if arguments.writes_stream() {
        return output::run(listener);
    }
    let receiver = Arc::new(FileReceiver::new(&arguments.out, arguments.overwrite));
    let closed = receiver.clone();
    signals::run_on_signal(move || closed.close())
        .map_err(|error| CommandFailure::Failed(format!("cannot handle signals: {error}")))?;
    let (complete, completed) = sync_channel(1);
    let is_once = arguments.once;
    let (places, refusals) = (TransferLimiter::new(MAX_FILES), TransferLimiter::new(MAX_REFUSALS));
    let accepting = thread::Builder::new().name("receive".into()).spawn(move || {
        while let Ok(connection) = listener.accept() {
            spawn(connection, &receiver, [&places, &refusals], is_once.then(|| complete.clone()));
        }
    });
    let thread =
        accepting.map_err(|error| CommandFailure::Failed(format!("no threads: {error}")))?;
    if is_once {
        // The only one is printed already.
        completed.recv().unwrap_or(Ok(()))
    } else {
        let _ = thread.join();
        Err(CommandFailure::Failed("the listener has failed".into()))
    }
}

/// Receives the file of a connection in a thread of its own. If there is no place for it, says so.
fn spawn(
    connection: Connection,
    receiver: &Arc<FileReceiver>,
    [places, refusals]: [&Arc<TransferLimiter>; 2],
    complete: Option<SyncSender<Result<(), CommandFailure>>>,
) {
    let Some(place) = places.take(&connection) else {
        console::warning(&format!("{MAX_FILES} files are being received: another one has to wait"));
        if let Some(place) = refusals.take(&connection) {
            in_thread(move || {
                FileReceiver::refuse(connection);
                drop(place);
            });
        }
        return;
    };
    let receiver = receiver.clone();
    in_thread(move || {
        let received = receive(connection, &receiver);
        drop(place);
        match (received, complete) {
            (Ok(printed), Some(complete)) => _ = complete.try_send(printed),
            // It goes on though nobody reads what it prints.
            (Ok(_), None) => {}
            // A sender connects again before it knows whether it has to.
            (Err(FileReceiveError::NoOffer(error)), _) if error.kind() == UnexpectedEof => {}
            (Err(error), _) => console::warning(&explain(&error, receiver.directory())),
        }
    });
}

/// An error for the user of this end, with the directory if its disk is full. The sender, who gets
/// the text, too, is not told the directory.
fn explain(error: &FileReceiveError, directory: &Path) -> String {
    match error {
        FileReceiveError::Failed(failure) if failure.reason == FileTransferFailureReason::Space => {
            format!("{}: {error}", directory.display())
        }
        _ => error.to_string(),
    }
}

fn in_thread(work: impl FnOnce() + Send + 'static) {
    if let Err(error) = thread::Builder::new().name("file".into()).spawn(work) {
        console::warning(&format!("a file is refused: no threads: {error}"));
    }
}

/// Receives a file, and prints that.
fn receive(
    connection: Connection,
    receiver: &FileReceiver,
) -> Result<Result<(), CommandFailure>, FileReceiveError> {
    let (peer, transport) = (connection.peer(), connection.transport());
    let relayed_by = match connection.path() {
        ConnectionPath::Direct => String::new(),
        relayed => format!(", path: {relayed},"),
    };
    let from = connection.peer_addr().ip();
    let mut shown = TransferProgress::default();
    let received = receiver.receive(connection, |event| shown.show(&event));
    drop(shown);
    let received = received?;
    let ReceivedFile { path, bytes, sha256, elapsed, .. } = &received;
    let files = match (sha256, received.files) {
        (Some(_), _) => String::new(),
        (None, files) => format!("{files} files, "),
    };
    let resumed = match received.resumed_from {
        0 => String::new(),
        there => format!(", {there} of which were already there"),
    };
    let by = peer.map_or(format!("{from}, insecure"), |key| format!("{from}, key {key}"));
    let seconds = elapsed.as_secs_f64();
    let printed = console::print_line(&format!(
        "{}: {files}{bytes} bytes{resumed}, in {seconds:.1} s by {transport}{relayed_by} from {by}",
        path.display()
    ));
    Ok(match sha256 {
        Some(sha256) => printed.and_then(|()| console::print_line(&format!("SHA-256 {sha256}"))),
        None => printed,
    })
}

/// Listens or waits at a relay, and says so.
fn listen(arguments: &Arguments, options: &ConnectionOptions) -> Result<Listener, CommandFailure> {
    if let Some(relay) = &arguments.via {
        let via = Listener::via(relay, options);
        let (listener, token) = via.map_err(|error| failed(&error))?;
        arguments.say(&format!("waiting at {relay}"))?;
        announce(arguments, &format!("{token}@{relay}"), &options.security)?;
        return Ok(listener);
    }
    let address = arguments.listen.as_deref().unwrap_or_default();
    let listener = Listener::bind(address, options).map_err(|error| failed(&error))?;
    let address = listener.local_addr();
    arguments.say(&format!("listening on {address}"))?;
    let reachable = reachable(address)
        .map_or_else(|| format!("HOST:{}", address.port()), |address| address.to_string());
    announce(arguments, &reachable, &options.security)?;
    Ok(listener)
}

/// Pairs this end with a sender by a code, and listens for this sender.
fn listen_to_paired(
    arguments: &Arguments,
    mut options: ConnectionOptions,
) -> Result<Listener, CommandFailure> {
    let meeting = meeting(arguments)?;
    let announce = |address: &str, code: &str| {
        let sent = arguments.sent();
        arguments.say(&format!("sunder transport send {sent} {address} --code {code}"))
    };
    let (paired, address) =
        pairing::meet(meeting, &options.security, TransferRole::Receiver, announce)?;
    let key = paired.peer().key;
    options.security = pairing::pinned(&options.security, key);
    let listener = if arguments.via.is_some() {
        Listener::via(&address, &options).map(|(listener, _)| listener)
    } else {
        Listener::bind(&address, &options)
    };
    let listener = listener.map_err(|error| failed(&error))?;
    paired.complete().map_err(|error| pairing::pairing_failed(&error))?;
    arguments.say(&format!("paired with the sender with key {key}"))?;
    Ok(listener)
}

/// Where this end meets the sender.
fn meeting(arguments: &Arguments) -> Result<CodeMeeting, CommandFailure> {
    let usage = |text: &str| Err(CommandFailure::Usage(text.into()));
    match (arguments.code.typed()?, &arguments.via, &arguments.listen) {
        (None, Some(relay), _) => Ok(CodeMeeting::ShowVia(relay.clone())),
        (None, None, Some(address)) => Ok(CodeMeeting::ShowAt(address.clone())),
        (Some(code), Some(relay), _) if code.is_for_relay() => {
            Ok(CodeMeeting::Typed(code, relay.clone()))
        }
        (Some(_), Some(_), _) => usage(NO_NUMBER),
        (Some(_), None, _) | (None, None, None) => {
            usage("a code that the sender shows needs the relay where it waits: give --via")
        }
    }
}

/// The error for a code without a number, at a relay.
const NO_NUMBER: &str =
    "--code: a code for a relay begins with a number; type it as the other end shows it";

/// Says the command for the other host.
fn announce(
    arguments: &Arguments,
    address: &str,
    security: &ConnectionSecurity,
) -> Result<(), CommandFailure> {
    let options = match security.public_key() {
        Some(key) => format!("--key {key}"),
        None => "--insecure".into(),
    };
    if security.public_key().is_none() {
        console::warning("insecure: anyone who can reach this address can send files");
    }
    let sent = arguments.sent();
    arguments.say(&format!("sunder transport send {sent} {address} {options}"))
}

#[cfg(test)]
mod tests {
    use transport::FileTransferFailure;

    use super::*;

    #[test]
    fn error_of_a_full_disk_names_the_directory() {
        let shown = |reason| {
            let text = "cannot write a: the disk is full; make room there".to_owned();
            let error = FileReceiveError::Failed(FileTransferFailure { reason, text });
            explain(&error, Path::new("/srv/in"))
        };
        let expected = "/srv/in: cannot write a: the disk is full; make room there";
        assert_eq!(shown(FileTransferFailureReason::Space), expected);
        assert!(!shown(FileTransferFailureReason::System).contains("/srv/in"));
    }
}
