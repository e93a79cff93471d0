//! The set-up of an extension with [`base::ristretto`]: a message in each direction.
//!
//! The sender's can be sent at once, and so can the point with which the receiver's begins. The
//! receiver's can be followed at once by what [`Receiver::extend`] returns.

use blocks::Block;
use blocks::prg::Prg;
use zeroize::Zeroizing;

use crate::Error;
use crate::base::ristretto;
use crate::error::check_len;
use crate::extension::{BASE_TRANSFERS, Extension, Receiver, Sender};

/// The length of the sender's message, in bytes.
pub const SENDER_LEN: usize = ristretto::receiver_len(BASE_TRANSFERS);

/// A sender that has sent its message.
pub struct SenderSetUp {
    extension: Extension,
    offset: Zeroizing<Block>,
    base: ristretto::Receiver,
}

/// A sender that has its keys, before the receiver's message.
pub struct SenderKeys {
    extension: Extension,
    offset: Zeroizing<Block>,
    point: Vec<u8>,
    keys: Zeroizing<Vec<Block>>,
}

/// A receiver before the sender's message.
pub struct ReceiverSetUp {
    extension: Extension,
    base: ristretto::Sender,
    base_message: [u8; ristretto::SENDER_LEN],
    seed: Zeroizing<Block>,
}

impl SenderSetUp {
    /// A sender and its message of [`SENDER_LEN`] bytes. The offset and the seed are uniformly
    /// random and secret (bits of the offset may be fixed: one bit less, one bit of security less),
    /// and the seed is used once.
    pub fn new(extension: Extension, offset: Block, seed: Block) -> (Self, Vec<u8>) {
        let (base, message) = ristretto::Receiver::of_block(seed, offset);
        (Self { extension, offset: Zeroizing::new(offset), base }, message)
    }

    /// The sender, from the receiver's message.
    ///
    /// # Errors
    /// If the message has not [`Extension::reply_len`] bytes, or is not a point and what follows
    /// it, or is inconsistent.
    pub fn receive(self, message: &[u8]) -> Result<Sender, Error> {
        check_len(message, self.extension.reply_len())?;
        let (point, _) = message.split_at(ristretto::SENDER_LEN);
        self.receive_point(point)?.receive(message)
    }

    /// Computes the sender's keys, which is most of its work, from [`ReceiverSetUp::point`]. A
    /// receiver that sends the point ahead lets the sender work at the same time.
    ///
    /// # Errors
    /// If it is not a point, or is the identity.
    pub fn receive_point(self, point: &[u8]) -> Result<SenderKeys, Error> {
        let keys = Zeroizing::new(self.base.receive(point)?);
        Ok(SenderKeys {
            extension: self.extension,
            offset: self.offset,
            point: point.to_vec(),
            keys,
        })
    }
}

impl SenderKeys {
    /// The sender, from the receiver's message.
    ///
    /// # Errors
    /// As [`SenderSetUp::receive`], or if the message begins with another point.
    #[expect(clippy::missing_panics_doc, reason = "the base transfers are as many")]
    pub fn receive(self, message: &[u8]) -> Result<Sender, Error> {
        check_len(message, self.extension.reply_len())?;
        let (point, rest) = message.split_at(ristretto::SENDER_LEN);
        if point != self.point {
            return Err(Error::Point(0));
        }
        let keys = self.keys.first_chunk().expect("as many as base transfers");
        Sender::new(self.extension, *self.offset, keys, rest)
    }
}

impl ReceiverSetUp {
    /// A receiver. The seed is uniformly random, secret, and used once.
    pub fn new(extension: Extension, seed: Block) -> Self {
        let mut seeds = Prg::new(seed);
        let (base, base_message) = ristretto::Sender::new(seeds.block());
        Self { extension, base, base_message, seed: Zeroizing::new(seeds.block()) }
    }

    /// The point with which the receiver's message begins, for [`SenderSetUp::receive_point`].
    pub fn point(&self) -> [u8; ristretto::SENDER_LEN] {
        self.base_message
    }

    /// The receiver and its message of [`Extension::reply_len`] bytes, from the sender's message.
    ///
    /// # Errors
    /// If the message has not [`SENDER_LEN`] bytes, or its elements are not points.
    #[expect(clippy::missing_panics_doc, reason = "the base transfers are as many")]
    pub fn receive(self, message: &[u8]) -> Result<(Receiver, Vec<u8>), Error> {
        let keys = Zeroizing::new(self.base.receive(message, BASE_TRANSFERS)?);
        let keys = keys.first_chunk().expect("as many as base transfers");
        let (receiver, rest) = Receiver::new(self.extension, keys, *self.seed);
        Ok((receiver, [&self.base_message[..], &rest].concat()))
    }
}

impl Extension {
    /// The length of the receiver's message in a set-up, in bytes.
    pub const fn reply_len(self) -> usize {
        ristretto::SENDER_LEN + self.set_up_len()
    }
}
