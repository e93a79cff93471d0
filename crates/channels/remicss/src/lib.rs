//! ReMICSS: sends IP packets over n channels as shares, any k of which reconstruct a packet.
//!
//! A [`IpTunnel`] is one end: a TUN device, and a UDP socket for each channel. It is made from a
//! [`TunnelConfig`], and reports its [`TunnelStatus`]. An eavesdropper on fewer channels than a
//! packet's threshold k learns only the packet's length and time. The guarantees, their assumptions
//! and the bytes on the channels are in `docs/protocols/remicss.md`. Section numbers in the code
//! are those of D. J. Pohly and P. McDaniel, "Modeling Privacy and Tradeoffs in Multichannel Secret
//! Sharing Protocols" (DSN 2016).
//!
//! ```
//! use sunder_remicss::{IpTunnel, SharedKey, TunnelConfig, TunnelError};
//!
//! let config = TunnelConfig::from_toml(
//!     r#"
//!         kappa = 2    # mean threshold
//!         mu = 2.5     # mean number of shares
//!         addresses = ["10.9.0.2/24"]
//!         [[channel]]
//!         server = "192.0.2.1:6521"
//!         [[channel]]
//!         server = "198.51.100.1:6521"
//!         [[channel]]
//!         server = "203.0.113.1:6521"
//!     "#,
//! )?;
//! assert_eq!((config.channels.len(), config.min_threshold), (3, 2));
//!
//! /// Carries packets until another thread stops the tunnel. Needs `CAP_NET_ADMIN`.
//! fn carry(config: &TunnelConfig, key: SharedKey) -> Result<(), TunnelError> {
//!     let tunnel = IpTunnel::open(config, vec![key])?;
//!     let (status, stopper) = (tunnel.status_source(), tunnel.stopper());
//!     std::thread::spawn(move || {
//!         while status.status().uptime_s < 3600.0 {
//!             std::thread::sleep(std::time::Duration::from_secs(1));
//!         }
//!         stopper.stop();
//!     });
//!     tunnel.run()
//! }
//! # Ok::<(), sunder_remicss::ConfigProblems>(())
//! ```
//!
//! # Map
//!
//! The layers of `protocol` are pure, and each uses only those before it. They are public for
//! tests, benchmarks and fuzz targets only. Time is a [`Duration`](std::time::Duration) since an
//! epoch that the caller chooses.
//!
//! - `wire`: the bytes: `datagram`, `tokens`, `symbol`, `part`, `handshake`, `control`, `path`,
//!   `terms`, `options`, `keys`.
//! - `send`: `sender`, with its `encoder`; `schedule` chooses (k, M), `plan`, `bounds`, `priority`,
//!   `shared_fates`, `spare` and `similar_delays` compute schedules; `codel_queue`: packets that
//!   wait.
//! - `recv`: `receiver`, `reassembly` of symbols, `part_joiner`, `reorder_buffer` with its
//!   `delay_equalizer`; `fault_tracker`: which channels are in quarantine; `sequence_window`,
//!   `byte_ring`, `channel_bits`: their data.
//! - `control`: `handshake`; `monitor`, which combines `incoming` and `outgoing` into an `estimate`
//!   of each channel; `path_prober` for the MTU; `peer_address` and `unverified` datagrams;
//!   `quota`; `rate_limiter`; `hello_probe`, which measures channels without an association.
//! - `endpoint`: one end: its halves `inbound` and `outbound`, with the `frame_sender` before
//!   it, and their `shared_state`; `client_demultiplexer`: which client has sent a datagram.
//!
//! The driver is `net`: the threads `sending`, `receiving` and `planning`, with `sending_peer`,
//! `receiving_peer` and `received_packets` for each peer, `status_source`, `quota` and `probe`;
//! `server_names` looks up names of servers;
//! [`fail_closed`] keeps packets for the tunnel from leaving another way.
//! [`config`] is read and checked before; [`status`] is what an end reports.

pub mod config;
mod net;
mod protocol;
pub mod status;

pub use config::TunnelConfig;
pub use keys::SharedKey;
pub use net::fail_closed;
pub use net::{
    IpTunnel, TunnelError, TunnelReloadError, TunnelReloader, TunnelStatusSource, TunnelStopper,
    measure_channels,
};
pub use protocol::control::hello_probe::MeasuredChannel;
pub use protocol::wire::datagram::MAX_CHANNELS;
#[doc(hidden)]
pub use protocol::{control, endpoint, recv, send, wire};
pub use service::config::{ConfigProblem, ConfigProblems};
pub use status::TunnelStatus;
