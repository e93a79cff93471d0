//! The address of the page, as browsers have it. Pure.

use std::fmt::{Display, Formatter};
use std::net::SocketAddr;
use std::str::FromStr;

use axum::http::Uri;
use thiserror::Error;

/// The address by which browsers reach the page, without a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageUrl {
    scheme: &'static str,
    /// The host, and the port unless it is the usual one.
    host: String,
}

/// A text is no address of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("give https://HOST or https://HOST:PORT, without a path")]
pub struct PageUrlError;

impl PageUrl {
    /// The address of a server that listens here.
    pub(crate) fn of_listener(address: SocketAddr, is_tls: bool) -> Self {
        let (scheme, usual) = if is_tls { ("https", 443) } else { ("http", 80) };
        let host = address.to_string();
        let host = host.strip_suffix(&format!(":{usual}")).map(str::to_owned).unwrap_or(host);
        Self { scheme, host }
    }

    /// Whether browsers encrypt what they send.
    pub(crate) fn is_secure(&self) -> bool {
        self.scheme == "https"
    }

    pub(crate) fn scheme(&self) -> &'static str {
        self.scheme
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }
}

impl FromStr for PageUrl {
    type Err = PageUrlError;

    fn from_str(text: &str) -> Result<Self, PageUrlError> {
        let uri: Uri = text.parse().map_err(|_| PageUrlError)?;
        let authority = uri.authority().ok_or(PageUrlError)?.as_str().to_ascii_lowercase();
        let is_bare = uri.path() == "/" && uri.query().is_none() && !authority.contains('@');
        if uri.scheme_str() != Some("https") || !is_bare {
            return Err(PageUrlError);
        }
        let host = authority.strip_suffix(":443").unwrap_or(&authority).to_owned();
        Ok(Self { scheme: "https", host })
    }
}

impl Display for PageUrl {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}://{}", self.scheme, self.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_with_https() {
        for (text, url) in [
            ("https://lab.example.org", "https://lab.example.org"),
            ("https://Lab.example.org:443/", "https://lab.example.org"),
            ("https://[::1]:8840", "https://[::1]:8840"),
        ] {
            assert_eq!(text.parse::<PageUrl>().unwrap().to_string(), url);
        }
        for text in ["", "http://a", "https://", "a", "https://a/b", "https://u@a", "https://a?b"] {
            assert_eq!(text.parse::<PageUrl>(), Err(PageUrlError), "{text}");
        }
        let local = PageUrl::of_listener("127.0.0.1:443".parse().unwrap(), true);
        assert_eq!(local.to_string(), "https://127.0.0.1");
    }
}
