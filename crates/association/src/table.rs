//! The server's table of connections that are not associated yet.
//!
//! It knows which connection has which cookie, and which lists name which connections, and keeps
//! the three views together: a connection that is removed is gone from all of them. Every step
//! costs a number of look-ups proportional to the length of the lists it touches, never to the
//! table's size.
//!
//! One rule holds throughout and everything rests on it: *if a connection has delivered a list, then
//! every connection that the list names is in the table, and has delivered the same list or none
//! yet.* Equal lists in the table are clones of one another.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use crate::framer::Framer;
use crate::message::{COOKIE_LEN, Cookie, List};
use crate::server::ConnectionId;

/// One connection that waits for its list, or for the others' of its list.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) cookie: Cookie,
    pub(crate) deadline: Duration,
    pub(crate) framer: Framer,
    pub(crate) list: Option<List>,
    /// The other connections whose delivered lists name this one.
    pub(crate) named_by: BTreeSet<ConnectionId>,
}

/// All pending connections.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pending: HashMap<ConnectionId, Pending>,
    /// Looked up with cookies that clients made up. The map's keyed hash keeps the time that takes
    /// from telling them how close they came.
    by_cookie: HashMap<[u8; COOKIE_LEN], ConnectionId>,
    deadlines: BTreeSet<(Duration, ConnectionId)>,
}

/// How a new list stands to those that its connections have delivered before.
pub(crate) enum Agreement {
    /// All that have delivered one delivered this. `list` is to be kept in place of the new one.
    Agrees { list: List, delivered: usize },
    /// This connection delivered another.
    Disagrees { peer: ConnectionId },
}

impl Table {
    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    pub(crate) fn contains(&self, id: ConnectionId) -> bool {
        self.pending.contains_key(&id)
    }

    pub(crate) fn has_cookie(&self, cookie: &Cookie) -> bool {
        self.by_cookie.contains_key(cookie.as_bytes())
    }

    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Pending> {
        self.pending.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Pending> {
        self.pending.get_mut(&id)
    }

    pub(crate) fn next_deadline(&self) -> Option<(Duration, ConnectionId)> {
        self.deadlines.first().copied()
    }

    pub(crate) fn insert(&mut self, id: ConnectionId, pending: Pending) {
        self.by_cookie.insert(*pending.cookie.as_bytes(), id);
        self.deadlines.insert((pending.deadline, id));
        self.pending.insert(id, pending);
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<Pending> {
        let gone = self.pending.remove(&id)?;
        self.by_cookie.remove(gone.cookie.as_bytes());
        self.deadlines.remove(&(gone.deadline, id));
        let named = gone.list.iter().flat_map(List::cookies);
        for cookie in named {
            if let Some(peer) = self.by_cookie.get(cookie.as_bytes())
                && let Some(peer) = self.pending.get_mut(peer)
            {
                peer.named_by.remove(&id);
            }
        }
        Some(gone)
    }

    /// The connections that a list names, in its order; `None` if one of them is not here.
    pub(crate) fn named_in(&self, list: &List) -> Option<Vec<ConnectionId>> {
        let named = list.cookies().iter();
        named.map(|cookie| self.by_cookie.get(cookie.as_bytes()).copied()).collect()
    }

    /// Compares a new list with those that the connections it names have delivered.
    ///
    /// Compares bytes once and then only asks which lists are clones: of two that agree, each names
    /// the other's connection, so the second to come was made a clone of the first.
    pub(crate) fn agreement(&self, new: List, named: &[ConnectionId]) -> Agreement {
        let mut list = new;
        let mut delivered = 0;
        for &peer in named {
            let Some(theirs) = self.get(peer).and_then(|pending| pending.list.as_ref()) else {
                continue;
            };
            let agrees =
                if delivered == 0 { theirs.matches(&list) } else { theirs.is_clone_of(&list) };
            if !agrees {
                return Agreement::Disagrees { peer };
            }
            list = theirs.clone();
            delivered += 1;
        }
        Agreement::Agrees { list, delivered }
    }

    /// Keeps a list that agrees, and gives back those who named `id` in a list that does not.
    pub(crate) fn deliver(
        &mut self,
        id: ConnectionId,
        list: &List,
        named: &[ConnectionId],
    ) -> Vec<ConnectionId> {
        for peer in named.iter().filter(|&&peer| peer != id) {
            if let Some(peer) = self.pending.get_mut(peer) {
                peer.named_by.insert(id);
            }
        }
        let Some(own) = self.pending.get_mut(&id) else {
            return Vec::new();
        };
        own.list = Some(list.clone());
        let named_by = self.pending[&id].named_by.iter().copied();
        named_by.filter(|&other| !self.has_clone_of(other, list)).collect()
    }

    fn has_clone_of(&self, id: ConnectionId, list: &List) -> bool {
        let theirs = self.get(id).and_then(|pending| pending.list.as_ref());
        theirs.is_some_and(|theirs| theirs.is_clone_of(list))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Protocol, Scheme, Terms};

    fn id(number: u8) -> ConnectionId {
        ConnectionId(number.into())
    }

    fn table_of(connections: u8) -> Table {
        let mut table = Table::default();
        for number in 0..connections {
            let pending = Pending {
                cookie: Cookie::new([number; COOKIE_LEN]),
                deadline: Duration::ZERO,
                framer: Framer::new(0),
                list: None,
                named_by: BTreeSet::new(),
            };
            table.insert(id(number), pending);
        }
        table
    }

    fn list(cookies: &[u8]) -> List {
        let n = u8::try_from(cookies.len()).unwrap();
        let terms = Terms::new(Protocol::MicssStream, Scheme::Xor, n, n, 0).unwrap();
        let cookies = cookies.iter().map(|&number| Cookie::new([number; COOKIE_LEN]));
        List::new(terms, cookies.collect()).unwrap()
    }

    /// Else whoever opens, names a cookie and closes, again and again, would fill the memory.
    #[test]
    fn a_removed_connection_leaves_no_trace() {
        let mut table = table_of(3);
        let named = table.named_in(&list(&[0, 1, 2])).unwrap();
        assert_eq!(table.deliver(id(1), &list(&[0, 1, 2]), &named), []);
        assert_eq!(table.get(id(0)).unwrap().named_by.len(), 1);
        assert!(table.get(id(1)).unwrap().named_by.is_empty());
        table.remove(id(1)).unwrap();
        assert!(table.get(id(0)).unwrap().named_by.is_empty());
        assert!(table.get(id(2)).unwrap().named_by.is_empty());
        assert_eq!(table.named_in(&list(&[0, 1])), None);
        table.remove(id(0)).unwrap();
        table.remove(id(2)).unwrap();
        assert_eq!((table.len(), table.by_cookie.len(), table.deadlines.len()), (0, 0, 0));
    }
}
