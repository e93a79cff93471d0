//! Threshold RSA signatures by a group of 3f+1 servers with polynomial shares: signing (Shoup 2000)
//! and the handover of the key to another group of any size up to a limit, with f above 4.
//! Specified in `docs/protocols/quorum-rsa-polynomial.md`.
//!
//! **Experimental.** Nobody outside the project has reviewed the sharing or this code. Keys must be
//! products of two safe primes.
//!
//! It promises, if at most f servers of each group are faulty and an agreement log gives all
//! servers the same entries in the same order (the page has the assumptions of each promise):
//!
//! - f servers of the old and f' of the new group together learn nothing about the key that its
//!   public part and signatures do not say, and no signature exists that no correct server agreed
//!   to.
//! - The public key and the length of shares are the same in each epoch.
//! - A handover ends if the messages of correct servers arrive, whatever the others do. A request
//!   for a signature ends if f+1 correct servers answer.
//! - A server that an entry or a signed answer shows to be faulty is faulty.
//!
//! Here a dealer shares a key among four servers, they hand it over to four others, and two of
//! these sign. The modulus is too short for anything but an example:
//!
//! ```
//! use std::collections::BTreeMap;
//! use keys::rsa::RsaEncoding;
//! use rsa_arithmetic::DealerKey;
//! use sunder_threshold_rsa::{
//!     GroupSize, HandoverAgreement, HandoverDealer, HandoverReceiver, HandoverTerms,
//!     ThresholdRsaOutput, ThresholdRsaRequest, ThresholdRsaScheme, deal,
//! };
//!
//! let mut generator = random::RandomGenerator::seeded()?;
//! let dealer = DealerKey::generate(1024, &mut generator)?;
//! let size = GroupSize::of_faulty(1).expect("four servers");
//! let old = deal(&dealer, size, size, &mut generator)?;
//!
//! let sharing = Some(old[0].sharing().clone());
//! let terms = HandoverTerms::<ThresholdRsaScheme> { run: [7; 32], old: sharing, new: size };
//! let mut log = HandoverAgreement::new(terms.clone());
//! let mut dealers = Vec::new();
//! for share in &old {
//!     let dealer = HandoverDealer::new(&terms, share.server(), Some(share), &generator.array()?);
//!     dealers.push((share.server(), dealer.expect("its share of the old sharing")));
//! }
//! let mut receivers = Vec::new();
//! for server in size.participants() {
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
//!         entries.extend(receiver.wanted_entries(&log).into_iter().map(|it| (*server, it)));
//!     }
//!     for (author, entry) in entries {
//!         let _ = log.apply(author, &entry);
//!     }
//! }
//! let sharing = log.sharing().expect("the handover is over").clone();
//! let shares: BTreeMap<_, _> =
//!     receivers.into_iter().filter_map(|(server, it)| Some((server, it.into_share()?))).collect();
//!
//! let (message, encoding) = (b"addresses: 192.0.2.1".to_vec(), RsaEncoding::Pkcs1);
//! let order = shares.keys().copied().collect::<Vec<_>>();
//! let request = ThresholdRsaRequest::new(sharing.clone(), encoding, message.clone(), order);
//! let mut request = request.expect("the modulus is long enough");
//! let mut signature = None;
//! while let Some(output) = request.poll_output() {
//!     match output {
//!         ThresholdRsaOutput::Ask { to, with_proof: _ } => {
//!             let part = shares[&to].sign(request.encoded()).expect("x has an inverse");
//!             request.handle_answer(to, &part.to_bytes());
//!         }
//!         ThresholdRsaOutput::Faulty { .. } => unreachable!("all are correct"),
//!         ThresholdRsaOutput::Signed(it) => signature = Some(it),
//!     }
//! }
//! let public = sharing.key().group().public();
//! assert!(public.verify(&message, &signature.expect("all have answered")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Map
//!
//! All modules are pure.
//!
//! - `key`: the public part of a key, and the widths of all integers. `dealing`: the dealer of a
//!   new key. `lagrange`: public integers of interpolation.
//! - `sharing`: polynomials of integers, rows and their repair. `scheme`: the same as the crate
//!   `handover` sees it, which agrees on handovers.
//! - `signing`: parts of signatures, and a request for one. `proof`: proofs about exponents.

mod dealing;
mod key;
mod lagrange;
mod proof;
mod scheme;
mod sharing;
mod signing;
#[cfg(test)]
mod tests;

pub use dealing::{RsaDealingError, deal};
pub use handover::{
    DealingFault, GroupSize, HandoverAgreement, HandoverDealer, HandoverEffect, HandoverEntry,
    HandoverEntryKind, HandoverFault, HandoverReceiver, HandoverRefusal, HandoverRole,
    HandoverTerms, MAX_HANDOVER_ENTRY_LEN, MalformedHandoverMessage, ParticipantId, ParticipantSet,
};
pub use key::{MAX_FAULTY_RSA, ThresholdRsaKey};
pub use proof::ExponentProof;
pub use scheme::{DealtIntegers, IntegerDealing, NoConstantProof, ThresholdRsaScheme};
pub use sharing::{IntegerRow, IntegerRowRepair, ThresholdRsaShare, ThresholdRsaSharing};
pub use signing::{
    EncodedRsaMessage, PartialRsaSignature, ThresholdRsaOutput, ThresholdRsaRequest,
};
