//! Private set intersection (PSI): two parties find the items that both have, and learn nothing
//! about the others but how many there are at most.
//!
//! The protocol is that of Kolesnikov, Kumaresan, Rosulek and Trieu ("Efficient batched oblivious
//! PRF with applications to private set intersection", CCS 2016). **Security is semi-honest:** it
//! holds if both parties follow the protocol. `docs/protocols/psi.md` specifies the messages.
//!
//! One party is the *receiver*: it learns the common items first. It puts its items into bins, one
//! in each, and gets a pseudorandom mask of each, which depends on the bin. The *sender* does not
//! learn the items, but can compute the mask of any item in any bin. It sends those of its own
//! items, and the receiver finds the equal ones.
//!
//! ```
//! use std::os::unix::net::UnixStream;
//!
//! use blocks::Block;
//! use sunder_psi::{PsiLearners, PsiRole, PsiTerms, find_common};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Items are digests of values: here, numbers.
//! let set = |numbers: &[u128]| numbers.iter().map(|it| Block::from(*it)).collect::<Vec<_>>();
//! let terms = |role| PsiTerms {
//!     role,
//!     learners: PsiLearners::Both,
//!     hidden_size: None,
//!     comparison: [0; 32],
//! };
//! let (here, there) = UnixStream::pair()?;
//! let sender = std::thread::spawn(move || {
//!     let reader = there.try_clone().unwrap();
//!     find_common(reader, there, &terms(PsiRole::Sender), &set(&[5, 6, 7]), &mut |_| {})
//! });
//! let reader = here.try_clone()?;
//! let terms = terms(PsiRole::Receiver);
//! let found = find_common(reader, here, &terms, &set(&[7, 8, 9, 5]), &mut |_| {})?;
//! assert_eq!(found.common, Some(vec![0, 3]));
//! assert_eq!(sender.join().unwrap()?.common, Some(vec![0, 2]));
//! # Ok(())
//! # }
//! ```
//!
//! # Map
//!
//! - `session`: a run of either party over a connection.
//! - `cuckoo`: in which bins an item may be, and the receiver's table. `code`: the code words of
//!   items. `oblivious_prf`: the masks of items in bins. `masks`: sorted masks. These are pure.
//! - `values`: values as items. `terms`: what a party computes. `hello`: the first message.
//!   `error`.

mod code;
mod cuckoo;
mod error;
mod hello;
mod masks;
mod oblivious_prf;
mod session;
mod terms;
#[cfg(test)]
mod tests;
mod values;

pub use error::Error;
pub use session::{PsiOutcome, PsiProgress, PsiTraffic, find_common};
pub use terms::{MAX_ITEMS, PsiLearners, PsiRole, PsiTerms};
pub use values::{PsiNormalization, comparison, item};
