//! Threshold signatures by a group of 3f+1 servers, and the refresh that moves the key to another
//! group. With an RSA key: TSPSS (Chen 2004), specified in `docs/protocols/quorum.md`. With an
//! Ed25519 key: `docs/protocols/quorum-ed25519.md`.
//!
//! Any f+1 servers produce a signature, and anyone can verify it with the public key. Here four
//! servers share the key, and one of them may be faulty:
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
//! let split = range.split(key.private_exponent(), &combination, &mut generator)?;
//!
//! // Each server has an identity key, and the shares that it should hold.
//! let mut servers = HashMap::new();
//! let mut identities = Vec::new();
//! for server in combination.servers() {
//!     let identity = IdentitySecretKey::random()?;
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
//!
//! # Map
//!
//! `protocol` is pure:
//!
//! - [`server`]: one server: `signing` by a `sign_policy`, `answering`, `refreshing`, `inviting`,
//!   `voting`, `replicating`, `heights` of the log, each with a `height_job` if it takes long.
//!   `epoch` is what it follows from `start`, with a `key` of any kind, `participation` its part in
//!   a run, `change` what it stores.
//! - [`signing`]: `request` combines `partial` signatures; `answer`: messages; `evidence` of wrong
//!   ones; `health` of the servers. With an Ed25519 key: `roast`, `share_evidence`, and
//!   `server::frost_signing`. With an RSA key that is shared by a polynomial: `polynomial`, `part`.
//!   [`policy`]: which messages may be signed, by a `rule` or not. [`review`]: which registrations
//!   wait, at all servers.
//! - [`refresh`]: moves the key. `old_server` sends a `dealing` with a `manifest`; `new_server`
//!   checks it, or files a `complaint`. `agreement` is the state that follows from each `entry` of
//!   the log. `possession`, `recovery`, `session`, `retries`: proofs, servers that missed it, keys,
//!   repetition. With a key that is shared by a polynomial: `handover` with each `handover_step`
//!   and `handover_job`, `dealing_turns`, `row_recovery`. `key_sharing`: the ways to do so.
//! - [`replication`]: a service that the servers replicate: `replica` is its state machine at a
//!   server, `statement` what the group signs.
//! - `consensus`: the agreement log: `engine` runs Malachite, with `pool`, `timers`, `signing`,
//!   `codec`; `fair_queue` limits the rate of each link. `admission`: which entries are valid.
//!   `log_types`. `cometbft`: the same log by CometBFT: its `application` with the content of a
//!   `block`, `vote_guard`, `genesis`, `messages`.
//! - `link`: one connection of two servers: `handshake`, `records`, `lanes`, `backoff`.
//! - `ceremony`, `combination`, `share`: the dealer's files, which server holds which shares. The
//!   arithmetic is the crate `rsa-arithmetic`. [`group`], `voting`, `wire`: epochs, voting keys,
//!   encodings.
//! - [`ssh`]: the group's key and an agent's messages in the formats of OpenSSH.
//!
//! [`log`] is the agreement log as the service sees it, with one in memory. `net` is the driver:
//!
//! - [`node`]: a server: `core` is the event loop, `local` and `incoming` are requests, `answers`
//!   writes the audit of partial signatures. `health`, `problem_tracker` and `status` report what
//!   is wrong. `config`, `open`: the start.
//! - [`api`]: the local API: `server`, `route`, `client`, `failover`. [`store`]: files of a server.
//!   [`links`]: connections between servers. [`consensus`]: the thread and the disk of the log.
//!   [`cometbft`]: the same by CometBFT: `abci` and `signer` answer it, `rpc` wakes it.
//! - [`nodes`], [`ceremony_files`]: other files. `full_disk`: advice in errors. [`in_process`]:
//!   whole groups in one process, to measure.

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod log;
mod net;
mod protocol;

pub use net::{api, ceremony_files, cometbft, consensus, in_process, links, node, nodes, store};
pub use protocol::ceremony::bundle::{QuorumBundle, QuorumBundleError};
pub use protocol::ceremony::share_file::{QuorumShareFile, QuorumShareFileError};
pub use protocol::combination::{CombinatorialSharing, GroupTooLarge, Label, ServerIndex};
pub use protocol::group;
pub use protocol::policy;
pub use protocol::refresh;
pub use protocol::replication;
pub use protocol::review;
pub use protocol::server;
pub use protocol::share::{SEED_LEN, ShareExpansionSeed, ShareRange, SplitInteger};
pub use protocol::signing;
pub use protocol::ssh;
pub use protocol::unix_seconds::UnixSeconds;
pub use protocol::voting::VotingSecret;
pub use protocol::wire::{MalformedEncoding, Sha256Digest};
pub use rsa_arithmetic::SecretInteger;
pub use rsa_arithmetic::{CeremonyError, DealerKey, PrimeSearchProgress};
pub use rsa_arithmetic::{FixedBase, RsaElement, RsaModulus, RsaModulusError};
pub use rsa_arithmetic::{GroupPublicKey, GroupPublicKeyError};
