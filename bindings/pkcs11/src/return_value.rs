//! What functions return.

use cryptoki_sys::{CK_RV, CKR_OK};

/// The code of a failure: one of `CKR_*`, not `CKR_OK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CryptokiError(pub CK_RV);

/// What a function returns.
pub(crate) fn code_of(result: Result<(), CryptokiError>) -> CK_RV {
    result.map_or_else(|CryptokiError(code)| code, |()| CKR_OK)
}

/// Tells the user why a call fails, for which the standard has only a number: one line on standard
/// error.
pub(crate) fn report(reason: &dyn std::fmt::Display) {
    let line = format!("sunder_pkcs11: {reason}\n");
    // Standard error may be closed. No lock is taken, which a forked child could wait for.
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
}
