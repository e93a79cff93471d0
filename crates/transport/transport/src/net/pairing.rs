//! Pairs two ends by a code, over TCP: at an address of the end that shows the code, or at a relay.

mod listener;

pub use listener::CodeListener;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use random::{RandomError, RandomGenerator};
use zeroize::Zeroizing;

use super::addresses::connect_first;
use super::timed::TimedStream;
use crate::address::resolve;
use crate::error::{ConnectionStep, Error};
use crate::options::{ConnectionOptions, ConnectionSecurity};
use crate::protocol::code::{
    CodeKeys, CodeTyper, PairingOffer, READY_LEN, REPLY_LEN, SEALED_OFFER_LEN, TransferCode,
    TransferRole,
};
use crate::relay;
use crate::stream::ByteStream;
use crate::transports::tcp;

/// How long an exchange may take, for each end.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(10);

/// The first byte of an answer that continues the exchange.
const ACCEPTED: u8 = 0;

/// The first byte of an answer: the code is wrong, or was used.
const REFUSED: u8 = 1;

/// Why two ends were not paired.
#[derive(Debug, thiserror::Error)]
pub enum PairingError {
    /// No connection, or no meeting place.
    #[error(transparent)]
    Connect(#[from] Error),
    /// The connection has broken.
    #[error("{peer}: while the code was checked: {}; start again with a new code", explain(source))]
    Broken {
        /// The other end.
        peer: String,
        /// The cause.
        source: io::Error,
    },
    /// This end has shown the code, and somebody has given a wrong one.
    #[error(
        "{from} has given a wrong code, and each code is for one attempt: start again, which shows \
         a new code"
    )]
    WrongCode {
        /// Where the wrong code came from.
        from: SocketAddr,
    },
    /// The other end says that the code is wrong or used. This is not authenticated.
    #[error(
        "{peer}: it refuses the code, which is wrong or was used before: have a new one shown there"
    )]
    Refused {
        /// The other end.
        peer: String,
    },
    /// The other end has not proven that it knows the code.
    #[error(
        "{peer}: the other end has not proven that it knows the code: have a new one shown there, \
         and do not use this one again"
    )]
    NotProven {
        /// The other end.
        peer: String,
    },
    /// The ends cannot transfer a file.
    #[error("{0}")]
    Role(&'static str),
    /// The system provides no random bytes.
    #[error(transparent)]
    Random(#[from] RandomError),
}

impl PairingError {
    /// Whether it is a failed security check, and not a failure of the network.
    pub fn is_security(&self) -> bool {
        match self {
            Self::WrongCode { .. } | Self::Refused { .. } | Self::NotProven { .. } => true,
            Self::Connect(error) => error.is_security(),
            _ => false,
        }
    }
}

fn explain(source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::TimedOut => "the other end does not answer".to_owned(),
        io::ErrorKind::UnexpectedEof => "the other end has closed the connection".to_owned(),
        _ => source.to_string(),
    }
}

/// The other end, after both have proven that they know the code.
pub struct PairedEnd {
    peer: PairingOffer,
    stream: Arc<dyn ByteStream>,
    keys: CodeKeys,
    /// What this end still has to tell the other one, if it has typed the code.
    own: Option<PairingOffer>,
    name: String,
}

impl std::fmt::Debug for PairedEnd {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("PairedEnd").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl PairedEnd {
    /// What the other end has told.
    pub fn peer(&self) -> &PairingOffer {
        &self.peer
    }

    /// Completes the pairing. A receiver must listen before this, because the sender connects as
    /// soon as it has completed the pairing.
    ///
    /// # Errors
    /// If the other end has gone.
    pub fn complete(self) -> Result<(), PairingError> {
        let timed = TimedStream::new(&*self.stream, EXCHANGE_TIMEOUT);
        let broken = |source| PairingError::Broken { peer: self.name.clone(), source };
        if let Some(own) = &self.own {
            timed.send(&self.keys.seal_offer(own)?).map_err(broken)?;
            let ready = timed.receive::<READY_LEN>().map_err(broken)?;
            if !self.keys.is_ready(&ready) {
                return Err(PairingError::NotProven { peer: self.name.clone() });
            }
        } else {
            timed.send(&self.keys.seal_ready()?).map_err(broken)?;
        }
        // What was sent arrives even if the other end has closed its direction already.
        let _ = self.stream.finish();
        Ok(())
    }
}

/// Connects to the end that shows this code: at `HOST:PORT` of this end, or of the relay if the
/// code has a number. One call is one attempt: if it fails after the code was sent, the code must
/// not be used again.
///
/// # Errors
/// If there is no connection, or the other end does not have the same code.
pub fn pair(
    address: &str,
    code: &TransferCode,
    own: PairingOffer,
) -> Result<PairedEnd, PairingError> {
    let stream = open(address, code)?;
    let name = address.to_owned();
    let timed = TimedStream::new(&*stream, EXCHANGE_TIMEOUT);
    let broken = |source| PairingError::Broken { peer: name.clone(), source };
    let not_proven = || PairingError::NotProven { peer: name.clone() };
    let refused = || PairingError::Refused { peer: name.clone() };
    let status = |byte| match byte {
        ACCEPTED => Ok(()),
        REFUSED => Err(refused()),
        _ => Err(not_proven()),
    };
    let (typer, greeting) = CodeTyper::new(code, seed()?);
    timed.send(&greeting).map_err(broken)?;
    let [answered] = timed.receive::<1>().map_err(broken)?;
    status(answered)?;
    let reply = timed.receive::<REPLY_LEN>().map_err(broken)?;
    let keys = typer.keys(&reply).ok_or_else(not_proven)?;
    timed.send(&keys.confirmation()).map_err(broken)?;
    let [confirmed] = timed.receive::<1>().map_err(broken)?;
    status(confirmed)?;
    let confirmation = timed.receive().map_err(broken)?;
    if !keys.is_confirmed_by(&confirmation) {
        return Err(not_proven());
    }
    let sealed = timed.receive::<SEALED_OFFER_LEN>().map_err(broken)?;
    let peer = keys.open_offer(&sealed).ok_or_else(not_proven)?;
    if let Err(error) = check_roles(&own, &peer) {
        // So that the other end can say the same.
        let _ = timed.send(&keys.seal_offer(&own)?).and_then(|()| stream.finish());
        return Err(error);
    }
    Ok(PairedEnd { peer, stream, keys, own: Some(own), name })
}

fn open(address: &str, code: &TransferCode) -> Result<Arc<dyn ByteStream>, Error> {
    let options = ConnectionOptions::new(ConnectionSecurity::Insecure);
    let step =
        if code.is_for_relay() { ConnectionStep::Relay } else { ConnectionStep::Connect("tcp") };
    let (addresses, limit) = (resolve(address)?, options.connect_timeout);
    let opened = match code.relay_secret() {
        Some(secret) => {
            relay::open(&addresses, secret.token(), &options).map(|relayed| relayed.stream)
        }
        None => connect_first(&addresses, move |to| tcp::open(to, &options)),
    };
    opened.map_err(|error| Error::at(step, address, error, Some(limit)))
}

/// One end has to send and the other one to receive.
fn check_roles(own: &PairingOffer, peer: &PairingOffer) -> Result<(), PairingError> {
    match (own.role, peer.role) {
        (TransferRole::Sender, TransferRole::Sender) => {
            Err(PairingError::Role("the other end sends, too: one end has to receive"))
        }
        (TransferRole::Receiver, TransferRole::Receiver) => {
            Err(PairingError::Role("the other end receives, too: one end has to send"))
        }
        _ => Ok(()),
    }
}

fn seed() -> Result<Zeroizing<[u8; keys::KEY_LEN]>, RandomError> {
    Ok(Zeroizing::new(RandomGenerator::system().array()?))
}
