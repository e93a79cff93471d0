//! Joins of packets whose shares come from one subset after another, at random.

use sharing::{Joiner, Sharing, Subset};

use crate::LENGTHS;
use crate::stopwatch::Stopwatch;

/// Prints the nanoseconds of a join by a joiner, which has to find the weights, and by subsets that
/// are at hand.
pub(crate) fn print(stopwatch: Stopwatch) {
    let len = LENGTHS[0];
    println!("\nJoin {len} bytes, subsets in turns: ns by a joiner, by subsets at hand");
    println!("{:>3} {:>3}{:>10}{:>10}{:>10}", "k", "m", "subsets", "joiner", "subset");
    for (k, m) in [(2, 3), (3, 5), (4, 8)] {
        let coordinates: Vec<Vec<u8>> = subsets(m, k);
        let subsets: Vec<Subset> =
            coordinates.iter().map(|at| Subset::at(at).expect("distinct")).collect();
        let mut joiner = Joiner::new(Sharing::shamir(k, m).expect("valid"));
        let buffers = vec![vec![0x5A; len]; k.into()];
        let shares: Vec<&[u8]> = buffers.iter().map(Vec::as_slice).collect();
        let (mut secret, mut rng) = (vec![0; len], sim::Rng::new(1));
        let speeds = stopwatch.compare(1, &[true, false], |by_joiner, times| {
            for _ in 0..times {
                let i = rng.index(subsets.len());
                let joined = if by_joiner {
                    joiner.join(&coordinates[i], &shares, &mut secret)
                } else {
                    subsets[i].join(&shares, &mut secret)
                };
                joined.expect("valid shares");
            }
        });
        let [joiner, subset] = [1.0 / speeds[0], 1.0 / speeds[1]];
        println!("{k:>3} {m:>3}{:>10}{joiner:>10.1}{subset:>10.1}", subsets.len());
    }
}

/// All subsets of `1..=m` with `k` members.
fn subsets(m: u8, k: u8) -> Vec<Vec<u8>> {
    if k == 0 {
        return vec![vec![]];
    }
    let with_last = |last: u8| {
        subsets(last - 1, k - 1).into_iter().map(move |rest| [rest, vec![last]].concat())
    };
    (k..=m).flat_map(with_last).collect()
}
