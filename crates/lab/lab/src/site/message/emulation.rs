//! The hosts and ends of links that a controller has made at sites, as bytes, pure.

use std::net::Ipv4Addr;

use encoding::{FieldReader, FieldWrite as _};

use super::super::address::is_plain_name;
use super::{
    AgentMessageError, flag, long_text, put_address, read_address, read_variables, variables,
};
use crate::link::{LinkEndOptions, LinkEndReport, StretchedLinkKey};

/// The maximum length of the name of a host or a link. The kernel has the same limit for the name
/// of an interface.
const MAX_NAME_LEN: usize = 15;

/// The maximum number of ends of links of a site.
pub(crate) const MAX_LINK_ENDS: usize = 100;

/// A host to emulate at a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SiteHost {
    /// Its name.
    pub(crate) name: String,
    /// System parameters, by their path relative to `/proc/sys`; each begins with `net/`.
    pub(crate) sysctl: Vec<(String, String)>,
}

/// An end of a stretched link, at a site.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SiteLinkEnd {
    /// The host to which it belongs.
    pub(crate) host: String,
    /// Its properties.
    pub(crate) options: LinkEndOptions,
}

impl SiteHost {
    pub(in crate::site) fn put(&self, bytes: &mut Vec<u8>) {
        bytes.put_text(&self.name);
        variables(bytes, &self.sysctl);
    }

    pub(in crate::site) fn read(reader: &mut FieldReader<'_>) -> Result<Self, AgentMessageError> {
        let name = read_name(reader)?;
        let sysctl = read_variables(reader)?;
        let is_of_network = |path: &str| {
            path.starts_with("net/") && path.split('/').all(|it| !matches!(it, "" | "." | ".."))
        };
        if !sysctl.iter().all(|(path, _)| is_of_network(path)) {
            return Err(AgentMessageError::Value("sysctl"));
        }
        Ok(Self { name, sysctl })
    }
}

impl SiteLinkEnd {
    pub(in crate::site) fn put(&self, bytes: &mut Vec<u8>) {
        let LinkEndOptions {
            name,
            address,
            mtu,
            congestion,
            conditions,
            seed,
            port,
            other,
            keys: [to, from],
        } = &self.options;
        bytes.put_text(&self.host);
        bytes.put_text(name);
        bytes.extend(address.octets());
        bytes.put_u32(*mtu);
        bytes.put_text(congestion.as_deref().unwrap_or_default());
        let conditions = serde_json::to_vec(conditions).expect("conditions are plain numbers");
        bytes.put_counted(&conditions);
        bytes.put_u64(*seed);
        bytes.put_u16(*port);
        put_address(bytes, other.ip());
        bytes.put_u16(other.port());
        bytes.extend(to.0);
        bytes.extend(from.0);
    }

    pub(in crate::site) fn read(reader: &mut FieldReader<'_>) -> Result<Self, AgentMessageError> {
        let wrong = AgentMessageError::Value;
        let (host, name) = (read_name(reader)?, read_name(reader)?);
        if matches!(&*name, "lo" | "all" | "default") {
            return Err(wrong("name of a link"));
        }
        let address = Ipv4Addr::from(reader.take::<4>()?);
        let mtu = reader.u32()?;
        if !(68..=65_535).contains(&mtu) {
            return Err(wrong("MTU"));
        }
        let congestion = match reader.text()? {
            "" => None,
            name => Some(name.to_owned()),
        };
        let conditions: crate::EmulatedLinkConditions =
            serde_json::from_str(&long_text(reader)?).map_err(|_| wrong("conditions"))?;
        let conditions = conditions.checked().map_err(|_| wrong("conditions"))?;
        let (seed, port) = (reader.u64()?, reader.u16()?);
        let other = (read_address(reader)?, reader.u16()?).into();
        let keys = [StretchedLinkKey(reader.take()?), StretchedLinkKey(reader.take()?)];
        let options =
            LinkEndOptions { name, address, mtu, congestion, conditions, seed, port, other, keys };
        Ok(Self { host, options })
    }
}

/// The name of a host, or nothing for the machine itself.
pub(in crate::site) fn read_host(
    reader: &mut FieldReader<'_>,
) -> Result<Option<String>, AgentMessageError> {
    match reader.text()? {
        "" => Ok(None),
        name if is_plain_name(name, MAX_NAME_LEN) => Ok(Some(name.to_owned())),
        _ => Err(AgentMessageError::Value("name of a host")),
    }
}

fn read_name(reader: &mut FieldReader<'_>) -> Result<String, AgentMessageError> {
    read_host(reader)?.ok_or(AgentMessageError::Value("name of a host"))
}

/// Writes what the ends of links have done, in the order in which they were made.
pub(in crate::site) fn put_reports(bytes: &mut Vec<u8>, reports: &[LinkEndReport]) {
    for LinkEndReport { is_joined, sent_bytes, late_ms, path_late_ms, missed, lost } in reports {
        bytes.push((*is_joined).into());
        bytes.put_u64(*sent_bytes);
        bytes.extend(late_ms.to_be_bytes());
        bytes.extend(path_late_ms.to_be_bytes());
        bytes.put_u64(*missed);
        bytes.put_u64(*lost);
    }
}

pub(in crate::site) fn read_reports(
    reader: &mut FieldReader<'_>,
) -> Result<Vec<LinkEndReport>, AgentMessageError> {
    let mut reports = Vec::new();
    while !reader.is_empty() {
        if reports.len() == MAX_LINK_ENDS {
            return Err(AgentMessageError::Value("number of links"));
        }
        let (is_joined, sent_bytes) = (flag(reader)?, reader.u64()?);
        let [late_ms, path_late_ms] = [reader.take()?, reader.take()?].map(f64::from_be_bytes);
        let is_time = |ms: f64| ms.is_finite() && ms >= 0.0;
        if !is_time(late_ms) || !is_time(path_late_ms) {
            return Err(AgentMessageError::Value("number"));
        }
        let (missed, lost) = (reader.u64()?, reader.u64()?);
        reports.push(LinkEndReport { is_joined, sent_bytes, late_ms, path_late_ms, missed, lost });
    }
    Ok(reports)
}
