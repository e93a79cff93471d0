//! The handshake that binds n channels into one association.
//!
//! A client opens one connection on each of n channels. The server accepts them among many others.
//! Here both agree on which connections belong together, in which order and on what terms (MICSS,
//! section III-D). `docs/protocols/association.md` defines the bytes and the security argument.
//! Against an attacker who controls n-1 of the channels entirely and does not control the remaining
//! one, this crate promises:
//!
//! - if the client completes, the server has associated exactly the list that the client sent,
//!   with the honest channel's connection at its position in that list;
//! - if the server's association contains the honest channel's connection, its list is the
//!   client's;
//! - no association names the honest channel's cookie without containing its connection.
//!
//! Everything here is a pure state machine without sockets, clock or randomness. Time is a
//! [`Duration`](std::time::Duration) since an epoch that the caller chooses. Cookies are fresh
//! random bytes from the caller. A client is first a [`CookieCollector`], then a
//! [`ConfirmCollector`]; a client that already has all cookies begins with the second. One
//! [`HandshakeServer`] serves all clients. Over streams, call `handle_bytes`, which returns the
//! bytes that belong to the transport. Over datagrams, call `handle_message`, which accepts
//! identical duplicates, and retransmit what is not answered.
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
//!
//! # Map
//!
//! All modules are pure.
//!
//! - `cookies`, `confirms`: the two states of a client. `abort`: why it gives up.
//! - `server`: the server's end, with its `table` of connections that are not associated.
//! - `message`: the messages and their bytes. `framer`: splits a stream into messages. `terms`:
//!   what the ends agree on.
//! - `rejoin`: the messages by which a new connection replaces that of a channel.

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
