//! The line with which the other end of a new tunnel is set up, pure.
//!
//! It consists of words with commas between them: `sunder-tunnel`, `kappa=X`, `mu=X`,
//! `network=ADDR`, `client=N` if the client's address ends with another number than 2, `key=` with
//! 64 hexadecimal digits, and the server's address or name of each channel. A shell takes it as one
//! word, and a person sees what is in it.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use keys::KEY_LEN;
use service::remote_address::RemoteAddress;
use zeroize::Zeroizing;

use super::ends::{ONLY_CLIENT, TunnelEnds};

/// The first word.
const NAME: &str = "sunder-tunnel";

/// The command to which the line belongs.
const COMMAND: &str = "sunder tunnel join";

/// The maximum length of a line, in bytes: more than 100 channels.
pub(crate) const MAX_LINE_LEN: usize = 8192;

/// What the line says.
pub(crate) struct TunnelJoinLine {
    pub(crate) ends: TunnelEnds,
    pub(crate) key: Zeroizing<[u8; KEY_LEN]>,
}

impl TunnelJoinLine {
    /// The line. Secret.
    pub(crate) fn to_text(&self) -> Zeroizing<String> {
        let Self { ends, key } = self;
        let TunnelEnds { channels, kappa, mu, network, client } = ends;
        // So large that it is not moved, which would leave copies of the key.
        let mut text = Zeroizing::new(String::with_capacity(MAX_LINE_LEN));
        let _ = write!(text, "{NAME},kappa={kappa},mu={mu},network={network},");
        if *client != ONLY_CLIENT {
            let _ = write!(text, "client={client},");
        }
        text.push_str("key=");
        text.push_str(&Zeroizing::new(base16ct::lower::encode_string(&**key)));
        for channel in channels {
            let _ = write!(text, ",{channel}");
        }
        text
    }

    /// Reads a line. It may be the whole command, as `sunder init tunnel` prints it: then the
    /// quotes show whether its end is there.
    ///
    /// # Errors
    /// What is wrong with it, in one line, without the key.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let incomplete = |what: &str| {
            format!(
                "this is not the whole line of `sunder init tunnel` or `sunder tunnel invite`: {what}; copy it again"
            )
        };
        if text.len() > MAX_LINE_LEN {
            return Err(incomplete("it is too long"));
        }
        let text = text.trim();
        let text = text.strip_prefix(COMMAND).map_or(text, str::trim_start);
        let text = match text.strip_prefix('\'') {
            Some(rest) => {
                rest.strip_suffix('\'').ok_or_else(|| incomplete("its end is missing"))?
            }
            None => text,
        };
        let mut words = text.split(',').peekable();
        if words.next() != Some(NAME) {
            return Err(incomplete(&format!("it does not begin with {NAME}")));
        }
        let mut named = |name: &str| {
            let word = words.next().and_then(|word| word.strip_prefix(name)?.strip_prefix('='));
            word.ok_or_else(|| incomplete(&format!("{name}= is missing")))
        };
        let (kappa, mu) = (named("kappa")?, named("mu")?);
        let network = named("network")?;
        let client = words.next_if(|word| word.starts_with("client="));
        let client = client.map_or(Ok(ONLY_CLIENT), |word| word["client=".len()..].parse());
        let client = client.map_err(|_| incomplete("client is wrong"))?;
        let digits = words.next().and_then(|word| word.strip_prefix("key="));
        let digits = digits.ok_or_else(|| incomplete("key= is missing"))?;
        let number = |name: &str, text: &str| {
            let number: Option<f64> = text.parse().ok();
            number
                .filter(|it| it.is_finite())
                .ok_or_else(|| incomplete(&format!("{name} is wrong")))
        };
        let (kappa, mu) = (number("kappa", kappa)?, number("mu", mu)?);
        let network: Ipv4Addr = network.parse().map_err(|_| incomplete("network is wrong"))?;
        let mut key = Zeroizing::new([0; KEY_LEN]);
        let len = base16ct::lower::decode(digits, &mut *key).map(<[u8]>::len);
        if len != Ok(KEY_LEN) {
            return Err(incomplete("key is not 64 hexadecimal digits"));
        }
        let channels = words
            .map(|word| word.parse().map_err(|_| incomplete("an address is wrong")))
            .collect::<Result<Vec<RemoteAddress>, String>>()?;
        if channels.is_empty() {
            return Err(incomplete("it has no channels"));
        }
        Ok(Self { ends: TunnelEnds { channels, kappa, mu, network, client }, key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> TunnelJoinLine {
        let ends = TunnelEnds {
            channels: ["192.0.2.1:6521", "[2001:db8::1]:9", "vpn.example.com:6521"]
                .map(|it| it.parse().unwrap())
                .into(),
            kappa: 1.5,
            mu: 2.0,
            network: Ipv4Addr::new(10, 7, 3, 0),
            client: 7,
        };
        TunnelJoinLine { ends, key: Zeroizing::new([0xA7; 32]) }
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let text = line().to_text();
        let read = TunnelJoinLine::parse(&format!("{}\n", *text)).unwrap();
        assert_eq!(read.ends, line().ends);
        assert_eq!(read.key, line().key);
    }

    #[test]
    fn every_command_that_was_cut_is_refused() {
        let command = format!("sunder tunnel join '{}'\n", *line().to_text());
        let read = TunnelJoinLine::parse(&command).unwrap();
        assert_eq!((read.ends, read.key), (line().ends, line().key));
        for end in 0..command.len() - 1 {
            let error = TunnelJoinLine::parse(&command[..end]).err().unwrap();
            assert!(error.contains("copy it again"), "{end}: {error}");
        }
    }

    #[test]
    fn every_line_that_was_cut_is_refused_without_the_key() {
        let text = line().to_text();
        let addresses = text.find(",192").unwrap();
        for end in 0..addresses + 4 {
            let error = TunnelJoinLine::parse(&text[..end]).err().unwrap();
            assert!(error.contains("copy it again") && !error.contains("a7a7"), "{end}: {error}");
        }
        for wrong in ["mu=2,", "kappa=NaN,mu=2,network=10.0.0.0", ""] {
            assert!(TunnelJoinLine::parse(&format!("{NAME},{wrong}")).is_err(), "{wrong}");
        }
        let long = format!("{}{}", *text, ",192.0.2.1:1".repeat(1000));
        assert!(TunnelJoinLine::parse(&long).is_err());
    }
}
