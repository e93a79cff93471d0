//! RSA: arithmetic modulo N, and keys of groups.

pub(crate) mod key;
pub(crate) mod modulus;
