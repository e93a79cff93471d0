//! The files of a chat: `sunder chat init` writes them for a group's administrator, `join` for who
//! was invited.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use console::CommandFailure;
use keys::{IdentityPublicKey, IdentitySecretKey};
use mix::membership::{GroupAddress, MemberName};
use mix::wire::GroupName;
use random::RandomGenerator;
use zeroize::Zeroizing;

/// Writes the configuration and the key of the administrator of a new group.
///
/// Prints what the proxy's operator adds to its configuration. The state and the key have the name
/// of the configuration.
#[derive(clap::Args)]
#[command(after_help = "\
Example: sunder chat init --config alice.toml --name alice --group friends --proxy mix.example:6700 --proxy-key 3d40...660c
Then: sunder chat --config alice.toml, and there: /invite bob")]
pub(super) struct ChatInitArguments {
    /// The configuration to write
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Your name in the group
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    name: MemberName,
    /// The group's name at the proxy
    #[arg(long, value_name = "NAME")]
    group: GroupName,
    /// The proxy's address; two or more, with commas, for the transport micss
    #[arg(long, value_name = "HOST:PORT")]
    proxy: String,
    /// The proxy's key, which it prints
    #[arg(long, value_name = "KEY")]
    proxy_key: IdentityPublicKey,
}

/// A name, as clap reads it.
pub(super) fn parse_name(text: &str) -> Result<MemberName, String> {
    MemberName::new(text).map_err(|error| error.to_string())
}

/// Writes the files.
///
/// # Errors
/// If they exist, or cannot be written.
pub(super) fn init(arguments: &ChatInitArguments) -> Result<(), CommandFailure> {
    let ChatInitArguments { config, name, group, proxy, proxy_key } = arguments;
    let key = write_key(config)?;
    let address = GroupAddress {
        proxy_address: proxy.clone(),
        proxy: *proxy_key,
        group: group.clone(),
        administrator: key,
    };
    if !address.is_valid() {
        return Err(CommandFailure::Usage(format!("--proxy {proxy}: give HOST:PORT")));
    }
    write_config(config, name, &address)?;
    let shown = config.display();
    console::note(&format!("{shown} and {} are written", file(config, "key").display()));
    console::note("the proxy's operator adds this to its configuration, and sends it SIGHUP:");
    console::print(format!("[[group]]\nname = \"{group}\"\nadministrator = \"{key}\"").as_bytes())
}

/// Makes a key beside a configuration that is to be written.
///
/// # Errors
/// If one of both exists, or the key cannot be written.
pub(super) fn write_key(config: &Path) -> Result<IdentityPublicKey, CommandFailure> {
    if config.exists() {
        return Err(CommandFailure::Usage(format!(
            "{} exists: choose another name",
            config.display()
        )));
    }
    let mut random = Zeroizing::new([0; 32]);
    let filled = RandomGenerator::seeded().and_then(|mut generator| generator.fill(&mut *random));
    filled.map_err(|error| CommandFailure::Failed(error.to_string()))?;
    let path = file(config, "key");
    keys::file::create(&path, &random).map_err(|error| not_written(&path, &error))?;
    Ok(IdentitySecretKey::new(&random).public())
}

/// Writes the configuration of a member.
///
/// # Errors
/// If it exists, or cannot be written.
pub(super) fn write_config(
    config: &Path,
    name: &MemberName,
    address: &GroupAddress,
) -> Result<(), CommandFailure> {
    let GroupAddress { proxy_address, proxy, group, administrator } = address;
    let beside = |extension| {
        let name = file(config, extension);
        quoted(&name.file_name().unwrap_or_default().to_string_lossy())
    };
    let text = format!(
        "identity = {}\nname = {}\nproxy = {}\nproxy_key = \"{proxy}\"\ngroup = \"{group}\"\n\
         administrator = \"{administrator}\"\nstate = {}\n",
        beside("key"),
        quoted(name.as_str()),
        quoted(proxy_address),
        beside("state"),
    );
    write_new(config, text.as_bytes())
}

/// The file beside a configuration with this extension.
pub(super) fn file(config: &Path, extension: &str) -> PathBuf {
    config.with_extension(extension)
}

/// A text as TOML has it.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// Writes a file that does not exist, and that others cannot read.
fn write_new(path: &Path, content: &[u8]) -> Result<(), CommandFailure> {
    let written = || -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(content)?;
        file.sync_all()
    };
    written().map_err(|error| not_written(path, &error))
}

fn not_written(path: &Path, error: &io::Error) -> CommandFailure {
    match error.kind() {
        ErrorKind::AlreadyExists => {
            CommandFailure::Usage(format!("{} exists: choose another name", path.display()))
        }
        _ => CommandFailure::Failed(format!("cannot write {}: {error}", path.display())),
    }
}
