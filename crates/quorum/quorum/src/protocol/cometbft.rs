//! The agreement log by CometBFT, an engine that runs as a process of its own: the application that
//! it calls (ABCI 2.0), and the signer of its votes. Specified in
//! `docs/protocols/quorum-cometbft.md`.

pub(crate) mod application;
pub(crate) mod block;
pub(crate) mod genesis;
pub(crate) mod messages;
pub(crate) mod vote_guard;
