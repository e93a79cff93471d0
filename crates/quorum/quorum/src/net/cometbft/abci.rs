//! The socket on which CometBFT calls the application. CometBFT opens four connections.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use keys::trusted::TrustedFolder;
use service::listening::listen_unix;
use tokio::io::{AsyncWriteExt as _, BufStream};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{info, warn};

use super::{CometbftError, SharedCometbft, framing};
use crate::log::Height;
use crate::protocol::cometbft::block;
use crate::protocol::cometbft::messages::{
    AbciAnswer, AbciCall, AbciCode, AbciEcho, AbciEmpty, AbciRequest, AbciResponse, BlockCall,
    FinalizeBlockAnswer, InfoAnswer, InitChainAnswer, PrepareProposalAnswer, ProcessProposalAnswer,
};

/// The largest number of connections. CometBFT opens four.
const MAX_CONNECTIONS: usize = 16;

/// How long a proposal waits until the service has applied the height before it. Then a block is
/// rejected, as if its proposer were silent.
const APPLY_TIMEOUT: Duration = Duration::from_secs(10);

const ACCEPT: i32 = 1;
const REJECT: i32 = 2;

/// A listener on the socket. A socket that an earlier process left behind is replaced.
///
/// # Errors
/// If another process listens there, another user could replace the socket, or the system returns
/// an error.
pub(super) fn listen(path: &Path) -> io::Result<UnixListener> {
    let (folder, name) = TrustedFolder::containing(path).map_err(io::Error::other)?;
    let path = folder.path().join(name);
    if std::os::unix::net::UnixStream::connect(&path).is_ok() {
        let what = format!("{} is in use by another process; stop it first", path.display());
        return Err(io::Error::new(ErrorKind::AddrInUse, what));
    }
    if fs::symlink_metadata(&path).is_ok_and(|found| found.file_type().is_socket()) {
        fs::remove_file(&path)?;
    }
    listen_unix(&path, 0o600)
}

/// Serves the application until this is dropped.
pub(super) async fn serve(
    shared: Arc<SharedCometbft>,
    listener: UnixListener,
    chain_id: String,
    socket: PathBuf,
) {
    let _socket = SocketFile(socket);
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= MAX_CONNECTIONS {
            connections.join_next().await;
        }
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                connections.spawn(connection(Arc::clone(&shared), stream, chain_id.clone()));
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Removes the socket's file when the log stops.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // If the file remains, connections to it are refused.
        let _ = fs::remove_file(&self.0);
    }
}

async fn connection(shared: Arc<SharedCometbft>, stream: UnixStream, chain_id: String) {
    let connected = shared.change(|state| {
        state.connections += 1;
        if state.connections == 1 {
            state.since = Instant::now();
        }
        state.connections
    });
    if connected == 1 {
        info!("CometBFT is connected");
    }
    let ended = answer_all(&shared, stream, &chain_id).await;
    let left = shared.change(|state| {
        state.connections -= 1;
        if state.connections == 0 {
            (state.since, state.peers) = (Instant::now(), 0);
        }
        state.connections
    });
    if left == 0 && !shared.lock().stop {
        let error = ended.err().map(|error| error.to_string());
        warn!(error, "CometBFT has ended: start it again");
    }
}

async fn answer_all(
    shared: &Arc<SharedCometbft>,
    stream: UnixStream,
    chain_id: &str,
) -> io::Result<()> {
    let mut stream = BufStream::new(stream);
    while let Some(request) = framing::read::<AbciRequest>(&mut stream).await? {
        let call = request.call.ok_or(ErrorKind::InvalidData)?;
        let answer = match answer(shared, call, chain_id).await {
            Ok(answer) => answer,
            Err(error) => {
                let message = error.to_string();
                shared.fail(error);
                AbciAnswer::Exception(AbciEcho { message })
            }
        };
        framing::write(&mut stream, &AbciResponse { answer: Some(answer) }).await?;
        stream.flush().await?;
    }
    Ok(())
}

async fn answer(
    shared: &Arc<SharedCometbft>,
    call: AbciCall,
    chain_id: &str,
) -> Result<AbciAnswer, CometbftError> {
    Ok(match call {
        AbciCall::Echo(echo) => AbciAnswer::Echo(echo),
        AbciCall::Flush(_) => AbciAnswer::Flush(AbciEmpty {}),
        AbciCall::Info(_) => AbciAnswer::Info(info(shared)?),
        AbciCall::InitChain(call) if call.chain_id != chain_id => {
            let what = "genesis.json of CometBFT is that of another group";
            return Err(CometbftError::Chain(what.into()));
        }
        AbciCall::InitChain(_) => {
            let state = shared.lock();
            let first = state.application.first();
            AbciAnswer::InitChain(InitChainAnswer {
                validators: block::validators(&first.set),
                app_hash: first.hash.0.to_vec(),
            })
        }
        AbciCall::Query(call) => AbciAnswer::Query(AbciCode { code: query(shared, &call.path) }),
        AbciCall::CheckTx(call) => {
            let keeps = shared.change(|state| state.application.keeps(&call.tx, call.kind == 0));
            AbciAnswer::CheckTx(AbciCode { code: u32::from(!keeps) })
        }
        AbciCall::PrepareProposal(call) => {
            let height = height(call.height);
            let txs =
                prepared(shared, height).await.then(|| shared.lock().application.prepare(height));
            AbciAnswer::PrepareProposal(PrepareProposalAnswer { txs: txs.unwrap_or_default() })
        }
        AbciCall::ProcessProposal(call) => {
            let height = height(call.height);
            let accepts = prepared(shared, height).await
                && shared.lock().application.accepts(height, &call.txs);
            if !accepts {
                warn!(%height, "a proposed block is rejected");
            }
            let status = if accepts { ACCEPT } else { REJECT };
            AbciAnswer::ProcessProposal(ProcessProposalAnswer { status })
        }
        AbciCall::FinalizeBlock(call) => AbciAnswer::FinalizeBlock(decide(shared, call).await?),
        AbciCall::Commit(_) => {
            commit(shared)?;
            AbciAnswer::Commit(AbciEmpty {})
        }
        AbciCall::ListSnapshots(_) => AbciAnswer::ListSnapshots(AbciEmpty {}),
        AbciCall::OfferSnapshot(_) => AbciAnswer::OfferSnapshot(AbciEmpty {}),
        AbciCall::LoadSnapshotChunk(_) => AbciAnswer::LoadSnapshotChunk(AbciEmpty {}),
        AbciCall::ApplySnapshotChunk(_) => AbciAnswer::ApplySnapshotChunk(AbciEmpty {}),
        AbciCall::ExtendVote(_) => AbciAnswer::ExtendVote(AbciEmpty {}),
        AbciCall::VerifyVoteExtension(_) => AbciAnswer::VerifyVoteExtension(AbciEmpty {}),
    })
}

fn height(height: i64) -> Height {
    Height(height.try_into().unwrap_or_default())
}

/// CometBFT has started, and asks from which height on it must decide its blocks again.
fn info(shared: &SharedCometbft) -> Result<InfoAnswer, CometbftError> {
    // It opens the socket of its RPC after this, which fails if one that was killed has left it.
    let _ = fs::remove_file(shared.home.rpc_socket());
    shared.change(|state| {
        let application = &mut state.application;
        let height = application.resume_height(state.store.height());
        let point = state.store.point(height, application.first())?;
        let hash = point.hash.0.to_vec();
        application.resume(point);
        info!(%height, "CometBFT continues");
        // No height is larger than CometBFT's largest.
        let last_block_height = i64::try_from(height.0).unwrap_or(i64::MAX);
        Ok(InfoAnswer {
            data: "sunder-quorum".into(),
            last_block_height,
            last_block_app_hash: hash,
        })
    })
}

/// Waits until a block of this height can be proposed or checked. Returns whether it can.
async fn prepared(shared: &Arc<SharedCometbft>, height: Height) -> bool {
    let prepared = shared.when(|state| state.application.is_prepared(height).then_some(()));
    timeout(APPLY_TIMEOUT, prepared).await.is_ok()
}

async fn decide(
    shared: &Arc<SharedCometbft>,
    call: BlockCall,
) -> Result<FinalizeBlockAnswer, CometbftError> {
    shared.when(|state| (!state.application.is_full()).then_some(())).await;
    let now = shared.now();
    shared.change(|state| {
        for server in state.application.faulty(&call.misbehavior) {
            warn!(server, "a server has voted or proposed twice: it is faulty");
        }
        let validator_updates = state.application.decide(height(call.height), &call.txs, now)?;
        let hash = state.application.unsaved().map(|point| point.hash.0.to_vec());
        Ok(FinalizeBlockAnswer {
            tx_results: vec![AbciCode { code: 0 }; call.txs.len()],
            validator_updates,
            app_hash: hash.unwrap_or_default(),
        })
    })
}

fn commit(shared: &SharedCometbft) -> Result<(), CometbftError> {
    shared.change(|state| {
        if let Some(point) = state.application.unsaved() {
            state.store.save(point)?;
        }
        Ok(state.application.saved()?)
    })
}

/// Whether CometBFT may connect with a node: 0 for yes. Only nodes that servers with a link have
/// announced are accepted.
fn query(shared: &SharedCometbft, path: &str) -> u32 {
    let Some(id) = path.strip_prefix("/p2p/filter/id/") else {
        return u32::from(!path.starts_with("/p2p/filter/addr/"));
    };
    let state = shared.lock();
    let is_known =
        state.announced.values().any(|node| base16ct::lower::encode_string(&node.id) == id);
    u32::from(!is_known)
}
