//! What local users ask for.

use bytes::Bytes;
use keys::rsa;
use sharing::{Generator, RandomError};
use tokio::sync::oneshot;

use super::{Handle, lock};
use crate::net::api::{
    Encoding, Health, LocalService, Refresh, Refusal, RefusalKind, Registered, Witnesses,
};
use crate::net::nodes::parse_nodes;
use crate::net::store::audit;
use crate::protocol::group::{Group, Header};
use crate::protocol::policy::{self, MessageDigest, Rule};
use crate::protocol::server::{RefreshRefusal, SignRefusal};
use crate::protocol::wire::Digest;

/// How many commands may wait.
pub(super) const MAX_COMMANDS: usize = 64;

/// What a local user asks of the server's thread.
#[derive(Debug)]
pub(super) enum Command {
    Register(MessageDigest, oneshot::Sender<Registering>),
    Sign(Bytes, Encoding, oneshot::Sender<Result<Vec<u8>, SignRefusal>>),
    /// With the group's digest.
    StartRefresh(Group, Digest, oneshot::Sender<Result<(), RefreshRefusal>>),
    Record(audit::Event),
    SetRules(Vec<Rule>, oneshot::Sender<()>),
}

/// The answer to a registration.
#[derive(Debug)]
pub(super) struct Registering {
    pub(super) is_new: bool,
}

/// A request for a signature that is under way.
pub(super) struct Requested {
    pub(super) digest: MessageDigest,
    pub(super) reply: oneshot::Sender<Result<Vec<u8>, SignRefusal>>,
}

impl Encoding {
    pub(super) fn with_salt(self, generator: &mut Generator) -> Result<rsa::Encoding, RandomError> {
        Ok(match self {
            Self::Pkcs1 => rsa::Encoding::Pkcs1,
            Self::Pss => rsa::Encoding::Pss { salt: generator.array()? },
        })
    }
}

impl Handle {
    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, Refusal> {
        let (reply, replied) = oneshot::channel();
        let stopped = || Refusal::new(RefusalKind::Internal, "the server stops; see its log");
        self.commands.send(command(reply)).await.map_err(|_| stopped())?;
        replied.await.map_err(|_| stopped())
    }

    /// Replaces the rules by which messages are signed without being registered.
    ///
    /// # Errors
    /// When the server has stopped.
    pub async fn set_rules(&self, rules: Vec<Rule>) -> Result<(), Refusal> {
        self.ask(|reply| Command::SetRules(rules, reply)).await
    }

    fn record_refusal(&self, request: &str, reason: &str) {
        // If too much waits already, the log shows other refusals.
        let _ = self.commands.try_send(Command::Record(audit::Event::refused(request, reason, 1)));
    }
}

impl LocalService for Handle {
    async fn register(&self, message: Bytes, _user: Option<u32>) -> Result<Registered, Refusal> {
        if let Err(refusal) = policy::check_message(&message) {
            self.record_refusal("register", &refusal.to_string());
            return Err(Refusal::new(RefusalKind::Forbidden, refusal));
        }
        let digest = MessageDigest::of(&message);
        let registering = self.ask(|reply| Command::Register(digest, reply)).await?;
        Ok(Registered { digest: digest.to_string(), new: registering.is_new })
    }

    async fn sign(
        &self,
        message: Bytes,
        encoding: Encoding,
        _user: Option<u32>,
    ) -> Result<Vec<u8>, Refusal> {
        let signed = self.ask(|reply| Command::Sign(message, encoding, reply)).await?;
        signed.map_err(|refusal| {
            let kind = match refusal {
                SignRefusal::Policy(_) => RefusalKind::Forbidden,
                SignRefusal::NoMember | SignRefusal::EpochEnded => RefusalKind::Unavailable,
                SignRefusal::Encoding => RefusalKind::Malformed,
                SignRefusal::Busy => RefusalKind::Busy,
                SignRefusal::TimedOut => RefusalKind::TimedOut,
            };
            Refusal::new(kind, refusal)
        })
    }

    async fn start_refresh(&self, nodes: String, _user: Option<u32>) -> Result<Refresh, Refusal> {
        let group = parse_nodes(&nodes).map_err(|problems| {
            let problem = problems.first().in_one_line(&nodes);
            Refusal::new(RefusalKind::Malformed, format!("the list of servers{problem}"))
        })?;
        let digest = Header::first(group.clone(), Digest([0; 32])).digest();
        let started = self.ask(|reply| Command::StartRefresh(group, digest, reply)).await?;
        started.map_err(|refusal| {
            let kind = match refusal {
                RefreshRefusal::NoMember => RefusalKind::Forbidden,
                RefreshRefusal::UnderWay | RefreshRefusal::None => RefusalKind::Conflict,
            };
            self.record_refusal("refresh", &refusal.to_string());
            Refusal::new(kind, refusal)
        })?;
        let none = || Refusal::new(RefusalKind::Unavailable, "the refresh is over already");
        lock(&self.shared).refresh().ok_or_else(none)
    }

    fn refresh(&self) -> Option<Refresh> {
        lock(&self.shared).refresh()
    }

    fn witnesses(&self) -> Result<Witnesses, Refusal> {
        let shared = lock(&self.shared);
        let start = shared.start().ok_or_else(no_epoch)?;
        let hexadecimal = |bytes: &[u8]| {
            bytes.iter().fold(String::new(), |mut text, byte| {
                text.extend(
                    [byte >> 4, byte & 15]
                        .map(|digit| char::from_digit(digit.into(), 16).unwrap_or_default()),
                );
                text
            })
        };
        let witnesses = start.witnesses.chunks(self.public.byte_len()).map(hexadecimal).collect();
        Ok(Witnesses { epoch: start.header().epoch, witnesses })
    }

    fn public_key(&self) -> Result<String, Refusal> {
        Ok(self.public.to_pem())
    }

    fn headers(&self) -> Result<Vec<u8>, Refusal> {
        let shared = lock(&self.shared);
        let mut start = shared.start().ok_or_else(no_epoch)?.clone();
        // The last one is not signed for a moment.
        start.chain.retain(|header| !header.signature.is_empty());
        if start.chain.is_empty() {
            let reason = "the group has not signed the header of its first epoch yet; try again";
            return Err(Refusal::new(RefusalKind::Unavailable, reason));
        }
        Ok(start.chain_to_bytes())
    }

    fn health(&self) -> Health {
        self.status(String::new()).health
    }

    fn refused(&self, request: &'static str, reason: &str) {
        self.record_refusal(request, reason);
    }
}

fn no_epoch() -> Refusal {
    let reason = "this server waits to be invited by a group, and knows none yet";
    Refusal::new(RefusalKind::Unavailable, reason)
}
