//! The destinations to which a client connects applications directly, not over its channels.
//!
//! Only what a rule includes leaves directly. Names are compared as the application sends them, and
//! are not looked up: an address of a name that a rule includes is no reason to connect directly.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use ipnet::IpNet;

use super::allow::canonical;
use super::target::{ServiceTarget, TargetHost, parse_name};

/// Destinations that leave directly: hosts, and one of their ports or all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BypassRule {
    hosts: BypassHosts,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum BypassHosts {
    /// The addresses of a network.
    Network(IpNet),
    /// A name.
    Name(String),
    /// All names that end with a dot and this name.
    Subdomains(String),
}

/// What to write in place of a rule that is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BypassRuleError {
    /// It is no rule.
    #[error(
        "write a network, an address, a name, or *.NAME for all names below it, each with :PORT or \
         without"
    )]
    NoRule,
    /// The network has all addresses.
    #[error("this would let everything leave directly: name the networks that may")]
    Everything,
}

impl BypassRule {
    /// Whether connections to this target leave directly.
    pub fn includes(&self, target: &ServiceTarget) -> bool {
        let includes_host = match (&self.hosts, target.host()) {
            (BypassHosts::Network(network), TargetHost::Address(address)) => {
                network.contains(address)
            }
            (BypassHosts::Name(name), TargetHost::Name(other)) => name == other,
            (BypassHosts::Subdomains(name), TargetHost::Name(other)) => {
                let below = other.strip_suffix(name.as_str());
                below.is_some_and(|below| below.len() > 1 && below.ends_with('.'))
            }
            _ => false,
        };
        includes_host && self.port.is_none_or(|port| port == target.port())
    }

    /// The network and the port. `None` if the rule is one of names.
    pub(crate) fn network(&self) -> Option<(IpNet, Option<u16>)> {
        match &self.hosts {
            BypassHosts::Network(network) => Some((*network, self.port)),
            BypassHosts::Name(_) | BypassHosts::Subdomains(_) => None,
        }
    }
}

impl FromStr for BypassRule {
    type Err = BypassRuleError;

    fn from_str(text: &str) -> Result<Self, BypassRuleError> {
        let network = |network: IpNet, port| {
            let network = canonical(network);
            if network.prefix_len() == 0 {
                return Err(BypassRuleError::Everything);
            }
            Ok(Self { hosts: BypassHosts::Network(network), port })
        };
        if let Ok(whole) = text.parse::<IpNet>() {
            return network(whole, None);
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return network(address.to_canonical().into(), None);
        }
        if let Ok(service) = text.parse::<SocketAddr>().map(|it| (it.ip(), it.port())) {
            return network(service.0.to_canonical().into(), Some(service.1));
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => {
                (host, Some(port.parse().map_err(|_| BypassRuleError::NoRule)?))
            }
            _ => (text, None),
        };
        if let Some((address, prefix)) = host.split_once('/') {
            let inner = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
            let whole = format!("{}/{prefix}", inner.unwrap_or(address));
            return network(whole.parse().map_err(|_| BypassRuleError::NoRule)?, port);
        }
        let (below, name) = match host.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, host),
        };
        match parse_name(name.as_bytes()) {
            Ok(TargetHost::Name(name)) if !name.starts_with('.') => {
                let hosts =
                    if below { BypassHosts::Subdomains(name) } else { BypassHosts::Name(name) };
                Ok(Self { hosts, port })
            }
            _ => Err(BypassRuleError::NoRule),
        }
    }
}

impl fmt::Display for BypassRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.hosts, self.port) {
            (BypassHosts::Network(IpNet::V6(network)), Some(_)) => {
                write!(f, "[{}]/{}", network.addr(), network.prefix_len())
            }
            (BypassHosts::Network(network), _) => network.fmt(f),
            (BypassHosts::Name(name), _) => name.fmt(f),
            (BypassHosts::Subdomains(name), _) => write!(f, "*.{name}"),
        }?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_include_what_they_name_and_nothing_else() {
        for (rule, target, expected) in [
            ("192.0.2.0/24", "192.0.2.7:80", true),
            ("192.0.2.0/24", "192.0.3.7:80", false),
            ("192.0.2.0/24:80", "192.0.2.7:80", true),
            ("192.0.2.0/24:80", "192.0.2.7:81", false),
            ("192.0.2.0/24", "192.0.2.7.example.org:80", false),
            ("192.0.2.7", "192.0.2.7:80", true),
            ("192.0.2.7:443", "192.0.2.7:80", false),
            ("fd00::/8", "[fd12::1]:80", true),
            ("[fd00::]/8:80", "[fd12::1]:80", true),
            ("[fd00::]/8:80", "[fe80::1]:80", false),
            ("2001:db8::1", "[2001:db8::1]:9", true),
            ("[2001:db8::1]:443", "[2001:db8::1]:443", true),
            ("::ffff:192.0.2.0/120", "192.0.2.7:80", true),
            ("example.org", "EXAMPLE.org:80", true),
            ("example.org", "www.example.org:80", false),
            ("*.Example.org", "www.example.org:80", true),
            ("*.example.org", "a.b.example.org:80", true),
            ("*.example.org", "example.org:80", false),
            ("*.example.org", ".example.org:80", false),
            ("*.example.org", "evilexample.org:80", false),
            ("*.example.org", "www.example.org.evil.net:80", false),
            ("*.example.org", "www.example.org.:80", false),
            ("*.example.org:443", "www.example.org:443", true),
            ("*.example.org:443", "www.example.org:80", false),
        ] {
            let parsed: BypassRule = rule.parse().unwrap_or_else(|_| panic!("{rule}"));
            assert_eq!(parsed.includes(&target.parse().unwrap()), expected, "{rule} {target}");
            assert_eq!(parsed.to_string().parse(), Ok(parsed), "{rule}");
        }
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in [
            "",
            "*",
            "*.",
            "*.*.org",
            "a b",
            "192.0.2.0/33",
            "example.org/8",
            "example.org:x",
            ":80",
        ] {
            assert_eq!(text.parse::<BypassRule>(), Err(BypassRuleError::NoRule), "{text}");
        }
        for text in ["0.0.0.0/0", "::/0", "[::]/0:80", "::ffff:0:0/96"] {
            assert_eq!(text.parse::<BypassRule>(), Err(BypassRuleError::Everything), "{text}");
        }
    }
}
