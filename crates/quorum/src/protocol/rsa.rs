//! RSA: arithmetic modulo N, keys and encodings.

pub(crate) mod key;
pub(crate) mod mask;
pub(crate) mod modulus;
mod pem;
