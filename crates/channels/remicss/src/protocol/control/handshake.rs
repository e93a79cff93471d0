//! The handshake over n channels of datagrams: associates the channels, and agrees on points and
//! token keys.
//!
//! It wraps the handshake of the crate `association`, whose messages are in datagrams that may be
//! lost, duplicated and delayed. What it adds is in `docs/protocols/remicss.md`, section
//! "Handshake". Guaranteed, against an attacker on n - 1 of the n channels who does not read or
//! change the remaining one:
//!
//! - the guarantees of `association`: an end that completes has that channel at its position;
//! - ends that complete have the same points, token keys and terms, and the attacker knows neither
//!   points nor keys: they are shared over all channels, with a tamper code that detects any change
//!   to a share;
//! - a server accepts a list once: a replayed handshake gives no association;
//! - a server keeps no state for a sender that has not received a cookie at its source address.
//!
//! A server handles [`ANSWERS_PER_SECOND`] datagrams of each kind a second on a channel, and checks
//! only length and proof of the others. So an attacker without the key cannot exclude the client.
//! If more than that, F datagrams a second, arrive that pass as the client's (with its source
//! address or, if there is a key, by replay), a datagram of the client, which sends four a second,
//! is answered with probability [`ANSWERS_PER_SECOND`] / F.

mod client;
mod cookies;
pub(super) mod proof;
mod secrets;
mod server;
mod timing;

pub use client::{TunnelClientEvent, TunnelClientFailure, TunnelHandshakeClient};
pub use keys::SharedKey;
pub use server::{
    ClientIdentity, HandshakeReply, TermsMismatch, TunnelClientRefusal, TunnelHandshakeServer,
    TunnelServerError, TunnelServerEvent,
};
pub use timing::{ANSWERS_PER_SECOND, HANDSHAKE_TIMEOUT, RETRY_INTERVAL};
