//! `sunder quorum`.

mod bad_input;
mod ceremony;
mod cometbft;
mod doctor;
mod earlier_version;
mod formats;
mod group;
mod operation;
mod pkcs11;
mod refresh;
mod replicated_store;
mod review;
mod ssh;
mod wiping;
