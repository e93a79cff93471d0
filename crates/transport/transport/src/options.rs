//! What a connection is to be.

use std::sync::Arc;
use std::time::Duration;

use keys::{IdentityPublicKey, IdentitySecretKey};
use zeroize::Zeroizing;

use crate::error::Error;
use crate::model::ExchangeProfile;

/// What a connection, or a listener's connections, are to be.
#[derive(Clone, Debug)]
pub struct ConnectionOptions {
    /// The transport of [`connect`](crate::connect). A listener accepts all of them.
    pub transport: TransportChoice,
    /// Who the ends are, and whether what they send is encrypted.
    pub security: ConnectionSecurity,
    /// What will be exchanged, if it is known: the choice of a transport depends on it.
    pub exchange: Option<ExchangeProfile>,
    /// The path, if it was measured: the buffers of sockets are made for it.
    pub path: Option<PathEstimate>,
    /// TCP's congestion control, as in `net.ipv4.tcp_available_congestion_control`; `None` is the
    /// system's.
    pub congestion: Option<String>,
    /// The size of a socket's buffers in bytes; `None` is what the path needs, or the system's.
    pub buffer: Option<usize>,
    /// Whether [`TransportChoice::Auto`] is TCP, as a transport over UDP has just failed.
    pub avoids_udp: bool,
    /// Whether TCP sends, and asks the other end for, only packets that every path of IPv6 carries:
    /// 1,280 bytes. For a path that may lose longer ones without an ICMP message, which the kernel
    /// does not find out unless `net.ipv4.tcp_mtu_probing` allows it.
    pub has_short_segments: bool,
    /// Whether a transport that does not repair losses may be used although the path has some.
    pub accept_loss: bool,
    /// How long connecting may take, for each address of a name.
    pub connect_timeout: Duration,
    /// How long the handshake may take.
    pub handshake_timeout: Duration,
    /// How long a read or write may wait; `None` is as long as the peer is there.
    pub timeout: Option<Duration>,
}

impl ConnectionOptions {
    /// The usual ones, with this security.
    pub fn new(security: ConnectionSecurity) -> Self {
        Self {
            transport: TransportChoice::Auto,
            security,
            exchange: None,
            path: None,
            congestion: None,
            buffer: None,
            avoids_udp: false,
            has_short_segments: false,
            accept_loss: false,
            connect_timeout: CONNECT_TIMEOUT,
            handshake_timeout: HANDSHAKE_TIMEOUT,
            timeout: None,
        }
    }
}

/// The usual limit of connecting. The kernel repeats a lost first packet of TCP after 1 and 3 s, so
/// the third one can still be answered.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(4500);

/// The usual limit of the handshake: a message that is lost twice still arrives over a path of
/// 300 ms, and who has connected to something else knows it within 5 s.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_millis(4500);

/// Which transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// The one that is expected to be the fastest.
    #[default]
    Auto,
    /// The one of this name: one of [`names`](crate::names).
    Named(&'static str),
}

/// What is known of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathEstimate {
    /// The round-trip time without queues.
    pub round_trip: Duration,
    /// The bottleneck's rate, in bytes per second.
    pub rate: f64,
    /// The part of what is sent that is lost, from 0 to 1.
    pub loss: f64,
}

/// Who the ends of a connection are, and whether what they send is encrypted.
#[derive(Clone, Debug)]
pub enum ConnectionSecurity {
    /// A handshake (Noise IK) in which both ends prove their keys; then everything is encrypted.
    Noise {
        /// This end's key.
        identity: Arc<IdentitySecretKey>,
        /// The keys that the other end may have.
        peers: PeerKeyPolicy,
    },
    /// None: whoever is on the path can read and change everything.
    Insecure,
}

/// The keys that the other end may have.
#[derive(Clone, Debug, PartialEq)]
pub enum PeerKeyPolicy {
    /// Any. Who connects must know this end's public key, so the key is an invitation: whoever has
    /// been given it can connect. Not possible for the end that connects.
    Any,
    /// One of these.
    Pinned(Vec<IdentityPublicKey>),
}

impl ConnectionSecurity {
    /// Encrypted, with this key, and any peer that knows it.
    pub fn open(identity: IdentitySecretKey) -> Self {
        Self::Noise { identity: Arc::new(identity), peers: PeerKeyPolicy::Any }
    }

    /// Encrypted, with this key, and a peer that has one of these.
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

/// A key of random bytes, for one connection or one run of a program.
///
/// # Errors
/// When the system gives no random bytes.
pub fn random_identity() -> Result<IdentitySecretKey, Error> {
    Ok(IdentitySecretKey::new(&*random_bytes()?))
}

/// The bytes of such a key.
pub(crate) fn random_bytes() -> Result<Zeroizing<[u8; keys::KEY_LEN]>, Error> {
    let mut random = Zeroizing::new([0; keys::KEY_LEN]);
    getrandom::fill(&mut *random).map_err(Error::Random)?;
    Ok(random)
}
