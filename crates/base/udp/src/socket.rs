//! UDP sockets that send and receive many datagrams in one system call.
//!
//! A datagram in a call of its own costs the kernel as much as 40 datagrams that it splits itself
//! (generic segmentation offload, GSO, `UDP_SEGMENT`). So a batch is sent as runs of datagrams of
//! one length, all runs in one `sendmmsg`, and received as runs (GRO, `UDP_GRO`), many of them in
//! one `recvmmsg`. If the kernel or device does not support GSO, the same datagrams are sent one by
//! one.
//!
//! No call blocks: one thread serves all sockets, and none must wait for another. If the device is
//! slower than the pacer, datagrams that do not fit into the socket's buffer are refused, as in any
//! full queue.

// For `sendmmsg` with control messages in reused buffers, as no safe interface supports this.
#![allow(unsafe_code)]

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{io, mem, ptr};

use socket2::{Domain, Protocol, SockRef, Type};

use crate::batch::DatagramBatch;
use crate::sys::{CONTROL_LEN, raw_address, set_option};

/// The size of the receive buffer, in bytes: 10 MB are 50 ms at 1.6 Gbit/s.
const RECV_BUFFER_LEN: usize = 10 << 20;

/// The size of the send buffer, in bytes. The kernel doubles it, and a full packet takes one and a
/// half times its length, so a full batch fits. A larger buffer would only add delay if a device is
/// slow.
const SEND_BUFFER_LEN: usize = 256 << 10;

/// The maximum number of runs in one send call.
const MAX_RUNS: usize = 64;

/// How long GSO is not used after it has failed.
const GSO_RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// The address and device to which a socket is bound.
#[derive(Clone, Debug)]
pub struct SocketBinding<'a> {
    /// The local address; port 0 chooses any.
    pub local: SocketAddr,
    /// The network device, if any.
    pub device: Option<&'a str>,
}

/// A UDP socket. Clones are the same socket, for other threads.
#[derive(Clone, Debug)]
pub struct UdpBatchSocket {
    inner: Arc<UdpSocket>,
    /// The network device that it is bound to.
    device: Option<Arc<str>>,
    gso: GsoSupport,
}

/// Whether GSO works.
#[derive(Clone, Copy, Debug, Default)]
struct GsoSupport {
    /// After it has failed, when it is tried again.
    retry_at: Option<Instant>,
}

/// What sending a batch reveals about GSO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GsoResult {
    Works,
    /// It failed with this error, and the same datagrams were accepted one by one.
    Fails(libc::c_int),
}

/// The result of sending a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchSendResult {
    /// Datagrams that the kernel accepted.
    pub datagrams: usize,
    /// Datagrams that it refused.
    pub refused: usize,
    /// The error number of GSO, if it has failed for the first time since it last worked. Datagrams
    /// are sent one by one from now on, and GSO is tried again every minute.
    pub gso_error: Option<i32>,
    /// If the buffer of the socket or device became full: the position in the batch of the first
    /// datagram that did not fit, in bytes.
    pub full_at: Option<usize>,
}

impl UdpBatchSocket {
    /// Binds a non-blocking socket, whose datagrams are never fragmented.
    ///
    /// # Errors
    /// If the address or device cannot be used.
    pub fn bind(to: &SocketBinding<'_>) -> io::Result<Self> {
        let socket =
            socket2::Socket::new(Domain::for_address(to.local), Type::DGRAM, Some(Protocol::UDP))?;
        if let Some(device) = to.device {
            socket.bind_device(Some(device.as_bytes()))?;
        }
        socket.bind(&to.local.into())?;
        socket.set_nonblocking(true)?;
        size_buffers(&socket);
        // "Don't fragment", limited by the device's MTU only. The kernel's path MTU is not used,
        // since a forged ICMP message can change it.
        let (level, name, value) = match to.local {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
            SocketAddr::V6(_) => {
                (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)
            }
        };
        set_option(&socket, level, name, value)?;
        // Older kernels deliver datagrams one by one, which also works.
        let _ = set_option(&socket, libc::SOL_UDP, libc::UDP_GRO, 1);
        let device = to.device.map(Arc::from);
        Ok(Self { inner: Arc::new(socket.into()), device, gso: GsoSupport::default() })
    }

    /// The name of the network device to which it is bound, if any.
    pub fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// Binds to the device again if another device now has its name, and returns whether it did.
    /// The kernel binds to a device, not to a name, and a modem that is plugged in again is another
    /// device. No error of the socket shows that, so this must be called at intervals. All clones
    /// are bound again.
    ///
    /// # Errors
    /// If the socket cannot be bound to the new device, for example because the device does not
    /// have the address yet. Then the socket is unchanged, as it is while there is no such device.
    pub fn rebind_device(&self) -> io::Result<bool> {
        let Some(device) = self.device() else { return Ok(false) };
        let name = SockRef::from(&*self.inner).device();
        if matches!(name, Ok(Some(name)) if name == device.as_bytes()) {
            return Ok(false);
        }
        let mut local = self.local_addr()?;
        if let SocketAddr::V6(address) = &mut local {
            // The scope ID of a link-local address is the index of the old device.
            address.set_scope_id(0);
        }
        // Another socket replaces this one, because only root may bind a socket twice.
        let other = match Self::bind(&SocketBinding { local, device: Some(device) }) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(false),
            other => other?,
        };
        let (from, to) = (other.inner.as_raw_fd(), self.inner.as_raw_fd());
        // SAFETY: both descriptors are open and owned, by `other` and `self`. Each owner keeps a
        // descriptor of a UDP socket of its own to close.
        if unsafe { libc::dup3(from, to, libc::O_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(true)
    }

    /// The local address.
    ///
    /// # Errors
    /// If the system does not return it.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    /// Makes the kernel record when it receives a datagram, for
    /// [`DatagramReceiveBuffer::arrivals`](crate::DatagramReceiveBuffer::arrivals).
    ///
    /// # Errors
    /// If the kernel returns an error.
    pub fn enable_timestamps(&self) -> io::Result<()> {
        set_option(&*self.inner, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
    }

    /// Sends one datagram. Returns false if it is too long for the device. After any other error it
    /// is lost.
    pub fn send_one(&self, datagram: &[u8], to: SocketAddr) -> bool {
        let error = self.inner.send_to(datagram, to).err().and_then(|error| error.raw_os_error());
        error != Some(libc::EMSGSIZE)
    }

    /// Sends a batch without blocking: datagrams that do not fit into the buffer are refused.
    pub fn send(&mut self, batch: &DatagramBatch, to: SocketAddr) -> BatchSendResult {
        let (to, to_len) = raw_address(to);
        let uses_gso = self.gso.is_due(Instant::now);
        let (datagrams, result, full_at) =
            send_until_full(batch, uses_gso, |runs| send_messages(&self.inner, runs, &to, to_len));
        let gso_error = self.gso.handle_result(result, Instant::now);
        let refused = batch.runs().map(datagram_count).sum::<usize>() - datagrams;
        BatchSendResult { datagrams, refused, gso_error, full_at }
    }
}

impl GsoSupport {
    /// Whether to use GSO.
    fn is_due(self, now: impl FnOnce() -> Instant) -> bool {
        self.retry_at.is_none_or(|at| now() >= at)
    }

    /// Records the result of sending a batch. Returns the error if GSO worked before.
    fn handle_result(
        &mut self,
        result: Option<GsoResult>,
        now: impl FnOnce() -> Instant,
    ) -> Option<libc::c_int> {
        match result? {
            GsoResult::Works => {
                self.retry_at = None;
                None
            }
            GsoResult::Fails(error) => {
                let before = self.retry_at.replace(now() + GSO_RETRY_INTERVAL);
                before.is_none().then_some(error)
            }
        }
    }
}

impl AsFd for UdpBatchSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

/// Sends a batch as [`send_runs`] does. Also returns the position of the first datagram that did
/// not fit, if a buffer was full.
fn send_until_full<'a>(
    batch: &'a DatagramBatch,
    uses_gso: bool,
    mut send_messages: impl FnMut(&[(&'a [u8], usize)]) -> Result<usize, libc::c_int>,
) -> (usize, Option<GsoResult>, Option<usize>) {
    let mut full_at = None;
    let (datagrams, result) = send_runs(batch.runs(), uses_gso, |runs| {
        let taken = send_messages(runs);
        if taken.is_err_and(is_full) {
            full_at = runs.first().and_then(|(bytes, _)| batch.position_of(bytes));
        }
        taken
    });
    (datagrams, result, full_at)
}

/// Sends runs, many at once, or single datagrams without GSO. `send_messages` returns the number of
/// runs that the kernel accepted, or the error of the first one.
///
/// Returns the number of datagrams that the kernel accepted, and what they show of GSO, if it was
/// used. Once it has failed it is not used for the rest of the batch.
fn send_runs<'a>(
    mut runs: impl Iterator<Item = (&'a [u8], usize)>,
    uses_gso: bool,
    mut send_messages: impl FnMut(&[(&'a [u8], usize)]) -> Result<usize, libc::c_int>,
) -> (usize, Option<GsoResult>) {
    let (mut datagrams, mut result) = (0, None);
    loop {
        let mut some = [(&[][..], 0); MAX_RUNS];
        let mut length = 0;
        for (place, run) in some.iter_mut().zip(runs.by_ref()) {
            *place = run;
            length += 1;
        }
        if length == 0 {
            return (datagrams, result);
        }
        let mut rest = &some[..length];
        while let Some(&(bytes, size)) = rest.first() {
            let mut gso_error = None;
            if uses_gso && !matches!(result, Some(GsoResult::Fails(_))) {
                match send_messages(rest) {
                    Ok(taken) => {
                        let (sent, unsent) = rest.split_at(taken);
                        datagrams += sent.iter().copied().map(datagram_count).sum::<usize>();
                        if sent.iter().any(|run| datagram_count(*run) > 1) {
                            result = Some(GsoResult::Works);
                        }
                        rest = unsent;
                        continue;
                    }
                    // The rest of the batch does not fit either.
                    Err(error) if is_full(error) => return (datagrams, result),
                    // EIO is the error of a device without checksum offload, and EINVAL of an old
                    // kernel, but also of datagrams that are too long for the device.
                    Err(error @ (libc::EIO | libc::EINVAL)) if bytes.len() > size => {
                        gso_error = Some(error);
                    }
                    Err(_) => {
                        rest = &rest[1..];
                        continue;
                    }
                }
            }
            for (index, datagram) in bytes.chunks(size).enumerate() {
                match send_messages(&[(datagram, size)]) {
                    Ok(taken) => {
                        datagrams += taken;
                        // The last run may be shorter, and reveals nothing.
                        if let Some(error) = gso_error.filter(|_| index == 0) {
                            result = Some(GsoResult::Fails(error));
                        }
                    }
                    Err(error) if is_full(error) => return (datagrams, result),
                    Err(_) => {}
                }
            }
            rest = &rest[1..];
        }
    }
}

/// The number of datagrams in a run.
fn datagram_count((bytes, size): (&[u8], usize)) -> usize {
    bytes.len().div_ceil(size)
}

/// Whether an error says that a buffer of socket or device is full.
pub(crate) fn is_full(error: libc::c_int) -> bool {
    matches!(error, libc::EAGAIN | libc::ENOBUFS)
}

/// Sends runs in one system call. Returns the number that the kernel accepted, or the error of the
/// first one.
fn send_messages(
    socket: &UdpSocket,
    runs: &[(&[u8], usize)],
    to: &libc::sockaddr_storage,
    to_len: libc::socklen_t,
) -> Result<usize, libc::c_int> {
    // SAFETY: all-zero bytes are valid values of these C structures: no pointers, no lengths.
    let mut messages: [libc::mmsghdr; MAX_RUNS] = unsafe { mem::zeroed() };
    let mut slices = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; MAX_RUNS];
    let mut controls = [[0_u64; CONTROL_LEN]; MAX_RUNS];
    for (i, (bytes, size)) in runs.iter().enumerate() {
        slices[i].iov_base = bytes.as_ptr().cast_mut().cast();
        slices[i].iov_len = bytes.len();
        let header = &mut messages[i].msg_hdr;
        header.msg_name = ptr::from_ref(to).cast_mut().cast();
        header.msg_namelen = to_len;
        header.msg_iov = &raw mut slices[i];
        header.msg_iovlen = 1;
        if bytes.len() > *size {
            set_gso_size(header, &mut controls[i], *size);
        }
    }
    let count = libc::c_uint::try_from(runs.len()).expect("at most MAX_RUNS");
    loop {
        // SAFETY: the first `count` messages point to slices, an address and control messages that
        // outlive the call; the kernel only reads what they point to, and writes `msg_len`.
        let taken = unsafe { libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), count, 0) };
        if let Ok(taken) = usize::try_from(taken) {
            return Ok(taken);
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR) => {}
            error => return Err(error.unwrap_or(libc::EIO)),
        }
    }
}

/// Sets the buffer sizes: beyond the system's limit if that is permitted, else up to it.
fn size_buffers(socket: &socket2::Socket) {
    let force = |name, size: usize| {
        set_option(socket, libc::SOL_SOCKET, name, libc::c_int::try_from(size).expect("some MB"))
    };
    if force(libc::SO_RCVBUFFORCE, RECV_BUFFER_LEN).is_err() {
        let _ = socket.set_recv_buffer_size(RECV_BUFFER_LEN);
    }
    if force(libc::SO_SNDBUFFORCE, SEND_BUFFER_LEN).is_err() {
        let _ = socket.set_send_buffer_size(SEND_BUFFER_LEN);
    }
}

/// Adds the control message for GSO with datagrams of `size` bytes.
fn set_gso_size(header: &mut libc::msghdr, control: &mut [u64; CONTROL_LEN], size: usize) {
    let size = u16::try_from(size).expect("a datagram's length");
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(control) as _;
    // SAFETY: the control buffer is aligned, zeroed, and has room for one message with a `u16`, so
    // that CMSG_FIRSTHDR gives a header in it and CMSG_DATA a place for two bytes.
    unsafe {
        let first = libc::CMSG_FIRSTHDR(header);
        (*first).cmsg_level = libc::SOL_UDP;
        (*first).cmsg_type = libc::UDP_SEGMENT;
        (*first).cmsg_len = libc::CMSG_LEN(2) as _;
        ptr::write_unaligned(libc::CMSG_DATA(first).cast::<u16>(), size);
        header.msg_controllen = libc::CMSG_SPACE(2) as _;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recv_buffer::DatagramReceiveBuffer;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn pair() -> (UdpBatchSocket, UdpBatchSocket, SocketAddr) {
        let any = SocketBinding { local: "127.0.0.1:0".parse().unwrap(), device: None };
        let (from, to) = (UdpBatchSocket::bind(&any).unwrap(), UdpBatchSocket::bind(&any).unwrap());
        let address = to.inner.local_addr().unwrap();
        (from, to, address)
    }

    fn batch(lengths: &[usize]) -> DatagramBatch {
        let mut batch = DatagramBatch::default();
        for (i, &length) in lengths.iter().enumerate() {
            batch.reserve(length).fill(u8::try_from(i % 251).unwrap());
        }
        batch
    }

    fn receive_all(socket: &UdpBatchSocket, count: usize) -> Vec<Vec<u8>> {
        let mut buffer = DatagramReceiveBuffer::new();
        let mut all = Vec::new();
        while all.len() < count {
            let mut events = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
            let ten_seconds = Timespec { tv_sec: 10, tv_nsec: 0 };
            assert!(poll(&mut events, Some(&ten_seconds)).unwrap() > 0, "{} came", all.len());
            buffer.receive(socket).unwrap();
            all.extend(buffer.datagrams().map(|(_, datagram)| datagram.to_vec()));
        }
        all
    }

    #[test]
    fn batches_arrive_with_and_without_gso() {
        let lengths: Vec<usize> =
            [vec![1400; 150], vec![100, 1400, 1400, 900, 1, 1, 1], vec![60; 130]].concat();
        let batch = batch(&lengths);
        for uses_gso in [true, false] {
            let (mut from, to, address) = pair();
            from.gso.retry_at = (!uses_gso).then(|| Instant::now() + GSO_RETRY_INTERVAL);
            let sent = from.send(&batch, address);
            assert_eq!(
                sent,
                BatchSendResult {
                    datagrams: lengths.len(),
                    refused: 0,
                    gso_error: None,
                    full_at: None
                }
            );
            assert_eq!(from.gso.is_due(Instant::now), uses_gso, "loopback cuts");
            let received = receive_all(&to, lengths.len());
            for (i, (datagram, &length)) in received.iter().zip(&lengths).enumerate() {
                assert_eq!(datagram.len(), length, "datagram {i}");
                assert!(datagram.iter().all(|&byte| usize::from(byte) == i % 251), "datagram {i}");
            }
        }
    }

    #[test]
    fn what_a_full_buffer_does_not_take_can_be_sent_later() {
        let lengths = [vec![1400; 40], vec![1401], vec![1402; 30], vec![60; 3]].concat();
        for uses_gso in [true, false] {
            let (mut batch, mut sent, mut calls) = (batch(&lengths), Vec::new(), 0);
            // Every second call finds the buffer full.
            while let (_, _, Some(at)) = send_until_full(&batch, uses_gso, |runs| {
                calls += 1;
                if calls % 2 == 0 {
                    return Err(libc::EAGAIN);
                }
                sent.extend(runs[0].0.chunks(runs[0].1).map(<[u8]>::to_vec));
                Ok(1)
            }) {
                batch.skip(at);
            }
            assert!(calls > 4);
            for (i, (datagram, &length)) in sent.iter().zip(&lengths).enumerate() {
                assert_eq!((datagram.len(), datagram[0]), (length, u8::try_from(i).unwrap()));
            }
            assert_eq!(sent.len(), lengths.len());
        }
    }

    #[test]
    fn refused_datagrams_are_counted_and_others_are_sent() {
        let (mut from, _to, _) = pair();
        let too_long = batch(&[1400, 65_508, 1400]);
        let (to, address) = {
            let (_, to, address) = pair();
            (to, address)
        };
        let sent = from.send(&too_long, address);
        assert_eq!(
            sent,
            BatchSendResult { datagrams: 2, refused: 1, gso_error: None, full_at: None }
        );
        assert_eq!(receive_all(&to, 2).len(), 2);
    }

    /// Sends a batch of three runs, of 40, 1 and 30 datagrams. `answer` gives the kernel's result
    /// for a number of runs, and of datagrams in the first one. Returns the accepted datagrams,
    /// whether GSO is still used, and the number of calls.
    fn send_to(
        mut answer: impl FnMut(usize, usize) -> Result<usize, libc::c_int>,
    ) -> (usize, bool, usize) {
        let batch = batch(&[vec![1400; 40], vec![1401], vec![1402; 30]].concat());
        let mut calls = 0;
        let (taken, result) = send_runs(batch.runs(), true, |runs| {
            calls += 1;
            answer(runs.len(), datagram_count(runs[0]))
        });
        (taken, !matches!(result, Some(GsoResult::Fails(_))), calls)
    }

    #[test]
    fn a_full_socket_buffer_refuses_the_rest_of_the_batch() {
        assert_eq!(send_to(|runs, _| Ok(runs)), (71, true, 1));
        for full in [libc::EAGAIN, libc::ENOBUFS] {
            assert_eq!(send_to(|_, _| Err(full)), (0, true, 1));
            // The first run fits.
            let one = |runs, _| if runs == 3 { Ok(1) } else { Err(full) };
            assert_eq!(send_to(one), (40, true, 2));
        }
    }

    #[test]
    fn without_gso_datagrams_are_sent_one_by_one() {
        for error in [libc::EIO, libc::EINVAL] {
            let uncut = |_, datagrams: usize| if datagrams > 1 { Err(error) } else { Ok(1) };
            assert_eq!(send_to(uncut), (71, false, 1 + 71));
            // Ten datagrams fit.
            let mut room = 10;
            let few = |_, datagrams| {
                if datagrams > 1 {
                    return Err(error);
                }
                room -= 1;
                if room >= 0 { Ok(1) } else { Err(libc::EAGAIN) }
            };
            assert_eq!(send_to(few), (10, false, 1 + 11));
        }
        // Only the run that is too long is refused.
        let long = |_, datagrams| if datagrams == 40 { Err(libc::EMSGSIZE) } else { Ok(1) };
        assert_eq!(send_to(long), (31, true, 3));
    }

    #[test]
    fn a_run_that_is_too_long_for_the_device_says_nothing_of_gso() {
        let batch = batch(&[vec![1400; 40], vec![900], vec![1000; 30]].concat());
        // With GSO the error for datagrams that are too long is EINVAL, as for GSO itself.
        let too_long = |runs: &[(&[u8], usize)]| match runs[0] {
            (bytes, 1400) if bytes.len() > 1400 => Err(libc::EINVAL),
            (bytes, 1400) if bytes.len() == 1400 => Err(libc::EMSGSIZE),
            _ => Ok(runs.len()),
        };
        assert_eq!(send_runs(batch.runs(), true, too_long), (31, Some(GsoResult::Works)));
        // Nor does a buffer that is full.
        let full = |runs: &[(&[u8], usize)]| {
            Err(if datagram_count(runs[0]) > 1 { libc::EINVAL } else { libc::EAGAIN })
        };
        assert_eq!(send_runs(batch.runs(), true, full), (0, None));
    }

    #[test]
    fn gso_is_tried_again_and_its_failure_is_reported_once() {
        let start = Instant::now();
        let mut gso = GsoSupport::default();
        let fails = Some(GsoResult::Fails(libc::EIO));
        assert!(gso.is_due(|| start));
        assert_eq!(gso.handle_result(fails, || start), Some(libc::EIO));
        let mut now = start;
        for _ in 0..3 {
            assert!(!gso.is_due(|| now + GSO_RETRY_INTERVAL / 2));
            now += GSO_RETRY_INTERVAL;
            assert!(gso.is_due(|| now));
            // A batch without runs shows nothing.
            assert_eq!(gso.handle_result(None, || now), None);
            assert!(gso.is_due(|| now));
            assert_eq!(gso.handle_result(fails, || now), None, "it was reported");
        }
        assert_eq!(gso.handle_result(Some(GsoResult::Works), || now), None);
        assert!(gso.is_due(|| now));
        assert_eq!(gso.handle_result(fails, || now), Some(libc::EIO));
    }

    #[test]
    fn the_send_buffer_has_the_configured_size() {
        let (from, ..) = pair();
        let kept = SockRef::from(&*from.inner).send_buffer_size().unwrap();
        assert!(kept <= 2 * SEND_BUFFER_LEN, "{kept}");
    }

    #[test]
    fn send_one_reports_only_length_errors() {
        let (from, to, address) = pair();
        assert!(from.send_one(&[1; 1200], address));
        assert!(!from.send_one(&vec![1; 65_508], address));
        let nowhere = SocketAddr::new(address.ip(), 0);
        assert!(from.send_one(&[1; 1200], nowhere), "that is no matter of lengths");
        assert_eq!(receive_all(&to, 1).len(), 1);
    }
}
