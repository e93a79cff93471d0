//! Keys of long-running programs: the files that contain them, who may read those files, and what a
//! key proves.
//!
//! No type here prints a secret or compares secrets with `==`, and all are wiped on drop.
//!
//! ```
//! use sunder_keys::{IdentitySecretKey, SharedKey};
//!
//! let (client, server) = (SharedKey::new(&[7; 32]), SharedKey::new(&[7; 32]));
//! let code = server.authenticate(&[b"addresses: ", b"192.0.2.1"]);
//! assert!(client.verify(&[b"addresses: 192.0.2.1"], &code));
//! assert!(!client.verify(&[b"addresses: 192.0.2.2"], &code));
//!
//! let secret = IdentitySecretKey::new(&[8; 32]);
//! let signature = secret.sign(b"192.0.2.1");
//! assert!(secret.public().verify(b"192.0.2.1", &signature));
//! ```
//!
//! # Map
//!
//! - [`file`](mod@file): a key file holds one key of 32 bytes as 64 hexadecimal digits.
//! - [`trusted`]: whether other users of this host can read or replace a file.
//! - [`storage`]: the directory of a user's programs; replaces or creates a whole file.
//!
//! The other modules are pure:
//!
//! - `shared`: HMAC-SHA-256 (RFC 2104) under a key that all holders share.
//! - `identity`: Ed25519 (RFC 8032) with strict verification.
//! - [`sealed`]: encryption of what is stored, under a key that may be derived from an identity.
//! - [`noise`]: handshakes between ends with identity keys.
//! - [`rsa`]: verification of RSA signatures (RFC 8017), which a group of servers makes.
//!   `encoding`: what is signed. `pem`: the key as text. `public`: a key of RSA or Ed25519.

pub mod file;
mod identity;
pub mod noise;
mod public;
pub mod rsa;
pub mod sealed;
mod shared;
pub mod storage;
pub mod trusted;

pub use file::{KEY_LEN, KeyFileError};
pub use identity::{IdentityPublicKey, IdentityPublicKeyError, IdentitySecretKey};
pub use public::{AnyPublicKey, Ed25519PublicKey, PublicKeyError};
pub use rsa::{RsaKeyError, RsaPublicKey};
pub use shared::SharedKey;
