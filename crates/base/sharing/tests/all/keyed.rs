//! The keyed hash agrees with its documentation, and its bound is tight: each change has points at
//! which the tag is valid, and an attacker who sees tags finds the point.

use sunder_sharing::keyed::{HashKernel, KeyedHash, TamperedMessage};

use crate::textbook::TestRng;

/// The product modulo x^64 + x^4 + x^3 + x + 1 as in a textbook: multiply, then divide.
fn multiply(a: u64, b: u64) -> u64 {
    let modulus = 1 << 64 | 0x1B_u128;
    let ones = |number: u64| (0..64).filter(move |bit| number >> bit & 1 == 1);
    let mut product = ones(b).fold(0, |product, bit| product ^ u128::from(a) << bit);
    for bit in (64..128).rev() {
        if product >> bit == 1 {
            product ^= modulus << (bit - 64);
        }
    }
    u64::try_from(product).unwrap()
}

/// `a^n`.
fn power(a: u64, n: u64) -> u64 {
    (0..64).rev().fold(1, |power, bit| {
        multiply(multiply(power, power), if n >> bit & 1 == 1 { a } else { 1 })
    })
}

/// `1 / a`, for nonzero `a`.
fn invert(a: u64) -> u64 {
    power(a, u64::MAX - 1)
}

fn block(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes.get(i).copied().unwrap_or(0)))
}

fn blocks(message: &[u8]) -> Vec<u64> {
    message.chunks(8).map(block).collect()
}

fn documented_tag(point: u64, message: &[u8], last: u64) -> [u8; 8] {
    let coefficients = blocks(message).into_iter().chain([last]);
    coefficients.fold(0, |value, m| multiply(value ^ m, point)).to_le_bytes()
}

fn hash(point: u64) -> KeyedHash {
    KeyedHash::new(point.to_le_bytes())
}

/// Computed by an independent program, which adds all powers one by one.
#[test]
fn known_answers() {
    let counting: Vec<u8> = (0..=255).cycle().take(1400).collect();
    let cases: [(&[u8], u64); 4] = [
        (b"", 0x6270_062B_F046_2CC1),
        (b"\x01", 0xF895_F7E2_058A_F421),
        (b"any random bytes", 0x348D_5C86_C178_5221),
        (&counting, 0x8E87_AC48_A5AD_F06E),
    ];
    for kernel in HashKernel::available() {
        let hash =
            KeyedHash::new([0x01, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF]).with_kernel(kernel);
        for (message, tag) in cases {
            let last = 0x0500_0000_0203_0000 | message.len() as u64;
            assert_eq!(hash.tag(message, last), u64::to_be_bytes(tag), "{kernel}");
        }
    }
}

/// All lengths around those at which the code path changes, at every alignment.
#[test]
fn every_kernel_gives_the_documented_tag() {
    let mut rng = TestRng::new(1);
    let message = rng.bytes(70_000);
    for kernel in HashKernel::available() {
        let point = block(&rng.bytes(8));
        let hash = hash(point).with_kernel(kernel);
        let edges = [1400, 2048, 4096, 65_535].into_iter().flat_map(|len| len - 9..len + 10);
        for len in (0..400).chain(edges) {
            let (message, last) = (&message[len % 67..][..len], block(&rng.bytes(8)));
            let tag = documented_tag(point, message, last);
            assert_eq!(hash.tag(message, last), tag, "{kernel}, {len} bytes");
            assert_eq!(hash.verify(message, last, tag), Ok(()), "{kernel}, {len} bytes");
        }
    }
}

#[test]
fn every_bit_counts() {
    let mut rng = TestRng::new(2);
    let hash = hash(block(&rng.bytes(8)));
    let (mut message, last) = (rng.bytes(203), block(&rng.bytes(8)));
    let tag = hash.tag(&message, last);
    for bit in 0..8 * message.len() {
        message[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(
            hash.verify(&message, last, tag),
            Err(TamperedMessage),
            "bit {bit} of the message"
        );
        message[bit / 8] ^= 1 << (bit % 8);
    }
    for bit in 0..64 {
        let changed = (u64::from_le_bytes(tag) ^ 1 << bit).to_le_bytes();
        assert_eq!(
            hash.verify(&message, last ^ 1 << bit, tag),
            Err(TamperedMessage),
            "bit {bit} of last"
        );
        assert_eq!(
            hash.verify(&message, last, changed),
            Err(TamperedMessage),
            "bit {bit} of the tag"
        );
    }
    assert_eq!(hash.verify(&message, last, tag), Ok(()));
}

/// Shows why the last block includes the length.
#[test]
fn zeros_at_the_end_of_a_block_do_not_count() {
    let hash = hash(0x0123_4567_89AB_CDEF);
    assert_eq!(hash.tag(b"zeros", 7), hash.tag(b"zeros\0\0\0", 7));
    assert_ne!(hash.tag(b"zeros", 5), hash.tag(b"zeros\0\0\0", 8));
}

/// The theorem's bound is tight: a change of `d` blocks is valid at `d + 1` points, and at no other
/// point that is tried.
#[test]
fn a_change_fits_at_as_many_points_as_the_theorem_says() {
    let mut rng = TestRng::new(3);
    for d in [1, 2, 5, 20] {
        let (message, last) = (rng.bytes(8 * d), block(&rng.bytes(8)));
        // The change is the polynomial with these roots. The attacker cannot change the last block,
        // so the coefficient of r must vanish: the inverses of the roots must add up to zero.
        let mut roots: Vec<u64> = (0..d).map(|_| block(&rng.bytes(8))).collect();
        roots.push(invert(roots.iter().fold(0, |sum, &root| sum ^ invert(root))));
        let change = polynomial(&roots);
        assert_eq!((change.len(), change[1]), (d + 2, 0));

        let differences = change[2..].iter().rev().flat_map(|e| e.to_le_bytes());
        let changed: Vec<u8> = message.iter().zip(differences).map(|(m, e)| m ^ e).collect();
        let fits = |point| {
            let hash = hash(point);
            let tag = u64::from_le_bytes(hash.tag(&message, last)) ^ change[0];
            hash.verify(&changed, last, tag.to_le_bytes()).is_ok()
        };
        assert!(
            roots.iter().all(|&root| fits(root)),
            "{d} blocks: every root is a point that fits"
        );
        assert!((0..1000).all(|_| !fits(block(&rng.bytes(8)))), "{d} blocks: and no other");
    }
}

/// The polynomial with these roots, its constant first.
fn polynomial(roots: &[u64]) -> Vec<u64> {
    roots.iter().fold(vec![1], |polynomial, &root| {
        let mut product = vec![0; polynomial.len() + 1];
        for (i, &coefficient) in polynomial.iter().enumerate() {
            product[i] ^= multiply(coefficient, root);
            product[i + 1] ^= coefficient;
        }
        product
    })
}

/// Not promised: an attacker who sees messages and their tags can solve for the point. Here two
/// messages differ in one block, so that the polynomial is a square: `tag + tag' = (m + m') r^2`.
#[test]
fn whoever_sees_tags_finds_the_point() {
    let mut rng = TestRng::new(4);
    let point = block(&rng.bytes(8));
    let (hash, last) = (hash(point), 0x0301_0010);
    let one = rng.bytes(16);
    let other = [&one[..8], &rng.bytes(8)].concat();
    let tags = [&one, &other].map(|message| u64::from_le_bytes(hash.tag(message, last)));

    let square = multiply(tags[0] ^ tags[1], invert(block(&one[8..]) ^ block(&other[8..])));
    let found = power(square, 1 << 63); // The square root: squaring 64 times changes nothing.
    assert_eq!(found, point);

    let forged = documented_tag(found, b"a message of theirs", 0x0302_0013);
    assert_eq!(hash.verify(b"a message of theirs", 0x0302_0013, forged), Ok(()));
}
