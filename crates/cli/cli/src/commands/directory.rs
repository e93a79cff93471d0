//! `sunder directory`: the addresses at which a proxy's peers are reached.

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Subcommand;
use console::CommandFailure;
use console::table::{ColumnAlignment, aligned};
use directory::addresses::ChannelAddresses;
use directory::config::DirectoryClientConfig;
use directory::signed_list::{self, SignedDirectoryList, SignedDirectoryListError};
use directory::store::{
    AddressSource, DirectoryEntry, DirectoryStore, DirectoryStoreError, LearnedAddresses,
};
use directory::{Directory, DirectoryError};
use micss::intercept::OWN_MARK;
use serde::Serialize;

use crate::checks::files::warn_of_exposed_keys;
use crate::commands::load_config_file;
use crate::daemon;

/// The directory's part of a proxy's configuration, shown by `--help`.
const EXAMPLE: &str = include_str!("directory.toml");

/// Shows and changes the addresses at which peers are reached.
///
/// A peer is identified by one address, the one to which applications connect. Addresses that you
/// add stay until you remove them, and the peer is never asked for them. Addresses that a peer
/// sends are accepted if it proves them with a key that you trust, and for the time that you
/// configure.
#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = help())]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: DirectoryCommand,
}

fn help() -> String {
    format!(
        "Example: sunder directory list --config proxy.toml, with this in proxy.toml\n\n{EXAMPLE}\n\
         Then: sunder directory add --config proxy.toml 203.0.113.5 \\\n    \
         203.0.113.5:6522 198.51.100.5:6522"
    )
}

#[derive(Subcommand)]
enum DirectoryCommand {
    List(DirectoryListArguments),
    Add(DirectoryAddArguments),
    Remove(DirectoryRemoveArguments),
    Refresh(DirectoryRefreshArguments),
    Import(DirectoryImportArguments),
}

/// Lists the peers, the source and the date of their addresses, and the addresses.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder directory list --config proxy.toml")]
struct DirectoryListArguments {
    #[command(flatten)]
    place: DirectoryConfigOptions,
    /// Print one JSON document on standard output: a list with an entry for each peer
    #[arg(long)]
    json: bool,
}

/// Adds a peer's addresses, which replace those already known.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder directory add --config proxy.toml 203.0.113.5 \\\n    \
                  203.0.113.5:6522 198.51.100.5:6522")]
struct DirectoryAddArguments {
    #[command(flatten)]
    place: DirectoryConfigOptions,
    /// The address to which applications connect
    peer: IpAddr,
    /// The peer's address on each channel
    #[arg(value_name = "ADDRESS", required = true)]
    addresses: Vec<SocketAddr>,
}

/// Removes a peer and its addresses.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder directory remove --config proxy.toml 203.0.113.5")]
struct DirectoryRemoveArguments {
    #[command(flatten)]
    place: DirectoryConfigOptions,
    /// The address to which applications connect
    peer: IpAddr,
}

/// Asks peers for their addresses, even if the known ones are not old.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder directory refresh --config proxy.toml 192.0.2.10

Exit code 3: an answer was rejected because it is not authentic: it was changed
on the path, or the peer has another key, or another peer has sent it.")]
struct DirectoryRefreshArguments {
    #[command(flatten)]
    place: DirectoryConfigOptions,
    /// The addresses to which applications connect [default: all whose addresses were learnt]
    #[arg(value_name = "PEER")]
    peers: Vec<IpAddr>,
}

/// Replaces the list of peers that a group of servers has signed.
///
/// FILE is a list in TOML, and FILE.sig its RSA signature, as `openssl dgst -sha256 -sign` makes
/// it. It must be of the key that `signed_by` in the configuration names. Addresses that you have
/// added yourself stay.
#[derive(clap::Args)]
#[command(after_help = IMPORT_HELP)]
struct DirectoryImportArguments {
    #[command(flatten)]
    place: DirectoryConfigOptions,
    /// The list
    #[arg(value_name = "FILE")]
    list: PathBuf,
}

const IMPORT_HELP: &str = "\
Example: sunder directory import --config proxy.toml peers.list, with this in peers.list

format = \"sunder address list 1\"
number = 1    # higher in each later list

[[peer]]
address = \"192.0.2.10\"
channels = [\"192.0.2.10:6522\", \"198.51.100.10:6522\"]

Exit code 3: the signature is not valid.";

#[derive(clap::Args)]
struct DirectoryConfigOptions {
    /// The proxy's configuration, in TOML
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

/// Runs the subcommand.
///
/// # Errors
/// If the configuration is wrong, the database fails, or a peer does not answer or is not accepted.
pub(crate) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    match &arguments.command {
        DirectoryCommand::List(arguments) => list(arguments),
        DirectoryCommand::Add(arguments) => add(arguments),
        DirectoryCommand::Remove(arguments) => remove(arguments),
        DirectoryCommand::Refresh(arguments) => refresh(arguments),
        DirectoryCommand::Import(arguments) => import(arguments),
    }
}

fn list(arguments: &DirectoryListArguments) -> Result<(), CommandFailure> {
    let config = arguments.place.load()?;
    let file = arguments.place.config_dir().join(&config.file);
    // Without this check, listing would create a file owned by the current user.
    let entries = if file.exists() { entries(&file)? } else { Vec::new() };
    if arguments.json {
        return console::print_json(
            &entries.iter().map(DirectoryPeerDocument::of).collect::<Vec<_>>(),
        );
    }
    if entries.is_empty() {
        return console::print_line("no peers are known yet");
    }
    console::print(table(&entries).trim_end().as_bytes())
}

fn add(arguments: &DirectoryAddArguments) -> Result<(), CommandFailure> {
    let DirectoryAddArguments { place, peer, addresses } = arguments;
    let addresses = ChannelAddresses::new(addresses.clone())
        .map_err(|error| CommandFailure::Usage(error.to_string()))?;
    if !addresses.have_two_hosts() {
        let message = "one address is one channel, and an eavesdropper on it reads everything: \
                       give two or more, of different networks";
        return Err(CommandFailure::Usage(message.into()));
    }
    let (file, mut store) = place.open()?;
    let before = store.add(peer.to_canonical(), &addresses, SystemTime::now());
    let before = before.map_err(|error| failed(&file, &error))?;
    console::print_line(&reached(*peer, &addresses, before.map(|entry| entry.addresses)))
}

fn remove(arguments: &DirectoryRemoveArguments) -> Result<(), CommandFailure> {
    let DirectoryRemoveArguments { place, peer } = arguments;
    let (file, mut store) = place.open()?;
    if store.remove(peer.to_canonical()).map_err(|error| failed(&file, &error))? {
        console::print_line(&format!("{peer} is removed"))
    } else {
        Err(CommandFailure::Failed(format!(
            "{peer} is not known: sunder directory list shows the known peers"
        )))
    }
}

fn import(arguments: &DirectoryImportArguments) -> Result<(), CommandFailure> {
    let DirectoryImportArguments { place, list: path } = arguments;
    let signer = place.load()?.signer(place.config_dir());
    let signer = signer.map_err(|error| CommandFailure::Usage(error.to_string()))?;
    let missing = "no signed_by in [directory]: set it to the public key whose lists are accepted";
    let signer = signer.ok_or_else(|| CommandFailure::Usage(missing.into()))?;
    let mut signature = path.clone().into_os_string();
    signature.push(".sig");
    let (text, signature) = (read_bounded(path)?, read_bounded(Path::new(&signature))?);
    let list = SignedDirectoryList::verify(&text, &signature, &signer).map_err(|error| {
        let message = format!("{}: {error}", path.display());
        match error {
            SignedDirectoryListError::Unsigned => CommandFailure::Refused(message),
            _ => CommandFailure::Usage(message),
        }
    })?;
    let (file, mut store) = place.open()?;
    let kept = store.import(&list, SystemTime::now()).map_err(|error| failed(&file, &error))?;
    for peer in kept {
        console::warning(&format!(
            "{peer} was added by hand with other addresses, which stay; to accept those of the \
             list: sunder directory remove {peer}"
        ));
    }
    console::print_line(&format!("list {}: {} peers", list.number, list.peers.len()))
}

/// A file of at most the length of a list.
fn read_bounded(path: &Path) -> Result<Vec<u8>, CommandFailure> {
    let mut bytes = Vec::new();
    let limit = signed_list::MAX_LEN as u64 + 1;
    let read = File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes));
    read.map_err(|error| CommandFailure::Failed(format!("{}: {error}", path.display())))?;
    Ok(bytes)
}

fn refresh(arguments: &DirectoryRefreshArguments) -> Result<(), CommandFailure> {
    let DirectoryRefreshArguments { place, peers } = arguments;
    let config = place.load()?;
    let config_dir = place.config_dir();
    warn_of_exposed_keys(&config.key_files(config_dir));
    let directory = Directory::open(&config, config_dir).map_err(|error| refused(&error))?;
    let peers =
        if peers.is_empty() { learnt(&config_dir.join(&config.file))? } else { peers.clone() };
    if peers.is_empty() {
        return console::print_line("no addresses were learnt yet: name the peers to ask");
    }
    // A proxy on this host must not intercept this connection; only root can set the mark for that.
    let mark = rustix::process::geteuid().is_root().then_some(OWN_MARK);
    let runtime = service::runtime()?;
    let mut worst = None;
    for peer in peers {
        match runtime.block_on(directory.refresh(peer, mark)) {
            Ok(LearnedAddresses { addresses, before }) => {
                console::print_line(&reached(peer, &addresses, before))?;
            }
            Err(error) => worst = Some(worse(worst, refused(&error))),
        }
    }
    worst.map_or(Ok(()), Err)
}

impl DirectoryConfigOptions {
    fn load(&self) -> Result<DirectoryClientConfig, CommandFailure> {
        load_config_file("directory", &self.config, DirectoryClientConfig::from_toml)
    }

    /// The directory of the configuration file.
    fn config_dir(&self) -> &Path {
        daemon::config_dir(&self.config)
    }

    /// The path of the database, and the database.
    fn open(&self) -> Result<(PathBuf, DirectoryStore), CommandFailure> {
        let file = self.config_dir().join(self.load()?.file);
        let store = DirectoryStore::open(&file).map_err(|error| failed(&file, &error))?;
        Ok((file, store))
    }
}

fn entries(file: &Path) -> Result<Vec<DirectoryEntry>, CommandFailure> {
    DirectoryStore::open(file).and_then(|store| store.list()).map_err(|error| failed(file, &error))
}

/// The peers that sent their addresses themselves.
fn learnt(file: &Path) -> Result<Vec<IpAddr>, CommandFailure> {
    let learnt =
        entries(file)?.into_iter().filter(|entry| matches!(entry.source, AddressSource::Learnt(_)));
    Ok(learnt.map(|entry| entry.peer).collect())
}

fn failed(file: &Path, error: &DirectoryStoreError) -> CommandFailure {
    CommandFailure::Failed(format!("directory {}: {error}", file.display()))
}

fn refused(error: &DirectoryError) -> CommandFailure {
    let message = error.to_string();
    match error {
        _ if error.is_tampering() => CommandFailure::Refused(message),
        DirectoryError::Key(_)
        | DirectoryError::NotTrusted { .. }
        | DirectoryError::Store {
            source: DirectoryStoreError::Manual { .. } | DirectoryStoreError::Signed { .. },
            ..
        } => CommandFailure::Usage(message),
        _ => CommandFailure::Failed(message),
    }
}

/// The worse of two failures; the other one is printed.
fn worse(before: Option<CommandFailure>, failure: CommandFailure) -> CommandFailure {
    let Some(before) = before else { return failure };
    let (milder, worse) =
        if failure.code() > before.code() { (before, failure) } else { (failure, before) };
    console::error(milder.message());
    worse
}

/// The addresses of a peer, and the previous ones if they differ.
fn reached(peer: IpAddr, addresses: &ChannelAddresses, before: Option<ChannelAddresses>) -> String {
    match before {
        None => format!("{peer} is reached at {addresses}"),
        Some(before) if before == *addresses => {
            format!("{peer} is reached at {addresses}, as before")
        }
        Some(before) => format!("{peer} is reached at {addresses}; before, at {before}"),
    }
}

/// A peer in JSON.
#[derive(Serialize)]
struct DirectoryPeerDocument<'a> {
    peer: IpAddr,
    source: &'static str,
    learnt_at: String,
    addresses: &'a [SocketAddr],
}

impl<'a> DirectoryPeerDocument<'a> {
    fn of(entry: &'a DirectoryEntry) -> Self {
        let DirectoryEntry { peer, addresses, source, learnt_at } = entry;
        let learnt_at = date(*learnt_at);
        Self { peer: *peer, source: source.name(), learnt_at, addresses: addresses.as_slice() }
    }
}

fn date(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

/// A line for each address. The first line of a peer names it.
fn table(entries: &[DirectoryEntry]) -> String {
    let head = ["peer", "source", "since", "addresses"].map(str::to_owned);
    let lines = entries.iter().flat_map(|entry| {
        let first = [entry.peer.to_string(), entry.source.name().to_owned(), date(entry.learnt_at)];
        let rest = std::iter::repeat_with(|| [const { String::new() }; 3]);
        let heads = std::iter::once(first).chain(rest);
        let lines = heads.zip(entry.addresses.as_slice());
        lines.map(|([peer, source, since], address)| [peer, source, since, address.to_string()])
    });
    let rows: Vec<_> = std::iter::once(head).chain(lines).collect();
    aligned(&[ColumnAlignment::Left; 4], &rows)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn the_example_is_a_directory() {
        let config = DirectoryClientConfig::from_toml(EXAMPLE).unwrap();
        assert_eq!((config.port, config.trusted_networks.len()), (6523, 2));
        assert_eq!(config.key_files(Path::new("")), [Path::new("peers.key")]);
        // The rest of the proxy's configuration is ignored.
        let proxy = format!("socks = \"127.0.0.1:1080\"\n{EXAMPLE}\n[[channel]]\nserver = 1\n");
        assert_eq!(DirectoryClientConfig::from_toml(&proxy).unwrap(), config);
    }

    #[test]
    fn a_peer_has_a_line_for_each_address() {
        let entry = |peer: &str, addresses: &[&str], source| DirectoryEntry {
            peer: peer.parse().unwrap(),
            addresses: ChannelAddresses::new(
                addresses.iter().map(|text| text.parse().unwrap()).collect(),
            )
            .unwrap(),
            source,
            learnt_at: UNIX_EPOCH + Duration::from_secs(1_767_225_600),
        };
        let entries = [
            entry("192.0.2.10", &["192.0.2.10:6522", "[2001:db8::1]:6522"], AddressSource::Manual),
            entry("fd00::1", &["[fd00::1]:6522"], AddressSource::Manual),
        ];
        let expected = "
  peer        source  since                 addresses
  192.0.2.10  manual  2026-01-01T00:00:00Z  192.0.2.10:6522
                                            [2001:db8::1]:6522
  fd00::1     manual  2026-01-01T00:00:00Z  [fd00::1]:6522
";
        assert_eq!(table(&entries), expected.trim_start_matches('\n'));
    }
}
