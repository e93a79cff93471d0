//! `sunder quorum`.

mod bad_input;
mod ceremony;
mod cometbft;
mod doctor;
mod earlier_version;
mod ed25519;
mod formats;
mod group;
mod operation;
mod pkcs11;
mod refresh;
mod replicated_store;
mod review;
mod rsa_polynomial;
mod ssh;
mod wiping;
