//! The handshake above a transport: Noise IK (revision 34) with the X25519 forms of both ends'
//! identity keys, or the statement that there is none.
//!
//! | from | message | bytes |
//! |---|---|---|
//! | who connects | `"SNDRTRPT"` 01, mode: 0 plain, 1 Noise | 10 |
//! | | mode 1: Noise's first message (e, es, s, ss), whose payload is its identity key | 128 |
//! | who answers | mode 0: 0. Mode 1: 0, and Noise's second message (e, ee, se) | 1, 49 |
//! | | or a refusal, not authenticated: 1, reason | 2 |
//! | who connects | mode 1: the first record, which proves that its first message is new | 19 |

use keys::noise::{Ephemeral, TAG_LEN};
use keys::{PublicKey, SecretKey};
use snow::{HandshakeState, StatelessTransportState};

use super::records::{Opener, Sealer};

const MAGIC: &[u8; 8] = b"SNDRTRPT";
const VERSION: u8 = 1;
const KEY_LEN: usize = 32;

/// The length of what comes first.
pub(crate) const PREFIX_LEN: usize = 10;

/// The length of Noise's first message.
pub(crate) const REQUEST_LEN: usize = KEY_LEN + 2 * (KEY_LEN + TAG_LEN);

/// The length of Noise's second message, which follows a status of 0.
pub(crate) const REPLY_LEN: usize = KEY_LEN + TAG_LEN;

/// The answer's first byte: the handshake goes on.
pub(crate) const ACCEPTED: u8 = 0;

/// The answer's first byte: it does not, and a byte with the reason follows.
pub(crate) const REFUSED: u8 = 1;

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The first bytes are not those of this handshake.
    #[error("what connects is not a transport of Sunder")]
    NotATransport,
    /// The other end has another version.
    #[error("it has version {0} of the handshake, this end {VERSION}: update the older one")]
    Version(u8),
    /// The mode is neither of both.
    #[error("the first message has mode {0}, which there is not")]
    Mode(u8),
    /// The end that connects expects another key here, or has none.
    #[error("it expects another key here than {}", .0)]
    OtherKeyExpected(Box<PublicKey>),
    /// The end that connects has proven its key, which is not one of those that may connect.
    #[error("its key {} is not one that may connect here", .0)]
    Unknown(Box<PublicKey>),
    /// The end that connects has not proven the key that it states.
    #[error("it has not proven its key")]
    NotProven,
    /// The end that connects wants no encryption, and this end does.
    #[error("it connects without encryption, which is refused here; give it this end's key")]
    PlainRefused,
    /// The end that connects wants encryption, and this end has been told to have none.
    #[error("it connects with encryption, and this end is insecure; both must be")]
    NoiseRefused,
    /// Too many connections wait until the program accepts them.
    #[error("too many connections wait to be accepted")]
    Busy,
    /// The other end has refused, and says this reason.
    #[error("it refuses: {0}")]
    Refused(Refusal),
    /// The answer is not one.
    #[error("the answer is not that of an end with the expected key")]
    WrongReply,
}

impl HandshakeError {
    /// Whether a key was wrong or something was changed, rather than a setting.
    pub fn is_security(&self) -> bool {
        matches!(
            self,
            Self::OtherKeyExpected(_)
                | Self::Unknown(_)
                | Self::NotProven
                | Self::WrongReply
                | Self::PlainRefused
                | Self::NoiseRefused
                | Self::Refused(
                    Refusal::OtherKey | Refusal::NotExpected | Refusal::Plain | Refusal::Noise
                )
        )
    }

    /// What the other end is told.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Version(_) | Self::Mode(_) => Some(Refusal::Version),
            Self::OtherKeyExpected(_) => Some(Refusal::OtherKey),
            Self::Unknown(_) => Some(Refusal::NotExpected),
            Self::PlainRefused => Some(Refusal::Plain),
            Self::NoiseRefused => Some(Refusal::Noise),
            Self::Busy => Some(Refusal::Busy),
            _ => None,
        }
    }
}

/// What a refusal says. It is not authenticated: it only helps a person to find the mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Refusal {
    /// It has another version.
    #[error("it has another version of the handshake: update the older one")]
    Version = 1,
    /// It has another key.
    #[error("it has another key than the one given; compare with the key that it prints")]
    OtherKey = 2,
    /// It does not know this end's key.
    #[error("it does not expect a connection from this end's key")]
    NotExpected = 3,
    /// It refuses a connection without encryption.
    #[error("it is not insecure: give its key instead")]
    Plain = 4,
    /// It has no encryption.
    #[error("it is insecure: this end must be told to be insecure, too")]
    Noise = 5,
    /// It has no room.
    #[error("it is busy: it has too many connections at the moment; try again later")]
    Busy = 6,
}

impl Refusal {
    /// What a byte stands for.
    pub(crate) fn parse(byte: u8) -> Result<Self, HandshakeError> {
        let all = [
            Self::Version,
            Self::OtherKey,
            Self::NotExpected,
            Self::Plain,
            Self::Noise,
            Self::Busy,
        ];
        let known = all.into_iter().find(|refusal| *refusal as u8 == byte);
        known.ok_or(HandshakeError::WrongReply)
    }

    /// The whole answer.
    pub(crate) fn answer(self) -> [u8; 2] {
        [REFUSED, self as u8]
    }
}

/// What an end that connects asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// No encryption.
    Plain,
    /// Noise; a message of [`REQUEST_LEN`] bytes follows.
    Noise,
}

impl Mode {
    /// What an end sends that connects in this mode, before the message.
    pub(crate) fn prefix(self) -> [u8; PREFIX_LEN] {
        let mut prefix = [0; PREFIX_LEN];
        prefix[..8].copy_from_slice(MAGIC);
        prefix[8] = VERSION;
        prefix[9] = u8::from(self == Self::Noise);
        prefix
    }

    /// Reads what an end has sent that connects.
    ///
    /// # Errors
    /// When it is not the beginning of a handshake of this version.
    pub(crate) fn parse(prefix: &[u8; PREFIX_LEN]) -> Result<Self, HandshakeError> {
        if &prefix[..8] != MAGIC {
            return Err(HandshakeError::NotATransport);
        }
        match (prefix[8], prefix[9]) {
            (VERSION, 0) => Ok(Self::Plain),
            (VERSION, 1) => Ok(Self::Noise),
            (VERSION, mode) => Err(HandshakeError::Mode(mode)),
            (version, _) => Err(HandshakeError::Version(version)),
        }
    }
}

/// A handshake that both ends have answered: what encrypts and decrypts records from here on.
pub(crate) struct Session {
    pub(crate) sealer: Sealer,
    pub(crate) opener: Opener,
    /// The other end's key.
    pub(crate) peer: PublicKey,
}

impl Session {
    fn new(noise: StatelessTransportState, peer: PublicKey) -> Self {
        let noise = std::sync::Arc::new(noise);
        Self { sealer: Sealer::new(noise.clone()), opener: Opener::new(noise), peer }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Session").field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// The end that has connected, after its first message.
pub(crate) struct Initiator {
    noise: HandshakeState,
    peer: PublicKey,
}

impl std::fmt::Debug for Initiator {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Initiator").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl Initiator {
    /// Begins a handshake with the end that has the key `peer`; also returns what to send.
    pub(crate) fn new(
        own: &SecretKey,
        peer: &PublicKey,
        ephemeral: Ephemeral,
    ) -> (Self, [u8; PREFIX_LEN + REQUEST_LEN]) {
        let mut noise = state(own, Some(peer), ephemeral);
        let mut hello = [0; PREFIX_LEN + REQUEST_LEN];
        hello[..PREFIX_LEN].copy_from_slice(&Mode::Noise.prefix());
        let written = noise.write_message(&own.public().to_bytes(), &mut hello[PREFIX_LEN..]);
        // A public key is not weak, so each shared secret depends on both.
        debug_assert_eq!(written, Ok(REQUEST_LEN));
        (Self { noise, peer: *peer }, hello)
    }

    /// Ends the handshake with Noise's second message; also returns the first record, which is to
    /// be sent before any other.
    ///
    /// # Errors
    /// When the message is not from the end with the expected key.
    pub(crate) fn finish(
        mut self,
        reply: &[u8; REPLY_LEN],
    ) -> Result<(Session, Vec<u8>), HandshakeError> {
        let read = self.noise.read_message(reply, &mut [0; TAG_LEN]);
        read.map_err(|_| HandshakeError::WrongReply)?;
        let noise = self.noise.into_stateless_transport_mode();
        let mut session = Session::new(noise.map_err(|_| HandshakeError::WrongReply)?, self.peer);
        let mut confirm = Vec::new();
        session.sealer.seal(&CONFIRM, &mut confirm);
        Ok((session, confirm))
    }
}

/// The plaintext of the first record of the end that has connected.
pub(crate) const CONFIRM: [u8; 1] = [0];

/// Answers Noise's first message from an end whose key is admitted. Returns the answer, its status
/// included. The message may be a replay until the first record has come and is [`CONFIRM`].
///
/// # Errors
/// When the message is not one for this end from such an end.
pub(crate) fn answer(
    own: &SecretKey,
    request: &[u8; REQUEST_LEN],
    admit: impl FnOnce(&PublicKey) -> bool,
    ephemeral: Ephemeral,
) -> Result<(Session, [u8; 1 + REPLY_LEN]), HandshakeError> {
    let mut noise = state(own, None, ephemeral);
    let mut identity = [0; KEY_LEN + TAG_LEN];
    if noise.read_message(request, &mut identity).is_err() {
        return Err(HandshakeError::OtherKeyExpected(Box::new(own.public())));
    }
    let proven = identity.first_chunk().and_then(|key| PublicKey::from_bytes(key).ok());
    let proven = proven.filter(|key| noise.get_remote_static() == Some(&key.x25519()[..]));
    let peer = proven.ok_or(HandshakeError::NotProven)?;
    if !admit(&peer) {
        return Err(HandshakeError::Unknown(Box::new(peer)));
    }
    let mut reply = [ACCEPTED; 1 + REPLY_LEN];
    // It fails if the other end's ephemeral key has a small order.
    noise.write_message(&[], &mut reply[1..]).map_err(|_| HandshakeError::NotProven)?;
    let noise = noise.into_stateless_transport_mode().map_err(|_| HandshakeError::NotProven)?;
    Ok((Session::new(noise, peer), reply))
}

/// The state before the first message, of the end that connects if it knows its peer's key.
fn state(own: &SecretKey, peer: Option<&PublicKey>, ephemeral: Ephemeral) -> HandshakeState {
    let mut prologue = [VERSION; MAGIC.len() + 1];
    prologue[..MAGIC.len()].copy_from_slice(MAGIC);
    keys::noise::handshake(own, peer, &prologue, ephemeral)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::records::Opened;
    use super::*;
    use zeroize::Zeroizing;

    fn secret(number: u8) -> SecretKey {
        SecretKey::new(&[number; 32])
    }

    fn ephemeral(number: u8) -> Ephemeral {
        Ephemeral(Zeroizing::new([number; KEY_LEN]))
    }

    fn connect(from: u8, to: u8) -> (Initiator, [u8; REQUEST_LEN]) {
        let (initiator, hello) =
            Initiator::new(&secret(from), &secret(to).public(), ephemeral(from + 100));
        (initiator, *hello.last_chunk().unwrap())
    }

    fn answered(
        by: u8,
        request: &[u8; REQUEST_LEN],
        admitted: u8,
        own_ephemeral: u8,
    ) -> Result<(Session, [u8; 1 + REPLY_LEN]), HandshakeError> {
        let admitted = secret(admitted).public();
        answer(&secret(by), request, |key| *key == admitted, ephemeral(own_ephemeral))
    }

    /// Both ends after a handshake.
    pub(crate) fn sessions() -> (Session, Session) {
        let (initiator, request) = connect(1, 2);
        let (mut two, reply) = answered(2, &request, 1, 9).unwrap();
        let (one, confirm) = initiator.finish(reply.last_chunk().unwrap()).unwrap();
        assert_eq!(opened(&mut two, &confirm), Some(CONFIRM.to_vec()));
        (one, two)
    }

    fn opened(session: &mut Session, record: &[u8]) -> Option<Vec<u8>> {
        session.opener.space()[..record.len()].copy_from_slice(record);
        session.opener.filled(record.len());
        match session.opener.poll() {
            Ok(Opened::Data) => {
                let mut data = vec![0; 100];
                let len = session.opener.read(&mut data);
                data.truncate(len);
                Some(data)
            }
            _ => None,
        }
    }

    #[test]
    fn both_ends_know_each_other() {
        let (one, two) = sessions();
        assert_eq!((one.peer, two.peer), (secret(2).public(), secret(1).public()));
    }

    #[test]
    fn the_prefix_says_the_mode() {
        for mode in [Mode::Plain, Mode::Noise] {
            assert_eq!(Mode::parse(&mode.prefix()), Ok(mode));
            for at in 0..PREFIX_LEN {
                let mut changed = mode.prefix();
                changed[at] ^= 2;
                let error = Mode::parse(&changed).unwrap_err();
                match at {
                    0..8 => assert_eq!(error, HandshakeError::NotATransport),
                    8 => assert_eq!(error, HandshakeError::Version(3)),
                    _ => assert!(matches!(error, HandshakeError::Mode(_))),
                }
            }
        }
    }

    #[test]
    fn a_wrong_key_is_named() {
        let (_, request) = connect(1, 3);
        let error = answered(2, &request, 1, 9).unwrap_err();
        assert_eq!(error, HandshakeError::OtherKeyExpected(Box::new(secret(2).public())));
        let (_, request) = connect(1, 2);
        let error = answered(2, &request, 3, 9).unwrap_err();
        assert_eq!(error, HandshakeError::Unknown(Box::new(secret(1).public())));
        assert_eq!(Refusal::parse(error.refusal().unwrap() as u8), Ok(Refusal::NotExpected));
        assert_eq!(Refusal::parse(0), Err(HandshakeError::WrongReply));
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
    }

    /// What an attacker has recorded of one connection opens no other.
    #[test]
    fn a_replay_is_not_confirmed() {
        let (initiator, request) = connect(1, 2);
        let (_, reply) = answered(2, &request, 1, 9).unwrap();
        let (_, confirm) = initiator.finish(reply.last_chunk().unwrap()).unwrap();
        let (mut again, _) = answered(2, &request, 1, 10).unwrap();
        assert_eq!(opened(&mut again, &confirm), None);
    }

    #[test]
    fn nobody_states_the_key_of_another() {
        let mut noise = state(&secret(1), Some(&secret(2).public()), ephemeral(5));
        let mut request = [0; REQUEST_LEN];
        noise.write_message(&secret(3).public().to_bytes(), &mut request).unwrap();
        assert_eq!(answered(2, &request, 3, 9).unwrap_err(), HandshakeError::NotProven);
    }
}
