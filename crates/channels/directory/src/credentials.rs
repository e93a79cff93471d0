//! The keys that prove and verify answers.

use keys::{IdentityPublicKey, IdentitySecretKey, SharedKey};

use super::message::{AnswerProof, ProofScheme};

/// The key with which a client verifies an answer.
#[derive(Clone, Debug)]
pub enum DirectoryCredential {
    /// The peer has the same key.
    Shared(SharedKey),
    /// The peer has the secret key that belongs to this public key.
    Public(IdentityPublicKey),
}

impl DirectoryCredential {
    /// The scheme of the proofs that it verifies.
    pub fn scheme(&self) -> ProofScheme {
        match self {
            Self::Shared(_) => ProofScheme::Hmac,
            Self::Public(_) => ProofScheme::Ed25519,
        }
    }

    /// Whether `proof` proves `bytes`.
    pub(super) fn is_proven(&self, statement: &[u8], proof: &AnswerProof) -> bool {
        match (self, proof) {
            (Self::Shared(key), AnswerProof::Hmac(code)) => key.verify(&[statement], code),
            (Self::Public(key), AnswerProof::Ed25519(signature)) => {
                key.verify(statement, signature)
            }
            _ => false,
        }
    }
}

/// The keys with which a server proves its answers.
#[derive(Debug, Default)]
pub struct DirectoryServerKeys {
    /// For clients that have the same key.
    pub shared: Option<SharedKey>,
    /// For clients that have its public key.
    pub secret: Option<IdentitySecretKey>,
}

impl DirectoryServerKeys {
    /// A proof. `None` if there is no key for the scheme.
    pub(super) fn prove(&self, scheme: ProofScheme, statement: &[u8]) -> Option<AnswerProof> {
        match scheme {
            ProofScheme::Hmac => {
                Some(AnswerProof::Hmac(self.shared.as_ref()?.authenticate(&[statement])))
            }
            ProofScheme::Ed25519 => {
                Some(AnswerProof::Ed25519(self.secret.as_ref()?.sign(statement)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_for_one_key() {
        let keys = |byte| DirectoryServerKeys {
            shared: Some(SharedKey::new(&[byte; 32])),
            secret: Some(IdentitySecretKey::new(&[byte; 32])),
        };
        for scheme in [ProofScheme::Hmac, ProofScheme::Ed25519] {
            let credential = match scheme {
                ProofScheme::Hmac => DirectoryCredential::Shared(SharedKey::new(&[1; 32])),
                ProofScheme::Ed25519 => {
                    DirectoryCredential::Public(IdentitySecretKey::new(&[1; 32]).public())
                }
            };
            assert_eq!(credential.scheme(), scheme);
            let proof = |byte| keys(byte).prove(scheme, b"statement").unwrap();
            assert!(credential.is_proven(b"statement", &proof(1)));
            assert!(!credential.is_proven(b"another", &proof(1)));
            assert!(!credential.is_proven(b"statement", &proof(2)));
            assert!(DirectoryServerKeys::default().prove(scheme, b"statement").is_none());
        }
    }

    #[test]
    fn secrets_are_not_printed() {
        let keys = DirectoryServerKeys {
            shared: Some(SharedKey::new(&[0xAB; 32])),
            secret: Some(IdentitySecretKey::new(&[0xAB; 32])),
        };
        let shown = "DirectoryServerKeys { shared: Some(SharedKey(..)), secret: Some(IdentitySecretKey(..)) }";
        assert_eq!(format!("{keys:?}"), shown);
    }
}
