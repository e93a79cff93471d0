//! What a client or a server tells about itself, for people and scripts. Counts are since its start; those
//! of channels that a reload has changed, since that.

use serde::{Deserialize, Serialize};

/// What one is doing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// How long it has run, in seconds.
    pub uptime_s: f64,
    /// The streams.
    pub streams: Streams,
    /// A server's limits, and how often they were reached.
    #[serde(default)]
    pub limits: Option<Limits>,
    /// A client's interception, if it intercepts.
    #[serde(default)]
    pub interception: Option<Interception>,
    /// A client's channels to each of its servers, or the addresses where a server listens.
    pub channels: Vec<Channel>,
}

/// What became of streams. Each is counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streams {
    /// Those that have begun and are not over.
    pub under_way: u64,
    /// Those that both applications have ended.
    pub finished: u64,
    /// Those that the server did not connect to a service.
    pub refused: u64,
    /// Those that broke, before they opened or after.
    pub broken: u64,
    /// Those that ended because somebody has changed what a channel carries.
    pub tampered: u64,
    /// Those that did not begin, because there were as many as the configuration allows.
    pub over_limit: u64,
}

/// What a server has of what it gives to whoever comes, and how often there was not enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// The connections without an open stream, and how many may be: `max_waiting`.
    pub waiting: u64,
    /// See `waiting`.
    pub max_waiting: u64,
    /// Connections that were closed to make room for others of these.
    pub waiting_evicted: u64,
    /// The streams among them that were associated, and whose request was not verified yet.
    pub unopened_evicted: u64,
    /// Connections whose clients asked for terms that they do not get.
    pub turned_away: u64,
    /// The most open streams. How many there are is among the streams, `under_way`; those that were refused,
    /// `over_limit`.
    pub max_streams: u64,
    /// Open streams that were ended to make room for those of another source.
    pub streams_evicted: u64,
    /// The bytes that are set aside for records of open streams, and how many may be: `max_memory_mib`.
    pub memory_bytes: u64,
    /// See `memory_bytes`.
    pub max_memory_bytes: u64,
    /// How often a stream was ended or refused, or had to do with short records, as there was no memory.
    pub out_of_memory: u64,
}

/// How connections are intercepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interception {
    /// The port that they come to.
    pub port: u16,
    /// Whether the rules are in force. If not, another program has removed them and they cannot be restored:
    /// connections go out in the clear.
    pub in_force: bool,
    /// How often another program has removed or changed the rules, and they were restored.
    pub restored: u64,
}

/// Whether a channel can be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChannelState {
    /// Nothing was heard on it yet. At a server: no stream comes over it.
    #[default]
    Unknown,
    /// The other end answers. At a server: that of some client.
    Up,
    /// It does not. At a server: that of no client which has streams.
    Down,
}

/// A client which a server does not reach on a channel any more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LostPeer {
    /// Its address on the channel.
    pub peer: String,
    /// For how long nothing was heard of it, in seconds.
    pub for_s: f64,
    /// Why it counts as lost.
    pub why: String,
    /// How many of its streams use the channel, and wait if they need it.
    pub streams: u64,
}

/// A channel of a client's, or an address where a server listens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Channel {
    /// The server's address on it.
    pub server: String,
    /// Whether it can be used.
    #[serde(default)]
    pub state: ChannelState,
    /// For how long it has been so, in seconds; of a channel that is down, since it was heard last.
    #[serde(default)]
    pub state_s: Option<f64>,
    /// Why it is down.
    #[serde(default)]
    pub why: Option<String>,
    /// At a server, how many clients' addresses have streams on it, or had when they were lost.
    #[serde(default)]
    pub peers: u64,
    /// At a server, how many of these it does not reach.
    #[serde(default)]
    pub peers_down: u64,
    /// At a server, some of those that it does not reach: those that were lost last.
    #[serde(default)]
    pub lost: Vec<LostPeer>,
    /// The connections that wait for a stream.
    pub ready: u64,
    /// The connections that were made.
    pub connected: u64,
    /// Those that could not be made.
    pub unconnected: u64,
    /// The bytes that streams have sent.
    pub sent_bytes: u64,
    /// The bytes that streams have received.
    pub received_bytes: u64,
    /// How long a round trip took when that was last looked at, in ms. Nothing before a stream has used it.
    pub rtt_ms: Option<f64>,
    /// How long streams have waited for bytes of this channel while others had brought more, in seconds.
    pub waited_s: f64,
    /// How many streams it broke off under, or was left behind by.
    pub broken: u64,
    /// How many streams found that it carried other bytes than were sent. Counted only where a threshold
    /// below the number of channels lets them tell which it was.
    pub tampered: u64,
}
