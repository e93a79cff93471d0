//! A byte stream as encrypted records, for connections whose handshake has produced a secret for
//! each direction. `docs/protocols/transport.md` specifies the format.
//!
//! A record is a length (two bytes, big-endian) and a chunk of up to 65,519 bytes, encrypted with
//! the record's number as the nonce. An empty chunk is the end of the stream: a stream that ends
//! without it was cut. The key changes every 2^22 records.
//!
//! Both ends encrypt and decrypt in place: written data is copied once into a record, and once out
//! of it.
//!
//! ```
//! use sunder_records::{OpenedRecord, RecordBuffer, RecordCipher, RecordOpener, RecordSealer};
//!
//! let cipher = RecordCipher::fastest();
//! let mut sealer = RecordSealer::new(cipher, &[7; 32]);
//! let mut record = RecordBuffer::new();
//! record.extend(b"hello");
//! let sealed = sealer.seal(&mut record).to_vec();
//!
//! let mut opener = RecordOpener::new(cipher, &[7; 32]);
//! opener.receive_space()[..sealed.len()].copy_from_slice(&sealed);
//! opener.commit_received(sealed.len());
//! assert_eq!(opener.poll(), Ok(OpenedRecord::Data));
//! let mut data = [0; 9];
//! let len = opener.read(&mut data);
//! assert_eq!(&data[..len], b"hello");
//! ```
//!
//! # Map
//!
//! All modules are pure.
//!
//! - `cipher`: the cipher of records, and its keys.
//! - `sealer`: encrypts records. `opener`: decrypts them.

mod cipher;
mod opener;
mod sealer;

pub use cipher::{RecordCipher, TAG_LEN};
pub use opener::{InvalidRecordError, OpenedRecord, RecordOpener};
pub use sealer::{RecordBuffer, RecordSealer};

/// The maximum length of a chunk.
pub const MAX_CHUNK_LEN: usize = 65_535 - TAG_LEN;

/// The length of the header of a record.
const HEADER_LEN: usize = 2;

/// The maximum length of a record.
const MAX_RECORD_LEN: usize = HEADER_LEN + MAX_CHUNK_LEN + TAG_LEN;

#[cfg(test)]
mod tests;
