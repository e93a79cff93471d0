//! `sunder_version` and `sunder_transport_name`.

use std::ffi::{CString, c_char};
use std::sync::LazyLock;

use crate::error::run;

/// `sunder_version`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// `sunder_transport_name`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_transport_name(index: usize) -> *const c_char {
    run(|| Ok(NAMES.get(index).map_or(std::ptr::null(), |name| name.as_ptr())))
}

/// The names of the transports, for C.
static NAMES: LazyLock<Vec<CString>> =
    LazyLock::new(|| transport::names().filter_map(|(name, _)| CString::new(name).ok()).collect());

/// The C string of a transport's name, which must be in the list.
pub(crate) fn static_name(name: &str) -> *const c_char {
    let found = NAMES.iter().find(|it| it.as_bytes() == name.as_bytes());
    found.map_or(std::ptr::null(), |name| name.as_ptr())
}
