//! Hosts: network namespaces, each with interfaces, addresses and sockets of its own.

// One system call, `unshare`, which Rust cannot check.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::thread;

use ipnet::IpNet;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use tun::interface::{Interface, bring_up_loopback};

/// A host: a network namespace, which lasts as long as this, and as what runs in it.
#[derive(Debug)]
pub struct Host {
    name: String,
    namespace: OwnedFd,
    has_ipv6: bool,
}

/// How many packets the kernel keeps for a link that has not fetched them yet.
const DEVICE_QUEUE: u32 = 10_000;

impl Host {
    /// Makes a host with nothing but its loopback interface.
    ///
    /// # Errors
    /// When the kernel does not let this process make a network namespace.
    pub fn new(name: &str) -> io::Result<Self> {
        let thread = thread::Builder::new().spawn(namespace)?;
        let namespace = thread.join().unwrap_or_else(panicked)?;
        let host = Self { name: name.to_owned(), namespace, has_ipv6: false };
        // No packets but those of the experiment: an interface with IPv6 sends some by itself.
        match host.disable_ipv6("1") {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        host.run(bring_up_loopback)??;
        Ok(host)
    }

    /// Gives it IPv6. From now on its links have for each address `a.b.c.d` also `fd00::a.b.c.d`.
    ///
    /// # Errors
    /// When the kernel has no IPv6.
    pub fn enable_ipv6(&mut self) -> io::Result<()> {
        // Without an address that the kernel makes up, an interface sends nothing by itself.
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

    /// Runs `work` on a thread of this host: sockets that it opens and processes that it starts are
    /// this host's, and stay so.
    ///
    /// # Errors
    /// When no thread can be started, or it cannot move into the namespace.
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

    /// Sets a system parameter of this host; `path` is below `/proc/sys`.
    ///
    /// # Errors
    /// When there is no such parameter, or it cannot be set in a namespace.
    pub fn set(&self, path: &str, value: &str) -> io::Result<()> {
        self.run(|| fs::write(Path::new("/proc/sys").join(path), value))?
    }

    /// Gives one of its interfaces its address in a /24 and its MTU, and brings it up. `congestion`
    /// is the congestion control of TCP connections through it, if not the system's.
    pub(crate) fn set_up(
        &self,
        name: &str,
        address: Ipv4Addr,
        mtu: u32,
        congestion: Option<&str>,
    ) -> io::Result<()> {
        let mut addresses = vec![IpNet::new_assert(address.into(), 24)];
        if self.has_ipv6 {
            addresses.push(IpNet::new_assert(in_ipv6(address).into(), 120));
        }
        let (queue, routes) = (DEVICE_QUEUE, &[]);
        let interface = Interface { name, mtu, queue, addresses: &addresses, routes, congestion };
        let made = self.run(|| interface.set_up())?;
        made.map_err(|error| congestion.and_then(no_congestion_control).unwrap_or(error))
    }
}

/// The IPv6 address that goes with an IPv4 address.
fn in_ipv6(address: Ipv4Addr) -> Ipv6Addr {
    Ipv6Addr::from(0xfd00 << 112 | u128::from(address.to_bits()))
}

/// The congestion controls that there are.
const CONGESTION: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// Says that there is no such congestion control, if there is none. The kernel says so in no way
/// that can be understood. It is asked for it first, as it may find one that is not in the list
/// yet.
fn no_congestion_control(name: &str) -> Option<io::Error> {
    let known = fs::read_to_string(CONGESTION).ok()?;
    if known.split_whitespace().any(|known| known == name) {
        return None;
    }
    let known = known.trim();
    let error = format!("there is no congestion control {name}; {CONGESTION} has {known}");
    Some(io::Error::new(io::ErrorKind::NotFound, error))
}

/// Makes the thread's network namespace a new one, and returns it.
fn namespace() -> io::Result<OwnedFd> {
    // SAFETY: of a new network namespace no code of this program makes assumptions; no descriptor
    // and no memory becomes private to this thread.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
    Ok(File::open("/proc/thread-self/ns/net")?.into())
}

/// Goes on with a panic of a thread in the one that waits for it.
fn panicked<T>(panic: Box<dyn std::any::Any + Send>) -> T {
    std::panic::resume_unwind(panic)
}
