//! Socket options and addresses in the kernel's formats.

// For structures of system calls, which have no safe interface.
#![allow(unsafe_code)]

use std::mem::{self, MaybeUninit};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsRawFd;
use std::{io, ptr};

/// The size of the buffer for one control message with a number and one with a time, in `u64`s,
/// which align it.
pub(crate) const CONTROL_LEN: usize = 8;

/// Sets an option whose value is one `int`.
pub(crate) fn set_option(
    socket: &impl AsRawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the option's value is one `int`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            socklen_of::<libc::c_int>(),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub(crate) fn socklen_of<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).expect("a small structure")
}

/// An address in the kernel's format, and its length.
pub(crate) fn raw_address(address: SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    let address = socket2::SockAddr::from(address);
    // SAFETY: all-zero bytes are a valid `sockaddr_storage`.
    let mut storage: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let length = address.len();
    // SAFETY: the address has `length` bytes, and no address is longer than the storage.
    unsafe {
        let bytes = address.as_ptr().cast::<MaybeUninit<u8>>();
        let to = (&raw mut storage).cast::<MaybeUninit<u8>>();
        ptr::copy_nonoverlapping(bytes, to, usize::try_from(length).expect("a short length"));
    }
    (storage, length)
}

/// An address from the kernel's format.
pub(crate) fn address_of(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match libc::c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that it is this, and the storage is as large and aligned.
            let v4 = unsafe { &*ptr::from_ref(storage).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { &*ptr::from_ref(storage).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_again() {
        for address in ["192.0.2.1:7000", "[2001:db8::1]:7000", "[fe80::1%3]:9"] {
            let address: SocketAddr = address.parse().unwrap();
            assert_eq!(address_of(&raw_address(address).0), Some(address));
        }
    }
}
