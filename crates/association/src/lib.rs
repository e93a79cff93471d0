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
//! random bytes. Over streams feed [`Client::handle_bytes`] and [`HandshakeServer::handle_bytes`], which
//! give back what is the transport's. Over datagrams feed the `handle_message` of both, which take a
//! message's identical duplicate without harm, and repeat what `outgoing` gives until it is
//! answered.

mod client;
mod framer;
mod message;
mod server;
mod table;
mod terms;

pub use client::{Client, ClientAbort, ClientEvent};
pub use message::{
    COOKIE_LEN, Cookie, HEADER_LEN, List, ListError, Message, MessageError, MessageKind,
};
pub use server::{
    HandshakeConfig, HandshakeServer, NotPending, OpenError, ServerAbort, ServerEvent, TermsPolicy,
};
pub use table::ConnectionId;
pub use terms::{Protocol, SharingScheme, Terms, TermsError};
