//! The network of a cluster: each server's host has one link, to a host that forwards.

use std::io::Write;
use std::process::{Command, Stdio};

use lab::{EmulatedHost, EmulatedLinkConditions, EmulatedNetwork, LinkDirection};

use crate::emulation;

/// The host that forwards.
const SWITCH: &str = "switch";

/// The hosts of servers 1 to `count`, and their links with this delay.
pub(crate) fn network(count: usize, delay_ms: u32) -> EmulatedNetwork {
    let servers = (1..=count).map(|server| {
        format!(
            "[hosts.s{server}]\n[links.l{server}]\nhosts = [\"s{server}\", \"{SWITCH}\"]\n\
             both = {{ delay_ms = {delay_ms} }}\n"
        )
    });
    let topology = format!(
        "measure = {{ driver = \"accuracy\", values = {{}} }}\n\
         [hosts.{SWITCH}]\nsysctl = {{ \"net/ipv4/ip_forward\" = \"1\" }}\n{}",
        servers.collect::<String>()
    );
    let network = emulation::network(&topology, "/".as_ref());
    for server in 1..=count {
        let route = format!("route add 10.0.0.0/16 dev l{server}\n");
        ip(network.host(&format!("s{server}")).unwrap(), &route);
    }
    network
}

/// The address of a server.
pub(crate) fn address(server: usize) -> String {
    format!("10.0.{}.1", server - 1)
}

/// Runs commands of `ip`, one on each line.
fn ip(host: &EmulatedHost, commands: &str) {
    let mut command = Command::new("ip");
    command.args(["-batch", "-"]).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = host.run(|| command.spawn()).unwrap().expect("ip is installed");
    child.stdin.take().unwrap().write_all(commands.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "ip: {commands}");
}

/// Packets that the forwarding host drops until this is healed.
#[must_use]
pub(crate) struct Cut(String);

impl Cut {
    /// Drops what the servers `from` send to the servers `to`.
    pub(crate) fn one_way(network: &EmulatedNetwork, from: &[usize], to: &[usize]) -> Self {
        let pairs = from.iter().flat_map(|from| to.iter().map(move |to| (*from, *to)));
        let rule = |(from, to)| format!("from {} to {} blackhole\n", address(from), address(to));
        let cut = Self(pairs.map(rule).collect());
        cut.apply(network, "add");
        cut
    }

    /// Drops everything between the servers of one side and of the other.
    pub(crate) fn between(network: &EmulatedNetwork, one: &[usize], other: &[usize]) -> Self {
        let there = Self::one_way(network, one, other);
        let back = Self::one_way(network, other, one);
        Self(there.0 + &back.0)
    }

    pub(crate) fn heal(self, network: &EmulatedNetwork) {
        self.apply(network, "del");
    }

    fn apply(&self, network: &EmulatedNetwork, verb: &str) {
        let rules = self.0.lines().map(|rule| format!("rule {verb} {rule}\n"));
        ip(network.host(SWITCH).unwrap(), &rules.collect::<String>());
    }
}

/// Makes the link of a server lose this part of all packets in these directions: forward is from
/// the server.
pub(crate) fn lose(
    network: &EmulatedNetwork,
    server: usize,
    directions: &[LinkDirection],
    loss: f64,
) {
    let name = format!("l{server}");
    for &direction in directions {
        let usual = network.conditions(&name, direction).unwrap();
        network
            .link(&name)
            .unwrap()
            .set(direction, EmulatedLinkConditions { loss, ..usual })
            .unwrap();
    }
}
