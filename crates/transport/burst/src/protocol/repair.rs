//! Repair packets: a systematic erasure code, which recovers a loss at the end of a transfer
//! without a further round trip.
//!
//! A generation is n packets (1 to 128) of equal length and m repair packets (0 to 64). Any n of
//! the n + m are enough to recover all n. Repair packet r is the linear combination of the packets
//! over GF(2^8) modulo 0x11B, byte for byte,
//!
//! ```text
//! repair_r = sum_i packet_i / (x_r + y_i)      x_r = 128 + r,  y_i = i
//! ```
//!
//! which forms a Cauchy matrix: each of its square submatrices has an inverse (Blömer et al. 1995).
//! The weights are public. The kernels of crate `sharing` multiply the bytes.
//!
//! ```
//! use sunder_burst::repair::{RepairDecoder, RepairEncoder, count};
//!
//! // One loss in 100: how many repair packets for 8 packets, to fail once in 1,000 times?
//! let m = count(8, 0.01, 1e-3);
//! assert_eq!(m, 2);
//!
//! let mut encoder = RepairEncoder::new(8, m);
//! let mut decoder = RepairDecoder::new(8, m, 100);
//! for index in 0..8 {
//!     let packet = [index as u8; 100];
//!     encoder.add(index, &packet);
//!     if index != 2 && index != 5 {
//!         decoder.add_source(index, &packet);
//!     }
//! }
//! for (index, packet) in encoder.packets().iter().enumerate() {
//!     decoder.add_repair(index, packet);
//! }
//! assert_eq!(decoder.recovered(), [(2, vec![2; 100]), (5, vec![5; 100])]);
//! ```

use std::sync::OnceLock;

use sharing::{LinearCombination, field};

/// The largest number of packets in a generation.
pub const MAX_PACKETS: usize = 128;

/// The largest number of repair packets for a generation.
pub const MAX_REPAIR_PACKETS: usize = 64;

/// The smallest number m of repair packets for n packets such that more than m of the n + m are
/// lost with a probability of at most `target`, if each is lost independently with the probability
/// `loss`. At most 64, even if that is not enough. 0 if an argument is out of range.
pub fn count(n: usize, loss: f64, target: f64) -> usize {
    if n == 0 || loss.is_nan() || loss <= 0.0 || target.is_nan() || target >= 1.0 {
        return 0;
    }
    let enough = |&m: &usize| failure(n, m, loss.min(1.0)) <= target;
    (0..MAX_REPAIR_PACKETS).find(enough).unwrap_or(MAX_REPAIR_PACKETS)
}

/// The probability that more than m of n + m are lost.
fn failure(n: usize, m: usize, loss: f64) -> f64 {
    if loss >= 1.0 {
        return 1.0;
    }
    // Sums the improbable terms, as 1 minus the sum of the others would be inexact. Each term
    // follows from the one before; logarithms are used because the first may be too small for an
    // `f64`.
    let total = number(n + m);
    let odds = (loss / (1.0 - loss)).ln();
    let mut term = total * (1.0 - loss).ln();
    let mut sum = 0.0;
    for k in 0..=n + m {
        if k > m {
            sum += term.exp();
        }
        term += (total - number(k)).ln() - number(k + 1).ln() + odds;
    }
    sum
}

#[allow(clippy::cast_precision_loss, reason = "a number of packets")]
fn number(packets: usize) -> f64 {
    packets as f64
}

/// `1 / (x_r + y_i)`. For r < 64 and i < 128 the sum is not 0.
fn weight(repair: usize, source: usize) -> u8 {
    static INVERSES: OnceLock<[u8; 256]> = OnceLock::new();
    let all = || std::array::from_fn(|value| field::invert(value.to_le_bytes()[0]));
    INVERSES.get_or_init(all)[(MAX_PACKETS + repair) ^ source]
}

/// Computes repair packets.
#[derive(Debug)]
pub struct RepairEncoder {
    packets: Vec<Vec<u8>>,
    repair_packets: usize,
}

impl RepairEncoder {
    /// Creates an encoder for a generation of n packets and m repair packets.
    ///
    /// # Panics
    /// Unless n is 1 to 128 and m at most 64.
    pub fn new(n: usize, m: usize) -> Self {
        assert!((1..=MAX_PACKETS).contains(&n) && m <= MAX_REPAIR_PACKETS, "{n} and {m} packets");
        Self { packets: vec![Vec::new(); n], repair_packets: m }
    }

    /// Adds a packet. A shorter packet than the longest is padded with zeros, and a missing one
    /// counts as zeros. A receiver that needs the original lengths must find them in the packets.
    ///
    /// # Panics
    /// If the index is not below n.
    pub fn add(&mut self, index: usize, packet: &[u8]) {
        self.packets[index].clear();
        self.packets[index].extend_from_slice(packet);
    }

    /// The m repair packets, each as long as the longest packet.
    pub fn packets(mut self) -> Vec<Vec<u8>> {
        let len = self.packets.iter().map(Vec::len).max().unwrap_or(0);
        for packet in &mut self.packets {
            packet.resize(len, 0);
        }
        let row = |repair| (0..self.packets.len()).map(|source| weight(repair, source)).collect();
        let rows: Vec<Vec<u8>> = (0..self.repair_packets).map(row).collect();
        combine(&rows, &self.packets, len)
    }
}

/// Recovers packets from any n of the n + m, in any order. It keeps at most n packets.
#[derive(Debug)]
pub struct RepairDecoder {
    len: usize,
    sources: Vec<Option<Vec<u8>>>,
    /// At most as many as there are sources missing, unless sources arrived later.
    repairs: Vec<(usize, Vec<u8>)>,
    repair_packets: usize,
}

impl RepairDecoder {
    /// Creates a decoder for a generation of n packets and m repair packets, each of `len` bytes.
    ///
    /// # Panics
    /// Unless n is 1 to 128 and m at most 64.
    pub fn new(n: usize, m: usize, len: usize) -> Self {
        assert!((1..=MAX_PACKETS).contains(&n) && m <= MAX_REPAIR_PACKETS, "{n} and {m} packets");
        Self { len, sources: vec![None; n], repairs: Vec::new(), repair_packets: m }
    }

    /// Adds a packet that has arrived. It is ignored if it is a duplicate, is longer than `len`, or
    /// has an invalid index. A shorter packet is padded with zeros.
    pub fn add_source(&mut self, index: usize, packet: &[u8]) {
        if packet.len() > self.len {
            return;
        }
        if let Some(source @ None) = self.sources.get_mut(index) {
            let mut padded = Vec::with_capacity(self.len);
            padded.extend_from_slice(packet);
            padded.resize(self.len, 0);
            *source = Some(padded);
            let missing = self.missing().count();
            self.repairs.truncate(missing);
        }
    }

    /// Adds a repair packet that has arrived. It is ignored if it is a duplicate, is not needed,
    /// has another length, or has an invalid index.
    pub fn add_repair(&mut self, index: usize, packet: &[u8]) {
        let is_known = self.repairs.iter().any(|(known, _)| *known == index);
        if index < self.repair_packets
            && packet.len() == self.len
            && !is_known
            && self.repairs.len() < self.missing().count()
        {
            self.repairs.push((index, packet.to_vec()));
        }
    }

    /// Whether all packets have arrived or can be recovered.
    pub fn is_complete(&self) -> bool {
        self.repairs.len() >= self.missing().count()
    }

    /// The packets that were missing, with their indices, in order. Empty if too few packets have
    /// arrived.
    pub fn recovered(mut self) -> Vec<(usize, Vec<u8>)> {
        let missing: Vec<usize> = self.missing().collect();
        if missing.is_empty() || self.repairs.len() < missing.len() {
            return Vec::new();
        }
        self.repairs.truncate(missing.len());
        let repairs: Vec<usize> = self.repairs.iter().map(|(repair, _)| *repair).collect();
        let inverse = inverse(&repairs, &missing);
        let present: Vec<usize> =
            (0..self.sources.len()).filter(|index| self.sources[*index].is_some()).collect();
        // missing_j = sum_r inverse_jr (repair_r + sum_i weight_ri present_i)
        let row = |coefficients: &Vec<u8>| {
            let of_present = present.iter().map(|&source| {
                coefficients.iter().zip(&repairs).fold(0, |sum, (&coefficient, &repair)| {
                    sum ^ field::multiply(coefficient, weight(repair, source))
                })
            });
            of_present.chain(coefficients.iter().copied()).collect()
        };
        let rows: Vec<Vec<u8>> = inverse.iter().map(row).collect();
        let arrived: Vec<&Vec<u8>> =
            self.sources.iter().flatten().chain(self.repairs.iter().map(|(_, it)| it)).collect();
        missing.into_iter().zip(combine(&rows, &arrived, self.len)).collect()
    }

    fn missing(&self) -> impl Iterator<Item = usize> {
        let is_missing = |(index, source): (usize, &Option<_>)| source.is_none().then_some(index);
        self.sources.iter().enumerate().filter_map(is_missing)
    }
}

/// The inverse of the Cauchy matrix of these rows and of as many columns, by the closed formula:
/// one row for each column of that matrix.
fn inverse(repairs: &[usize], sources: &[usize]) -> Vec<Vec<u8>> {
    let byte = |value: usize| value.to_le_bytes()[0];
    let x = |r: usize| byte(MAX_PACKETS + repairs[r]);
    let y = |i: usize| byte(sources[i]);
    let product = |factors: &mut dyn Iterator<Item = u8>| factors.fold(1, field::multiply);
    let len = sources.len();
    // prod_k (x_r + y_k) / prod_{k != r} (x_r + x_k), and the same for columns.
    let quotient = |above: u8, below: u8| field::multiply(above, field::invert(below));
    let of_row: Vec<u8> = (0..len)
        .map(|r| {
            let above = product(&mut (0..len).map(|k| x(r) ^ y(k)));
            quotient(above, product(&mut (0..len).filter(|&k| k != r).map(|k| x(r) ^ x(k))))
        })
        .collect();
    let of_column: Vec<u8> = (0..len)
        .map(|i| {
            let above = product(&mut (0..len).map(|k| x(k) ^ y(i)));
            quotient(above, product(&mut (0..len).filter(|&k| k != i).map(|k| y(i) ^ y(k))))
        })
        .collect();
    let entry = |i: usize, r: usize| {
        field::multiply(field::multiply(of_row[r], of_column[i]), weight(repairs[r], sources[i]))
    };
    (0..len).map(|i| (0..len).map(|r| entry(i, r)).collect()).collect()
}

/// Applies the rows to the packets, all of `len` bytes.
fn combine<S: AsRef<[u8]>>(rows: &[Vec<u8>], packets: &[S], len: usize) -> Vec<Vec<u8>> {
    let mut outputs = vec![vec![0; len]; rows.len()];
    if rows.is_empty() {
        return outputs;
    }
    let mut targets: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
    LinearCombination::new(rows).apply(packets, &mut targets);
    outputs
}

#[cfg(test)]
mod tests {
    #![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]

    use proptest::prelude::*;

    use super::*;

    fn bytes(random: &mut sim::SeededRng, len: usize) -> Vec<u8> {
        (0..len).map(|_| random.below(256).to_le_bytes()[0]).collect()
    }

    fn generation(
        random: &mut sim::SeededRng,
        n: usize,
        m: usize,
        len: usize,
    ) -> [Vec<Vec<u8>>; 2] {
        let sources: Vec<Vec<u8>> = (0..n).map(|_| bytes(random, len)).collect();
        let mut encoder = RepairEncoder::new(n, m);
        for (index, source) in sources.iter().enumerate() {
            encoder.add(index, source);
        }
        [sources, encoder.packets()]
    }

    /// The Gauss-Jordan inverse exists and is the one of the formula, for every size.
    #[test]
    fn the_formula_is_the_inverse() {
        let mut random = sim::SeededRng::new(3);
        for len in 1..=MAX_REPAIR_PACKETS {
            let mut draw = |from: usize| {
                let mut all: Vec<usize> = (0..from).collect();
                (0..len)
                    .map(|_| all.swap_remove(random.below(all.len() as u64) as usize))
                    .collect::<Vec<_>>()
            };
            let (repairs, sources) = (draw(MAX_REPAIR_PACKETS), draw(MAX_PACKETS));
            let inverse = inverse(&repairs, &sources);
            for (i, row) in inverse.iter().enumerate() {
                for (j, &source) in sources.iter().enumerate() {
                    let product = row.iter().zip(&repairs).fold(0, |sum, (&entry, &repair)| {
                        sum ^ field::multiply(entry, weight(repair, source))
                    });
                    assert_eq!(product, u8::from(i == j), "{len}: {i}, {j}");
                }
            }
        }
    }

    #[test]
    fn every_choice_of_a_small_generation_recovers() {
        let mut random = sim::SeededRng::new(1);
        for (n, m) in [(1, 1), (2, 3), (4, 2), (5, 5), (7, 3)] {
            let [sources, repairs] = generation(&mut random, n, m, 33);
            for lost in 0..1_u32 << (n + m) {
                let mut decoder = RepairDecoder::new(n, m, 33);
                for index in (0..n).filter(|index| lost >> index & 1 == 0) {
                    decoder.add_source(index, &sources[index]);
                }
                for index in (0..m).filter(|index| lost >> (n + index) & 1 == 0) {
                    decoder.add_repair(index, &repairs[index]);
                }
                let is_enough = lost.count_ones() as usize <= m;
                assert_eq!(decoder.is_complete(), is_enough || lost & ((1 << n) - 1) == 0);
                let expected: Vec<_> = (0..n)
                    .filter(|index| is_enough && lost >> index & 1 == 1)
                    .map(|index| (index, sources[index].clone()))
                    .collect();
                assert_eq!(decoder.recovered(), expected, "{n} of {n} + {m}, lost {lost:b}");
            }
        }
    }

    proptest! {
        /// Any n of n + m recover, in any order, with duplicates and packets of other generations.
        #[test]
        fn any_n_recover(n in 1..=MAX_PACKETS, m in 0..=MAX_REPAIR_PACKETS, len in 0..200_usize,
                         seed in any::<u64>()) {
            let mut random = sim::SeededRng::new(seed);
            let [sources, repairs] = generation(&mut random, n, m, len);
            let mut decoder = RepairDecoder::new(n, m, len);
            let mut left: Vec<usize> = (0..n + m).collect();
            let mut given = Vec::new();
            for _ in 0..n {
                let index = left.swap_remove(random.below(left.len() as u64) as usize);
                given.push(index);
                for index in [index, given[random.below(given.len() as u64) as usize]] {
                    match index.checked_sub(n) {
                        None => decoder.add_source(index, &sources[index]),
                        Some(repair) => decoder.add_repair(repair, &repairs[repair]),
                    }
                }
                // What does not exist.
                decoder.add_source(n + index, &vec![1; len]);
                decoder.add_repair(m + index, &vec![1; len]);
                decoder.add_repair(0, &vec![1; len + 1]);
                decoder.add_source(0, &vec![1; len + 1]);
            }
            prop_assert!(decoder.is_complete());
            let expected: Vec<_> = (0..n)
                .filter(|index| !given.contains(index))
                .map(|index| (index, sources[index].clone()))
                .collect();
            prop_assert_eq!(decoder.recovered(), expected);
        }

        /// Shorter packets come back as packets of the common length.
        #[test]
        fn short_packets_are_padded(lens in prop::collection::vec(0..50_usize, 2..20)) {
            let longest = *lens.iter().max().expect("two at least");
            let (n, mut encoder) = (lens.len(), RepairEncoder::new(lens.len(), 1));
            let mut decoder = RepairDecoder::new(n, 1, longest);
            for (index, &len) in lens.iter().enumerate() {
                encoder.add(index, &vec![7; len]);
                if index > 0 {
                    decoder.add_source(index, &vec![7; len]);
                }
            }
            decoder.add_repair(0, &encoder.packets()[0]);
            let mut expected = vec![7; lens[0]];
            expected.resize(longest, 0);
            prop_assert_eq!(decoder.recovered(), [(0, expected)]);
        }

        #[test]
        fn the_count_is_the_least(n in 1..=128_usize, loss in 0.0001..0.2_f64,
                                  exponent in 0.1..6.0_f64) {
            let target = 10_f64.powf(-exponent);
            let m = count(n, loss, target);
            prop_assert!(m == MAX_REPAIR_PACKETS || failure(n, m, loss) <= target);
            prop_assert!(m == 0 || failure(n, m - 1, loss) > target);
        }
    }

    #[test]
    fn known_counts() {
        // P[Bin(128, 0.0005) > 0] = 1 - 0.9995^128 = 0.062; P[Bin(129, 0.0005) > 1] = 0.0020.
        assert!((failure(128, 0, 0.0005) - (1.0 - 0.9995_f64.powi(128))).abs() < 1e-12);
        assert_eq!(count(128, 0.0005, 0.07), 0);
        assert_eq!(count(128, 0.0005, 0.01), 1);
        assert_eq!(count(128, 0.0005, 0.001), 2);
        // P[Bin(3, 1/2) > 2] = 1/8.
        assert!((failure(1, 2, 0.5) - 0.125).abs() < 1e-12);
        assert_eq!(count(128, 0.0, 0.01), 0);
        assert_eq!(count(128, 1.0, 0.01), 64);
        assert_eq!(count(0, 0.1, 0.01), 0);
        assert_eq!(count(10, f64::NAN, 0.01), 0);
    }

    /// So many fail as were allowed, with random losses.
    #[test]
    fn as_many_fail_as_are_allowed() {
        let mut random = sim::SeededRng::new(11);
        for (n, loss, target) in [(128, 0.01, 0.02), (20, 0.05, 0.01), (128, 0.0005, 0.002)] {
            let m = count(n, loss, target);
            let mut lose = || random.below(1_000_000) < (loss * 1e6) as u64;
            let runs = 20_000;
            let failed = (0..runs).filter(|_| (0..n + m).filter(|_| lose()).count() > m).count();
            let most = target * f64::from(runs) + 4.0 * (target * f64::from(runs)).sqrt();
            assert!(number(failed) < most, "{n}, {loss}: {failed} of {runs} with {m}");
        }
    }
}
