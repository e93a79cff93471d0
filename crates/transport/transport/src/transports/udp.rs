//! Datagrams without retransmission, for networks without loss.
//!
//! Datagrams are numbered and paced. Lost datagrams are not retransmitted: the connection fails at
//! both ends, so that no gap goes unnoticed. The receiver limits the data in flight.

mod connection;
mod endpoint;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod packet;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use ::udp::streams::{self, UdpStreamEndpoint};
use ::udp::{SocketBinding, UdpBatchSocket};

use super::DatagramTransport;
use super::datagrams::buffer;
use crate::options::ConnectionOptions;
use crate::stream::{ByteStream, Transport};
use connection::{UdpTransportConnection, UdpTransportSettings};

/// The default rate, in bytes/s: 100 Mbit/s.
const DEFAULT_RATE: f64 = 12_500_000.0;

/// The fraction of the path's rate that is used, so that its queue stays empty.
const RATE_SHARE: f64 = 0.95;

/// See [the module](self).
pub(super) struct UdpTransport;

impl Transport for UdpTransport {
    fn name(&self) -> &'static str {
        "udp"
    }

    fn about(&self) -> &'static str {
        "datagrams without retransmission; for networks without loss"
    }

    fn needs_path(&self) -> bool {
        true
    }

    fn connect(
        &self,
        to: SocketAddr,
        options: &ConnectionOptions,
    ) -> io::Result<Arc<dyn ByteStream>> {
        let loss = options.path.map_or(0.0, |path| path.loss);
        if loss > 0.0 && !options.accept_loss {
            let what = format!(
                "the path loses {:.2} % of what is sent, which this transport does not send \
                 again: take another one, or accept that",
                loss * 100.0
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let local = any.parse().map_err(io::Error::other)?;
        let socket = UdpBatchSocket::bind(&SocketBinding { local, device: None })?;
        let id = getrandom::u64().map_err(io::Error::other)?;
        let connection = UdpTransportConnection::client(id, to, settings(options), streams::now());
        Ok(self.wrap(streams::connect(socket, Box::new(connection))?))
    }

    fn is_over_udp(&self) -> bool {
        true
    }
}

impl DatagramTransport for UdpTransport {
    fn endpoint(&self, options: &ConnectionOptions) -> io::Result<Box<dyn UdpStreamEndpoint>> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(io::Error::other)?;
        Ok(Box::new(endpoint::UdpTransportListener::new(settings(options), &secret)))
    }
}

fn settings(options: &ConnectionOptions) -> UdpTransportSettings {
    let rate = options.path.map_or(DEFAULT_RATE, |path| RATE_SHARE * path.rate);
    let connect_timeout = options.connect_timeout;
    UdpTransportSettings { rate, buffer: buffer(options), connect_timeout }
}
