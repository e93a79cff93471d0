//! `sunder quorum init`: the ceremony.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::ValueEnum;
use console::CommandFailure;
use quorum::ceremony_files::{self, CeremonyFileError, PUBLIC_KEY_FILE};
use quorum::group::{GroupKeyKind, QuorumGroup, QuorumMember};
use quorum::nodes::{nodes_text, parse_nodes, parse_server_line};
use quorum::{
    CombinatorialSharing, DealerKey, GroupTooLarge, QuorumBundle, QuorumShareFile, Sha256Digest,
    UnixSeconds,
};
use random::RandomGenerator;
use serde::Serialize;

use crate::commands::load_config_file;
use crate::new_files::check_absent;

/// A list of servers, shown by `--help`.
const EXAMPLE: &str = include_str!("nodes.toml");

/// Begins a group: generates its key, or lets its servers generate one.
///
/// For an RSA key, it generates the key, splits it into shares for the servers, and erases it. The
/// bundle for all servers contains the shares of each, encrypted to its identity. Copy it to them
/// by any channel, and compare the SHA-256 of the public key, which each server logs at its first
/// start. Run this on a host that you trust for an hour, and refresh the group right afterwards:
/// until then, a stolen identity key decrypts the server's shares in the bundle.
///
/// With --key rsa-2048-polynomial or rsa-3072-polynomial, the servers share the key by a
/// polynomial: a group has up to 31 servers, and a refresh of many costs less. This is
/// EXPERIMENTAL: nobody outside the project has reviewed it. Do not use it for a key that matters.
///
/// With --key ed25519, the servers generate the key when they run, so that nobody ever has it. The
/// bundle contains nothing secret: the list of servers and the time. Compare the SHA-256 of the
/// list, which each server logs at its first start.
///
/// With --out in place of --bundle, it writes `DIR/public.pem`, and `DIR/server-1.share`,
/// `DIR/server-2.share` and so on, which are not encrypted: the files of f+1 servers can sign.
#[derive(clap::Args)]
#[command(after_help = help())]
pub(super) struct Arguments {
    /// The servers, in TOML
    #[arg(long, value_name = "FILE", required_unless_present = "servers")]
    nodes: Option<PathBuf>,
    /// The servers in their order, in place of --nodes: the lines of `sunder init quorum`
    #[arg(value_name = "SERVER", conflicts_with = "nodes", value_parser = parse_server_line)]
    servers: Vec<QuorumMember>,
    /// The number of faulty servers that the group tolerates, to check the list against it: a group
    /// of 3F+1 servers tolerates F, which is 1 to 4, or 1 to 10 with a key that is shared by a
    /// polynomial: Ed25519, or an experimental RSA key
    #[arg(short, long, value_name = "F", value_parser = clap::value_parser!(u8).range(1..))]
    f: Option<u8>,
    /// The kind and the size of the key
    #[arg(long, value_enum, default_value_t = InitialKeyKind::Rsa2048)]
    key: InitialKeyKind,
    /// The bundle to write, a new file
    #[arg(long, value_name = "FILE", required_unless_present = "out")]
    bundle: Option<PathBuf>,
    /// The directory for files that are not encrypted, which must be empty or not exist
    #[arg(long, value_name = "DIR", conflicts_with = "bundle")]
    out: Option<PathBuf>,
    /// Print one JSON document on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum InitialKeyKind {
    /// Some seconds
    #[value(name = "rsa-2048")]
    Rsa2048,
    /// Half a minute
    #[value(name = "rsa-3072")]
    Rsa3072,
    /// Some minutes
    #[value(name = "rsa-4096")]
    Rsa4096,
    /// EXPERIMENTAL: shared by a polynomial, for up to 31 servers
    #[value(name = "rsa-2048-polynomial")]
    Rsa2048Polynomial,
    /// EXPERIMENTAL: the same with 3072 bits
    #[value(name = "rsa-3072-polynomial")]
    Rsa3072Polynomial,
    /// The servers generate it
    Ed25519,
}

impl InitialKeyKind {
    /// The size of an RSA key. `None` for a key that the servers generate.
    fn rsa_bits(self) -> Option<u32> {
        match self {
            Self::Rsa2048 | Self::Rsa2048Polynomial => Some(2048),
            Self::Rsa3072 | Self::Rsa3072Polynomial => Some(3072),
            Self::Rsa4096 => Some(4096),
            Self::Ed25519 => None,
        }
    }

    fn kind(self) -> GroupKeyKind {
        match self {
            Self::Rsa2048 | Self::Rsa3072 | Self::Rsa4096 => GroupKeyKind::Rsa,
            Self::Rsa2048Polynomial | Self::Rsa3072Polynomial => GroupKeyKind::RsaPolynomial,
            Self::Ed25519 => GroupKeyKind::Ed25519,
        }
    }
}

fn help() -> String {
    format!(
        "Example: sunder quorum init --bundle group.bundle SERVER SERVER SERVER SERVER\n\
         Or:      sunder quorum init --nodes nodes.toml --bundle group.bundle, with this in \
         nodes.toml\n\n{EXAMPLE}\n`sunder quorum identity FILE` prints the identity of a server."
    )
}

/// What `--json` prints.
#[derive(Serialize)]
struct QuorumInitDocument<'a> {
    faulty: usize,
    servers: usize,
    /// `null` with an Ed25519 key, as `bits` and `key`.
    shares: Option<usize>,
    bits: Option<u32>,
    /// The SHA-256 of the public key's DER, in hexadecimal digits.
    key: Option<String>,
    /// The SHA-256 of the list of the servers that generate a key, in hexadecimal digits. `null`
    /// with an RSA key.
    list: Option<String>,
    /// `null` with --bundle.
    public: Option<PathBuf>,
    files: &'a [PathBuf],
}

/// Makes the key, or lets the servers make it, and writes the files.
///
/// # Errors
/// If the list of servers is wrong, or a file cannot be written.
pub(super) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    let bits = arguments.key.rsa_bits();
    if let (Some(faulty), GroupKeyKind::Rsa) = (arguments.f, arguments.key.kind()) {
        CombinatorialSharing::new(faulty).map_err(|error| usage(&too_large(error)))?;
    }
    if bits.is_none() && arguments.out.is_some() {
        let why = "an Ed25519 key has no share files: write a bundle, with --bundle";
        return Err(CommandFailure::Usage(why.into()));
    }
    let group = group(arguments)?;
    let time = UnixSeconds::from_system(SystemTime::now());
    match bits {
        Some(bits) => deal(arguments, &group, bits, time),
        None => write_founding_bundle(arguments, group, time),
    }
}

/// The group of the servers that are named.
fn group(arguments: &Arguments) -> Result<QuorumGroup, CommandFailure> {
    let group: QuorumGroup = match &arguments.nodes {
        Some(nodes) => load_config_file("quorum init", nodes, parse_nodes)?,
        None => parse_nodes(&nodes_text(&arguments.servers)).map_err(|problems| {
            CommandFailure::Usage(format!("the servers: {}", problems.first()))
        })?,
    };
    group.check_key(arguments.key.kind()).map_err(|error| usage(&too_large(error)))?;
    if let Some(faulty) = arguments.f
        && usize::from(faulty) != group.size().faulty()
    {
        let (servers, needed) = (group.members().len(), 3 * u32::from(faulty) + 1);
        let nodes = arguments.nodes.as_ref().map(|path| format!("{}: ", path.display()));
        let nodes = nodes.unwrap_or_default();
        let message = format!("{nodes}{servers} servers, but f = {faulty} needs {needed}");
        return Err(CommandFailure::Usage(message));
    }
    Ok(group)
}

/// Makes an RSA key, splits it, and writes the shares.
fn deal(
    arguments: &Arguments,
    group: &QuorumGroup,
    bits: u32,
    time: UnixSeconds,
) -> Result<(), CommandFailure> {
    // Before the time is spent.
    if let Some(directory) = &arguments.out {
        ceremony_files::create_directory(directory).map_err(|error| failed(&error))?;
    }
    if let Some(bundle) = &arguments.bundle {
        check_absent(&[bundle])?;
    }
    let key = demo::make_quorum_key(bits)?;
    let random = |error: random::RandomError| CommandFailure::Failed(error.to_string());
    let mut generator = RandomGenerator::seeded().map_err(random)?;
    let files = if arguments.key.kind() == GroupKeyKind::RsaPolynomial {
        QuorumShareFile::deal_polynomial(&key, group, time, &mut generator)
    } else {
        QuorumShareFile::deal(&key, group, time, &mut generator)
    };
    let files = files.map_err(random)?;
    let paths = if let Some(directory) = &arguments.out {
        ceremony_files::write(directory, &files).map_err(|error| failed(&error))?
    } else {
        let path = arguments.bundle.clone().unwrap_or_default();
        let bundle = QuorumBundle::seal(&files, &mut generator).map_err(random)?;
        ceremony_files::write_bundle(&path, &bundle).map_err(|error| failed(&error))?;
        vec![path]
    };
    report_dealt(arguments, &key, group, &paths)
}

/// Writes the bundle of servers that are to generate an Ed25519 key.
fn write_founding_bundle(
    arguments: &Arguments,
    group: QuorumGroup,
    time: UnixSeconds,
) -> Result<(), CommandFailure> {
    let path = arguments.bundle.clone().unwrap_or_default();
    check_absent(&[&path])?;
    let (faulty, servers) = (group.size().faulty(), group.members().len());
    let bundle = QuorumBundle::founding(group, time);
    ceremony_files::write_bundle(&path, &bundle).map_err(|error| failed(&error))?;
    let list = bundle.anchor().digest().to_string();
    if arguments.json {
        return console::print_json(&QuorumInitDocument {
            faulty,
            servers,
            shares: None,
            bits: None,
            key: None,
            list: Some(list),
            public: None,
            files: &[path],
        });
    }
    console::print_line(&format!("the list of servers has the SHA-256 {list}"))?;
    console::note(&format!(
        "copy {} to all servers, start them, and compare the SHA-256 that they log at their first \
         start; when {} of them run, they generate the key: sunder quorum pubkey --socket PATH",
        path.display(),
        2 * faulty + 1
    ));
    Ok(())
}

fn report_dealt(
    arguments: &Arguments,
    key: &DealerKey,
    group: &QuorumGroup,
    paths: &[PathBuf],
) -> Result<(), CommandFailure> {
    let public = arguments.out.as_ref().map(|directory| directory.join(PUBLIC_KEY_FILE));
    let digest = Sha256Digest(key.group().public().digest()).to_string();
    let is_polynomial = arguments.key.kind() == GroupKeyKind::RsaPolynomial;
    if is_polynomial {
        console::note(
            "sharing by a polynomial is experimental: nobody outside the project has reviewed it",
        );
    }
    if arguments.json {
        let servers = group.members().len();
        // Each server has a share of its own, or one for each subset that it is not in.
        let shares = if is_polynomial { servers } else { group.combination().label_count() };
        return console::print_json(&QuorumInitDocument {
            faulty: group.size().faulty(),
            servers,
            shares: Some(shares),
            bits: Some(key.group().public().bits()),
            key: Some(digest),
            list: None,
            public,
            files: paths,
        });
    }
    let Some(public) = public else {
        let bundle = paths.first().cloned().unwrap_or_default();
        console::print_line(&format!("the public key has the SHA-256 {digest}"))?;
        console::note(&format!(
            "copy {} to all servers, and compare the SHA-256 that they log at their first start",
            bundle.display()
        ));
        return Ok(());
    };
    console::print_line(&format!("{}: the public key, SHA-256 {digest}", public.display()))?;
    for (path, member) in paths.iter().zip(group.members()) {
        let path: &Path = path;
        console::print_line(&format!("{}: for {}", path.display(), member.address))?;
    }
    console::note("the share files are secret and not encrypted; --bundle encrypts them");
    Ok(())
}

/// Why a group is too large, with what is possible.
fn too_large(error: GroupTooLarge) -> String {
    format!("{error}; --key ed25519, and the experimental rsa-2048-polynomial, allow up to 31")
}

fn usage(error: &impl ToString) -> CommandFailure {
    CommandFailure::Usage(error.to_string())
}

fn failed(error: &CeremonyFileError) -> CommandFailure {
    match error {
        CeremonyFileError::NotEmpty { .. } => CommandFailure::Usage(error.to_string()),
        _ => CommandFailure::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_a_group() {
        let group = parse_nodes(EXAMPLE).unwrap();
        assert_eq!(group.combination().faulty(), 1);
    }
}
