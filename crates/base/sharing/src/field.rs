//! The field GF(2^8) modulo x^8 + x^4 + x^3 + x + 1 (0x11B), with one element in each byte.
//!
//! This arithmetic is for single bytes: coordinates of shares, weights, and the columns of a
//! decoder. Whole buffers are processed by [`crate::kernels`], which agree with [`multiply`] on all
//! 65,536 products.

/// Returns `a * b`, in time that depends on neither.
pub fn multiply(a: u8, b: u8) -> u8 {
    let (mut a, mut product) = (a, 0);
    for bit in 0..8 {
        product ^= a & 0u8.wrapping_sub((b >> bit) & 1);
        a = (a << 1) ^ (0x1B & 0u8.wrapping_sub(a >> 7));
    }
    product
}

/// Returns `1 / a`, and zero for zero, in constant time.
pub fn invert(a: u8) -> u8 {
    // a^254 = a^(2 + 4 + 8 + 16 + 32 + 64 + 128).
    let (mut square, mut inverse) = (a, 1);
    for _ in 1..8 {
        square = multiply(square, square);
        inverse = multiply(inverse, square);
    }
    inverse
}

/// Returns the Lagrange weights with which the values of a polynomial at `nodes` add up to its
/// value at `target`: one weight for each node. The polynomial's degree is below `nodes.len()`.
///
/// The nodes must be distinct. They and the target are public.
pub(crate) fn lagrange_weights(nodes: &[u8], target: u8) -> Vec<u8> {
    let weight = |i: usize| {
        let (mut numerator, mut denominator) = (1, 1);
        for (j, &node) in nodes.iter().enumerate().filter(|&(j, _)| j != i) {
            debug_assert!(nodes[i] != nodes[j], "nodes are distinct");
            // In characteristic 2, subtraction is addition is exclusive or.
            numerator = multiply(numerator, target ^ node);
            denominator = multiply(denominator, nodes[i] ^ node);
        }
        multiply(numerator, invert(denominator))
    };
    (0..nodes.len()).map(weight).collect()
}

/// Returns [`lagrange_weights`] for each of many targets, none of which is a node, in `O(k)` each.
pub(crate) fn lagrange_rows(nodes: &[u8], targets: &[u8]) -> Vec<Vec<u8>> {
    let product = |target: u8| {
        let others = nodes.iter().filter(|&&node| node != target);
        others.fold(1, |product, &node| multiply(product, target ^ node))
    };
    let scales: Vec<u8> = nodes.iter().map(|&node| invert(product(node))).collect();
    let row = |&target: &u8| {
        let whole = product(target);
        let weight = |(&node, &scale)| multiply(multiply(whole, scale), invert(target ^ node));
        nodes.iter().zip(&scales).map(weight).collect()
    };
    targets.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The textbook product: multiply as polynomials, then reduce, with branches on everything.
    fn schoolbook(a: u8, b: u8) -> u8 {
        let mut wide = 0u16;
        for bit in 0..8 {
            if b >> bit & 1 == 1 {
                wide ^= u16::from(a) << bit;
            }
        }
        for bit in (8..15).rev() {
            if wide >> bit & 1 == 1 {
                wide ^= 0x11B << (bit - 8);
            }
        }
        u8::try_from(wide).expect("reduced below 256")
    }

    #[test]
    fn all_products_match_the_schoolbook() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(multiply(a, b), schoolbook(a, b), "{a} * {b}");
            }
        }
    }

    #[test]
    fn known_products() {
        // FIPS 197, sections 4.2 and 4.2.1.
        assert_eq!(multiply(0x57, 0x83), 0xC1);
        assert_eq!(multiply(0x57, 0x13), 0xFE);
    }

    #[test]
    fn inverses() {
        assert_eq!(invert(0), 0);
        for a in 1..=255 {
            assert_eq!(multiply(a, invert(a)), 1, "{a}");
        }
    }

    #[test]
    fn weights_reproduce_a_polynomial() {
        // p(X) = 7 + 200 X + 31 X^2
        let p = |x| 7 ^ multiply(200, x) ^ multiply(31, multiply(x, x));
        for nodes in [[1, 2, 3], [5, 1, 255], [0, 9, 77]] {
            for target in 0..=255 {
                let value = lagrange_weights(&nodes, target)
                    .iter()
                    .zip(nodes)
                    .fold(0, |sum, (&weight, node)| sum ^ multiply(weight, p(node)));
                assert_eq!(value, p(target), "nodes {nodes:?}, target {target}");
            }
            let targets: Vec<u8> = (0..=255).filter(|x| !nodes.contains(x)).collect();
            let one_by_one: Vec<Vec<u8>> =
                targets.iter().map(|&target| lagrange_weights(&nodes, target)).collect();
            assert_eq!(lagrange_rows(&nodes, &targets), one_by_one);
        }
    }
}
