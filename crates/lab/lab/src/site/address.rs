//! Where sites are, and at which site each host of an experiment is.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;

use keys::IdentityPublicKey;
use thiserror::Error;

/// The maximum number of sites.
const MAX_SITES: usize = 16;

/// The maximum length of a site's name.
const MAX_NAME_LEN: usize = 32;

/// A site: `NAME=HOST:PORT/KEY`.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteAddress {
    /// Its name.
    pub name: String,
    /// Where its agent listens, `HOST:PORT`.
    pub address: String,
    /// The agent's key.
    pub key: IdentityPublicKey,
}

/// A host at another site than that of the experiment's file: `HOST=SITE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPlacement {
    host: String,
    site: String,
}

/// Why sites cannot be used as they are given, in one line.
#[derive(Debug, Error)]
pub enum SiteAddressError {
    /// The text is no site.
    #[error("write NAME=HOST:PORT/KEY, as sunder lab agent prints it there")]
    NoSite,
    /// The text places no host.
    #[error("write HOST=SITE")]
    NoPlacement,
    /// The name is none of a site.
    #[error("{0}: use 1 to {MAX_NAME_LEN} of a-z, 0-9 and - as the name of a site")]
    Name(String),
    /// The text after the last slash is no key.
    #[error("{0}: {1}")]
    Key(String, String),
    /// There are too many.
    #[error("there are more than {MAX_SITES} sites")]
    TooMany,
    /// Two have the same name.
    #[error("{0}: two sites have this name")]
    Twice(String),
    /// A site has no address.
    #[error("site {0}: {1}: the name cannot be resolved: {2}")]
    Resolve(String, String, io::Error),
    /// A host is at a site that is not given.
    #[error("{0} is at {1}, which is none of the sites")]
    Unknown(String, String),
}

/// The sites of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct ExperimentSites {
    /// By name: the site, and where its agent listens.
    sites: BTreeMap<String, (SiteAddress, SocketAddr)>,
    /// The sites of hosts, where they are not those of the file.
    placements: BTreeMap<String, String>,
    /// Whether the links between the hosts are emulated.
    emulates_links: bool,
}

/// Whether a text is a name of a-z, 0-9 and `-`, and not longer than this.
pub(super) fn is_plain_name(name: &str, max_len: usize) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=max_len).contains(&name.len()) && name.chars().all(is_plain)
}

impl FromStr for SiteAddress {
    type Err = SiteAddressError;

    fn from_str(text: &str) -> Result<Self, SiteAddressError> {
        let (name, rest) = text.split_once('=').ok_or(SiteAddressError::NoSite)?;
        let (address, key) = rest.rsplit_once('/').ok_or(SiteAddressError::NoSite)?;
        if !is_plain_name(name, MAX_NAME_LEN) {
            return Err(SiteAddressError::Name(name.to_owned()));
        }
        let parsed = IdentityPublicKey::from_str(key);
        let key =
            parsed.map_err(|error| SiteAddressError::Key(key.to_owned(), error.to_string()))?;
        Ok(Self { name: name.to_owned(), address: address.to_owned(), key })
    }
}

impl FromStr for HostPlacement {
    type Err = SiteAddressError;

    fn from_str(text: &str) -> Result<Self, SiteAddressError> {
        let (host, site) = text.split_once('=').ok_or(SiteAddressError::NoPlacement)?;
        Ok(Self { host: host.to_owned(), site: site.to_owned() })
    }
}

impl ExperimentSites {
    /// Resolves the sites' addresses.
    ///
    /// # Errors
    /// If there are too many sites, two have one name, an address cannot be resolved, or a host is
    /// placed at an unknown site.
    pub fn new(
        sites: &[SiteAddress],
        placements: &[HostPlacement],
    ) -> Result<Self, SiteAddressError> {
        if sites.len() > MAX_SITES {
            return Err(SiteAddressError::TooMany);
        }
        let mut resolved = BTreeMap::new();
        for site in sites {
            let to = resolve(&site.address).map_err(|error| {
                SiteAddressError::Resolve(site.name.clone(), site.address.clone(), error)
            })?;
            if resolved.insert(site.name.clone(), (site.clone(), to)).is_some() {
                return Err(SiteAddressError::Twice(site.name.clone()));
            }
        }
        let mut of_hosts = BTreeMap::new();
        for HostPlacement { host, site } in placements {
            if !resolved.contains_key(site) {
                return Err(SiteAddressError::Unknown(host.clone(), site.clone()));
            }
            of_hosts.insert(host.clone(), site.clone());
        }
        Ok(Self { sites: resolved, placements: of_hosts, emulates_links: false })
    }

    /// The same sites, at which the experiment's hosts have networks of their own, and links that
    /// are emulated over the paths between the sites.
    #[must_use]
    pub fn with_emulated_links(self) -> Self {
        Self { emulates_links: true, ..self }
    }

    /// Whether the links between the hosts are emulated.
    pub(crate) fn emulates_links(&self) -> bool {
        self.emulates_links
    }

    /// The site of a host, and where its agent listens. In the experiment's file, the host is at
    /// the site `named`, or at the one of its own name.
    ///
    /// # Errors
    /// The name of the site, if it is not given.
    pub(crate) fn of_host<'a>(
        &'a self,
        host: &'a str,
        named: Option<&'a str>,
    ) -> Result<(&'a str, SocketAddr), &'a str> {
        let placed = self.placements.get(host).map(String::as_str);
        let site = placed.or(named).unwrap_or(host);
        let (_, address) = self.sites.get(site).ok_or(site)?;
        Ok((site, *address))
    }

    /// The sites, and where their agents listen.
    pub(crate) fn all(&self) -> impl Iterator<Item = &(SiteAddress, SocketAddr)> {
        self.sites.values()
    }

    /// The first host that is placed and is none of these.
    pub(crate) fn placed_stranger(&self, is_host: impl Fn(&str) -> bool) -> Option<&str> {
        self.placements.keys().map(String::as_str).find(|host| !is_host(host))
    }
}

/// The address of an agent: one of IPv4, if there is one.
fn resolve(address: &str) -> io::Result<SocketAddr> {
    let mut addresses: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
    addresses.sort_by_key(SocketAddr::is_ipv6);
    addresses.first().copied().ok_or(io::ErrorKind::AddrNotAvailable.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";

    fn site(text: &str) -> Result<SiteAddress, String> {
        text.parse().map_err(|error: SiteAddressError| error.to_string())
    }

    #[test]
    fn a_site_has_a_name_an_address_and_a_key() {
        let fra = site(&format!("fra=192.0.2.1:7100/{KEY}")).unwrap();
        assert_eq!((&fra.name[..], &fra.address[..]), ("fra", "192.0.2.1:7100"));
        for wrong in ["fra", "fra=192.0.2.1:7100", &format!("192.0.2.1:7100/{KEY}")] {
            assert!(site(wrong).unwrap_err().contains("NAME=HOST:PORT/KEY"), "{wrong}");
        }
        assert!(site(&format!("Fra=h:1/{KEY}")).unwrap_err().contains("a-z"));
        assert!(site("fra=h:1/abc").unwrap_err().starts_with("abc: "));
    }

    #[test]
    fn a_host_is_placed_then_at_its_site_then_at_the_one_of_its_name() {
        let all = ["fra", "syd"].map(|name| site(&format!("{name}=127.0.0.1:7100/{KEY}")).unwrap());
        let placed = HostPlacement::from_str("client=syd").unwrap();
        let sites = ExperimentSites::new(&all, &[placed]).unwrap();
        let of_host = |host, named| sites.of_host(host, named).map(|(site, _)| site.to_owned());
        assert_eq!(of_host("client", Some("fra")), Ok("syd".into()));
        assert_eq!(of_host("server", Some("fra")), Ok("fra".into()));
        assert_eq!(of_host("fra", None), Ok("fra".into()));
        assert_eq!(of_host("server", None), Err("server"));
        assert_eq!(sites.placed_stranger(|host| host == "server"), Some("client"));
        let unknown = HostPlacement::from_str("client=tyo").unwrap();
        assert!(ExperimentSites::new(&all, &[unknown]).is_err());
        assert!(ExperimentSites::new(&[all[0].clone(), all[0].clone()], &[]).is_err());
    }
}
