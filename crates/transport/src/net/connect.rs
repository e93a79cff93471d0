//! Connecting.

use std::sync::Arc;

use super::connection::Connection;
use super::handshaking;
use crate::address::resolve;
use crate::error::{Error, Step};
use crate::options::{Choice, Options, Security};
use crate::protocol::relay::Token;
use crate::relay;
use crate::stream::ByteStream;
use crate::transports;

/// Connects to `HOST:PORT`, where a [`Listener`](super::Listener) is; or to `TOKEN@HOST:PORT`,
/// where a relay is at which one waits.
///
/// # Errors
/// When there is no connection within the time limits of the options, or the other end is not the
/// expected one.
pub fn connect(address: &str, options: &Options) -> Result<Connection, Error> {
    if let Security::Noise { peers, .. } = &options.security {
        handshaking::expected(peers, address)?;
    }
    let stream = open(address, options)?;
    let connection = handshaking::initiate(stream, address.to_owned(), options)?;
    let limited = connection.set_timeout(options.timeout);
    limited.map_err(|error| Error::at(Step::Answer, address, error, None))?;
    Ok(connection)
}

/// The transport's connection, to the first of the name's addresses that answers.
fn open(address: &str, options: &Options) -> Result<Arc<dyn ByteStream>, Error> {
    if let Some((token, relay)) = address.split_once('@') {
        return open_relayed(address, token, relay, options);
    }
    let transport = match options.transport {
        Choice::Auto => transports::DEFAULT,
        Choice::Named(name) => transports::named(name)?,
    };
    let mut last = None;
    for to in resolve(address)? {
        match transport.connect(to, options) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error),
        }
    }
    let step = Step::Connect(transport.name());
    let error = last.unwrap_or_else(|| std::io::ErrorKind::AddrNotAvailable.into());
    Err(Error::at(step, address, error, Some(options.connect_timeout)))
}

/// A connection to who waits at a relay under a token.
fn open_relayed(
    address: &str,
    token: &str,
    relay: &str,
    options: &Options,
) -> Result<Arc<dyn ByteStream>, Error> {
    let wrong = |reason| Error::Address { address: address.to_owned(), reason };
    let token: Token = token.parse().map_err(|_| {
        wrong("no token of a relay: give TOKEN@HOST:PORT, as the receiver prints it")
    })?;
    if !matches!(options.transport, Choice::Auto | Choice::Named("tcp")) {
        return Err(wrong("a relay is reached by tcp only: leave --transport out"));
    }
    let mut last = std::io::ErrorKind::AddrNotAvailable.into();
    for to in resolve(relay)? {
        match relay::open(to, token, options) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(Error::at(Step::Relay, relay, last, Some(options.connect_timeout)))
}
