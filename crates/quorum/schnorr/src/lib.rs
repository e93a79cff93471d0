//! Threshold Ed25519 signatures by a group of 3f+1 servers: key generation without a dealer,
//! resharing to another group of any size, and signing by FROST (RFC 9591) with ROAST's
//! coordination. Specified in `docs/protocols/quorum-ed25519.md`.
//!
//! This is a library without a driver: `sunder-quorum` has one. It promises, if at most f servers
//! of each group are faulty and an agreement log gives all servers the same entries in the same
//! order:
//!
//! - f servers of the old and f' of the new group together learn nothing about the key, and no
//!   signature exists that no correct server agreed to.
//! - The public key never changes, and shares have the same length in each epoch.
//! - A handover ends if the messages of correct servers arrive, whatever the others do. A request
//!   for a signature ends if f+1 correct servers answer.
//! - Whoever is shown faulty by an entry or an answer is faulty.
//!
//! Here four servers generate a key, and two of them sign:
//!
//! ```
//! use std::collections::BTreeMap;
//! use handover::{
//!     GroupSize, HandoverAgreement, HandoverDealer, HandoverReceiver, HandoverTerms,
//! };
//! use sunder_schnorr::{
//!     EncodedSession, FrostSigner, RoastCoordinator, RoastOutput, SchnorrScheme,
//! };
//!
//! let new = GroupSize::of_faulty(1).expect("four servers");
//! let terms: HandoverTerms<SchnorrScheme> = HandoverTerms { run: [7; 32], old: None, new };
//! let mut log = HandoverAgreement::new(terms.clone());
//! let mut generator = random::RandomGenerator::seeded()?;
//! let mut dealers = Vec::new();
//! let mut receivers = Vec::new();
//! for server in new.participants() {
//!     let dealer = HandoverDealer::new(&terms, server, None, &generator.array()?);
//!     dealers.push((server, dealer.expect("a server of the group")));
//!     let receiver = HandoverReceiver::new(&terms, server, &generator.array()?);
//!     receivers.push((server, receiver.expect("a server of the group")));
//! }
//! // Each server wants entries committed. The log orders them, and all apply them.
//! while !log.is_final() {
//!     let mut entries = Vec::new();
//!     for (server, dealer) in &dealers {
//!         entries.extend(dealer.wanted_entry(&log).map(|entry| (*server, entry)));
//!     }
//!     for (server, receiver) in &mut receivers {
//!         receiver.handle_log(&log);
//!         entries.extend(receiver.wanted_entries(&log).into_iter().map(|entry| (*server, entry)));
//!     }
//!     for (author, entry) in entries {
//!         let _ = log.apply(author, &entry);
//!     }
//! }
//! let sharing = log.sharing().expect("the handover is over").clone();
//! let shares = receivers.into_iter().filter_map(|(server, it)| Some((server, it.into_share()?)));
//! let mut signers: BTreeMap<_, _> =
//!     shares.map(|(server, share)| (server, FrostSigner::new(share))).collect();
//!
//! let coordinator = new.participants().next().expect("the first server");
//! let message = b"addresses: 192.0.2.1".to_vec();
//! let mut request = RoastCoordinator::new(sharing.clone(), message.clone(), BTreeMap::new());
//! let mut signature = None;
//! while let Some(output) = request.poll_output() {
//!     match output {
//!         RoastOutput::AskCommitments { to } => {
//!             let signer = signers.get_mut(&to).expect("each has its share");
//!             request.handle_commitments(to, signer.commit(coordinator, &generator.array()?));
//!         }
//!         RoastOutput::AskShare { to, session } => {
//!             let session = EncodedSession::parse(&session)?;
//!             assert_eq!(session.message(), message, "a message that may be signed");
//!             let signer = signers.get_mut(&to).expect("each has its share");
//!             let answer = signer.sign(coordinator, &session, &generator.array()?)?;
//!             request.handle_answer(to, &answer.to_bytes());
//!         }
//!         RoastOutput::Faulty { .. } => unreachable!("all are correct"),
//!         RoastOutput::Signed(it) => signature = Some(it),
//!     }
//! }
//! let key = ed25519_dalek::VerifyingKey::from_bytes(&sharing.public_key().to_bytes())?;
//! key.verify_strict(&message, &signature.expect("all have answered").into())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Map
//!
//! All modules are pure.
//!
//! - `sharing`: the sharing of a key among servers, and the repair of a lost row. `handover`: the
//!   same as the crate `handover` sees it, which agrees on handovers.
//! - `frost`: one attempt to sign. `signer`: nonces and answers. `roast`: the coordinator.

mod frost;
mod handover;
mod roast;
mod sharing;
mod signer;
#[cfg(test)]
mod tests;

pub use frost::{
    EncodedSession, MAX_MESSAGE_LEN, NonceCommitments, SignatureShare, SigningSession,
};
pub use handover::SchnorrScheme;
pub use roast::{RoastCoordinator, RoastOutput};
pub use sharing::{KeyShare, RowRepair, ShareRow, SharingCommitment, SharingPolynomial};
pub use signer::{FrostSigner, MAX_UNUSED_NONCES, SessionRefusal, SignatureAnswer};
