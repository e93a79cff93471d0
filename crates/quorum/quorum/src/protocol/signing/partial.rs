//! A server's answer to a request for partial signatures.

use std::sync::Arc;

use keys::IdentitySecretKey;
use rsa_arithmetic::integer::SecretInteger;
use rsa_arithmetic::modulus::FixedBase;

use super::answer::{PartialSignQuery, PartialSignatures, SigningGroup};
use crate::protocol::combination::{Label, ServerIndex};
use crate::protocol::share::ShareRange;

/// Why a server does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartialSignError {
    /// The request names other servers.
    #[error("this server is not among the signers")]
    NotASigner,
    /// The modulus is too short for the encoding, or the number has no inverse.
    #[error("the key cannot sign this")]
    Number,
}

/// A server's shares in an epoch.
pub struct SigningShares {
    group: Arc<SigningGroup>,
    server: ServerIndex,
    range: ShareRange,
    by_label: Vec<(Label, SecretInteger)>,
}

impl SigningShares {
    /// `None` unless `shares` are exactly the shares of the server, in the order of their labels.
    pub fn new(
        group: Arc<SigningGroup>,
        server: ServerIndex,
        range: ShareRange,
        shares: Vec<(Label, SecretInteger)>,
    ) -> Option<Self> {
        let labels = shares.iter().map(|(label, _)| *label);
        let complete = group.combination.labels_of(server).eq(labels);
        complete.then_some(Self { group, server, range, by_label: shares })
    }

    /// The group whose key the shares belong to.
    pub fn group(&self) -> &SigningGroup {
        &self.group
    }

    /// The answer to a request. A quick sign takes one exponentiation (TS2, 3.2.1), a full sign one
    /// for each label (3.2). The caller has checked that the message may be signed.
    ///
    /// # Errors
    /// If this server is not among the signers, or the key is too short for the encoding.
    pub fn answer(
        &self,
        query: &PartialSignQuery,
        identity: &IdentitySecretKey,
    ) -> Result<PartialSignatures, PartialSignError> {
        let group = &*self.group;
        let number = query.number(group).ok_or(PartialSignError::Number)?;
        let modulus = group.key.modulus();
        let values = match query.signers {
            Some(signers) if signers.contains(self.server) => {
                let signers = signers.servers();
                let labels: Vec<Label> =
                    group.combination.responsible(self.server, &signers).collect();
                let shares = self.by_label.iter().filter(|(label, _)| labels.contains(label));
                let sum = self.range.sum(shares.map(|(_, share)| share));
                vec![modulus.pow(&number, &sum).ok_or(PartialSignError::Number)?]
            }
            Some(_) => return Err(PartialSignError::NotASigner),
            None if !FixedBase::is_worthwhile(self.by_label.len()) => {
                let powers = self.by_label.iter().map(|(_, share)| modulus.pow(&number, share));
                powers.collect::<Option<_>>().ok_or(PartialSignError::Number)?
            }
            None => {
                let table =
                    FixedBase::new(modulus, &number, &[self.range.bits()], self.by_label.len());
                let table = table.ok_or(PartialSignError::Number)?;
                self.by_label.iter().map(|(_, share)| table.pow(share)).collect()
            }
        };
        PartialSignatures::new(group, self.server, query, values, identity)
            .ok_or(PartialSignError::Number)
    }
}
