//! MICSS: a TCP stream over n channels, of which any n - 1 together learn nothing.
//!
//! A stream is cut into records, each record is shared by XOR byte for byte, and share `i` goes to
//! channel `i`. The bytes are in `docs/protocols/micss.md`; the paper is MICSS, III-D and III-E.
//!
//! A [`Client`](client::MicssClient) listens where its [`ClientConfig`](config::MicssClientConfig)
//! says, and carries every connection over its channels to a [`Server`](server::MicssServer), which
//! connects to the service. Both run in a tokio runtime with time and network enabled, until the
//! future that `run` is given ends. What they do meanwhile is their [`status`].
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
//! The crate has two folders, and calls go from the second to the first:
//! - `protocol`: state machines that do no input or output. Bytes and the time come in as
//!   arguments, results go out.
//! - `net`: [`client`] and [`server`] move bytes between sockets and the protocol; [`intercept`]
//!   has the kernel hand connections over.
//!
//! Promised, against an attacker who reads and changes all channels but one and has any amount of
//! computing: what the stream carries stays secret, as far as [`sharing::random`] goes; with the
//! tamper code, no changed byte is ever delivered, and a stream that was cut short is an error.
//! Not promised: that an attacker on one channel cannot stop the stream, nor that lengths and
//! times stay hidden.

pub mod config;
mod error;
mod net;
mod protocol;
pub mod status;

pub use error::StreamError;
#[doc(hidden)]
pub use net::socket::connect;
pub use net::{client, intercept, server};
pub use protocol::on_lost_channel::LostChannelAction;
pub use protocol::stream::StreamProtocolError;
pub use protocol::{allow, target};
// For fuzz targets, and for tests and a demonstration that look at the bytes.
#[doc(hidden)]
pub use protocol::{incoming, outgoing, record, socks};
pub use service::config::{ConfigProblem, ConfigProblems};

/// The most channels of one stream. Bounds the memory and work of an association.
pub const MAX_CHANNELS: u8 = 16;
