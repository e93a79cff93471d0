//! All integration tests of the crate, in one program, because each program takes seconds to link.

mod estimates;
mod handshake;
mod moved_server;
mod ordering;
mod path_mtu;
mod receiving;
mod scenario;
mod sending;
mod several_clients;
mod simulation;
