//! `sunder quorum ssh-agent`: an ssh agent whose key is that of a group.

use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use console::CommandFailure;
use hyper::body::Bytes;
use keys::AnyPublicKey;
use quorum::api::{ApiEncoding, GroupApiClient};
use quorum::ssh::{
    MAX_AGENT_MESSAGE_LEN, SshAgentRequest, SshRsaHash, SshSignatureAlgorithm, failure,
    identities_answer, public_key_blob, sign_response,
};
use service::accept::RoundRobinAcceptor;
use service::listening::listen_unix;
use service::signals::{self, StopSignals};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{info, warn};

use super::servers::{GroupKeyOptions, QuorumServersOptions};
use crate::daemon;

/// The comment of the key, which programs show.
pub(super) const COMMENT: &str = "sunder-quorum";

/// The largest number of connections that are served at a time.
const MAX_CONNECTIONS: usize = 64;

/// How long the rest of a message may take after its first byte, and an answer until it is read.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs an ssh agent that has the group's key.
///
/// Programs that use an ssh agent sign with the group: `ssh-keygen -Y sign`, `ssh-keygen -s` and
/// `git` with gpg.format=ssh. The messages must be registered or allowed by a rule at f+1 servers.
/// The log names what the servers refuse. Only this user and root can use the agent's socket.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder quorum ssh-agent --socket /run/sunder/quorum-office/api \\
             --listen /run/user/1000/office-agent
Then: export SSH_AUTH_SOCK=/run/user/1000/office-agent
docs/guides/quorum-programs.md is the guide.")]
pub(super) struct QuorumSshAgentArguments {
    #[command(flatten)]
    servers: QuorumServersOptions,
    #[command(flatten)]
    key: GroupKeyOptions,
    /// The agent's socket, which is created
    #[arg(long, value_name = "PATH")]
    listen: PathBuf,
}

/// What the agent needs for an answer.
struct QuorumSshAgent {
    group: GroupApiClient,
    key: AnyPublicKey,
}

pub(super) fn run(arguments: &QuorumSshAgentArguments) -> Result<(), CommandFailure> {
    let key = arguments.key.key(&arguments.servers)?;
    let group = arguments.servers.group();
    daemon::run(async {
        let stop = StopSignals::listen()?;
        let listener = listen(&arguments.listen)?;
        let _removed = RemovedAtEnd(&arguments.listen);
        console::print_line(&format!("listening on {}", arguments.listen.display()))?;
        let agent = Arc::new(QuorumSshAgent { group, key });
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let serving = async {
            tokio::select! {
                () = serve(&listener, agent) => {}
                _ = ended => {}
            }
        };
        signals::until_stopped(stop, serving, || drop(end)).await?;
        Ok(())
    })
}

/// The agent's socket, which is removed at the end.
struct RemovedAtEnd<'a>(&'a Path);

impl Drop for RemovedAtEnd<'_> {
    fn drop(&mut self) {
        // It may have been removed by someone else.
        let _ = std::fs::remove_file(self.0);
    }
}

/// Listens on a new socket, or on one that an ended agent has left.
fn listen(path: &Path) -> Result<UnixListener, CommandFailure> {
    let is_left = || {
        let is_socket = std::fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket());
        is_socket
            && StdUnixStream::connect(path)
                .is_err_and(|it| it.kind() == ErrorKind::ConnectionRefused)
    };
    if is_left() {
        std::fs::remove_file(path).map_err(|error| CommandFailure::writing(path, &error))?;
    }
    listen_unix(path, 0o600).map_err(|error| {
        let what = if error.kind() == ErrorKind::AddrInUse {
            "it exists: is another agent running?".to_owned()
        } else {
            error.to_string()
        };
        CommandFailure::Failed(format!("cannot listen on {}: {what}", path.display()))
    })
}

/// Accepts connections for ever: an error of the system is logged, and accepting goes on.
async fn serve(listener: &UnixListener, agent: Arc<QuorumSshAgent>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut acceptor = RoundRobinAcceptor::default();
    // Nothing closes the semaphore.
    while let Ok(place) = places.clone().acquire_owned().await {
        let (_, stream, _) = acceptor.accept(from_ref(listener)).await;
        let agent = agent.clone();
        tokio::spawn(async move {
            // A client that breaks the protocol or goes away has no one to report to.
            let _ = converse(stream, &agent).await;
            drop(place);
        });
    }
}

/// Answers messages until the client closes the connection.
async fn converse(mut stream: UnixStream, agent: &QuorumSshAgent) -> io::Result<()> {
    loop {
        // A connection may be idle for as long as the client likes.
        let first = stream.read_u8().await?;
        let message = timeout(TRANSFER_TIMEOUT, read_message(&mut stream, first)).await??;
        let answer = agent.answer(&message).await;
        timeout(TRANSFER_TIMEOUT, stream.write_all(&answer)).await??;
    }
}

/// A message whose first byte has arrived, without its length.
async fn read_message(stream: &mut UnixStream, first: u8) -> io::Result<Vec<u8>> {
    let mut rest = [0; 3];
    stream.read_exact(&mut rest).await?;
    let len = u32::from_be_bytes([first, rest[0], rest[1], rest[2]]);
    let len = usize::try_from(len).ok().filter(|len| *len <= MAX_AGENT_MESSAGE_LEN);
    let len = len.ok_or_else(|| io::Error::other("too long"))?;
    let mut message = vec![0; len];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

impl QuorumSshAgent {
    /// The answer to a message.
    async fn answer(&self, message: &[u8]) -> Vec<u8> {
        match SshAgentRequest::parse(message) {
            Some(SshAgentRequest::Identities) => identities_answer(&self.key, COMMENT),
            Some(SshAgentRequest::Sign { key, data, hash }) => {
                match self.sign(key, data, hash).await {
                    Ok((algorithm, signature)) => {
                        info!(bytes = data.len(), "signed");
                        sign_response(algorithm, &signature)
                    }
                    Err(reason) => {
                        warn!(bytes = data.len(), "not signed: {reason}");
                        failure()
                    }
                }
            }
            Some(SshAgentRequest::Other(_)) | None => failure(),
        }
    }

    async fn sign(
        &self,
        key: &[u8],
        data: &[u8],
        hash: Option<SshRsaHash>,
    ) -> Result<(SshSignatureAlgorithm, Bytes), String> {
        if key != public_key_blob(&self.key) {
            return Err("the client asks for another key".into());
        }
        let algorithm = SshSignatureAlgorithm::of(&self.key, hash)
            .ok_or("the client asks for SHA-1 (ssh-rsa), which is not secure")?;
        let encoding = match algorithm {
            SshSignatureAlgorithm::Rsa(SshRsaHash::Sha256) => ApiEncoding::Pkcs1,
            SshSignatureAlgorithm::Rsa(SshRsaHash::Sha512) => ApiEncoding::Pkcs1Sha512,
            SshSignatureAlgorithm::Ed25519 => ApiEncoding::Ed25519,
        };
        let data = Bytes::copy_from_slice(data);
        let signature = self.group.sign(&data, encoding, Some(&self.key)).await;
        signature.map(|signature| (algorithm, signature)).map_err(|error| error.to_string())
    }
}
