//! A queue of questions of servers that request a signature: for partial signatures by an RSA key,
//! or for commitments and shares by an Ed25519 key. It is round-robin among servers, so that a
//! server with many questions delays others by at most one computation.

use std::collections::{BTreeMap, VecDeque};

use super::answer_query::AnswerQuery;
use super::output::PartialSignRequester;
use crate::protocol::combination::ServerIndex;

/// The largest number of one server's requests that wait or are being computed: twice the number
/// that a server runs at a time, because each may ask for two sets of signers.
const MAX_PER_REQUESTER: usize = 64;

/// The largest number of message bytes that wait for one server, besides one message.
const MAX_BYTES: usize = 4 << 20;

/// Too many requests wait.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SignQueryQueueFull;

/// A question that waits.
pub(super) trait QueuedSignQuery {
    /// How many bytes of its message it keeps.
    fn len(&self) -> usize;
}

impl QueuedSignQuery for AnswerQuery {
    fn len(&self) -> usize {
        self.message().len()
    }
}

/// The waiting questions.
pub(super) struct SignQueryQueue<Q> {
    askers: BTreeMap<ServerIndex, RequesterQueue<Q>>,
    /// The server whose turn is next.
    next: u8,
    computing: usize,
}

struct RequesterQueue<Q> {
    waiting: VecDeque<(PartialSignRequester, Q)>,
    bytes: usize,
    computing: usize,
}

impl<Q> Default for SignQueryQueue<Q> {
    fn default() -> Self {
        Self { askers: BTreeMap::new(), next: 0, computing: 0 }
    }
}

impl<Q> Default for RequesterQueue<Q> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), bytes: 0, computing: 0 }
    }
}

impl<Q: QueuedSignQuery> SignQueryQueue<Q> {
    /// Whether no more requests of a server are taken now.
    pub(super) fn is_full(&self, index: ServerIndex) -> bool {
        self.askers.get(&index).is_some_and(|of_one| {
            let count = of_one.waiting.len() + of_one.computing;
            count >= MAX_PER_REQUESTER || of_one.bytes > MAX_BYTES
        })
    }

    /// Queues a request.
    pub(super) fn push(
        &mut self,
        asker: PartialSignRequester,
        query: Q,
    ) -> Result<(), SignQueryQueueFull> {
        if self.is_full(asker.index) {
            return Err(SignQueryQueueFull);
        }
        let of_one = self.askers.entry(asker.index).or_default();
        of_one.bytes += query.len();
        of_one.waiting.push_back((asker, query));
        Ok(())
    }

    /// The next request to compute, if fewer than `processors` are being computed.
    pub(super) fn begin(&mut self, processors: usize) -> Option<(PartialSignRequester, Q)> {
        if self.computing >= processors {
            return None;
        }
        let waits = |(index, of_one): (&ServerIndex, &RequesterQueue<Q>)| {
            (!of_one.waiting.is_empty()).then_some(*index)
        };
        let later = self.askers.range(ServerIndex(self.next)..).find_map(waits);
        let index = later.or_else(|| self.askers.iter().find_map(waits))?;
        self.next = index.0.wrapping_add(1);
        let of_one = self.askers.get_mut(&index)?;
        let (asker, query) = of_one.waiting.pop_front()?;
        of_one.bytes -= query.len();
        of_one.computing += 1;
        self.computing += 1;
        Some((asker, query))
    }

    /// A computation for a server has finished.
    pub(super) fn end(&mut self, index: ServerIndex) {
        self.computing -= 1;
        if let Some(of_one) = self.askers.get_mut(&index) {
            of_one.computing = of_one.computing.saturating_sub(1);
        }
    }

    /// Whether no request waits.
    pub(super) fn is_empty(&self) -> bool {
        self.askers.values().all(|of_one| of_one.waiting.is_empty())
    }

    /// Drops all waiting requests, because another epoch has begun.
    pub(super) fn clear(&mut self) {
        self.askers.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keys::rsa::RsaEncoding;

    use crate::protocol::signing::PartQuery;

    fn query(len: usize) -> AnswerQuery {
        AnswerQuery::Polynomial(PartQuery {
            epoch: 1,
            with_proof: false,
            encoding: RsaEncoding::Pkcs1,
            message: vec![7; len].into(),
        })
    }

    fn asker(index: u8, request: u64) -> PartialSignRequester {
        PartialSignRequester { index: ServerIndex(index), request }
    }

    #[test]
    fn sign_query_queue_is_round_robin() {
        let mut answering = SignQueryQueue::default();
        (0..50).for_each(|request| answering.push(asker(0, request), query(9)).unwrap());
        answering.push(asker(1, 7), query(9)).unwrap();
        answering.push(asker(2, 8), query(9)).unwrap();
        let mut order = Vec::new();
        while let Some((asker, _)) = answering.begin(2) {
            order.push(asker.index.0);
            if order.len() % 2 == 0 {
                order[order.len() - 2..].iter().for_each(|&it| answering.end(ServerIndex(it)));
            }
        }
        assert_eq!(order[..5], [0, 1, 2, 0, 0]);
        assert_eq!(order.len(), 52);
    }

    #[test]
    fn sign_query_queue_of_one_server_is_bounded() {
        let mut answering = SignQueryQueue::default();
        let taken = (0..1_000).filter(|&it| answering.push(asker(0, it), query(1 << 20)).is_ok());
        assert_eq!(taken.count(), 5);
        let taken = (0..1_000).filter(|&it| answering.push(asker(1, it), query(10)).is_ok());
        assert_eq!(taken.count(), MAX_PER_REQUESTER);
        // A request counts while it is being computed.
        assert_eq!(answering.begin(1).unwrap().0.index, ServerIndex(0));
        assert_eq!(answering.begin(2).unwrap().0.index, ServerIndex(1));
        assert!(answering.begin(2).is_none());
        assert!(answering.is_full(ServerIndex(1)) && !answering.is_full(ServerIndex(2)));
        assert_eq!(answering.push(asker(1, 0), query(10)), Err(SignQueryQueueFull));
        answering.end(ServerIndex(1));
        answering.push(asker(1, 0), query(10)).unwrap();
    }
}
