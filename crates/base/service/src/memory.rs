//! Protects the memory of this process, which contains secrets, from core files, debuggers and
//! swap; returns freed memory to the system.
#![allow(unsafe_code)]

use std::io;

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
};

/// Why the memory of this process may be written to swap.
#[derive(Debug, thiserror::Error)]
pub enum MemoryLockError {
    /// Only this number of bytes may be locked.
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
    // Every process may lower its own limits.
    let _ = setrlimit(Resource::Core, none);
}

/// Prevents the kernel from dumping memory of this process to any crash handler, and from letting
/// any user except root attach a debugger. `/proc/self` then belongs to root. Programs that this
/// process starts are not affected.
pub fn forbid_dumps() {
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Keeps all current and future memory of this process out of swap. Reserved memory that is not
/// used takes up no physical memory. Hibernation still writes memory to disk.
///
/// # Errors
/// If this process may not lock an unlimited amount: with a limit, it would be killed when it needs
/// more.
pub fn lock_all_pages() -> Result<(), MemoryLockError> {
    let unlimited = Rlimit { current: None, maximum: None };
    if setrlimit(Resource::Memlock, unlimited).is_err() {
        return Err(MemoryLockError::Limited(getrlimit(Resource::Memlock).maximum.unwrap_or(0)));
    }
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    Ok(mlockall(flags).map_err(io::Error::from)?)
}

/// The smallest allocation that is returned to the system as soon as it is freed, in bytes.
#[cfg(target_env = "gnu")]
const RETURNED_AT_ONCE: libc::c_int = 128 << 10;

/// Makes glibc return freed memory to the system: otherwise it keeps up to 64 MiB for each thread,
/// once a large allocation was freed. Other C libraries are not affected.
pub fn return_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `mallopt` has no pointer arguments, and may be called at any time.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, RETURNED_AT_ONCE);
    }
}
