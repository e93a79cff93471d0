//! Threshold RSA signatures by a group of 3f+1 servers, and the refresh that moves the key to
//! another group: TSPSS (Chen 2004). Specified in `docs/protocols/quorum.md`.

pub mod log;
mod net;
mod protocol;

pub use net::store;
pub use protocol::ceremony::{CeremonyError, DealerKey};
pub use protocol::combination::{Combination, GroupTooLarge, Label, ServerIndex};
pub use protocol::integer::SecretInteger;
pub use protocol::rsa::key::{GroupKey, GroupKeyError};
pub use protocol::rsa::modulus::{Element, FixedBase, Modulus, ModulusError};
pub use protocol::share::{SEED_LEN, Seed, ShareRange, Split};
pub use protocol::signing;
