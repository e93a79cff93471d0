//! Sharing of a scalar among n = 3f+1 servers by a symmetric polynomial in two variables.
//!
//! F(x, y) = F(y, x) has the degree f in each variable, and F(0, 0) is the secret. Server j has the
//! *row* F(j, y), whose value at 0 is its share: a point of the polynomial F(x, 0) of degree f, as
//! in Shamir's scheme. Two servers have a common value, F(j, k). So a server that lacks its row can
//! interpolate it from f+1 common values, and those that help it learn and reveal nothing else
//! (Cachin, Kursawe, Lysyanskaya and Strobl 2002). The commitment to F has the coefficients times
//! the base point (Feldman 1987).

use curve25519_dalek::EdwardsPoint;
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::{Identity, VartimeMultiscalarMul as _};
use encoding::FieldReader;
use random::wipe_stack;
use zeroize::Zeroizing;

use ::handover::element::{
    MalformedHandoverMessage, PrimeOrderPoint, half_sha512, hash_to_scalar, read_scalar,
};
use ::handover::participant::{GroupSize, ParticipantId};

/// The coefficients of x^a y^b with a <= b, in lexicographic order.
fn pairs(size: GroupSize) -> impl Iterator<Item = (usize, usize)> {
    (0..=size.faulty()).flat_map(move |a| (a..=size.faulty()).map(move |b| (a, b)))
}

/// The place of the coefficient of x^a y^b, which is that of x^b y^a.
fn place(size: GroupSize, a: usize, b: usize) -> usize {
    let (a, b) = (a.min(b), a.max(b));
    a * (2 * size.faulty() + 3 - a) / 2 + b - a
}

/// The polynomial F of a dealer. Secret.
pub struct SharingPolynomial {
    size: GroupSize,
    pub(crate) coefficients: Zeroizing<Vec<Scalar>>,
}

impl SharingPolynomial {
    /// A polynomial with this secret. All other coefficients are derived from the seed, which must
    /// be used for nothing else.
    pub(crate) fn new(secret: &Scalar, size: GroupSize, seed: &[u8; 32]) -> Self {
        let mut coefficients = Zeroizing::new(Vec::with_capacity(pairs(size).count()));
        for (a, b) in pairs(size) {
            let term = [a, b].map(|it| u8::try_from(it).expect("f is at most 33"));
            coefficients.push(match (a, b) {
                (0, 0) => *secret,
                _ => hash_to_scalar(&[b"sunder-schnorr coefficient v1\0", seed, &term]),
            });
        }
        wipe_stack();
        Self { size, coefficients }
    }

    pub(crate) fn secret(&self) -> &Scalar {
        &self.coefficients[0]
    }

    pub(crate) fn commitment(&self) -> SharingCommitment {
        let points = self.coefficients.iter().map(PrimeOrderPoint::base).collect();
        wipe_stack();
        SharingCommitment { size: self.size, points }
    }

    /// F(j, y).
    pub(crate) fn row(&self, server: ParticipantId) -> ShareRow {
        let x = server.scalar();
        let mut row = ShareRow::zero(self.size);
        for (b, coefficient) in row.0.iter_mut().enumerate() {
            for a in (0..=self.size.faulty()).rev() {
                *coefficient = *coefficient * x + self.coefficients[place(self.size, a, b)];
            }
        }
        wipe_stack();
        row
    }
}

/// A server's row F(j, y). Secret, and wiped. Its length depends on f only.
pub struct ShareRow(Zeroizing<Vec<Scalar>>);

impl ShareRow {
    fn zero(size: GroupSize) -> Self {
        Self(Zeroizing::new(vec![Scalar::ZERO; size.signer_count()]))
    }

    /// The length of the encoding in bytes.
    pub(crate) fn encoded_len(size: GroupSize) -> usize {
        32 * size.signer_count()
    }

    /// F(j, 0), the server's share of the secret.
    pub(crate) fn share(&self) -> &Scalar {
        &self.0[0]
    }

    /// F(j, k).
    pub(crate) fn at(&self, server: ParticipantId) -> Zeroizing<Scalar> {
        let y = server.scalar();
        let value = self.0.iter().rev().fold(Scalar::ZERO, |sum, it| sum * y + it);
        let value = Zeroizing::new(value);
        wipe_stack();
        value
    }

    /// The sum of rows, each times its weight.
    pub(crate) fn combine<'a>(
        size: GroupSize,
        rows: impl IntoIterator<Item = (Scalar, &'a Self)>,
    ) -> Self {
        let mut sum = Self::zero(size);
        for (weight, row) in rows {
            for (sum, coefficient) in sum.0.iter_mut().zip(row.0.iter()) {
                *sum += weight * coefficient;
            }
        }
        wipe_stack();
        sum
    }

    /// The row of server j with these values F(j, k) at f+1 different k.
    fn interpolate(size: GroupSize, values: &[(ParticipantId, Zeroizing<Scalar>)]) -> Self {
        let mut row = Self::zero(size);
        for (server, value) in values {
            // The polynomial that is 1 at this server and 0 at the others. It is not secret.
            let mut basis = vec![Scalar::ONE];
            let mut denominator = Scalar::ONE;
            for (other, _) in values.iter().filter(|(other, _)| other != server) {
                basis.push(Scalar::ZERO);
                for place in (0..basis.len()).rev() {
                    let lower = if place == 0 { Scalar::ZERO } else { basis[place - 1] };
                    basis[place] = lower - other.scalar() * basis[place];
                }
                denominator *= server.scalar() - other.scalar();
            }
            let scale = Zeroizing::new(**value * denominator.invert());
            for (sum, coefficient) in row.0.iter_mut().zip(&basis) {
                *sum += *scale * coefficient;
            }
        }
        wipe_stack();
        row
    }

    /// The encoding, with room for `extra` more bytes.
    pub(crate) fn to_bytes(&self, extra: usize) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(32 * self.0.len() + extra));
        for coefficient in self.0.iter() {
            bytes.extend(coefficient.as_bytes());
        }
        bytes
    }

    pub(crate) fn read(
        reader: &mut FieldReader<'_>,
        size: GroupSize,
    ) -> Result<Self, MalformedHandoverMessage> {
        let mut row = Self::zero(size);
        for coefficient in row.0.iter_mut() {
            *coefficient = read_scalar(reader)?;
        }
        Ok(row)
    }
}

/// The public commitment to a sharing. It determines the public key and each server's verification
/// share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharingCommitment {
    size: GroupSize,
    points: Vec<PrimeOrderPoint>,
}

impl SharingCommitment {
    /// The size of the group.
    pub fn size(&self) -> GroupSize {
        self.size
    }

    /// F(0, 0) times the base point. For the sharing of a group this is the public key.
    pub fn public_key(&self) -> &PrimeOrderPoint {
        &self.points[0]
    }

    /// The verification share of a server: its share times the base point.
    pub fn verification_share(&self, server: ParticipantId) -> PrimeOrderPoint {
        PrimeOrderPoint::new(self.row_coefficient(server, 0))
    }

    /// The coefficient of y^b in F(j, y), times the base point.
    fn row_coefficient(&self, server: ParticipantId, b: usize) -> EdwardsPoint {
        let column = (0..=self.size.faulty()).rev().map(|a| &self.points[place(self.size, a, b)]);
        horner(server, column.map(|it| *it.point()))
    }

    /// Whether this is the row of the server.
    pub(crate) fn fits_row(&self, server: ParticipantId, row: &ShareRow) -> bool {
        let fits = row.0.iter().enumerate().all(|(b, coefficient)| {
            EdwardsPoint::mul_base(coefficient) == self.row_coefficient(server, b)
        });
        wipe_stack();
        fits
    }

    /// Whether this is F(j, k).
    pub(crate) fn fits_value(&self, j: ParticipantId, k: ParticipantId, value: &Scalar) -> bool {
        let degrees = (0..=self.size.faulty()).rev();
        let expected = horner(k, degrees.map(|b| self.row_coefficient(j, b)));
        EdwardsPoint::mul_base(value) == expected
    }

    /// The commitment to the sum of sharings, each times its weight.
    pub(crate) fn combine(size: GroupSize, parts: &[(Scalar, &Self)]) -> Self {
        let weights = || parts.iter().map(|(weight, _)| weight);
        let point = |place: usize| {
            let points = parts.iter().map(|(_, part)| part.points[place].point());
            PrimeOrderPoint::new(EdwardsPoint::vartime_multiscalar_mul(weights(), points))
        };
        Self { size, points: (0..pairs(size).count()).map(point).collect() }
    }

    /// A digest, which stands for the group and its epoch in signed messages.
    pub fn digest(&self) -> [u8; 32] {
        half_sha512(&[b"sunder-schnorr sharing v1\0", &self.to_bytes()])
    }

    /// The encoding: f, and (f+1)(f+2)/2 points.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.size.to_byte()];
        bytes.extend(self.points.iter().flat_map(PrimeOrderPoint::to_bytes));
        bytes
    }

    /// Decodes a commitment.
    ///
    /// # Errors
    /// If the bytes are not exactly a commitment.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MalformedHandoverMessage> {
        let mut reader = FieldReader::new(bytes);
        let commitment = Self::read_from(&mut reader)?;
        reader.finish()?;
        Ok(commitment)
    }

    pub(crate) fn read_from(
        reader: &mut FieldReader<'_>,
    ) -> Result<Self, MalformedHandoverMessage> {
        let size = GroupSize::of_faulty(reader.u8()?);
        let size = size.ok_or(MalformedHandoverMessage("no size of a group"))?;
        let points =
            pairs(size).map(|_| PrimeOrderPoint::read(reader)).collect::<Result<_, _>>()?;
        Ok(Self { size, points })
    }
}

/// The value at a server of a polynomial with these coefficients, the highest first. The server's
/// number is public and has 7 bits, so it is multiplied by doubling.
fn horner(server: ParticipantId, coefficients: impl Iterator<Item = EdwardsPoint>) -> EdwardsPoint {
    coefficients.fold(EdwardsPoint::identity(), |sum, coefficient| {
        let mut product = EdwardsPoint::identity();
        for bit in (0..7).rev() {
            product += product;
            if server.number() >> bit & 1 == 1 {
                product += sum;
            }
        }
        product + coefficient
    })
}

/// The Lagrange coefficient of a server for the value at 0 (RFC 9591, 4.2). `servers` has it.
pub(crate) fn lagrange_at_zero(
    server: ParticipantId,
    servers: impl IntoIterator<Item = ParticipantId>,
) -> Scalar {
    let (mut numerator, mut denominator) = (Scalar::ONE, Scalar::ONE);
    for other in servers.into_iter().filter(|other| *other != server) {
        numerator *= other.scalar();
        denominator *= other.scalar() - server.scalar();
    }
    numerator * denominator.invert()
}

/// Interpolates the row of a server from the values that it has in common with others.
pub struct RowRepair {
    server: ParticipantId,
    values: Vec<(ParticipantId, Zeroizing<Scalar>)>,
}

impl RowRepair {
    /// A repair of the row of this server.
    pub fn new(server: ParticipantId) -> Self {
        Self { server, values: Vec::new() }
    }

    /// Takes a value from another server of the group. Returns the row when f+1 servers have sent
    /// right values. Wrong values, and repeated ones, change nothing.
    pub fn handle_value(
        &mut self,
        sharing: &SharingCommitment,
        from: ParticipantId,
        value: &[u8; 32],
    ) -> Option<ShareRow> {
        let value = Zeroizing::new(read_scalar(&mut FieldReader::new(value)).ok()?);
        let is_new = self.values.iter().all(|(server, _)| *server != from);
        if !is_new || !sharing.size.contains(from) || !sharing.fits_value(self.server, from, &value)
        {
            return None;
        }
        // A vector that grows would leave a copy behind.
        self.values.reserve_exact(sharing.size.signer_count() - self.values.len());
        self.values.push((from, value));
        if self.values.len() < sharing.size.signer_count() {
            return None;
        }
        let row = ShareRow::interpolate(sharing.size, &self.values);
        self.values.clear();
        Some(row)
    }
}

/// A server's part of the group's key in one epoch. The row is wiped when this is dropped, as it
/// must be at the end of the epoch, together with what [`Self::to_bytes`] has made.
pub struct KeyShare {
    server: ParticipantId,
    row: ShareRow,
    sharing: SharingCommitment,
}

impl KeyShare {
    /// A share, if the row is that of the server.
    pub fn new(server: ParticipantId, row: ShareRow, sharing: SharingCommitment) -> Option<Self> {
        let fits = sharing.size.contains(server) && sharing.fits_row(server, &row);
        fits.then_some(Self { server, row, sharing })
    }

    /// The server that holds it.
    pub fn server(&self) -> ParticipantId {
        self.server
    }

    /// The commitment to the group's sharing.
    pub fn sharing(&self) -> &SharingCommitment {
        &self.sharing
    }

    pub(crate) fn secret(&self) -> &Scalar {
        self.row.share()
    }

    /// The value for the repair of another server's row ([`RowRepair`]). Secret: send it to that
    /// server only, over a link with forward secrecy.
    pub fn common_value(&self, other: ParticipantId) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.row.at(other).to_bytes())
    }

    /// The row for the store. Secret.
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
        sharing: SharingCommitment,
    ) -> Result<Self, MalformedHandoverMessage> {
        let mut reader = FieldReader::new(bytes);
        let row = ShareRow::read(&mut reader, sharing.size)?;
        reader.finish()?;
        Self::new(server, row, sharing).ok_or(MalformedHandoverMessage("not this server's row"))
    }
}
