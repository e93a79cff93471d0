//! How a new connection replaces a channel's connection in an open stream.
//!
//! When a stream opens, the server sends the client a key for each channel, within a record. So an
//! attacker on fewer channels than are needed to read the stream knows none of the keys. A client
//! that reconnects a channel proves that it has the channel's key, and the server proves that it
//! has the key too. The keys are random and independent, and a proof with a channel's key crosses
//! that channel only. So an attacker learns nothing about the key of a channel that it is not on,
//! whatever it can compute. Each proof is for one connection, because it covers the connection's
//! cookie.

use association::{ChannelPositions, ConnectionCookie, HEADER_LEN, PROOF_LEN, Rejoin, Rejoined};
use hmac::{Hmac, KeyInit, Mac};
use random::RandomError;
use sha2::Sha256;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::protocol::outgoing::OutgoingRecords;
use crate::protocol::record::REJOIN_KEY_LEN;

/// The length of a stream's identifier, and of a key, in bytes.
const KEY_LEN: usize = REJOIN_KEY_LEN;

/// The length of the server's answer to a client that replaces a channel's connection, in bytes.
pub(crate) const ANSWER_LEN: usize = HEADER_LEN + 16 + PROOF_LEN;

/// The prefix of the bytes that a proof covers.
const CLIENT: &[u8] = b"sunder micss rejoin";
const SERVER: &[u8] = b"sunder micss rejoined";

/// The identifier of a stream, and the keys of its channels.
#[derive(Clone)]
pub(crate) struct RejoinKeys {
    stream: [u8; KEY_LEN],
    keys: Vec<Zeroizing<[u8; KEY_LEN]>>,
}

impl RejoinKeys {
    /// New keys for this number of channels.
    ///
    /// # Errors
    /// If there are no random bytes.
    pub(crate) fn random(channels: u8, random: &mut OutgoingRecords) -> Result<Self, RandomError> {
        let stream = random.random()?;
        let keys = (0..channels).map(|_| random.random().map(Zeroizing::new));
        Ok(Self { stream, keys: keys.collect::<Result<_, _>>()? })
    }

    /// The stream's identifier, by which the server finds it.
    pub(crate) fn stream(&self) -> [u8; KEY_LEN] {
        self.stream
    }

    /// The payload of the record that opens the stream.
    pub(crate) fn encode(&self) -> Zeroizing<Vec<u8>> {
        let keys = self.keys.iter().flat_map(|key| key.iter());
        Zeroizing::new(self.stream.iter().chain(keys).copied().collect())
    }

    /// The keys in a payload. `None` if it does not have the length for this number of channels.
    pub(crate) fn parse(payload: &[u8], channels: u8) -> Option<Self> {
        let (stream, keys) = payload.split_first_chunk()?;
        let (keys, rest) = keys.as_chunks();
        let is_whole = rest.is_empty() && keys.len() == usize::from(channels);
        let keys = keys.iter().map(|key| Zeroizing::new(*key)).collect();
        is_whole.then_some(Self { stream: *stream, keys })
    }

    /// A client's message on a connection with this cookie.
    ///
    /// # Panics
    /// If there is no such channel.
    pub(crate) fn rejoin(
        &self,
        channel: u8,
        state: ChannelPositions,
        cookie: ConnectionCookie,
    ) -> Rejoin {
        let proof = self.proof(CLIENT, channel, state, cookie).expect("one of its channels");
        Rejoin { association: self.stream, channel, positions: state, proof }
    }

    /// A server's answer on a connection with this cookie.
    ///
    /// # Panics
    /// If there is no such channel.
    pub(crate) fn rejoined(
        &self,
        channel: u8,
        state: ChannelPositions,
        cookie: ConnectionCookie,
    ) -> Rejoined {
        let proof = self.proof(SERVER, channel, state, cookie).expect("one of its channels");
        Rejoined { positions: state, proof }
    }

    /// Whether a client has the key of the channel that it claims.
    pub(crate) fn verify(&self, rejoin: &Rejoin, cookie: ConnectionCookie) -> bool {
        let proof = self.proof(CLIENT, rejoin.channel, rejoin.positions, cookie);
        proof.is_some_and(|proof| proof.ct_eq(&rejoin.proof).into())
    }

    /// Whether the server has the key of this channel.
    pub(crate) fn verify_answer(
        &self,
        channel: u8,
        answer: &Rejoined,
        cookie: ConnectionCookie,
    ) -> bool {
        let proof = self.proof(SERVER, channel, answer.positions, cookie);
        proof.is_some_and(|proof| proof.ct_eq(&answer.proof).into())
    }

    /// `None` if there is no such channel.
    fn proof(
        &self,
        purpose: &[u8],
        channel: u8,
        state: ChannelPositions,
        cookie: ConnectionCookie,
    ) -> Option<[u8; PROOF_LEN]> {
        let key = self.keys.get(usize::from(channel))?;
        let mut mac = Hmac::<Sha256>::new_from_slice(&**key).expect("a key may have any length");
        for part in [purpose, &self.stream, &[channel], &state.encode(), cookie.as_bytes()] {
            mac.update(part);
        }
        Some(mac.finalize().into_bytes().into())
    }
}

#[cfg(test)]
mod tests {
    use random::RandomGenerator;
    use sharing::SharingParameters;

    use super::*;

    fn keys() -> RejoinKeys {
        let sharing = SharingParameters::xor(3).unwrap();
        let mut random = OutgoingRecords::new(sharing, RandomGenerator::seeded().unwrap());
        RejoinKeys::random(3, &mut random).unwrap()
    }

    /// The attacker knows everything about the other channels, and everything that crosses its own.
    #[test]
    fn a_proof_is_for_one_channel_one_connection_and_one_state() {
        let keys = keys();
        let cookie = |byte| ConnectionCookie::new([byte; 16]);
        let state = ChannelPositions { received: 5, kept_from: 3 };
        let rejoin = keys.rejoin(1, state, cookie(1));
        assert!(keys.verify(&rejoin, cookie(1)));
        assert!(!keys.verify(&rejoin, cookie(2)), "another connection");
        for channel in [0, 2, 3, 255] {
            assert!(!keys.verify(&Rejoin { channel, ..rejoin }, cookie(1)), "channel {channel}");
        }
        for state in [
            ChannelPositions { received: 6, ..state },
            ChannelPositions { kept_from: 4, ..state },
            ChannelPositions { received: 3, kept_from: 5 },
        ] {
            assert!(!keys.verify(&Rejoin { positions: state, ..rejoin }, cookie(1)));
        }
        for bit in 0..8 * PROOF_LEN {
            let mut proof = rejoin.proof;
            proof[bit / 8] ^= 1 << (bit % 8);
            assert!(!keys.verify(&Rejoin { proof, ..rejoin }, cookie(1)));
        }
        assert!(!self::keys().verify(&rejoin, cookie(1)), "another stream");
        let answer = keys.rejoined(1, state, cookie(1));
        assert!(keys.verify_answer(1, &answer, cookie(1)));
        assert!(!keys.verify_answer(2, &answer, cookie(1)));
        assert!(!keys.verify_answer(1, &answer, cookie(2)));
        let reflected = Rejoined { positions: state, proof: rejoin.proof };
        assert!(!keys.verify_answer(1, &reflected, cookie(1)));
    }

    #[test]
    fn keys_are_encoded_and_independent() {
        let keys = keys();
        let encoded = keys.encode();
        let parsed = RejoinKeys::parse(&encoded, 3).unwrap();
        assert_eq!(*parsed.encode(), *encoded);
        assert!(RejoinKeys::parse(&encoded, 2).is_none());
        assert!(RejoinKeys::parse(&encoded, 4).is_none());
        assert!(RejoinKeys::parse(&encoded[1..], 3).is_none());
        assert!(RejoinKeys::parse(&[], 3).is_none());
        let parts: Vec<_> = encoded.chunks(KEY_LEN).collect();
        assert!((1..parts.len()).all(|part| !parts[..part].contains(&parts[part])));
    }
}
