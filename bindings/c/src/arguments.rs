//! The arguments that C passes: pointers that may be null. This is the only module with raw
//! pointers.
//!
//! Each type has the layout of a pointer, and only the C caller creates values of it. The caller
//! must ensure that it points to what the header requires for the duration of the call.

use std::ffi::{CStr, c_char, c_void};
use std::mem::{offset_of, size_of};
use std::ptr::NonNull;

use crate::error::{CallFailure, Code};
use crate::statistics::Statistics;

/// `const char *`: a text that ends with a zero byte.
#[derive(Debug)]
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    /// The text; `what` names it in errors.
    pub(crate) fn read(&self, what: &str) -> Result<&str, CallFailure> {
        if self.0.is_null() {
            return Err(null(what));
        }
        // SAFETY: the pointer is not null, and the header requires that it points to bytes that end
        // with a zero byte and do not change during the call.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map_err(|_| CallFailure::usage(format!("the {what} is not UTF-8")))
    }
}

/// `char *`, with a separate size: a buffer for a text.
#[derive(Debug)]
#[repr(transparent)]
pub struct TextBuffer(*mut c_char);

impl TextBuffer {
    /// Writes the text and a zero byte to the buffer of `size` bytes.
    pub(crate) fn write(&self, size: usize, text: &str) -> Result<(), CallFailure> {
        if self.0.is_null() {
            return Err(null("buffer"));
        }
        if text.len() >= size {
            let needed = text.len() + 1;
            let message = format!("the text needs {needed} bytes, the buffer has {size}");
            return Err(CallFailure::new(Code::TooLong, message));
        }
        // SAFETY: the pointer is not null, and the header requires a buffer of `size` bytes; the
        // text is shorter.
        unsafe {
            self.0.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
            self.0.add(text.len()).write(0);
        }
        Ok(())
    }
}

/// `const void *`, with a separate size: bytes to send.
#[derive(Debug)]
#[repr(transparent)]
pub struct Input(*const c_void);

impl Input {
    /// The `size` bytes.
    pub(crate) fn bytes(&self, size: usize) -> Result<&[u8], CallFailure> {
        if size == 0 {
            return Ok(&[]);
        }
        check(self.0, size)?;
        // SAFETY: the header requires `size` bytes that do not change during the call; the pointer
        // is not null, and a slice may have this length.
        Ok(unsafe { std::slice::from_raw_parts(self.0.cast(), size) })
    }
}

/// `void *`, with a separate size: a buffer for received bytes.
#[derive(Debug)]
#[repr(transparent)]
pub struct Output(*mut c_void);

impl Output {
    /// The `size` bytes.
    pub(crate) fn bytes(&mut self, size: usize) -> Result<&mut [u8], CallFailure> {
        if size == 0 {
            return Ok(&mut []);
        }
        check(self.0, size)?;
        // SAFETY: the header requires `size` bytes that nothing else uses during the call; the
        // pointer is not null, and a slice may have this length. The memory is from outside Rust,
        // so its content is unknown but valid bytes.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.0.cast(), size) })
    }
}

/// `sunder_statistics *`
#[derive(Debug)]
#[repr(transparent)]
pub struct StatisticsBuffer(*mut Statistics);

impl StatisticsBuffer {
    /// Writes as many whole fields as the caller's structure has, according to its field `size`.
    pub(crate) fn write(&self, statistics: &Statistics) -> Result<(), CallFailure> {
        const FIRST: usize = offset_of!(Statistics, bytes_sent);
        if self.0.is_null() {
            return Err(null("structure"));
        }
        // SAFETY: the pointer is not null, and the header requires that the structure has at least
        // its first field.
        let size = unsafe { self.0.cast::<usize>().read_unaligned() };
        let fields = size.min(size_of::<Statistics>()).saturating_sub(FIRST) / size_of::<u64>();
        if fields == 0 {
            return Err(CallFailure::usage("statistics.size is not sizeof(sunder_statistics)"));
        }
        // SAFETY: all fields after the first are u64, and the caller's structure has this many of
        // them; the two structures do not overlap.
        unsafe {
            let from = std::ptr::from_ref(statistics).cast::<u8>().add(FIRST);
            let to = self.0.cast::<u8>().add(FIRST);
            to.copy_from_nonoverlapping(from, fields * size_of::<u64>());
        }
        Ok(())
    }
}

/// A received message: `uint8_t *` and its size. Null with size 0 is no message.
#[derive(Debug)]
#[repr(transparent)]
pub struct Message(*mut u8);

impl Message {
    /// Passes the message to the caller, who must free it.
    pub(crate) fn give(message: Vec<u8>) -> (Self, usize) {
        let size = message.len();
        (Self(Box::into_raw(message.into_boxed_slice()).cast()), size)
    }

    /// Frees the message.
    pub(crate) fn free(self, size: usize) {
        if let Some(bytes) = NonNull::new(self.0) {
            let message = NonNull::slice_from_raw_parts(bytes, size);
            // SAFETY: the header requires that pointer and size are those that `give` returned, and
            // that they are passed only once.
            drop(unsafe { Box::from_raw(message.as_ptr()) });
        }
    }
}

fn check(pointer: *const c_void, size: usize) -> Result<(), CallFailure> {
    if pointer.is_null() {
        return Err(null("buffer"));
    }
    if isize::try_from(size).is_err() {
        return Err(CallFailure::usage(format!("a buffer cannot have {size} bytes")));
    }
    Ok(())
}

/// The error for a null pointer that is not allowed.
pub(crate) fn null(what: &str) -> CallFailure {
    CallFailure::usage(format!("the {what} is a null pointer"))
}
