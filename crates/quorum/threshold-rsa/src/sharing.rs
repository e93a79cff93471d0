//! Sharing of M d by a symmetric polynomial of integers in two variables.
//!
//! F(u, v) = F(v, u) has the degree f in each variable, and F(0, 0) = M d. Server j has the row
//! F(j, v), whose value at 0 is its share. Two servers have a common value, F(j, k). The commitment
//! has g to the power of each coefficient. Commitments are compared as squares, because the group
//! of squares has no elements of small order.

use std::sync::Arc;

use encoding::FieldReader;
use handover::element::MalformedHandoverMessage;
use handover::participant::{GroupSize, ParticipantId, ParticipantSet};
use num_bigint::{BigInt, BigUint, Sign};
use num_integer::Integer as _;
use random::wipe_stack;
use rsa_arithmetic::{RsaElement, SecretInteger};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::key::{ThresholdRsaKey, span};
use crate::lagrange::{add_multiple, basis};

const CHECK_DOMAIN: &[u8] = b"sunder-threshold-rsa check of a row v1\0";

/// The coefficients of u^a v^b with a <= b, in lexicographic order.
pub(crate) fn pairs(size: GroupSize) -> impl Iterator<Item = (usize, usize)> {
    (0..=size.faulty()).flat_map(move |a| (a..=size.faulty()).map(move |b| (a, b)))
}

/// The place of the coefficient of u^a v^b, which is that of u^b v^a.
pub(crate) fn place(size: GroupSize, a: usize, b: usize) -> usize {
    let (a, b) = (a.min(b), a.max(b));
    a * (2 * size.faulty() + 3 - a) / 2 + b - a
}

/// The coefficients of a polynomial F in two variables. Secret.
pub(crate) struct IntegerPolynomial {
    pub(crate) size: GroupSize,
    pub(crate) coefficients: Vec<SecretInteger>,
}

impl IntegerPolynomial {
    /// The row F(j, v), whose coefficients have at most `bits` bits.
    pub(crate) fn row(&self, server: ParticipantId, bits: u32) -> IntegerRow {
        let mut row = Vec::with_capacity(self.size.signer_count());
        for b in 0..=self.size.faulty() {
            let mut sum = SecretInteger::zero(bits);
            for a in (0..=self.size.faulty()).rev() {
                let mut next = SecretInteger::zero(bits);
                next.add(&self.coefficients[place(self.size, a, b)]);
                next.add_product(&sum, server.number().into());
                sum = next;
            }
            row.push(sum);
        }
        wipe_stack();
        IntegerRow { size: self.size, coefficients: row }
    }

    /// g to the power of each coefficient.
    pub(crate) fn commit(&self, key: &ThresholdRsaKey) -> Vec<RsaElement> {
        let elements = self.coefficients.iter().map(|it| key.power_of_g(it)).collect();
        wipe_stack();
        elements
    }
}

/// A row F(j, v): f+1 integers of one public width. Secret, and wiped.
pub struct IntegerRow {
    size: GroupSize,
    coefficients: Vec<SecretInteger>,
}

impl IntegerRow {
    /// The public bound on the coefficients.
    fn bits(&self) -> u32 {
        self.coefficients[0].bits()
    }

    /// The coefficients, that of v^0 first.
    #[cfg(test)]
    pub(crate) fn coefficients(&self) -> &[SecretInteger] {
        &self.coefficients
    }

    /// Whether all coefficients have at most `bits` bits.
    pub(crate) fn is_within(&self, bits: u32) -> bool {
        self.coefficients.iter().all(|it| it.is_within(bits))
    }

    /// F(j, 0).
    pub(crate) fn share(&self) -> &SecretInteger {
        &self.coefficients[0]
    }

    /// F(j, k).
    pub(crate) fn at(&self, server: ParticipantId) -> SecretInteger {
        let bits = value_bits(self.size, self.bits());
        let mut sum = SecretInteger::zero(bits);
        for coefficient in self.coefficients.iter().rev() {
            let mut next = SecretInteger::zero(bits);
            next.add(coefficient);
            next.add_product(&sum, server.number().into());
            sum = next;
        }
        wipe_stack();
        sum
    }

    /// The same row with another public bound, which it must keep.
    pub(crate) fn with_bits(&self, bits: u32) -> Self {
        let coefficients = self.coefficients.iter().map(|it| SecretInteger::sum(bits, [it]));
        Self { size: self.size, coefficients: coefficients.collect() }
    }

    /// The sum of rows, each times its weight, less a correction of the constant.
    pub(crate) fn combine(
        size: GroupSize,
        bits: u32,
        rows: &[(&BigInt, &Self)],
        correction: &SecretInteger,
    ) -> Self {
        let mut sum = vec![SecretInteger::zero(bits); size.signer_count()];
        for (weight, row) in rows {
            for (sum, coefficient) in sum.iter_mut().zip(&row.coefficients) {
                add_multiple(sum, coefficient, weight);
            }
        }
        sum[0].subtract(correction);
        wipe_stack();
        Self { size, coefficients: sum }
    }

    /// The row of server j with these values F(j, k) at f+1 different k. `None` if its coefficients
    /// are no integers of at most `bits` bits.
    fn interpolate(
        key: &ThresholdRsaKey,
        size: GroupSize,
        bits: u32,
        values: &[(ParticipantId, SecretInteger)],
    ) -> Option<Self> {
        let servers: Vec<_> = values.iter().map(|(server, _)| *server).collect();
        let polynomials = basis(key.scale(), &servers);
        let scale = key.scale().to_u64_digits();
        let wide =
            value_bits(size, value_bits(size, bits)) + 64 * u32::try_from(scale.len()).ok()?;
        let coefficient = |b: usize| {
            let mut sum = SecretInteger::zero(wide);
            for (polynomial, (_, value)) in polynomials.iter().zip(values) {
                add_multiple(&mut sum, value, &polynomial[b]);
            }
            sum.divide_exactly(bits, &scale)
        };
        let coefficients = (0..=size.faulty()).map(coefficient).collect::<Option<_>>();
        wipe_stack();
        Some(Self { size, coefficients: coefficients? })
    }

    /// The encoding, with room for `extra` more bytes.
    pub(crate) fn to_bytes(&self, extra: usize) -> Zeroizing<Vec<u8>> {
        let len = self.coefficients.len() * SecretInteger::encoded_len(self.bits());
        let mut bytes = Zeroizing::new(Vec::with_capacity(len + extra));
        for coefficient in &self.coefficients {
            bytes.extend(&*coefficient.to_be_bytes());
        }
        bytes
    }

    /// Reads a row whose coefficients have at most `bits` bits.
    pub(crate) fn read(
        reader: &mut FieldReader<'_>,
        size: GroupSize,
        bits: u32,
    ) -> Result<Self, MalformedHandoverMessage> {
        let mut coefficients = Vec::with_capacity(size.signer_count());
        for _ in 0..size.signer_count() {
            let bytes = reader.bytes(SecretInteger::encoded_len(bits))?;
            let coefficient = SecretInteger::from_be_bytes(bits, bytes);
            coefficients
                .push(coefficient.ok_or(MalformedHandoverMessage("an integer is too large"))?);
        }
        Ok(Self { size, coefficients })
    }

    /// The length of the encoding in bytes.
    pub(crate) fn encoded_len(size: GroupSize, bits: u32) -> usize {
        size.signer_count() * SecretInteger::encoded_len(bits)
    }
}

/// The bound on a common value of a row with this bound.
pub(crate) fn value_bits(size: GroupSize, row_bits: u32) -> u32 {
    row_bits + span(size)
}

/// g to the power of the coefficients of a polynomial: the commitment to a dealing or a group's
/// sharing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IntegerCommitment {
    size: GroupSize,
    elements: Vec<RsaElement>,
}

impl IntegerCommitment {
    pub(crate) fn new(size: GroupSize, elements: Vec<RsaElement>) -> Self {
        debug_assert_eq!(elements.len(), pairs(size).count());
        Self { size, elements }
    }

    /// Decodes the elements, which are concatenated. `None` if there is another number of them.
    pub(crate) fn from_bytes(key: &ThresholdRsaKey, size: GroupSize, bytes: &[u8]) -> Option<Self> {
        let modulus = key.group().modulus();
        let count = pairs(size).count();
        if bytes.len() != count * modulus.byte_len() {
            return None;
        }
        let elements = bytes.chunks(modulus.byte_len()).map(|it| modulus.element(it));
        Some(Self { size, elements: elements.collect::<Option<_>>()? })
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.elements.iter().flat_map(RsaElement::to_be_bytes).collect()
    }

    pub(crate) fn size(&self) -> GroupSize {
        self.size
    }

    /// g to the power of F(0, 0).
    pub(crate) fn constant(&self) -> &RsaElement {
        &self.elements[0]
    }

    /// g to the power of the coefficient of v^b in F(j, v).
    pub(crate) fn row_coefficient(&self, server: ParticipantId, b: usize) -> RsaElement {
        let column = (0..=self.size.faulty()).rev().map(|a| &self.elements[place(self.size, a, b)]);
        horner(server, column)
    }

    /// Whether this is the row of the server. All servers come to the same result: the check is of
    /// one random combination of the coefficients, which follows from a hash of all that is
    /// compared. A wrong row passes with a probability of 2^-128.
    pub(crate) fn fits_row(
        &self,
        key: &ThresholdRsaKey,
        server: ParticipantId,
        row: &IntegerRow,
    ) -> bool {
        let factors = self.check_factors(server, row);
        let mut sum = SecretInteger::zero(row.bits() + 128 + 6);
        for (coefficient, factor) in row.coefficients.iter().zip(&factors) {
            sum.add_product(coefficient, u128::from_be_bytes(*factor));
        }
        let expected: Vec<_> =
            (0..=self.size.faulty()).map(|b| self.row_coefficient(server, b)).collect();
        let limbs: Vec<_> =
            factors.iter().map(|it| BigUint::from_bytes_be(it).to_u64_digits()).collect();
        let terms: Vec<_> =
            expected.iter().zip(&limbs).map(|(it, limbs)| (it, &limbs[..])).collect();
        // The time of this product depends on the factors. They may leak: they follow from the row,
        // but only confirm a guess of the whole row.
        let product = key.group().modulus().product_of_long_powers(&terms);
        let fits = key.power_of_g(&sum).has_same_square(&product);
        wipe_stack();
        fits
    }

    /// The factors of a combination of coefficients. A function of its own, so that the stack on
    /// which it hashes the row is overwritten by its caller.
    #[inline(never)]
    fn check_factors(&self, server: ParticipantId, row: &IntegerRow) -> Vec<[u8; 16]> {
        let mut hash = Sha256::new().chain_update(CHECK_DOMAIN).chain_update([server.number()]);
        hash.update(self.to_bytes());
        hash.update(&*row.to_bytes(0));
        let mut factors = vec![[0; 16]; row.coefficients.len()];
        keys::rsa::mgf1(&[CHECK_DOMAIN, &hash.finalize()], factors.as_flattened_mut());
        factors
    }

    /// Whether this is F(j, k).
    pub(crate) fn fits_value(
        &self,
        key: &ThresholdRsaKey,
        j: ParticipantId,
        k: ParticipantId,
        value: &SecretInteger,
    ) -> bool {
        let row: Vec<_> =
            (0..=self.size.faulty()).rev().map(|b| self.row_coefficient(j, b)).collect();
        key.power_of_g(value).has_same_square(&horner(k, row.iter()))
    }

    /// The commitment to the sum of polynomials, each times its weight. The constant is replaced.
    pub(crate) fn combine(
        key: &ThresholdRsaKey,
        size: GroupSize,
        parts: &[(&BigInt, &Self)],
        constant: RsaElement,
    ) -> Self {
        let terms =
            |place: usize| parts.iter().map(move |(weight, part)| (&part.elements[place], *weight));
        let terms: Vec<Vec<_>> =
            (1..pairs(size).count()).map(|place| terms(place).collect()).collect();
        let mut elements = vec![constant];
        elements.extend(products_of_powers(key, &terms));
        Self { size, elements }
    }
}

/// The value at a server of a polynomial in the exponent with these coefficients, the highest
/// first.
fn horner<'a>(
    server: ParticipantId,
    coefficients: impl Iterator<Item = &'a RsaElement>,
) -> RsaElement {
    let sum = coefficients.fold(None::<RsaElement>, |sum, coefficient| {
        Some(match sum {
            Some(sum) => sum.pow(server.number().into()).times(coefficient),
            None => coefficient.clone(),
        })
    });
    sum.expect("a polynomial has f+1 coefficients")
}

/// A public number to a public power.
pub(crate) fn public_power(
    key: &ThresholdRsaKey,
    base: &RsaElement,
    exponent: &BigUint,
) -> RsaElement {
    key.group().modulus().product_of_long_powers(&[(base, &exponent.to_u64_digits())])
}

/// Numbers, each with a public exponent.
type Powers<'a> = Vec<(&'a RsaElement, &'a BigInt)>;

/// The product of numbers, each raised to a public exponent.
pub(crate) fn product_of_powers(key: &ThresholdRsaKey, terms: Powers<'_>) -> RsaElement {
    products_of_powers(key, &[terms]).swap_remove(0)
}

/// The product for each of several lists.
fn products_of_powers(key: &ThresholdRsaKey, lists: &[Powers<'_>]) -> Vec<RsaElement> {
    let modulus = key.group().modulus();
    // Weights have most of their factors in common: these are applied once.
    let commons: Vec<BigInt> = lists
        .iter()
        .map(|terms| terms.iter().fold(BigInt::ZERO, |common, (_, it)| common.gcd(it)))
        .collect();
    let of_sign = |sign: Sign| {
        let products = lists.iter().zip(&commons).map(move |(terms, common)| {
            let terms: Vec<_> = terms
                .iter()
                .filter(|(_, exponent)| exponent.sign() == sign)
                .map(|(base, exponent)| (*base, (*exponent / common).magnitude().to_u64_digits()))
                .collect();
            let terms: Vec<_> = terms.iter().map(|(base, limbs)| (*base, &limbs[..])).collect();
            modulus.product_of_long_powers(&terms)
        });
        products.collect::<Vec<_>>()
    };
    let quotients = of_sign(Sign::Plus).into_iter().zip(inverses(key, &of_sign(Sign::Minus)));
    let quotients = quotients.map(|(dividend, inverse)| dividend.times(&inverse));
    quotients.zip(&commons).map(|(it, common)| public_power(key, &it, common.magnitude())).collect()
}

/// The inverses of numbers, by one inversion and products. A number without an inverse reveals a
/// factor of N. The sender of such a number knows the key, so all are replaced by 1 then.
fn inverses(key: &ThresholdRsaKey, numbers: &[RsaElement]) -> Vec<RsaElement> {
    let one = key.group().modulus().one();
    // Before each number, the product of those before it.
    let mut products = Vec::with_capacity(numbers.len());
    let product = numbers.iter().fold(one.clone(), |product, number| {
        products.push(product.clone());
        product.times(number)
    });
    let Some(mut inverse) = product.inverse() else { return vec![one; numbers.len()] };
    let mut inverses: Vec<_> = numbers
        .iter()
        .zip(&products)
        .rev()
        .map(|(number, before)| {
            let of_number = inverse.times(before);
            inverse = inverse.times(number);
            of_number
        })
        .collect();
    inverses.reverse();
    inverses
}

/// The public sharing of a key among the servers of a group in one epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThresholdRsaSharing {
    key: ThresholdRsaKey,
    /// Shared, because it is large, and a server keeps the sharing at several places.
    commitment: Arc<IntegerCommitment>,
    digest: [u8; 32],
}

impl ThresholdRsaSharing {
    pub(crate) fn new(key: ThresholdRsaKey, commitment: IntegerCommitment) -> Self {
        let mut sharing = Self { key, commitment: Arc::new(commitment), digest: [0; 32] };
        sharing.digest = sharing.compute_digest();
        sharing
    }

    fn compute_digest(&self) -> [u8; 32] {
        let group = Sha256::digest(self.key.group().to_bytes());
        Sha256::new()
            .chain_update(b"sunder-threshold-rsa sharing v1\0")
            .chain_update(group)
            .chain_update(self.to_bytes())
            .finalize()
            .into()
    }

    /// The key.
    pub fn key(&self) -> &ThresholdRsaKey {
        &self.key
    }

    /// The size of the group.
    pub fn size(&self) -> GroupSize {
        self.commitment.size()
    }

    /// g to the power of a server's share.
    pub fn verification_share(&self, server: ParticipantId) -> RsaElement {
        self.commitment.row_coefficient(server, 0)
    }

    /// A digest, which stands for the key, the group and its epoch in proofs.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// The encoding: f of the largest group that may have the key, f, and the commitment.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.key.largest().to_byte(), self.size().to_byte()];
        bytes.extend(self.commitment.to_bytes());
        bytes
    }

    /// Decodes a sharing of this key.
    ///
    /// # Errors
    /// If the bytes are not exactly the sharing of this key in a group.
    pub fn from_bytes(
        key: &ThresholdRsaKey,
        bytes: &[u8],
    ) -> Result<Self, MalformedHandoverMessage> {
        let mut reader = FieldReader::new(bytes);
        if reader.u8()? != key.largest().to_byte() {
            return Err(MalformedHandoverMessage("for another largest group"));
        }
        let size = GroupSize::of_faulty(reader.u8()?).filter(|size| key.admits(*size));
        let size = size.ok_or(MalformedHandoverMessage("no size of a group"))?;
        let commitment = IntegerCommitment::from_bytes(key, size, reader.rest())
            .ok_or(MalformedHandoverMessage("no commitment"))?;
        if !commitment.constant().has_same_square(key.constant()) {
            return Err(MalformedHandoverMessage("the sharing of another key"));
        }
        Ok(Self::new(key.clone(), commitment))
    }
}

/// Interpolates the row of a server from the values that it has in common with others.
pub struct IntegerRowRepair {
    server: ParticipantId,
    values: Vec<(ParticipantId, SecretInteger)>,
    /// Those that have sent a wrong value, whose further ones are not examined.
    refused: ParticipantSet,
}

impl IntegerRowRepair {
    /// A repair of the row of this server.
    pub fn new(server: ParticipantId) -> Self {
        Self { server, values: Vec::new(), refused: ParticipantSet::default() }
    }

    /// Takes a value from another server of a group with this sharing. Returns the share when f+1
    /// servers have sent right values. Wrong values and repeated ones are not used, and neither is
    /// what else a server sends that has sent a wrong one.
    pub fn handle_value(
        &mut self,
        sharing: &ThresholdRsaSharing,
        from: ParticipantId,
        value: &[u8],
    ) -> Option<ThresholdRsaShare> {
        let bits = sharing.key.row_bits(sharing.size());
        let row = self.add(&sharing.key, &sharing.commitment, bits, from, value)?;
        ThresholdRsaShare::new(self.server, row, sharing.clone())
    }

    /// Takes a value of a polynomial with this commitment, whose rows have at most `bits` bits.
    pub(crate) fn add(
        &mut self,
        key: &ThresholdRsaKey,
        commitment: &IntegerCommitment,
        bits: u32,
        from: ParticipantId,
        value: &[u8],
    ) -> Option<IntegerRow> {
        let size = commitment.size();
        let is_new = self.values.iter().all(|(server, _)| *server != from);
        if !is_new || self.refused.contains(from) || !size.contains(from) {
            return None;
        }
        let value = SecretInteger::from_be_bytes(value_bits(size, bits), value)
            .filter(|it| commitment.fits_value(key, self.server, from, it));
        let Some(value) = value else {
            self.refused.insert(from);
            return None;
        };
        self.values.push((from, value));
        if self.values.len() < size.signer_count() {
            return None;
        }
        let row = IntegerRow::interpolate(key, size, bits, &self.values);
        self.values.clear();
        row
    }
}

/// A server's part of the group's key in one epoch. The row is wiped when this is dropped, as it
/// must be at the end of the epoch, together with what [`Self::to_bytes`] has made.
pub struct ThresholdRsaShare {
    server: ParticipantId,
    row: IntegerRow,
    sharing: ThresholdRsaSharing,
}

impl ThresholdRsaShare {
    /// A share, if the row is that of the server.
    pub fn new(
        server: ParticipantId,
        row: IntegerRow,
        sharing: ThresholdRsaSharing,
    ) -> Option<Self> {
        let fits = sharing.size().contains(server)
            && row.size == sharing.size()
            && sharing.commitment.fits_row(&sharing.key, server, &row);
        fits.then_some(Self { server, row, sharing })
    }

    /// The server that holds it.
    pub fn server(&self) -> ParticipantId {
        self.server
    }

    /// The public sharing.
    pub fn sharing(&self) -> &ThresholdRsaSharing {
        &self.sharing
    }

    /// F(j, 0).
    pub(crate) fn secret(&self) -> &SecretInteger {
        self.row.share()
    }

    /// The value for the repair of another server's row ([`IntegerRowRepair`]). Secret: send it to
    /// that server only, over a link with forward secrecy.
    pub fn common_value(&self, other: ParticipantId) -> Zeroizing<Vec<u8>> {
        self.row.at(other).to_be_bytes()
    }

    /// The row for the store, of [`ThresholdRsaKey::share_len`] bytes. Secret.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        self.row.to_bytes(0)
    }

    /// Decodes the output of [`Self::to_bytes`].
    ///
    /// # Errors
    /// If the bytes are not a row, or not that of the server.
    pub fn from_bytes(
        server: ParticipantId,
        bytes: &[u8],
        sharing: ThresholdRsaSharing,
    ) -> Result<Self, MalformedHandoverMessage> {
        let mut reader = FieldReader::new(bytes);
        let bits = sharing.key.row_bits(sharing.size());
        let row = IntegerRow::read(&mut reader, sharing.size(), bits)?;
        reader.finish()?;
        Self::new(server, row, sharing).ok_or(MalformedHandoverMessage("not this server's row"))
    }
}
