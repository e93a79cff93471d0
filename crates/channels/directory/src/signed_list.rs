//! A list of peers and their addresses that the holders of an RSA key have signed.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use keys::RsaPublicKey;
use service::config::{
    ConfigKey, ConfigKeys, ConfigProblem, ConfigProblems, ConfigValue, key, read,
};

use super::addresses::ChannelAddresses;

/// The longest list, in bytes. It is also the longest text that a quorum signs.
pub const MAX_LEN: usize = 1 << 20;

/// The value of the key `format`. It prevents other documents that the same group signs from being
/// accepted as a list.
const FORMAT: &str = "sunder address list 1";

const KEYS: &[ConfigKey] = &[
    key("", "format", "\"sunder address list 1\""),
    key("", "number", "1"),
    key("", "peer", "[{ address = \"192.0.2.10\" }]"),
    key("peer", "address", "\"192.0.2.10\""),
    key("peer", "channels", "[\"192.0.2.10:6522\", \"198.51.100.10:6522\"]"),
];

/// A list whose signature was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedDirectoryList {
    /// The SHA-256 of the key that signed it (its SPKI DER).
    pub key: KeyDigest,
    /// Its number. A later list of the same key has a higher one.
    pub number: u32,
    /// The addresses of each peer.
    pub peers: BTreeMap<IpAddr, ChannelAddresses>,
}

/// The SHA-256 of a public key's SPKI DER.
pub type KeyDigest = [u8; 32];

/// Why a list is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SignedDirectoryListError {
    /// The signature is not of the trusted key, or of another text.
    #[error("the signature is not valid: another key made it, or the list was changed")]
    Unsigned,
    /// The list is longer than [`MAX_LEN`] bytes, or is not valid UTF-8.
    #[error("it is not a text of at most {MAX_LEN} bytes")]
    NoText,
    /// What is signed is not a list.
    #[error(transparent)]
    Problems(#[from] ConfigProblems),
}

impl SignedDirectoryList {
    /// The list in `text`, if the key has signed it.
    ///
    /// # Errors
    /// When the signature is invalid, before anything of the text is read. When the text is not a
    /// list: all its problems.
    pub fn verify(
        text: &[u8],
        signature: &[u8],
        key: &RsaPublicKey,
    ) -> Result<Self, SignedDirectoryListError> {
        if !key.verify(text, signature) {
            return Err(SignedDirectoryListError::Unsigned);
        }
        let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= MAX_LEN);
        let (number, peers) = parse(text.ok_or(SignedDirectoryListError::NoText)?)?;
        Ok(Self { key: key.digest(), number, peers })
    }
}

fn parse(text: &str) -> Result<(u32, BTreeMap<IpAddr, ChannelAddresses>), ConfigProblems> {
    read(text, ConfigKeys(&[KEYS]), |table| {
        let format = table.require("format")?;
        if format.text()? != FORMAT {
            format.refuse("another kind of document", format!("write format = \"{FORMAT}\""));
        }
        let number =
            table.require("number").and_then(|number| number.integer_in(1..=u32::MAX.into()));
        let mut peers = BTreeMap::new();
        for peer in table.tables("peer") {
            let address = peer.require("address").and_then(|address| {
                address.parsed_or::<IpAddr>("write an address, as in 192.0.2.10")
            });
            let channels = peer.require("channels").and_then(|list| {
                let channels = list.list()?.iter().map(ConfigValue::parsed).collect::<Vec<_>>();
                let channels: Option<Vec<SocketAddr>> = channels.into_iter().collect();
                let refused = |error| list.refuse(format!("{error}"), "give 2 to 16 addresses");
                let channels = ChannelAddresses::new(channels?).map_err(refused).ok()?;
                if !channels.have_two_hosts() {
                    let what = "addresses of one host are one channel";
                    list.refuse(what, "add another's");
                }
                Some(channels)
            });
            let (Some(address), Some(channels)) = (address, channels) else { continue };
            if peers.insert(address.to_canonical(), channels).is_some() {
                let problem = ConfigProblem::new(format!("{address} is there twice"), "remove one");
                peer.report_key("address", problem);
            }
        }
        Some((number?, peers))
    })
}

#[cfg(test)]
mod tests {
    use super::super::addresses::tests::list;
    use super::*;

    const LIST: &str = r#"
format = "sunder address list 1"
number = 7

[[peer]]
address = "192.0.2.10"
channels = ["192.0.2.10:6522", "198.51.100.10:6522"]
"#;

    #[test]
    fn a_list_is_read() {
        let (number, peers) = parse(LIST).unwrap();
        let address = "192.0.2.10".parse().unwrap();
        let channels = list("192.0.2.10:6522 198.51.100.10:6522");
        assert_eq!((number, peers), (7, BTreeMap::from([(address, channels)])));
    }

    #[test]
    fn mistakes_are_named() {
        for (from, to, expected) in [
            ("list 1", "list 2", "another kind of document"),
            ("number = 7", "number = 0", "number = 0: give 1 to"),
            ("number = 7", "", "number"),
            ("198.51.100.10:6522", "192.0.2.10:6523", "addresses of one host are one channel"),
            ("198.51.100.10:6522", "192.0.2.10:6522", "192.0.2.10:6522 is there twice"),
            ("\"192.0.2.10\"", "\"192.0.2\"", "192.0.2"),
        ] {
            let error = parse(&LIST.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let twice = format!("{LIST}{}", LIST.split("number = 7").nth(1).unwrap());
        assert!(parse(&twice).unwrap_err().to_string().contains("192.0.2.10 is there twice"));
    }
}
