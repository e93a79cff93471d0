//! Looks up the names of a client's servers: at the start, and again for channels that do not work.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::ChannelSubset;
use service::remote_address::RemoteAddress;
use tracing::{info, warn};

use super::receiving::ReceivingCommand;
use super::shared::lock;
use super::waker::ThreadWaker;
use crate::config::{TunnelChannelConfig, TunnelConfig};
use crate::protocol::endpoint::shared_state::EndpointSharedState;

/// The interval of look-ups of a channel that does not work.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(5);

/// The same configuration with the addresses of names. A name without an address gets the
/// unspecified one, to which nothing is sent until the name is looked up again.
pub(super) fn look_up_servers(config: &TunnelConfig) -> TunnelConfig {
    let mut config = config.clone();
    for channel in &mut config.channels {
        // The thread tries again, and reports it.
        let _ = look_up_server(channel);
    }
    config
}

/// Gives a channel whose server has a name the address of this name; the unspecified one if the
/// name has none.
///
/// # Errors
/// If the name cannot be looked up.
pub(super) fn look_up_server(channel: &mut TunnelChannelConfig) -> io::Result<()> {
    let Some(server) = channel.server.as_ref().filter(|it| it.name().is_some()) else {
        return Ok(());
    };
    let has_source = !channel.local.ip().is_unspecified();
    let found = server.look_up_again(has_source.then(|| channel.local.is_ipv4()));
    let unknown = SocketAddr::new(unspecified(channel.local.is_ipv4()), 0);
    let address = *found.as_ref().unwrap_or(&unknown);
    if !has_source {
        channel.local = SocketAddr::new(unspecified(address.is_ipv4()), 0);
    }
    channel.peer = Some(address);
    found.map(drop)
}

fn unspecified(is_v4: bool) -> IpAddr {
    if is_v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// The thread that looks names up again.
pub(super) struct ServerNamesThread {
    channels: Vec<NamedServerChannel>,
    shared: Arc<Mutex<EndpointSharedState>>,
    receiving: Sender<ReceivingCommand>,
    receiving_waker: ThreadWaker,
}

/// A channel whose server has a name.
struct NamedServerChannel {
    index: usize,
    server: RemoteAddress,
    /// The address that is used, of the family of the channel's socket.
    address: SocketAddr,
    /// Whether the last look-up has failed.
    has_failed: bool,
}

impl ServerNamesThread {
    /// The thread for a client, whose configuration has the addresses of names. `None` if there are
    /// no names.
    pub(super) fn new(
        config: &TunnelConfig,
        shared: Arc<Mutex<EndpointSharedState>>,
        receiving: Sender<ReceivingCommand>,
        receiving_waker: ThreadWaker,
    ) -> Option<Self> {
        let named = |(index, channel): (usize, &TunnelChannelConfig)| {
            let server = channel.server.clone().filter(|it| it.name().is_some())?;
            Some(NamedServerChannel { index, server, address: channel.peer?, has_failed: false })
        };
        let channels: Vec<_> = config.channels.iter().enumerate().filter_map(named).collect();
        let is_needed = !channels.is_empty();
        is_needed.then_some(Self { channels, shared, receiving, receiving_waker })
    }

    /// Looks up names until the sender of `stop` is dropped. A look-up may last longer.
    pub(super) fn run(mut self, stop: &Receiver<()>) {
        let unknown = self.channels.iter().filter(|it| it.address.ip().is_unspecified());
        let unknown = unknown.map(|channel| channel.index).collect();
        self.look_up(unknown);
        while stop.recv_timeout(LOOKUP_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            let shared = lock(&self.shared);
            let indices = self.channels.iter().map(|channel| channel.index);
            let failing: ChannelSubset = indices.filter(|index| !shared.works(*index)).collect();
            drop(shared);
            self.look_up(failing);
        }
    }

    /// Looks up the names of these channels, and uses addresses that are new.
    fn look_up(&mut self, channels: ChannelSubset) {
        for channel in &mut self.channels {
            if channels.contains(channel.index) && channel.look_up() {
                let (index, to) = (channel.index, channel.address);
                // If it has ended, this thread is about to end, too.
                let _ = self.receiving.send(ReceivingCommand::Server { channel: index, to });
                self.receiving_waker.wake();
            }
        }
    }
}

impl NamedServerChannel {
    /// Returns whether the name has another address than before.
    fn look_up(&mut self) -> bool {
        let number = self.index + 1;
        let found = match self.server.look_up_again(Some(self.address.is_ipv4())) {
            Ok(found) => found,
            Err(error) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    warn!("channel {number}: {error}; trying again");
                }
                return false;
            }
        };
        self.has_failed = false;
        let is_new = found != self.address;
        if is_new {
            info!("channel {number}: trying {found}, an address of {}", self.server);
        }
        self.address = found;
        is_new
    }
}
