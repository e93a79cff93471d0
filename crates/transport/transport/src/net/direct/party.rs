//! The UDP socket of a party.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use keys::KEY_LEN;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use udp::streams::now;
use udp::{DatagramReceiveBuffer, SocketBinding, UdpBatchSocket};
use zeroize::Zeroizing;

use super::OBSERVATION_TIMEOUT;
use crate::protocol::direct::DatagramOffer;
use crate::protocol::punching::{HolePuncher, PUNCH_MESSAGE_LEN, PunchingOutcome, PunchingRole};
use crate::protocol::relay_binding::{BindingGrant, BindingMessage, RelayBinding};

/// What a party receives and sends before there is a connection over datagrams.
pub(super) struct PunchingState {
    pub(super) relay: SocketAddr,
    pub(super) binding: RelayBinding,
    /// `None` until the other party's addresses are known.
    pub(super) puncher: Option<HolePuncher>,
}

impl PunchingState {
    /// Sends what is due. Returns when there is more.
    pub(super) fn transmit(&mut self, socket: &UdpBatchSocket, now: Duration) -> Duration {
        while let Some(request) = self.binding.poll_transmit(now) {
            socket.send_one(&request, self.relay);
        }
        let mut next = self.binding.poll_timeout().unwrap_or(Duration::MAX);
        if let Some(puncher) = &mut self.puncher {
            while let Some((to, ping)) = puncher.poll_transmit(now) {
                socket.send_one(&ping, to);
            }
            next = next.min(puncher.poll_timeout());
        }
        next
    }

    /// Handles a datagram. Returns whether it belongs to this protocol, and the answer to it.
    pub(super) fn handle_datagram(
        &mut self,
        now: Duration,
        from: SocketAddr,
        bytes: &[u8],
    ) -> (bool, Option<[u8; PUNCH_MESSAGE_LEN]>) {
        if from == self.relay && BindingMessage::parse(bytes).is_some() {
            self.binding.handle_datagram(now, bytes);
            return (true, None);
        }
        match &mut self.puncher {
            Some(puncher) => puncher.handle_datagram(now, from, bytes),
            None => (false, None),
        }
    }
}

/// See [the module](self).
pub(in crate::net) struct DatagramParty {
    pub(super) socket: UdpBatchSocket,
    pub(super) state: PunchingState,
    received: DatagramReceiveBuffer,
}

impl DatagramParty {
    /// Opens a socket, and asks the relay for its address. The answer is not awaited.
    ///
    /// # Errors
    /// If the system returns an error.
    pub(in crate::net) fn bind(relay: SocketAddr, grant: &BindingGrant) -> io::Result<Self> {
        let any: IpAddr = match relay {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpBatchSocket::bind(&SocketBinding { local: (any, 0).into(), device: None })?;
        let binding = RelayBinding::new(grant, now());
        let mut state = PunchingState { relay, binding, puncher: None };
        state.transmit(&socket, now());
        Ok(Self { socket, state, received: DatagramReceiveBuffer::new() })
    }

    /// This party's offer. If the relay does not answer, UDP is blocked, and there is none.
    ///
    /// # Errors
    /// If the socket has failed, or the system provides no random bytes.
    pub(super) fn offer(&mut self) -> io::Result<DatagramOffer> {
        let deadline = now() + OBSERVATION_TIMEOUT;
        while self.state.binding.observed().is_none() && now() < deadline {
            self.exchange(deadline)?;
        }
        let Some(observed) = self.state.binding.observed() else { return Ok(DatagramOffer::None) };
        let mut addresses = vec![observed];
        addresses.extend(self.local_address().filter(|local| *local != observed));
        let mut key = Zeroizing::new([0; KEY_LEN]);
        getrandom::fill(&mut *key).map_err(io::Error::other)?;
        Ok(DatagramOffer::Candidates { key, addresses })
    }

    /// The address from which this host sends to the relay.
    fn local_address(&self) -> Option<SocketAddr> {
        let any = self.socket.local_addr().ok()?;
        let socket = UdpSocket::bind((any.ip(), 0)).ok()?;
        // Nothing is sent.
        socket.connect(self.state.relay).ok()?;
        Some((socket.local_addr().ok()?.ip(), any.port()).into())
    }

    /// Begins to search for a path to the other party.
    pub(super) fn begin(
        &mut self,
        role: PunchingRole,
        key: &Zeroizing<[u8; KEY_LEN]>,
        candidates: &[SocketAddr],
    ) {
        let relay = Some(self.state.relay);
        self.state.puncher = Some(HolePuncher::new(role, key, candidates, relay, now()));
    }

    /// Searches until there is an outcome.
    ///
    /// # Errors
    /// If the socket has failed.
    pub(super) fn search(&mut self) -> io::Result<PunchingOutcome> {
        loop {
            let Some(puncher) = &self.state.puncher else { return Ok(PunchingOutcome::NoPath) };
            match puncher.outcome(now()) {
                PunchingOutcome::Searching => self.exchange(Duration::MAX)?,
                outcome => return Ok(outcome),
            }
        }
    }

    /// Sends what is due, waits for datagrams until the next deadline, and handles them.
    fn exchange(&mut self, until: Duration) -> io::Result<()> {
        let next = self.state.transmit(&self.socket, now()).min(until);
        let sleep = next.saturating_sub(now());
        let limit = Timespec::try_from(sleep).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        self.received.receive(&self.socket)?;
        let now = now();
        for (from, bytes) in self.received.datagrams() {
            if let (_, Some(answer)) = self.state.handle_datagram(now, from, bytes) {
                self.socket.send_one(&answer, from);
            }
        }
        Ok(())
    }
}
