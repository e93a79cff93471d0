//! All transports by name: those of this crate, and those that a program adds.

use std::str::FromStr;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use super::TRANSPORTS;
use crate::error::Error;
use crate::model::{ExchangeProfile, NetworkPath, UnusableTransportError, predict};
use crate::options::TransportChoice;
use crate::stream::Transport;

/// The largest number of transports that a program can add.
const MAX_REGISTERED: usize = 64;

/// The longest name.
const MAX_NAME_LEN: usize = 32;

/// The transports that the program has added.
static REGISTERED: RwLock<Vec<&'static dyn Transport>> = RwLock::new(Vec::new());

/// Why a transport is not added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportRegistrationError {
    /// Another transport has the name, or it is `auto`.
    #[error("there is a transport {0} already: choose another name")]
    NameTaken(String),
    /// The name is invalid.
    #[error("{0:?} is no name of a transport: use 1 to 32 of a-z, 0-9 and -")]
    InvalidName(String),
    /// The program has added too many.
    #[error("a program can add at most {MAX_REGISTERED} transports")]
    TooMany,
}

/// Adds a transport, for [`connect`](crate::connect), for each [`Listener`](crate::Listener) that
/// is opened later, and for `auto` if it has a [`latency`](Transport::latency) function. It remains
/// until the process ends.
///
/// Both ends add it. Above its streams, the library performs its handshake and encrypts, unless a
/// stream has a [`peer`](crate::ByteStream::peer).
///
/// # Errors
/// If another transport has its name, or the name is invalid.
pub fn register(transport: Box<dyn Transport>) -> Result<(), TransportRegistrationError> {
    let name = transport.name();
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.len() > MAX_NAME_LEN || !name.chars().all(is_plain) {
        return Err(TransportRegistrationError::InvalidName(name.to_owned()));
    }
    let mut registered = REGISTERED.write().unwrap_or_else(PoisonError::into_inner);
    let mut all = TRANSPORTS.iter().chain(registered.iter());
    if name == "auto" || all.any(|other| other.name() == name) {
        return Err(TransportRegistrationError::NameTaken(name.to_owned()));
    }
    if registered.len() >= MAX_REGISTERED {
        return Err(TransportRegistrationError::TooMany);
    }
    registered.push(Box::leak(transport));
    Ok(())
}

/// The transports that the program has added.
pub(crate) fn registered() -> Vec<&'static dyn Transport> {
    REGISTERED.read().unwrap_or_else(PoisonError::into_inner).clone()
}

fn all() -> impl Iterator<Item = &'static dyn Transport> {
    TRANSPORTS.iter().copied().chain(registered())
}

/// The names of all transports, each with its purpose.
pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    all().map(|transport| (transport.name(), transport.about()))
}

/// The transport with this name.
pub(crate) fn named(name: &str) -> Result<&'static dyn Transport, Error> {
    all().find(|transport| transport.name() == name).ok_or_else(|| {
        let known: Vec<&str> = names().map(|(name, _)| name).collect();
        Error::UnknownTransport { name: name.to_owned(), known: known.join(", ") }
    })
}

/// How long an exchange is predicted to take over a transport: by its latency function if the
/// program has added it, otherwise by [`crate::model`].
///
/// # Errors
/// If it cannot be used on the path.
pub(crate) fn predicted(
    name: &str,
    path: &NetworkPath,
    exchange: ExchangeProfile,
    is_secure: bool,
) -> Result<Duration, UnusableTransportError> {
    let Some(transport) = registered().into_iter().find(|transport| transport.name() == name)
    else {
        return predict(name, path, exchange, is_secure);
    };
    if transport.is_over_udp() && !path.udp_passes {
        return Err(UnusableTransportError::NoUdp);
    }
    transport.latency(path, exchange, is_secure).ok_or(UnusableTransportError::Unknown)
}

impl FromStr for TransportChoice {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        if name == "auto" { Ok(Self::Auto) } else { Ok(Self::Named(named(name)?.name())) }
    }
}
