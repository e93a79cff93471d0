//! `sunder init quorum`.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use console::CommandFailure;
use keys::IdentitySecretKey;
use quorum::QuorumBundle;
use quorum::ceremony_files;
use quorum::group::QuorumMember;
use quorum::nodes::server_line;
use service::status::name_of;

use super::required;
use crate::commands::quorum::Quorum;
use crate::new_files::{NewKeyFile, check, check_absent, quoted, random_key, write};

/// Writes the configuration and the keys of a server of a quorum, `sunder quorum node`.
#[derive(clap::Args)]
#[command(after_help = "\
Example: sunder init quorum --out /etc/sunder/quorum/office.toml \\
             --listen 192.0.2.1:6530
prints one line for this server. With the lines of all:
sunder quorum init --bundle group.bundle SERVER SERVER SERVER SERVER")]
pub(super) struct Arguments {
    /// An address of this host where the other servers connect
    #[arg(long, value_name = "ADDR")]
    listen: Vec<SocketAddr>,
    /// This server joins a group that has a key, by a refresh, and so gets no shares. BUNDLE is a
    /// bundle of the group, from its ceremony or from `sunder quorum bundle`
    #[arg(long, value_name = "BUNDLE", num_args = 0..=1)]
    #[expect(clippy::option_option, reason = "the option without a bundle is of earlier versions")]
    joins: Option<Option<PathBuf>>,
    /// The directory for what the server keeps [default: /var/lib/sunder/quorum-NAME]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// The socket for users of this host [default: /run/sunder/quorum-NAME/api]
    #[arg(long, value_name = "FILE")]
    socket: Option<PathBuf>,
    /// The configuration, NAME.toml; the keys are in a directory beside it
    #[arg(long, value_name = "FILE", default_value = "quorum.toml")]
    out: PathBuf,
}

/// Writes the files.
///
/// # Errors
/// As [`super::run`].
pub(super) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    let file = &arguments.out;
    let [identity, master, bundle] =
        ["identity.key", "master.key", "group.bundle"].map(|name| NewKeyFile::of(file, name));
    let (identity, master, bundle) = (identity?, master?, bundle?);
    check_absent(&[file, &identity.path, &master.path])?;
    let joined = match arguments.joins.as_ref().and_then(Option::as_ref) {
        Some(path) => {
            check_absent(&[&bundle.path])?;
            let found = ceremony_files::read_bundle(path);
            let found = found.map_err(|error| CommandFailure::Usage(error.to_string()))?;
            check_has_key(path, &found)?;
            Some(found)
        }
        None => None,
    };
    let listen = required(
        &arguments.listen,
        "--listen",
        "Addresses of this host for the other servers, such as 192.0.2.1:6530",
    )?;
    let name = name_of(file);
    let default = |directory: &str, end: &str| format!("{directory}/sunder/quorum-{name}{end}");
    let place = |given: &Option<PathBuf>, default: String| match given {
        Some(path) => text_of(path).map(quoted),
        None => Ok(quoted(&default)),
    };
    let mut text = format!(
        "# A server of a quorum: sunder quorum node --config FILE.
# `sunder quorum node --help` names all settings, and docs/guides/quorum.md explains them.

# The server's own key, by which the others recognise it, relative to this file.
identity = {}

# The key that encrypts the store.
master_key = {}

# The bundle of the group: the file that `sunder quorum init --bundle` or `sunder quorum bundle` has
# written. The first start takes what it needs into the store.
bundle = {}
",
        identity.value, master.value, bundle.value
    );
    let addresses: Vec<String> = listen.iter().map(|it| quoted(&it.to_string())).collect();
    let _ = write!(
        text,
        "
# What the server keeps. It is created if it does not exist.
store = {}

# For the other servers.
listen = [{}]

# For users of this host. Its directory must exist; the unit of systemd creates the default one.
socket = {}
",
        place(&arguments.store, default("/var/lib", ""))?,
        addresses.join(", "),
        place(&arguments.socket, default("/run", "/api"))?
    );
    check::<Quorum>(&text, file)?;
    let key = random_key()?;
    identity.write(&key)?;
    master.write(&*random_key()?)?;
    write(&text, file)?;
    if let Some(joined) = &joined {
        ceremony_files::write_bundle(&bundle.path, &joined.public_part())
            .map_err(|error| CommandFailure::Failed(error.to_string()))?;
    }
    let (file, bundle) = (file.display(), bundle.path.display());
    console::note(&format!("{file} is written; the line for this server is:"));
    let server =
        QuorumMember { identity: IdentitySecretKey::new(&key).public(), address: listen[0] };
    console::print(server_line(&server).as_bytes())?;
    console::note(&match &joined {
        Some(joined) => format!(
            "the public key of the group has the SHA-256 {}: compare it with that of its servers",
            joined.anchor().digest()
        ),
        None => format!(
            "copy the group's bundle to {bundle}, or name it with --bundle at the first start"
        ),
    });
    console::note(&format!("then start the server with: sunder quorum node --config {file}"));
    Ok(())
}

/// Checks that a server can join with a bundle. A new identity is in no list of founders.
fn check_has_key(path: &Path, bundle: &QuorumBundle) -> Result<(), CommandFailure> {
    if bundle.public().is_some() {
        return Ok(());
    }
    Err(CommandFailure::Usage(format!(
        "{}: it is for the servers that generate the key; to join them later, take what `sunder \
         quorum bundle` writes at one of them",
        path.display()
    )))
}

fn text_of(path: &Path) -> Result<&str, CommandFailure> {
    path.to_str()
        .ok_or_else(|| CommandFailure::Usage(format!("{}: the name is not UTF-8", path.display())))
}
