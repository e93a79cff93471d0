//! `sunder tunnel`: one end of a ReMICSS tunnel.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use remicss::config::{Channel, Config, End};
use remicss::handshake::SharedKey;
use remicss::tunnel::Tunnel;
use tun::way::Way;
use zeroize::Zeroizing;

use crate::console;
use crate::daemon::{self, StopSignals};
use crate::failure::Failure;
use crate::telling::{self, Told};
use crate::uplinks::{Uplink, shared, way};

/// A complete configuration for either end, shown by `--help`.
const CLIENT: &str = include_str!("tunnel.toml");
const SERVER: &str = include_str!("tunnel-server.toml");

/// Carries IP packets over several channels, as shares of which any k give a packet back.
///
/// Whoever listens on fewer channels than a packet's threshold learns nothing of it. The end whose
/// channels have `server` connects to the end whose channels have `listen`.
///
/// Needs the right to make a network device (root, or `CAP_NET_ADMIN`). Addresses and routes are gone
/// when it ends, however it ends. Stops on SIGINT or SIGTERM. `RUST_LOG=debug` says more.
#[derive(clap::Args)]
#[command(after_help = help())]
pub(crate) struct Arguments {
    /// The configuration, in TOML
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

fn help() -> String {
    format!(
        "Example: sunder tunnel --config tunnel.toml, with this in tunnel.toml\n\n{CLIENT}\n\
         and this at the other end\n\n{SERVER}\n\
         Further settings, above the first [[channel]]: objective, scheduler, min_threshold,\n\
         tamper_code, rng, order, reassembly_mib, device (the tunnel's), mtu. docs/guides/tunnel.md\n\
         has a table of them."
    )
}

/// Carries packets until a signal comes.
///
/// # Errors
/// When the configuration is wrong, or an address, or the device, cannot be had.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let path = &arguments.config;
    let config = daemon::load("tunnel", path, Config::from_toml)?;
    let key = config.key.as_ref().map(|key| read_key(path, key)).transpose()?;
    let shown = config.key.as_ref().and_then(|key| shown_key(path, key));
    for risk in risks(&config, way).into_iter().chain(shown) {
        console::warning(&risk);
    }
    let tunnel = Tunnel::open(&config, key).map_err(Failure::Failed)?;
    daemon::run(carry(tunnel))
}

async fn carry(tunnel: Tunnel) -> Result<(), Failure> {
    let signals = StopSignals::listen()?;
    console::print_line(&format!("device {}", tunnel.device()))?;
    let (stopper, teller) = (tunnel.stopper(), tunnel.teller());
    let _telling = telling::tell(move || Told::Tunnel(Box::new(teller.status())));
    let carrying = tokio::task::spawn_blocking(|| tunnel.run());
    let ended = daemon::until_stopped(signals, carrying, || stopper.stop()).await?;
    ended.map_err(|panic| Failure::Failed(panic.to_string()))?.map_err(Failure::Failed)
}

/// Reads the shared key: 64 hexadecimal digits, in a file beside the configuration.
fn read_key(config: &Path, key: &Path) -> Result<SharedKey, Failure> {
    let path = key_path(config, key);
    let refuse = |what: &str| Failure::Usage(format!("key {}: {what}", path.display()));
    let text = Zeroizing::new(fs::read(&path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => refuse(&format!(
            "no such file; copy it from the other end, or make one there: (umask 077; openssl rand \
             -hex 32 > {})",
            path.display()
        )),
        _ => refuse(&error.to_string()),
    })?);
    let digits = text.trim_ascii();
    let mut bytes = Zeroizing::new([0; 32]);
    if digits.len() != 2 * bytes.len() {
        return Err(refuse("it must be 64 hexadecimal digits, as at the other end"));
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else {
            return Err(refuse("it must be hexadecimal digits, as at the other end"));
        };
        *byte = u8::try_from(high << 4 | low).expect("two digits");
    }
    Ok(SharedKey::new(*bytes))
}

/// A warning if others than its owner may read the key.
fn shown_key(config: &Path, key: &Path) -> Option<String> {
    let path = key_path(config, key);
    let mode = fs::metadata(&path).ok()?.permissions().mode();
    (mode & 0o077 != 0).then(|| {
        format!(
            "others on this host may read key {path}, and be your client: chmod 600 {path}",
            path = path.display()
        )
    })
}

fn key_path(config: &Path, key: &Path) -> PathBuf {
    config.parent().unwrap_or(Path::new("")).join(key)
}

/// What the configuration allows, but hardly anybody wants.
pub(crate) fn risks(config: &Config, way: impl Fn(&Uplink<'_>) -> Option<Way>) -> Vec<String> {
    let mut risks = Vec::new();
    if config.min_threshold == 1 {
        let (are, as_when) =
            if config.kappa < 2.0 { ("are", "") } else { ("may be", ", as when channels fail") };
        risks.push(format!(
            "min_threshold is 1: packets {are} sent in the clear{as_when}, and whoever listens on one \
             channel reads those"
        ));
    }
    let uplink = |channel| uplink(config.end, channel);
    risks.extend(shared(&config.channels.iter().map(uplink).collect::<Vec<_>>(), way));
    if !config.tamper_code {
        risks.push(
            "tamper_code is off: whoever changes one channel changes packets unnoticed".into(),
        );
    }
    risks
}

/// How a channel leaves this host, as far as the configuration tells.
fn uplink(end: End, channel: &Channel) -> Uplink<'_> {
    let own = channel.local.ip();
    // A server's channel answers from where it listens.
    let source = (end == End::Server || !own.is_unspecified()).then_some(own);
    Uplink { to: channel.peer.map(|peer| peer.ip()), source, device: channel.device.as_deref() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUIDE: &str = include_str!("../../../docs/guides/tunnel.md");

    /// The guide's server and client.
    fn guides() -> [&'static str; 2] {
        let blocks = GUIDE.split("```toml\n").skip(1);
        let blocks: Vec<&str> = blocks.map(|rest| rest.split("```").next().unwrap()).collect();
        blocks.try_into().expect("two examples")
    }

    #[test]
    fn the_examples_are_ends_of_one_tunnel_without_risks() {
        for [server, client] in [[SERVER, CLIENT], guides()] {
            let [server, client] = [server, client].map(|text| Config::from_toml(text).unwrap());
            assert_eq!((server.end, client.end), (End::Server, End::Client));
            let listens = server.channels.iter().map(|channel| Some(channel.local));
            assert!(listens.eq(client.channels.iter().map(|channel| channel.peer)));
            assert!(client.key.is_some() && client.key == server.key);
            assert!(client.min_threshold >= server.min_threshold);
            assert_eq!(client.tamper_code, server.tamper_code);
            assert_eq!(client.addresses[0].network(), server.addresses[0].network());
            assert_eq!((risks(&client, |_| None), risks(&server, |_| None)), (vec![], vec![]));
        }
    }

    #[test]
    fn help_and_guide_name_every_setting() {
        let unknown = |text: &str| Config::from_toml(text).unwrap_err().to_string();
        for error in [unknown("x = 1"), unknown(&format!("{CLIENT}\nx = 1"))] {
            let names: Vec<&str> = error.split('`').skip(3).step_by(2).collect();
            assert!(names.contains(&"device"), "{error}");
            for name in names {
                let is_word = |text: &str| {
                    let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
                    words.any(|word| word == name)
                };
                assert!(is_word(&help()), "{name} is not in --help");
                let shown = [format!("`{name}`"), format!("[[{name}]]")];
                assert!(
                    shown.iter().any(|shown| GUIDE.contains(shown)),
                    "{name}: not in the guide"
                );
            }
        }
    }

    #[test]
    fn what_hardly_anybody_wants_is_named() {
        let named = |text: &str| risks(&Config::from_toml(text).unwrap(), |_| None).join("; ");
        let is_named = |text: &str, expected: &str| {
            let named = named(text);
            assert!(named.contains(expected), "{expected}: {named}");
        };
        is_named(&CLIENT.replace("kappa = 2", "kappa = 1"), "packets are sent in the clear, and");
        let floor = CLIENT.replace("kappa = 2", "kappa = 2\nmin_threshold = 1");
        is_named(&floor, "packets may be sent in the clear, as when channels fail");
        is_named(
            &CLIENT.replace("kappa = 2", "kappa = 2\ntamper_code = false"),
            "tamper_code is off",
        );

        let same_device = CLIENT.replace("wwan0", "wlan0");
        is_named(&same_device, "channels 2 and 3 are both on wlan0");
        let same_source = CLIENT.replace("device = \"wlan0\"", "source = \"192.0.2.20\"");
        is_named(&same_source, "channels 1 and 2 are both at 192.0.2.20");
        let by_route = CLIENT.replace("device = ", "# ").replace("203.0.113.10", "198.51.100.10");
        is_named(&by_route, "channels 2 and 3 are both to 198.51.100.10");
        let same_address = SERVER.replace("203.0.113.10:6521", "198.51.100.10:6522");
        is_named(&same_address, "channels 2 and 3 are both at 198.51.100.10");
        let own_devices = same_address
            .replace("10:6522\"", "10:6522\"\ndevice = \"wwan0\"")
            .replace("100.10:6521\"", "100.10:6521\"\ndevice = \"wlan0\"");
        assert_eq!(named(&own_devices), "");
    }

    #[test]
    fn a_key_that_others_may_read_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("tunnel.toml");
        let key = directory.path().join("key");
        fs::write(&key, "").unwrap();
        for (mode, is_shown) in [(0o600, false), (0o400, false), (0o640, true), (0o644, true)] {
            fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
            let shown = shown_key(&config, Path::new("key"));
            assert_eq!(shown.is_some(), is_shown, "{mode:o}: {shown:?}");
        }
    }

    #[test]
    fn a_key_is_64_digits() {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("tunnel.toml");
        let read = |text: &str| {
            fs::write(directory.path().join("key"), text).unwrap();
            read_key(&config, Path::new("key"))
        };
        assert!(read(&format!("{}\n", "0aF9".repeat(16))).is_ok());
        for wrong in ["", "00", &"0g".repeat(32), &"00".repeat(33)] {
            let failure = read(wrong).err().unwrap();
            assert_eq!(failure.code(), 2);
            assert!(failure.message().contains("as at the other end"), "{}", failure.message());
        }
        fs::remove_file(directory.path().join("key")).unwrap();
        let missing = read_key(&config, Path::new("key")).err().unwrap();
        assert!(missing.message().contains("openssl rand -hex 32 >"), "{}", missing.message());
        let unreadable = read_key(&config, Path::new(".")).err().unwrap();
        assert!(!unreadable.message().contains("openssl"), "{}", unreadable.message());
    }
}
