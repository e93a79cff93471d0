//! A TUN device: the kernel's packets as bytes, superpackets whole.

// The kernel is asked for a device by structures that no safe interface knows.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use bytes::{Bytes, BytesMut};
use rustix::io::{Errno, writev};

use crate::link::frame::{Frame, LONGEST};

/// How much memory is asked for at a time: that of 16 superpackets.
const SLAB: usize = 1 << 20;

/// How many slabs packets may keep. One that is long on its way keeps all of its slab; when there are
/// so many of these, packets are copied.
const MOST_SLABS: usize = 1024;

/// What the device may leave to whoever reads: checksums and cutting (`linux/if_tun.h`).
const OFFLOADS: libc::c_uint =
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
const UDP_OFFLOADS: libc::c_uint = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// A TUN device with virtio headers and offloads. It is there until this is dropped.
#[derive(Debug)]
pub(crate) struct Tun {
    file: File,
    /// Memory for the next packets.
    slab: BytesMut,
    /// Slabs whose packets may still be on their way, the oldest first. Taking them again saves the
    /// kernel from clearing new pages, a sixth of a fast link's time.
    spent: VecDeque<BytesMut>,
}

impl Tun {
    /// Makes a device in the network namespace of the thread.
    ///
    /// # Errors
    /// When `/dev/net/tun` cannot be opened, or the device not be made.
    pub(crate) fn new(name: &str) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")?;
        // SAFETY: all-zero bytes are a valid `ifreq`.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        if name.len() >= request.ifr_name.len() {
            return Err(io::Error::other("the name of a device has 15 bytes at most"));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_TUN_EXCL;
        #[expect(clippy::cast_possible_truncation, reason = "they are 16 bits, sign or not")]
        let flags = flags as libc::c_short;
        request.ifr_ifru.ifru_flags = flags;
        // SAFETY: TUNSETIFF reads and writes one `ifreq`, which outlives the call.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
        let set = |offloads: libc::c_uint| {
            // SAFETY: TUNSETOFFLOAD takes its argument by value.
            check(unsafe {
                libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(offloads))
            })
        };
        // Kernels before 6.2 cannot leave UDP uncut.
        set(OFFLOADS | UDP_OFFLOADS).or_else(|_| set(OFFLOADS))?;
        Ok(Self { file, slab: BytesMut::new(), spent: VecDeque::new() })
    }

    /// The next packet that the kernel sends through the device, if there is one now.
    ///
    /// # Errors
    /// When the device fails.
    pub(crate) fn read(&mut self) -> io::Result<Option<Frame>> {
        if self.slab.len() < LONGEST {
            self.take_slab();
        }
        match rustix::io::read(&self.file, &mut self.slab[..LONGEST]) {
            Ok(length) if self.spent.len() < MOST_SLABS => {
                Ok(Frame::parse(self.slab.split_to(length).freeze()))
            }
            Ok(length) => {
                let frame = Frame::parse(Bytes::copy_from_slice(&self.slab[..length]));
                self.forget_slabs();
                Ok(frame)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Forgets slabs that no packet needs any more, the oldest first. Returns the last of them.
    fn forget_slabs(&mut self) -> Option<BytesMut> {
        let mut slab = None;
        while self.spent.front_mut().is_some_and(|spent| spent.try_reclaim(SLAB)) {
            slab = self.spent.pop_front();
        }
        slab
    }

    /// Takes a slab that no packet needs any more, or a new one.
    fn take_slab(&mut self) {
        let mut slab = self.forget_slabs().unwrap_or_else(|| BytesMut::with_capacity(SLAB));
        slab.resize(SLAB, 0);
        let mut spent = mem::replace(&mut self.slab, slab);
        if spent.capacity() > 0 {
            spent.clear();
            self.spent.push_back(spent);
        }
    }

    /// Hands a packet to the kernel, as if it had come over a wire. Returns whether it took it.
    pub(crate) fn write(&self, frame: &Frame) -> bool {
        loop {
            match writev(&self.file, &frame.slices()) {
                Ok(_) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
