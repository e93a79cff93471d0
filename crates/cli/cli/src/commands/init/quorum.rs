//! `sunder init quorum`.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use console::CommandFailure;
use keys::IdentitySecretKey;
use service::status::name_of;

use super::required;
use crate::commands::quorum::Quorum;
use crate::new_files::{NewKeyFile, check, check_absent, quoted, random_key, write};

/// Writes the configuration and the keys of a server of a quorum, `sunder quorum node`.
#[derive(clap::Args)]
#[command(after_help = "\
Example: sunder init quorum --out /etc/sunder/quorum/office.toml \\
             --listen 192.0.2.1:6530
prints this server's entry for the list of servers, nodes.toml.
Then: sunder quorum init")]
pub(super) struct Arguments {
    /// An address of this host where the other servers connect
    #[arg(long, value_name = "ADDR")]
    listen: Vec<SocketAddr>,
    /// This server joins a group that has a key, by a refresh, and so gets no share file
    #[arg(long)]
    joins: bool,
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
    let [identity, master, public, share] =
        ["identity.key", "master.key", "public.pem", "server.share"]
            .map(|name| NewKeyFile::of(file, name));
    let (identity, master, public, share) = (identity?, master?, public?, share?);
    check_absent(&[file, &identity.path, &master.path])?;
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

# The group's public key: public.pem of `sunder quorum init`.
public_key = {}
",
        identity.value, master.value, public.value
    );
    if !arguments.joins {
        let _ = write!(
            text,
            "
# The share file of this server, such as server-1.share of `sunder quorum init`. The first start
# takes the shares into the store, and destroys the file.
share = {}
",
            share.value
        );
    }
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
    if arguments.joins {
        text.push_str(
            "
# Each server of the group that has the key:
# [[peer]]
# identity = \"8a88e3...\"
# address = \"192.0.2.1:6530\"
",
        );
    }
    check::<Quorum>(&text, file)?;
    let key = random_key()?;
    identity.write(&key)?;
    master.write(&*random_key()?)?;
    write(&text, file)?;
    let (file, public, share) = (file.display(), public.path.display(), share.path.display());
    console::note(&format!("{file} is written; this server's entry for nodes.toml is:"));
    console::print(
        format!(
            "[[server]]\nidentity = \"{}\"\naddress = \"{}\"",
            IdentitySecretKey::new(&key).public(),
            listen[0]
        )
        .as_bytes(),
    )?;
    console::note(&if arguments.joins {
        format!("copy public.pem to {public}, and add a [[peer]] for each old server")
    } else {
        format!(
            "after `sunder quorum init`, copy public.pem to {public}, and the share file to {share}"
        )
    });
    console::note(&format!("then start the server with: sunder quorum node --config {file}"));
    Ok(())
}

fn text_of(path: &Path) -> Result<&str, CommandFailure> {
    path.to_str()
        .ok_or_else(|| CommandFailure::Usage(format!("{}: the name is not UTF-8", path.display())))
}
