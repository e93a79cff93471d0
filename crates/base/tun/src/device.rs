//! The TUN device: reads and writes packets and superpackets as bytes.

// The structures of TUN's ioctls have no safe interface.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::io::{read, retry_on_intr, writev};

/// What the kernel may leave to the reader: checksums and segmentation (`linux/if_tun.h`).
const OFFLOADS: libc::c_uint =
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
const UDP_OFFLOADS: libc::c_uint = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// A TUN device with virtio headers and offloads. It never blocks, and it exists until this is
/// dropped.
#[derive(Debug)]
pub struct TunDevice {
    file: File,
    name: String,
    supports_uso: bool,
}

impl TunDevice {
    /// Creates a device in the network namespace of the thread. `%d` in the name stands for the
    /// first free number.
    ///
    /// # Errors
    /// If the name is longer than 15 bytes or in use, if `/dev/net/tun` cannot be opened, or if the
    /// kernel refuses the device.
    pub fn new(name: &str) -> io::Result<Self> {
        let (file, request) = create(name, libc::IFF_TUN)?;
        let set = |offloads: libc::c_uint| {
            // SAFETY: TUNSETOFFLOAD takes its argument by value.
            check(unsafe {
                libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(offloads))
            })
        };
        // Kernels before 6.2 have no UDP segmentation offload.
        let supports_uso = set(OFFLOADS | UDP_OFFLOADS).is_ok();
        if !supports_uso {
            set(OFFLOADS)?;
        }
        Ok(Self { file, name: name_in(&request), supports_uso })
    }

    /// The name that the kernel assigned.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether superpackets of UDP can be read and written (UDP segmentation offload, Linux 6.2).
    pub fn supports_uso(&self) -> bool {
        self.supports_uso
    }

    /// Reads the next frame that the kernel sends through the device, virtio header first, and
    /// returns its length. The buffer has at least [`MAX_FRAME_LEN`](crate::MAX_FRAME_LEN) bytes.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if no frame is waiting; other errors if the device
    /// fails.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(retry_on_intr(|| read(&self.file, &mut *buffer))?)
    }

    /// Passes a frame to the kernel as if it had arrived on a wire. The slices together are the
    /// frame, virtio header first.
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if the kernel refuses this frame. Some kernels
    /// refuse all superpackets of UDP; their segments can be written one by one
    /// ([`Superpacket::segments`](crate::Superpacket::segments)). Other errors if the device is
    /// down or fails.
    pub fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<()> {
        // The kernel takes the whole frame or none of it.
        retry_on_intr(|| writev(&self.file, slices))?;
        Ok(())
    }
}

impl AsFd for TunDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Creates a TAP device with virtio headers in the network namespace of the thread: an Ethernet
/// interface whose other end is the returned file. It exists until the file is closed.
///
/// # Errors
/// If the name is longer than 15 bytes or in use, if `/dev/net/tun` cannot be opened, or if the
/// kernel refuses the device.
pub fn open_tap(name: &str) -> io::Result<OwnedFd> {
    Ok(create(name, libc::IFF_TAP)?.0.into())
}

/// Creates a device of a kind, and returns its file and the kernel's answer.
fn create(name: &str, kind: libc::c_int) -> io::Result<(File, libc::ifreq)> {
    let mut request = request(name, kind)?;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")?;
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which outlives the call.
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
    Ok((file, request))
}

/// The request for a device of this name, which must not exist yet.
fn request(name: &str, kind: libc::c_int) -> io::Result<libc::ifreq> {
    // SAFETY: all-zero bytes are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    if name.len() >= request.ifr_name.len() || name.contains('\0') {
        let what = "the name of a device has 15 bytes at most, and no zero";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    let flags = kind | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_TUN_EXCL;
    #[expect(clippy::cast_possible_truncation, reason = "the field has the same 16 bits, signed")]
    let flags = flags as libc::c_short;
    request.ifr_ifru.ifru_flags = flags;
    Ok(request)
}

/// The name in a request, up to the first zero byte.
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
    fn the_request_has_the_name() {
        assert_eq!(name_in(&request("tun%d", libc::IFF_TUN).unwrap()), "tun%d");
        assert_eq!(name_in(&request("fifteen-bytes-x", libc::IFF_TUN).unwrap()), "fifteen-bytes-x");
        for name in ["sixteen-bytes-xy", "a\0b"] {
            assert_eq!(
                request(name, libc::IFF_TUN).unwrap_err().kind(),
                io::ErrorKind::InvalidInput
            );
        }
    }
}
