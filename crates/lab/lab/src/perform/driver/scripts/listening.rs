//! The ports that are open on a host.

use std::collections::BTreeSet;
use std::fs;

use crate::host::EmulatedHost;

/// The ports that were open on a host at some time.
#[derive(Debug)]
pub(super) struct OpenPorts<'a> {
    host: &'a EmulatedHost,
    before: BTreeSet<(&'static str, String)>,
}

/// The kernel's tables of sockets, and the state of a socket that waits for others: TCP's listening
/// sockets and UDP's without a peer.
const TABLES: [(&str, &str); 4] = [("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")];

impl<'a> OpenPorts<'a> {
    /// Those that are open now.
    pub(super) fn of(host: &'a EmulatedHost) -> Result<Self, String> {
        Ok(Self { host, before: open(host)? })
    }

    /// Whether others are open now.
    pub(super) fn has_new(&self) -> Result<bool, String> {
        Ok(!open(self.host)?.is_subset(&self.before))
    }
}

/// The open ports: the protocol and the local address.
fn open(host: &EmulatedHost) -> Result<BTreeSet<(&'static str, String)>, String> {
    let tables = host.run(|| {
        // Without IPv6 there are no such tables.
        TABLES.map(|(table, state)| {
            let path = format!("/proc/thread-self/net/{table}");
            (table, state, fs::read_to_string(path).unwrap_or_default())
        })
    });
    let tables = tables.map_err(|error| format!("cannot see {}'s ports: {error}", host.name()))?;
    let sockets = tables.iter().flat_map(|(table, state, text)| {
        text.lines().skip(1).filter_map(move |line| {
            let mut fields = line.split_whitespace().skip(1);
            let local = fields.next()?;
            (fields.nth(1)? == *state).then(|| (*table, local.to_owned()))
        })
    });
    Ok(sockets.collect())
}
