//! The messages by which two parties that have met at a relay agree to exchange datagrams, over
//! their encrypted connection through the relay. Specified in `docs/protocols/direct.md`.

use std::io::{self, Read};
use std::net::SocketAddr;

use keys::KEY_LEN;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::file::invalid;
use super::punching::MAX_CANDIDATES;
use super::relay_binding::{decode_plain_address, encode_plain_address};

/// A party's first message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DatagramOffer {
    /// The connection through the relay is used.
    None,
    /// It can exchange datagrams.
    Candidates {
        /// Its part of the key.
        key: Zeroizing<[u8; KEY_LEN]>,
        /// Where it may be reached.
        addresses: Vec<SocketAddr>,
    },
}

impl DatagramOffer {
    pub(crate) fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(256));
        match self {
            Self::None => bytes.push(0),
            Self::Candidates { key, addresses } => {
                bytes.push(1);
                bytes.extend(&**key);
                let addresses = &addresses[..addresses.len().min(MAX_CANDIDATES)];
                bytes.push(u8::try_from(addresses.len()).unwrap_or(0));
                for address in addresses {
                    bytes.extend(encode_plain_address(*address));
                }
            }
        }
        bytes
    }

    /// Reads an offer.
    ///
    /// # Errors
    /// As for the reader, and if the offer is invalid.
    pub(crate) fn read(from: &mut impl Read) -> io::Result<Self> {
        let mut kind = [0];
        from.read_exact(&mut kind)?;
        match kind {
            [0] => return Ok(Self::None),
            [1] => {}
            _ => return Err(invalid("an offer of datagrams of an unknown kind")),
        }
        let (mut key, mut count) = (Zeroizing::new([0; KEY_LEN]), [0]);
        from.read_exact(&mut *key)?;
        from.read_exact(&mut count)?;
        if usize::from(count[0]) > MAX_CANDIDATES {
            return Err(invalid("an offer of datagrams with too many addresses"));
        }
        let mut addresses = Vec::new();
        for _ in 0..count[0] {
            let mut address = [0; 18];
            from.read_exact(&mut address)?;
            addresses.extend(decode_plain_address(address));
        }
        Ok(Self::Candidates { key, addresses })
    }
}

/// The key of the pings, from the parts of the connecting and of the waiting party.
pub(crate) fn punching_key(
    connecting: &[u8; KEY_LEN],
    waiting: &[u8; KEY_LEN],
) -> Zeroizing<[u8; KEY_LEN]> {
    let state = Sha256::new().chain_update(b"Sunder punching 1 key");
    Zeroizing::new(state.chain_update(connecting).chain_update(waiting).finalize().into())
}

/// What the connecting party uses, in one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum PathDecision {
    /// The connection through the relay.
    RelayedTcp = 0,
    /// A connection over datagrams between the parties, which is open.
    Direct = 1,
    /// A connection over datagrams that the relay forwards, which is open.
    RelayedDatagrams = 2,
}

impl PathDecision {
    pub(crate) fn parse(byte: u8) -> Option<Self> {
        [Self::RelayedTcp, Self::Direct, Self::RelayedDatagrams]
            .into_iter()
            .find(|decision| *decision as u8 == byte)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn offers_are_read_as_they_were_sent() {
        let addresses = vec!["192.0.2.1:7".parse().unwrap(), "[2001:db8::1]:9".parse().unwrap()];
        let offer = DatagramOffer::Candidates { key: Zeroizing::new([7; KEY_LEN]), addresses };
        for offer in [DatagramOffer::None, offer] {
            let bytes = offer.encode();
            assert_eq!(DatagramOffer::read(&mut &bytes[..]).unwrap(), offer);
            assert!(DatagramOffer::read(&mut &bytes[..bytes.len() - 1]).is_err());
        }
        assert_ne!(punching_key(&[1; 32], &[2; 32]), punching_key(&[2; 32], &[1; 32]));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = DatagramOffer::read(&mut &bytes[..]);
        }
    }
}
