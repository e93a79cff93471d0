//! Memory for long records, which the driver grants.

/// The memory that one direction of a stream may use for its records, beyond the minimum of every
/// stream.
#[derive(Default)]
pub(crate) struct MemoryLease(Option<Box<dyn FnMut(usize) -> bool + Send + Sync>>);

impl MemoryLease {
    /// A lease whose size, in bytes, is set by `resize`, which returns whether that is possible;
    /// reducing it always is. The default lease has no limit.
    pub(crate) fn limited(resize: impl FnMut(usize) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(resize)))
    }

    /// Sets the size, in bytes. Returns false, and changes nothing, if there is not enough memory.
    pub(crate) fn resize(&mut self, bytes: usize) -> bool {
        self.0.as_mut().is_none_or(|resize| resize(bytes))
    }
}
