//! The device itself: the kernel's packets as bytes, superpackets whole.

// The kernel is asked for a device by structures that no safe interface knows.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::io::{read, retry_on_intr, writev};

/// What the device may leave to whoever reads: checksums and cutting (`linux/if_tun.h`).
const OFFLOADS: libc::c_uint =
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
const UDP_OFFLOADS: libc::c_uint = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// A TUN device with virtio headers and offloads, which never blocks. It is there until this is
/// dropped.
#[derive(Debug)]
pub struct Device {
    file: File,
    name: String,
    cuts_udp: bool,
}

impl Device {
    /// Makes a device in the network namespace of the thread. A `%d` in the name becomes the first
    /// number that is free.
    ///
    /// # Errors
    /// When the name is longer than 15 bytes or in use, `/dev/net/tun` cannot be opened, or the
    /// device not be made.
    pub fn new(name: &str) -> io::Result<Self> {
        let mut request = request(name)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")?;
        // SAFETY: TUNSETIFF reads and writes one `ifreq`, which outlives the call.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
        let set = |offloads: libc::c_uint| {
            // SAFETY: TUNSETOFFLOAD takes its argument by value.
            check(unsafe {
                libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(offloads))
            })
        };
        // Kernels before 6.2 cannot leave UDP uncut.
        let cuts_udp = set(OFFLOADS | UDP_OFFLOADS).is_ok();
        if !cuts_udp {
            set(OFFLOADS)?;
        }
        Ok(Self { file, name: name_in(&request), cuts_udp })
    }

    /// The name that the kernel gave it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether its superpackets may be UDP, read and written (from Linux 6.2 on).
    pub fn cuts_udp(&self) -> bool {
        self.cuts_udp
    }

    /// Reads the next frame that the kernel sends through the device into a buffer of
    /// [`LONGEST`](crate::LONGEST) bytes at least, virtio header first. Returns its length.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is none now; others when the device
    /// fails.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(retry_on_intr(|| read(&self.file, &mut *buffer))?)
    }

    /// Hands a frame to the kernel, as if it had come over a wire: its bytes gathered from slices,
    /// virtio header first.
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if the kernel refuses this frame. Some kernels
    /// refuse all superpackets of UDP; their segments can be written one by one
    /// ([`Superpacket::segments`](crate::Superpacket::segments)). Others when the device is down
    /// or fails.
    pub fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<()> {
        // A frame is taken as a whole, or not at all.
        retry_on_intr(|| writev(&self.file, slices))?;
        Ok(())
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// What the kernel is asked for: a device of this name, which must not exist.
fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all-zero bytes are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    if name.len() >= request.ifr_name.len() || name.contains('\0') {
        let what = "the name of a device has 15 bytes at most, and no zero";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_TUN_EXCL;
    #[expect(clippy::cast_possible_truncation, reason = "they are 16 bits, sign or not")]
    let flags = flags as libc::c_short;
    request.ifr_ifru.ifru_flags = flags;
    Ok(request)
}

/// The name in such a request, up to its first zero.
fn name_in(request: &libc::ifreq) -> String {
    let bytes = request.ifr_name.map(|byte| byte.to_ne_bytes()[0]);
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_asked_for_as_it_is() {
        assert_eq!(name_in(&request("tun%d").unwrap()), "tun%d");
        assert_eq!(name_in(&request("fifteen-bytes-x").unwrap()), "fifteen-bytes-x");
        for name in ["sixteen-bytes-xy", "a\0b"] {
            assert_eq!(request(name).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}
