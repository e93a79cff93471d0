//! The party that connects, and chooses the path.

use std::io::{self, Write};
use std::sync::Arc;

use super::{AGREEMENT_TIMEOUT, DatagramParty, OPEN_TIMEOUT, PathStream, path_of};
use crate::error::{ConnectionStep, Error};
use crate::net::connection::Connection;
use crate::net::handshaking;
use crate::options::{ConnectionOptions, TransportChoice};
use crate::protocol::direct::{DatagramOffer, PathDecision, punching_key};
use crate::protocol::punching::{DatagramPath, PunchingOutcome, PunchingRole};
use crate::relay::RelayedStream;
use crate::stream::{ByteStream, ConnectionPath};
use crate::transports::burst::BurstTransport;

/// The name of the transport that is used over datagrams.
const DATAGRAM_TRANSPORT: TransportChoice = TransportChoice::Named("burst");

/// Performs the handshake with the other party, and opens a connection over datagrams, unless the
/// options do not allow that. If no datagrams reach the other party, the connection through the
/// relay is used.
///
/// # Errors
/// If the handshake fails, or if the options require datagrams, and none reach the other party.
pub(in crate::net) fn connect(
    relayed: RelayedStream,
    name: String,
    options: &ConnectionOptions,
) -> Result<Connection, Error> {
    let RelayedStream { stream, relay, grant } = relayed;
    let wants_datagrams = match options.transport {
        TransportChoice::Auto => !options.avoids_udp,
        TransportChoice::Named(_) => options.transport == DATAGRAM_TRANSPORT,
    };
    let party = wants_datagrams.then(|| DatagramParty::bind(relay, &grant).ok()).flatten();
    let stream = PathStream::relayed_tcp(stream);
    let mut control = handshaking::initiate(stream, name.clone(), options)?;
    let opened = open(&mut control, party, options);
    match opened.map_err(|error| Error::from_io(&name, error))? {
        Some((stream, path)) => {
            let stream = PathStream::over_datagrams(stream, path, control);
            handshaking::initiate(stream, name, options)
        }
        None if options.transport == DATAGRAM_TRANSPORT => {
            let what = "no datagrams reach the other end, neither directly nor through the relay: \
                        omit --transport";
            let source = io::Error::new(io::ErrorKind::TimedOut, what);
            Err(Error::at(ConnectionStep::Connect("burst"), &name, source, None))
        }
        None => Ok(control),
    }
}

/// Opens a connection over datagrams, if the other party agrees and there is a path.
fn open(
    control: &mut Connection,
    party: Option<DatagramParty>,
    options: &ConnectionOptions,
) -> io::Result<Option<(Arc<dyn ByteStream>, ConnectionPath)>> {
    control.set_timeout(Some(AGREEMENT_TIMEOUT))?;
    let Some(mut party) = party else {
        control.write_all(&DatagramOffer::None.encode())?;
        control.flush()?;
        return Ok(None);
    };
    let own = party.offer()?;
    control.write_all(&own.encode())?;
    control.flush()?;
    let DatagramOffer::Candidates { key: own, .. } = own else { return Ok(None) };
    let DatagramOffer::Candidates { key, addresses } = DatagramOffer::read(control)? else {
        return Ok(None);
    };
    party.begin(PunchingRole::Connecting, &punching_key(&own, &key), &addresses);
    let opened = match party.search()? {
        PunchingOutcome::Found(path) => {
            let options = ConnectionOptions { connect_timeout: OPEN_TIMEOUT, ..options.clone() };
            BurstTransport.connect_over(party.socket, path.address(), &options).ok().zip(Some(path))
        }
        PunchingOutcome::NoPath | PunchingOutcome::Searching => None,
    };
    let decision = match &opened {
        None => PathDecision::RelayedTcp,
        Some((_, DatagramPath::Direct(_))) => PathDecision::Direct,
        Some((_, DatagramPath::Relayed(_))) => PathDecision::RelayedDatagrams,
    };
    control.write_all(&[decision as u8])?;
    control.flush()?;
    Ok(opened.map(|(stream, _)| (stream, path_of(decision))))
}
