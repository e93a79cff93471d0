//! The two parties' side of a relay.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use random::RandomError;
use zeroize::Zeroizing;

use crate::options::{ConnectionOptions, ConnectionSecurity};
use crate::protocol::relay::{
    RelayRequest, RelayResponse, RelaySecret, RelayToken, SECRET_LEN, STILL_PRESENT,
};
use crate::protocol::relay_binding::{BINDING_GRANT_LEN, BindingGrant};
use crate::stream::ByteStream;
use crate::transports::tcp;

/// How long a waiting party may hear nothing from the relay, which sends something every 3 s. After
/// this time it reconnects, early enough for a party that is connecting.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(8);

/// How long the relay searches for the waiting party, plus a margin.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// A connection to another party through a relay.
pub(crate) struct RelayedStream {
    pub(crate) stream: Arc<dyn ByteStream>,
    /// The relay's address, for TCP and UDP.
    pub(crate) relay: SocketAddr,
    /// What this end needs to bind a UDP address at the relay.
    pub(crate) grant: BindingGrant,
}

/// Connects to the party that waits under a token, at the first address of the relay at which one
/// waits.
///
/// # Errors
/// If none of the addresses answers, or nobody waits: the error at the last address.
pub(crate) fn open(
    relay: &[SocketAddr],
    token: RelayToken,
    options: &ConnectionOptions,
) -> io::Result<RelayedStream> {
    let mut last = io::ErrorKind::AddrNotAvailable.into();
    for address in relay {
        match open_at(*address, token, options) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn open_at(
    relay: SocketAddr,
    token: RelayToken,
    options: &ConnectionOptions,
) -> io::Result<RelayedStream> {
    let stream = tcp::open(relay, options)?;
    stream.set_timeout(Some(CONNECT_TIMEOUT))?;
    send(&*stream, &*RelayRequest::Connect(token).encode())?;
    let refused = |text: &str| Err(io::Error::new(io::ErrorKind::ConnectionRefused, text));
    match receive(&*stream)? {
        RelayResponse::Connected => connected(stream, relay),
        RelayResponse::Nobody => {
            refused("nobody waits at the relay under this token; start the receiver")
        }
        RelayResponse::Refused => refused("the relay has too many connections; try again"),
        RelayResponse::Waiting => refused("the relay's answer is invalid"),
    }
}

/// A party that waits at a relay.
pub(crate) struct RelayRegistration {
    relay: Vec<SocketAddr>,
    secret: Zeroizing<[u8; SECRET_LEN]>,
    /// The waiting connection.
    waiting: Mutex<Option<Arc<dyn ByteStream>>>,
}

impl RelayRegistration {
    /// Prepares to wait. The token depends only on the identity.
    ///
    /// # Errors
    /// If the system provides no random bytes.
    pub(crate) fn new(
        relay: Vec<SocketAddr>,
        security: &ConnectionSecurity,
    ) -> Result<Self, RandomError> {
        let secret = match security {
            ConnectionSecurity::Noise { identity, .. } => RelaySecret::of_identity(identity),
            ConnectionSecurity::Insecure => {
                let mut random = Zeroizing::new([0; SECRET_LEN]);
                getrandom::fill(&mut *random)?;
                RelaySecret::new(random)
            }
        };
        Ok(Self::with_secret(relay, secret))
    }

    /// Prepares to wait under the token of this secret.
    pub(crate) fn with_secret(relay: Vec<SocketAddr>, secret: RelaySecret) -> Self {
        Self { relay, secret: secret.into_bytes(), waiting: Mutex::default() }
    }

    fn secret(&self) -> RelaySecret {
        RelaySecret::new(self.secret.clone())
    }

    /// The relay's address.
    pub(crate) fn relay(&self) -> String {
        self.relay.first().map_or_else(String::new, SocketAddr::to_string)
    }

    /// The token under which others find this party.
    pub(crate) fn token(&self) -> RelayToken {
        self.secret().token()
    }

    /// Waits for one party to connect.
    pub(crate) fn accept(&self, options: &ConnectionOptions) -> io::Result<RelayedStream> {
        let (stream, relay) = self.connect(options)?;
        stream.set_timeout(Some(SILENCE_TIMEOUT))?;
        send(&*stream, &*RelayRequest::Wait(self.secret()).encode())?;
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream.clone());
        let answer = loop {
            match receive(&*stream)? {
                RelayResponse::Waiting => {}
                answer => break answer,
            }
        };
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = None;
        match answer {
            RelayResponse::Connected => {
                send(&*stream, &[STILL_PRESENT])?;
                connected(stream, relay)
            }
            _ => Err(io::Error::other("the relay has too many connections")),
        }
    }

    fn connect(
        &self,
        options: &ConnectionOptions,
    ) -> io::Result<(Arc<dyn ByteStream>, SocketAddr)> {
        // The sender cannot find out that this connection is the silent one, and adapt it.
        let options = ConnectionOptions { has_short_segments: true, ..options.clone() };
        let mut last = io::ErrorKind::AddrNotAvailable.into();
        for address in &self.relay {
            match tcp::open(*address, &options) {
                Ok(stream) => return Ok((stream, *address)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Ends [`Self::accept`].
    pub(crate) fn close(&self) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stream) = &*waiting {
            stream.close();
        }
    }
}

/// Reads the grant that follows.
fn connected(stream: Arc<dyn ByteStream>, relay: SocketAddr) -> io::Result<RelayedStream> {
    let mut grant = Zeroizing::new([0; BINDING_GRANT_LEN]);
    let mut len = 0;
    while len < BINDING_GRANT_LEN {
        match stream.read(&mut grant[len..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => len += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(RelayedStream { stream, relay, grant: BindingGrant::parse(&grant) })
}

fn send(stream: &dyn ByteStream, bytes: &[u8]) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        rest = &rest[stream.write(rest)?..];
    }
    Ok(())
}

fn receive(stream: &dyn ByteStream) -> io::Result<RelayResponse> {
    let start = Instant::now();
    let mut byte = [0];
    loop {
        match stream.read(&mut byte) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::TimedOut && error.get_ref().is_none() => {
                let text =
                    format!("the relay has not answered for {} s", start.elapsed().as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            Err(error) => return Err(error),
        }
    }
    RelayResponse::parse(byte[0]).ok_or_else(|| io::Error::other("the relay's answer is invalid"))
}
