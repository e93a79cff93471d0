//! Private set intersection (PSI): two parties find the items that both have, or only how many
//! these are, or also the sum of numbers that the sender has for them. They learn nothing about the
//! other items but how many there are at most.
//!
//! Which items are common is found by an oblivious pseudorandom function (Kolesnikov, Kumaresan,
//! Rosulek, Trieu, CCS 2016) with a linear code and a check (Orrù, Orsini, Scholl, CT-RSA 2017).
//! **The sender is secure against any receiver**, and if only the receiver learns the result, it is
//! secure against any sender. Counts and sums are by commutative encryption (Ion and others, 2020),
//! which is **semi-honest:** secure if both parties follow the protocol. `docs/protocols/psi.md`
//! specifies the messages, and says what a party that deviates can do.
//!
//! One party is the *receiver*: it learns the result first. To find the common items, it puts its
//! items into bins, one in each, and gets a pseudorandom mask of each, which depends on the bin.
//! The *sender* does not learn the items, but can compute the mask of any item in any bin. It sends
//! those of its own items, and the receiver finds the equal ones.
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
//! [`PsiSession`] computes counts and sums too, and separates the agreement on the terms from the
//! rest of a run.
//!
//! # Map
//!
//! - `session`: the agreement, and a run of either party over a connection. `find`: which items are
//!   common. `count`: how many they are, and sums. `run`: what both parties know of a run. `link`:
//!   the connection. `threads`.
//! - `cuckoo`: in which bins an item may be, and the receiver's table. `code`: the code words of
//!   items. `oblivious_prf`: the masks of items in bins, and `check`: that a receiver has asked for
//!   items. `masks`: sorted masks. `points`: items as points of a group. `encrypted_sum`: sums of
//!   encrypted numbers. These are pure.
//! - `values`: values as items. `terms`: what a party computes. `hello`: the first message.
//!   `error`.

mod check;
mod code;
mod count;
mod cuckoo;
mod encrypted_sum;
mod error;
mod find;
mod hello;
mod link;
mod masks;
mod oblivious_prf;
mod points;
mod run;
mod session;
mod terms;
#[cfg(test)]
mod tests;
mod threads;
mod values;

pub use encrypted_sum::MAX_SUM;
pub use error::Error;
pub use run::{PsiProgress, PsiTraffic};
pub use session::{PsiOutcome, PsiSession, PsiSum, find_common};
pub use terms::{MAX_DECIMALS, MAX_ITEMS, PsiFunction, PsiLearners, PsiNumbers, PsiRole, PsiTerms};
pub use values::{PsiNormalization, comparison, item, row_value};
