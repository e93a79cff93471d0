//! `sunder init mix`.

use std::net::SocketAddr;
use std::path::PathBuf;

use console::CommandFailure;
use keys::IdentitySecretKey;

use crate::commands::mix::Mix;
use crate::new_files::{NewKeyFile, check, check_absent, quoted, random_key, write};

/// Writes the configuration and the key of a proxy for chats, `sunder mix`.
#[derive(clap::Args)]
#[command(after_help = "\
Example: sunder init mix --out /etc/sunder/mix/office.toml \\
             --state /var/lib/sunder/mix-office
prints the command for the administrator of a group: sunder chat init ...")]
pub(super) struct Arguments {
    /// The address for members
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:6700")]
    listen: SocketAddr,
    /// The directory for what the proxy keeps
    #[arg(long, value_name = "DIR", default_value = "mix.state")]
    state: PathBuf,
    /// The configuration; the key is in a directory beside it
    #[arg(long, value_name = "FILE", default_value = "mix.toml")]
    out: PathBuf,
}

/// Writes the files.
///
/// # Errors
/// As [`super::run`].
pub(super) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    let Arguments { listen, state, out: file } = arguments;
    let key_file = NewKeyFile::of(file, "identity.key")?;
    check_absent(&[file, &key_file.path])?;
    let state = state.to_str().ok_or_else(|| {
        CommandFailure::Usage(format!("{}: the name is not UTF-8", state.display()))
    })?;
    let text = format!(
        "# The proxy of chats: sunder mix --config FILE. It does not learn who writes to whom.
# `sunder mix --help` names all settings, and docs/guides/chat.md explains them.

# The proxy's own key, relative to this file.
identity = {}

# For members, with any transport.
listen = {}

# A directory for what the proxy keeps, relative to this file. It is created if it does not exist.
state = {}

# The groups. `sunder chat init` prints the lines of a group for this place:
# [[group]]
# name = \"friends\"
# administrator = \"3d40...\"
",
        key_file.value,
        quoted(&listen.to_string()),
        quoted(state),
    );
    check::<Mix>(&text, file)?;
    let key = random_key()?;
    key_file.write(&key)?;
    write(&text, file)?;
    let file = file.display();
    console::note(&format!("{file} is written; start it with: sunder mix --config {file}"));
    console::note("the administrator of a group runs this, with this host's address for HOST:");
    console::print_line(&format!(
        "sunder chat init --config chat.toml --name NAME --group GROUP --proxy HOST:{} --proxy-key {}",
        listen.port(),
        IdentitySecretKey::new(&key).public()
    ))
}
