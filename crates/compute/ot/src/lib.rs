//! Oblivious transfer: a receiver chooses one of a sender's messages. The sender does not learn
//! which one, and the receiver learns nothing about the others.
//!
//! ```
//! use blocks::Block;
//! use sunder_ot::extension::{
//!     OtExtension, OtExtensionKind, OtExtensionSecurity, OtReceiverSetUp, OtSenderSetUp,
//! };
//! use sunder_ot::messages;
//!
//! # fn main() -> Result<(), sunder_ot::Error> {
//! // The set-up, one message in each direction. Real offsets and seeds come from the system's
//! // random source.
//! let extension = OtExtension {
//!     kind: OtExtensionKind::SoftSpoken4,
//!     security: OtExtensionSecurity::SemiHonest,
//! };
//! let (sender, to_receiver) = OtSenderSetUp::new(extension, Block::from(1), Block::from(2));
//! let receiver = OtReceiverSetUp::new(extension, Block::from(3));
//! let (mut receiver, to_sender) = receiver.receive(&to_receiver)?;
//! let mut sender = sender.receive(&to_sender)?;
//!
//! // Two random transfers: the receiver chooses 1, then 0.
//! let (choices, mut message) = ([0b01], Vec::new());
//! let (mut chosen, mut pairs) = ([Block::ZERO; 2], [[Block::ZERO; 2]; 2]);
//! receiver.random(&choices, &mut chosen, &mut message)?;
//! sender.random(&message, &mut pairs)?;
//!
//! // With their keys, the sender encrypts two pairs of messages of three bytes.
//! let ciphertexts = messages::encrypt(&pairs, b"no yesredtea", 3)?;
//! assert_eq!(messages::decrypt(&chosen, &choices, &ciphertexts, 3)?, b"yesred");
//! # Ok(())
//! # }
//! ```
//!
//! # Map
//!
//! All modules are pure: an end takes and returns bytes.
//!
//! - [`base`]: base transfers, by public-key cryptography: `ristretto`; to compare, `naor_pinkas`,
//!   `naor_pinkas_modp` and `two_lock`. `points`: what those over Ristretto255 share; `modular`:
//!   numbers modulo N or a prime; `key_derivation`.
//! - [`extension`]: any number of transfers from 128 base transfers: `set_up`, `sender`,
//!   `receiver`. `tree`: seeds; `matrix`: bits of the transfers; `check`: whether a receiver
//!   deviates.
//! - [`messages`]: messages of any length by random transfers. [`one_of_n`]: one of N messages.
//! - `bits`: packed bits. `error`.

pub mod base;
mod bits;
mod error;
pub mod extension;
pub mod messages;
pub mod one_of_n;

pub use error::Error;
