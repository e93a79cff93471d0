//! The handshake that binds n channels into one association.
//!
//! A client that has opened one connection on each of n channels and the server that accepted them,
//! among many others, agree here on which connections belong together, in which order and on what
//! terms (MICSS, section III-D). The bytes and the argument are in `docs/protocols/association.md`.
//! This crate promises, against an attacker who controls n-1 of the channels entirely and does not
//! control the remaining one:
//!
//! - if the client completes, the server has associated the very list the client sent, with the
//!   honest channel's connection at its place in it;
//! - if the server's association holds the honest channel's connection, its list is the client's;
//! - no association names the honest channel's cookie without holding its connection.
//!
//! Everything here is a pure state machine: no socket, no clock, no randomness. Time is a
//! [`Duration`](std::time::Duration) since any epoch the caller keeps to; cookies come in as fresh
//! random bytes. A client is a [`CookieCollector`], then a [`ConfirmCollector`]; one that has all
//! cookies already begins with the second. All clients of a server are in one [`HandshakeServer`].
//! Over streams feed the `handle_bytes` of each, which give back what is the transport's. Over
//! datagrams feed their `handle_message`, which take a message's identical duplicate without harm,
//! and send again what is not answered.
//!
//! ```
//! use std::time::Duration;
//!
//! use sunder_association::{
//!     AssociationClientEvent, AssociationMessage, AssociationProtocol, AssociationServerEvent,
//!     AssociationTerms, ConfirmCollector, ConnectionCookie, CookieList, HandshakeServer,
//!     HandshakeServerConfig, PendingConnectionId, SharingScheme, TermsPolicy,
//! };
//!
//! let (now, timeout) = (Duration::ZERO, Duration::from_secs(10));
//! let policy = TermsPolicy {
//!     protocols: vec![AssociationProtocol::MicssStream],
//!     schemes: vec![SharingScheme::Xor],
//!     min_threshold: 2,
//!     max_channels: 8,
//!     options: 0,
//! };
//! let config = HandshakeServerConfig { max_pending: 64, timeout, quorum_timeout: None, policy };
//! let mut server = HandshakeServer::new(config);
//!
//! // The server greets the connection on each of two channels with a cookie of random bytes.
//! let cookies = [ConnectionCookie::new([7; 16]), ConnectionCookie::new([9; 16])];
//! server.open(PendingConnectionId(0), cookies[0], now)?;
//! server.open(PendingConnectionId(1), cookies[1], now)?;
//!
//! // The client, which has received both, sends the list of them on both.
//! let terms =
//!     AssociationTerms::new(AssociationProtocol::MicssStream, SharingScheme::Xor, 2, 2, 0)?;
//! let mut client = ConfirmCollector::new(CookieList::new(terms, cookies.to_vec())?, timeout);
//! let list = AssociationMessage::List(client.list().clone()).encode();
//! server.handle_bytes(PendingConnectionId(0), &list, now)?;
//! server.handle_bytes(PendingConnectionId(1), &list, now)?;
//!
//! // The server confirms it on both.
//! while let Some(event) = server.poll_event() {
//!     if let AssociationServerEvent::Transmit {
//!         id,
//!         message: confirm @ AssociationMessage::Confirm(_),
//!     } = event
//!     {
//!         client.handle_bytes(id.0 as usize, &confirm.encode(), now);
//!     }
//! }
//! assert!(matches!(client.poll_event(), Some(AssociationClientEvent::Associated { .. })));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod abort;
mod confirms;
mod cookies;
mod framer;
mod message;
mod rejoin;
mod server;
mod table;
mod terms;

pub use abort::ClientHandshakeAbort;
pub use confirms::{AssociationClientEvent, ConfirmCollector};
pub use cookies::{CookieCollector, CookieProgress};
pub use message::{
    AssociationMessage, AssociationMessageError, AssociationMessageKind, COOKIE_LEN,
    ConnectionCookie, CookieList, CookieListError, HEADER_LEN,
};
pub use rejoin::{ChannelPositions, PROOF_LEN, Rejoin, Rejoined};
pub use server::{
    AssociationOpenError, AssociationServerEvent, HandshakeServer, HandshakeServerConfig,
    NotPendingError, ServerHandshakeAbort, TermsPolicy,
};
pub use table::PendingConnectionId;
pub use terms::{AssociationProtocol, AssociationTerms, AssociationTermsError, SharingScheme};
