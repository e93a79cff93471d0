//! Signatures in virtual time. Links have no delay. Computations take their measured processor
//! time, as if each server and the requester had its own processor.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keys::IdentitySecretKey;
use keys::rsa::RsaEncoding;

use super::SentVolume;
use super::processor_time::measured;
use crate::protocol::combination::ServerIndex;
use crate::protocol::signing::{
    PartialSignError, PartialSignQuery, SignRequest, SignRequestEvent, SignRequestOutput,
    SignerHealth, SigningGroup, SigningShares,
};

/// The timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The servers of a group, for requests in virtual time.
pub struct SigningServers {
    group: Arc<SigningGroup>,
    servers: Vec<(SigningShares, Arc<IdentitySecretKey>)>,
}

/// A signature and its cost.
#[derive(Clone, Debug, Default)]
pub struct SignReport {
    /// The signature, or `None` if too few servers answered.
    pub signature: Option<Vec<u8>>,
    /// The time from the request to the signature.
    pub took: Duration,
    /// The requests that were sent.
    pub requests: SentVolume,
    /// The answers that arrived before the signature.
    pub answers: SentVolume,
    /// Whether a full sign was necessary.
    pub is_full: bool,
}

impl SigningServers {
    pub(super) fn new(
        group: Arc<SigningGroup>,
        servers: Vec<(SigningShares, Arc<IdentitySecretKey>)>,
    ) -> Self {
        Self { group, servers }
    }

    /// The group.
    pub fn group(&self) -> &Arc<SigningGroup> {
        &self.group
    }

    /// The answer of a server to a request, as it is sent.
    ///
    /// # Errors
    /// If the server is not among the signers, or the key is too short for the encoding.
    pub fn answer(
        &self,
        server: ServerIndex,
        query: &PartialSignQuery,
    ) -> Result<Vec<u8>, PartialSignError> {
        let (shares, identity) = &self.servers[usize::from(server.0)];
        Ok(shares.answer(query, identity)?.to_bytes(&self.group))
    }

    /// Requests a signature at the time `now`. `silent` servers do not answer. `health` is updated
    /// with the response times.
    ///
    /// # Errors
    /// If the key is too short for the encoding.
    pub fn sign(
        &self,
        message: &[u8],
        encoding: RsaEncoding,
        health: &mut SignerHealth,
        silent: &[ServerIndex],
    ) -> Result<SignReport, PartialSignError> {
        let (group, message) = (self.group.clone(), message.to_vec());
        let begin = || SignRequest::new(group, message, encoding, health, Duration::ZERO, TIMEOUT);
        let (request, now) = measured(begin);
        let mut run = VirtualSignRun {
            servers: self,
            request: request?,
            silent,
            now,
            ready: vec![Duration::ZERO; self.servers.len()],
            arriving: BTreeMap::new(),
            signed: SignReport::default(),
        };
        loop {
            run.send(health)?;
            if run.signed.signature.is_some() || run.request.is_finished() {
                return Ok(run.signed);
            }
            run.receive();
        }
    }

    fn respond(&self, server: ServerIndex, query: &[u8]) -> Result<Vec<u8>, PartialSignError> {
        let query =
            PartialSignQuery::parse(&self.group, query).ok_or(PartialSignError::NotASigner)?;
        self.answer(server, &query)
    }
}

/// A running request.
struct VirtualSignRun<'a> {
    servers: &'a SigningServers,
    request: SignRequest,
    silent: &'a [ServerIndex],
    now: Duration,
    /// When each server is ready for its next request.
    ready: Vec<Duration>,
    /// The answers by time of arrival.
    arriving: BTreeMap<Duration, Vec<(ServerIndex, Vec<u8>)>>,
    signed: SignReport,
}

impl VirtualSignRun<'_> {
    /// Executes the outputs of the requester.
    fn send(&mut self, health: &mut SignerHealth) -> Result<(), PartialSignError> {
        while let Some(output) = self.request.poll_output() {
            match output {
                SignRequestOutput::Send { to, query } => {
                    let bytes = query.to_bytes();
                    self.signed.is_full |= query.signers.is_none();
                    self.signed.requests.add(bytes.len());
                    if !self.silent.contains(&to) {
                        let (answer, took) = measured(|| self.servers.respond(to, &bytes));
                        let ready = &mut self.ready[usize::from(to.0)];
                        *ready = self.now.max(*ready) + took;
                        self.arriving.entry(*ready).or_default().push((to, answer?));
                    }
                }
                SignRequestOutput::Event(SignRequestEvent::Signed(signature)) => {
                    self.signed.signature = Some(signature);
                    self.signed.took = self.now;
                }
                SignRequestOutput::Event(SignRequestEvent::Answered { server, took }) => {
                    health.answered(server, took);
                }
                SignRequestOutput::Event(SignRequestEvent::Silent(server)) => {
                    health.silent(server, self.now);
                }
                SignRequestOutput::Event(SignRequestEvent::Faulty { server, .. }) => {
                    health.faulty(server);
                }
                SignRequestOutput::Event(SignRequestEvent::Failed) => {}
            }
        }
        Ok(())
    }

    /// Advances time to the next answer, or to the requester's next timeout.
    fn receive(&mut self) {
        let timeout = self.request.poll_timeout().unwrap_or_default();
        let next = self.arriving.keys().next().copied().filter(|next| *next <= timeout);
        self.now = self.now.max(next.unwrap_or(timeout));
        let answers = next.and_then(|next| self.arriving.remove(&next)).unwrap_or_default();
        for (_, answer) in &answers {
            self.signed.answers.add(answer.len());
        }
        let (now, request) = (self.now, &mut self.request);
        let ((), took) = measured(|| {
            if answers.is_empty() {
                request.handle_timeout(now);
            }
            for (from, answer) in &answers {
                request.handle_answer(now, *from, answer);
            }
        });
        self.now += took;
    }
}
