//! `sunder_version` and `sunder_transport_name`.

use std::ffi::{CStr, CString, c_char};
use std::sync::{Mutex, PoisonError};

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
    run(|| Ok(names().get(index).map_or(std::ptr::null(), |name| name.as_ptr())))
}

/// The names of the transports, for C. They stay valid when others are added.
fn names() -> Vec<&'static CStr> {
    static NAMES: Mutex<Vec<&'static CStr>> = Mutex::new(Vec::new());
    let mut known = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    // Transports are only added, at the end.
    for (name, _) in transport::names().skip(known.len()) {
        known.push(Box::leak(CString::new(name).unwrap_or_default().into_boxed_c_str()));
    }
    known.clone()
}

/// The C string of a transport's name, which must be in the list.
pub(crate) fn static_name(name: &str) -> *const c_char {
    let found = names().into_iter().find(|it| it.to_bytes() == name.as_bytes());
    found.map_or(std::ptr::null(), CStr::as_ptr)
}
