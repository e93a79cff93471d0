//! The transports. Each is one file and one line here.

pub(crate) mod tcp;
mod tcp_info;

use std::io;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::Error;
use crate::options::{Choice, Options};
use crate::stream::ByteStream;

/// All of them, in the order of `--help`.
static TRANSPORTS: &[&dyn Transport] = &[&tcp::Tcp];

/// What is used where nothing is known of the path.
pub(crate) static DEFAULT: &dyn Transport = &tcp::Tcp;

/// A kind of connection, by a name.
pub(crate) trait Transport: Sync {
    /// Its name, as in `--transport NAME`.
    fn name(&self) -> &'static str;

    /// What it is for, in one line.
    fn about(&self) -> &'static str;

    /// Connects, within [`Options::connect_timeout`].
    fn connect(&self, to: SocketAddr, options: &Options) -> io::Result<Arc<dyn ByteStream>>;
}

/// The names of all transports, and what each is for.
pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    TRANSPORTS.iter().map(|transport| (transport.name(), transport.about()))
}

/// The transport of this name.
pub(crate) fn named(name: &str) -> Result<&'static dyn Transport, Error> {
    let found = TRANSPORTS.iter().find(|transport| transport.name() == name);
    found.copied().ok_or_else(|| {
        let known: Vec<&str> = names().map(|(name, _)| name).collect();
        Error::UnknownTransport { name: name.to_owned(), known: known.join(", ") }
    })
}

impl FromStr for Choice {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        if name == "auto" { Ok(Self::Auto) } else { Ok(Self::Named(named(name)?.name())) }
    }
}
