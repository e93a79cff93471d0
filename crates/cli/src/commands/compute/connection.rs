//! How the two parties meet.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use keys::PublicKey;
use transport::{Choice, Connection, Error, Exchange, Listener, Options, connect};

use crate::commands::transport::{failed, parse_choice, security};
use crate::console;
use crate::failure::Failure;

/// How often a party tries to connect to one that does not listen yet.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// How the other party is reached, and who it is.
#[derive(clap::Args)]
#[group(skip)]
pub(super) struct Connecting {
    /// Wait for the other party at this address
    #[arg(long, value_name = "ADDR", conflicts_with = "connect")]
    listen: Option<String>,
    /// Connect to the other party, which listens there
    #[arg(long, value_name = "HOST:PORT")]
    pub(super) connect: Option<String>,
    /// How long to try to connect while the other party does not listen yet, in seconds
    #[arg(long, value_name = "S", default_value_t = 10)]
    wait: u32,
    /// The transport of the party that connects: auto, or the name of one
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = parse_choice)]
    transport: Choice,
    /// The public key of the other party: it prints it when it listens. May be given several times
    /// by the one that listens [default there: whoever knows this party's key]
    #[arg(long, value_name = "KEY")]
    key: Vec<PublicKey>,
    /// The file with this party's key [default: a new one for each run]
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    identity: Option<PathBuf>,
    /// Without encryption and proof of keys: whoever is on the path can read and change everything
    #[arg(long, conflicts_with = "key")]
    insecure: bool,
    /// TCP's congestion control, such as bbr or cubic [default: the system's]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Use udp although the path loses some of what is sent: it may fail at any time
    #[arg(long)]
    accept_loss: bool,
}

/// A connection to the other party.
pub(super) struct Met {
    pub(super) connection: Connection,
    /// How long connecting took, from when the other party was there.
    pub(super) connect: Duration,
}

impl Connecting {
    fn address(&self) -> &str {
        self.listen.as_ref().or(self.connect.as_ref()).map_or("", String::as_str)
    }

    /// Whether the transport is to be chosen for the exchange.
    pub(super) fn chooses(&self) -> bool {
        self.connect.is_some() && self.transport == Choice::Auto && !is_loopback(self.address())
    }
}

/// The options of the connection.
///
/// # Errors
/// If the file with the key cannot be read.
pub(super) fn options(
    connecting: &Connecting,
    exchange: Option<Exchange>,
) -> Result<Options, Failure> {
    let has_keys = connecting.identity.is_some() || !connecting.key.is_empty();
    let is_local = is_loopback(connecting.address());
    let is_insecure = connecting.insecure || (is_local && !has_keys);
    let security = security(connecting.identity.as_ref(), &connecting.key, is_insecure)?;
    Ok(Options {
        transport: connecting.transport,
        congestion: connecting.congestion.clone(),
        accept_loss: connecting.accept_loss,
        exchange,
        ..Options::new(security)
    })
}

/// Connects to the other party, or waits for it. `rest` is what its command has besides the
/// address, which is printed.
///
/// # Errors
/// If there is no connection.
pub(super) fn meet(
    connecting: &Connecting,
    exchange: Option<Exchange>,
    rest: &str,
) -> Result<Met, Failure> {
    if connecting.insecure && !is_loopback(connecting.address()) {
        console::warning("insecure: whoever is on the path can read and change what is exchanged");
    }
    if connecting.address().is_empty() {
        let message = "the other party is missing: give --listen ADDR or --connect HOST:PORT";
        return Err(Failure::Usage(message.into()));
    }
    let options = options(connecting, exchange)?;
    if let Some(address) = &connecting.listen {
        return listen(address, &options, rest);
    }
    retry(connecting.address(), &options, Duration::from_secs(connecting.wait.into()))
}

fn is_loopback(address: &str) -> bool {
    match address.parse::<SocketAddr>() {
        Ok(address) => address.ip().is_loopback(),
        Err(_) => address.rsplit_once(':').is_some_and(|(host, _)| host == "localhost"),
    }
}

fn listen(address: &str, options: &Options, rest: &str) -> Result<Met, Failure> {
    let listener = Listener::bind(address, options).map_err(|error| failed(&error))?;
    let address = listener.local_addr();
    let key = options.security.public_key();
    announce(address, key, rest);
    let connection = listener.accept().map_err(|error| failed(&error))?;
    Ok(Met { connection, connect: Duration::ZERO })
}

/// Says the command for the other party.
fn announce(address: SocketAddr, key: Option<PublicKey>, rest: &str) {
    console::note(&format!("listening on {address}"));
    let host = match address.ip() {
        ip if ip.is_unspecified() => format!("HOST:{}", address.port()),
        _ => address.to_string(),
    };
    let key = match key {
        Some(key) => format!(" --key {key}"),
        None if address.ip().is_loopback() => String::new(),
        None => " --insecure".into(),
    };
    console::note(&format!("the other party: sunder compute {rest} --connect {host}{key}"));
}

/// Connects, as soon as the other party listens.
fn retry(address: &str, options: &Options, wait: Duration) -> Result<Met, Failure> {
    let end = Instant::now() + wait;
    loop {
        let start = Instant::now();
        match connect(address, options) {
            Ok(connection) => return Ok(Met { connection, connect: start.elapsed() }),
            Err(Error::Io { source, .. })
                if source.kind() == std::io::ErrorKind::ConnectionRefused
                    && Instant::now() < end =>
            {
                thread::sleep(RETRY_INTERVAL);
            }
            Err(Error::NoKey { .. }) => {
                let message = format!(
                    "{address}: the key of the other party is missing: it prints it when it \
                     listens; pass it with --key"
                );
                return Err(Failure::Usage(message));
            }
            Err(error) => return Err(failed(&error)),
        }
    }
}
