//! Whether this host can listen on addresses, and whether other hosts can reach them.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, UdpSocket};

use super::finding::{CheckFinding, FindingSeverity};

/// Whether this process can listen for connections on an address. `in_use` makes the finding for an
/// address that is in use.
pub(crate) fn tcp(
    subject: &str,
    address: SocketAddr,
    in_use: impl FnOnce() -> CheckFinding,
) -> CheckFinding {
    listened(subject, address, TcpListener::bind(address).map(drop), in_use)
}

/// The same for datagrams.
pub(crate) fn udp(
    subject: &str,
    address: SocketAddr,
    in_use: impl FnOnce() -> CheckFinding,
) -> CheckFinding {
    listened(subject, address, UdpSocket::bind(address).map(drop), in_use)
}

/// Where the daemon that is examined listens, as its status says. Empty if that is unknown: it does
/// not run, its status cannot be read, or it has an earlier version, which does not say.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnListeners(pub(crate) Vec<SocketAddr>);

impl OwnListeners {
    /// The finding that an address is in use: by this daemon, by another program, or, if it is
    /// unknown where this daemon listens, perhaps by this daemon.
    pub(crate) fn address_in_use(
        &self,
        subject: &str,
        address: SocketAddr,
        whose: &str,
    ) -> CheckFinding {
        let see = format!("see which program uses it: ss -lntup 'sport = :{}'", address.port());
        if self.0.is_empty() {
            let what = format!("{address} is in use: by this {whose}, if it is running");
            let fix = format!("if it is not running, {see}");
            return CheckFinding::new(FindingSeverity::Warning, subject, what, fix);
        }
        if self.has(address) {
            let what = format!("{address} is in use by this {whose}, which is running");
            return CheckFinding::ok(subject, what);
        }
        let what = format!(
            "{address} is in use by another program: this {whose} is running, and does not listen \
             there"
        );
        CheckFinding::new(FindingSeverity::Error, subject, what, see)
    }

    /// Whether a listener uses an address, perhaps because it has the port on all addresses.
    fn has(&self, address: SocketAddr) -> bool {
        self.0.iter().any(|own| {
            let [own_ip, ip] = [own.ip(), address.ip()].map(|ip| ip.to_canonical());
            own.port() == address.port()
                && (own_ip == ip || own_ip.is_unspecified() || ip.is_unspecified())
        })
    }
}

fn listened(
    subject: &str,
    address: SocketAddr,
    bound: io::Result<()>,
    in_use: impl FnOnce() -> CheckFinding,
) -> CheckFinding {
    let Err(error) = bound else {
        return CheckFinding::ok(subject, format!("this process can listen on {address}"));
    };
    let (what, fix) = match error.kind() {
        ErrorKind::AddrInUse => return in_use(),
        ErrorKind::AddrNotAvailable => (
            format!("this host does not have the address {}", address.ip()),
            "`ip address` lists the addresses of this host",
        ),
        ErrorKind::PermissionDenied => (
            format!("this process may not listen on port {}", address.port()),
            "choose a port from 1024 up, or run it as root or with its systemd unit",
        ),
        _ => (format!("cannot listen on {address}: {error}"), "choose another address"),
    };
    CheckFinding::new(FindingSeverity::Error, subject, what, fix)
}

/// A warning about listeners that only their address protects; `None` if all are on loopback.
/// `what` is the service that they give access to.
pub(crate) fn open_to_all(
    what: &str,
    addresses: impl IntoIterator<Item = SocketAddr>,
) -> Option<String> {
    let open = addresses.into_iter().filter(|address| !address.ip().to_canonical().is_loopback());
    let open: Vec<String> = open.map(|address| address.to_string()).collect();
    (!open.is_empty()).then(|| {
        let open = open.join(", ");
        format!(
            "anyone who can reach {open} can use {what}: listen on 127.0.0.1, or restrict access \
             with a firewall"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listen_failure_names_its_cause() {
        let never = || -> CheckFinding { panic!("not in use") };
        let free = "127.0.0.1:0".parse().unwrap();
        assert_eq!(tcp("socks", free, never).level, FindingSeverity::Ok);
        assert_eq!(udp("channel 1", free, never).level, FindingSeverity::Ok);
        let foreign = tcp("listen 1", "192.0.2.77:80".parse().unwrap(), never);
        assert_eq!(foreign.message, "this host does not have the address 192.0.2.77");
        let denied = listened("x", free, Err(ErrorKind::PermissionDenied.into()), never);
        assert!(
            denied.level == FindingSeverity::Error && denied.message.contains("may not"),
            "{denied:?}"
        );

        let taken = TcpListener::bind(free).unwrap();
        let address = taken.local_addr().unwrap();
        let unknown = OwnListeners::default();
        let in_use = tcp("socks", address, || unknown.address_in_use("socks", address, "proxy"));
        assert_eq!(in_use.level, FindingSeverity::Warning);
        assert!(in_use.message.ends_with("in use: by this proxy, if it is running"), "{in_use:?}");
    }

    #[test]
    fn an_address_in_use_is_an_error_only_if_a_running_daemon_does_not_listen_there() {
        let level = |own: &[&str], address: &str| {
            let own = own.iter().map(|address| address.parse().unwrap()).collect();
            let own = OwnListeners(own);
            own.address_in_use("listen 1", address.parse().unwrap(), "proxy").level
        };
        let own = ["127.0.0.1:1080", "[::]:522"];
        for address in ["127.0.0.1:1080", "[::ffff:127.0.0.1]:1080", "0.0.0.0:1080", "[::1]:522"] {
            assert_eq!(level(&own, address), FindingSeverity::Ok, "{address}");
        }
        for address in ["127.0.0.1:1081", "127.0.0.2:1080", "[::1]:1080"] {
            assert_eq!(level(&own, address), FindingSeverity::Error, "{address}");
        }
        assert_eq!(level(&[], "127.0.0.1:1080"), FindingSeverity::Warning);
    }

    #[test]
    fn listeners_on_loopback_are_left_out() {
        let open = |addresses: &[&str]| {
            let addresses = addresses.iter().map(|address| address.parse().unwrap());
            open_to_all("SOCKS5", addresses.collect::<Vec<SocketAddr>>())
        };
        let local = ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"];
        assert_eq!(open(&local), None);
        for address in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1"] {
            let message = open(&[local[0], address]).unwrap();
            assert!(
                message.starts_with(&format!("anyone who can reach {address} can use SOCKS5")),
                "{message}"
            );
        }
    }
}
