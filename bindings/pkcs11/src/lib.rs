//! The keys of quorums as PKCS #11 tokens (version 2.40), for programs that sign through such a
//! module: `libsunder_pkcs11.so`. `docs/guides/quorum-programs.md` is the guide.
//!
//! Each quorum of the [configuration](config) is a slot with one token, whose private key is the
//! group's. A signature is requested at the socket of a server, and the next server is asked if one
//! fails. Servers sign whole messages only, so the mechanisms are those that hash the message: a
//! program that asks for a signature of a digest (`CKM_RSA_PKCS`) is refused.
//!
//! No call has undefined behaviour if the caller keeps to the standard: pointers may be null, and a
//! panic is caught at the boundary. Any number of threads may call at a time. A forked child calls
//! `C_Initialize` again, and does not wait for locks of its parent.
//!
//! # Map
//!
//! - `functions`: the functions of the standard, by their names; `function_list`: all of them, of
//!   which most are not supported. `arguments`: pointers of C; panics end there.
//! - [`config`]: which quorums there are. `certificate`: their certificates. [`token`]: a quorum's
//!   key and signatures. [`object`]: what programs see of keys and certificates.
//! - `module`: the state between calls. `session`: searches and signatures that have begun.
//! - `return_value`: what functions return. `sigpipe`: a signal that programs must not get.
#![allow(unsafe_code, reason = "a boundary to C: exported names, and pointers in `arguments`")]
#![allow(clippy::wildcard_imports, reason = "the standard's names begin with CK")]

mod arguments;
mod certificate;
pub mod config;
mod function_list;
mod functions;
mod module;
pub mod object;
mod return_value;
mod session;
mod sigpipe;
pub mod token;

pub use function_list::C_GetFunctionList;
