//! The commands that ask a running server: `register`, `refresh`, `pubkey`; and `verify-epochs`.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::ValueEnum;
use console::CommandFailure;
use console::CommandProgress;
use formats::jwt;
use keys::RsaPublicKey;
use quorum::UnixSeconds;
use quorum::api::{QuorumApiClient, QuorumApiError, RefreshStatus, RefreshStep};
use quorum::group::{GroupHeader, QuorumMember, verify_chain};
use quorum::nodes::{nodes_text, parse_server_line};
use quorum::server::GroupStart;
use quorum::ssh;
use serde::Serialize;
use tokio::time::sleep;

use super::files::{read_bounded, read_message, write_new};
use super::format_name::SignatureFormatName;
use super::page;
use super::servers::{self, GroupKeyOptions, QuorumServersOptions};
use super::ssh_agent;

/// How often a server is asked how far a refresh is.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The longest file of headers, in bytes.
const MAX_HEADERS: u64 = 64 << 20;

/// A running server.
#[derive(clap::Args)]
pub(super) struct QuorumSocketOptions {
    /// The socket of the server, as in its configuration
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
}

/// Allows a server to sign files.
///
/// From now on the server signs exactly these bytes, even after a restart, until the registration
/// expires (`registration_expires`) or is withdrawn. f+1 servers must allow it. A server keeps
/// 65,536 registrations, and then removes the oldest. All servers show what waits: `pending`.
///
/// With --format, prints what a signature of the file would mean, and refuses a file of another
/// format or for another key. Without it, refuses what `sunder quorum prepare` writes, and all that
/// looks like it.
#[derive(clap::Args)]
#[command(
    after_help = "Example: sunder quorum register --socket /run/sunder/quorum-office/api release.txt"
)]
pub(super) struct QuorumRegisterArguments {
    #[command(flatten)]
    server: QuorumSocketOptions,
    /// The format, as for `sign`
    #[arg(long, value_enum, default_value_t = SignatureFormatName::Raw)]
    format: SignatureFormatName,
    /// Files of at most 1 MiB, or - for standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Approves a refresh, which moves the key to other servers, and shows its progress.
///
/// The refresh begins when f+1 servers have approved the same new group: run this at f+1 of them.
/// The new servers must be running. Afterwards the new group signs under the same public key, and
/// the old servers wipe their shares. Stopping this command does not stop the refresh. To abandon a
/// refresh that cannot finish, run --cancel at f+1 servers; then another one can be approved. While
/// fewer than f+1 servers have approved it, --withdraw takes back this server's approval.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder quorum refresh --socket /run/sunder/quorum-office/api \\
             --to nodes.toml
Or:      sunder quorum refresh --socket /run/sunder/quorum-office/api --cancel")]
pub(super) struct QuorumRefreshArguments {
    #[command(flatten)]
    server: QuorumSocketOptions,
    /// The servers of the new group, in TOML, as for `sunder quorum init`
    #[arg(long, value_name = "FILE",
        required_unless_present_any = ["cancel", "withdraw", "servers"])]
    to: Option<PathBuf>,
    /// Cancel the refresh that is open or approved
    #[arg(long, conflicts_with_all = ["to", "withdraw", "servers"])]
    cancel: bool,
    /// Withdraw this server's approval of a refresh that has not begun
    #[arg(long, conflicts_with_all = ["to", "servers"])]
    withdraw: bool,
    /// The servers of the new group in their order, in place of --to: the lines of `sunder init
    /// quorum`
    #[arg(value_name = "SERVER", conflicts_with = "to", value_parser = parse_server_line)]
    servers: Vec<QuorumMember>,
    /// Do not wait until the refresh is done or cancelled
    #[arg(long)]
    no_wait: bool,
}

/// Prints the group's public key, as a running server knows it.
///
/// An OpenPGP key contains a signature: `sunder quorum prepare openpgp-key` begins one.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder quorum pubkey --socket /run/sunder/quorum-office/api \\
             > public.pem
Then: openssl dgst -sha256 -verify public.pem -signature FILE.sig FILE")]
pub(super) struct QuorumPubkeyArguments {
    #[command(flatten)]
    servers: QuorumServersOptions,
    #[command(flatten)]
    key: GroupKeyOptions,
    /// The form of the key
    #[arg(long, value_enum, default_value_t = PublicKeyFormat::Pem)]
    format: PublicKeyFormat,
}

#[derive(Clone, Copy, ValueEnum)]
enum PublicKeyFormat {
    /// PEM, for openssl
    Pem,
    /// One line, for OpenSSH
    Ssh,
    /// A JSON Web Key
    Jwk,
}

/// Writes the headers of all epochs with their signatures to a new file, for `verify-epochs`.
#[derive(clap::Args)]
#[command(
    after_help = "Example: sunder quorum headers --socket /run/sunder/quorum-office/api headers"
)]
pub(super) struct QuorumHeadersArguments {
    #[command(flatten)]
    servers: QuorumServersOptions,
    /// The file to write
    file: PathBuf,
}

/// Verifies the chain of groups from the first to the current one with the public key alone.
///
/// Each group has signed the header of its epoch, which names the previous header. Exit code 3: the
/// chain is broken.
///
/// With --socket, it gets the headers of all these servers, skips wrong ones, and takes the longest
/// chain. So one correct server that is up to date is enough.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder quorum verify-epochs --pubkey public.pem headers
Or:      sunder quorum verify-epochs --pubkey public.pem \\
             --socket office-1.sock --socket office-2.sock")]
pub(super) struct VerifyEpochsArguments {
    /// The public key, in PEM
    #[arg(long, value_name = "FILE")]
    pubkey: PathBuf,
    /// Refuse a chain that ends before this epoch
    #[arg(long, value_name = "EPOCH")]
    at_least: Option<u64>,
    /// Refuse a chain whose last epoch began longer ago than this, such as 30d
    #[arg(long, value_name = "PERIOD", value_parser = humantime::parse_duration)]
    not_older_than: Option<Duration>,
    /// Print one JSON document on standard output
    #[arg(long)]
    json: bool,
    /// The socket of a server, in place of a file of headers
    #[arg(
        long = "socket",
        value_name = "PATH",
        conflicts_with = "headers",
        required_unless_present = "headers"
    )]
    sockets: Vec<PathBuf>,
    /// The headers, as `sunder quorum headers` writes them
    headers: Option<PathBuf>,
}

/// What `verify-epochs --json` prints.
#[derive(Serialize)]
struct LastEpochDocument {
    epoch: u64,
    /// When it began (RFC 3339); `null` in chains of earlier versions.
    began: Option<String>,
    faulty: usize,
    servers: Vec<EpochServerDocument>,
}

#[derive(Serialize)]
struct EpochServerDocument {
    identity: String,
    address: String,
}

pub(super) fn register(arguments: &QuorumRegisterArguments) -> Result<(), CommandFailure> {
    let key = match arguments.format {
        SignatureFormatName::Raw => None,
        _ => Some(arguments.server.public_key()?),
    };
    // All are checked before one is registered.
    let mut messages = Vec::new();
    for file in &arguments.files {
        let (name, message) = (file.display().to_string(), read_message(file)?);
        let line = arguments.format.describe(&name, &message)?;
        if let Some(key) = &key {
            arguments.format.check_key(&name, &message, key)?;
        }
        messages.push((message, line));
    }
    for (message, line) in messages {
        let registered = arguments.server.ask(async |client| client.register(message).await)?;
        let what = if registered.new { "is registered" } else { "was registered already" };
        let until = match &*registered.until {
            "" => String::new(),
            until => format!(", until {until}"),
        };
        let meaning = match arguments.format {
            SignatureFormatName::Raw => String::new(),
            _ => format!(": {line}"),
        };
        console::print_line(&format!("SHA-256 {} {what}{until}{meaning}", registered.digest))?;
    }
    Ok(())
}

pub(super) fn refresh(arguments: &QuorumRefreshArguments) -> Result<(), CommandFailure> {
    if arguments.withdraw {
        arguments.server.ask(async |client| client.withdraw_approval().await)?;
        return console::print_line(
            "the withdrawal is submitted: `sunder quorum pending` shows the list until it holds",
        );
    }
    let nodes = arguments.to.as_deref().map(service::config::read_file).transpose();
    let nodes = nodes.map_err(|error| CommandFailure::Usage(error.to_string()))?;
    let listed = (!arguments.servers.is_empty()).then(|| nodes_text(&arguments.servers));
    let nodes = nodes.or(listed);
    let is_waiting = !arguments.no_wait;
    let done = arguments.server.ask(async |client| {
        let begun = match nodes {
            Some(nodes) => client.start_refresh(nodes).await?,
            None => client.cancel_refresh().await?,
        };
        if is_waiting { follow(client, begun).await } else { Ok(begun) }
    })?;
    let RefreshStatus { epoch, step, .. } = done;
    match (step, arguments.cancel) {
        (RefreshStep::Done, false) => console::print_line(&format!("epoch {epoch} has begun")),
        (RefreshStep::Done, true) => {
            let what = format!("epoch {epoch} has begun: it was too late to cancel the refresh");
            Err(CommandFailure::Failed(what))
        }
        (RefreshStep::Cancelled, true) => {
            console::print_line(&format!("the refresh to epoch {epoch} was cancelled"))
        }
        (RefreshStep::Cancelled, false) => {
            Err(CommandFailure::Failed(format!("the refresh to epoch {epoch} was cancelled")))
        }
        (_, true) => console::print_line(&format!(
            "the refresh to epoch {epoch} is cancelled here; it ends when {} servers have \
             cancelled it",
            done.cancelled_of
        )),
        (_, false) => {
            console::print_line(&format!("the refresh to epoch {epoch} is approved here"))
        }
    }
}

/// Shows how far a refresh is, until it is over.
async fn follow(
    client: &QuorumApiClient,
    begun: RefreshStatus,
) -> Result<RefreshStatus, QuorumApiError> {
    let progress = CommandProgress::unknown();
    let (epoch, mut now) = (begun.epoch, begun);
    while !matches!(now.step, RefreshStep::Done | RefreshStep::Cancelled) && now.epoch == epoch {
        progress.doing(format!("epoch {epoch}: {}", page::progress(&now)));
        sleep(POLL_INTERVAL).await;
        now = client.refresh().await?;
    }
    Ok(now)
}

pub(super) fn pubkey(arguments: &QuorumPubkeyArguments) -> Result<(), CommandFailure> {
    let key = arguments.key.key(&arguments.servers)?;
    let text = match arguments.format {
        PublicKeyFormat::Pem => key.to_pem(),
        PublicKeyFormat::Ssh => ssh::public_key_line(&key, ssh_agent::COMMENT),
        PublicKeyFormat::Jwk => jwt::json_web_key(&key).to_string(),
    };
    console::print(text.trim_end().as_bytes())
}

pub(super) fn headers(arguments: &QuorumHeadersArguments) -> Result<(), CommandFailure> {
    let headers = arguments.servers.ask(async |group| group.headers().await)?;
    write_new(&arguments.file, &headers)
}

pub(super) fn verify_epochs(arguments: &VerifyEpochsArguments) -> Result<(), CommandFailure> {
    let key = RsaPublicKey::read(&arguments.pubkey);
    let key = key.map_err(|error| CommandFailure::Usage(error.to_string()))?;
    let (name, last) = match &arguments.headers {
        Some(path) => {
            let bytes = read_bounded(path, MAX_HEADERS)?;
            (path.display().to_string(), last_epoch(&key, &path.display().to_string(), &bytes)?)
        }
        None => newest_epoch(&key, &arguments.sockets)?,
    };
    show_epoch(arguments, &name, &last)
}

/// The last epoch of a chain of headers.
fn last_epoch(key: &RsaPublicKey, name: &str, bytes: &[u8]) -> Result<GroupHeader, CommandFailure> {
    let chain = GroupStart::parse_chain(bytes)
        .map_err(|error| CommandFailure::Usage(format!("{name}: {error}")))?;
    let headers: Vec<Vec<u8>> = chain.iter().map(|it| it.header.to_bytes()).collect();
    let pairs = headers.iter().zip(&chain).map(|(bytes, it)| (&bytes[..], &it.signature[..]));
    verify_chain(pairs, |message, signature| key.verify(message, signature))
        .map_err(|error| CommandFailure::Refused(format!("{name}: {error}")))
}

/// The newest epoch that one of the servers proves, and the server's socket.
fn newest_epoch(
    key: &RsaPublicKey,
    sockets: &[PathBuf],
) -> Result<(String, GroupHeader), CommandFailure> {
    let runtime = service::runtime()?;
    let mut newest: Option<(String, GroupHeader)> = None;
    for socket in sockets {
        let name = socket.display().to_string();
        let answer = runtime.block_on(QuorumApiClient::new(socket).headers());
        let found = answer.map_err(|error| CommandFailure::Failed(error.to_string()));
        match found.and_then(|bytes| last_epoch(key, &name, &bytes)) {
            Ok(epoch) if newest.as_ref().is_none_or(|(_, it)| it.epoch < epoch.epoch) => {
                newest = Some((name, epoch));
            }
            Ok(_) => {}
            Err(failure) if sockets.len() == 1 => return Err(failure),
            Err(failure) => console::warning(failure.message()),
        }
    }
    let why = "none of the servers has proved an epoch: see the warnings, or name other servers";
    newest.ok_or_else(|| CommandFailure::Failed(why.into()))
}

/// Prints the servers of an epoch, if it is as new as required.
fn show_epoch(
    arguments: &VerifyEpochsArguments,
    name: &str,
    last: &GroupHeader,
) -> Result<(), CommandFailure> {
    check_age(arguments, last).map_err(|why| CommandFailure::Refused(format!("{name}: {why}")))?;
    let faulty = last.group.combination().faulty();
    let members = last.group.members();
    let began = last.time.map(|time| time.to_string());
    if arguments.json {
        let server = |member: &QuorumMember| EpochServerDocument {
            identity: member.identity.to_string(),
            address: member.address.to_string(),
        };
        let servers = members.iter().map(server).collect();
        return console::print_json(&LastEpochDocument {
            epoch: last.epoch,
            began,
            faulty,
            servers,
        });
    }
    let (epoch, count) = (last.epoch, members.len());
    console::print_line(&format!(
        "epoch {epoch}{}, {count} servers, of which {faulty} may be faulty:",
        began.map_or(String::new(), |time| format!(" since {time}"))
    ))?;
    for member in members {
        console::print_line(&format!("  {} {}", member.identity, member.address))?;
    }
    Ok(())
}

/// Whether the last epoch is as new as required. A chain without its newest headers is valid, too.
fn check_age(arguments: &VerifyEpochsArguments, last: &GroupHeader) -> Result<(), String> {
    let epoch = last.epoch;
    if let Some(least) = arguments.at_least.filter(|least| epoch < *least) {
        return Err(format!(
            "the chain ends with epoch {epoch}, before epoch {least}; get the headers from a \
             server of the current group"
        ));
    }
    let Some(longest) = arguments.not_older_than else { return Ok(()) };
    let Some(began) = last.time else {
        return Err(format!("the header of epoch {epoch} has no time; the next refresh adds one"));
    };
    let age = began.until(UnixSeconds::from_system(SystemTime::now()));
    if age > longest {
        return Err(format!(
            "epoch {epoch} began at {began}, more than {} ago; get the headers from a server of \
             the current group, or refresh the group",
            humantime::format_duration(longest)
        ));
    }
    Ok(())
}

impl QuorumSocketOptions {
    /// The group's key, as the server names it.
    fn public_key(&self) -> Result<RsaPublicKey, CommandFailure> {
        let pem = self.ask(async |client| client.public_key().await)?;
        let key = str::from_utf8(&pem).ok().and_then(|pem| RsaPublicKey::from_pem(pem).ok());
        key.ok_or_else(|| CommandFailure::Failed("the server names no RSA public key".into()))
    }

    /// Asks the server.
    pub(super) fn ask<T>(
        &self,
        request: impl AsyncFnOnce(&QuorumApiClient) -> Result<T, QuorumApiError>,
    ) -> Result<T, CommandFailure> {
        let runtime = service::runtime()?;
        runtime.block_on(request(&QuorumApiClient::new(&self.socket))).map_err(servers::failure)
    }
}
