//! What waits for review: registrations that were not used, and proposed lists of servers.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// The registrations and proposed lists that wait, as far as a server knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingReview {
    /// Registrations that were not used yet: all of this server, then up to 128 of each other one,
    /// the newest first. One is used when its message was signed for a user of its server. Each
    /// server says this of itself, so a faulty one can show or hide its own.
    pub registrations: Vec<PendingRegistration>,
    /// The servers of the group, and how many registrations wait at each.
    pub servers: Vec<PendingSource>,
    /// The lists of servers that are approved for a refresh, by servers of the current group that
    /// have signed their approval.
    pub lists: Vec<ProposedList>,
}

/// A registration that was not used yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingRegistration {
    /// The number of the server where it was registered, from 1. `null` outside of the group.
    pub server: Option<u64>,
    /// The identity of this server, in hexadecimal digits.
    pub identity: String,
    /// The SHA-256 of the message, in hexadecimal digits.
    pub digest: String,
    /// The length of the message in bytes. `null` if an earlier version has registered it.
    pub len: Option<u64>,
    /// The first bytes of the message, in hexadecimal digits.
    pub first: String,
    /// The ID of the user who has registered it first, on the host of that server.
    pub uid: Option<u32>,
    /// When it was registered (RFC 3339).
    pub registered: String,
    /// Until when it may be signed (RFC 3339).
    pub until: String,
}

/// A server, and how many registrations wait there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingSource {
    /// Its number in the group, from 1. `null` outside of the group.
    pub server: Option<u64>,
    /// Its identity, in hexadecimal digits.
    pub identity: String,
    /// How many registrations wait there. Not all of them may be listed.
    pub registrations: u64,
    /// How many seconds ago it said so. `null` if it has not answered.
    pub age_s: Option<u64>,
}

/// A list of servers that is approved for a refresh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProposedList {
    /// The SHA-256 of the list, in hexadecimal digits, as in the audit log.
    pub group: String,
    /// The epoch that it would begin.
    pub epoch: u64,
    /// The numbers of the servers of the current group that have approved it, from 1.
    pub approved_by: Vec<u64>,
    /// How many approvals begin the refresh.
    pub needed: u64,
    /// Whether the refresh has begun, so that approvals cannot be withdrawn any more.
    pub begun: bool,
    /// When this server withdraws its approval (RFC 3339). `null` if it has not approved the list.
    pub until: Option<String>,
    /// Its servers, in their order.
    pub servers: Vec<ListedServer>,
    /// The difference to the current list.
    pub changes: Vec<ListChange>,
}

/// A server of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedServer {
    /// Its identity, in hexadecimal digits.
    pub identity: String,
    /// Its address.
    pub address: SocketAddr,
}

/// A server that differs between two lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListChange {
    /// What changes.
    pub change: ListChangeKind,
    /// Its identity, in hexadecimal digits.
    pub identity: String,
    /// Its address, in the old list if it is removed.
    pub address: SocketAddr,
    /// Its address in the old list, if it moves.
    pub before: Option<SocketAddr>,
}

/// How a server differs between two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ListChangeKind {
    /// It is new.
    Added,
    /// It is not in the new list.
    Removed,
    /// It has another address.
    Moved,
}
