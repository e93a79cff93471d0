//! Connects the two parties.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use compute::{PhaseFigures, peak_memory};
use console::CommandFailure;
use console::CommandProgress;
use keys::IdentityPublicKey;
use rustix::time::ClockId;
use transport::{
    Connection, ConnectionOptions, ConnectionStep, Error, ExchangeProfile, Listener,
    TransportChoice, connect,
};

use super::measuring::PhaseMeasurement;
use crate::commands::transport::{failed, parse_choice, reachable, security};

/// How long a party tries to connect to a party that does not listen yet, without `--wait`.
const DEFAULT_WAIT: Duration = Duration::from_secs(10);

/// How often a party tries to connect to a party that does not listen yet.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// The options for the address and the key of the other party.
#[derive(clap::Args)]
#[group(skip)]
pub(super) struct ComputeConnectOptions {
    /// Wait for the other party at this address
    #[arg(long, value_name = "ADDR", conflicts_with = "connect")]
    listen: Option<String>,
    /// Wait for the other party at a relay (`sunder transport relay`), if this host cannot be
    /// reached from outside
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["listen", "connect"])]
    via: Option<String>,
    /// Connect to the other party, which listens there
    #[arg(long, value_name = "HOST:PORT")]
    pub(super) connect: Option<String>,
    /// How long to wait for the other party, in seconds [default: 10 for the party that connects;
    /// the party that listens waits without limit]
    #[arg(long, value_name = "S")]
    wait: Option<u32>,
    /// The transport: auto, or the name of one. The party that connects chooses
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = parse_choice)]
    transport: TransportChoice,
    /// The public key of the other party, which it prints when it listens. The party that listens
    /// may give several keys [default: anyone who knows this party's key can connect]
    #[arg(long, value_name = "KEY")]
    key: Vec<IdentityPublicKey>,
    /// The file with this party's key [default: a new one for each run]
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    identity: Option<PathBuf>,
    /// Without encryption and proof of keys: an attacker on the path can read and change everything
    #[arg(long, conflicts_with = "key")]
    insecure: bool,
    /// TCP's congestion control, such as bbr or cubic [default: the system's]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Use udp even if the path loses packets: the connection may fail at any time
    #[arg(long)]
    accept_loss: bool,
    /// Load the circuit before connecting, not meanwhile
    #[arg(long)]
    pub(super) load_first: bool,
}

/// A connection to the other party.
pub(super) struct PartyConnection {
    pub(super) connection: Connection,
    /// What connecting took, from when the other party was there; at the party that listens
    /// nothing.
    pub(super) connect: PhaseFigures,
}

impl ComputeConnectOptions {
    /// Where the parties meet.
    fn address(&self) -> &str {
        let address = self.listen.as_ref().or(self.connect.as_ref()).or(self.via.as_ref());
        address.map_or("", String::as_str)
    }

    /// How long to wait for the other party.
    fn wait(&self) -> Option<Duration> {
        self.wait.map(|wait| Duration::from_secs(wait.into()))
    }

    /// Whether no other host is involved.
    fn is_local(&self) -> bool {
        self.via.is_none() && self.address().split(',').all(is_loopback)
    }

    /// Whether `--key` gives this key.
    pub(super) fn names(&self, key: &IdentityPublicKey) -> bool {
        self.key.contains(key)
    }

    /// Why the transport is used, if it was not chosen here.
    pub(super) fn default_reason(&self) -> &'static str {
        if self.connect.is_some() { "as --transport says" } else { "the other party has chosen it" }
    }

    /// Whether the transport is to be chosen for the exchange.
    pub(super) fn is_auto_choice(&self) -> bool {
        self.connect.is_some() && self.transport == TransportChoice::Auto && !self.is_local()
    }
}

/// The options of the connection.
///
/// # Errors
/// If the file with the key cannot be read.
pub(super) fn options(
    connecting: &ComputeConnectOptions,
    exchange: Option<ExchangeProfile>,
) -> Result<ConnectionOptions, CommandFailure> {
    let has_keys = connecting.identity.is_some() || !connecting.key.is_empty();
    let is_insecure = connecting.insecure || (connecting.is_local() && !has_keys);
    let security = security(connecting.identity.as_ref(), &connecting.key, is_insecure)?;
    Ok(ConnectionOptions {
        transport: connecting.transport,
        congestion: connecting.congestion.clone(),
        accept_loss: connecting.accept_loss,
        exchange,
        ..ConnectionOptions::new(security)
    })
}

/// Connects to the other party, or waits for it. `rest` is what its command has besides the
/// address, which is printed.
///
/// # Errors
/// If there is no connection.
pub(super) fn connect_parties(
    connecting: &ComputeConnectOptions,
    exchange: Option<ExchangeProfile>,
    rest: &str,
) -> Result<PartyConnection, CommandFailure> {
    if connecting.insecure && !connecting.is_local() {
        console::warning("insecure: an attacker on the path can read and change what is exchanged");
    }
    if connecting.address().is_empty() {
        let message = "the other party is missing: give --listen ADDR or --connect HOST:PORT";
        return Err(CommandFailure::Usage(message.into()));
    }
    let options = options(connecting, exchange)?;
    let is_plain = !connecting.insecure && options.security.public_key().is_none();
    if let Some(address) = &connecting.connect {
        if is_plain {
            note_without_encryption();
        }
        return retry(address, &options, connecting.wait().unwrap_or(DEFAULT_WAIT));
    }
    let listener = listen(connecting, &options, rest)?;
    if is_plain {
        note_without_encryption();
    }
    accept(&listener, &options, connecting.wait())
}

fn note_without_encryption() {
    console::note("without encryption: nothing leaves this host (--identity and --key encrypt)");
}

fn is_loopback(address: &str) -> bool {
    match address.parse::<SocketAddr>() {
        Ok(address) => address.ip().to_canonical().is_loopback(),
        Err(_) => address.rsplit_once(':').is_some_and(|(host, _)| host == "localhost"),
    }
}

/// Listens, or waits at a relay, and says the command for the other party.
fn listen(
    connecting: &ComputeConnectOptions,
    options: &ConnectionOptions,
    rest: &str,
) -> Result<Listener, CommandFailure> {
    // Who is refused is logged.
    service::log::start(console::wants_colour(&std::io::stderr()))?;
    let (listener, to) = if let Some(relay) = &connecting.via {
        let (listener, token) = Listener::via(relay, options).map_err(|error| failed(&error))?;
        console::note(&format!("waiting at {relay}"));
        (listener, format!("{token}@{relay}"))
    } else {
        let listener = Listener::bind(connecting.address(), options);
        let listener = listener.map_err(|error| failed(&error))?;
        let address = listener.local_addr();
        console::note(&format!("listening on {address}"));
        let to = reachable(address)
            .map_or_else(|| format!("HOST:{}", address.port()), |to| to.to_string());
        (listener, to)
    };
    let key = match options.security.public_key() {
        Some(key) => format!(" --key {key}"),
        None if connecting.insecure => " --insecure".into(),
        None => String::new(),
    };
    console::note(&format!(
        "run this at the other party: sunder compute {rest} --connect {to}{key}"
    ));
    Ok(listener)
}

/// The first connection, within `wait`; without it, whenever it comes.
fn accept(
    listener: &Listener,
    options: &ConnectionOptions,
    wait: Option<Duration>,
) -> Result<PartyConnection, CommandFailure> {
    let accepted = match wait {
        Some(wait) => listener.accept_timeout(wait),
        None => listener.accept().map(Some),
    };
    let connection = accepted.map_err(|error| failed(&error))?.ok_or_else(|| {
        let waited = wait.unwrap_or_default().as_secs();
        CommandFailure::Failed(format!(
            "the other party has not connected within {waited} s: start it, or give a longer --wait"
        ))
    })?;
    let transport = connection.transport();
    if options.transport != TransportChoice::Auto
        && options.transport != TransportChoice::Named(transport)
    {
        console::note(&format!(
            "the other party has connected over {transport}: its --transport applies"
        ));
    }
    let connect = PhaseFigures { peak_memory: peak_memory(), ..PhaseFigures::default() };
    Ok(PartyConnection { connection, connect })
}

/// Connects, as soon as the other party listens.
fn retry(
    address: &str,
    options: &ConnectionOptions,
    wait: Duration,
) -> Result<PartyConnection, CommandFailure> {
    let end = Instant::now() + wait;
    let mut waiting = None;
    loop {
        let measuring = PhaseMeasurement::start(ClockId::ThreadCPUTime);
        match connect(address, options) {
            Ok(connection) => {
                return Ok(PartyConnection { connection, connect: measuring.figures() });
            }
            Err(Error::Io { source, .. })
                if source.kind() == std::io::ErrorKind::ConnectionRefused
                    && Instant::now() < end =>
            {
                waiting
                    .get_or_insert_with(CommandProgress::unknown)
                    .doing("until the other party listens");
                thread::sleep(RETRY_INTERVAL);
            }
            Err(Error::NoKey { .. }) => {
                let message = format!(
                    "{address}: the key of the other party is missing: give --key with the key \
                     that the other party prints when it listens"
                );
                return Err(CommandFailure::Usage(message));
            }
            Err(
                error @ (Error::Io { step: ConnectionStep::Connect(_), .. }
                | Error::TimedOut { step: ConnectionStep::Connect(_), .. }),
            ) => {
                return Err(failed(&error).and("does the other party listen there?"));
            }
            Err(error) => return Err(failed(&error)),
        }
    }
}
