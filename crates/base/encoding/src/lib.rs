//! The fields of messages and files: fixed arrays, integers, counted bytes and text.
//!
//! Integers are big-endian. The number of bytes precedes counted bytes with 32 bits, and text with
//! 8 bits. [`FieldReader`] accepts any bytes: it never panics, and it allocates nothing, because
//! its fields are parts of the input. A field that is cut off is not read.
//! [`FieldReader::finish`] refuses bytes after the last field. [`FieldWrite`] appends to a buffer
//! what the reader reads.
//!
//! ```
//! use sunder_encoding::{FieldError, FieldReader, FieldWrite as _};
//!
//! /// A greeting: its number, a name, and a token of at most 16 bytes.
//! fn parse(bytes: &[u8]) -> Result<(u32, &str, &[u8]), FieldError> {
//!     let mut reader = FieldReader::new(bytes);
//!     let greeting = (reader.u32()?, reader.text()?, reader.counted_up_to(16)?);
//!     reader.finish()?;
//!     Ok(greeting)
//! }
//!
//! let mut bytes = Vec::new();
//! bytes.put_u32(5);
//! bytes.put_text("alice");
//! bytes.put_counted(b"token");
//! assert_eq!(parse(&bytes), Ok((5, "alice", &b"token"[..])));
//! assert_eq!(parse(&bytes[..3]), Err(FieldError::Short));
//! bytes.push(0);
//! assert_eq!(parse(&bytes), Err(FieldError::Long));
//! ```
//!
//! # Map
//!
//! All modules are pure.
//!
//! - `reader`: reads fields from the front of bytes. `writer`: appends them to a buffer.

mod reader;
mod writer;

pub use reader::{FieldError, FieldReader};
pub use writer::FieldWrite;
