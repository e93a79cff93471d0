//! Dealings: the sharings of old shares among the new servers, with their proofs.

use std::sync::Arc;

use encoding::{FieldReader, FieldWrite as _};
use keys::IdentitySecretKey;
use random::{RandomError, RandomGenerator, wipe_stack};
use rsa_arithmetic::integer::SecretInteger;
use rsa_arithmetic::modulus::RsaElement;
use zeroize::{Zeroize as _, Zeroizing};

use super::manifest::{DealingManifest, DealingRound, REMAINDER, ciphertext_digest, proofs_digest};
use super::parameters::RefreshParameters;
use super::possession::{ShareWitnesses, parse_elements};
use super::session::{SessionCipher, SessionPoint, SessionSecret, TAG_LEN, mac};
use crate::protocol::combination::{CombinatorialSharing, Label, ServerIndex};
use crate::protocol::share::{SEED_LEN, ShareExpansionSeed, SplitInteger};
use crate::protocol::wire::{MalformedEncoding, Sha256Digest};

/// The seed of a dealing's randomness, so that a server repeats its dealing after a restart.
/// Secret. On the heap, so that no copy remains where it is moved.
pub(crate) struct DealingSeed(Box<[u8; 32]>);

impl Drop for DealingSeed {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl DealingSeed {
    pub(crate) fn random(generator: &mut RandomGenerator) -> Result<Self, RandomError> {
        let mut seed = Self(Box::new([0; 32]));
        generator.fill(&mut *seed.0)?;
        wipe_stack();
        Ok(seed)
    }

    pub(crate) fn from_bytes(bytes: &[u8; 32]) -> Self {
        let mut seed = Self(Box::new([0; 32]));
        seed.0.copy_from_slice(bytes);
        seed
    }

    /// The encoding for the store.
    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The ephemeral secret e.
    pub(crate) fn ephemeral(&self) -> SessionSecret {
        let mut bytes = Zeroizing::new([0; 64]);
        for (half, number) in bytes.chunks_exact_mut(32).zip([1, 2]) {
            half.copy_from_slice(&*Zeroizing::new(mac(&*self.0, &[b"ephemeral", &[number]])));
        }
        SessionSecret::new(&bytes)
    }

    /// The sharing of `s_t`.
    fn split(
        &self,
        label: Label,
        share: &SecretInteger,
        new: &CombinatorialSharing,
        parameters: &RefreshParameters,
    ) -> SplitInteger {
        let seed = |it: Label| {
            ShareExpansionSeed(mac(
                &*self.0,
                &[b"subshare", &label.0.to_be_bytes(), &it.0.to_be_bytes()],
            ))
        };
        // Reserve room for all, because a buffer that grows leaves copies.
        let mut seeds = Vec::with_capacity(new.label_count());
        seeds.extend(new.labels().filter(|&label| label != REMAINDER).map(seed));
        parameters.range.split_with(share, seeds)
    }

    /// The proofs of a row (old node, step 2): p_{t,u} = g^{s_{t,u}}, concatenated.
    pub(crate) fn prove_row(
        &self,
        label: Label,
        share: &SecretInteger,
        new: &CombinatorialSharing,
        parameters: &RefreshParameters,
    ) -> Vec<u8> {
        let split = self.split(label, share, new, parameters);
        let proof = |label| parameters.power(&split.share(label)).to_be_bytes();
        new.labels().flat_map(proof).collect()
    }

    /// The ciphertext of a row's subshares for a new server (old node, step 3).
    fn seal_row(
        &self,
        cipher: &SessionCipher,
        (label, share): (Label, &SecretInteger),
        to: ServerIndex,
        new: &CombinatorialSharing,
        parameters: &RefreshParameters,
    ) -> Vec<u8> {
        let split = self.split(label, share, new, parameters);
        let mut plaintext = Zeroizing::new(Vec::with_capacity(row_len(new, to, parameters)));
        for label in new.labels_of(to) {
            match split.seed(label) {
                Some(seed) => plaintext.extend(seed.0),
                None => plaintext.extend_from_slice(&split.share(label).to_be_bytes()),
            }
        }
        cipher.seal(label, &plaintext)
    }

    /// The ciphertexts of all rows for a new server, with the dealer's signature.
    pub(crate) fn deliver<'a>(
        &self,
        digest: Sha256Digest,
        shares: impl IntoIterator<Item = (Label, &'a SecretInteger)>,
        (to, key): (ServerIndex, &SessionPoint),
        new: &CombinatorialSharing,
        parameters: &RefreshParameters,
        identity: &IdentitySecretKey,
    ) -> DealingDelivery {
        let agreed = self.ephemeral().agree(key);
        let cipher = SessionCipher::new(&agreed, &DealingManifest::session_context(digest, to));
        let seal = |row| self.seal_row(&cipher, row, to, new, parameters);
        let ciphertexts: Vec<_> = shares.into_iter().map(seal).collect();
        let digests: Vec<_> = ciphertexts.iter().map(|it| ciphertext_digest(it)).collect();
        let signature = identity.sign(&DealingManifest::delivery(digest, to, &digests));
        DealingDelivery { ciphertexts, signature }
    }
}

/// The length of a row's plaintext for a new server in bytes.
fn row_len(
    new: &CombinatorialSharing,
    server: ServerIndex,
    parameters: &RefreshParameters,
) -> usize {
    let len = |label| if label == REMAINDER { parameters.range.encoded_len() } else { SEED_LEN };
    new.labels_of(server).map(len).sum()
}

/// Decrypts a row for a new server: its subshares s_{t,u}, by u. `None` if it is malformed.
pub(crate) fn open_row(
    cipher: &SessionCipher,
    label: Label,
    ciphertext: &[u8],
    server: ServerIndex,
    new: &CombinatorialSharing,
    parameters: &RefreshParameters,
) -> Option<Vec<SecretInteger>> {
    if ciphertext.len() != row_len(new, server, parameters) + TAG_LEN {
        return None;
    }
    let plaintext = cipher.open(label, ciphertext)?;
    let mut reader = FieldReader::new(&plaintext);
    let mut subshare = |label| {
        if label == REMAINDER {
            parameters.range.parse(reader.bytes(parameters.range.encoded_len()).ok()?)
        } else {
            Some(parameters.range.expand(&ShareExpansionSeed(reader.take().ok()?)))
        }
    };
    new.labels_of(server).map(&mut subshare).collect()
}

/// The proofs of a dealing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DealingProofs {
    pub(crate) manifest: DealingManifest,
    pub(crate) digest: Sha256Digest,
    /// For each t of the manifest, p_{t,u} for all u, concatenated.
    pub(crate) rows: Vec<Vec<u8>>,
}

impl DealingProofs {
    /// The proofs of these rows, and their manifest.
    pub(crate) fn new(
        run: Sha256Digest,
        dealer: ServerIndex,
        round: DealingRound,
        ephemeral: SessionPoint,
        rows: Vec<(Label, Vec<u8>)>,
    ) -> Self {
        let digests = rows.iter().map(|(label, row)| (*label, proofs_digest(row))).collect();
        let manifest = DealingManifest { run, dealer, round, ephemeral, rows: digests };
        let rows = rows.into_iter().map(|(_, row)| row).collect();
        Self { digest: manifest.digest(), manifest, rows }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        self.manifest.write(out);
        for row in &self.rows {
            out.put_counted(row);
        }
    }

    /// Reads proofs, which must match their manifest.
    pub(crate) fn read(reader: &mut FieldReader<'_>) -> Result<Self, MalformedEncoding> {
        let manifest = DealingManifest::read(reader)?;
        let row = |(_, digest): &(Label, Sha256Digest)| {
            let row = reader.counted()?;
            let matches = proofs_digest(row) == *digest;
            if matches {
                Ok(row.to_vec())
            } else {
                Err(MalformedEncoding("proofs are not the manifest's"))
            }
        };
        let rows = manifest.rows.iter().map(row).collect::<Result<_, _>>()?;
        Ok(Self { digest: manifest.digest(), manifest, rows })
    }

    /// The proofs of a row as numbers.
    fn elements(
        &self,
        row: usize,
        count: usize,
        parameters: &RefreshParameters,
    ) -> Option<Vec<RsaElement>> {
        parse_elements(&self.rows[row], count, &parameters.modulus)
    }

    /// The proofs of the row with a label as numbers.
    pub(crate) fn row(
        &self,
        label: Label,
        count: usize,
        parameters: &RefreshParameters,
    ) -> Option<Vec<RsaElement>> {
        let row = self.manifest.labels().position(|it| it == label)?;
        self.elements(row, count, parameters)
    }
}

/// The part of a dealing for one new server, besides the proofs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DealingDelivery {
    /// The ciphertexts of its subshares, by row.
    pub(crate) ciphertexts: Vec<Vec<u8>>,
    pub(crate) signature: [u8; 64],
}

impl DealingDelivery {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        for ciphertext in &self.ciphertexts {
            out.put_counted(ciphertext);
        }
        out.extend(self.signature);
    }

    /// Reads the ciphertexts of `rows` rows.
    pub(crate) fn read(
        reader: &mut FieldReader<'_>,
        rows: usize,
    ) -> Result<Self, MalformedEncoding> {
        let ciphertext = |_| reader.counted().map(<[u8]>::to_vec);
        let ciphertexts = (0..rows).map(ciphertext).collect::<Result<_, _>>()?;
        Ok(Self { ciphertexts, signature: reader.take()? })
    }

    pub(crate) fn digests(&self) -> Vec<Sha256Digest> {
        self.ciphertexts.iter().map(|it| ciphertext_digest(it)).collect()
    }
}

/// A dealing as one new server receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dealing {
    pub(crate) proofs: Arc<DealingProofs>,
    pub(crate) delivery: Arc<DealingDelivery>,
}

impl Dealing {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        self.proofs.write(out);
        self.delivery.write(out);
    }

    pub(crate) fn read(reader: &mut FieldReader<'_>) -> Result<Self, MalformedEncoding> {
        let proofs = DealingProofs::read(reader)?;
        let delivery = DealingDelivery::read(reader, proofs.rows.len())?;
        Ok(Self { proofs: Arc::new(proofs), delivery: Arc::new(delivery) })
    }

    /// Whether all parts have the lengths that this receiver expects.
    pub(crate) fn has_lengths(
        &self,
        to: ServerIndex,
        new: &CombinatorialSharing,
        parameters: &RefreshParameters,
    ) -> bool {
        let row = new.label_count() * parameters.element_len();
        let ciphertext = row_len(new, to, parameters) + TAG_LEN;
        self.proofs.rows.iter().all(|it| it.len() == row)
            && self.delivery.ciphertexts.iter().all(|it| it.len() == ciphertext)
    }

    /// The subshares of a row. `None` if the ciphertext is invalid.
    pub(crate) fn open(
        &self,
        row: usize,
        receiver: &DealingReceiver<'_>,
        cipher: &SessionCipher,
    ) -> Option<Vec<SecretInteger>> {
        let DealingReceiver { index, new, parameters, .. } = *receiver;
        let (label, _) = self.proofs.manifest.rows[row];
        open_row(cipher, label, &self.delivery.ciphertexts[row], index, new, parameters)
    }

    /// Checks the proofs (new node, step 5).
    ///
    /// # Errors
    /// If the operating system gives no random bytes.
    pub(crate) fn verify(
        &self,
        receiver: &DealingReceiver<'_>,
        witnesses: &ShareWitnesses,
        generator: &mut RandomGenerator,
    ) -> Result<DealingVerdict, RandomError> {
        let DealingReceiver { new, parameters, .. } = *receiver;
        let count = new.label_count();
        let mut rows = Vec::with_capacity(self.proofs.rows.len());
        for (row, label) in self.proofs.manifest.labels().enumerate() {
            let elements = self.proofs.elements(row, count, parameters);
            let Some(elements) = elements else { return Ok(DealingVerdict::WrongProofs) };
            // Equation 3.4.
            let product = parameters.modulus.product(&elements);
            if !product.has_same_square(witnesses.witness(label)) {
                return Ok(DealingVerdict::WrongProofs);
            }
            rows.push(elements);
        }
        let cipher = receiver.cipher(&self.proofs);
        let mut subshares = Vec::with_capacity(rows.len());
        for (row, label) in self.proofs.manifest.labels().enumerate() {
            let first = new.labels_of(receiver.index).next().expect("every server holds shares");
            let Some(opened) = self.open(row, receiver, &cipher) else {
                return Ok(DealingVerdict::WrongSubshare { label, subshare: first });
            };
            subshares.push(opened);
        }
        // Equation 3.3, checked for all subshares by one random combination.
        let labels: Vec<Label> = new.labels_of(receiver.index).collect();
        let terms = |row: usize| {
            let proof = |label: &Label| &rows[row][usize::from(label.0)];
            labels.iter().map(proof).zip(&subshares[row]).collect::<Vec<_>>()
        };
        let all: Vec<_> = (0..rows.len()).flat_map(terms).collect();
        if parameters.are_proofs_of(&all, generator)? {
            return Ok(DealingVerdict::Right);
        }
        for (row, label) in self.proofs.manifest.labels().enumerate() {
            let terms = terms(row);
            if parameters.are_proofs_of(&terms, generator)? {
                continue;
            }
            for (term, subshare) in terms.iter().zip(&labels) {
                if !parameters.power(term.1).has_same_square(term.0) {
                    return Ok(DealingVerdict::WrongSubshare { label, subshare: *subshare });
                }
            }
        }
        unreachable!("a combination of right subshares is right")
    }
}

/// A new server that receives dealings.
#[derive(Clone, Copy)]
pub(crate) struct DealingReceiver<'a> {
    pub(crate) index: ServerIndex,
    pub(crate) session: &'a SessionSecret,
    pub(crate) new: &'a CombinatorialSharing,
    pub(crate) parameters: &'a RefreshParameters,
}

impl DealingReceiver<'_> {
    /// The key for a dealing's ciphertexts for this server.
    pub(crate) fn cipher(&self, proofs: &DealingProofs) -> SessionCipher {
        let agreed = self.session.agree(&proofs.manifest.ephemeral);
        SessionCipher::new(&agreed, &DealingManifest::session_context(proofs.digest, self.index))
    }
}

/// The result of checking a dealing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DealingVerdict {
    /// The dealing is valid.
    Right,
    /// The proofs are not those of a sharing of the shares. No correct server confirms the dealing.
    WrongProofs,
    /// The subshare s_{t,u} does not match its proof, or the row's ciphertext is invalid.
    WrongSubshare {
        /// t
        label: Label,
        /// u
        subshare: Label,
    },
}
