//! The crate `transport` for C: the functions of `include/sunder_transport.h`, which documents them
//! for callers. `make install-lib` installs the shared and the static library.
//!
//! Within the rules of the header, no call has undefined behaviour: each pointer may be null, each
//! handle may be used by two threads at once, and a panic is caught at the boundary and reported as
//! [`Code::Bug`](error::Code::Bug). Handles are references or boxes, so that the compiler checks
//! most of the boundary; raw pointers occur only in `arguments`, and in `registration` those to
//! functions of the caller.
//!
//! # Map
//!
//! - `connection`, `listener`, `options`, `statistics`, `library`: the functions, by their names.
//!   `registration`: transports of the caller.
//! - `arguments`: pointers of C. `error`: the code and text of the last error of each thread;
//!   panics end there.
#![allow(
    unsafe_code,
    reason = "a boundary to C: exported names, and pointers in `arguments` and `registration`"
)]

pub mod arguments;
pub mod connection;
pub mod error;
pub mod library;
pub mod listener;
pub mod options;
pub mod registration;
pub mod statistics;
