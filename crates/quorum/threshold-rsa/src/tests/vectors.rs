//! Known answers, computed by an implementation in Python.

use handover::HandoverTerms;
use handover::scheme::HandoverScheme as _;
use keys::rsa::RsaEncoding;
use rsa_arithmetic::fixture::{short_key, tiny_key};

use super::epochs::first_group;
use super::{id, sign, size};
use crate::ThresholdRsaScheme;

/// PKCS #1 v1.5 has one signature of each message.
#[test]
fn the_signature_is_that_of_the_whole_key() {
    let group = first_group(&short_key(), 2, 2);
    let signature =
        sign(&group, RsaEncoding::Pkcs1, b"addresses: 192.0.2.1", group.shares.keys().copied());
    assert_eq!(signature[..8], [206, 81, 74, 94, 158, 53, 34, 108]);
    assert_eq!(signature[56..], [165, 201, 7, 123, 130, 120, 222, 239]);
}

#[test]
fn coefficients_follow_from_the_seed() {
    let group = first_group(&tiny_key(), 1, 2);
    let terms = HandoverTerms::<ThresholdRsaScheme> {
        run: [0; 32],
        old: Some(group.sharing().clone()),
        new: size(1),
    };
    let share = Some(&group.shares[&id(1)]);
    let dealing = ThresholdRsaScheme::polynomial(&terms, id(1), share, &[7; 32]).unwrap();
    let coefficient = dealing.polynomial.coefficients[1].to_be_bytes();
    assert_eq!(coefficient.len(), 60);
    assert_eq!(coefficient[..4], [12, 202, 196, 200]);
    assert_eq!(coefficient[56..], [233, 133, 194, 94]);
}
