//! The keys that prove and verify answers.

use keys::{PublicKey, SecretKey, SharedKey};

use super::message::{Proof, Scheme};

/// The key with which a client verifies an answer.
#[derive(Clone, Debug)]
pub enum Credential {
    /// The peer has the same key.
    Shared(SharedKey),
    /// The peer has the secret key that belongs to this public key.
    Public(PublicKey),
}

impl Credential {
    /// The scheme of the proofs that it verifies.
    pub fn scheme(&self) -> Scheme {
        match self {
            Self::Shared(_) => Scheme::Hmac,
            Self::Public(_) => Scheme::Ed25519,
        }
    }

    /// Whether `proof` proves `bytes`.
    pub(super) fn is_proven(&self, statement: &[u8], proof: &Proof) -> bool {
        match (self, proof) {
            (Self::Shared(key), Proof::Hmac(code)) => key.verify(&[statement], code),
            (Self::Public(key), Proof::Ed25519(signature)) => key.verify(statement, signature),
            _ => false,
        }
    }
}

/// The keys with which a server proves its answers.
#[derive(Debug, Default)]
pub struct ServerKeys {
    /// For clients that have the same key.
    pub shared: Option<SharedKey>,
    /// For clients that have its public key.
    pub secret: Option<SecretKey>,
}

impl ServerKeys {
    /// A proof. `None` if there is no key for the scheme.
    pub(super) fn prove(&self, scheme: Scheme, statement: &[u8]) -> Option<Proof> {
        match scheme {
            Scheme::Hmac => Some(Proof::Hmac(self.shared.as_ref()?.authenticate(&[statement]))),
            Scheme::Ed25519 => Some(Proof::Ed25519(self.secret.as_ref()?.sign(statement))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_for_one_key() {
        let keys = |byte| ServerKeys {
            shared: Some(SharedKey::new(&[byte; 32])),
            secret: Some(SecretKey::new(&[byte; 32])),
        };
        for scheme in [Scheme::Hmac, Scheme::Ed25519] {
            let credential = match scheme {
                Scheme::Hmac => Credential::Shared(SharedKey::new(&[1; 32])),
                Scheme::Ed25519 => Credential::Public(SecretKey::new(&[1; 32]).public()),
            };
            assert_eq!(credential.scheme(), scheme);
            let proof = |byte| keys(byte).prove(scheme, b"statement").unwrap();
            assert!(credential.is_proven(b"statement", &proof(1)));
            assert!(!credential.is_proven(b"another", &proof(1)));
            assert!(!credential.is_proven(b"statement", &proof(2)));
            assert!(ServerKeys::default().prove(scheme, b"statement").is_none());
        }
    }

    #[test]
    fn secrets_are_not_printed() {
        let keys = ServerKeys {
            shared: Some(SharedKey::new(&[0xAB; 32])),
            secret: Some(SecretKey::new(&[0xAB; 32])),
        };
        let shown = "ServerKeys { shared: Some(SharedKey(..)), secret: Some(SecretKey(..)) }";
        assert_eq!(format!("{keys:?}"), shown);
    }
}
