//! The handshake over n channels of datagrams: who belongs together, and the points and token keys.
//!
//! It wraps that of the crate `association`, whose messages travel in datagrams that may be lost,
//! repeated and late. What it adds is in `docs/protocols/remicss.md`, section "Handshake". Promised,
//! against an attacker on n - 1 of the n channels who does not read or change the remaining one:
//!
//! - what `association` promises: whoever completes does so with that channel at its place;
//! - both ends that complete have the same points, token keys and terms, and the attacker knows neither
//!   points nor keys: they are shared over all channels, under a code that shows any change to a share;
//! - a server takes a list once: an old handshake that is played again gives no association;
//! - who has not received a server's cookie at the address they send from has it keep nothing.
//!
//! A server looks at [`ANSWERS_PER_SECOND`] datagrams of each kind on a channel, and of the others at
//! their length and proof only. So strangers without the key keep nobody out. While F datagrams a second come
//! that pass for the client's (with its source or, where there is a key, as one that was overheard),
//! and F is more than that, a client's is answered with probability [`ANSWERS_PER_SECOND`] / F, and it
//! sends four a second.

mod client;
mod cookies;
mod proof;
mod secrets;
mod server;
mod timing;

pub use client::{Client, ClientEvent, ClientFailure};
pub use keys::SharedKey;
pub use server::{Peer, PeerError, Reply, Server, ServerEvent, ServerRefusal, TermsDiffer};
pub use timing::{ANSWERS_PER_SECOND, PATIENCE, REPEAT};
