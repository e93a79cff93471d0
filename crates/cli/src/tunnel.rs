//! `sunder tunnel`: one end of a ReMICSS tunnel.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use remicss::config::{Config, End};
use remicss::handshake::SharedKey;
use remicss::tunnel::Tunnel;
use zeroize::Zeroizing;

use crate::console;
use crate::daemon::{self, StopSignals};
use crate::failure::Failure;

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
         and this at the other end\n\n{SERVER}"
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
    for risk in risks(&config).into_iter().chain(shown) {
        console::warning(&risk);
    }
    let tunnel = Tunnel::open(&config, key).map_err(Failure::Failed)?;
    daemon::run(carry(tunnel))
}

async fn carry(tunnel: Tunnel) -> Result<(), Failure> {
    let signals = StopSignals::listen()?;
    console::print_line(&format!("device {}", tunnel.device()))?;
    let stopper = tunnel.stopper();
    let mut failed = None;
    daemon::until_stopped(signals, async |stop| {
        let mut carrying = tokio::task::spawn_blocking(|| tunnel.run());
        let ended = tokio::select! {
            ended = &mut carrying => ended,
            _ = stop => {
                stopper.stop();
                carrying.await
            }
        };
        failed = ended.unwrap_or_else(|panic| Err(panic.to_string())).err();
    })
    .await?;
    failed.map_or(Ok(()), |what| Err(Failure::Failed(what)))
}

/// Reads the shared key: 64 hexadecimal digits, in a file beside the configuration.
fn read_key(config: &Path, key: &Path) -> Result<SharedKey, Failure> {
    let path = key_path(config, key);
    let refuse = |what: &str| {
        let advice = "write 64 hexadecimal digits: openssl rand -hex 32 > FILE";
        Failure::Usage(format!("key {}: {what}; {advice}", path.display()))
    };
    let text = Zeroizing::new(fs::read(&path).map_err(|error| refuse(&error.to_string()))?);
    let digits = text.trim_ascii();
    let mut bytes = Zeroizing::new([0; 32]);
    if digits.len() != 2 * bytes.len() {
        return Err(refuse("it has no 64 digits"));
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else {
            return Err(refuse("it has something else than hexadecimal digits"));
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
fn risks(config: &Config) -> Vec<String> {
    let mut risks = Vec::new();
    let channels = &config.channels;
    if config.min_threshold == 1 {
        risks.push(
            "min_threshold is 1: some packets are sent in the clear, and whoever listens on one \
             channel reads those"
                .into(),
        );
    }
    for (second, channel) in channels.iter().enumerate() {
        let way = |index: usize| {
            let channel = &channels[index];
            (channel.peer.map(|peer| peer.ip()), channel.local.ip(), channel.device.as_deref())
        };
        let is_client = config.end == End::Client;
        if let Some(first) = (0..second).find(|&first| is_client && way(first) == way(second)) {
            let peer = channel.peer.map(|peer| peer.ip().to_string()).unwrap_or_default();
            risks.push(format!(
                "channels {} and {} go to {peer} from the same source and device: whoever listens \
                 there sees both, so the second protects nothing",
                first + 1,
                second + 1,
            ));
        }
    }
    if !config.tamper_code {
        risks.push(
            "tamper_code is off: whoever changes one channel changes packets unnoticed".into(),
        );
    }
    risks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_are_configurations_without_risks() {
        let client = Config::from_toml(CLIENT).unwrap();
        let server = Config::from_toml(SERVER).unwrap();
        assert_eq!((client.end, server.end), (End::Client, End::Server));
        assert_eq!((client.channels.len(), server.channels.len()), (3, 3));
        assert_eq!((risks(&client), risks(&server)), (vec![], vec![]));
    }

    #[test]
    fn the_guides_examples_are_configurations_without_risks() {
        let guide = include_str!("../../../docs/guides/tunnel.md");
        let examples: Vec<&str> = guide
            .split("```toml\n")
            .skip(1)
            .map(|rest| rest.split("```").next().unwrap())
            .collect();
        assert_eq!(examples.len(), 2);
        for example in examples {
            assert_eq!(risks(&Config::from_toml(example).unwrap()), Vec::<String>::new());
        }
    }

    #[test]
    fn what_hardly_anybody_wants_is_named() {
        let one = CLIENT.replace("kappa = 2", "kappa = 1\ntamper_code = false");
        let named = risks(&Config::from_toml(&one).unwrap());
        assert!(named.len() == 2 && named[0].contains("in the clear"), "{named:?}");
        let twice = CLIENT.replace("203.0.113.10", "198.51.100.10").replace("wwan0", "wlan0");
        let named = risks(&Config::from_toml(&twice).unwrap());
        assert!(named.len() == 1 && named[0].contains("channels 2 and 3"), "{named:?}");
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
            assert!(failure.message().contains("openssl rand"), "{}", failure.message());
        }
    }
}
