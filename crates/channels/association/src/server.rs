//! The server's end: it gives every connection a cookie, and associates connections whose lists
//! agree.
//!
//! If a list names cookies that the server did not give this client, only this client loses its
//! connection; other clients are not affected. The configuration bounds the memory. Every
//! connection leaves the table by its deadline, associated or aborted.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use thiserror::Error;

use crate::framer::AssociationFramer;
use crate::message::{
    AssociationMessage, AssociationMessageError, AssociationMessageKind, ConnectionCookie,
    CookieList, list_body_len,
};
use crate::rejoin::Rejoin;
use crate::table::{AssociationTable, PendingConnection, PendingConnectionId};
use crate::terms::{AssociationProtocol, AssociationTerms, SharingScheme};

/// Which terms a server agrees to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TermsPolicy {
    /// The protocols that it supports.
    pub protocols: Vec<AssociationProtocol>,
    /// The sharing schemes that it supports.
    pub schemes: Vec<SharingScheme>,
    /// The smallest threshold k that it accepts. With 1, any single channel reveals all secrets.
    pub min_threshold: u8,
    /// The largest number of channels n that it accepts. It bounds the memory and work for one
    /// list.
    pub max_channels: u8,
    /// The option bits that it supports; no others may be set.
    pub options: u32,
}

impl TermsPolicy {
    fn includes(&self, terms: AssociationTerms) -> bool {
        self.protocols.contains(&terms.protocol())
            && self.schemes.contains(&terms.scheme())
            && terms.threshold() >= self.min_threshold
            && terms.channels() <= self.max_channels
            && terms.options() & !self.options == 0
    }

    /// Whether a connection may replace a channel's in an association: only over streams, and only
    /// before it has delivered a list.
    fn may_rejoin(&self, own: &PendingConnection) -> bool {
        self.protocols.contains(&AssociationProtocol::MicssStream) && own.delivered.is_none()
    }
}

/// The configuration of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandshakeServerConfig {
    /// The largest number of connections that may wait at a time.
    pub max_pending: usize,
    /// How long a connection may wait.
    pub timeout: Duration,
    /// How long a [quorum](AssociationTerms::quorum) of connections with the same list waits for
    /// the others in the list. `None`: until their deadline, and all are required.
    pub quorum_timeout: Option<Duration>,
    /// The terms that it accepts.
    pub policy: TermsPolicy,
}

/// Why a connection was not added to the table. The caller must close it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AssociationOpenError {
    /// The largest number of connections is waiting.
    #[error("{max_pending} connections are already waiting to be associated")]
    TableFull {
        /// The limit in the configuration.
        max_pending: usize,
    },
    /// Another connection has this identifier.
    #[error("connection {0:?} is already waiting to be associated")]
    IdInUse(PendingConnectionId),
    /// Another connection has this cookie, so it was not drawn at random.
    #[error("the cookie is already in use")]
    CookieInUse,
}

/// The connection is not in the table: it was never opened, or an event has already reported that
/// it was associated, rejoined or aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("connection {0:?} is not waiting to be associated")]
pub struct NotPendingError(pub PendingConnectionId);

/// Why the server aborted a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ServerHandshakeAbort {
    /// Its bytes are not a message.
    #[error(transparent)]
    Message(#[from] AssociationMessageError),
    /// A message that only a server sends.
    #[error("unexpected {0:?}")]
    Unexpected(AssociationMessageKind),
    /// Its list changed between two datagrams.
    #[error("a second, different list")]
    ChangedList,
    /// The server does not accept the terms.
    #[error("the terms are not acceptable")]
    Terms,
    /// Its list does not contain its own cookie.
    #[error("the list does not name the connection it came on")]
    NotNamed,
    /// Its list names cookies that belong to no waiting connection.
    #[error("the list names cookies that no waiting connection has")]
    UnknownCookie,
    /// A connection that its list names delivered another list.
    #[error("connection {peer:?}, named in the list, has another list")]
    PeerDisagrees {
        /// That connection.
        peer: PendingConnectionId,
    },
    /// A connection that its list names was aborted.
    #[error("connection {peer:?}, named in the list, is gone")]
    PeerGone {
        /// That connection.
        peer: PendingConnectionId,
    },
    /// It was closed or broke.
    #[error("closed during the handshake")]
    Closed,
    /// Its deadline passed.
    #[error("the handshake took too long")]
    TimedOut,
}

/// The caller's next action. Handle events in order.
#[derive(Clone, Debug)]
pub enum AssociationServerEvent {
    /// Send this on this connection.
    Transmit {
        /// The connection.
        id: PendingConnectionId,
        /// The message.
        message: AssociationMessage,
    },
    /// These connections now belong to the transport; their confirms are in the events before this.
    Associated {
        /// The list that both ends have.
        list: CookieList,
        /// The connections, in the client's channel order. Those that the quorum did not wait for
        /// are missing.
        connections: Vec<Option<PendingConnectionId>>,
    },
    /// This connection asks to replace a channel's in an association. The transport looks up the
    /// association and verifies the proof. The connection is no longer in the table. Only for MICSS
    /// streams.
    Rejoin {
        /// The connection.
        id: PendingConnectionId,
        /// Its cookie.
        cookie: ConnectionCookie,
        /// The client's request.
        rejoin: Rejoin,
    },
    /// Close this connection. No more events name it.
    Aborted {
        /// The connection.
        id: PendingConnectionId,
        /// The reason.
        reason: ServerHandshakeAbort,
    },
}

/// The server's end of all its handshakes.
#[derive(Debug)]
pub struct HandshakeServer {
    config: HandshakeServerConfig,
    table: AssociationTable,
    events: VecDeque<AssociationServerEvent>,
}

impl HandshakeServer {
    /// A server with no connections.
    pub fn new(config: HandshakeServerConfig) -> Self {
        Self { config, table: AssociationTable::default(), events: VecDeque::new() }
    }

    /// Applies a new configuration from now on. Waiting connections keep their deadlines, and lists
    /// that were accepted stay accepted.
    pub fn reconfigure(&mut self, config: HandshakeServerConfig) {
        self.config = config;
    }

    /// Adds a new connection and sends it `cookie`, which must be fresh random bytes.
    ///
    /// # Errors
    /// If the table is full, or already contains the identifier or cookie. Then nothing has
    /// changed.
    pub fn open(
        &mut self,
        id: PendingConnectionId,
        cookie: ConnectionCookie,
        now: Duration,
    ) -> Result<(), AssociationOpenError> {
        self.handle_timeout(now);
        self.check_open(id, &cookie)?;
        let pending = PendingConnection {
            cookie,
            deadline: now.saturating_add(self.config.timeout),
            framer: AssociationFramer::new(list_body_len(self.config.policy.max_channels)),
            delivered: None,
            named_by: BTreeSet::new(),
        };
        self.table.insert(id, pending);
        let message = AssociationMessage::Cookie(cookie);
        self.events.push_back(AssociationServerEvent::Transmit { id, message });
        Ok(())
    }

    /// Handles bytes received on a connection that is a stream. Returns those that belong to the
    /// transport: a client may send them as soon as it has sent its list.
    ///
    /// They are not stored here: the caller keeps them for the association, and should not read
    /// more from the connection before it is associated.
    ///
    /// # Errors
    /// If the connection is not waiting. The events report why: if it was associated, the bytes
    /// belong to the transport.
    pub fn handle_bytes<'a>(
        &mut self,
        id: PendingConnectionId,
        bytes: &'a [u8],
        now: Duration,
    ) -> Result<&'a [u8], NotPendingError> {
        self.handle_timeout(now);
        let pending = self.table.get_mut(id).ok_or(NotPendingError(id))?;
        if pending.delivered.is_some() {
            return Ok(bytes);
        }
        match pending.framer.push(bytes) {
            Ok((None, rest)) => Ok(rest),
            Ok((Some(message), rest)) => {
                self.handle_parsed(id, message, now);
                Ok(rest)
            }
            Err(reason) => {
                self.abort(id, reason.into());
                Ok(&[])
            }
        }
    }

    /// Handles a whole message on a connection that may repeat messages but not change them.
    ///
    /// # Errors
    /// If the connection is not waiting. If a confirmation over datagrams is lost, the client
    /// retransmits its list after the association; the caller must then retransmit the
    /// confirmation.
    pub fn handle_message(
        &mut self,
        id: PendingConnectionId,
        message: &AssociationMessage,
        now: Duration,
    ) -> Result<(), NotPendingError> {
        self.handle_timeout(now);
        if !self.table.contains(id) {
            return Err(NotPendingError(id));
        }
        self.handle_parsed(id, message.clone(), now);
        Ok(())
    }

    /// Reports that a connection was closed or broke. If it is not waiting, the transport handles
    /// this instead.
    pub fn handle_closed(&mut self, id: PendingConnectionId) {
        self.abort(id, ServerHandshakeAbort::Closed);
    }

    /// Aborts the connections whose deadline has passed, and associates those whose quorum has
    /// waited long enough.
    pub fn handle_timeout(&mut self, now: Duration) {
        while let Some(id) = self.table.take_quorum_deadline(now) {
            self.associate_if_ready(id);
        }
        while let Some((deadline, id)) = self.table.next_deadline()
            && deadline <= now
        {
            self.abort(id, ServerHandshakeAbort::TimedOut);
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) next.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let deadline = self.table.next_deadline().map(|(deadline, _)| deadline);
        deadline.into_iter().chain(self.table.next_quorum_deadline()).min()
    }

    /// The next event. Call it until it returns `None`.
    pub fn poll_event(&mut self) -> Option<AssociationServerEvent> {
        self.events.pop_front()
    }

    /// The last message that this connection has not answered yet.
    ///
    /// Over datagrams, the caller retransmits it after a timeout. Over streams it is not needed.
    pub fn unanswered_message(&self, id: PendingConnectionId) -> Option<AssociationMessage> {
        let pending = self.table.get(id)?;
        pending.delivered.is_none().then_some(AssociationMessage::Cookie(pending.cookie))
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) next for this connection, if it is
    /// waiting.
    pub fn connection_timeout(&self, id: PendingConnectionId) -> Option<Duration> {
        let pending = self.table.get(id)?;
        let awaiting = pending.delivered.as_ref().filter(|delivered| !delivered.quorum_timed_out);
        let quorum_deadline = awaiting.and_then(|delivered| delivered.quorum_deadline);
        Some(quorum_deadline.map_or(pending.deadline, |quorum| quorum.min(pending.deadline)))
    }

    /// The number of waiting connections.
    pub fn pending(&self) -> usize {
        self.table.len()
    }

    fn check_open(
        &self,
        id: PendingConnectionId,
        cookie: &ConnectionCookie,
    ) -> Result<(), AssociationOpenError> {
        let max_pending = self.config.max_pending;
        if self.table.len() >= max_pending {
            return Err(AssociationOpenError::TableFull { max_pending });
        }
        if self.table.contains(id) {
            return Err(AssociationOpenError::IdInUse(id));
        }
        if self.table.has_cookie(cookie) {
            return Err(AssociationOpenError::CookieInUse);
        }
        Ok(())
    }

    fn handle_parsed(
        &mut self,
        id: PendingConnectionId,
        message: AssociationMessage,
        now: Duration,
    ) {
        if let Err(reason) = self.read_message(id, message, now) {
            self.abort(id, reason);
        }
    }

    fn read_message(
        &mut self,
        id: PendingConnectionId,
        message: AssociationMessage,
        now: Duration,
    ) -> Result<(), ServerHandshakeAbort> {
        let Some(pending) = self.table.get(id) else {
            return Ok(());
        };
        let list = match message {
            AssociationMessage::List(list) => list,
            AssociationMessage::Rejoin(rejoin) if self.config.policy.may_rejoin(pending) => {
                let cookie = pending.cookie;
                self.events.push_back(AssociationServerEvent::Rejoin { id, cookie, rejoin });
                self.remove(id, None);
                return Ok(());
            }
            other => return Err(ServerHandshakeAbort::Unexpected(other.kind())),
        };
        match &pending.delivered {
            Some(known) if known.list.ct_matches(&list) => Ok(()),
            Some(_) => Err(ServerHandshakeAbort::ChangedList),
            None => {
                self.check_list(pending, &list)?;
                self.read_list(id, list, now)
            }
        }
    }

    /// Checks a list without looking at other connections.
    fn check_list(
        &self,
        own: &PendingConnection,
        list: &CookieList,
    ) -> Result<(), ServerHandshakeAbort> {
        if !self.config.policy.includes(list.terms()) {
            return Err(ServerHandshakeAbort::Terms);
        }
        // Cookies in a list are distinct, so its own cookie occurs exactly once.
        list.position(&own.cookie).map(|_| ()).ok_or(ServerHandshakeAbort::NotNamed)
    }

    fn read_list(
        &mut self,
        id: PendingConnectionId,
        list: CookieList,
        now: Duration,
    ) -> Result<(), ServerHandshakeAbort> {
        let list = self.table.shared_list(list);
        self.check_others(&list)?;
        let needs_all = self.needed(list.terms()) == list.cookies().len();
        let timeout = self.config.quorum_timeout.filter(|_| !needs_all);
        let deadline = timeout.map(|timeout| now.saturating_add(timeout));
        for other in self.table.deliver(id, &list, deadline) {
            if self.can_complete(other) {
                self.associate_if_ready(other);
            } else {
                self.abort(other, ServerHandshakeAbort::PeerDisagrees { peer: id });
            }
        }
        self.associate_if_ready(id);
        Ok(())
    }

    /// How many connections must have delivered the same list.
    fn needed(&self, terms: AssociationTerms) -> usize {
        let may_be_fewer = self.config.quorum_timeout.is_some();
        usize::from(if may_be_fewer { terms.quorum() } else { terms.channels() })
    }

    /// Checks that enough of the connections that a list names can still deliver it.
    fn check_others(&self, list: &CookieList) -> Result<(), ServerHandshakeAbort> {
        let (needed, status) = (self.needed(list.terms()), self.table.status(list));
        if status.delivered.len() - status.not_waiting < needed {
            return Err(ServerHandshakeAbort::UnknownCookie);
        }
        match status.disagreeing {
            Some(peer) if status.max_deliveries() < needed => {
                Err(ServerHandshakeAbort::PeerDisagrees { peer })
            }
            _ => Ok(()),
        }
    }

    /// Whether enough of the connections can still deliver the list of this one.
    fn can_complete(&self, id: PendingConnectionId) -> bool {
        self.table.list(id).is_some_and(|list| self.check_others(list).is_ok())
    }

    /// Associates a connection with those that have delivered the same list, if no other connection
    /// can still deliver it, or if enough have waited for the others.
    fn associate_if_ready(&mut self, id: PendingConnectionId) {
        let Some(list) = self.table.list(id).cloned() else { return };
        let (needed, status) = (self.needed(list.terms()), self.table.status(&list));
        let is_complete = status.awaited == 0 && status.delivered_count() >= needed;
        if is_complete || status.timed_out >= needed {
            self.associate(list, status.delivered);
        }
    }

    fn associate(&mut self, list: CookieList, connections: Vec<Option<PendingConnectionId>>) {
        for &id in connections.iter().flatten() {
            self.table.remove(id);
            let message = AssociationMessage::Confirm(list.clone());
            self.events.push_back(AssociationServerEvent::Transmit { id, message });
        }
        self.events.push_back(AssociationServerEvent::Associated { list, connections });
    }

    /// Aborts a connection, and with it those whose lists cannot complete without it.
    fn abort(&mut self, id: PendingConnectionId, reason: ServerHandshakeAbort) {
        self.remove(id, Some(reason));
    }

    /// Removes a connection like [`Self::abort`], but without an event for it if there is no
    /// reason.
    fn remove(&mut self, id: PendingConnectionId, reason: Option<ServerHandshakeAbort>) {
        let mut aborting = VecDeque::from([(id, reason)]);
        let mut affected = Vec::new();
        while let Some((id, reason)) = aborting.pop_front() {
            let Some(gone) = self.table.remove(id) else {
                continue;
            };
            for other in gone.named_by {
                if self.can_complete(other) {
                    affected.push(other);
                } else {
                    aborting.push_back((other, Some(ServerHandshakeAbort::PeerGone { peer: id })));
                }
            }
            let aborted = reason.map(|reason| AssociationServerEvent::Aborted { id, reason });
            self.events.extend(aborted);
        }
        for other in affected {
            self.associate_if_ready(other);
        }
    }
}
