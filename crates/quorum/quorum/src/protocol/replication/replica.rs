//! The state machine at one server: the commands that it has applied, the snapshots that others may
//! need, and the answers that it helps to sign.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use keys::IdentityPublicKey;

use super::statement::ServiceStatementBody;
use super::{
    MAX_ANSWER_LEN, MAX_STATE_LEN, NONCE_LEN, ReplicatedService, ServiceAnswer, ServiceStatement,
    StateMachine, request_digest,
};
use crate::protocol::log_types::Height;
use crate::protocol::wire::Sha256Digest;

/// How many answers to the requests of one server are kept. Its correct program has fewer under
/// way.
const MAX_ANSWERS: usize = 256;

/// Whether a statement may be signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatementTruth {
    /// This server knows that it is true.
    True,
    /// This server does not know it, because it has no state or has not applied that height.
    Unknown,
    /// It is not what this server's state machine did.
    False,
}

/// A snapshot of the state after a height.
#[derive(Clone)]
pub(crate) struct StateSnapshot {
    pub(crate) digest: Sha256Digest,
    pub(crate) bytes: Bytes,
}

/// A batch of commands that waits for the state.
struct WaitingBatch {
    height: Height,
    epoch: u64,
    author: IdentityPublicKey,
    requests: Vec<Vec<u8>>,
}

/// A service's state machine at one server.
pub(crate) struct ServiceReplica {
    name: String,
    machine: Box<dyn StateMachine>,
    /// The snapshot of the initial state.
    initial: Bytes,
    /// The height from which the followed log starts.
    base: Height,
    has_state: bool,
    waiting: Vec<WaitingBatch>,
    /// Those of the base and of the open run.
    snapshots: BTreeMap<Height, StateSnapshot>,
    /// The last answers to the requests of each server, the oldest first, as statements.
    answers: BTreeMap<[u8; 32], VecDeque<(Sha256Digest, ServiceAnswer)>>,
}

impl ServiceReplica {
    pub(crate) fn new(service: ReplicatedService) -> Self {
        let ReplicatedService { name, machine } = service;
        Self {
            name,
            initial: machine.snapshot().into(),
            machine,
            base: Height(0),
            has_state: false,
            waiting: Vec::new(),
            snapshots: BTreeMap::new(),
            answers: BTreeMap::new(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it has the state. Otherwise it needs the snapshot of [`Self::base`].
    pub(crate) fn has_state(&self) -> bool {
        self.has_state
    }

    pub(crate) fn base(&self) -> Height {
        self.base
    }

    /// The server follows a log from this height on, with a snapshot that it has saved, if any. The
    /// state before the first height is the initial one.
    pub(crate) fn start(&mut self, base: Height, saved: Option<Bytes>) {
        (self.base, self.has_state) = (base, false);
        self.waiting.clear();
        self.snapshots.clear();
        self.answers.clear();
        let initial = (base == Height(0)).then(|| self.initial.clone());
        if let Some(bytes) = initial.or(saved) {
            self.restore(bytes);
        }
    }

    /// Applies a batch of its author. While the state is missing, the batch waits.
    pub(crate) fn apply(
        &mut self,
        height: Height,
        epoch: u64,
        author: IdentityPublicKey,
        requests: Vec<Vec<u8>>,
    ) {
        let batch = WaitingBatch { height, epoch, author, requests };
        if self.has_state {
            self.apply_batch(batch);
        } else {
            self.waiting.push(batch);
        }
    }

    fn apply_batch(&mut self, batch: WaitingBatch) {
        let WaitingBatch { height, epoch, author, requests } = batch;
        let answers = self.answers.entry(author.to_bytes()).or_default();
        for request in requests {
            let mut answer = self.machine.apply(request.get(NONCE_LEN..).unwrap_or_default());
            if answer.len() > MAX_ANSWER_LEN {
                answer.clear();
            }
            if answers.len() == MAX_ANSWERS {
                answers.pop_front();
            }
            let digest = request_digest(&self.name, &request);
            answers.push_back((digest, ServiceAnswer { epoch, height, answer }));
        }
    }

    /// The statement of the answer to a request in the batch of this author at this height.
    pub(crate) fn answer(
        &self,
        author: &IdentityPublicKey,
        height: Height,
        request: Sha256Digest,
    ) -> Option<Vec<u8>> {
        let answers = self.answers.get(&author.to_bytes())?;
        let found = answers.iter().find(|(of, it)| *of == request && it.height == height)?;
        let body = ServiceStatementBody::Answer(found.1.clone(), request);
        Some(ServiceStatement { name: self.name.clone(), body }.to_bytes())
    }

    /// Keeps a snapshot of the state after this height, if the state is there.
    pub(crate) fn keep_snapshot(&mut self, height: Height) {
        if self.has_state {
            let bytes = Bytes::from(self.machine.snapshot());
            self.snapshots.insert(height, StateSnapshot::new(bytes));
        }
    }

    /// The open run was cancelled: only the snapshot of the base is needed.
    pub(crate) fn drop_run_snapshots(&mut self) {
        self.snapshots.retain(|height, _| *height == self.base);
    }

    /// An epoch begins after this height, with these servers in it or in the epoch before. Returns
    /// the snapshot to save. Without the state, this server needs the one of this height.
    pub(crate) fn begin_epoch(
        &mut self,
        height: Height,
        servers: &BTreeSet<[u8; 32]>,
    ) -> Option<Bytes> {
        self.base = height;
        self.waiting.clear();
        self.snapshots.clear();
        self.answers.retain(|author, _| servers.contains(author));
        self.keep_snapshot(height);
        self.snapshots.get(&height).map(|it| it.bytes.clone())
    }

    /// The snapshot after a height.
    pub(crate) fn snapshot(&self, height: Height) -> Option<&StateSnapshot> {
        self.snapshots.get(&height)
    }

    /// The length of the snapshot of the state from which the followed log starts, in bytes. 0
    /// without the state.
    pub(crate) fn snapshot_len(&self) -> usize {
        self.snapshot(self.base).map_or(0, |it| it.bytes.len())
    }

    /// The statement that the state after a height has this snapshot.
    pub(crate) fn checkpoint(&self, height: Height, digest: Sha256Digest) -> Vec<u8> {
        let body = ServiceStatementBody::Checkpoint(height, digest);
        ServiceStatement { name: self.name.clone(), body }.to_bytes()
    }

    /// Uses a snapshot of the base whose checkpoint the group has signed. Returns whether the
    /// state machine accepts it, and so does not differ from that of the group.
    pub(crate) fn receive(&mut self, snapshot: Bytes) -> bool {
        snapshot.len() <= MAX_STATE_LEN && self.restore(snapshot)
    }

    fn restore(&mut self, bytes: Bytes) -> bool {
        self.has_state = self.machine.restore(&bytes).is_ok();
        if self.has_state {
            self.snapshots.insert(self.base, StateSnapshot::new(bytes));
            for batch in std::mem::take(&mut self.waiting) {
                self.apply_batch(batch);
            }
        }
        self.has_state
    }

    /// Whether a statement may be signed by a server that has applied the log up to `applied`.
    pub(crate) fn judge(&self, statement: &[u8], applied: Height) -> StatementTruth {
        let Ok(ServiceStatement { name, body }) = ServiceStatement::parse(statement) else {
            return StatementTruth::False;
        };
        let height = match &body {
            ServiceStatementBody::Answer(answer, _) => answer.height,
            ServiceStatementBody::Checkpoint(height, _) => *height,
        };
        let is_true = match &body {
            _ if name != self.name => false,
            ServiceStatementBody::Answer(answer, request) => {
                let mut known = self.answers.values().flatten();
                known.any(|(of, it)| of == request && it == answer)
            }
            ServiceStatementBody::Checkpoint(height, digest) => {
                self.snapshots.get(height).is_some_and(|it| it.digest == *digest)
            }
        };
        if is_true {
            StatementTruth::True
        } else if !self.has_state || height > applied {
            StatementTruth::Unknown
        } else {
            StatementTruth::False
        }
    }

    /// The current state.
    #[cfg(test)]
    pub(crate) fn current(&self) -> Option<Vec<u8>> {
        self.has_state.then(|| self.machine.snapshot())
    }
}

impl StateSnapshot {
    fn new(bytes: Bytes) -> Self {
        Self { digest: Sha256Digest::of(&[&bytes]), bytes }
    }
}
