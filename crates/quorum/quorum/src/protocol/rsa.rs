//! RSA: arithmetic modulo N, and group keys.

#[cfg(target_arch = "x86_64")]
mod ifma;
pub(crate) mod key;
pub(crate) mod modulus;
