//! A tunnel whose client knows the server of a channel by a name.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lab::{EmulatedHost, sandbox};
use tempfile::TempDir;

use crate::pair::{PORT, Pair, SERVER, THREE_LINKS, network, over, until};
use crate::stream::{Stream, StreamRate};

const NAME: &str = "third.test";

/// All tests share the sandbox.
static HOSTS_FILE: Mutex<()> = Mutex::new(());

/// `/etc/hosts` of this sandbox, while it exists.
struct HostsFile {
    _place: TempDir,
    file: PathBuf,
    _only: MutexGuard<'static, ()>,
}

impl HostsFile {
    fn new() -> Self {
        let only = HOSTS_FILE.lock().unwrap_or_else(PoisonError::into_inner);
        let place = tempfile::tempdir_in(sandbox::SCRATCH).unwrap();
        let file = place.path().join("hosts");
        fs::write(&file, "").unwrap();
        run(Command::new("mount").arg("--bind").arg(&file).arg("/etc/hosts"));
        Self { _place: place, file, _only: only }
    }

    /// The name has this address from now on.
    fn set(&self, address: IpAddr) {
        fs::write(&self.file, format!("{address} {NAME}\n")).unwrap();
    }
}

impl Drop for HostsFile {
    fn drop(&mut self) {
        run(Command::new("umount").arg("/etc/hosts"));
    }
}

fn run(command: &mut Command) {
    assert!(command.status().unwrap().success(), "{command:?}");
}

fn ip(host: &EmulatedHost, arguments: &[&str]) {
    host.run(|| run(Command::new("ip").args(arguments))).unwrap();
}

pub(crate) fn a_server_that_moves_is_found_by_its_name() {
    let hosts = HostsFile::new();
    let network = network(THREE_LINKS);
    let mut channels = over(&network, &["a", "b", "c"]);
    let first = channels[2].server.ip();
    channels[2].listen = SocketAddr::new([0, 0, 0, 0].into(), PORT + 2);
    let settings = "kappa = 2\nmu = 3\nmin_channels = 2";
    let mut pair = Pair::prepare(network, [settings, settings], &channels);
    pair.rename_server("client", channels[2].server, &format!("{NAME}:{}", PORT + 2));
    pair.start_end("server");
    // The name has no address yet: the tunnel starts without the channel, and says why.
    pair.start_end("client");
    until("the ends are associated", || pair.status("client").associated);
    until("the client reports the name", || {
        pair.log("client").contains("the name third.test cannot be looked up")
    });
    hosts.set(first);
    pair.wait_for_states("client", 2, ["up", "up"]);
    let stream = Stream::start(pair.host("client"), pair.host("server"), SERVER, StreamRate::LIGHT);
    stream.wait_for(300);
    let associations = || pair.log("client").matches("associated over 3 channels").count();
    assert_eq!(associations(), 1);

    // The server moves, and the association stays.
    let server = pair.host("server");
    let [a, b, c, d] = match first {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(_) => unreachable!("the links have addresses of IPv4"),
    };
    let client = pair.network().address("client", "c").unwrap();
    let free = (1..7).map(|next| [a, b, c, (d & 0xF8) | next]);
    let second = free.map(std::net::Ipv4Addr::from).find(|it| *it != client && *it != first);
    let second = second.unwrap();
    let route = |host: &EmulatedHost, to: IpAddr, from: &str| {
        let (to, device) = (format!("{to}/32"), "c");
        ip(host, &["route", "replace", &to, "dev", device, "src", from]);
    };
    ip(server, &["address", "add", &format!("{second}/32"), "dev", "c"]);
    route(server, client.into(), &second.to_string());
    route(pair.host("client"), second.into(), &client.to_string());
    ip(server, &["address", "del", &address_of(server, first), "dev", "c"]);
    hosts.set(second.into());
    pair.wait_for_line(
        "client",
        "INFO",
        &format!("channel 3: the peer is at {second}:{} now", PORT + 2),
    );
    pair.wait_for_states("client", 2, ["up", "up"]);
    pair.wait_for_states("server", 2, ["up", "up"]);
    assert_eq!(associations(), 1);
    stream.wait_for(100);
    assert_eq!(stream.wrong(), 0);
    drop(stream);
    pair.remove();
}

/// `sunder plan --probe` measures all channels to a server that runs, also one whose server has a
/// name, and says that a name has no address.
pub(crate) fn a_probe_measures_a_server_with_a_name() {
    let hosts = HostsFile::new();
    let network = network(THREE_LINKS);
    let channels = over(&network, &["a", "b", "c"]);
    let third = channels[2].server;
    let settings = "kappa = 2\nmu = 3";
    let mut pair = Pair::prepare(network, [settings, settings], &channels);
    pair.rename_server("client", third, &format!("{NAME}:{PORT}"));
    pair.start_end("server");
    let probe = ["plan", "--channels", "tunnel.toml", "--probe"];
    let unknown = pair.ask_with_errors("client", &probe);
    assert!(unknown.contains("channel 3: the name third.test cannot be looked up"), "{unknown}");

    hosts.set(third.ip());
    let text = pair.ask("client", &probe);
    let file: toml::Table = toml::from_str(&text).unwrap();
    let measured = file.get("channel").and_then(toml::Value::as_array);
    let measured = measured.unwrap_or_else(|| panic!("{text}"));
    assert_eq!(measured.len(), 3, "{text}");
    // A busy machine makes delays longer, and may lose datagrams.
    for (channel, least_ms) in measured.iter().zip([2.0, 4.0, 6.0]) {
        let number = |key: &str| channel[key].as_float().unwrap();
        assert!(number("delay_ms") >= 0.9 * least_ms, "{text}");
        assert!((0.0..0.5).contains(&number("loss")), "{text}");
    }
    pair.remove();
}

/// An address of a host's link `c` with its prefix, as `ip` shows it.
fn address_of(host: &EmulatedHost, address: IpAddr) -> String {
    let mut command = Command::new("ip");
    command.args(["-o", "-4", "address", "show", "dev", "c"]);
    let output = host.run(|| command.output()).unwrap().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let found = text.split_whitespace().find(|word| word.starts_with(&format!("{address}/")));
    found.unwrap().to_owned()
}
