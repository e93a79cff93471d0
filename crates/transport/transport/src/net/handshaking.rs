//! Performs the handshake on a transport's stream.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use keys::IdentityPublicKey;
use keys::noise::EphemeralKey;
use random::RandomError;
use records::RecordCipher;
use tracing::debug;
use zeroize::Zeroizing;

use super::balancer;
use super::connection::{Connection, PlaintextAnswer};
use super::timed::TimedStream;
use crate::error::{ConnectionStep, Error};
use crate::options::{ConnectionOptions, ConnectionSecurity, PeerKeyPolicy};
use crate::protocol::handshake::{
    ACCEPTED, HandshakeInitiator, HandshakeMode, HandshakeRefusal, PREFIX_LEN, REFUSED, REPLY_LEN,
    REQUEST_LEN, TransportHandshakeError, answer,
};
use crate::stream::ByteStream;

/// How long the other end may take to read that it was rejected.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);

/// Performs the handshake of the connecting end.
pub(super) fn initiate(
    stream: Arc<dyn ByteStream>,
    name: String,
    options: &ConnectionOptions,
) -> Result<Connection, Error> {
    if stream.peer().is_some() {
        return Ok(Connection::plain(stream, name, PlaintextAnswer::Nothing));
    }
    let limit = options.handshake_timeout;
    let steps = HandshakeStream::new(&*stream, &name, limit);
    let ConnectionSecurity::Noise { identity, peers } = &options.security else {
        steps.send(ConnectionStep::Hello, &HandshakeMode::Plain.prefix())?;
        return Ok(Connection::plain(stream, name, PlaintextAnswer::Awaited));
    };
    let peer = expected(peers, &name)?;
    let (initiator, hello) =
        HandshakeInitiator::new(identity, peer, RecordCipher::fastest(), ephemeral()?);
    steps.send(ConnectionStep::Hello, &hello)?;
    match steps.receive::<1>(ConnectionStep::Answer)?[0] {
        ACCEPTED => {}
        REFUSED => {
            let refusal = HandshakeRefusal::parse(steps.receive::<1>(ConnectionStep::Answer)?[0]);
            return Err(steps.security(match refusal {
                // This end encrypts: what it has sent, or the answer, was changed.
                Ok(HandshakeRefusal::Plain) => TransportHandshakeError::WrongReply,
                Ok(refusal) => TransportHandshakeError::Refused(refusal),
                Err(error) => error,
            }));
        }
        _ => return Err(steps.security(TransportHandshakeError::WrongReply)),
    }
    let reply = steps.receive::<REPLY_LEN>(ConnectionStep::Answer)?;
    let finished = initiator.finish(&reply);
    let (session, confirm) = finished.map_err(|error| steps.security(error))?;
    steps.send(ConnectionStep::Hello, &confirm)?;
    Ok(Connection::secure(stream, name, session))
}

/// Performs the handshake of the accepting end. `has_room` is called after the first message has
/// arrived, and may wait. If the handshake fails, the reason is logged, and sent to the other end
/// if it is one that its user can resolve. A connection that is closed before it has begun is
/// neither a failure nor an attack: a load balancer checks in this way whether a server listens.
pub(super) fn respond(
    stream: &Arc<dyn ByteStream>,
    name: &str,
    options: &ConnectionOptions,
    has_room: impl FnOnce() -> bool,
    log: impl FnOnce(&Error),
) -> Option<Connection> {
    let steps = HandshakeStream::new(&**stream, name, options.handshake_timeout);
    let begun = steps.receive::<1>(ConnectionStep::Request);
    if let Err(Error::Io { source, .. }) = &begun
        && balancer::is_end(source)
    {
        debug!(peer = name, "closed before the handshake began");
        return None;
    }
    let shaken = begun.and_then(|[first]| {
        let mut prefix = [first; PREFIX_LEN];
        let rest = steps.receive::<{ PREFIX_LEN - 1 }>(ConnectionStep::Request)?;
        prefix[1..].copy_from_slice(&rest);
        shake_hands(stream, &steps, options, &prefix, has_room)
    });
    let error = match shaken {
        Ok(connection) => return Some(connection),
        Err(error) => error,
    };
    let is_refusal_sent = steps.send_refusal(&error);
    log(&error);
    if is_refusal_sent {
        steps.drain_until_closed();
    }
    None
}

fn shake_hands(
    stream: &Arc<dyn ByteStream>,
    steps: &HandshakeStream<'_>,
    options: &ConnectionOptions,
    prefix: &[u8; PREFIX_LEN],
    has_room: impl FnOnce() -> bool,
) -> Result<Connection, Error> {
    let mode = HandshakeMode::parse(prefix).map_err(|error| steps.security(error))?;
    match (mode, &options.security) {
        (HandshakeMode::Plain, ConnectionSecurity::Insecure) => {
            if !has_room() {
                return Err(steps.security(TransportHandshakeError::Busy));
            }
            Ok(Connection::plain(stream.clone(), steps.name.to_owned(), PlaintextAnswer::Owed))
        }
        (HandshakeMode::Plain, ConnectionSecurity::Noise { .. }) => {
            Err(steps.security(TransportHandshakeError::PlainRefused))
        }
        (HandshakeMode::Noise, ConnectionSecurity::Insecure) => {
            Err(steps.security(TransportHandshakeError::NoiseRefused))
        }
        (HandshakeMode::Noise, ConnectionSecurity::Noise { identity, peers }) => {
            let request = steps.receive::<REQUEST_LEN>(ConnectionStep::Request)?;
            let answered = answer(
                identity,
                &request,
                |key| peers.admit(key),
                RecordCipher::fastest(),
                ephemeral()?,
            );
            let (mut session, reply) = answered.map_err(|error| steps.security(error))?;
            if !has_room() {
                return Err(steps.security(TransportHandshakeError::Busy));
            }
            steps.send(ConnectionStep::Confirm, &reply)?;
            let confirmed = session.confirm(&steps.receive(ConnectionStep::Confirm)?);
            confirmed.map_err(|error| steps.security(error))?;
            Ok(Connection::secure(stream.clone(), steps.name.to_owned(), session))
        }
    }
}

/// Tells a connecting end that the listener is busy, before its first message is read, and gives it
/// time to read that.
pub(super) fn refuse_busy(stream: &dyn ByteStream) {
    let steps = HandshakeStream::new(stream, "", REFUSAL_TIMEOUT);
    if steps.send(ConnectionStep::Request, &HandshakeRefusal::Busy.answer()).is_ok() {
        steps.drain_until_closed();
    }
    stream.close();
}

/// The one key that the end at `name` must have.
pub(super) fn expected<'a>(
    peers: &'a PeerKeyPolicy,
    name: &str,
) -> Result<&'a IdentityPublicKey, Error> {
    match peers {
        PeerKeyPolicy::Pinned(keys) if keys.len() == 1 => Ok(&keys[0]),
        _ => Err(Error::NoKey { peer: name.to_owned() }),
    }
}

fn ephemeral() -> Result<EphemeralKey, Error> {
    let mut random = Zeroizing::new([0; keys::KEY_LEN]);
    getrandom::fill(&mut *random).map_err(RandomError::from)?;
    Ok(EphemeralKey(random))
}

/// The stream during a handshake, with a time limit for the whole handshake.
struct HandshakeStream<'a> {
    timed: TimedStream<'a>,
    name: &'a str,
    limit: Duration,
}

impl<'a> HandshakeStream<'a> {
    fn new(stream: &'a dyn ByteStream, name: &'a str, limit: Duration) -> Self {
        Self { timed: TimedStream::new(stream, limit), name, limit }
    }

    fn receive<const N: usize>(&self, step: ConnectionStep) -> Result<[u8; N], Error> {
        self.timed.receive().map_err(|error| self.error(step, error))
    }

    fn send(&self, step: ConnectionStep, bytes: &[u8]) -> Result<(), Error> {
        self.timed.send(bytes).map_err(|error| self.error(step, error))
    }

    /// Tells the other end why it was rejected, for its user. Returns whether there was something
    /// to tell.
    fn send_refusal(&self, error: &Error) -> bool {
        let Error::Security { source, .. } = error else { return false };
        source
            .refusal_bytes()
            .is_some_and(|refusal| self.send(ConnectionStep::Request, &refusal).is_ok())
    }

    /// Gives the other end time to read the refusal. If its data were not read here, the kernel
    /// could drop the refusal.
    fn drain_until_closed(&self) {
        let timed = self.timed.at_most(REFUSAL_TIMEOUT);
        if timed.stream.finish().is_ok() {
            while timed.read(&mut [0; 1 << 14]).is_ok() {}
        }
    }

    fn security(&self, source: TransportHandshakeError) -> Error {
        Error::Security { peer: self.name.to_owned(), source }
    }

    fn error(&self, step: ConnectionStep, error: io::Error) -> Error {
        Error::at(step, self.name, error, Some(self.limit))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use keys::IdentitySecretKey;

    use super::*;
    use crate::transports::tcp::TcpByteStream;

    /// What is logged of a connection that ends after these bytes.
    fn logged(bytes: &[u8]) -> Option<String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, address) = listener.accept().unwrap();
        peer.write_all(bytes).unwrap();
        drop(peer);
        let stream: Arc<dyn ByteStream> = Arc::new(TcpByteStream::new(socket, address).unwrap());
        let own = IdentitySecretKey::new(&[1; 32]);
        let options = ConnectionOptions::new(ConnectionSecurity::open(own));
        let mut logged = None;
        let log = |error: &Error| logged = Some(error.to_string());
        assert!(respond(&stream, "peer", &options, || true, log).is_none());
        logged
    }

    /// A load balancer that checks whether a server listens sends nothing.
    #[test]
    fn a_connection_is_logged_if_it_ends_in_the_handshake_and_not_before() {
        assert_eq!(logged(b""), None);
        let prefix = HandshakeMode::Noise.prefix();
        for len in 1..=PREFIX_LEN {
            let error = logged(&prefix[..len]).unwrap();
            assert!(error.contains("peer"), "{error}");
        }
    }
}
