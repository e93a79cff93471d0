//! The fields of X.509 certificates (RFC 5280, 4.1) that programs compare. What the fields mean is
//! not read, and signatures are not verified.

use crate::der::{self, INTEGER, SEQUENCE};

/// The tag of the version.
const VERSION: u8 = 0xa0;

/// Fields of a certificate, in DER with tag and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateParts<'a> {
    /// The serial number, an `INTEGER`.
    pub serial: &'a [u8],
    /// The name of the signer.
    pub issuer: &'a [u8],
    /// The name of the owner.
    pub subject: &'a [u8],
    /// The owner's key, a `SubjectPublicKeyInfo`.
    pub public_key: &'a [u8],
}

impl<'a> CertificateParts<'a> {
    /// The fields of a certificate in DER. `None` if the bytes are not one certificate.
    pub fn parse(certificate: &'a [u8]) -> Option<Self> {
        let mut certificate = der::whole(SEQUENCE, certificate)?;
        let mut signed = certificate.enter(SEQUENCE)?;
        signed.take(VERSION);
        let serial = signed.take_encoded(INTEGER)?;
        let _algorithm = signed.take(SEQUENCE)?;
        let issuer = signed.take_encoded(SEQUENCE)?;
        let _validity = signed.take(SEQUENCE)?;
        let subject = signed.take_encoded(SEQUENCE)?;
        Some(Self { serial, issuer, subject, public_key: signed.take_encoded(SEQUENCE)? })
    }
}

/// The certificates in a text in PEM (RFC 7468), in DER. The text may have other lines between
/// them. `None` if one of them is not in base64. They are not parsed.
pub fn certificates_in_pem(text: &str) -> Option<Vec<Vec<u8>>> {
    der::all_from_pem("CERTIFICATE", text).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_certificate_or_not(
            der in prop::collection::vec(prop_oneof![
                Just(SEQUENCE), Just(INTEGER), Just(0x82), Just(0x81), Just(0), 0_u8..20, any::<u8>()
            ], 0..80),
        ) {
            let _ = CertificateParts::parse(&der);
            prop_assert_eq!(certificates_in_pem(&der::pem("CERTIFICATE", &der)), Some(vec![der]));
        }
    }
}
