//! `sunder directory`: the addresses at which a proxy's peers are reached.

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Subcommand;
use directory::addresses::Addresses;
use directory::config::ClientDirectory;
use directory::signed_list::{self, SignedList, SignedListError};
use directory::store::{Entry, Learnt, Source, Store, StoreError};
use directory::{Directory, DirectoryError};
use keys::file::exposure;
use micss::intercept::OWN_MARK;
use serde::Serialize;

use crate::console;
use crate::daemon;
use crate::failure::Failure;
use crate::table::{Side, aligned};

/// The directory's part of a proxy's configuration, shown by `--help`.
const EXAMPLE: &str = include_str!("directory.toml");

/// Shows the addresses at which peers are reached, and adds, removes and learns them.
///
/// A peer is identified by one address, the one to which applications connect. Addresses that you
/// add stay until you remove them, and the peer is never asked for them. Addresses that a peer
/// sends are accepted if it proves them with a key that you trust, and for the time that you
/// configure.
#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = help())]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

fn help() -> String {
    format!(
        "Example: sunder directory list --config proxy.toml, with this in proxy.toml\n\n{EXAMPLE}\n\
         Then: sunder directory add --config proxy.toml 203.0.113.5 203.0.113.5:6522 198.51.100.5:6522"
    )
}

#[derive(Subcommand)]
enum Command {
    List(List),
    Add(Add),
    Remove(Remove),
    Refresh(Refresh),
    Import(Import),
}

/// Lists the peers, the source and the date of their addresses, and the addresses.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder directory list --config proxy.toml")]
struct List {
    #[command(flatten)]
    place: Place,
    /// Print one JSON document on standard output: a list with an entry for each peer
    #[arg(long)]
    json: bool,
}

/// Adds a peer's addresses, which replace those already known.
#[derive(clap::Args)]
#[command(
    after_help = "Example: sunder directory add --config proxy.toml 203.0.113.5 203.0.113.5:6522 \
                        198.51.100.5:6522"
)]
struct Add {
    #[command(flatten)]
    place: Place,
    /// The address to which applications connect
    peer: IpAddr,
    /// The peer's address on each channel
    #[arg(value_name = "ADDRESS", required = true)]
    addresses: Vec<SocketAddr>,
}

/// Removes a peer and its addresses.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder directory remove --config proxy.toml 203.0.113.5")]
struct Remove {
    #[command(flatten)]
    place: Place,
    /// The address to which applications connect
    peer: IpAddr,
}

/// Asks peers for their addresses, even if the known ones are not old.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder directory refresh --config proxy.toml 192.0.2.10

Exit code 3 says that an answer came and was not believed: it was changed on the way, or the peer has
another key, or it is another peer.")]
struct Refresh {
    #[command(flatten)]
    place: Place,
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
struct Import {
    #[command(flatten)]
    place: Place,
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

Exit code 3 says that the signature is not valid.";

#[derive(clap::Args)]
struct Place {
    /// The proxy's configuration, in TOML
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

/// Runs the subcommand.
///
/// # Errors
/// If the configuration is wrong, the database fails, or a peer does not answer or is not accepted.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::List(arguments) => list(arguments),
        Command::Add(arguments) => add(arguments),
        Command::Remove(arguments) => remove(arguments),
        Command::Refresh(arguments) => refresh(arguments),
        Command::Import(arguments) => import(arguments),
    }
}

fn list(arguments: &List) -> Result<(), Failure> {
    let config = arguments.place.load()?;
    let file = arguments.place.config_dir().join(&config.file);
    // Without this check, listing would create a file owned by the current user.
    let entries = if file.exists() { entries(&file)? } else { Vec::new() };
    if arguments.json {
        return console::print_json(&entries.iter().map(Document::of).collect::<Vec<_>>());
    }
    if entries.is_empty() {
        return console::print_line("no peers are known yet");
    }
    console::print(table(&entries).trim_end().as_bytes())
}

fn add(arguments: &Add) -> Result<(), Failure> {
    let Add { place, peer, addresses } = arguments;
    let addresses =
        Addresses::new(addresses.clone()).map_err(|error| Failure::Usage(error.to_string()))?;
    if !addresses.have_two_hosts() {
        let said = "one address is one channel, and whoever listens there reads everything: give two or more, \
                    of different networks";
        return Err(Failure::Usage(said.into()));
    }
    let (file, mut store) = place.open()?;
    let before = store.add(peer.to_canonical(), &addresses, SystemTime::now());
    let before = before.map_err(|error| failed(&file, &error))?;
    console::print_line(&reached(*peer, &addresses, before.map(|entry| entry.addresses)))
}

fn remove(arguments: &Remove) -> Result<(), Failure> {
    let Remove { place, peer } = arguments;
    let (file, mut store) = place.open()?;
    if store.remove(peer.to_canonical()).map_err(|error| failed(&file, &error))? {
        console::print_line(&format!("{peer} is removed"))
    } else {
        Err(Failure::Failed(format!("{peer} is not known: sunder directory list shows who is")))
    }
}

fn import(arguments: &Import) -> Result<(), Failure> {
    let Import { place, list: path } = arguments;
    let signer = place.load()?.signer(place.config_dir());
    let signer = signer.map_err(|error| Failure::Usage(error.to_string()))?;
    let missing = "no signed_by in [directory]: name the public key whose lists are believed there";
    let signer = signer.ok_or_else(|| Failure::Usage(missing.into()))?;
    let mut signature = path.clone().into_os_string();
    signature.push(".sig");
    let (text, signature) = (read_bounded(path)?, read_bounded(Path::new(&signature))?);
    let list = SignedList::verify(&text, &signature, &signer).map_err(|error| {
        let message = format!("{}: {error}", path.display());
        match error {
            SignedListError::Unsigned => Failure::Refused(message),
            _ => Failure::Usage(message),
        }
    })?;
    let (file, mut store) = place.open()?;
    let kept = store.import(&list, SystemTime::now()).map_err(|error| failed(&file, &error))?;
    for peer in kept {
        console::warning(&format!(
            "{peer} was added by hand with other addresses, which stay: sunder directory remove {peer}"
        ));
    }
    console::print_line(&format!("list {}: {} peers", list.number, list.peers.len()))
}

/// A file of at most the length of a list.
fn read_bounded(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let limit = signed_list::MAX_LEN as u64 + 1;
    let read = File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes));
    read.map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
    Ok(bytes)
}

/// Warns of key files that other users can read or replace.
pub(crate) fn warn_of_exposed(keys: &[PathBuf]) {
    for error in keys.iter().filter_map(|key| exposure(key)) {
        let (what, fix) = (error.what(), error.fix());
        console::warning(&format!("key: {what}, and pass for a peer: {fix}"));
    }
}

fn refresh(arguments: &Refresh) -> Result<(), Failure> {
    let Refresh { place, peers } = arguments;
    let config = place.load()?;
    let config_dir = place.config_dir();
    warn_of_exposed(&config.key_files(config_dir));
    let directory = Directory::open(&config, config_dir).map_err(|error| refused(&error))?;
    let peers =
        if peers.is_empty() { learnt(&config_dir.join(&config.file))? } else { peers.clone() };
    if peers.is_empty() {
        return console::print_line("no peers were learnt yet: name those to ask");
    }
    // A proxy on this host must not intercept this connection; only root can set the mark for that.
    let mark = rustix::process::geteuid().is_root().then_some(OWN_MARK);
    let runtime = service::runtime()?;
    let mut worst = None;
    for peer in peers {
        match runtime.block_on(directory.refresh(peer, mark)) {
            Ok(Learnt { addresses, before }) => {
                console::print_line(&reached(peer, &addresses, before))?;
            }
            Err(error) => worst = Some(worse(worst, refused(&error))),
        }
    }
    worst.map_or(Ok(()), Err)
}

impl Place {
    fn load(&self) -> Result<ClientDirectory, Failure> {
        daemon::load_file("directory", &self.config, ClientDirectory::from_toml)
    }

    /// The directory of the configuration file.
    fn config_dir(&self) -> &Path {
        daemon::config_dir(&self.config)
    }

    /// The path of the database, and the database.
    fn open(&self) -> Result<(PathBuf, Store), Failure> {
        let file = self.config_dir().join(self.load()?.file);
        let store = Store::open(&file).map_err(|error| failed(&file, &error))?;
        Ok((file, store))
    }
}

fn entries(file: &Path) -> Result<Vec<Entry>, Failure> {
    Store::open(file).and_then(|store| store.list()).map_err(|error| failed(file, &error))
}

/// The peers that sent their addresses themselves.
fn learnt(file: &Path) -> Result<Vec<IpAddr>, Failure> {
    let learnt =
        entries(file)?.into_iter().filter(|entry| matches!(entry.source, Source::Learnt(_)));
    Ok(learnt.map(|entry| entry.peer).collect())
}

fn failed(file: &Path, error: &StoreError) -> Failure {
    Failure::Failed(format!("directory {}: {error}", file.display()))
}

fn refused(error: &DirectoryError) -> Failure {
    let message = error.to_string();
    match error {
        _ if error.is_tampering() => Failure::Refused(message),
        DirectoryError::Key(_)
        | DirectoryError::NotTrusted { .. }
        | DirectoryError::Store {
            source: StoreError::Manual { .. } | StoreError::Signed { .. },
            ..
        } => Failure::Usage(message),
        _ => Failure::Failed(message),
    }
}

/// The worse of two failures; the other one is printed.
fn worse(before: Option<Failure>, failure: Failure) -> Failure {
    let Some(before) = before else { return failure };
    let (milder, worse) =
        if failure.code() > before.code() { (before, failure) } else { (failure, before) };
    console::error(milder.message());
    worse
}

/// The addresses of a peer, and the previous ones if they differ.
fn reached(peer: IpAddr, addresses: &Addresses, before: Option<Addresses>) -> String {
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
struct Document<'a> {
    peer: IpAddr,
    source: &'static str,
    learnt_at: String,
    addresses: &'a [SocketAddr],
}

impl<'a> Document<'a> {
    fn of(entry: &'a Entry) -> Self {
        let Entry { peer, addresses, source, learnt_at } = entry;
        let learnt_at = date(*learnt_at);
        Self { peer: *peer, source: source.name(), learnt_at, addresses: addresses.as_slice() }
    }
}

fn date(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

/// A line for each address. The first line of a peer names it.
fn table(entries: &[Entry]) -> String {
    let head = ["peer", "source", "since", "addresses"].map(str::to_owned);
    let lines = entries.iter().flat_map(|entry| {
        let first = [entry.peer.to_string(), entry.source.name().to_owned(), date(entry.learnt_at)];
        let rest = std::iter::repeat_with(|| [const { String::new() }; 3]);
        let heads = std::iter::once(first).chain(rest);
        let lines = heads.zip(entry.addresses.as_slice());
        lines.map(|([peer, source, since], address)| [peer, source, since, address.to_string()])
    });
    let rows: Vec<_> = std::iter::once(head).chain(lines).collect();
    aligned(&[Side::Left; 4], &rows)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn the_example_is_a_directory() {
        let config = ClientDirectory::from_toml(EXAMPLE).unwrap();
        assert_eq!((config.port, config.trusts.len()), (6523, 2));
        assert_eq!(config.key_files(Path::new("")), [Path::new("peers.key")]);
        // The rest of the proxy's configuration is ignored.
        let proxy = format!("socks = \"127.0.0.1:1080\"\n{EXAMPLE}\n[[channel]]\nserver = 1\n");
        assert_eq!(ClientDirectory::from_toml(&proxy).unwrap(), config);
    }

    #[test]
    fn a_peer_has_a_line_for_each_address() {
        let entry = |peer: &str, addresses: &[&str], source| Entry {
            peer: peer.parse().unwrap(),
            addresses: Addresses::new(addresses.iter().map(|text| text.parse().unwrap()).collect())
                .unwrap(),
            source,
            learnt_at: UNIX_EPOCH + Duration::from_secs(1_767_225_600),
        };
        let entries = [
            entry("192.0.2.10", &["192.0.2.10:6522", "[2001:db8::1]:6522"], Source::Manual),
            entry("fd00::1", &["[fd00::1]:6522"], Source::Manual),
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
