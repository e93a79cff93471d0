//! The handshake on a transport's stream.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keys::PublicKey;
use keys::noise::Ephemeral;
use records::Cipher;
use zeroize::Zeroizing;

use super::connection::{Answer, Connection};
use crate::error::{Error, Step};
use crate::options::{Options, Peers, Security};
use crate::protocol::handshake::{
    ACCEPTED, HandshakeError, Initiator, Mode, PREFIX_LEN, REFUSED, REPLY_LEN, REQUEST_LEN,
    Refusal, answer,
};
use crate::stream::ByteStream;

/// How long it may take until the other end has read that it is refused.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);

/// The handshake of the end that has connected.
pub(super) fn initiate(
    stream: Arc<dyn ByteStream>,
    name: String,
    options: &Options,
) -> Result<Connection, Error> {
    if stream.peer().is_some() {
        return Ok(Connection::plain(stream, name, Answer::Nothing));
    }
    let limit = options.handshake_timeout;
    let steps = Steps::new(&*stream, &name, limit);
    let Security::Noise { identity, peers } = &options.security else {
        steps.send(Step::Hello, &Mode::Plain.prefix())?;
        return Ok(Connection::plain(stream, name, Answer::Awaited));
    };
    let peer = expected(peers, &name)?;
    let (initiator, hello) = Initiator::new(identity, peer, Cipher::fastest(), ephemeral()?);
    steps.send(Step::Hello, &hello)?;
    match steps.receive::<1>(Step::Answer)?[0] {
        ACCEPTED => {}
        REFUSED => {
            let refusal = Refusal::parse(steps.receive::<1>(Step::Answer)?[0]);
            return Err(steps.security(refusal.map_or_else(|e| e, HandshakeError::Refused)));
        }
        _ => return Err(steps.security(HandshakeError::WrongReply)),
    }
    let reply = steps.receive::<REPLY_LEN>(Step::Answer)?;
    let finished = initiator.finish(&reply);
    let (session, confirm) = finished.map_err(|error| steps.security(error))?;
    steps.send(Step::Hello, &confirm)?;
    Ok(Connection::secure(stream, name, session))
}

/// The handshake of the end that was connected to. `has_room` is asked when the first message has
/// come, and may wait. Without a connection, the reason is logged, and the other end is told of it
/// as far as it can mend that.
pub(super) fn respond(
    stream: &Arc<dyn ByteStream>,
    name: &str,
    options: &Options,
    has_room: impl FnOnce() -> bool,
    log: impl FnOnce(&Error),
) -> Option<Connection> {
    let mut steps = Steps::new(&**stream, name, options.handshake_timeout);
    let error = match shake_hands(stream, &steps, options, has_room) {
        Ok(connection) => return Some(connection),
        Err(error) => error,
    };
    let is_told = steps.tell(&error);
    log(&error);
    if is_told {
        steps.leave();
    }
    None
}

fn shake_hands(
    stream: &Arc<dyn ByteStream>,
    steps: &Steps<'_>,
    options: &Options,
    has_room: impl FnOnce() -> bool,
) -> Result<Connection, Error> {
    let prefix = steps.receive::<PREFIX_LEN>(Step::Request)?;
    let mode = Mode::parse(&prefix).map_err(|error| steps.security(error))?;
    match (mode, &options.security) {
        (Mode::Plain, Security::Insecure) => {
            if !has_room() {
                return Err(steps.security(HandshakeError::Busy));
            }
            Ok(Connection::plain(stream.clone(), steps.name.to_owned(), Answer::Owed))
        }
        (Mode::Plain, Security::Noise { .. }) => Err(steps.security(HandshakeError::PlainRefused)),
        (Mode::Noise, Security::Insecure) => Err(steps.security(HandshakeError::NoiseRefused)),
        (Mode::Noise, Security::Noise { identity, peers }) => {
            let request = steps.receive::<REQUEST_LEN>(Step::Request)?;
            let answered =
                answer(identity, &request, |key| peers.admit(key), Cipher::fastest(), ephemeral()?);
            let (mut session, reply) = answered.map_err(|error| steps.security(error))?;
            if !has_room() {
                return Err(steps.security(HandshakeError::Busy));
            }
            steps.send(Step::Confirm, &reply)?;
            let confirmed = session.confirm(&steps.receive(Step::Confirm)?);
            confirmed.map_err(|error| steps.security(error))?;
            Ok(Connection::secure(stream.clone(), steps.name.to_owned(), session))
        }
    }
}

/// Tells an end that has connected that there is no room, before its first message is read, and
/// gives it time to read that.
pub(super) fn refuse_busy(stream: &dyn ByteStream) {
    let mut steps = Steps::new(stream, "", REFUSAL_TIMEOUT);
    if steps.send(Step::Request, &Refusal::Busy.answer()).is_ok() {
        steps.leave();
    }
    stream.close();
}

/// The one key that the end at `name` has to have.
pub(super) fn expected<'a>(peers: &'a Peers, name: &str) -> Result<&'a PublicKey, Error> {
    match peers {
        Peers::Pinned(keys) if keys.len() == 1 => Ok(&keys[0]),
        _ => Err(Error::NoKey { peer: name.to_owned() }),
    }
}

fn ephemeral() -> Result<Ephemeral, Error> {
    let mut random = Zeroizing::new([0; keys::KEY_LEN]);
    getrandom::fill(&mut *random).map_err(Error::Random)?;
    Ok(Ephemeral(random))
}

/// The steps of one handshake, all within one time limit.
struct Steps<'a> {
    stream: &'a dyn ByteStream,
    name: &'a str,
    limit: Duration,
    deadline: Instant,
}

impl<'a> Steps<'a> {
    fn new(stream: &'a dyn ByteStream, name: &'a str, limit: Duration) -> Self {
        Self { stream, name, limit, deadline: Instant::now() + limit }
    }

    /// Limits the next read or write to what is left.
    fn wait(&self, step: Step) -> Result<(), Error> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.error(step, io::ErrorKind::TimedOut.into()));
        }
        self.stream.set_timeout(Some(left)).map_err(|error| self.error(step, error))
    }

    fn read(&self, step: Step, to: &mut [u8]) -> Result<usize, Error> {
        loop {
            self.wait(step)?;
            match self.stream.read(to) {
                Ok(0) => return Err(self.error(step, io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.error(step, error)),
            }
        }
    }

    fn receive<const N: usize>(&self, step: Step) -> Result<[u8; N], Error> {
        let (mut bytes, mut len) = ([0; N], 0);
        while len < N {
            len += self.read(step, &mut bytes[len..])?;
        }
        Ok(bytes)
    }

    fn send(&self, step: Step, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            self.wait(step)?;
            match self.stream.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.error(step, error)),
            }
        }
        Ok(())
    }

    /// Tells the other end what it has done wrong, which only helps a person there. Returns whether
    /// there was something to say.
    fn tell(&self, error: &Error) -> bool {
        let Error::Security { source, .. } = error else { return false };
        source.refusal_bytes().is_some_and(|told| self.send(Step::Request, &told).is_ok())
    }

    /// Gives the other end time to read what it was told. If what that sends were not read, the
    /// system could lose the answer.
    fn leave(&mut self) {
        self.deadline = self.deadline.min(Instant::now() + REFUSAL_TIMEOUT);
        if self.stream.finish().is_ok() {
            while self.read(Step::Request, &mut [0; 1 << 14]).is_ok() {}
        }
    }

    fn security(&self, source: HandshakeError) -> Error {
        Error::Security { peer: self.name.to_owned(), source }
    }

    fn error(&self, step: Step, error: io::Error) -> Error {
        Error::at(step, self.name, error, Some(self.limit))
    }
}
