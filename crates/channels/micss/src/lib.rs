//! MICSS: a TCP stream over n channels, of which any n - 1 together learn nothing.
//!
//! A stream is split into records. Each record is shared by XOR, byte for byte, and share `i` is
//! sent on channel `i`. `docs/protocols/micss.md` defines the bytes; the paper is MICSS, III-D and
//! III-E.
//!
//! A [`Client`](client::MicssClient) listens on the addresses in its
//! [`ClientConfig`](config::MicssClientConfig), and carries every connection over its channels to a
//! [`Server`](server::MicssServer), which connects to the service. Both run in a tokio runtime with
//! time and network enabled, until the future that is passed to `run` completes. Their [`status`]
//! reports what they do. A program that needs no proxies opens streams with [`connect`], and
//! accepts them with a [`MicssListener`]:
//!
//! ```
//! use std::time::Duration;
//!
//! use sunder_micss::config::{MicssServerConfig, RemoteServerConfig, StreamChannelConfig};
//! use sunder_micss::{MicssListener, connect};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let addresses = vec!["127.0.0.1:0".parse()?, "127.0.0.2:0".parse()?];
//! let listener = MicssListener::bind(MicssServerConfig::new(addresses)).await?;
//!
//! let channels = listener.local_addresses().iter().copied().map(StreamChannelConfig::to);
//! let server = RemoteServerConfig { channels: channels.collect(), threshold: 2 };
//! let mut client = connect(server, &"localhost:1".parse()?, Duration::from_secs(30)).await?;
//! client.write_all(b"hello").await?;
//! client.shutdown().await?;
//!
//! let (mut stream, _) = listener.accept().await.expect("it is not closed");
//! let mut received = String::new();
//! stream.read_to_string(&mut received).await?;
//! assert_eq!(received, "hello");
//! # Ok(())
//! # }
//! ```
//!
//! With both proxies:
//!
//! ```
//! use sunder_micss::client::MicssClient;
//! use sunder_micss::config::{MicssClientConfig, MicssServerConfig};
//! use sunder_micss::server::MicssServer;
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! use tokio::net::{TcpListener, TcpStream};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let service = TcpListener::bind("127.0.0.1:0").await?;
//! let target = service.local_addr()?;
//! let config = format!("listen = ['127.0.0.1:0', '127.0.0.2:0']\nallow = ['{target}']");
//! let server = MicssServer::bind(MicssServerConfig::from_toml(&config)?).await?;
//!
//! // The client's channels are the addresses of the server.
//! let mut config = format!("[[forward]]\nlisten = '127.0.0.1:0'\ntarget = '{target}'\n");
//! for address in server.local_addresses()? {
//!     config += &format!("[[channel]]\nserver = '{address}'\n");
//! }
//! let client = MicssClient::bind(MicssClientConfig::from_toml(&config)?).await?;
//! let forward = client.local_addresses()?[0];
//! tokio::spawn(server.run(std::future::pending()));
//! tokio::spawn(client.run(std::future::pending()));
//!
//! // An application connects to the forward, and reaches the service.
//! let mut application = TcpStream::connect(forward).await?;
//! let (mut stream, _) = service.accept().await?;
//! stream.write_all(b"hello").await?;
//! drop(stream);
//! let mut received = String::new();
//! application.read_to_string(&mut received).await?;
//! assert_eq!(received, "hello");
//! # Ok(())
//! # }
//! ```
//!
//! Guaranteed, against an attacker with unlimited computing power who reads and changes all
//! channels but one: the content of the stream stays secret, within the limits of
//! [`random`]; with the tamper code, no changed byte is ever delivered, and a truncated
//! stream is an error. Not guaranteed: availability against an attacker on one channel, and secrecy
//! of lengths and times.
//!
//! # Map
//!
//! `protocol` is pure, and `net`, the driver, calls it:
//!
//! - `stream`: one end of a stream: `confirming`, `progress`, `timers`, `failure`; `losing` and
//!   `rejoining` of channels. `rejoin`: messages for that. `options`: what the ends agree on.
//! - `outgoing`, `incoming`: records to shares and back. `share_search`: which channels are right.
//!   `record`: the bytes. `buffer`, `memory`, `receive_buffer`: their memory.
//! - `cookie_quorum`: the cookies of a client. `admission`: whose connection or stream a server
//!   evicts.
//! - `failure_detector`: whether a channel is lost. `on_lost_channel`: what streams do then.
//!   `server_choice`: which of several servers new streams use. `udp_flows`: which flow of
//!   datagrams makes room for another.
//! - `target`, `allow`, `bypass`, `socks`, `open_request`, `datagram`: where a stream leads.
//!   `proxy_header`: tells a service the client's address.
//!
//! `net`:
//!
//! - [`client`]: `application` (one stream), `opening`, `udp_associate` (datagrams by SOCKS5),
//!   `intercepted_udp` and `udp_flow` (those that the kernel redirects), `direct` (what bypasses
//!   the channels), `peers` (the channels to a target), `failover` (which of several
//!   servers), `pool` (ready connections). [`server`]: `pending_connections`, `request` (one
//!   stream), `datagrams`, `open_streams`, `rejoins`.
//! - `library`: streams of a program, without proxies.
//! - `stream`: `driver` and its poll loop `pump` run one end of a stream. `connection`, `rejoins`,
//!   `break_watcher`, `path_states`, `retained_memory`, `open_count`, `report`: what they need.
//!   `datagrams`: to and from UDP. `program`: the end of a program.
//! - `paths`: `monitor` observes and probes each `path`; `links`: notifications of the kernel.
//! - [`intercept`]: has the kernel hand connections over: `rules`, `challenge`; and datagrams:
//!   `conntrack` (where they were sent), `udp_socket`.
//! - `socket`, `tcp_info`, `metrics`, `stop`: sockets, what the kernel knows of them, counts, the
//!   end.
//!
//! [`config`] is read and checked before either. [`status`] is what both ends report.

pub mod config;
mod error;
mod net;
mod protocol;
pub mod status;

pub use error::StreamError;
pub use net::library::{MicssListener, connect};
#[doc(hidden)]
pub use net::socket::connect_channel;
pub use net::stream::program::{MicssStream, MicssStreamEnd};
pub use net::{client, intercept, server};
pub use protocol::on_lost_channel::LostChannelAction;
pub use protocol::stream::StreamProtocolError;
pub use protocol::{allow, bypass, target};
// For fuzz targets, and for tests and a demonstration that inspect the bytes.
#[doc(hidden)]
pub use protocol::{incoming, open_request, outgoing, record, socks};
pub use service::config::{ConfigProblem, ConfigProblems};

/// The largest number of channels of a stream. It bounds the memory and work of an association.
pub const MAX_CHANNELS: u8 = 16;
