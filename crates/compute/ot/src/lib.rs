//! Oblivious transfer: a receiver chooses one of the messages of a sender. The sender does not
//! learn which, and the receiver learns nothing of the others.

pub mod base;
mod bits;
mod error;
pub mod extension;
pub mod messages;
pub mod one_of_n;

pub use error::Error;
