//! The commands that ask a running server: `register`, `sign`, `refresh`, `pubkey`; and
//! `verify-epochs`.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::ValueEnum;
use console::CommandFailure;
use console::CommandProgress;
use hyper::body::Bytes;
use keys::{RsaPublicKey, storage};
use quorum::UnixSeconds;
use quorum::api::{
    ApiEncoding, MAX_BODY_LEN, QuorumApiClient, QuorumApiError, RefreshStatus, RefreshStep,
};
use quorum::group::{GroupHeader, verify_chain};
use quorum::server::GroupStart;
use serde::Serialize;
use tokio::time::sleep;

use super::page;

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

/// Allows a server to sign a file.
///
/// From now on the server signs exactly these bytes, even after a restart. f+1 servers must allow
/// it. A server keeps 65,536 registrations, and then removes the oldest.
#[derive(clap::Args)]
#[command(
    after_help = "Example: sunder quorum register --socket /run/sunder/quorum-office/api release.txt"
)]
pub(super) struct QuorumRegisterArguments {
    #[command(flatten)]
    server: QuorumSocketOptions,
    /// The file, of at most 1 MiB
    file: PathBuf,
}

/// Has a file signed by f+1 servers, and writes FILE.sig.
///
/// The file must be registered or allowed by a rule at f+1 servers, including this one. An existing
/// FILE.sig is not overwritten. Exit code 3: the server refuses to sign the file.
#[derive(clap::Args)]
#[command(
    after_help = "Example: sunder quorum sign --socket /run/sunder/quorum-office/api release.txt
Then: openssl dgst -sha256 -verify public.pem -signature release.txt.sig release.txt"
)]
pub(super) struct QuorumSignArguments {
    #[command(flatten)]
    server: QuorumSocketOptions,
    /// How the file is encoded, with SHA-256
    #[arg(long, value_enum, default_value_t = SignatureEncodingName::Pkcs1)]
    encoding: SignatureEncodingName,
    /// The file, of at most 1 MiB
    file: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum SignatureEncodingName {
    /// PKCS #1 v1.5
    Pkcs1,
    /// PSS with a salt of 32 bytes
    Pss,
}

/// Approves a refresh, which moves the key to other servers, and shows its progress.
///
/// The refresh begins when f+1 servers have approved the same new group: run this at f+1 of them.
/// The new servers must be running. Afterwards the new group signs under the same public key, and
/// the old servers wipe their shares. Stopping this command does not stop the refresh. To abandon a
/// refresh that cannot finish, run --cancel at f+1 servers; then another one can be approved.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder quorum refresh --socket /run/sunder/quorum-office/api \\
             --to nodes.toml
Or:      sunder quorum refresh --socket /run/sunder/quorum-office/api --cancel")]
pub(super) struct QuorumRefreshArguments {
    #[command(flatten)]
    server: QuorumSocketOptions,
    /// The servers of the new group, in TOML, as for `sunder quorum init`
    #[arg(long, value_name = "FILE", required_unless_present = "cancel")]
    to: Option<PathBuf>,
    /// Cancel the refresh that is open or approved
    #[arg(long, conflicts_with = "to")]
    cancel: bool,
    /// Do not wait until the refresh is done or cancelled
    #[arg(long)]
    no_wait: bool,
}

/// Prints the group's public key in PEM, as a running server knows it.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder quorum pubkey --socket /run/sunder/quorum-office/api \\
             > public.pem
Then: openssl dgst -sha256 -verify public.pem -signature FILE.sig FILE")]
pub(super) struct QuorumPubkeyArguments {
    #[command(flatten)]
    server: QuorumSocketOptions,
}

/// Writes the headers of all epochs with their signatures to a new file, for `verify-epochs`.
#[derive(clap::Args)]
#[command(
    after_help = "Example: sunder quorum headers --socket /run/sunder/quorum-office/api headers"
)]
pub(super) struct QuorumHeadersArguments {
    #[command(flatten)]
    server: QuorumSocketOptions,
    /// The file to write
    file: PathBuf,
}

/// Verifies the chain of groups from the first to the current one with the public key alone.
///
/// Each group has signed the header of its epoch, which names the previous header. Exit code 3: the
/// chain is broken.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder quorum verify-epochs --pubkey public.pem headers")]
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
    /// The headers, as `sunder quorum headers` writes them
    headers: PathBuf,
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
    let message = read_message(&arguments.file)?;
    let registered = arguments.server.ask(async |client| client.register(message).await)?;
    let what = if registered.new { "is registered" } else { "was registered already" };
    console::print_line(&format!("SHA-256 {} {what}", registered.digest))
}

pub(super) fn sign(arguments: &QuorumSignArguments) -> Result<(), CommandFailure> {
    let message = read_message(&arguments.file)?;
    let encoding = match arguments.encoding {
        SignatureEncodingName::Pkcs1 => ApiEncoding::Pkcs1,
        SignatureEncodingName::Pss => ApiEncoding::Pss,
    };
    let mut path = arguments.file.clone().into_os_string();
    path.push(".sig");
    let path = PathBuf::from(path);
    // Before anything is signed.
    if path.exists() {
        return Err(exists(&path));
    }
    let signature = arguments.server.ask(async |client| client.sign(message, encoding).await)?;
    write_new(&path, &signature)?;
    console::print_line(&format!("{}: the signature", path.display()))
}

pub(super) fn refresh(arguments: &QuorumRefreshArguments) -> Result<(), CommandFailure> {
    let nodes = arguments.to.as_deref().map(service::config::read_file).transpose();
    let nodes = nodes.map_err(|error| CommandFailure::Usage(error.to_string()))?;
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
    let pem = arguments.server.ask(async |client| client.public_key().await)?;
    console::print(pem.trim_ascii_end())
}

pub(super) fn headers(arguments: &QuorumHeadersArguments) -> Result<(), CommandFailure> {
    let headers = arguments.server.ask(async |client| client.headers().await)?;
    write_new(&arguments.file, &headers)
}

pub(super) fn verify_epochs(arguments: &VerifyEpochsArguments) -> Result<(), CommandFailure> {
    let key = RsaPublicKey::read(&arguments.pubkey);
    let key = key.map_err(|error| CommandFailure::Usage(error.to_string()))?;
    let path = &arguments.headers;
    let bytes = read_bounded(path, MAX_HEADERS)?;
    let chain = GroupStart::parse_chain(&bytes)
        .map_err(|error| CommandFailure::Usage(format!("{}: {error}", path.display())))?;
    let headers: Vec<Vec<u8>> = chain.iter().map(|it| it.header.to_bytes()).collect();
    let pairs = headers.iter().zip(&chain).map(|(bytes, it)| (&bytes[..], &it.signature[..]));
    let last = verify_chain(pairs, |message, signature| key.verify(message, signature))
        .map_err(|error| CommandFailure::Refused(format!("{}: {error}", path.display())))?;
    check_age(arguments, &last)
        .map_err(|why| CommandFailure::Refused(format!("{}: {why}", path.display())))?;
    let faulty = last.group.combination().faulty();
    let members = last.group.members();
    let began = last.time.map(|time| time.to_string());
    if arguments.json {
        let server = |member: &quorum::group::QuorumMember| EpochServerDocument {
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
    /// Asks the server.
    fn ask<T>(
        &self,
        request: impl AsyncFnOnce(&QuorumApiClient) -> Result<T, QuorumApiError>,
    ) -> Result<T, CommandFailure> {
        let runtime = service::runtime()?;
        let asked = runtime.block_on(request(&QuorumApiClient::new(&self.socket)));
        asked.map_err(|error| {
            let message = error.to_string();
            // What the server's policy forbids is refused; other requests have failed.
            if error.is_forbidden() {
                CommandFailure::Refused(message)
            } else {
                CommandFailure::Failed(message)
            }
        })
    }
}

fn read_message(path: &Path) -> Result<Bytes, CommandFailure> {
    let message = read_bounded(path, MAX_BODY_LEN as u64)?;
    Ok(message.into())
}

/// A file of at most this length.
fn read_bounded(path: &Path, max: u64) -> Result<Vec<u8>, CommandFailure> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(max + 1).read_to_end(&mut bytes));
    read.map_err(|error| CommandFailure::reading(path, &error))?;
    if bytes.len() as u64 > max {
        let what = format!("{} has more than {max} bytes", path.display());
        return Err(CommandFailure::Usage(what));
    }
    Ok(bytes)
}

fn exists(path: &Path) -> CommandFailure {
    CommandFailure::Usage(format!("{} already exists, and is not overwritten", path.display()))
}

/// Writes a new file, all of it or nothing.
fn write_new(path: &Path, content: &[u8]) -> Result<(), CommandFailure> {
    storage::create(path, content, 0o666).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => exists(path),
        _ => CommandFailure::writing(path, &error),
    })
}
