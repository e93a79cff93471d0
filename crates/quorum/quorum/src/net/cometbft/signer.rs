//! The signer of CometBFT's votes: the server's voting key stays here.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncWriteExt as _, BufStream};
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use super::{SharedCometbft, framing};
use crate::protocol::cometbft::messages::{
    AbciEmpty, PublicKeyAnswer, SignProposalCall, SignVoteCall, SignedProposalAnswer,
    SignedVoteAnswer, SignerCall, SignerError, SignerMessage, ValidatorKey,
};
use crate::protocol::cometbft::vote_guard::{GuardedSignature, VoteGuard, VoteRefusal};
use crate::protocol::voting::VotingSecret;
use crate::protocol::wire::Sha256Digest;

/// How long the signer waits before it connects again.
const RETRY: Duration = Duration::from_millis(200);

/// How long an answer waits until the service has applied what was decided. Then the key of the
/// next height is known. CometBFT waits for 5 s.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(3);

/// Serves CometBFT whenever it runs. Does not end.
pub(super) async fn serve(shared: Arc<SharedCometbft>, socket: PathBuf) {
    let mut is_refused = false;
    loop {
        match UnixStream::connect(&socket).await {
            Ok(stream) => {
                if let Err(error) = answer_all(&shared, stream).await {
                    debug!(%error, "the connection of the signer has ended");
                }
                is_refused = false;
            }
            // A CometBFT that was killed has left its socket, on which the next one cannot listen.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                if is_refused {
                    let _ = fs::remove_file(&socket);
                }
                is_refused = !is_refused;
            }
            Err(_) => is_refused = false,
        }
        sleep(RETRY).await;
    }
}

async fn answer_all(shared: &Arc<SharedCometbft>, stream: UnixStream) -> io::Result<()> {
    let mut stream = BufStream::new(stream);
    while let Some(message) = framing::read::<SignerMessage>(&mut stream).await? {
        let answer = match message.call {
            Some(SignerCall::PublicKey(_)) => public_key(shared).await,
            Some(SignerCall::SignVote(call)) => sign_vote(shared, call)?,
            Some(SignerCall::SignProposal(call)) => sign_proposal(shared, call)?,
            Some(SignerCall::Ping(_)) => SignerCall::Pong(AbciEmpty {}),
            _ => return Err(io::Error::new(ErrorKind::InvalidData, "not a request to a signer")),
        };
        framing::write(&mut stream, &SignerMessage { call: Some(answer) }).await?;
        stream.flush().await?;
    }
    Ok(())
}

/// The public key of the next height. Without a voting key, one of which nobody has the secret, and
/// which is no validator's.
async fn public_key(shared: &Arc<SharedCometbft>) -> SignerCall {
    let settled = shared.when(|state| state.application.is_settled().then_some(()));
    // Otherwise the service is slow, and the key is that of an earlier height.
    let _ = timeout(SETTLE_TIMEOUT, settled).await;
    let own = shared.lock().key.as_ref().map(|key| key.public().to_bytes());
    let key =
        own.unwrap_or_else(|| Sha256Digest::of(&[b"sunder-quorum signer without a key v1"]).0);
    SignerCall::PublicKeyAnswer(PublicKeyAnswer { pub_key: Some(ValidatorKey::ed25519(key)) })
}

fn sign_vote(shared: &SharedCometbft, call: SignVoteCall) -> io::Result<SignerCall> {
    let mut vote = call.vote.unwrap_or_default();
    let signed = sign(shared, |guard, key| guard.sign_vote(&vote, &call.chain_id, key))?;
    let error = signed.map_err(refusal).map(|signed| {
        vote.timestamp = signed.timestamp;
        vote.signature = signed.signature.to_vec();
    });
    Ok(SignerCall::SignedVote(SignedVoteAnswer { vote, error: error.err() }))
}

fn sign_proposal(shared: &SharedCometbft, call: SignProposalCall) -> io::Result<SignerCall> {
    let mut proposal = call.proposal.unwrap_or_default();
    let signed = sign(shared, |guard, key| guard.sign_proposal(&proposal, &call.chain_id, key))?;
    let error = signed.map_err(refusal).map(|signed| {
        proposal.timestamp = signed.timestamp;
        proposal.signature = signed.signature.to_vec();
    });
    Ok(SignerCall::SignedProposal(SignedProposalAnswer { proposal, error: error.err() }))
}

/// Signs, and saves what was signed before the signature is used. `None` without a key.
fn sign(
    shared: &SharedCometbft,
    sign: impl FnOnce(&mut VoteGuard, &VotingSecret) -> Result<GuardedSignature, VoteRefusal>,
) -> io::Result<Result<GuardedSignature, Option<VoteRefusal>>> {
    let mut state = shared.lock();
    let state = &mut *state;
    let Some(key) = state.key.clone() else { return Ok(Err(None)) };
    let before = state.guard.last().cloned();
    let signed = match sign(&mut state.guard, &key) {
        Ok(signed) => signed,
        Err(refusal) => return Ok(Err(Some(refusal))),
    };
    if let Some(last) = state.guard.last().filter(|last| before.as_ref() != Some(*last)) {
        state.store.save_signed(last).map_err(io::Error::other)?;
    }
    Ok(Ok(signed))
}

fn refusal(refusal: Option<VoteRefusal>) -> SignerError {
    let description = match refusal {
        Some(refusal) => {
            warn!(%refusal, "a vote of CometBFT is not signed");
            refusal.to_string()
        }
        None => "this server has no voting key".to_owned(),
    };
    SignerError { code: 1, description }
}
