//! The set-up of an extension with [`base::ristretto`]: a message in each direction.
//!
//! The sender's message, and the point at the beginning of the receiver's message, can be sent at
//! once. The receiver's message can be followed immediately by the first message of
//! [`OtExtensionReceiver::extend`].

use blocks::Block;
use blocks::prg::Prg;
use zeroize::Zeroizing;

use crate::Error;
use crate::base::ristretto;
use crate::error::check_len;
use crate::extension::{BASE_TRANSFERS, OtExtension, OtExtensionReceiver, OtExtensionSender};

/// The length of the sender's message, in bytes.
pub const SENDER_LEN: usize = ristretto::receiver_len(BASE_TRANSFERS);

/// A sender that has sent its message.
pub struct OtSenderSetUp {
    extension: OtExtension,
    offset: Zeroizing<Block>,
    base: ristretto::RistrettoOtReceiver,
}

/// A sender that has computed its keys, before the receiver's message.
pub struct OtSenderBaseKeys {
    extension: OtExtension,
    offset: Zeroizing<Block>,
    point: Vec<u8>,
    keys: Zeroizing<Vec<Block>>,
}

/// A receiver before the sender's message.
pub struct OtReceiverSetUp {
    extension: OtExtension,
    base: ristretto::RistrettoOtSender,
    base_message: [u8; ristretto::SENDER_LEN],
    seed: Zeroizing<Block>,
}

impl OtSenderSetUp {
    /// A sender and its message of [`SENDER_LEN`] bytes. The offset and the seed must be uniformly
    /// random and secret, and the seed must be used once. Bits of the offset may be fixed, each at
    /// the cost of one bit of security.
    pub fn new(extension: OtExtension, offset: Block, seed: Block) -> (Self, Vec<u8>) {
        let (base, message) = ristretto::RistrettoOtReceiver::of_block(seed, offset);
        (Self { extension, offset: Zeroizing::new(offset), base }, message)
    }

    /// The sender, from the receiver's message.
    ///
    /// # Errors
    /// If the message has not [`OtExtension::reply_len`] bytes, does not begin with a valid point,
    /// or is inconsistent.
    pub fn receive(self, message: &[u8]) -> Result<OtExtensionSender, Error> {
        check_len(message, self.extension.reply_len())?;
        let (point, _) = message.split_at(ristretto::SENDER_LEN);
        self.receive_point(point)?.receive(message)
    }

    /// Computes the sender's keys, which is most of its work, from [`OtReceiverSetUp::point`]. A
    /// receiver that sends the point ahead lets the sender work at the same time.
    ///
    /// # Errors
    /// If it is not a point, or is the identity.
    pub fn receive_point(self, point: &[u8]) -> Result<OtSenderBaseKeys, Error> {
        let keys = Zeroizing::new(self.base.receive(point)?);
        Ok(OtSenderBaseKeys {
            extension: self.extension,
            offset: self.offset,
            point: point.to_vec(),
            keys,
        })
    }
}

impl OtSenderBaseKeys {
    /// The sender, from the receiver's message.
    ///
    /// # Errors
    /// As [`OtSenderSetUp::receive`], or if the message begins with another point.
    #[expect(clippy::missing_panics_doc, reason = "the base transfers are as many")]
    pub fn receive(self, message: &[u8]) -> Result<OtExtensionSender, Error> {
        check_len(message, self.extension.reply_len())?;
        let (point, rest) = message.split_at(ristretto::SENDER_LEN);
        if point != self.point {
            return Err(Error::Point(0));
        }
        let keys = self.keys.first_chunk().expect("as many as base transfers");
        OtExtensionSender::new(self.extension, *self.offset, keys, rest)
    }
}

impl OtReceiverSetUp {
    /// A receiver. The seed is uniformly random, secret, and used once.
    pub fn new(extension: OtExtension, seed: Block) -> Self {
        let mut seeds = Prg::new(seed);
        let (base, base_message) = ristretto::RistrettoOtSender::new(seeds.block());
        Self { extension, base, base_message, seed: Zeroizing::new(seeds.block()) }
    }

    /// The point with which the receiver's message begins, for [`OtSenderSetUp::receive_point`].
    pub fn point(&self) -> [u8; ristretto::SENDER_LEN] {
        self.base_message
    }

    /// The receiver and its message of [`OtExtension::reply_len`] bytes, from the sender's message.
    ///
    /// # Errors
    /// If the message has not [`SENDER_LEN`] bytes, or its elements are not points.
    #[expect(clippy::missing_panics_doc, reason = "the base transfers are as many")]
    pub fn receive(self, message: &[u8]) -> Result<(OtExtensionReceiver, Vec<u8>), Error> {
        let keys = Zeroizing::new(self.base.receive(message, BASE_TRANSFERS)?);
        let keys = keys.first_chunk().expect("as many as base transfers");
        let (receiver, rest) = OtExtensionReceiver::new(self.extension, keys, *self.seed);
        Ok((receiver, [&self.base_message[..], &rest].concat()))
    }
}

impl OtExtension {
    /// The length of the receiver's message in a set-up, in bytes.
    pub const fn reply_len(self) -> usize {
        ristretto::SENDER_LEN + self.set_up_len()
    }
}
