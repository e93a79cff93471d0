//! Protects the memory of this process, which contains secrets, from core files and debuggers.

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Disables core files, as far as the system's crash handler respects limits; systemd-coredump
/// does.
pub fn forbid_core_files() {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    // Every process may lower its limits.
    let _ = setrlimit(Resource::Core, none);
}

/// The kernel dumps no memory of this process to any crash handler, and lets only root attach a
/// debugger. `/proc/self` then belongs to root. Programs that this process starts are not affected.
pub fn hide() {
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}
