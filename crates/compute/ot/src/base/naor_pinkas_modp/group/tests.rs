//! The primes, and known answers by Python.

use blocks::Block;
use crypto_bigint::Resize as _;
use crypto_primes::{Flavor, is_prime};

use super::*;

/// The last bytes of the generator to the power of [`EXPONENT`], modulo each prime.
const POWERS: [(ModpGroup, u128); 3] = [
    (ModpGroup::Modp2048, 0xff00_8897_7f7b_ba8e_098f_61d6_6710_6dd5),
    (ModpGroup::Modp1024, 0xee6e_1669_7c8f_1c76_2671_9266_f54d_82b8),
    (ModpGroup::Modp1024Short, 0xee6e_1669_7c8f_1c76_2671_9266_f54d_82b8),
];

const EXPONENT: &str = "000000000123456789abcdef0123456789abcdef01234567";

fn value(group: ModpGroup) -> BoxedUint {
    let modulus = group.prime();
    BoxedUint::from_be_slice(&modulus.to_bytes(), modulus.len.bits()).unwrap()
}

#[test]
fn the_primes_are_safe() {
    for group in [ModpGroup::Modp2048, ModpGroup::Modp1024] {
        assert!(is_prime(Flavor::Safe, &value(group)), "{group:?}");
    }
}

#[test]
fn powers_are_those_of_another_implementation() {
    let exponent = BoxedUint::from_be_hex(EXPONENT, 192).unwrap();
    for (group, expected) in POWERS {
        let power = ModpArithmetic::new(group).power_of_generator(&exponent).to_absolute_bytes();
        assert_eq!(power.last_chunk(), Some(&expected.to_be_bytes()), "{group:?}");
    }
}

/// The order of the generator is q, as it is not 1 and q is prime.
#[test]
fn a_power_of_q_is_the_identity() {
    for group in [ModpGroup::Modp2048, ModpGroup::Modp1024] {
        let arithmetic = ModpArithmetic::new(group);
        let half = value(group).shr(1);
        let mut prg = Prg::new(Block::from(1));
        for element in [arithmetic.modulus.small(GENERATOR), arithmetic.random(&mut prg)] {
            let power = arithmetic.power(&element, &half).to_absolute_bytes();
            assert_eq!(power, arithmetic.modulus.small(1).to_bytes(), "{group:?}");
        }
    }
}

#[test]
fn elements_are_the_numbers_up_to_half_of_the_prime() {
    for group in ModpGroup::ALL {
        let arithmetic = ModpArithmetic::new(group);
        let one = BoxedUint::one().resize(group.modulus_len().bits());
        let prime = value(group);
        let half = prime.shr(1);
        let decode = |number: &BoxedUint| arithmetic.decode(&number.to_be_bytes(), 0);
        for number in [&one, &half.wrapping_sub(&one), &half] {
            let element = decode(number).unwrap();
            assert_eq!(**element.to_absolute_bytes(), *number.to_be_bytes());
        }
        let zero = one.wrapping_sub(&one);
        let negative = prime.wrapping_sub(&one);
        let most = zero.wrapping_sub(&one);
        for number in [&zero, &half.wrapping_add(&one), &negative, &prime, &most] {
            assert_eq!(decode(number).err(), Some(Error::Number(0)), "{group:?} {number}");
        }
        let identity = arithmetic.decode_nonidentity(&one.to_be_bytes(), 0);
        assert_eq!(identity.err(), Some(Error::Identity));
    }
}

/// x and -x are the same element.
#[test]
fn a_number_and_its_negative_have_one_encoding() {
    let arithmetic = ModpArithmetic::new(ModpGroup::Modp1024);
    let mut prg = Prg::new(Block::from(2));
    let mut were_greater = 0;
    for _ in 0..100 {
        let number = arithmetic.random(&mut prg);
        let negative = value(ModpGroup::Modp1024).wrapping_sub(&*number.value());
        let negative = arithmetic.modulus.number(&negative.to_be_bytes()).unwrap();
        let encoded = number.to_absolute_bytes();
        assert_eq!(encoded, negative.to_absolute_bytes());
        assert!(arithmetic.decode(&encoded, 0).is_ok());
        were_greater += usize::from(encoded != number.to_bytes());
    }
    assert!((20..80).contains(&were_greater), "{were_greater}");
}

#[test]
fn short_exponents_have_160_bits() {
    let arithmetic = ModpArithmetic::new(ModpGroup::Modp1024Short);
    let mut prg = Prg::new(Block::from(3));
    let bits: Vec<u32> = (0..100).map(|_| arithmetic.exponent(&mut prg).bits()).collect();
    assert_eq!(bits.iter().max(), Some(&SHORT_EXPONENT_BITS));
    assert!(bits.iter().all(|&bits| bits > SHORT_EXPONENT_BITS / 2));
}
