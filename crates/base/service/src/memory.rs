//! Protects the memory of this process, which contains secrets, from core files, debuggers and
//! swap; returns what is not used any more.
#![allow(unsafe_code)]

use std::io;

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
};

/// The memory of this process may be written to swap.
#[derive(Debug, thiserror::Error)]
pub enum MemoryLockError {
    /// Only so many bytes may be locked.
    #[error("the system allows {} KiB of locked memory, not any amount", .0 >> 10)]
    Limited(u64),
    /// The kernel refuses.
    #[error(transparent)]
    Refused(#[from] io::Error),
}

/// Disables core files, as far as the system's crash handler respects limits; systemd-coredump
/// does.
pub fn forbid_core_files() {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    // Every process may lower its limits.
    let _ = setrlimit(Resource::Core, none);
}

/// The kernel dumps no memory of this process to any crash handler, and lets only root attach a
/// debugger. `/proc/self` then belongs to root. Programs that this process starts are not affected.
pub fn forbid_dumps() {
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// The kernel keeps all memory that this process has and gets from now on out of swap. Memory that
/// is reserved and not used takes none. Hibernation writes it to the disk all the same.
///
/// # Errors
/// When this process may not lock any amount: with a limit, it would end where it needs more.
pub fn lock_all_pages() -> Result<(), MemoryLockError> {
    let unlimited = Rlimit { current: None, maximum: None };
    if setrlimit(Resource::Memlock, unlimited).is_err() {
        return Err(MemoryLockError::Limited(getrlimit(Resource::Memlock).maximum.unwrap_or(0)));
    }
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    Ok(mlockall(flags).map_err(io::Error::from)?)
}

/// The smallest allocation that the system gets back as soon as it is freed, in bytes.
#[cfg(target_env = "gnu")]
const RETURNED_AT_ONCE: libc::c_int = 128 << 10;

/// Freed memory goes back to the system: glibc otherwise keeps up to 64 MiB of it for each thread,
/// once a large allocation was freed. Other libraries are left as they are.
pub fn return_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `mallopt` takes no pointer, and may be called at any time.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, RETURNED_AT_ONCE);
    }
}
