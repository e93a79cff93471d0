//! The number of streams that this process carries.

use std::sync::atomic::{AtomicUsize, Ordering};

/// With more open streams than this, the kernel's memory for each is limited.
const MANY: usize = 32;

static OPEN: AtomicUsize = AtomicUsize::new(0);

/// Whether more streams are open than that, so that the kernel's memory for each must be limited.
pub(super) fn are_many_open() -> bool {
    OPEN.load(Ordering::Relaxed) > MANY
}

/// Counts as an open stream until it is dropped.
#[derive(Debug)]
pub(super) struct OpenStreamCountGuard(());

impl OpenStreamCountGuard {
    pub(super) fn new() -> Self {
        OPEN.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for OpenStreamCountGuard {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}
