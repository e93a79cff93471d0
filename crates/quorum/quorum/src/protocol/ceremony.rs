//! The files of a dealer ceremony, which generates an RSA key of two safe primes and splits it.

pub(crate) mod bundle;
pub(crate) mod share_file;
