//! The terms of an association: what the n channels will carry, and how it is shared over them.
//!
//! Every [`AssociationTerms`] is consistent: the threshold fits the number of channels and the
//! scheme. The server decides whether it accepts them (see [`TermsPolicy`](crate::TermsPolicy)).

use thiserror::Error;

/// Length of encoded terms in bytes.
pub(crate) const TERMS_LEN: usize = 8;

/// The protocol that runs over the association.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AssociationProtocol {
    /// The MICSS stream protocol.
    MicssStream = 1,
    /// The ReMICSS datagram protocol.
    ReMicssDatagrams = 2,
}

/// How a record becomes n shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SharingScheme {
    /// The one-time pad: all n shares are needed.
    Xor = 1,
    /// Shamir's scheme over GF(2^8): any k of the n shares are enough.
    Shamir = 2,
}

/// Why terms are not consistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AssociationTermsError {
    /// The protocol's number is not one of [`AssociationProtocol`].
    #[error("unknown protocol {0}")]
    UnknownProtocol(u8),
    /// The scheme's number is not one of [`SharingScheme`].
    #[error("unknown sharing scheme {0}")]
    UnknownScheme(u8),
    /// The threshold is not within 1 <= k <= n.
    #[error("threshold {k} does not fit {n} channels")]
    Threshold {
        /// The threshold.
        k: u8,
        /// The number of channels.
        n: u8,
    },
    /// XOR sharing with a threshold other than n.
    #[error("xor sharing over {n} channels needs all of them, not {k}")]
    XorThreshold {
        /// The threshold.
        k: u8,
        /// The number of channels.
        n: u8,
    },
}

/// The terms that the client proposes, identical on every channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AssociationTerms {
    protocol: AssociationProtocol,
    scheme: SharingScheme,
    k: u8,
    n: u8,
    options: u32,
}

impl AssociationTerms {
    /// Terms for `n` channels of which any `k` reveal the secret.
    ///
    /// The protocol defines the bits in `options`. The handshake binds them like the other terms.
    ///
    /// # Errors
    /// If not 1 <= k <= n, or if the scheme is XOR and k is not n.
    pub fn new(
        protocol: AssociationProtocol,
        scheme: SharingScheme,
        k: u8,
        n: u8,
        options: u32,
    ) -> Result<Self, AssociationTermsError> {
        if k == 0 || k > n {
            return Err(AssociationTermsError::Threshold { k, n });
        }
        if scheme == SharingScheme::Xor && k != n {
            return Err(AssociationTermsError::XorThreshold { k, n });
        }
        Ok(Self { protocol, scheme, k, n, options })
    }

    /// The protocol that runs over the association.
    pub fn protocol(self) -> AssociationProtocol {
        self.protocol
    }

    /// How records are shared.
    pub fn scheme(self) -> SharingScheme {
        self.scheme
    }

    /// How many shares reconstruct a record: k.
    pub fn threshold(self) -> u8 {
        self.k
    }

    /// How many channels there are: n.
    pub fn channels(self) -> u8 {
        self.n
    }

    /// How many connections a server needs to associate a list that the others have not delivered:
    /// at least k, and more than half, so that no list is associated twice.
    pub fn quorum(self) -> u8 {
        self.k.max(self.n / 2 + 1)
    }

    /// The protocol's option bits.
    pub fn options(self) -> u32 {
        self.options
    }

    pub(crate) fn encode(self) -> [u8; TERMS_LEN] {
        let [o0, o1, o2, o3] = self.options.to_be_bytes();
        [self.protocol as u8, self.scheme as u8, self.k, self.n, o0, o1, o2, o3]
    }

    pub(crate) fn parse(bytes: [u8; TERMS_LEN]) -> Result<Self, AssociationTermsError> {
        let [protocol, scheme, k, n, options @ ..] = bytes;
        let protocol = match protocol {
            1 => AssociationProtocol::MicssStream,
            2 => AssociationProtocol::ReMicssDatagrams,
            other => return Err(AssociationTermsError::UnknownProtocol(other)),
        };
        let scheme = match scheme {
            1 => SharingScheme::Xor,
            2 => SharingScheme::Shamir,
            other => return Err(AssociationTermsError::UnknownScheme(other)),
        };
        Self::new(protocol, scheme, k, n, u32::from_be_bytes(options))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_must_fit() {
        let shamir = |k, n| {
            AssociationTerms::new(AssociationProtocol::MicssStream, SharingScheme::Shamir, k, n, 0)
        };
        let xor = |k, n| {
            AssociationTerms::new(AssociationProtocol::MicssStream, SharingScheme::Xor, k, n, 0)
        };
        assert_eq!(shamir(0, 0), Err(AssociationTermsError::Threshold { k: 0, n: 0 }));
        assert_eq!(shamir(0, 3), Err(AssociationTermsError::Threshold { k: 0, n: 3 }));
        assert_eq!(shamir(4, 3), Err(AssociationTermsError::Threshold { k: 4, n: 3 }));
        assert!(shamir(1, 1).is_ok());
        assert!(shamir(255, 255).is_ok());
        assert!(xor(3, 3).is_ok());
        assert_eq!(xor(2, 3), Err(AssociationTermsError::XorThreshold { k: 2, n: 3 }));
    }

    /// Two quorums without a common connection would not both fit into one list.
    #[test]
    fn a_quorum_is_a_majority_that_can_join() {
        for (k, n) in (1..=255).flat_map(|n| (1..=n).map(move |k| (k, n))) {
            let terms = AssociationTerms::new(
                AssociationProtocol::MicssStream,
                SharingScheme::Shamir,
                k,
                n,
                0,
            )
            .unwrap();
            let quorum = terms.quorum();
            assert!(quorum >= k && quorum <= n && 2 * u16::from(quorum) > n.into(), "{k} of {n}");
        }
    }

    #[test]
    fn unknown_numbers_are_refused() {
        assert_eq!(
            AssociationTerms::parse([0, 1, 1, 1, 0, 0, 0, 0]),
            Err(AssociationTermsError::UnknownProtocol(0))
        );
        assert_eq!(
            AssociationTerms::parse([1, 3, 1, 1, 0, 0, 0, 0]),
            Err(AssociationTermsError::UnknownScheme(3))
        );
    }
}
