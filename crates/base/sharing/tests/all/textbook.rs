//! What the tests compare with: GF(2^8) by logarithms, as textbooks have it, and small helpers.
//! Written apart from the crate, so that the two can only agree by being right.

use sunder_sharing::{SecretSharingScheme, SharingParameters, Splitter};

/// Multiplies by logarithms to the base 3, which generates the field's group.
pub(crate) fn multiply(a: u8, b: u8) -> u8 {
    let (logarithms, powers) = tables();
    if a == 0 || b == 0 {
        return 0;
    }
    powers
        [(usize::from(logarithms[usize::from(a)]) + usize::from(logarithms[usize::from(b)])) % 255]
}

/// `1 / a`, for `a` that is not zero.
pub(crate) fn invert(a: u8) -> u8 {
    let (logarithms, powers) = tables();
    assert_ne!(a, 0, "zero has no inverse");
    powers[(255 - usize::from(logarithms[usize::from(a)])) % 255]
}

fn tables() -> &'static ([u8; 256], [u8; 255]) {
    static TABLES: std::sync::OnceLock<([u8; 256], [u8; 255])> = std::sync::OnceLock::new();
    TABLES.get_or_init(|| {
        let (mut logarithms, mut powers) = ([0; 256], [0; 255]);
        let mut power = 1u8;
        for (i, entry) in powers.iter_mut().enumerate() {
            *entry = power;
            logarithms[usize::from(power)] = u8::try_from(i).unwrap();
            let doubled = (power << 1) ^ if power & 0x80 == 0 { 0 } else { 0x1B };
            power ^= doubled;
        }
        (logarithms, powers)
    })
}

/// The value at `x` of a polynomial, its lowest coefficient first.
pub(crate) fn evaluate(coefficients: &[u8], x: u8) -> u8 {
    coefficients.iter().rev().fold(0, |value, &coefficient| multiply(value, x) ^ coefficient)
}

/// All valid sharings with at most `m` shares.
pub(crate) fn sharings(m: u8) -> Vec<SharingParameters> {
    let shamir =
        (1..=m).flat_map(|m| (1..=m).map(move |k| SharingParameters::shamir(k, m).unwrap()));
    shamir.chain((1..=m).map(|n| SharingParameters::xor(n).unwrap())).collect()
}

/// All subsets of `0..s` with `k` members.
pub(crate) fn subsets(s: usize, k: usize) -> Vec<Vec<usize>> {
    if k == 0 {
        return vec![vec![]];
    }
    let with_last = |last: usize| {
        subsets(last, k - 1).into_iter().map(move |subset| [subset, vec![last]].concat())
    };
    (k - 1..s).flat_map(with_last).collect()
}

/// The coordinates of shares with these indices.
pub(crate) fn coordinates(indices: &[usize]) -> Vec<u8> {
    indices.iter().map(|&i| u8::try_from(i + 1).unwrap()).collect()
}

/// The name of a sharing in a failed test's message.
pub(crate) fn name(sharing: SharingParameters) -> String {
    let scheme = match sharing.scheme() {
        SecretSharingScheme::Xor => "xor",
        SecretSharingScheme::Shamir => "shamir",
    };
    format!("{scheme} {} of {}", sharing.threshold(), sharing.shares())
}

/// Splits with the seeded generator.
pub(crate) fn split(sharing: SharingParameters, secret: &[u8]) -> Vec<Vec<u8>> {
    let mut generator = random::RandomGenerator::seeded().unwrap();
    let mut shares = vec![vec![0; secret.len()]; usize::from(sharing.shares())];
    let mut views: Vec<&mut [u8]> = shares.iter_mut().map(Vec::as_mut_slice).collect();
    Splitter::new(sharing).split(secret, &mut views, &mut generator).unwrap();
    shares
}

/// Splits given the first `k - 1` shares.
pub(crate) fn split_given(
    sharing: SharingParameters,
    secret: &[u8],
    random: &[Vec<u8>],
) -> Vec<Vec<u8>> {
    split_by(&Splitter::new(sharing), secret, random)
}

/// The same with this splitter.
pub(crate) fn split_by(splitter: &Splitter, secret: &[u8], random: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut shares = random.to_vec();
    shares.resize(usize::from(splitter.sharing().shares()), vec![0; secret.len()]);
    let mut views: Vec<&mut [u8]> = shares.iter_mut().map(Vec::as_mut_slice).collect();
    splitter.danger_split_given_random_shares(secret, &mut views).unwrap();
    shares
}

/// A fixed generator for the tests' own choices, with draws of the shapes that they need.
pub(crate) struct TestRng(sim::SeededRng);

impl TestRng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(sim::SeededRng::new(seed))
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0.index(bound)
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let [byte] = self.0.bytes();
        byte
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let words = (0..len.div_ceil(8)).flat_map(|_| self.0.next_u64().to_le_bytes());
        words.take(len).collect()
    }

    /// `count` distinct numbers below `bound`.
    pub(crate) fn choose(&mut self, count: usize, bound: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..bound).collect();
        self.0.shuffle(&mut all);
        all.truncate(count);
        all
    }
}
