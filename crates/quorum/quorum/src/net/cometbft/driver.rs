//! The thread of the log: it exchanges entries with the other servers, wakes CometBFT, and tells it
//! where the other nodes are.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use keys::IdentityPublicKey;
use service::log::LogRateLimiter;
use tokio::net::UnixListener;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep_until};
use tracing::{debug, info, warn};

use super::rpc::CometbftRpc;
use super::{CometbftError, CometbftMessage, NodeAnnouncement, SharedCometbft, abci, signer};
use crate::net::links::{LinkEvent, LinkMessage, LinkStatus, TopicInbox};
use crate::protocol::consensus::context::ValidatorAddress;
use crate::protocol::consensus::fair_queue::FairLinkQueue;

/// The interval at which CometBFT is asked for its node and its peers.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The largest number of messages that are handled before other events.
const MAX_BATCH: usize = 64;

pub(super) struct CometbftDriver {
    own: IdentityPublicKey,
    chain_id: String,
    inbox: TopicInbox,
    inflow: FairLinkQueue<LinkMessage>,
    shared: Arc<SharedCometbft>,
    listener: Option<UnixListener>,
    refusals: LogRateLimiter,
}

/// Reports that the log has failed if the thread panics.
struct CometbftPanicGuard(Arc<SharedCometbft>);

impl Drop for CometbftPanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(CometbftError::Panicked);
        }
    }
}

impl CometbftDriver {
    /// Listens for CometBFT. Returns the driver, and the runtime of its thread.
    ///
    /// # Errors
    /// If the directory of CometBFT was not written, or the socket cannot be opened.
    pub(super) fn new(
        own: IdentityPublicKey,
        chain_id: String,
        inbox: TopicInbox,
        shared: Arc<SharedCometbft>,
    ) -> Result<(Self, Runtime), CometbftError> {
        shared.home.check()?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _entered = runtime.enter();
            Some(abci::listen(&shared.home.abci_socket())?)
        };
        let driver = Self {
            own,
            chain_id,
            inbox,
            inflow: FairLinkQueue::default(),
            shared,
            listener,
            refusals: LogRateLimiter::default(),
        };
        Ok((driver, runtime))
    }

    /// Runs until the log is stopped or fails. Returns the inbox, which first replays which links
    /// are up.
    pub(super) fn run(mut self, runtime: Runtime) -> TopicInbox {
        let _watch = CometbftPanicGuard(Arc::clone(&self.shared));
        runtime.block_on(self.serve());
        // This ends all connections with CometBFT.
        drop(runtime);
        let linked: Vec<_> = self.shared.lock().linked.iter().copied().collect();
        self.inbox.replay_link_up(linked.iter().filter_map(ValidatorAddress::key));
        self.inbox
    }

    async fn serve(&mut self) {
        let mut tasks = JoinSet::new();
        if let Some(listener) = self.listener.take() {
            let shared = Arc::clone(&self.shared);
            let (chain_id, socket) = (self.chain_id.clone(), self.shared.home.abci_socket());
            tasks.spawn(abci::serve(shared, listener, chain_id, socket));
        }
        tasks.spawn(signer::serve(Arc::clone(&self.shared), self.shared.home.signer_socket()));
        let rpc = CometbftRpc(self.shared.home.rpc_socket());
        tasks.spawn(poll(Arc::clone(&self.shared), rpc.clone(), self.own));
        let shared = Arc::clone(&self.shared);
        let mut changed = shared.changed.subscribe();
        loop {
            changed.mark_unchanged();
            let now = shared.now();
            let (stop, wake, resent, deadline) = {
                let state = &mut *shared.lock();
                let application = &mut state.application;
                let (wake, resent) = (application.wake(now), application.resend(now));
                (state.stop, wake, resent, application.deadline())
            };
            if stop {
                return;
            }
            if let Some(transaction) = wake {
                tasks.spawn(add_transaction(rpc.clone(), transaction));
            }
            for entry in resent {
                shared.broadcast(&CometbftMessage::Entry(entry));
            }
            self.receive();
            let deadline = deadline.into_iter().chain(self.inflow.ready()).min();
            let deadline = deadline.map(|at| shared.start + at);
            tokio::select! {
                Some(inbound) = self.inbox.next() => self.arrived(inbound),
                _ = changed.changed() => {}
                Some(_) = tasks.join_next() => {}
                () = async {
                    match deadline {
                        Some(at) => sleep_until(at.into()).await,
                        None => pending().await,
                    }
                } => {}
            }
        }
    }

    fn arrived(&mut self, inbound: LinkEvent) {
        match inbound {
            LinkEvent::Up(key) => {
                let server = ValidatorAddress::of(&key);
                let (entries, own) = self.shared.change(|state| {
                    state.linked.insert(server);
                    (state.application.own_entries(), state.own)
                });
                let entries = entries.into_iter().map(CometbftMessage::Entry);
                let own = own.map(CometbftMessage::Node);
                for message in own.into_iter().chain([CometbftMessage::Ask]).chain(entries) {
                    self.shared.send(server, message.to_bytes());
                }
            }
            LinkEvent::Down(key) => {
                let server = ValidatorAddress::of(&key);
                self.shared.change(|state| state.linked.remove(&server));
                self.inflow.clear(server);
            }
            LinkEvent::Message(message) => {
                let from = ValidatorAddress::of(message.from());
                self.inflow.push(from, message.bytes.len(), message);
            }
        }
    }

    /// Handles messages of other servers.
    fn receive(&mut self) {
        for _ in 0..MAX_BATCH {
            let now = self.shared.now();
            let Some((from, message)) = self.inflow.pop(now) else { return };
            match CometbftMessage::parse(&message.bytes) {
                Ok(CometbftMessage::Entry(entry)) => {
                    self.shared.change(|state| state.application.add(from, entry, now));
                }
                Ok(CometbftMessage::Node(node)) => {
                    self.shared.change(|state| state.announced.insert(from, node));
                }
                Ok(CometbftMessage::Ask) => {
                    let own = self.shared.lock().own.map(CometbftMessage::Node);
                    if let Some(own) = own {
                        self.shared.send(from, own.to_bytes());
                    }
                }
                Err(error) => self.refused(message.from(), error.0),
            }
        }
    }

    fn refused(&mut self, from: &IdentityPublicKey, why: &str) {
        self.shared.links.count_refused(from);
        if let Some(occurrences) = self.refusals.count_event_of(8) {
            warn!(server = %from, %why, occurrences, "a message of the log was refused");
        }
    }
}

async fn add_transaction(rpc: CometbftRpc, transaction: Vec<u8>) {
    if let Err(error) = rpc.add_transaction(&transaction).await {
        debug!(%error, "CometBFT was not woken");
    }
}

/// Asks CometBFT for its node and its peers again and again. Announces the node to the other
/// servers, and has CometBFT connect with theirs. Of two servers, the one with the smaller key
/// connects.
async fn poll(shared: Arc<SharedCometbft>, rpc: CometbftRpc, own: IdentityPublicKey) {
    let mut ticks = interval(POLL_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if shared.lock().connections == 0 {
            continue;
        }
        let (Ok(node), Ok(peers)) = (rpc.node().await, rpc.peers().await) else { continue };
        let is_new = shared.change(|state| {
            state.peers = peers.len();
            state.own.replace(node) != Some(node)
        });
        if is_new {
            let id = base16ct::lower::encode_string(&node.id);
            info!(id, port = node.port, "the node of CometBFT runs");
            shared.broadcast(&CometbftMessage::Node(node));
        }
        let missing = missing_nodes(&shared, &own, &peers.into_iter().collect());
        if !missing.is_empty()
            && let Err(error) = rpc.dial(&missing).await
        {
            debug!(%error, "CometBFT does not connect with other nodes");
        }
    }
}

/// The nodes with which CometBFT should connect, each as ID@HOST:PORT.
fn missing_nodes(
    shared: &SharedCometbft,
    own: &IdentityPublicKey,
    connected: &BTreeSet<[u8; 20]>,
) -> Vec<String> {
    let links = shared.links.status();
    let state = shared.lock();
    let to_dial = |link: &LinkStatus| {
        let (server, NodeAnnouncement { id, port }) = state
            .announced
            .iter()
            .find(|(server, _)| server.key().is_some_and(|key| key.to_string() == link.server))?;
        let is_mine = *server > ValidatorAddress::of(own) && !connected.contains(id);
        let (host, _) = link.address.rsplit_once(':').filter(|_| is_mine && link.up)?;
        Some(format!("{}@{host}:{port}", base16ct::lower::encode_string(id)))
    };
    links.iter().filter_map(to_dial).collect()
}
