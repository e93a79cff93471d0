//! Threshold RSA signatures by a group of 3f+1 servers, and the refresh that moves the key to
//! another group: TSPSS (Chen 2004). Specified in `docs/protocols/quorum.md`.
//!
//! Any f+1 servers sign, and whoever has the public key verifies. Here four servers have the key,
//! of which one may be faulty:
//!
//! ```
//! use std::collections::HashMap;
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use keys::IdentitySecretKey;
//! use keys::rsa::RsaEncoding;
//! use random::RandomGenerator;
//! use sunder_quorum::signing::{
//!     SignRequest, SignRequestEvent, SignRequestOutput, SignerHealth, SigningGroup, SigningShares,
//! };
//! use sunder_quorum::{CombinatorialSharing, DealerKey, ShareRange};
//!
//! // A dealer makes the key, splits it, and forgets it. (1024 bits are too few to be secure.)
//! let mut generator = RandomGenerator::seeded()?;
//! let key = DealerKey::generate(1024, &mut generator)?;
//! let combination = CombinatorialSharing::new(1)?;
//! let range = ShareRange::new(1024);
//! let split = key.split(&range, &combination, &mut generator)?;
//!
//! // Each server has an identity key, and the shares that it should hold.
//! let mut servers = HashMap::new();
//! let mut identities = Vec::new();
//! for server in combination.servers() {
//!     let identity = IdentitySecretKey::new(&generator.array()?);
//!     identities.push(identity.public());
//!     servers.insert(server, identity);
//! }
//! let key = key.group().clone();
//! let group = Arc::new(SigningGroup { epoch: 0, key, combination, identities });
//! let answer = |server, query: &_| {
//!     let labels = group.combination.labels_of(server);
//!     let shares = labels.map(|label| (label, split.share(label))).collect();
//!     let shares = SigningShares::new(group.clone(), server, range, shares).expect("it has all");
//!     shares.answer(query, &servers[&server])
//! };
//!
//! // One of them requests a signature from f+1 = 2, itself perhaps among them.
//! let message = b"addresses: 192.0.2.1";
//! let health = SignerHealth::new(&group.combination);
//! let (now, deadline) = (Duration::ZERO, Duration::from_secs(10));
//! let encoding = RsaEncoding::Pkcs1;
//! let mut request =
//!     SignRequest::new(group.clone(), message.to_vec(), encoding, &health, now, deadline)?;
//! while let Some(output) = request.poll_output() {
//!     match output {
//!         SignRequestOutput::Send { to, query } => {
//!             let answer = answer(to, &query)?.to_bytes(&group);
//!             request.handle_answer(now, to, &answer);
//!         }
//!         SignRequestOutput::Event(SignRequestEvent::Signed(signature)) => {
//!             assert!(group.key.public().verify(message, &signature));
//!         }
//!         SignRequestOutput::Event(_) => {}
//!     }
//! }
//! assert!(request.is_finished());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod log;
mod net;
mod protocol;

pub use net::{api, ceremony_files, consensus, in_process, links, node, nodes, store};
pub use protocol::ceremony::share_file::{QuorumShareFile, QuorumShareFileError};
pub use protocol::ceremony::{CeremonyError, DealerKey, PrimeSearchProgress};
pub use protocol::combination::{CombinatorialSharing, GroupTooLarge, Label, ServerIndex};
pub use protocol::group;
pub use protocol::integer::SecretInteger;
pub use protocol::policy;
pub use protocol::refresh;
pub use protocol::rsa::key::{GroupPublicKey, GroupPublicKeyError};
pub use protocol::rsa::modulus::{FixedBase, RsaElement, RsaModulus, RsaModulusError};
pub use protocol::server;
pub use protocol::share::{SEED_LEN, ShareExpansionSeed, ShareRange, SplitInteger};
pub use protocol::signing;
pub use protocol::voting::VotingSecret;
pub use protocol::wire::{MalformedEncoding, Sha256Digest};
