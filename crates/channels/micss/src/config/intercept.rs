//! Which connections of applications a client intercepts.

use std::str::FromStr;

use crate::protocol::bypass::BypassRule;

/// The longest name of an interface, in bytes.
const MAX_INTERFACE: usize = 15;

/// Which connections are intercepted, and the port to which they are redirected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterceptConfig {
    pub(crate) matching: NftMatchExpression,
    pub(crate) port: u16,
    pub(crate) from: Vec<InterfaceName>,
    pub(crate) refused: Option<Vec<BypassProtocol>>,
    pub(crate) udp: Option<InterceptUdpConfig>,
}

/// Which datagrams are intercepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InterceptUdpConfig {
    pub(crate) matching: NftMatchExpression,
    /// The destinations of datagrams that leave directly. Only networks have an effect.
    pub(crate) bypass: Vec<BypassRule>,
}

/// The expression with which nftables selects TCP connections or UDP datagrams, as in
/// `tcp dport { 80, 443 }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NftMatchExpression(pub(crate) String);

/// The name of an interface on which connections of other hosts arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceName(pub(crate) String);

/// A protocol that reveals in the clear where applications connect to,
/// unless it is intercepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BypassProtocol {
    /// UDP to port 443. If it is refused, browsers use TCP instead.
    Quic,
    /// DNS queries, by UDP and TCP to port 53.
    Dns,
}

/// The text is not the name of a [`BypassProtocol`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("give the protocols to refuse: quic or dns")]
pub struct BypassProtocolError;

/// The text is not an expression of comparisons only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("give an nft expression that matches connections, as in: tcp dport {{ 80, 443 }}")]
pub struct NftMatchExpressionError;

/// The text is not the name of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("give an interface on which other hosts' connections arrive, as in: eth0")]
pub struct InterfaceNameError;

impl FromStr for NftMatchExpression {
    type Err = NftMatchExpressionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || " {},.:/-_!=<>&|\"*".contains(c);
        let words = text.split(|c: char| !c.is_ascii_alphanumeric());
        let verdicts = ["accept", "drop", "return", "jump", "goto", "redirect", "dnat", "tproxy"];
        let only_compares = !words.into_iter().any(|word| verdicts.contains(&word));
        // A field and its values. A network alone is the usual mistake.
        let has_field = text.split_whitespace().nth(1).is_some();
        let valid = has_field && text.chars().all(is_plain) && braces_match(text);
        if valid && only_compares {
            Ok(Self(text.trim().to_owned()))
        } else {
            Err(NftMatchExpressionError)
        }
    }
}

/// Whether the braces are balanced.
fn braces_match(text: &str) -> bool {
    let open = text.chars().try_fold(0_u32, |open, c| match c {
        '{' => open.checked_add(1),
        '}' => open.checked_sub(1),
        _ => Some(open),
    });
    open == Some(0)
}

impl FromStr for InterfaceName {
    type Err = InterfaceNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
        let valid = (1..=MAX_INTERFACE).contains(&text.len()) && text.chars().all(is_plain);
        // Connections on `lo` are this host's own, and intercepted already.
        if valid && text != "lo" { Ok(Self(text.to_owned())) } else { Err(InterfaceNameError) }
    }
}

impl FromStr for BypassProtocol {
    type Err = BypassProtocolError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "quic" => Ok(Self::Quic),
            "dns" => Ok(Self::Dns),
            _ => Err(BypassProtocolError),
        }
    }
}

impl InterceptConfig {
    /// Redirects matching connections to this port: connections of this host, and connections of
    /// other hosts that arrive on one of these interfaces.
    pub fn new(matching: NftMatchExpression, port: u16, from: Vec<InterfaceName>) -> Self {
        Self { matching, port, from, refused: None, udp: None }
    }

    /// Refuses these protocols to the hosts whose connections are intercepted.
    #[must_use]
    pub fn with_refused(self, refused: Vec<BypassProtocol>) -> Self {
        Self { refused: Some(refused), ..self }
    }

    /// Also intercepts matching datagrams of the same hosts, except those to the networks of these
    /// rules.
    #[must_use]
    pub fn with_udp(self, matching: NftMatchExpression, bypass: Vec<BypassRule>) -> Self {
        Self { udp: Some(InterceptUdpConfig { matching, bypass }), ..self }
    }

    /// Whether datagrams are intercepted.
    pub fn intercepts_udp(&self) -> bool {
        self.udp.is_some()
    }

    /// The protocols that are refused; `None` if that is not configured.
    pub fn refused(&self) -> Option<&[BypassProtocol]> {
        self.refused.as_deref()
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The interfaces on which connections of other hosts are intercepted.
    pub fn interfaces(&self) -> impl Iterator<Item = &str> {
        self.from.iter().map(|InterfaceName(name)| name.as_str())
    }

    /// Whether connections of other hosts are intercepted.
    pub fn intercepts_forwarded(&self) -> bool {
        !self.from.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_comparisons_are_taken() {
        for text in [
            "tcp dport {80, 443}",
            "tcp dport 1-1023 ip daddr != 192.0.2.0/24",
            "meta skuid \"alice\" tcp dport 22",
            "ip6 daddr fd00::/8",
        ] {
            assert!(text.parse::<NftMatchExpression>().is_ok(), "{text}");
        }
        for text in [
            "",
            "  ",
            "10.0.0.0/8",
            "443",
            "tcp dport 80 accept",
            "tcp dport 80; flush ruleset",
            "tcp dport 80\nflush ruleset",
            "tcp dport 80 } chain x {",
            "tcp dport { 80",
            "tcp dport $port",
            "tcp dport 80 # all",
        ] {
            assert_eq!(
                text.parse::<NftMatchExpression>(),
                Err(NftMatchExpressionError),
                "{text:?}"
            );
        }
    }

    #[test]
    fn only_known_protocols_are_refused() {
        assert_eq!("quic".parse(), Ok(BypassProtocol::Quic));
        assert_eq!("dns".parse(), Ok(BypassProtocol::Dns));
        for name in ["", "QUIC", "udp", "443"] {
            assert_eq!(name.parse::<BypassProtocol>(), Err(BypassProtocolError), "{name:?}");
        }
    }

    #[test]
    fn interfaces_are_names_and_no_rules() {
        for name in ["eth0", "wlan0", "br-lan", "eth0.7", "wg_1"] {
            assert!(name.parse::<InterfaceName>().is_ok(), "{name}");
        }
        for name in ["", "lo", "eth*", "eth0\" accept", "a b", "a/b", "of-sixteen-bytes"] {
            assert_eq!(name.parse::<InterfaceName>(), Err(InterfaceNameError), "{name:?}");
        }
    }
}
