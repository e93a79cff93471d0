//! Sends and receives the datagrams of a probe.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use udp::streams::{DatagramRouting, ListenerLoad, ReceivedDatagram, UdpStreamEndpoint, now};
use udp::{DatagramReceiveBuffer, SocketBinding, UdpBatchSocket};

use super::host;
use super::prober::{PathProbeClient, ProbeMeasurement};
use super::reflector::ProbeReflector;

/// The length of the IP and UDP headers.
const HEADER_LEN_V4: usize = 28;
const HEADER_LEN_V6: usize = 48;
/// The interval at which the caller is asked whether to continue, before the server has answered.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// A probe of the path to a listener, which has sent its first datagram.
pub(crate) struct PathProbe {
    socket: UdpBatchSocket,
    to: SocketAddr,
    prober: PathProbeClient,
}

impl PathProbe {
    /// Sends the hello.
    ///
    /// # Errors
    /// If no socket can be opened, or the system provides no random bytes.
    pub(crate) fn start(to: SocketAddr) -> io::Result<Self> {
        let (any, header) = match to {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), HEADER_LEN_V4),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED.into(), HEADER_LEN_V6),
        };
        let socket =
            UdpBatchSocket::bind(&SocketBinding { local: SocketAddr::new(any, 0), device: None })?;
        // Without timestamps, arrival times are those at which this thread was woken.
        let _ = socket.enable_timestamps();
        let mut probing =
            Self { socket, to, prober: PathProbeClient::new(getrandom::u64()?, header, now()) };
        probing.transmit();
        Ok(probing)
    }

    /// Measures the path. `measures_rates` is called once the server has answered, when the
    /// round-trip time is known and the rates are not. `is_waiting` is called every ms and tells
    /// whether to keep waiting for an answer. Returns `None` without an answer: UDP does not pass,
    /// or the caller stopped waiting.
    ///
    /// # Errors
    /// If the system cannot wait or receive.
    pub(crate) fn run(
        mut self,
        mut measures_rates: impl FnMut(&ProbeMeasurement) -> bool,
        mut is_waiting: impl FnMut() -> bool,
    ) -> io::Result<Option<ProbeMeasurement>> {
        let mut received = DatagramReceiveBuffer::new();
        let mut is_asked = false;
        while let Some(deadline) = self.prober.poll_timeout() {
            self.transmit();
            let mut sleep = deadline.saturating_sub(now());
            if !self.prober.is_welcome() {
                if !is_waiting() {
                    return Ok(None);
                }
                sleep = sleep.min(CHECK_INTERVAL);
            }
            wait(&self.socket, sleep)?;
            while received.receive(&self.socket)? {
                handle(&mut self.prober, &received, self.to);
            }
            handle(&mut self.prober, &received, self.to);
            self.prober.handle_timeout(now());
            if !is_asked && let Some(measured) = self.prober.measured() {
                is_asked = true;
                if !measures_rates(&measured) {
                    return Ok(Some(measured));
                }
                self.prober.measure_rates(now());
            }
        }
        Ok(self.prober.measured())
    }

    fn transmit(&mut self) {
        let mut datagram = Vec::new();
        while self.prober.poll_transmit(now(), &mut datagram) {
            // One by one, so that the kernel does not combine a train into one packet.
            self.socket.send_one(&datagram, self.to);
            datagram.clear();
        }
    }
}

fn handle(prober: &mut PathProbeClient, received: &DatagramReceiveBuffer, server: SocketAddr) {
    let now = now();
    for (from, datagram, age) in received.arrivals() {
        if from == server {
            prober.handle_datagram(now, now.saturating_sub(age), datagram);
        }
    }
}

fn wait(socket: &UdpBatchSocket, sleep: Duration) -> io::Result<()> {
    let mut events = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
    let timeout = Timespec::try_from(sleep).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
    match poll(&mut events, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The server's end of probes, on the socket that all transports share.
pub(crate) struct ProbeEndpoint(ProbeReflector);

impl ProbeEndpoint {
    /// Answers probes with the capabilities of this host. `congestion`: TCP's congestion control,
    /// if not the system's default.
    ///
    /// # Errors
    /// If the system provides no random bytes.
    pub(crate) fn new(congestion: Option<&str>) -> io::Result<Self> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        Ok(Self(ProbeReflector::new(host::info(congestion), key)))
    }
}

impl UdpStreamEndpoint for ProbeEndpoint {
    fn protocol(&self) -> &'static str {
        "probe"
    }

    fn handle_datagram(
        &mut self,
        now: Duration,
        datagram: &ReceivedDatagram<'_>,
        _: ListenerLoad,
    ) -> DatagramRouting {
        if !ProbeReflector::is_probe(datagram.bytes) {
            return DatagramRouting::NotMine;
        }
        let ReceivedDatagram { from, bytes, arrived_at } = *datagram;
        let answer = self.0.handle_datagram(now, arrived_at, from, bytes);
        answer.map_or(DatagramRouting::Nothing, DatagramRouting::Answer)
    }

    fn forget(&mut self, _: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Listener;
    use crate::options::{ConnectionOptions, ConnectionSecurity};

    #[test]
    fn a_listener_answers_probes() {
        let listener =
            Listener::bind("127.0.0.1:0", &ConnectionOptions::new(ConnectionSecurity::Insecure))
                .unwrap();
        let probe = || {
            let probe = PathProbe::start(listener.local_addr()).unwrap();
            probe.run(|_| true, || true).unwrap().unwrap()
        };
        // A busy machine may delay all packets of some.
        let is_short = |it: &ProbeMeasurement| it.round_trip < Duration::from_millis(500);
        let measured = (0..3).map(|_| probe()).find(is_short);
        let measured = measured.expect("one of three round trips over loopback is short");
        assert_eq!(measured.host, host::info(None));
        assert!(measured.host.reading_rate > 1_000_000);
        let short = PathProbe::start(listener.local_addr())
            .unwrap()
            .run(|_| false, || true)
            .unwrap()
            .unwrap();
        assert_eq!(short.up, None);
    }

    #[test]
    fn an_answer_that_nobody_waits_for_is_none() {
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut left = 3;
        let measured = PathProbe::start(silent.local_addr().unwrap()).unwrap().run(
            |_| true,
            || {
                left -= 1;
                left > 0
            },
        );
        assert_eq!(measured.unwrap(), None);
    }
}
