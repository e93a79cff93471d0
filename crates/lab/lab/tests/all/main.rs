//! All integration tests of the crate, in one program, because each program takes seconds to link.
//! `network` is a program of its own, as the whole program enters a sandbox.

mod experiment_file;
mod experiment_run;
