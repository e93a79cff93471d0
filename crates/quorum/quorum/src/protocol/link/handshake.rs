//! The handshake of a link: Noise IK (revision 34) with the X25519 forms of both servers' identity
//! keys. Each end proves its identity. An attacker who records traffic and obtains these keys later
//! cannot decrypt it.
//!
//! | from | message | bytes |
//! |---|---|---|
//! | dialer | `"SNDRLINK"` 02, Noise's first message: e, es, s, ss; its identity key | 137 |
//! | acceptor | 0, Noise's second message: e, ee, se; or a refusal: 1, reason, own key | 49 |
//! | dialer | the first record: it proves that the hello is not a replay | 27 |
//!
//! A refusal is not authenticated. It only helps an operator to find a wrong key.

use keys::noise::{EphemeralKey, TAG_LEN};
use keys::{IdentityPublicKey, IdentitySecretKey};
use snow::{HandshakeState, TransportState};

const MAGIC: &[u8; 8] = b"SNDRLINK";
const VERSION: u8 = 2;
const KEY_LEN: usize = 32;

/// The length of the first message: magic, version, e, s with its tag, the identity with its tag.
pub(crate) const HELLO_LEN: usize = 9 + KEY_LEN + 2 * (KEY_LEN + TAG_LEN);

/// The length of the reply.
pub(crate) const REPLY_LEN: usize = 1 + KEY_LEN + TAG_LEN;

/// The length of the dialer's first record, including its length field.
pub(crate) const CONFIRM_LEN: usize = 2 + CONFIRM.len() + TAG_LEN;

/// The plaintext of the dialer's first record: a ping.
pub(crate) const CONFIRM: [u8; 9] = [0; 9];

/// Why a handshake fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkHandshakeError {
    /// The first bytes are not the hello of a link.
    #[error("the peer is not a server of a group")]
    NotALink,
    /// The other end uses another version.
    #[error("it uses version {0} of the link protocol, this server version {VERSION}")]
    Version(u8),
    /// The dialer expects a server with another key here, or its hello is invalid.
    #[error("it expects a server with another key here")]
    OtherKeyExpected,
    /// The dialer has proven its key, but this key may not connect here.
    #[error("its key {0} is not that of a server that may connect here")]
    Unknown(Box<IdentityPublicKey>),
    /// The dialer has not proven the key that it states.
    #[error("it has not proven its key")]
    NotProven,
    /// The acceptor states another key than the expected one.
    #[error("the server there says that its key is {0}")]
    OtherKey(Box<IdentityPublicKey>),
    /// The acceptor says that it does not know this server's key.
    #[error("the server there does not expect a connection from this server's key")]
    NotExpected,
    /// The reply is invalid.
    #[error("the answer is not that of a server with the expected key")]
    WrongReply,
}

/// The reason of a refusal.
#[derive(Clone, Copy)]
enum LinkRefusalReason {
    OtherKey = 1,
    NotExpected = 2,
}

/// A handshake in which both ends are proven. It encrypts and decrypts the records that follow.
pub(crate) struct LinkSession {
    pub(super) noise: TransportState,
    /// The identity of the other end.
    pub(crate) peer: IdentityPublicKey,
}

impl std::fmt::Debug for LinkSession {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("LinkSession").field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// The connecting end, after its hello.
pub(crate) struct LinkDialer {
    noise: HandshakeState,
    peer: IdentityPublicKey,
}

impl LinkDialer {
    /// Begins a handshake with the server that has the key `peer`. Also returns the hello.
    pub(crate) fn new(
        own: &IdentitySecretKey,
        peer: &IdentityPublicKey,
        ephemeral: EphemeralKey,
    ) -> (Self, [u8; HELLO_LEN]) {
        let mut noise = state(own, Some(peer), ephemeral);
        let mut hello = [0; HELLO_LEN];
        hello[..8].copy_from_slice(MAGIC);
        hello[8] = VERSION;
        let written = noise.write_message(&own.public().to_bytes(), &mut hello[9..]);
        // Pinned keys are not weak, so each shared secret depends on both keys.
        debug_assert_eq!(written, Ok(HELLO_LEN - 9));
        (Self { noise, peer: *peer }, hello)
    }

    /// Completes the handshake. Also returns the first record.
    ///
    /// # Errors
    /// If the reply is a refusal, or not from the server with the expected key.
    pub(crate) fn finish(
        mut self,
        reply: &[u8; REPLY_LEN],
    ) -> Result<(LinkSession, [u8; CONFIRM_LEN]), LinkHandshakeError> {
        match reply[0] {
            0 => {}
            1 => return Err(self.refused(reply)),
            _ => return Err(LinkHandshakeError::WrongReply),
        }
        let read = self.noise.read_message(&reply[1..], &mut [0; TAG_LEN]);
        read.map_err(|_| LinkHandshakeError::WrongReply)?;
        let mut noise =
            self.noise.into_transport_mode().map_err(|_| LinkHandshakeError::WrongReply)?;
        let mut confirm = [0; CONFIRM_LEN];
        let len = CONFIRM_LEN - 2;
        confirm[1] = len.to_le_bytes()[0];
        let written = noise.write_message(&CONFIRM, &mut confirm[2..]);
        debug_assert_eq!(written, Ok(len));
        Ok((LinkSession { noise, peer: self.peer }, confirm))
    }

    /// The error that a refusal stands for.
    fn refused(&self, reply: &[u8; REPLY_LEN]) -> LinkHandshakeError {
        let key = reply[2..].first_chunk().and_then(|key| IdentityPublicKey::from_bytes(key).ok());
        match (reply[1], key) {
            (1, Some(key)) if key != self.peer => LinkHandshakeError::OtherKey(Box::new(key)),
            (2, _) => LinkHandshakeError::NotExpected,
            _ => LinkHandshakeError::WrongReply,
        }
    }
}

/// The accepting end, after its reply. The hello may be a replay until the first record arrives.
pub(crate) struct UnconfirmedLink {
    session: LinkSession,
}

/// A hello that is refused.
#[derive(Debug)]
pub(crate) struct RefusedLinkHello {
    /// The error.
    pub(crate) error: LinkHandshakeError,
    /// The reply, if one is to be sent.
    pub(crate) reply: Option<[u8; REPLY_LEN]>,
}

/// Answers a hello from a server for whose key `known` is true.
///
/// # Errors
/// If the hello is not for this server, or not from such a server.
pub(crate) fn answer(
    own: &IdentitySecretKey,
    hello: &[u8; HELLO_LEN],
    known: impl FnOnce(&IdentityPublicKey) -> bool,
    ephemeral: EphemeralKey,
) -> Result<(UnconfirmedLink, [u8; REPLY_LEN]), RefusedLinkHello> {
    let silent = |error| RefusedLinkHello { error, reply: None };
    let refusal = |error, reason| RefusedLinkHello { error, reply: Some(refuse(own, reason)) };
    if &hello[..8] != MAGIC {
        return Err(silent(LinkHandshakeError::NotALink));
    }
    if hello[8] != VERSION {
        return Err(silent(LinkHandshakeError::Version(hello[8])));
    }
    let mut noise = state(own, None, ephemeral);
    let mut identity = [0; KEY_LEN + TAG_LEN];
    if noise.read_message(&hello[9..], &mut identity).is_err() {
        return Err(refusal(LinkHandshakeError::OtherKeyExpected, LinkRefusalReason::OtherKey));
    }
    let proven = identity.first_chunk().and_then(|key| IdentityPublicKey::from_bytes(key).ok());
    let proven = proven.filter(|key| noise.get_remote_static() == Some(&key.x25519()));
    let Some(peer) = proven else { return Err(silent(LinkHandshakeError::NotProven)) };
    if !known(&peer) {
        return Err(refusal(
            LinkHandshakeError::Unknown(Box::new(peer)),
            LinkRefusalReason::NotExpected,
        ));
    }
    let mut reply = [0; REPLY_LEN];
    if noise.write_message(&[], &mut reply[1..]).is_err() {
        // The dialer's ephemeral key has a small order.
        return Err(silent(LinkHandshakeError::NotProven));
    }
    let noise = noise.into_transport_mode().map_err(|_| silent(LinkHandshakeError::NotProven))?;
    Ok((UnconfirmedLink { session: LinkSession { noise, peer } }, reply))
}

impl UnconfirmedLink {
    /// Completes the handshake with the dialer's first record.
    ///
    /// # Errors
    /// If the record is not from the end that sent the hello: the hello was replayed.
    pub(crate) fn confirm(
        mut self,
        record: &[u8; CONFIRM_LEN],
    ) -> Result<LinkSession, LinkHandshakeError> {
        let mut plaintext = [0; CONFIRM_LEN];
        let length = usize::from(u16::from_be_bytes([record[0], record[1]]));
        let read = self.session.noise.read_message(&record[2..], &mut plaintext);
        if length == CONFIRM_LEN - 2 && read.is_ok_and(|len| plaintext[..len] == CONFIRM) {
            Ok(self.session)
        } else {
            Err(LinkHandshakeError::NotProven)
        }
    }
}

fn refuse(own: &IdentitySecretKey, reason: LinkRefusalReason) -> [u8; REPLY_LEN] {
    let mut reply = [0; REPLY_LEN];
    (reply[0], reply[1]) = (1, reason as u8);
    reply[2..2 + KEY_LEN].copy_from_slice(&own.public().to_bytes());
    reply
}

/// The state before the first message. A dialer passes its peer's key.
fn state(
    own: &IdentitySecretKey,
    peer: Option<&IdentityPublicKey>,
    ephemeral: EphemeralKey,
) -> HandshakeState {
    keys::noise::handshake(own, peer, MAGIC, ephemeral)
}

#[cfg(test)]
pub(super) mod tests {
    use zeroize::Zeroizing;

    use super::*;
    use crate::log::tests::secret;

    fn ephemeral(byte: u8) -> EphemeralKey {
        EphemeralKey(Zeroizing::new([byte; KEY_LEN]))
    }

    fn dial(from: u8, to: u8) -> (LinkDialer, [u8; HELLO_LEN]) {
        LinkDialer::new(&secret(from), &secret(to).public(), ephemeral(from + 100))
    }

    fn answer_as(
        server: u8,
        hello: &[u8; HELLO_LEN],
        known: u8,
    ) -> Result<(UnconfirmedLink, [u8; REPLY_LEN]), RefusedLinkHello> {
        let known = secret(known).public();
        answer(&secret(server), hello, |key| *key == known, ephemeral(server + 100))
    }

    fn refused(
        answered: Result<(UnconfirmedLink, [u8; REPLY_LEN]), RefusedLinkHello>,
    ) -> (LinkHandshakeError, Option<[u8; REPLY_LEN]>) {
        answered.map(|_| ()).map_err(|refused| (refused.error, refused.reply)).unwrap_err()
    }

    /// Both ends of a link.
    pub(in super::super) fn sessions() -> (LinkSession, LinkSession) {
        let (dialer, hello) = dial(1, 2);
        let (unconfirmed, reply) = answer_as(2, &hello, 1).ok().unwrap();
        let (one, confirm) = dialer.finish(&reply).unwrap();
        (one, unconfirmed.confirm(&confirm).unwrap())
    }

    #[test]
    fn both_ends_know_each_other_and_have_the_same_keys() {
        let (mut one, mut two) = sessions();
        assert_eq!((one.peer, two.peer), (secret(2).public(), secret(1).public()));
        let (mut record, mut text) = ([0; 21], [0; 5]);
        assert_eq!(one.noise.write_message(b"there", &mut record), Ok(21));
        assert_eq!(two.noise.read_message(&record, &mut text), Ok(5));
        assert_eq!(&text, b"there");
    }

    #[test]
    fn the_bytes_are_those_of_version_2() {
        let (dialer, hello) = dial(1, 2);
        let (_, reply) = answer_as(2, &hello, 1).ok().unwrap();
        let (_, confirm) = dialer.finish(&reply).unwrap();
        let digest = |bytes: &[u8]| {
            use sha2::{Digest, Sha256};
            *Sha256::digest(bytes).first_chunk().unwrap()
        };
        let digests = [&hello[..], &reply, &confirm].map(|bytes| u64::from_be_bytes(digest(bytes)));
        assert_eq!(digests, [0x7e70_791e_67d3_a8cf, 0xf854_8f1f_aaf1_d449, 0x6836_3f05_0851_2641]);
    }

    #[test]
    fn a_wrong_key_is_named_at_both_ends() {
        // The dialer expects another server.
        let (dialer, hello) = dial(1, 3);
        let (error, reply) = refused(answer_as(2, &hello, 1));
        assert_eq!(error, LinkHandshakeError::OtherKeyExpected);
        let error = dialer.finish(&reply.unwrap()).err().unwrap();
        assert_eq!(error, LinkHandshakeError::OtherKey(Box::new(secret(2).public())));
        // The acceptor does not know the dialer.
        let (dialer, hello) = dial(1, 2);
        let (error, reply) = refused(answer_as(2, &hello, 3));
        assert_eq!(error, LinkHandshakeError::Unknown(Box::new(secret(1).public())));
        let error = dialer.finish(&reply.unwrap()).err().unwrap();
        assert_eq!(error, LinkHandshakeError::NotExpected);
    }

    #[test]
    fn handshake_with_a_changed_byte_fails() {
        let (_, hello) = dial(1, 2);
        for at in 0..HELLO_LEN {
            let mut changed = hello;
            changed[at] ^= 1;
            let (error, reply) = refused(answer_as(2, &changed, 1));
            match at {
                0..8 => assert_eq!(error, LinkHandshakeError::NotALink),
                8 => assert_eq!(error, LinkHandshakeError::Version(VERSION ^ 1)),
                _ => assert_eq!(error, LinkHandshakeError::OtherKeyExpected),
            }
            assert_eq!(reply.is_some(), at > 8);
        }
        for at in 0..REPLY_LEN {
            let (dialer, hello) = dial(1, 2);
            let (_, mut reply) = answer_as(2, &hello, 1).ok().unwrap();
            reply[at] ^= 1;
            assert!(dialer.finish(&reply).is_err(), "byte {at}");
        }
        for at in 0..CONFIRM_LEN {
            let (dialer, hello) = dial(1, 2);
            let (unconfirmed, reply) = answer_as(2, &hello, 1).ok().unwrap();
            let (_, mut confirm) = dialer.finish(&reply).unwrap();
            confirm[at] ^= 1;
            assert_eq!(unconfirmed.confirm(&confirm).err(), Some(LinkHandshakeError::NotProven));
        }
    }

    /// The recording of one connection does not open another.
    #[test]
    fn a_replay_is_not_confirmed() {
        let (dialer, hello) = dial(1, 2);
        let (_, reply) = answer_as(2, &hello, 1).ok().unwrap();
        let (_, confirm) = dialer.finish(&reply).unwrap();
        let known = |_: &IdentityPublicKey| true;
        let (unconfirmed, _) = answer(&secret(2), &hello, known, ephemeral(77)).ok().unwrap();
        assert_eq!(unconfirmed.confirm(&confirm).err(), Some(LinkHandshakeError::NotProven));
    }

    /// A server of the group that states another server's key can use only its own X25519 key.
    #[test]
    fn handshake_rejects_the_identity_of_another_server() {
        let mut noise = state(&secret(1), Some(&secret(2).public()), ephemeral(5));
        let mut hello = [0; HELLO_LEN];
        hello[..8].copy_from_slice(MAGIC);
        hello[8] = VERSION;
        noise.write_message(&secret(3).public().to_bytes(), &mut hello[9..]).unwrap();
        let (error, reply) = refused(answer_as(2, &hello, 3));
        assert_eq!((error, reply), (LinkHandshakeError::NotProven, None));
    }
}
