//! Keeps the memory of this process, which holds secrets, from core files and debuggers.

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// A crash leaves no core file, as far as the system's handler of crashes respects limits:
/// systemd-coredump does.
pub fn forbid_core_files() {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    // Lowering a limit is allowed to everybody.
    let _ = setrlimit(Resource::Core, none);
}

/// The kernel dumps no memory of this process, whatever handles crashes, and lets only root attach
/// a debugger. `/proc/self` belongs to root then. Programs that this process starts are not
/// affected.
pub fn hide() {
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}
