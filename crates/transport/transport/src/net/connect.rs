//! Opens connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use super::addresses::connect_first;
use super::connection::Connection;
use super::{direct, handshaking, socks};
use crate::address::resolve;
use crate::choice::{TransportSelection, choose, connect_or_tcp, measure};
use crate::error::{ConnectionStep, Error};
use crate::options::{ConnectionOptions, ConnectionSecurity, TransportChoice};
use crate::protocol::relay::RelayToken;
use crate::relay::{self, RelayedStream};
use crate::stream::{ByteStream, Transport};
use crate::transports::{self, micss};

const BURST: TransportChoice = TransportChoice::Named("burst");

/// Connects to a [`Listener`](super::Listener) at `HOST:PORT`, or to one that waits at a relay, at
/// `TOKEN@HOST:PORT`.
///
/// # Errors
/// If no connection can be opened within the time limits of the options, or the other end is not
/// the expected one.
pub fn connect(address: &str, options: &ConnectionOptions) -> Result<Connection, Error> {
    if let ConnectionSecurity::Noise { peers, .. } = &options.security {
        handshaking::expected(peers, address)?;
    }
    let connection = if let Some((token, relay)) =
        address.split_once('@').filter(|_| options.socks.is_none())
    {
        direct::connect(open_relayed(address, token, relay, options)?, address.to_owned(), options)?
    } else {
        let (stream, chosen) = open(address, options)?;
        let connection = handshaking::initiate(stream, address.to_owned(), options)?;
        if let Some(chosen) = chosen {
            connection.set_choice(chosen);
        }
        connection
    };
    let limited = connection.set_timeout(options.timeout);
    limited.map_err(|error| Error::at(ConnectionStep::Answer, address, error, None))?;
    Ok(connection)
}

/// A transport's connection, and the choice of the transport if one was made.
type OpenedByteStream = (Arc<dyn ByteStream>, Option<TransportSelection>);

/// Opens a transport's connection to the first address of the name that answers.
fn open(address: &str, options: &ConnectionOptions) -> Result<OpenedByteStream, Error> {
    if let Some(proxy) = &options.socks {
        return Ok((socks::open(address, proxy, options)?, None));
    }
    if address.contains(',') {
        return Ok((open_channels(address, options)?, None));
    }
    let transport = match options.transport {
        TransportChoice::Auto => None,
        TransportChoice::Named(name) => Some(transports::named(name)?),
    };
    let of_attempt = options.clone();
    let opened = connect_first(&resolve(address)?, move |to| match transport {
        None => open_chosen(to, &of_attempt),
        Some(transport) => open_named(transport, to, &of_attempt).map(|stream| (stream, None)),
    });
    let step = ConnectionStep::Connect(transport.unwrap_or(transports::DEFAULT).name());
    opened.map_err(|error| Error::at(step, address, error, Some(options.connect_timeout)))
}

/// Opens a connection over the given transport, and measures the path first if the transport needs
/// that.
fn open_named(
    transport: &dyn Transport,
    to: SocketAddr,
    options: &ConnectionOptions,
) -> io::Result<Arc<dyn ByteStream>> {
    if !transport.needs_path() || options.path.is_some() {
        return transport.connect(to, options);
    }
    let start = Instant::now();
    let path = measure(to, options)?;
    let left = options.connect_timeout.saturating_sub(start.elapsed());
    let connect_timeout = left.max(options.connect_timeout / 4);
    transport.connect(to, &ConnectionOptions { path, connect_timeout, ..options.clone() })
}

/// Opens a connection over the transport that is predicted to be the fastest, or over TCP if that
/// one does not connect.
fn open_chosen(to: SocketAddr, options: &ConnectionOptions) -> io::Result<OpenedByteStream> {
    let mut chosen = choose(to, options);
    let path = options.path.or(chosen.estimate);
    let options = ConnectionOptions { path, ..options.clone() };
    let transport = transports::named(chosen.decision.transport).map_err(io::Error::other)?;
    let stream = match chosen.stream.take() {
        Some(Ok(stream)) => stream,
        Some(Err(error)) if transport.is_over_udp() => {
            let stream = transports::DEFAULT.connect(to, &options)?;
            chosen.record_tcp_fallback(&error);
            stream
        }
        Some(Err(error)) => return Err(error),
        None if transport.is_over_udp() => {
            let (stream, replaced) =
                connect_or_tcp(transport, to, &options, chosen.tcp_fallback_delay())?;
            if let Some(error) = replaced {
                chosen.record_tcp_fallback(&error);
            }
            stream
        }
        None => transport.connect(to, &options)?,
    };
    Ok((stream, Some(chosen)))
}

/// Opens a connection over MICSS, with a channel to each of the addresses.
fn open_channels(address: &str, options: &ConnectionOptions) -> Result<Arc<dyn ByteStream>, Error> {
    if !matches!(options.transport, TransportChoice::Auto | TransportChoice::Named("micss")) {
        let reason = "several addresses are for --transport micss only";
        return Err(Error::Address { address: address.to_owned(), reason });
    }
    let mut channels = Vec::new();
    for part in address.split(',') {
        channels.extend(resolve(part)?.first());
    }
    let limit = Some(options.connect_timeout);
    micss::connect(&channels, options)
        .map_err(|error| Error::at(ConnectionStep::Connect("micss"), address, error, limit))
}

/// Opens a connection to the listener that waits at a relay under a token.
fn open_relayed(
    address: &str,
    token: &str,
    relay: &str,
    options: &ConnectionOptions,
) -> Result<RelayedStream, Error> {
    let wrong = |reason| Error::Address { address: address.to_owned(), reason };
    let token: RelayToken = token.parse().map_err(|_| {
        wrong("invalid relay token: give TOKEN@HOST:PORT as the receiver prints it")
    })?;
    let possible = [TransportChoice::Auto, TransportChoice::Named("tcp"), BURST];
    if !possible.contains(&options.transport) {
        return Err(wrong("through a relay, only the transports burst and tcp can be used"));
    }
    relay::open(&resolve(relay)?, token, options).map_err(|error| {
        Error::at(ConnectionStep::Relay, relay, error, Some(options.connect_timeout))
    })
}
