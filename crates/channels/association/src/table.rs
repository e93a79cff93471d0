//! The server's table of connections that are not associated yet.
//!
//! It records which connection has which cookie, and which lists name which connections, and keeps
//! these views consistent: a removed connection is removed from all of them. Every step costs a
//! number of look-ups proportional to the length of the lists it touches, never to the table's
//! size.
//!
//! The invariant: *if a connection has delivered a list, then at least as many of the connections
//! that the list names as it needs are in the table, and have delivered the same list or none yet.*
//! Equal lists in the table are clones of one another.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use crate::framer::AssociationFramer;
use crate::message::{COOKIE_LEN, ConnectionCookie, CookieList};

/// The caller's identifier for a connection. It must never be used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PendingConnectionId(pub u64);

/// A connection that waits for its list, or for the others to deliver the same list.
#[derive(Debug)]
pub(crate) struct PendingConnection {
    pub(crate) cookie: ConnectionCookie,
    pub(crate) deadline: Duration,
    pub(crate) framer: AssociationFramer,
    /// The list that it has delivered.
    pub(crate) delivered: Option<DeliveredList>,
    /// The other connections whose delivered lists name this one.
    pub(crate) named_by: BTreeSet<PendingConnectionId>,
}

/// A list that a connection has delivered.
#[derive(Debug)]
pub(crate) struct DeliveredList {
    pub(crate) list: CookieList,
    /// Until when it waits for the others, if it can complete without them.
    pub(crate) quorum_deadline: Option<Duration>,
    /// This deadline has passed.
    pub(crate) quorum_timed_out: bool,
}

/// All pending connections.
#[derive(Debug, Default)]
pub(crate) struct AssociationTable {
    pending: HashMap<PendingConnectionId, PendingConnection>,
    /// Looked up with cookies that clients may have made up. The map's keyed hash prevents the time
    /// of a look-up from revealing how close a guess is.
    by_cookie: HashMap<[u8; COOKIE_LEN], PendingConnectionId>,
    deadlines: BTreeSet<(Duration, PendingConnectionId)>,
    /// The quorum deadlines of the connections.
    quorum_deadlines: BTreeSet<(Duration, PendingConnectionId)>,
}

/// The state of the connections that a list names.
#[derive(Debug, Default)]
pub(crate) struct CookieListStatus {
    /// Those that have delivered it, each at its position.
    pub(crate) delivered: Vec<Option<PendingConnectionId>>,
    /// How many have not delivered a list yet.
    pub(crate) awaited: usize,
    /// One that has delivered another list.
    pub(crate) disagreeing: Option<PendingConnectionId>,
    /// How many are not in the table.
    pub(crate) not_waiting: usize,
    /// How many of those that have delivered it have waited until their quorum deadline.
    pub(crate) timed_out: usize,
}

impl CookieListStatus {
    /// How many have delivered it.
    pub(crate) fn delivered_count(&self) -> usize {
        self.delivered.iter().flatten().count()
    }

    /// How many have delivered it or still can.
    pub(crate) fn max_deliveries(&self) -> usize {
        self.delivered_count() + self.awaited
    }
}

impl AssociationTable {
    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    pub(crate) fn contains(&self, id: PendingConnectionId) -> bool {
        self.pending.contains_key(&id)
    }

    pub(crate) fn has_cookie(&self, cookie: &ConnectionCookie) -> bool {
        self.by_cookie.contains_key(cookie.as_bytes())
    }

    pub(crate) fn get(&self, id: PendingConnectionId) -> Option<&PendingConnection> {
        self.pending.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: PendingConnectionId) -> Option<&mut PendingConnection> {
        self.pending.get_mut(&id)
    }

    /// The list that a connection has delivered.
    pub(crate) fn list(&self, id: PendingConnectionId) -> Option<&CookieList> {
        Some(&self.get(id)?.delivered.as_ref()?.list)
    }

    pub(crate) fn next_deadline(&self) -> Option<(Duration, PendingConnectionId)> {
        self.deadlines.first().copied()
    }

    /// The earliest quorum deadline.
    pub(crate) fn next_quorum_deadline(&self) -> Option<Duration> {
        self.quorum_deadlines.first().map(|&(at, _)| at)
    }

    /// Removes one quorum deadline that has passed, and returns its connection.
    pub(crate) fn take_quorum_deadline(&mut self, now: Duration) -> Option<PendingConnectionId> {
        let &(at, id) = self.quorum_deadlines.first().filter(|(at, _)| *at <= now)?;
        self.quorum_deadlines.remove(&(at, id));
        self.pending.get_mut(&id)?.delivered.as_mut()?.quorum_timed_out = true;
        Some(id)
    }

    pub(crate) fn insert(&mut self, id: PendingConnectionId, pending: PendingConnection) {
        self.by_cookie.insert(*pending.cookie.as_bytes(), id);
        self.deadlines.insert((pending.deadline, id));
        self.pending.insert(id, pending);
    }

    pub(crate) fn remove(&mut self, id: PendingConnectionId) -> Option<PendingConnection> {
        let gone = self.pending.remove(&id)?;
        self.by_cookie.remove(gone.cookie.as_bytes());
        self.deadlines.remove(&(gone.deadline, id));
        if let Some(DeliveredList { list, quorum_deadline, .. }) = &gone.delivered {
            quorum_deadline.map(|at| self.quorum_deadlines.remove(&(at, id)));
            for peer in self.named_in(list).flatten().collect::<Vec<_>>() {
                if let Some(peer) = self.pending.get_mut(&peer) {
                    peer.named_by.remove(&id);
                }
            }
        }
        Some(gone)
    }

    /// The connections that a list names, in its order. `None` for those that are not in the table.
    fn named_in(&self, list: &CookieList) -> impl Iterator<Item = Option<PendingConnectionId>> {
        list.cookies().iter().map(|cookie| self.by_cookie.get(cookie.as_bytes()).copied())
    }

    /// Replaces a new list by an equal one that a connection that it names has delivered, if there
    /// is one. Of two equal lists each names the other's connection, so afterwards it is enough to
    /// check which lists are clones.
    pub(crate) fn shared_list(&self, new: CookieList) -> CookieList {
        let known = {
            let mut delivered = self.named_in(&new).flatten().filter_map(|peer| self.list(peer));
            delivered.find(|list| list.ct_matches(&new)).cloned()
        };
        known.unwrap_or(new)
    }

    /// The state of the connections that a list names.
    pub(crate) fn status(&self, list: &CookieList) -> CookieListStatus {
        let mut status = CookieListStatus::default();
        for named in self.named_in(list) {
            let pending = named.and_then(|id| self.get(id));
            let delivered = pending.map(|pending| pending.delivered.as_ref());
            let here = match delivered {
                None => {
                    status.not_waiting += 1;
                    None
                }
                Some(None) => {
                    status.awaited += 1;
                    None
                }
                Some(Some(theirs)) if theirs.list.is_clone_of(list) => {
                    status.timed_out += usize::from(theirs.quorum_timed_out);
                    named
                }
                Some(Some(_)) => {
                    status.disagreeing = status.disagreeing.or(named);
                    None
                }
            };
            status.delivered.push(here);
        }
        status
    }

    /// Stores a list that a connection has delivered. Returns the connections that have named this
    /// one in a different list.
    pub(crate) fn deliver(
        &mut self,
        id: PendingConnectionId,
        list: &CookieList,
        quorum_deadline: Option<Duration>,
    ) -> Vec<PendingConnectionId> {
        let others = self.named_in(list).flatten().filter(|&peer| peer != id);
        for peer in others.collect::<Vec<_>>() {
            if let Some(peer) = self.pending.get_mut(&peer) {
                peer.named_by.insert(id);
            }
        }
        let Some(own) = self.pending.get_mut(&id) else {
            return Vec::new();
        };
        own.delivered =
            Some(DeliveredList { list: list.clone(), quorum_deadline, quorum_timed_out: false });
        quorum_deadline.map(|at| self.quorum_deadlines.insert((at, id)));
        let named_by = self.pending[&id].named_by.iter().copied();
        let disagrees = |other| self.list(other).is_none_or(|theirs| !theirs.is_clone_of(list));
        named_by.filter(|&other| disagrees(other)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AssociationProtocol, AssociationTerms, SharingScheme};

    fn id(number: u8) -> PendingConnectionId {
        PendingConnectionId(number.into())
    }

    fn table_of(connections: u8) -> AssociationTable {
        let mut table = AssociationTable::default();
        for number in 0..connections {
            let pending = PendingConnection {
                cookie: ConnectionCookie::new([number; COOKIE_LEN]),
                deadline: Duration::ZERO,
                framer: AssociationFramer::new(0),
                delivered: None,
                named_by: BTreeSet::new(),
            };
            table.insert(id(number), pending);
        }
        table
    }

    fn list(cookies: &[u8]) -> CookieList {
        let n = u8::try_from(cookies.len()).unwrap();
        let terms =
            AssociationTerms::new(AssociationProtocol::MicssStream, SharingScheme::Xor, n, n, 0)
                .unwrap();
        let cookies = cookies.iter().map(|&number| ConnectionCookie::new([number; COOKIE_LEN]));
        CookieList::new(terms, cookies.collect()).unwrap()
    }

    /// Otherwise a peer that repeatedly opens, names a cookie and closes could fill the memory.
    #[test]
    fn a_removed_connection_leaves_no_trace() {
        let mut table = table_of(3);
        assert_eq!(table.deliver(id(1), &list(&[0, 1, 2]), Some(Duration::ZERO)), []);
        assert_eq!(table.get(id(0)).unwrap().named_by.len(), 1);
        assert!(table.get(id(1)).unwrap().named_by.is_empty());
        table.remove(id(1)).unwrap();
        assert!(table.get(id(0)).unwrap().named_by.is_empty());
        assert!(table.get(id(2)).unwrap().named_by.is_empty());
        assert_eq!(table.status(&list(&[0, 1])).not_waiting, 1);
        table.remove(id(0)).unwrap();
        table.remove(id(2)).unwrap();
        assert_eq!((table.len(), table.by_cookie.len()), (0, 0));
        assert_eq!((table.deadlines.len(), table.quorum_deadlines.len()), (0, 0));
    }
}
