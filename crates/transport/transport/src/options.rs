//! The options of connections.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use keys::{IdentityPublicKey, IdentitySecretKey};

use crate::error::Error;
use crate::model::ExchangeProfile;

/// The options of a connection, or of a listener's connections.
#[derive(Clone, Debug)]
pub struct ConnectionOptions {
    /// The transport of [`connect`](crate::connect). A listener accepts all of them.
    pub transport: TransportChoice,
    /// The keys of the ends, and whether the connection is encrypted.
    pub security: ConnectionSecurity,
    /// The exchange that will follow, if it is known: the choice of a transport depends on it.
    pub exchange: Option<ExchangeProfile>,
    /// The path, if it was measured: the sizes of socket buffers depend on it.
    pub path: Option<PathEstimate>,
    /// TCP's congestion control, as in `net.ipv4.tcp_available_congestion_control`; `None` uses the
    /// system's default.
    pub congestion: Option<String>,
    /// The size of socket buffers in bytes; `None` uses what the path needs, or the system's
    /// default.
    pub buffer: Option<usize>,
    /// The largest size of a buffer that is not given, in bytes; `None`: no limit.
    pub max_buffer: Option<usize>,
    /// The address `HOST:PORT` of a SOCKS5 proxy through which to connect over TCP. It resolves the
    /// name of the destination.
    pub socks: Option<String>,
    /// The addresses of load balancers. Each TCP connection from one of them to a listener begins
    /// with a header of the PROXY protocol, version 1 or 2, that states the address of the client.
    /// From other addresses, no header is accepted.
    pub balancers: Vec<IpAddr>,
    /// Whether [`TransportChoice::Auto`] chooses TCP, because a transport over UDP has just failed.
    pub avoids_udp: bool,
    /// Whether TCP sends, and requests from the other end, only packets of at most 1,280 bytes,
    /// which every IPv6 path carries. This helps on a path that drops longer packets without an
    /// ICMP message: the kernel does not detect that unless `net.ipv4.tcp_mtu_probing` is enabled.
    pub has_short_segments: bool,
    /// Whether a transport without retransmission may be used although the path loses packets.
    pub accept_loss: bool,
    /// The time limit for connecting, for each address of a name.
    pub connect_timeout: Duration,
    /// The time limit for the handshake.
    pub handshake_timeout: Duration,
    /// The time limit of each read or write; `None` waits as long as the peer is alive.
    pub timeout: Option<Duration>,
}

impl ConnectionOptions {
    /// The default options, with this security.
    pub fn new(security: ConnectionSecurity) -> Self {
        Self {
            transport: TransportChoice::Auto,
            security,
            exchange: None,
            path: None,
            congestion: None,
            buffer: None,
            max_buffer: None,
            socks: None,
            balancers: Vec::new(),
            avoids_udp: false,
            has_short_segments: false,
            accept_loss: false,
            connect_timeout: CONNECT_TIMEOUT,
            handshake_timeout: HANDSHAKE_TIMEOUT,
            timeout: None,
        }
    }
}

/// The default time limit for connecting. The kernel retransmits TCP's first packet after 1 and 3
/// s, so that the third one can still be answered.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(4500);

/// The default time limit for the handshake. A message that is lost twice still arrives over a path
/// of 300 ms, and a client that has connected to another program learns it within 5 s.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_millis(4500);

/// The transport to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// The transport that is predicted to be the fastest.
    #[default]
    Auto,
    /// The transport of this name, which is one of [`names`](crate::names).
    Named(&'static str),
}

/// Measurements of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathEstimate {
    /// The round-trip time without queues.
    pub round_trip: Duration,
    /// The rate of the bottleneck, in bytes/s.
    pub rate: f64,
    /// The fraction of packets that is lost, 0 to 1.
    pub loss: f64,
}

/// How the ends authenticate each other, and whether the connection is encrypted.
#[derive(Clone, Debug)]
pub enum ConnectionSecurity {
    /// A handshake (Noise IK), in which both ends prove their keys. Afterwards everything is
    /// encrypted.
    Noise {
        /// This end's key.
        identity: Arc<IdentitySecretKey>,
        /// The keys that the other end may have.
        peers: PeerKeyPolicy,
    },
    /// No security: anyone on the path can read and change everything.
    Insecure,
}

/// The keys that the other end may have.
#[derive(Clone, Debug, PartialEq)]
pub enum PeerKeyPolicy {
    /// Any key. As a client must know this end's public key to connect, that key acts as an access
    /// code: anyone who has received it can connect. Not possible for the connecting end.
    Any,
    /// One of these.
    Pinned(Vec<IdentityPublicKey>),
}

impl ConnectionSecurity {
    /// An encrypted connection, with this key, to any peer that knows it.
    pub fn open(identity: IdentitySecretKey) -> Self {
        Self::Noise { identity: Arc::new(identity), peers: PeerKeyPolicy::Any }
    }

    /// An encrypted connection, with this key, to a peer that has one of these keys.
    pub fn pinned(identity: IdentitySecretKey, peers: Vec<IdentityPublicKey>) -> Self {
        Self::Noise { identity: Arc::new(identity), peers: PeerKeyPolicy::Pinned(peers) }
    }

    /// This end's public key, if it has one.
    pub fn public_key(&self) -> Option<IdentityPublicKey> {
        match self {
            Self::Noise { identity, .. } => Some(identity.public()),
            Self::Insecure => None,
        }
    }
}

impl PeerKeyPolicy {
    pub(crate) fn admit(&self, key: &IdentityPublicKey) -> bool {
        match self {
            Self::Any => true,
            Self::Pinned(keys) => keys.contains(key),
        }
    }
}

/// A random key, for one connection or one run of a program.
///
/// # Errors
/// If the system provides no random bytes.
pub fn random_identity() -> Result<IdentitySecretKey, Error> {
    Ok(IdentitySecretKey::random()?)
}
