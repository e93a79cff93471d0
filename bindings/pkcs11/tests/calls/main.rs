//! The functions as a program in C calls them, with a server that is made of `openssl`.
#![allow(unsafe_code, reason = "C calls")]
#![allow(clippy::wildcard_imports, reason = "the standard's names begin with CK")]

mod calls;
mod forked;
mod hosts;
mod server;
