//! What keeps secrets in memory: no core files, and no other process of the same user that reads it.

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// A crash leaves no file with this process's memory, as far as the system's handler of crashes keeps to limits:
/// systemd-coredump does.
pub(crate) fn forbid_core_files() {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    // Lowering a limit is allowed to everybody.
    let _ = setrlimit(Resource::Core, none);
}

/// The kernel dumps no memory of this process, whatever handles crashes, and lets only root attach a debugger.
/// `/proc/self` is root's then. Programs that it starts are not affected.
pub(crate) fn hide() {
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}
