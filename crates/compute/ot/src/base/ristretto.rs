//! Transfers over Ristretto255, with one message in each direction. The messages do not depend on
//! each other, so both can be sent at the same time.
//!
//! Chou, Orlandi 2015 ("the simplest protocol"), with the corrections of later work:
//!
//! - The receiver hides its choice with a multiple of T, a hash of its random salt, instead of the
//!   sender's point S. So nobody knows the discrete logarithm of T, the two keys of a transfer are
//!   unrelated, and a simulator can extract both messages of a dishonest sender (Canetti, Sarkar,
//!   Wang 2020). The receiver's message does not depend on S, so it can be sent before the sender's
//!   message arrives.
//! - A key is a hash of the salt, S, the number of the transfer, the receiver's point and the
//!   shared point, so that keys of other transfers and sessions are unrelated.
//! - The group has prime order, and each point one encoding (RFC 9496).
//!
//! With generator G: the sender sends S = aG; the receiver sends a salt and R = bG + cT for its
//! choice c. The keys are the hashes of aR and aR - aT; the receiver knows bS. R is uniform for
//! both values of c. A receiver that knows both shared points can compute aT from aG and T (the
//! Diffie-Hellman problem).

use blocks::Block;
use blocks::prg::Prg;
use curve25519_dalek::ristretto::{CompressedRistretto, RistrettoBasepointTable, RistrettoPoint};
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::Identity as _;
use subtle::ConditionallySelectable as _;
use zeroize::Zeroizing;

use crate::Error;
use crate::base::key_derivation::OtKeyDerivation;
use crate::base::points::{POINT_LEN, decode, decode_nonzero, hash_to_point, scalar};
use crate::bits::{bit, bytes_of};
use crate::error::{check_argument, check_len};

/// The length of the sender's message, in bytes.
pub const SENDER_LEN: usize = POINT_LEN;

const SALT_LEN: usize = 16;
const POINT_DOMAIN: &[u8; 16] = b"sunder ot base T";
const KEY_DOMAIN: &[u8; 16] = b"sunder ot base K";

/// The number of transfers from which a table of multiples of the sender's point is faster.
const MIN_TABLE_TRANSFERS: usize = 64;

/// The length of the receiver's message in bytes, for a number of transfers.
pub const fn receiver_len(count: usize) -> usize {
    SALT_LEN + count * POINT_LEN
}

/// The sender after its message.
pub struct RistrettoOtSender {
    secret: Zeroizing<Scalar>,
    message: [u8; SENDER_LEN],
}

impl RistrettoOtSender {
    /// A sender and its message. The seed is uniformly random, secret, and used once.
    pub fn new(seed: Block) -> (Self, [u8; SENDER_LEN]) {
        let secret = scalar(&mut Prg::new(seed));
        let message = RistrettoPoint::mul_base(&secret).compress().to_bytes();
        (Self { secret, message }, message)
    }

    /// The keys of `count` transfers, from the receiver's message.
    ///
    /// # Errors
    /// If the message has not [`receiver_len`] bytes, or its elements are not points.
    pub fn receive(self, message: &[u8], count: usize) -> Result<Vec<[Block; 2]>, Error> {
        check_len(message, receiver_len(count))?;
        let (salt, points) = message.split_at(SALT_LEN);
        let half = Zeroizing::new(self.secret.div_by_2());
        let difference = Zeroizing::new(hash_to_point(POINT_DOMAIN, salt) * *half);
        let mut halves = Zeroizing::new(Vec::with_capacity(2 * count));
        for i in 0..count {
            let shared = decode(points, i)? * *half;
            halves.extend([shared, shared - *difference]);
        }
        let derivation = OtKeyDerivation::new(KEY_DOMAIN, &[salt, &self.message]);
        let keys = Zeroizing::new(derivation.keys_of_halves(&halves, points, 2));
        Ok(keys.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect())
    }
}

/// The receiver after its message.
pub struct RistrettoOtReceiver {
    secrets: Zeroizing<Vec<Scalar>>,
    message: Vec<u8>,
}

impl RistrettoOtReceiver {
    /// The receiver of `count` transfers, and its message of [`receiver_len`] bytes. The seed is
    /// uniformly random, secret, and used once.
    ///
    /// # Errors
    /// If the number of choices is not `count`, in whole bytes.
    pub fn new(seed: Block, choices: &[u8], count: usize) -> Result<(Self, Vec<u8>), Error> {
        check_argument("bytes of choices", choices.len(), bytes_of(count))?;
        Ok(Self::of_bits(seed, choices, count))
    }

    /// The receiver of 128 transfers whose choices are the bits of a block, and its message.
    pub(crate) fn of_block(seed: Block, choices: Block) -> (Self, Vec<u8>) {
        Self::of_bits(seed, &*Zeroizing::new(choices.to_bytes()), 128)
    }

    fn of_bits(seed: Block, choices: &[u8], count: usize) -> (Self, Vec<u8>) {
        let mut prg = Prg::new(seed);
        let mut message = vec![0; SALT_LEN];
        prg.fill_bytes(&mut message);
        let chosen = hash_to_point(POINT_DOMAIN, &message);
        let mut secrets = Zeroizing::new(Vec::with_capacity(count));
        let mut halves = Zeroizing::new(Vec::with_capacity(count));
        let half_chosen = chosen * Scalar::ONE.div_by_2();
        for i in 0..count {
            let secret = scalar(&mut prg);
            let half = Zeroizing::new(secret.div_by_2());
            let mask = RistrettoPoint::conditional_select(
                &RistrettoPoint::identity(),
                &half_chosen,
                bit(choices, i),
            );
            halves.push(RistrettoPoint::mul_base(&half) + mask);
            secrets.push(*half);
        }
        message.extend(
            RistrettoPoint::double_and_compress_batch(halves.iter())
                .iter()
                .flat_map(CompressedRistretto::to_bytes),
        );
        (Self { secrets, message: message.clone() }, message)
    }

    /// The chosen keys, from the sender's message.
    ///
    /// # Errors
    /// If the message is not a point, or is the identity.
    pub fn receive(self, message: &[u8]) -> Result<Vec<Block>, Error> {
        check_len(message, SENDER_LEN)?;
        let point = decode_nonzero(message, 0)?;
        let halves: Vec<RistrettoPoint> = if self.secrets.len() < MIN_TABLE_TRANSFERS {
            self.secrets.iter().map(|secret| point * secret).collect()
        } else {
            let table = RistrettoBasepointTable::create(&point);
            self.secrets.iter().map(|secret| &table * secret).collect()
        };
        let halves = Zeroizing::new(halves);
        let (salt, points) = self.message.split_at(SALT_LEN);
        let derivation = OtKeyDerivation::new(KEY_DOMAIN, &[salt, message]);
        Ok(derivation.keys_of_halves(&halves, points, 1))
    }
}
