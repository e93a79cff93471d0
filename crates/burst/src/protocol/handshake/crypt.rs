//! Encrypting packets.

use keys::noise::TAG_LEN;
use snow::StatelessTransportState;

/// What encrypts and decrypts the packets of a connection, or does not.
pub(in crate::protocol) enum Crypt {
    Insecure,
    Noise(Box<StatelessTransportState>),
}

impl Crypt {
    /// The bytes that encryption adds.
    pub(in crate::protocol) fn overhead(&self) -> usize {
        match self {
            Self::Insecure => 0,
            Self::Noise(_) => TAG_LEN,
        }
    }

    /// Whether what is wrong can only be the peer's doing.
    pub(in crate::protocol) fn is_authentic(&self) -> bool {
        matches!(self, Self::Noise(_))
    }

    /// Adds the frames of a packet to its header.
    pub(in crate::protocol) fn seal(&self, number: u64, frames: &[u8], datagram: &mut Vec<u8>) {
        match self {
            Self::Insecure => datagram.extend(frames),
            Self::Noise(noise) => {
                let start = datagram.len();
                datagram.resize(start + frames.len() + TAG_LEN, 0);
                let sealed = noise.write_message(number, frames, &mut datagram[start..]);
                debug_assert!(sealed.is_ok(), "packets are short");
            }
        }
    }

    /// The frames of a packet. `None` if it is not the peer's.
    pub(in crate::protocol) fn open<'a>(
        &self,
        number: u64,
        sealed: &'a [u8],
        buffer: &'a mut Vec<u8>,
    ) -> Option<&'a [u8]> {
        match self {
            Self::Insecure => Some(sealed),
            Self::Noise(noise) => {
                buffer.resize(sealed.len(), 0);
                let len = noise.read_message(number, sealed, buffer).ok()?;
                buffer.get(..len)
            }
        }
    }
}

impl std::fmt::Debug for Crypt {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(if self.is_authentic() { "Noise" } else { "Insecure" })
    }
}
