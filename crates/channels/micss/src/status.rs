//! The status of a client or a server, for people and scripts. Counts are since its start; those of
//! channels that a reload has changed, since that reload.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// The status of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MicssStatus {
    /// The time since its start, in seconds.
    pub uptime_s: f64,
    /// The addresses on which it listens.
    #[serde(default)]
    pub listen: Vec<SocketAddr>,
    /// The streams.
    pub streams: StreamCounts,
    /// The open streams, by the number of channels that they can still lose.
    #[serde(default)]
    pub redundancy: StreamRedundancy,
    /// A server's limits, and how often they were reached.
    #[serde(default)]
    pub limits: Option<ServerLimitStatus>,
    /// A client's interception, if it intercepts.
    #[serde(default)]
    pub interception: Option<InterceptionStatus>,
    /// A client's connections that leave directly, if it lets any. Datagrams are not counted.
    #[serde(default)]
    pub bypass: Option<BypassStatus>,
    /// The datagrams that streams carry, if that is configured.
    #[serde(default)]
    pub udp: Option<UdpStatus>,
    /// A client's servers in order of preference, if it has several of which one carries new
    /// streams.
    #[serde(default)]
    pub servers: Vec<StreamServerStatus>,
    /// How often another of these servers was chosen, since the start or since a reload has changed
    /// them.
    #[serde(default)]
    pub server_switches: u64,
    /// A client's channels to each of its servers, or the addresses on which a server listens.
    pub channels: Vec<StreamChannelStatus>,
}

/// The outcomes of streams. Each stream is counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamCounts {
    /// Streams that have begun and not ended.
    pub under_way: u64,
    /// Streams that both applications have ended.
    pub finished: u64,
    /// Streams that the server did not connect to a service.
    pub refused: u64,
    /// Streams that broke, before they opened or after.
    pub broken: u64,
    /// Streams that ended because bytes of a channel were changed.
    pub tampered: u64,
    /// Streams that were rejected, because there were as many as the configuration allows.
    pub over_limit: u64,
}

/// The open streams, by the number of their channels that they can still lose.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamRedundancy {
    /// Streams that wait for a channel.
    pub waiting: u64,
    /// The others, by the number of channels that they can lose: the first number is the streams
    /// that can lose none.
    pub spare: Vec<u64>,
}

/// A server's limited resources, and how often they were exhausted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerLimitStatus {
    /// The connections without an open stream, and their maximum: `max_waiting`.
    pub waiting: u64,
    /// See `waiting`.
    pub max_waiting: u64,
    /// Connections that were closed to make room for other connections without an open stream.
    pub waiting_evicted: u64,
    /// Of these, connections that were associated and whose request was not verified yet.
    pub unopened_evicted: u64,
    /// Connections whose clients requested terms that the server rejects.
    pub turned_away: u64,
    /// The maximum number of open streams. Their number is `under_way` in `streams`, and the number
    /// of rejected ones is `over_limit`.
    pub max_streams: u64,
    /// Open streams that were ended to make room for those of another source.
    pub streams_evicted: u64,
    /// The memory that is reserved for records of open streams, in bytes. Its maximum is
    /// `max_memory_mib`.
    pub memory_bytes: u64,
    /// See `memory_bytes`.
    pub max_memory_bytes: u64,
    /// How often a stream was ended or refused, or limited to short records, because there was not
    /// enough memory.
    pub out_of_memory: u64,
}

/// The connections of applications that leave a client directly, not over its channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BypassStatus {
    /// Those that are open.
    pub open: u64,
    /// Those that were connected.
    pub opened: u64,
    /// Those that could not be connected.
    pub failed: u64,
}

/// The datagrams that streams carry. Each association of an application is one stream, and so is
/// each intercepted flow, which counts as an association here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpStatus {
    /// The associations that are open.
    pub associations: u64,
    /// The associations that were opened.
    pub opened: u64,
    /// Those of the open ones that are intercepted flows.
    #[serde(default)]
    pub intercepted: u64,
    /// Intercepted flows that were ended to make room for others.
    #[serde(default)]
    pub evicted: u64,
    /// The datagrams that were sent over the channels.
    pub to_channels: u64,
    /// The datagrams that came over the channels and were sent on.
    pub from_channels: u64,
    /// The datagrams that were dropped: invalid, not allowed, or from a sender that nobody asked.
    pub dropped: u64,
}

/// One of several servers of a client, of which one carries new streams.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamServerStatus {
    /// Its addresses, one for each channel.
    pub channels: Vec<String>,
    /// Whether it carries new streams.
    pub is_used: bool,
    /// How long it has carried new streams, in seconds.
    pub used_s: Option<f64>,
    /// Why it does, if the choice has ever changed.
    pub reason: Option<String>,
    /// How long it has worked, in seconds. `None` while it is gone.
    pub working_s: Option<f64>,
    /// Why it cannot carry new streams, if it cannot.
    pub gone: Option<String>,
}

/// The state of interception.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterceptionStatus {
    /// The port to which connections are redirected.
    pub port: u16,
    /// Whether the rules are in force. If not, another program has removed them and they cannot be
    /// restored: connections leave in the clear.
    pub in_force: bool,
    /// How often another program has removed or changed the rules, and they were restored.
    pub restored: u64,
    /// Whether datagrams are intercepted too.
    #[serde(default)]
    pub udp: bool,
}

/// Whether a channel can be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StreamChannelState {
    /// Nothing was heard on it yet. At a server: no stream uses it.
    #[default]
    Unknown,
    /// The peer answers. At a server: at least one client does.
    Up,
    /// The peer does not answer. At a server: no client with streams does.
    Down,
}

/// A client that a server no longer reaches on a channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LostPeer {
    /// Its address on the channel.
    pub peer: String,
    /// How long it has not been heard, in seconds.
    pub for_s: f64,
    /// Why it counts as lost.
    pub why: String,
    /// The number of its streams that use the channel. Those that need it wait.
    pub streams: u64,
}

/// A channel of a client, or an address on which a server listens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamChannelStatus {
    /// The server's address on it.
    pub server: String,
    /// Whether it can be used.
    #[serde(default)]
    pub state: StreamChannelState,
    /// The time in this state, in seconds. For a channel that is down, the time since it was last
    /// heard.
    #[serde(default)]
    pub state_s: Option<f64>,
    /// Why it is down.
    #[serde(default)]
    pub why: Option<String>,
    /// At a server: the number of client addresses that have streams on it, or had when they were
    /// lost.
    #[serde(default)]
    pub peers: u64,
    /// At a server: the number of these that it does not reach.
    #[serde(default)]
    pub peers_down: u64,
    /// At a server: some of those that it does not reach, the most recently lost.
    #[serde(default)]
    pub lost: Vec<LostPeer>,
    /// Connections that are ready for a stream.
    pub ready: u64,
    /// Established connections.
    pub connected: u64,
    /// Failed connection attempts.
    pub unconnected: u64,
    /// The bytes that streams have sent.
    pub sent_bytes: u64,
    /// The bytes that streams have received.
    pub received_bytes: u64,
    /// The last sample of the round-trip time, in ms. `None` before a stream has used it.
    pub rtt_ms: Option<f64>,
    /// How long streams have waited for bytes of this channel while others had brought more, in
    /// seconds.
    pub waited_s: f64,
    /// The number of streams under which it broke, or that continued without it.
    pub broken: u64,
    /// The number of connections that have replaced another in an open stream, after the stream had
    /// lost the channel or the channel's path was lost.
    #[serde(default)]
    pub rejoined: u64,
    /// The number of streams that found changed bytes on it. Counted only if a threshold below the
    /// number of channels identifies the channel.
    pub tampered: u64,
}
