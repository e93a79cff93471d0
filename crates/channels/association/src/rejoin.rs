//! The messages by which a new connection replaces a channel's connection in an association. The
//! transport computes and verifies their proofs.

/// Length of a proof in bytes.
pub const PROOF_LEN: usize = 32;
/// Length of the body of a [`Rejoin`] and of a [`Rejoined`] in bytes.
pub(crate) const REJOIN_LEN: usize = 16 + 1 + REJOINED_LEN;
pub(crate) const REJOINED_LEN: usize = 16 + PROOF_LEN;

/// Client to server, on a new connection after its cookie: it asks to replace a channel's
/// connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejoin {
    /// The identifier of the association, assigned by the transport.
    pub association: [u8; 16],
    /// The channel's index.
    pub channel: u8,
    /// The client's positions.
    pub positions: ChannelPositions,
    /// The proof that the client belongs to the association.
    pub proof: [u8; PROOF_LEN],
}

/// Server to client: the answer to a [`Rejoin`] that it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejoined {
    /// The server's positions.
    pub positions: ChannelPositions,
    /// The proof that it has the association.
    pub proof: [u8; PROOF_LEN],
}

/// An end's positions in both directions of a channel, in bytes that the channel carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelPositions {
    /// The position up to which this end has received what it needs.
    pub received: u64,
    /// The position of the oldest byte that this end can retransmit.
    pub kept_from: u64,
}

impl ChannelPositions {
    /// The bytes that go on the wire.
    pub fn encode(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.received.to_be_bytes());
        bytes[8..].copy_from_slice(&self.kept_from.to_be_bytes());
        bytes
    }

    fn parse(bytes: [u8; 16]) -> Self {
        let number = |bytes: &[u8]| bytes.iter().fold(0, |all, &byte| all << 8 | u64::from(byte));
        let (received, kept_from) = bytes.split_at(8);
        Self { received: number(received), kept_from: number(kept_from) }
    }
}

impl Rejoin {
    pub(crate) fn encode(&self) -> Vec<u8> {
        [&self.association[..], &[self.channel], &self.positions.encode(), &self.proof].concat()
    }

    /// `None` if the body has another length.
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        let (association, rest) = body.split_first_chunk()?;
        let (&channel, rest) = rest.split_first()?;
        let Rejoined { positions: state, proof } = Rejoined::parse(rest)?;
        Some(Self { association: *association, channel, positions: state, proof })
    }
}

impl Rejoined {
    pub(crate) fn encode(&self) -> Vec<u8> {
        [&self.positions.encode()[..], &self.proof].concat()
    }

    /// `None` if the body has another length.
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        let (state, proof) = body.split_first_chunk()?;
        Some(Self { positions: ChannelPositions::parse(*state), proof: proof.try_into().ok()? })
    }
}
