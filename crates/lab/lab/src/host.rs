//! Hosts: network namespaces with their own interfaces, addresses and sockets.

// The system call `unshare` is unsafe.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::thread;

use ipnet::{IpNet, Ipv4Net};
use rustix::mount::{MountFlags, MountPropagationFlags, mount_change, mount_remount};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use tun::interface::{GivenAddress, InterfaceSettings, add_route, bring_up_loopback};
use tun::open_tap;

/// A host: a network namespace. It exists as long as this value or a process in it.
#[derive(Debug)]
pub struct EmulatedHost {
    name: String,
    namespace: OwnedFd,
    has_ipv6: bool,
}

/// The number of packets that the kernel queues until a link reads them.
pub(crate) const DEVICE_QUEUE: u32 = 10_000;

impl EmulatedHost {
    /// Creates a host with only its loopback interface.
    ///
    /// # Errors
    /// If the kernel refuses a network namespace to this process.
    pub fn new(name: &str) -> io::Result<Self> {
        let thread = thread::Builder::new().spawn(namespace)?;
        let namespace = thread.join().unwrap_or_else(panicked)?;
        let host = Self { name: name.to_owned(), namespace, has_ipv6: false };
        // An interface with IPv6 would send packets of its own.
        match host.disable_ipv6("1") {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        host.run(bring_up_loopback)?.map_err(io::Error::other)?;
        Ok(host)
    }

    /// Enables IPv6. Links that are added from now on have an address `fd00::a.b.c.d` for each
    /// `a.b.c.d`.
    ///
    /// # Errors
    /// If the kernel has no IPv6.
    pub fn enable_ipv6(&mut self) -> io::Result<()> {
        // Without an automatic link-local address, an interface sends nothing of its own.
        self.set("net/ipv6/conf/default/addr_gen_mode", "1")?;
        self.disable_ipv6("0")?;
        self.has_ipv6 = true;
        Ok(())
    }

    fn disable_ipv6(&self, value: &str) -> io::Result<()> {
        ["all", "default"]
            .iter()
            .try_for_each(|which| self.set(&format!("net/ipv6/conf/{which}/disable_ipv6"), value))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its network namespace.
    pub(crate) fn namespace(&self) -> io::Result<OwnedFd> {
        self.namespace.try_clone()
    }

    /// Runs `work` on a thread in this host. Sockets that it opens and processes that it starts
    /// belong to this host permanently.
    ///
    /// # Errors
    /// If the thread cannot be started or cannot enter the namespace.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        thread::scope(|scope| {
            let entered = move || {
                let network = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(self.namespace.as_fd(), network)?;
                Ok(work())
            };
            let thread =
                thread::Builder::new().name(self.name.clone()).spawn_scoped(scope, entered)?;
            thread.join().unwrap_or_else(panicked)
        })
    }

    /// Sets a system parameter of this host; `path` is relative to `/proc/sys`.
    ///
    /// # Errors
    /// If there is no such parameter, or it cannot be set in a namespace.
    pub fn set(&self, path: &str, value: &str) -> io::Result<()> {
        let path = Path::new("/proc/sys").join(path);
        self.run(|| match fs::write(&path, value) {
            // At a site, the machine's parameters are protected, and the host's with them.
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                unprotect_parameters()?;
                fs::write(&path, value)
            }
            written => written,
        })?
    }

    /// Gives an interface an address in a /24 and an MTU, and brings it up. `congestion` is the
    /// congestion control of TCP connections through it; `None` is the system's.
    pub(crate) fn set_up(
        &self,
        name: &str,
        address: Ipv4Addr,
        mtu: u32,
        congestion: Option<&str>,
    ) -> io::Result<()> {
        let mut addresses = vec![IpNet::new_assert(address.into(), 24)];
        if self.has_ipv6 {
            addresses.push(IpNet::new_assert(corresponding_ipv6(address).into(), 120));
        }
        let (queue, routes) = (DEVICE_QUEUE, &[]);
        let interface =
            InterfaceSettings { name, mtu, queue, addresses: &addresses, routes, congestion };
        let made = self.run(|| interface.set_up())?;
        made.map_err(|error| {
            congestion.and_then(no_congestion_control).unwrap_or_else(|| io::Error::other(error))
        })
    }

    /// Gives an address of an interface to a guest: packets for it go to a TAP device, which is
    /// returned, and those of the guest to where those of this host went.
    pub(crate) fn give_to_guest(&self, given: &GivenAddress<'_>) -> io::Result<OwnedFd> {
        for (path, value) in [
            ("net/ipv4/ip_forward", "1"),
            ("net/ipv4/conf/all/rp_filter", "0"),
            ("net/ipv4/conf/default/rp_filter", "0"),
        ] {
            self.set(path, value)?;
        }
        self.set(&format!("net/ipv4/conf/{}/rp_filter", given.from), "0")?;
        self.run(|| {
            let device = open_tap(given.tap)?;
            given.give().map_err(io::Error::other)?;
            Ok(device)
        })?
    }

    /// How many packets for certain interfaces the kernel has dropped before they were read.
    pub(crate) fn dropped_packets(&self, is_counted: impl Fn(&str) -> bool) -> io::Result<u64> {
        let devices = self.run(|| fs::read_to_string("/proc/thread-self/net/dev"))??;
        let links = devices.lines().filter_map(|line| line.split_once(':'));
        let links = links.filter(|(name, _)| is_counted(name.trim()));
        // Eight columns of received counters; of the sent ones, the fourth counts drops.
        let sent = links.filter_map(|(_, numbers)| numbers.split_whitespace().nth(11));
        Ok(sent.filter_map(|number| number.parse::<u64>().ok()).sum())
    }

    /// Sends packets to a network through an interface.
    pub(crate) fn route_through(&self, interface: &str, network: Ipv4Net) -> io::Result<()> {
        self.run(|| add_route(interface, network.into()))?.map_err(io::Error::other)
    }
}

/// The IPv6 address that corresponds to an IPv4 address.
fn corresponding_ipv6(address: Ipv4Addr) -> Ipv6Addr {
    Ipv6Addr::from(0xfd00 << 112 | u128::from(address.to_bits()))
}

/// The kernel's list of congestion controls.
const CONGESTION: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// The error if there is no such congestion control; the kernel's own error does not say so. The
/// list is read only after the kernel refused, because the kernel may load a module on demand.
fn no_congestion_control(name: &str) -> Option<io::Error> {
    let known = fs::read_to_string(CONGESTION).ok()?;
    if known.split_whitespace().any(|known| known == name) {
        return None;
    }
    let known = known.trim();
    let error = format!("there is no congestion control {name}; {CONGESTION} has {known}");
    Some(io::Error::new(io::ErrorKind::NotFound, error))
}

/// Makes system parameters writable for this thread, which only writes those of its own network
/// afterwards.
fn unprotect_parameters() -> io::Result<()> {
    // SAFETY: no descriptor and no memory becomes private to this thread. Its mounts and its
    // working directory do, and it ends soon.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::BIND;
    Ok(mount_remount("/proc/sys", flags, c"")?)
}

/// Moves the thread to a new network namespace and returns it.
fn namespace() -> io::Result<OwnedFd> {
    // SAFETY: no code of this program depends on the network namespace, and no descriptor and no
    // memory becomes private to this thread.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
    Ok(File::open("/proc/thread-self/ns/net")?.into())
}

/// Continues the panic of another thread in this one.
fn panicked<T>(panic: Box<dyn std::any::Any + Send>) -> T {
    std::panic::resume_unwind(panic)
}
