//! Errors: a code and a text for each thread. Panics are caught here.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, TryLockError};

use transport::Error;

/// The kinds of failure: `sunder_code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// No failure.
    Ok = 0,
    /// A null pointer, a text that is not UTF-8, or an option that does not exist.
    Usage = -1,
    /// The system returned an error.
    Failed = -2,
    /// The name has no address, or no program listens there.
    Unreachable = -3,
    /// The peer did not answer in time.
    TimedOut = -4,
    /// The peer does not have the given key, or data was forged.
    NotAuthenticated = -5,
    /// The connection ended before all expected data had arrived.
    Closed = -6,
    /// A message exceeds the limit, or a text the buffer.
    TooLong = -7,
    /// Another thread uses the handle.
    Busy = -8,
    /// A bug in the library.
    Bug = -9,
}

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct CallFailure {
    code: Code,
    text: String,
}

impl CallFailure {
    pub(crate) fn new(code: Code, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::new(Code::Usage, text)
    }
}

impl From<io::Error> for CallFailure {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind as Kind;
        let code = match error.kind() {
            _ if Error::of(&error).is_some_and(Error::is_security) => Code::NotAuthenticated,
            _ if matches!(Error::of(&error), Some(Error::TooLong { .. })) => Code::TooLong,
            _ if matches!(Error::of(&error), Some(Error::Resolve { .. })) => Code::Unreachable,
            Kind::TimedOut | Kind::WouldBlock => Code::TimedOut,
            Kind::ConnectionRefused
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
            | Kind::AddrNotAvailable => Code::Unreachable,
            Kind::UnexpectedEof
            | Kind::BrokenPipe
            | Kind::ConnectionReset
            | Kind::ConnectionAborted
            | Kind::NotConnected => Code::Closed,
            Kind::InvalidInput => Code::Usage,
            _ => Code::Failed,
        };
        Self::new(code, error.to_string())
    }
}

impl From<Error> for CallFailure {
    fn from(error: Error) -> Self {
        io::Error::from(error).into()
    }
}

/// The value that a function of the interface returns on failure.
pub(crate) trait FailureReturn {
    fn failed(code: Code) -> Self;
}

impl FailureReturn for i32 {
    fn failed(code: Code) -> Self {
        code as Self
    }
}

impl FailureReturn for i64 {
    fn failed(code: Code) -> Self {
        Self::from(code as i32)
    }
}

impl<T> FailureReturn for Option<Box<T>> {
    fn failed(_: Code) -> Self {
        None
    }
}

impl FailureReturn for *const c_char {
    fn failed(_: Code) -> Self {
        std::ptr::null()
    }
}

/// Runs a call. A failure or a panic becomes the thread's last error.
pub(crate) fn run<T: FailureReturn>(call: impl FnOnce() -> Result<T, CallFailure>) -> T {
    // State that a panicking call has changed is behind a lock, which is then poisoned.
    let outcome = catch_unwind(AssertUnwindSafe(call));
    let failure = match outcome {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            CallFailure::new(Code::Bug, format!("a bug of the library: {}", panic_message(&*panic)))
        }
    };
    let code = failure.code;
    set_last_error(failure);
    T::failed(code)
}

/// Runs a destructor. A panic is dropped, as such functions cannot report errors.
pub(crate) fn run_free(call: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(call));
}

/// Locks a handle, unless another thread uses it; `busy` is the text of that error.
pub(crate) fn try_lock<'a, T>(
    handle: &'a Mutex<T>,
    busy: &str,
) -> Result<MutexGuard<'a, T>, CallFailure> {
    handle.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => CallFailure::new(Code::Busy, busy),
        TryLockError::Poisoned(_) => {
            CallFailure::new(Code::Bug, "a bug of the library has ended it")
        }
    })
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("it does not say which")
}

/// A thread's last error.
struct LastError {
    code: Code,
    text: CString,
}

thread_local! {
    static LAST_ERROR: RefCell<Option<LastError>> = const { RefCell::new(None) };
}

fn set_last_error(failure: CallFailure) {
    let mut text = failure.text.into_bytes();
    text.retain(|&byte| byte != 0);
    let last = LastError { code: failure.code, text: CString::new(text).unwrap_or_default() };
    // While a thread ends and its destructors free handles, it has no last error.
    let _ = LAST_ERROR.try_with(|place| place.replace(Some(last)));
}

/// `sunder_error_code`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_error_code() -> i32 {
    let code = LAST_ERROR.try_with(|last| last.borrow().as_ref().map(|last| last.code));
    code.ok().flatten().unwrap_or(Code::Ok) as i32
}

/// `sunder_error_text`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_error_text() -> *const c_char {
    const NONE: &CStr = c"";
    let text = LAST_ERROR.try_with(|last| last.borrow().as_ref().map(|last| last.text.as_ptr()));
    text.ok().flatten().unwrap_or(NONE.as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_at_the_boundary() {
        assert_eq!(run::<i32>(|| panic!("no {}", "luck")), Code::Bug as i32);
        assert_eq!(sunder_error_code(), Code::Bug as i32);
        let text = LAST_ERROR.with_borrow(|last| last.as_ref().map(|last| last.text.clone()));
        assert_eq!(text.unwrap().to_str(), Ok("a bug of the library: no luck"));
        run_free(|| panic!("nobody is told"));
    }
}
