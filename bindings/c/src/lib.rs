//! The crate `transport` for C: the functions of `include/sunder_transport.h`, which documents them
//! for those who call them. The shared library and the static one are installed by
//! `make install-lib`.
//!
//! Nothing that the caller can do within the header's rules is undefined: each pointer may be null,
//! each handle may be used by two threads at once, and a panic ends at the boundary as
//! [`Code::Bug`](error::Code::Bug). A handle is a reference or a box here, so that the compiler
//! checks most of the boundary; raw pointers are in `arguments` only.
#![allow(unsafe_code, reason = "a boundary to C: exported names, and pointers in `arguments`")]

pub mod arguments;
pub mod connection;
pub mod error;
pub mod library;
pub mod listener;
pub mod options;
pub mod statistics;
