//! The connections of a server without an open stream, and their deadlines.
//!
//! A connection stays here until the request of its stream is verified. It is removed together with
//! those that its client's list names, or at its deadline, or when it is evicted: when there are
//! too many connections, the oldest of the largest source is.

use std::collections::{HashSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use association::{
    AssociationMessageError, AssociationMessageKind, AssociationOpenError, AssociationProtocol,
    AssociationServerEvent, AssociationTerms, ConnectionCookie, CookieList, HandshakeServer,
    HandshakeServerConfig, PendingConnectionId, Rejoin, ServerHandshakeAbort, SharingScheme,
    TermsPolicy,
};

use super::sources::SourceUsage;
use crate::protocol::incoming::LATE_CHANNEL_TIMEOUT;
use crate::protocol::options::{OPTION_NO_RECORDS, OPTION_REJOIN, OPTION_SINGLE_USE};

/// How long a connection may wait for its association. A client closes idle connections earlier, so
/// that it does not use one that the server is just closing.
const ASSOCIATION_TIMEOUT: Duration = Duration::from_secs(90);

/// The limits of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingConnectionLimits {
    /// The maximum number of connections without an open stream.
    pub(crate) max_waiting: usize,
    /// The minimum threshold of a stream.
    pub(crate) min_channels: u8,
    /// The maximum number of channels of a stream.
    pub(crate) max_channels: u8,
    /// Whether streams without records are allowed.
    pub(crate) allows_raw: bool,
}

impl PendingConnectionLimits {
    fn handshake(self) -> HandshakeServerConfig {
        let raw = if self.allows_raw { OPTION_NO_RECORDS } else { 0 };
        let policy = TermsPolicy {
            protocols: vec![AssociationProtocol::MicssStream],
            schemes: vec![SharingScheme::Xor, SharingScheme::Shamir],
            min_threshold: self.min_channels,
            max_channels: self.max_channels,
            options: raw | OPTION_SINGLE_USE | OPTION_REJOIN,
        };
        HandshakeServerConfig {
            max_pending: self.max_waiting,
            timeout: ASSOCIATION_TIMEOUT,
            quorum_timeout: Some(LATE_CHANNEL_TIMEOUT),
            policy,
        }
    }
}

/// What happens to connections.
#[derive(Debug)]
pub(crate) enum PendingConnectionEvent {
    /// These connections form an association, by their channels' indices, and stay in the table.
    /// Connections that were not waited for are missing.
    Associated {
        /// The list of their cookies, which both ends know.
        list: CookieList,
        /// The connections.
        connections: Vec<Option<PendingConnectionId>>,
    },
    /// A connection asks to replace a channel's in an open stream. It stays in the table.
    Rejoin {
        /// The connection.
        id: PendingConnectionId,
        /// Its cookie.
        cookie: ConnectionCookie,
        /// The client's request, which is not verified.
        rejoin: Rejoin,
    },
    /// A connection was removed, and must be closed.
    Closed {
        /// The connection.
        id: PendingConnectionId,
        /// Its source.
        source: Option<IpAddr>,
        /// The reason.
        reason: PendingCloseReason,
    },
}

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingCloseReason {
    /// It was evicted.
    Evicted,
    /// Its client requests terms that the server rejects.
    Terms,
    /// It was not associated for another reason.
    NotAssociated(ServerHandshakeAbort),
}

/// The connections that have no open stream.
pub(crate) struct PendingConnectionTable {
    handshakes: HandshakeServer,
    /// By source.
    sources: SourceUsage,
    max_waiting: usize,
    /// The connections that are associated.
    associated: HashSet<PendingConnectionId>,
    next_id: u64,
    counts: PendingConnectionCounts,
    events: VecDeque<PendingConnectionEvent>,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PendingConnectionCounts {
    /// Connections that were evicted.
    pub(crate) evicted: u64,
    /// Those of them that were associated: their streams' requests were not verified yet.
    pub(crate) unopened_evicted: u64,
    /// Lists whose clients request terms that the server rejects.
    pub(crate) terms_rejected: u64,
}

impl PendingConnectionTable {
    /// An empty table.
    pub(crate) fn new(limits: PendingConnectionLimits) -> Self {
        Self {
            handshakes: HandshakeServer::new(limits.handshake()),
            sources: SourceUsage::default(),
            max_waiting: limits.max_waiting,
            associated: HashSet::new(),
            next_id: 0,
            counts: PendingConnectionCounts::default(),
            events: VecDeque::new(),
        }
    }

    /// Changes the limits. Waiting connections keep their deadlines.
    pub(crate) fn reconfigure(&mut self, limits: PendingConnectionLimits) {
        self.handshakes.reconfigure(limits.handshake());
        self.max_waiting = limits.max_waiting;
    }

    /// Adds a connection of a source, to which the caller sends this cookie. May evict others if
    /// there are too many.
    ///
    /// # Errors
    /// If the connection is not added. The caller must close it.
    pub(crate) fn open(
        &mut self,
        cookie: ConnectionCookie,
        source: IpAddr,
        now: Duration,
    ) -> Result<PendingConnectionId, AssociationOpenError> {
        let id = PendingConnectionId(self.next_id);
        self.sources.take(id.0, source, 1);
        self.evict_excess();
        let opened = self.handshakes.open(id, cookie, now);
        match opened {
            Ok(()) => self.next_id += 1,
            Err(_) => self.sources.remove(id.0),
        }
        self.take_events();
        opened.map(|()| id)
    }

    /// Handles received bytes. Returns those that belong to the connection's stream: all of them,
    /// if it no longer waits for its association.
    pub(crate) fn handle_bytes<'a>(
        &mut self,
        id: PendingConnectionId,
        bytes: &'a [u8],
        now: Duration,
    ) -> &'a [u8] {
        let rest = self.handshakes.handle_bytes(id, bytes, now).unwrap_or(bytes);
        self.take_events();
        rest
    }

    /// Records that a connection was closed or broke. It stays in the table until it is
    /// [removed](Self::remove): it may have been associated already.
    pub(crate) fn handle_closed(&mut self, id: PendingConnectionId) {
        self.handshakes.handle_closed(id);
        self.take_events();
    }

    /// Removes a connection.
    pub(crate) fn remove(&mut self, id: PendingConnectionId) {
        self.forget(id);
        // It may have left the handshake before; then this changes nothing there.
        self.handshakes.handle_closed(id);
        self.take_events();
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due for a connection, if it waits for its
    /// association.
    pub(crate) fn connection_timeout(&self, id: PendingConnectionId) -> Option<Duration> {
        self.handshakes.connection_timeout(id)
    }

    /// Removes the connections whose deadline has passed, and associates those whose quorum has
    /// waited long enough for the others.
    pub(crate) fn handle_timeout(&mut self, now: Duration) {
        self.handshakes.handle_timeout(now);
        self.take_events();
    }

    /// The next event.
    pub(crate) fn poll_event(&mut self) -> Option<PendingConnectionEvent> {
        self.events.pop_front()
    }

    /// The maximum number of connections.
    pub(crate) fn max_waiting(&self) -> usize {
        self.max_waiting
    }

    /// The number of connections, and the counts.
    pub(crate) fn counts(&self) -> (u64, PendingConnectionCounts) {
        (self.sources.total(), self.counts)
    }

    fn take_events(&mut self) {
        while let Some(event) = self.handshakes.poll_event() {
            match event {
                // The caller has sent the cookie, and the stream sends the Confirm.
                AssociationServerEvent::Transmit { .. } => {}
                AssociationServerEvent::Associated { list, connections }
                    if lacks_integrity(list.terms()) =>
                {
                    self.counts.terms_rejected += 1;
                    for (place, id) in connections.into_iter().flatten().enumerate() {
                        // Counted and logged once.
                        let others = PendingCloseReason::NotAssociated(ServerHandshakeAbort::Terms);
                        self.close(id, if place == 0 { PendingCloseReason::Terms } else { others });
                    }
                }
                AssociationServerEvent::Associated { list, connections } => {
                    self.associated.extend(connections.iter().flatten());
                    self.events.push_back(PendingConnectionEvent::Associated { list, connections });
                }
                AssociationServerEvent::Rejoin { id, cookie, rejoin } => {
                    self.associated.insert(id);
                    self.events.push_back(PendingConnectionEvent::Rejoin { id, cookie, rejoin });
                }
                // It was evicted before.
                AssociationServerEvent::Aborted { id, .. }
                    if self.sources.source(id.0).is_none() => {}
                AssociationServerEvent::Aborted { id, reason } if is_terms_error(reason) => {
                    self.counts.terms_rejected += 1;
                    self.close(id, PendingCloseReason::Terms);
                }
                AssociationServerEvent::Aborted { id, reason } => {
                    self.close(id, PendingCloseReason::NotAssociated(reason));
                }
            }
        }
    }

    /// While there are too many connections, closes the oldest of the largest source.
    fn evict_excess(&mut self) {
        while self.sources.total() > self.max_waiting as u64 {
            let Some(oldest) = self.sources.oldest_of_largest() else { return };
            let id = PendingConnectionId(oldest);
            self.counts.evicted += 1;
            self.counts.unopened_evicted += u64::from(self.associated.contains(&id));
            self.close(id, PendingCloseReason::Evicted);
            self.handshakes.handle_closed(id);
        }
    }

    /// Removes a connection and reports it.
    fn close(&mut self, id: PendingConnectionId, reason: PendingCloseReason) {
        let source = self.sources.source(id.0);
        self.forget(id);
        self.events.push_back(PendingConnectionEvent::Closed { id, source, reason });
    }

    fn forget(&mut self, id: PendingConnectionId) {
        self.sources.remove(id.0);
        self.associated.remove(&id);
    }
}

/// Whether a stream could lose channels, but not identify those with changed bytes.
fn lacks_integrity(terms: AssociationTerms) -> bool {
    terms.threshold() < terms.channels() && terms.options() & OPTION_NO_RECORDS != 0
}

/// Whether a connection was removed because of its client's terms. A list of more channels than
/// allowed is not even parsed.
fn is_terms_error(reason: ServerHandshakeAbort) -> bool {
    let too_long = |error| {
        matches!(
            error,
            AssociationMessageError::BodyLength { kind: AssociationMessageKind::List, .. }
        )
    };
    match reason {
        ServerHandshakeAbort::Terms => true,
        ServerHandshakeAbort::Message(error) => too_long(error),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use association::AssociationMessage;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn table(max_waiting: usize) -> PendingConnectionTable {
        PendingConnectionTable::new(PendingConnectionLimits {
            max_waiting,
            min_channels: 2,
            max_channels: 3,
            allows_raw: true,
        })
    }

    fn cookie(byte: u8) -> ConnectionCookie {
        ConnectionCookie::new([byte; 16])
    }

    fn source(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn list(scheme: SharingScheme, k: u8, bytes: &[u8], options: u32) -> Vec<u8> {
        let n = u8::try_from(bytes.len()).unwrap();
        let terms =
            AssociationTerms::new(AssociationProtocol::MicssStream, scheme, k, n, options).unwrap();
        let cookies = bytes.iter().map(|byte| cookie(*byte)).collect();
        AssociationMessage::List(CookieList::new(terms, cookies).unwrap()).encode()
    }

    fn closed(table: &mut PendingConnectionTable) -> Vec<(u64, PendingCloseReason)> {
        let events = std::iter::from_fn(|| table.poll_event());
        let closed = events.filter_map(|event| match event {
            PendingConnectionEvent::Closed { id, reason, .. } => Some((id.0, reason)),
            PendingConnectionEvent::Associated { .. } | PendingConnectionEvent::Rejoin { .. } => {
                None
            }
        });
        closed.collect()
    }

    #[test]
    fn the_oldest_of_the_largest_source_makes_room() {
        let mut table = table(3);
        for byte in 0..3 {
            table.open(cookie(byte), source(1), Duration::ZERO).unwrap();
        }
        table.open(cookie(3), source(2), Duration::ZERO).unwrap();
        assert_eq!(closed(&mut table), [(0, PendingCloseReason::Evicted)]);
        let list = list(SharingScheme::Xor, 2, &[1, 2], 0);
        for id in [1, 2] {
            table.handle_bytes(PendingConnectionId(id), &list, SECOND);
        }
        assert!(matches!(table.poll_event(), Some(PendingConnectionEvent::Associated { .. })));
        // Those of a stream that has not opened stay.
        table.open(cookie(4), source(3), SECOND).unwrap();
        assert_eq!(closed(&mut table), [(1, PendingCloseReason::Evicted)]);
        let (waiting, counts) = table.counts();
        assert_eq!((waiting, counts.evicted, counts.unopened_evicted), (3, 2, 1));
        for id in 2..5 {
            table.remove(PendingConnectionId(id));
        }
        assert_eq!(table.counts().0, 0);
    }

    #[test]
    fn a_connection_waits_for_90_s_and_for_others_that_it_can_do_without_for_2_s() {
        let mut table = table(8);
        let ids = [0, 1, 2].map(|byte| table.open(cookie(byte), source(1), SECOND).unwrap());
        let list = list(SharingScheme::Shamir, 2, &[0, 1, 2], 0);
        assert_eq!(table.connection_timeout(ids[0]), Some(91 * SECOND));
        for id in &ids[..2] {
            assert!(table.handle_bytes(*id, &list, 3 * SECOND).is_empty());
            assert_eq!(table.connection_timeout(*id), Some(5 * SECOND));
        }
        table.handle_timeout(5 * SECOND);
        let Some(PendingConnectionEvent::Associated { connections, .. }) = table.poll_event()
        else {
            panic!("two are enough");
        };
        assert_eq!(connections, [Some(ids[0]), Some(ids[1]), None]);
        assert_eq!(table.handle_bytes(ids[0], b"stream", 6 * SECOND), b"stream");
        table.handle_timeout(91 * SECOND);
        let timed_out = PendingCloseReason::NotAssociated(ServerHandshakeAbort::TimedOut);
        assert_eq!(closed(&mut table), [(ids[2].0, timed_out)]);
    }

    #[test]
    fn rejected_terms_are_counted() {
        let mut table = table(8);
        let too_few = list(SharingScheme::Xor, 1, &[0], 0);
        let no_integrity = list(SharingScheme::Shamir, 2, &[1, 2, 3], OPTION_NO_RECORDS);
        let ids = [0, 1, 2, 3].map(|byte| table.open(cookie(byte), source(1), SECOND).unwrap());
        table.handle_bytes(ids[0], &too_few, SECOND);
        for id in &ids[1..] {
            table.handle_bytes(*id, &no_integrity, SECOND);
        }
        let closed = closed(&mut table);
        let others = PendingCloseReason::NotAssociated(ServerHandshakeAbort::Terms);
        let expected = [
            (0, PendingCloseReason::Terms),
            (1, PendingCloseReason::Terms),
            (2, others),
            (3, others),
        ];
        assert_eq!(closed, expected);
        assert_eq!(table.counts().1.terms_rejected, 2);
        assert_eq!(table.counts().0, 0);
    }
}
