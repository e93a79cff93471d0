//! All integration tests of the command, in one program, because each program takes seconds to
//! link. Tests that enter a sandbox with the whole program are programs of their own.

// The examples of other crates use this name.
extern crate quorum as sunder_quorum;

mod chat;
mod circuit;
mod common;
mod compute;
mod demo;
mod directory;
mod doctor;
mod documents;
#[path = "../emulation/interruption.rs"]
mod interruption;
mod lab;
mod lab_compute;
mod lab_mix;
mod lab_scripts;
mod lab_serve;
mod manual;
mod micss;
mod mistakes;
mod plan;
mod quorum;
mod setup;
mod split_join;
mod systemd;
mod transport;
mod tunnel;
mod versions;
