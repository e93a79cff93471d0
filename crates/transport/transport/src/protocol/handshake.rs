//! The handshake above a transport: Noise IK (revision 34) with the X25519 forms of both ends'
//! identity keys, or the agreement on no encryption.
//!
//! | from | message | bytes |
//! |---|---|---|
//! | connecting end | `"SNDRTRPT"` 02, mode: 0 plain, 1 Noise | 10 |
//! | | mode 1: Noise's first message (e, es, s, ss): its identity key, its fastest cipher | 129 |
//! | accepting end | mode 0: 0. Mode 1: 0, and Noise's second message (e, ee, se): cipher | 1, 50 |
//! | | or a refusal, not authenticated: 1, reason | 2 |
//! | connecting end | mode 1: the first record, which proves that its first message is new | 19 |
//! | accepting end | if that record is invalid: 0, 0, which no record begins with | 2 |

use keys::noise::{EphemeralKey, TAG_LEN};
use keys::{IdentityPublicKey, IdentitySecretKey};
use records::{OpenedRecord, RecordBuffer, RecordCipher, RecordOpener, RecordSealer};
use snow::HandshakeState;
use zeroize::Zeroizing;

use super::balancer::BalancerHeader;

const MAGIC: &[u8; 8] = b"SNDRTRPT";
const VERSION: u8 = 2;
const KEY_LEN: usize = 32;
const CIPHER_LEN: usize = 1;

/// The length of the prefix.
pub(crate) const PREFIX_LEN: usize = 10;

/// The length of Noise's first message.
pub(crate) const REQUEST_LEN: usize = KEY_LEN + 2 * (KEY_LEN + TAG_LEN) + CIPHER_LEN;

/// The length of Noise's second message, which follows a status of 0.
pub(crate) const REPLY_LEN: usize = KEY_LEN + CIPHER_LEN + TAG_LEN;

/// The first byte of an answer that accepts the connection.
pub(crate) const ACCEPTED: u8 = 0;

/// The first byte of an answer that rejects it; a byte with the reason follows.
pub(crate) const REFUSED: u8 = 1;

/// The length of the connecting end's first record.
pub(crate) const CONFIRM_LEN: usize = 2 + CONFIRM.len() + TAG_LEN;

/// The plaintext of that record.
const CONFIRM: [u8; 1] = [0];

/// Two bytes with which no record begins.
const NO_RECORD: [u8; 2] = [0; 2];

/// Why the handshake has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportHandshakeError {
    /// The first bytes are not those of this handshake.
    #[error("the connecting program is not a transport of Sunder")]
    NotATransport,
    /// The first bytes are those of a load balancer whose address is not configured.
    #[error(
        "it begins with a header of the PROXY protocol, but is not one of the load balancers in \
         this end's configuration"
    )]
    UnknownBalancer,
    /// The other end has another version of the handshake.
    #[error("it has version {0} of the handshake, this end {VERSION}: update the older one")]
    Version(u8),
    /// The mode is unknown.
    #[error("the first message has the unknown mode {0}")]
    Mode(u8),
    /// The first message does not fit this end's key. The connecting end expects another key here,
    /// or the message was changed.
    #[error(
        "its first message does not fit this end's key {}: another key was given there, or bytes \
         were changed on the way", .0
    )]
    OtherKeyExpected(Box<IdentityPublicKey>),
    /// The connecting end has proven its key, which is not accepted here.
    #[error("its key {} is not one that may connect here", .0)]
    Unknown(Box<IdentityPublicKey>),
    /// The connecting end has not proven the key that it has stated.
    #[error("it has not proven its key")]
    NotProven,
    /// The first record of the connecting end is invalid.
    #[error("its first record was changed on the path, or its first message was replayed")]
    NotConfirmed,
    /// The connecting end does not encrypt, and this end requires encryption.
    #[error("it connects without encryption, which is refused here; give it this end's key")]
    PlainRefused,
    /// The connecting end encrypts, and this end is insecure.
    #[error("it connects with encryption, and this end is insecure; both must be")]
    NoiseRefused,
    /// Too many connections wait to be accepted by the program.
    #[error("too many connections wait to be accepted")]
    Busy,
    /// The other end has rejected the connection for this reason.
    #[error("it refuses: {0}")]
    Refused(HandshakeRefusal),
    /// The answer is invalid, or was changed.
    #[error(
        "the other end has not proven that it has the expected key: check the address and the \
         key, or bytes were changed on the way"
    )]
    WrongReply,
}

impl TransportHandshakeError {
    /// Whether a key was wrong or something was changed, as opposed to a wrong setting.
    pub fn is_security(&self) -> bool {
        matches!(
            self,
            Self::OtherKeyExpected(_)
                | Self::Unknown(_)
                | Self::NotProven
                | Self::NotConfirmed
                | Self::WrongReply
                | Self::PlainRefused
                | Self::NoiseRefused
                | Self::Refused(
                    HandshakeRefusal::OtherKey
                        | HandshakeRefusal::NotExpected
                        | HandshakeRefusal::Plain
                        | HandshakeRefusal::Noise
                )
        )
    }

    /// The bytes that tell the other end why the connection is rejected.
    pub(crate) fn refusal_bytes(&self) -> Option<[u8; 2]> {
        let refusal = match self {
            // The other end treats them as a record that was changed.
            Self::NotConfirmed => return Some(NO_RECORD),
            Self::Version(_) | Self::Mode(_) => HandshakeRefusal::Version,
            Self::OtherKeyExpected(_) => HandshakeRefusal::OtherKey,
            Self::Unknown(_) => HandshakeRefusal::NotExpected,
            Self::PlainRefused => HandshakeRefusal::Plain,
            Self::NoiseRefused => HandshakeRefusal::Noise,
            Self::Busy => HandshakeRefusal::Busy,
            _ => return None,
        };
        Some(refusal.answer())
    }
}

/// The reason in a refusal. It is not authenticated, and only helps a user to find the mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum HandshakeRefusal {
    /// The accepting end has another version.
    #[error("it has another version of the handshake: update the older one")]
    Version = 1,
    /// The accepting end has another key, or cannot read the first message because it was changed.
    #[error(
        "the given key is not its key, or bytes were changed on the way: compare with the key that \
         it prints"
    )]
    OtherKey = 2,
    /// The accepting end does not accept this end's key.
    #[error("it does not expect a connection from this end's key")]
    NotExpected = 3,
    /// The accepting end requires encryption.
    #[error("it requires encryption: give its key instead")]
    Plain = 4,
    /// The accepting end does not encrypt.
    #[error("it does not encrypt, and this end requires encryption")]
    Noise = 5,
    /// The accepting end has too many connections.
    #[error("it is busy: it has too many connections at the moment; try again later")]
    Busy = 6,
}

impl HandshakeRefusal {
    /// Parses the reason.
    pub(crate) fn parse(byte: u8) -> Result<Self, TransportHandshakeError> {
        let all = [
            Self::Version,
            Self::OtherKey,
            Self::NotExpected,
            Self::Plain,
            Self::Noise,
            Self::Busy,
        ];
        let known = all.into_iter().find(|refusal| *refusal as u8 == byte);
        known.ok_or(TransportHandshakeError::WrongReply)
    }

    /// The bytes of the answer.
    pub(crate) fn answer(self) -> [u8; 2] {
        [REFUSED, self as u8]
    }
}

/// The mode that a connecting end requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeMode {
    /// No encryption.
    Plain,
    /// Noise; a message of [`REQUEST_LEN`] bytes follows.
    Noise,
}

impl HandshakeMode {
    /// The bytes that a connecting end sends before its first message.
    pub(crate) fn prefix(self) -> [u8; PREFIX_LEN] {
        let mut prefix = [0; PREFIX_LEN];
        prefix[..8].copy_from_slice(MAGIC);
        prefix[8] = VERSION;
        prefix[9] = u8::from(self == Self::Noise);
        prefix
    }

    /// Parses the bytes that a connecting end sends first.
    ///
    /// # Errors
    /// If they are not the beginning of a handshake of this version.
    pub(crate) fn parse(prefix: &[u8; PREFIX_LEN]) -> Result<Self, TransportHandshakeError> {
        if BalancerHeader::begins(prefix) {
            return Err(TransportHandshakeError::UnknownBalancer);
        }
        if &prefix[..8] != MAGIC {
            return Err(TransportHandshakeError::NotATransport);
        }
        match (prefix[8], prefix[9]) {
            (VERSION, 0) => Ok(Self::Plain),
            (VERSION, 1) => Ok(Self::Noise),
            (VERSION, mode) => Err(TransportHandshakeError::Mode(mode)),
            (version, _) => Err(TransportHandshakeError::Version(version)),
        }
    }
}

/// A completed handshake: the keys with which records are encrypted and decrypted.
pub(crate) struct TransportSession {
    pub(crate) sealer: RecordSealer,
    pub(crate) opener: RecordOpener,
    /// The other end's key.
    pub(crate) peer: IdentityPublicKey,
}

impl TransportSession {
    /// The session of a completed handshake, at the connecting or at the accepting end.
    fn new(
        mut noise: HandshakeState,
        peer: IdentityPublicKey,
        cipher: RecordCipher,
        has_connected: bool,
    ) -> Self {
        let (there, back) = noise.dangerously_get_raw_split();
        let (there, back) = (Zeroizing::new(there), Zeroizing::new(back));
        let (sent, received) = if has_connected { (there, back) } else { (back, there) };
        Self {
            sealer: RecordSealer::new(cipher, &sent),
            opener: RecordOpener::new(cipher, &received),
            peer,
        }
    }

    /// Checks the first record of the connecting end.
    ///
    /// # Errors
    /// If it is invalid: then the first message may have been a replay.
    pub(crate) fn confirm(
        &mut self,
        record: &[u8; CONFIRM_LEN],
    ) -> Result<(), TransportHandshakeError> {
        self.opener.receive_space()[..CONFIRM_LEN].copy_from_slice(record);
        self.opener.commit_received(CONFIRM_LEN);
        let mut confirm = [1; CONFIRM.len()];
        let is_confirmed = self.opener.poll() == Ok(OpenedRecord::Data)
            && self.opener.read(&mut confirm) == CONFIRM.len()
            && confirm == CONFIRM;
        if is_confirmed { Ok(()) } else { Err(TransportHandshakeError::NotConfirmed) }
    }
}

impl std::fmt::Debug for TransportSession {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("TransportSession").field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// The connecting end, after its first message.
pub(crate) struct HandshakeInitiator {
    noise: HandshakeState,
    peer: IdentityPublicKey,
    fastest: RecordCipher,
}

impl std::fmt::Debug for HandshakeInitiator {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("HandshakeInitiator").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl HandshakeInitiator {
    /// Begins a handshake with the end that has the key `peer`. Also returns what to send.
    /// `fastest` is the fastest cipher on this host.
    pub(crate) fn new(
        own: &IdentitySecretKey,
        peer: &IdentityPublicKey,
        fastest: RecordCipher,
        ephemeral: EphemeralKey,
    ) -> (Self, [u8; PREFIX_LEN + REQUEST_LEN]) {
        let mut noise = state(own, Some(peer), ephemeral);
        let mut hello = [0; PREFIX_LEN + REQUEST_LEN];
        hello[..PREFIX_LEN].copy_from_slice(&HandshakeMode::Noise.prefix());
        let mut payload = [cipher_byte(fastest); KEY_LEN + CIPHER_LEN];
        payload[..KEY_LEN].copy_from_slice(&own.public().to_bytes());
        let written = noise.write_message(&payload, &mut hello[PREFIX_LEN..]);
        // Public keys are not of small order, so each shared secret depends on both keys.
        debug_assert_eq!(written, Ok(REQUEST_LEN));
        (Self { noise, peer: *peer, fastest }, hello)
    }

    /// Completes the handshake with Noise's second message. Also returns the first record, which
    /// must be sent before any other.
    ///
    /// # Errors
    /// If the message is not from the end with the expected key.
    pub(crate) fn finish(
        mut self,
        reply: &[u8; REPLY_LEN],
    ) -> Result<(TransportSession, Vec<u8>), TransportHandshakeError> {
        let mut payload = [0; CIPHER_LEN + TAG_LEN];
        let read = self.noise.read_message(reply, &mut payload);
        read.map_err(|_| TransportHandshakeError::WrongReply)?;
        // The accepting end may choose only this end's fastest cipher, or the one for any
        // processor.
        let cipher =
            parse_cipher(payload[0]).filter(|cipher| *cipher == self.fastest.negotiate(*cipher));
        let cipher = cipher.ok_or(TransportHandshakeError::WrongReply)?;
        let mut session = TransportSession::new(self.noise, self.peer, cipher, true);
        let mut confirm = RecordBuffer::new();
        confirm.extend(&CONFIRM);
        let confirm = session.sealer.seal(&mut confirm).to_vec();
        Ok((session, confirm))
    }
}

/// Answers Noise's first message of an end whose key is accepted. `fastest` is the fastest cipher
/// on this host. Returns the answer with its status. The message may be a replay until the first
/// record was checked: [`TransportSession::confirm`].
///
/// # Errors
/// If the message is invalid, or from another end.
pub(crate) fn answer(
    own: &IdentitySecretKey,
    request: &[u8; REQUEST_LEN],
    admit: impl FnOnce(&IdentityPublicKey) -> bool,
    fastest: RecordCipher,
    ephemeral: EphemeralKey,
) -> Result<(TransportSession, [u8; 1 + REPLY_LEN]), TransportHandshakeError> {
    let mut noise = state(own, None, ephemeral);
    let mut payload = [0; KEY_LEN + CIPHER_LEN + TAG_LEN];
    if noise.read_message(request, &mut payload).is_err() {
        return Err(TransportHandshakeError::OtherKeyExpected(Box::new(own.public())));
    }
    let proven = payload.first_chunk().and_then(|key| IdentityPublicKey::from_bytes(key).ok());
    let proven = proven.filter(|key| noise.get_remote_static() == Some(&key.x25519()[..]));
    let peer = proven.ok_or(TransportHandshakeError::NotProven)?;
    if !admit(&peer) {
        return Err(TransportHandshakeError::Unknown(Box::new(peer)));
    }
    let theirs = parse_cipher(payload[KEY_LEN]).ok_or(TransportHandshakeError::NotProven)?;
    let cipher = fastest.negotiate(theirs);
    let mut reply = [ACCEPTED; 1 + REPLY_LEN];
    // This fails if the other end's ephemeral key is of small order.
    let written = noise.write_message(&[cipher_byte(cipher)], &mut reply[1..]);
    written.map_err(|_| TransportHandshakeError::NotProven)?;
    Ok((TransportSession::new(noise, peer, cipher, false), reply))
}

fn cipher_byte(cipher: RecordCipher) -> u8 {
    match cipher {
        RecordCipher::Aes256Gcm => 1,
        RecordCipher::ChaCha20Poly1305 => 2,
    }
}

fn parse_cipher(byte: u8) -> Option<RecordCipher> {
    [RecordCipher::Aes256Gcm, RecordCipher::ChaCha20Poly1305]
        .into_iter()
        .find(|cipher| cipher_byte(*cipher) == byte)
}

/// The Noise state before the first message; of the connecting end if the peer's key is given.
fn state(
    own: &IdentitySecretKey,
    peer: Option<&IdentityPublicKey>,
    ephemeral: EphemeralKey,
) -> HandshakeState {
    let mut prologue = [VERSION; MAGIC.len() + 1];
    prologue[..MAGIC.len()].copy_from_slice(MAGIC);
    keys::noise::handshake(own, peer, &prologue, ephemeral)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const AES: RecordCipher = RecordCipher::Aes256Gcm;
    const CHACHA: RecordCipher = RecordCipher::ChaCha20Poly1305;

    fn secret(number: u8) -> IdentitySecretKey {
        IdentitySecretKey::new(&[number; 32])
    }

    fn ephemeral(number: u8) -> EphemeralKey {
        EphemeralKey(Zeroizing::new([number; KEY_LEN]))
    }

    fn connect(from: u8, to: u8) -> (HandshakeInitiator, [u8; REQUEST_LEN]) {
        let (initiator, hello) = HandshakeInitiator::new(
            &secret(from),
            &secret(to).public(),
            AES,
            ephemeral(from + 100),
        );
        (initiator, *hello.last_chunk().unwrap())
    }

    fn answered(
        by: u8,
        request: &[u8; REQUEST_LEN],
        admitted: u8,
        own_ephemeral: u8,
    ) -> Result<(TransportSession, [u8; 1 + REPLY_LEN]), TransportHandshakeError> {
        let admitted = secret(admitted).public();
        answer(&secret(by), request, |key| *key == admitted, AES, ephemeral(own_ephemeral))
    }

    /// Both ends after a handshake.
    pub(crate) fn sessions() -> (TransportSession, TransportSession) {
        let (initiator, request) = connect(1, 2);
        let (mut two, reply) = answered(2, &request, 1, 9).unwrap();
        let (one, confirm) = initiator.finish(reply.last_chunk().unwrap()).unwrap();
        two.confirm(confirm.as_slice().try_into().unwrap()).unwrap();
        (one, two)
    }

    #[test]
    fn both_ends_know_each_other() {
        let (one, two) = sessions();
        assert_eq!((one.peer, two.peer), (secret(2).public(), secret(1).public()));
    }

    /// Ends on processors that prefer different ciphers can communicate.
    #[test]
    fn both_ends_take_one_cipher() {
        for [first, second] in [[AES, AES], [AES, CHACHA], [CHACHA, AES], [CHACHA, CHACHA]] {
            let (own, other) = (secret(1), secret(2));
            let (initiator, hello) =
                HandshakeInitiator::new(&own, &other.public(), first, ephemeral(3));
            let request = hello.last_chunk().unwrap();
            let answered = answer(&other, request, |_| true, second, ephemeral(4));
            let (mut two, reply) = answered.unwrap();
            let (_, confirm) = initiator.finish(reply.last_chunk().unwrap()).unwrap();
            let confirmed = two.confirm(confirm.as_slice().try_into().unwrap());
            assert_eq!(confirmed, Ok(()), "{first:?}, {second:?}");
        }
    }

    /// An answer is rejected if its cipher was not offered, or if it has none.
    #[test]
    fn another_cipher_is_refused() {
        for (byte, is_taken) in [(1, false), (2, true), (0, false), (3, false)] {
            let (own, other) = (secret(1), secret(2));
            let (initiator, hello) =
                HandshakeInitiator::new(&own, &other.public(), CHACHA, ephemeral(3));
            let mut noise = state(&other, None, ephemeral(4));
            noise.read_message(&hello[PREFIX_LEN..], &mut [0; 100]).unwrap();
            let mut reply = [0; REPLY_LEN];
            noise.write_message(&[byte], &mut reply).unwrap();
            assert_eq!(initiator.finish(&reply).is_ok(), is_taken, "{byte}");
        }
    }

    #[test]
    fn the_prefix_says_the_mode() {
        for mode in [HandshakeMode::Plain, HandshakeMode::Noise] {
            assert_eq!(HandshakeMode::parse(&mode.prefix()), Ok(mode));
            for at in 0..PREFIX_LEN {
                let mut changed = mode.prefix();
                changed[at] ^= 2;
                let error = HandshakeMode::parse(&changed).unwrap_err();
                match at {
                    0..8 => assert_eq!(error, TransportHandshakeError::NotATransport),
                    8 => assert_eq!(error, TransportHandshakeError::Version(0)),
                    _ => assert!(matches!(error, TransportHandshakeError::Mode(_))),
                }
            }
        }
    }

    #[test]
    fn a_wrong_key_is_named() {
        let (_, request) = connect(1, 3);
        let error = answered(2, &request, 1, 9).unwrap_err();
        assert_eq!(error, TransportHandshakeError::OtherKeyExpected(Box::new(secret(2).public())));
        let (_, request) = connect(1, 2);
        let error = answered(2, &request, 3, 9).unwrap_err();
        assert_eq!(error, TransportHandshakeError::Unknown(Box::new(secret(1).public())));
        assert_eq!(
            HandshakeRefusal::parse(error.refusal_bytes().unwrap()[1]),
            Ok(HandshakeRefusal::NotExpected)
        );
        assert_eq!(HandshakeRefusal::parse(0), Err(TransportHandshakeError::WrongReply));
    }

    #[test]
    fn no_changed_byte_passes() {
        let (_, request) = connect(1, 2);
        for at in 0..REQUEST_LEN {
            let mut changed = request;
            changed[at] ^= 1;
            assert!(answered(2, &changed, 1, 9).is_err(), "byte {at}");
        }
        for at in 0..REPLY_LEN {
            let (initiator, request) = connect(1, 2);
            let (_, reply) = answered(2, &request, 1, 9).unwrap();
            let mut reply: [u8; REPLY_LEN] = *reply.last_chunk().unwrap();
            reply[at] ^= 1;
            assert!(initiator.finish(&reply).is_err(), "byte {at}");
        }
        for at in 0..CONFIRM_LEN {
            let (initiator, request) = connect(1, 2);
            let (mut two, reply) = answered(2, &request, 1, 9).unwrap();
            let (mut one, confirm) = initiator.finish(reply.last_chunk().unwrap()).unwrap();
            let mut confirm: [u8; CONFIRM_LEN] = confirm.try_into().unwrap();
            confirm[at] ^= 1;
            let error = two.confirm(&confirm).unwrap_err();
            assert_eq!(error, TransportHandshakeError::NotConfirmed, "byte {at}");
            // The other end gets the refusal.
            let refusal = error.refusal_bytes().unwrap();
            one.opener.receive_space()[..refusal.len()].copy_from_slice(&refusal);
            one.opener.commit_received(refusal.len());
            assert!(one.opener.poll().is_err(), "byte {at}");
        }
    }

    /// What an attacker has recorded of one connection cannot open another one.
    #[test]
    fn a_replay_is_not_confirmed() {
        let (initiator, request) = connect(1, 2);
        let (_, reply) = answered(2, &request, 1, 9).unwrap();
        let (_, confirm) = initiator.finish(reply.last_chunk().unwrap()).unwrap();
        let (mut again, _) = answered(2, &request, 1, 10).unwrap();
        let confirmed = again.confirm(confirm.as_slice().try_into().unwrap());
        assert_eq!(confirmed, Err(TransportHandshakeError::NotConfirmed));
    }

    #[test]
    fn nobody_states_the_key_of_another() {
        let mut noise = state(&secret(1), Some(&secret(2).public()), ephemeral(5));
        let mut request = [0; REQUEST_LEN];
        let payload = [&secret(3).public().to_bytes()[..], &[1]].concat();
        noise.write_message(&payload, &mut request).unwrap();
        assert_eq!(answered(2, &request, 3, 9).unwrap_err(), TransportHandshakeError::NotProven);
    }
}
