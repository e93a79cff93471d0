//! The ports that are open on a host.

use std::collections::BTreeSet;
use std::fs;

use crate::host::EmulatedHost;
use crate::perform::sockets::{TABLES, waiting_sockets};
use crate::perform::trial_network::TrialHost;
use crate::site::{AgentAnswer, AgentRequest};

/// The ports that were open on a host at some time.
#[derive(Debug)]
pub(super) struct OpenPorts<'a> {
    host: TrialHost<'a>,
    /// The protocols and the local addresses.
    before: BTreeSet<String>,
}

impl<'a> OpenPorts<'a> {
    /// Those that are open now.
    pub(super) fn of(host: TrialHost<'a>) -> Result<Self, String> {
        Ok(Self { host, before: open(host)? })
    }

    /// Whether others are open now.
    pub(super) fn has_new(&self) -> Result<bool, String> {
        Ok(!open(self.host)?.is_subset(&self.before))
    }
}

/// The open ports of a host; at a site, those of its programs.
fn open(host: TrialHost<'_>) -> Result<BTreeSet<String>, String> {
    match host {
        TrialHost::Emulated { host, .. } => emulated(host),
        TrialHost::Site { site, emulated } => {
            let host = emulated.map(str::to_owned);
            match site.request(&AgentRequest::Ports { host })? {
                AgentAnswer::Ports(ports) => {
                    Ok(ports.iter().map(|(protocol, port)| format!("{protocol} {port}")).collect())
                }
                _ => Err(site.unexpected()),
            }
        }
    }
}

/// The open ports of an emulated host.
fn emulated(host: &EmulatedHost) -> Result<BTreeSet<String>, String> {
    let tables = host.run(|| {
        // Without IPv6 there are no such tables.
        TABLES.map(|(table, state)| {
            let path = format!("/proc/thread-self/net/{table}");
            (table, state, fs::read_to_string(path).unwrap_or_default())
        })
    });
    let tables = tables.map_err(|error| format!("cannot see {}'s ports: {error}", host.name()))?;
    let sockets = tables.iter().flat_map(|(table, state, text)| {
        waiting_sockets(text, state).map(move |socket| format!("{table} {}", socket.local))
    });
    Ok(sockets.collect())
}
