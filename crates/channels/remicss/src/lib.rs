//! ReMICSS: IP packets over n channels, as shares of which any k give a packet back.
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
//!     let tunnel = IpTunnel::open(config, Some(key))?;
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
//! The other modules are the layers of the protocol, each of which uses only those before it:
//! `wire` (datagrams, tokens, messages), `send`, `recv`, `control` (handshake, estimates, paths and
//! addresses) and `endpoint` (the two halves of one end). They are state machines: bytes and the
//! time come in, bytes and timers go out. Time is a [`Duration`](std::time::Duration) since any
//! epoch that the caller keeps to. They are public for tests, benchmarks and fuzz targets only.

pub mod config;
#[doc(hidden)]
pub mod control;
#[doc(hidden)]
pub mod endpoint;
#[doc(hidden)]
pub mod recv;
#[doc(hidden)]
pub mod send;
pub mod status;
mod tunnel;
#[doc(hidden)]
pub mod wire;

pub use config::TunnelConfig;
pub use keys::SharedKey;
pub use service::config::{ConfigProblem, ConfigProblems};
pub use status::TunnelStatus;
pub use tunnel::{IpTunnel, TunnelError, TunnelStatusSource, TunnelStopper};
pub use wire::datagram::MAX_CHANNELS;
