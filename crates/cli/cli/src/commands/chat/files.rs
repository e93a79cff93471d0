//! The files of a chat: `sunder chat init` writes them for a group's administrator, `join` for who
//! was invited.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use console::CommandFailure;
use keys::{IdentityPublicKey, IdentitySecretKey, storage};
use mix::MemberCost;
use mix::membership::{GroupAddress, MemberName};
use mix::proxy::GroupProfile;
use mix::wire::GroupName;

/// Writes the configuration and the key of the administrator of a new group.
///
/// Prints what the proxy's operator adds to its configuration. The state and the key have the name
/// of the configuration.
#[derive(clap::Args)]
#[command(after_help = "\
Example: sunder chat init --config alice.toml --name alice --group friends \\
             --proxy mix.example:6700 --proxy-key 3d40...660c
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
    /// Connect through this SOCKS5 proxy, such as Tor's: 127.0.0.1:9050
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    socks: Option<String>,
    /// How fast the group is, and what it costs: interactive, messenger or mail
    #[arg(long, value_name = "PROFILE", default_value = "interactive", value_parser = parse_profile)]
    profile: GroupProfile,
}

/// The members for which costs are shown.
const MEMBERS: usize = 16;

/// A profile, as clap reads it.
fn parse_profile(text: &str) -> Result<GroupProfile, String> {
    let known = GroupProfile::ALL.into_iter().find(|profile| profile.as_str() == text);
    known.ok_or_else(|| "give interactive, messenger or mail".to_owned())
}

/// A name, as clap reads it.
pub(super) fn parse_name(text: &str) -> Result<MemberName, String> {
    let name = MemberName::new(text).map_err(|error| error.to_string())?;
    name.check_scripts().map_err(|error| error.to_string())?;
    Ok(name)
}

/// The address of a SOCKS proxy, as clap reads it.
pub(super) fn parse_address(text: &str) -> Result<String, String> {
    if GroupAddress::is_single_address(text) {
        Ok(text.to_owned())
    } else {
        Err("give HOST:PORT, without a user and a password".into())
    }
}

/// Writes the files.
///
/// # Errors
/// If an argument is invalid, or the files exist or cannot be written. No file is then left.
pub(super) fn init(arguments: &ChatInitArguments) -> Result<(), CommandFailure> {
    let ChatInitArguments { config, name, group, proxy, proxy_key, socks, profile } = arguments;
    if !GroupAddress::is_proxy_address(proxy) {
        return Err(CommandFailure::Usage(format!("--proxy {proxy}: give HOST:PORT")));
    }
    let key = write_key(config)?;
    let address = GroupAddress {
        proxy_address: proxy.clone(),
        proxy: *proxy_key,
        group: group.clone(),
        administrator: key,
    };
    write_config(config, name, &address, socks.as_deref()).inspect_err(|_| {
        // The key was made above. With it, the same command would be refused the next time.
        let _ = fs::remove_file(file(config, "key"));
    })?;
    // The next chat with it begins the group.
    let founded = super::load(config)
        .and_then(|config| mix::chat::found_group(&config).map_err(|error| super::failed(&error)));
    founded.inspect_err(|_| {
        let _ = fs::remove_file(file(config, "key"));
        let _ = fs::remove_file(config);
    })?;
    let shown = config.display();
    console::note(&format!("{shown} and {} are written", file(config, "key").display()));
    console::note(&format!(
        "what {MEMBERS} members cost by each --profile, if they stay connected:"
    ));
    for profile in GroupProfile::ALL {
        if let Ok(terms) = profile.terms(MEMBERS) {
            let cost = MemberCost::new(&terms, MEMBERS);
            console::note(&format!("{}: {cost}", profile.as_str()));
        }
    }
    console::note("the proxy's operator adds this to its configuration, and sends it SIGHUP:");
    let profile = profile.as_str();
    console::print(
        format!(
            "[[group]]\nname = \"{group}\"\nadministrator = \"{key}\"\nprofile = \"{profile}\""
        )
        .as_bytes(),
    )
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
    let path = file(config, "key");
    let key = IdentitySecretKey::create(&path).map_err(|error| not_written(&path, &error))?;
    Ok(key.public())
}

/// Writes the configuration of a member.
///
/// # Errors
/// If it exists, or cannot be written.
pub(super) fn write_config(
    config: &Path,
    name: &MemberName,
    address: &GroupAddress,
    socks: Option<&str>,
) -> Result<(), CommandFailure> {
    let GroupAddress { proxy_address, proxy, group, administrator } = address;
    let beside = |extension| {
        let name = file(config, extension);
        quoted(&name.file_name().unwrap_or_default().to_string_lossy())
    };
    let socks = socks.map(|socks| format!("socks = {}\n", quoted(socks))).unwrap_or_default();
    let text = format!(
        "identity = {}\nname = {}\nproxy = {}\nproxy_key = \"{proxy}\"\ngroup = \"{group}\"\n\
         administrator = \"{administrator}\"\nstate = {}\n{socks}",
        beside("key"),
        quoted(name.as_str()),
        quoted(proxy_address),
        beside("state"),
    );
    // Others cannot read it.
    let written = storage::create(config, text.as_bytes(), 0o600);
    written.map_err(|error| not_written(config, &error))
}

/// The file beside a configuration with this extension.
pub(super) fn file(config: &Path, extension: &str) -> PathBuf {
    config.with_extension(extension)
}

/// A text as TOML has it.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

fn not_written(path: &Path, error: &io::Error) -> CommandFailure {
    match error.kind() {
        ErrorKind::AlreadyExists => {
            CommandFailure::Usage(format!("{} exists: choose another name", path.display()))
        }
        _ => CommandFailure::Failed(format!("cannot write {}: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_is_refused_writes_nothing_and_can_be_corrected() {
        let place = tempfile::tempdir().unwrap();
        let config = place.path().join("alice.toml");
        let arguments = |proxy: &str| ChatInitArguments {
            config: config.clone(),
            name: MemberName::new("alice").unwrap(),
            group: "friends".parse().unwrap(),
            proxy: proxy.to_owned(),
            proxy_key: IdentitySecretKey::new(&[7; 32]).public(),
            profile: GroupProfile::Interactive,
            socks: None,
        };
        let count = || fs::read_dir(place.path()).unwrap().count();
        for wrong in ["", "mix.example 6700"] {
            assert!(matches!(init(&arguments(wrong)), Err(CommandFailure::Usage(_))), "{wrong}");
            assert_eq!(count(), 0);
        }
        init(&arguments("mix.example:6700")).unwrap();
        // The configuration, the key and the state.
        assert_eq!(count(), 3);
        let key = fs::read(file(&config, "key")).unwrap();
        let again = init(&arguments("mix.example:6700"));
        assert!(matches!(again, Err(CommandFailure::Usage(_))));
        assert_eq!((fs::read(file(&config, "key")).unwrap(), count()), (key, 3));
    }

    #[test]
    fn a_key_does_not_remain_without_its_configuration() {
        let place = tempfile::tempdir().unwrap();
        // The key has the name of the configuration, which therefore cannot be written.
        let arguments = ChatInitArguments {
            config: place.path().join("alice.key"),
            name: MemberName::new("alice").unwrap(),
            group: "friends".parse().unwrap(),
            proxy: "mix.example:6700".to_owned(),
            proxy_key: IdentitySecretKey::new(&[7; 32]).public(),
            profile: GroupProfile::Interactive,
            socks: None,
        };
        assert!(matches!(init(&arguments), Err(CommandFailure::Usage(_))));
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
