//! The datagrams that the kernel redirects to the client: divides them into flows, each of which a
//! stream carries (`udp_flow`).
//!
//! The kernel is asked for the destination of every datagram, because it forgets a flow that is
//! idle, and may then use the same ports for another one: what was true of the last datagram may be
//! wrong for this one.

use std::future::pending;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::AbortHandle;
use tracing::{debug, warn};

use crate::net::intercept::InterceptConfig;
use crate::net::intercept::conntrack::{ConntrackSocket, UdpEndpoints};
use crate::net::intercept::udp_socket::{InterceptedUdpSocket, UdpReturnPath};
use crate::net::metrics::{LimitedLogEvent, StreamMetrics};
use crate::protocol::datagram::MAX_DATAGRAM;
use crate::protocol::udp_flows::UdpFlowTable;

/// The part of `max_streams` that flows can have: a host can open many with a packet for each, and
/// other streams must not suffer. Those that are ending can have as much again.
const MAX_FLOW_PART: usize = 4;

/// The bytes of a flow's datagrams that may wait for its stream. Further ones are dropped.
const MAX_QUEUED: usize = 128 << 10;

/// What a datagram counts in addition to its length.
const DATAGRAM_OVERHEAD: usize = 128;

/// The flows that may wait until the client starts their streams.
const MAX_NEW_FLOWS: usize = 64;

/// A datagram that waits for its flow's stream, and how it has arrived.
pub(super) struct QueuedDatagram {
    pub(super) payload: Vec<u8>,
    pub(super) path: UdpReturnPath,
    /// Its part of what may wait.
    _queued: OwnedSemaphorePermit,
}

/// A new flow. It is over when no more datagrams come.
pub(super) struct NewUdpFlow {
    pub(super) endpoints: UdpEndpoints,
    pub(super) datagrams: mpsc::UnboundedReceiver<QueuedDatagram>,
    pub(super) socket: Arc<InterceptedUdpSocket>,
}

/// A flow whose stream carries its datagrams.
struct UdpFlowQueue {
    sender: mpsc::UnboundedSender<QueuedDatagram>,
    space: Arc<Semaphore>,
}

impl UdpFlowQueue {
    /// Queues a datagram. Returns whether there was space.
    fn push(&self, payload: &[u8], path: UdpReturnPath) -> bool {
        let needed = u32::try_from(payload.len() + DATAGRAM_OVERHEAD).unwrap_or(u32::MAX);
        let Ok(queued) = Arc::clone(&self.space).try_acquire_many_owned(needed) else {
            return false;
        };
        let datagram = QueuedDatagram { payload: payload.to_vec(), path, _queued: queued };
        self.sender.send(datagram).is_ok()
    }
}

/// The interception of a client's UDP.
pub(super) struct InterceptedUdp {
    current: Option<Arc<UdpListener>>,
    /// Listeners that only serve flows that they had before.
    retired: Vec<Weak<UdpListener>>,
    metrics: Arc<StreamMetrics>,
    sender: mpsc::Sender<NewUdpFlow>,
    flows: mpsc::Receiver<NewUdpFlow>,
}

/// The sockets at one port, of IPv4 and, if the kernel has it, of IPv6. They receive until this is
/// dropped.
pub(super) struct UdpListener {
    port: u16,
    /// The maximum number of flows at a time; zero if it takes no new ones.
    max_flows: Arc<AtomicUsize>,
    receiver: AbortHandle,
}

impl Drop for UdpListener {
    fn drop(&mut self) {
        self.receiver.abort();
    }
}

impl InterceptedUdp {
    /// Intercepts nothing yet.
    pub(super) fn new(metrics: Arc<StreamMetrics>) -> Self {
        let (sender, flows) = mpsc::channel(MAX_NEW_FLOWS);
        Self { current: None, retired: Vec::new(), metrics, sender, flows }
    }

    /// The listener that a configuration needs: one that is open already, if its port is the same.
    ///
    /// # Errors
    /// If the port is in use, or the kernel refuses.
    pub(super) fn listener(
        &self,
        intercept: Option<&InterceptConfig>,
    ) -> io::Result<Option<Arc<UdpListener>>> {
        let Some(port) = intercept.filter(|one| one.intercepts_udp()).map(InterceptConfig::port)
        else {
            return Ok(None);
        };
        let retired = self.retired.iter().filter_map(Weak::upgrade);
        let mut known = self.current.iter().cloned().chain(retired);
        match known.find(|listener| listener.port == port) {
            Some(known) => Ok(Some(known)),
            None => self.open(port).map(|listener| Some(Arc::new(listener))),
        }
    }

    /// Uses this listener from now on, for a part of the streams. The one before takes no new
    /// flows.
    pub(super) fn replace(&mut self, listener: Option<Arc<UdpListener>>, max_streams: usize) {
        self.retired.retain(|retired| retired.strong_count() > 0);
        if let Some(before) = &self.current {
            before.max_flows.store(0, Ordering::Relaxed);
            self.retired.push(Arc::downgrade(before));
        }
        if let Some(listener) = &listener {
            self.retired.retain(|retired| !std::ptr::eq(retired.as_ptr(), Arc::as_ptr(listener)));
            listener.max_flows.store((max_streams / MAX_FLOW_PART).max(1), Ordering::Relaxed);
        }
        self.current = listener;
    }

    /// The maximum number of flows that are open or ending.
    pub(super) fn max_open(max_streams: usize) -> usize {
        (max_streams / MAX_FLOW_PART).max(1) * 2
    }

    /// Receives no more datagrams, and so ends all flows.
    pub(super) fn close(&mut self) {
        let retired = self.retired.drain(..).filter_map(|retired| retired.upgrade());
        self.current.take().into_iter().chain(retired).for_each(|one| one.receiver.abort());
    }

    /// Waits for a new flow. Returns it with its listener, which it needs until its end. It is
    /// cancellation-safe.
    pub(super) async fn next_flow(&mut self) -> (NewUdpFlow, Arc<UdpListener>) {
        loop {
            let Some(flow) = self.flows.recv().await else { return pending().await };
            if let Some(listener) = &self.current {
                return (flow, Arc::clone(listener));
            }
        }
    }

    fn open(&self, port: u16) -> io::Result<UdpListener> {
        let named = |error: io::Error| {
            let what = format!("cannot intercept UDP at port {port}: {error}");
            io::Error::new(error.kind(), what)
        };
        let conntrack = ConntrackSocket::open().map_err(named)?;
        let v4 = InterceptedUdpSocket::bind((Ipv4Addr::UNSPECIFIED, port).into());
        let v4 = Arc::new(v4.map_err(named)?);
        let v6 = match InterceptedUdpSocket::bind((Ipv6Addr::UNSPECIFIED, port).into()) {
            Ok(socket) => Some(Arc::new(socket)),
            // The kernel was built or started without IPv6, so no such datagrams exist.
            Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => None,
            Err(error) => return Err(named(error)),
        };
        let max_flows = Arc::new(AtomicUsize::new(0));
        let demultiplexer = UdpFlowDemultiplexer {
            port,
            conntrack,
            flows: UdpFlowTable::new(),
            max_flows: Arc::clone(&max_flows),
            metrics: Arc::clone(&self.metrics),
            new_flows: self.sender.clone(),
        };
        let receiver = tokio::spawn(demultiplexer.run(v4, v6)).abort_handle();
        Ok(UdpListener { port, max_flows, receiver })
    }
}

/// Finds the flow of each datagram.
struct UdpFlowDemultiplexer {
    port: u16,
    conntrack: ConntrackSocket,
    flows: UdpFlowTable<UdpEndpoints, UdpFlowQueue>,
    max_flows: Arc<AtomicUsize>,
    metrics: Arc<StreamMetrics>,
    new_flows: mpsc::Sender<NewUdpFlow>,
}

impl UdpFlowDemultiplexer {
    async fn run(mut self, v4: Arc<InterceptedUdpSocket>, v6: Option<Arc<InterceptedUdpSocket>>) {
        let [mut v4_buffer, mut v6_buffer] = [(); 2].map(|()| vec![0; MAX_DATAGRAM]);
        loop {
            let by_v6 = async {
                match &v6 {
                    Some(socket) => socket.receive(&mut v6_buffer).await,
                    None => pending().await,
                }
            };
            let (socket, received, buffer) = tokio::select! {
                received = v4.receive(&mut v4_buffer) => (&v4, received, &v4_buffer),
                received = by_v6 => (v6.as_ref().unwrap_or(&v4), received, &v6_buffer),
            };
            let is_queued = match received {
                Ok((len, path)) => self.handle_datagram(socket, &buffer[..len], path),
                Err(error) => {
                    debug!(%error, "a datagram of an application is lost");
                    false
                }
            };
            if !is_queued {
                self.metrics.datagrams.dropped.increment();
            }
        }
    }

    /// Returns whether the datagram waits for its flow's stream now.
    fn handle_datagram(
        &mut self,
        socket: &Arc<InterceptedUdpSocket>,
        payload: &[u8],
        path: UdpReturnPath,
    ) -> bool {
        let local = SocketAddr::new(path.local, self.port);
        let endpoints = match self.conntrack.endpoints(path.application, local) {
            // Without a redirection, carrying it would be a loop.
            Ok(endpoints) => endpoints.filter(|it| it.destination != local),
            Err(error) => {
                debug!(%error, "the kernel does not tell the destination of a datagram");
                None
            }
        };
        let Some(endpoints) = endpoints else {
            if let Some(occurrences) = self.metrics.log_permit(LimitedLogEvent::Strange) {
                warn!(occurrences, "datagrams dropped whose destination is not known");
            }
            return false;
        };
        match self.flows.touch(&endpoints).filter(|flow| !flow.sender.is_closed()) {
            Some(flow) => flow.push(payload, path),
            None => self.open_flow(endpoints, socket).is_some_and(|flow| flow.push(payload, path)),
        }
    }

    /// Asks the client for a stream for a new flow.
    fn open_flow(
        &mut self,
        endpoints: UdpEndpoints,
        socket: &Arc<InterceptedUdpSocket>,
    ) -> Option<&UdpFlowQueue> {
        let max_flows = self.max_flows.load(Ordering::Relaxed);
        if max_flows == 0 {
            return None;
        }
        let permit = self.new_flows.try_reserve().ok()?;
        let (sender, datagrams) = mpsc::unbounded_channel();
        permit.send(NewUdpFlow { endpoints, datagrams, socket: Arc::clone(socket) });
        self.flows.remove_ended(|flow| flow.sender.is_closed());
        let flow = UdpFlowQueue { sender, space: Arc::new(Semaphore::new(MAX_QUEUED)) };
        let host = endpoints.application.ip();
        let evicted = self.flows.insert(endpoints, host, flow, max_flows);
        self.metrics.datagrams.evicted.add(evicted as u64);
        self.flows.touch(&endpoints)
    }
}
