//! The receiving end beside a sender of the test's own.

#![allow(clippy::cast_possible_truncation)] // Few symbols, and low bits that are meant.

mod conditions;
mod datagrams;
mod scenario;
mod tampering;
