//! The connection to the agent of a site. One request at a time has its answer.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use transport::{
    Connection, ConnectionOptions, ConnectionSecurity, MessageStream, TransportChoice, connect,
};

use super::address::SiteAddress;
use super::answer::{AgentAnswer, AgentRefusal, MAX_ANSWER_LEN};
use super::error::{SiteError, SiteProblem};
use super::message::{AgentRequest, MAX_WAIT, version};
use crate::machine::MachineProperties;

/// How long a probe of a path may take at the agent.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);

/// How long to wait for the first answer.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// The time after which a silent controller counts as lost at an agent, at least and at most.
const MIN_SILENCE: Duration = Duration::from_secs(1);
const MAX_SILENCE: Duration = Duration::from_secs(3600);

/// How often a controller that has nothing to request sends a keepalive, in each time of silence
/// that its agent allows.
const KEEPALIVES: u32 = 6;

/// The first site of a trial whose connection has failed. All connections of a run share it.
#[derive(Debug, Default)]
pub(super) struct SiteLoss(Mutex<Option<(String, String)>>);

impl SiteLoss {
    /// The name of the site, and why.
    pub(super) fn get(&self) -> Option<(String, String)> {
        lock(&self.0).clone()
    }

    /// Forgets it.
    pub(super) fn clear(&self) {
        *lock(&self.0) = None;
    }

    fn set(&self, site: &str, why: String) {
        lock(&self.0).get_or_insert((site.to_owned(), why));
    }
}

/// The connection to an agent.
#[derive(Debug)]
pub(crate) struct SiteConnection {
    site: SiteAddress,
    address: SocketAddr,
    security: ConnectionSecurity,
    /// `None` before it is open, and after it has failed.
    open: Mutex<Option<OpenSite>>,
    loss: Arc<SiteLoss>,
}

/// An open connection.
#[derive(Debug)]
struct OpenSite {
    messages: MessageStream<Connection>,
    /// When the last answer arrived.
    used: Instant,
    has_address: bool,
    silence: Duration,
}

impl SiteConnection {
    pub(super) fn new(
        site: SiteAddress,
        address: SocketAddr,
        security: ConnectionSecurity,
        loss: Arc<SiteLoss>,
    ) -> Self {
        Self { site, address, security, open: Mutex::default(), loss }
    }

    /// The site.
    pub(crate) fn site(&self) -> &SiteAddress {
        &self.site
    }

    /// Where the agent listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address at which a program of the site listens: that at which others reach it, or the
    /// unspecified one if the machine itself has another.
    pub(crate) fn listening_address(&self) -> IpAddr {
        let has_address = lock(&self.open).as_ref().is_some_and(|open| open.has_address);
        match self.address.ip() {
            address if has_address => address,
            IpAddr::V4(_) => IpAddr::from([0_u8; 4]),
            IpAddr::V6(_) => IpAddr::from([0_u8; 16]),
        }
    }

    /// Whether the connection is open.
    pub(super) fn is_open(&self) -> bool {
        lock(&self.open).is_some()
    }

    /// Opens the connection. Returns the properties of the agent's machine.
    ///
    /// # Errors
    /// If it cannot be opened, or the agent does not take this controller.
    pub(super) fn open(self: &Arc<Self>) -> Result<MachineProperties, SiteError> {
        let (open, machine) = self.hello().map_err(|problem| self.error(problem))?;
        let period = open.silence / KEEPALIVES;
        *lock(&self.open) = Some(open);
        let site = Arc::downgrade(self);
        let keep_alive = move || {
            loop {
                thread::sleep(period);
                // The run is over, or the connection has failed.
                let Some(site) = site.upgrade() else { return };
                if !site.keep_alive(period) {
                    return;
                }
            }
        };
        let spawned = thread::Builder::new().name("site-keepalive".into()).spawn(keep_alive);
        spawned.map_err(|error| self.error(SiteProblem::Broken(error.to_string())))?;
        Ok(machine)
    }

    fn hello(&self) -> Result<(OpenSite, MachineProperties), SiteProblem> {
        let options = ConnectionOptions {
            transport: TransportChoice::Named("tcp"),
            timeout: Some(HELLO_TIMEOUT),
            ..ConnectionOptions::new(self.security.clone())
        };
        let connection = connect(&self.address.to_string(), &options)?;
        let mut messages = MessageStream::new(connection);
        let hello = AgentRequest::Hello { version: version(), address: self.address.ip() };
        match exchange(&mut messages, &hello)? {
            AgentAnswer::Welcome { machine, has_address, silence } => {
                let machine = serde_json::from_str(&machine)
                    .map_err(|error| SiteProblem::Broken(format!("its machine: {error}")))?;
                let silence = silence.clamp(MIN_SILENCE, MAX_SILENCE);
                Ok((OpenSite { messages, used: Instant::now(), has_address, silence }, machine))
            }
            AgentAnswer::Refused(AgentRefusal::Version(theirs)) => {
                Err(SiteProblem::Version { theirs })
            }
            AgentAnswer::Refused(AgentRefusal::Busy) => Err(SiteProblem::Busy),
            AgentAnswer::Refused(AgentRefusal::Request(why)) => Err(SiteProblem::Broken(why)),
            _ => Err(SiteProblem::Broken("it does not answer as an agent".into())),
        }
    }

    /// Sends a keepalive if nothing was requested for a while. Returns whether the connection is
    /// still open.
    fn keep_alive(&self, period: Duration) -> bool {
        let mut open = match self.open.try_lock() {
            // A request is under way.
            Err(TryLockError::WouldBlock) => return true,
            Err(TryLockError::Poisoned(open)) => open.into_inner(),
            Ok(open) => open,
        };
        let Some(site) = &*open else { return false };
        if site.used.elapsed() >= period {
            let _ = self.exchange(&mut open, &AgentRequest::Keepalive);
        }
        open.is_some()
    }

    /// Makes a request. After a connection of this run has failed, only the end of a trial can be
    /// requested.
    ///
    /// # Errors
    /// If the agent refuses it or cannot do it, or a connection of this run has failed, in one line
    /// that names the site.
    pub(crate) fn request(&self, request: &AgentRequest) -> Result<AgentAnswer, String> {
        if let Some((site, why)) = self.loss.get()
            && *request != AgentRequest::End
        {
            return Err(format!("site {site}: {why}"));
        }
        let answer = self.exchange(&mut lock(&self.open), request);
        let answer = answer.map_err(|why| self.line(&why))?;
        match answer {
            AgentAnswer::Failed(why) | AgentAnswer::Refused(AgentRefusal::Request(why)) => {
                Err(self.line(&why))
            }
            answer => Ok(answer),
        }
    }

    /// Makes a request whose answer says only that it is done.
    ///
    /// # Errors
    /// As for [`Self::request`].
    pub(crate) fn order(&self, request: &AgentRequest) -> Result<(), String> {
        match self.request(request)? {
            AgentAnswer::Done => Ok(()),
            _ => Err(self.unexpected()),
        }
    }

    /// The longest wait that a request may ask for.
    pub(crate) fn max_wait(&self) -> Duration {
        let silence = lock(&self.open).as_ref().map_or(MIN_SILENCE, |open| open.silence);
        MAX_WAIT.min(silence / 3)
    }

    /// The error of an answer that does not belong to the request.
    pub(crate) fn unexpected(&self) -> String {
        self.line("its answer does not belong to the request")
    }

    /// An error in one line, with the name of the site.
    pub(crate) fn line(&self, what: &str) -> String {
        format!("site {}: {what}", self.site.name)
    }

    pub(super) fn error(&self, problem: SiteProblem) -> SiteError {
        SiteError { site: self.site.name.clone(), problem }
    }

    /// Sends a request and waits for the answer. After an error of the connection it is closed.
    fn exchange(
        &self,
        open: &mut MutexGuard<'_, Option<OpenSite>>,
        request: &AgentRequest,
    ) -> Result<AgentAnswer, String> {
        let Some(site) = &mut **open else { return Err("it is not connected".into()) };
        let timeout = site.silence
            + match request {
                AgentRequest::Wait { wait, .. } | AgentRequest::Await { wait, .. } => *wait,
                AgentRequest::Probe { .. } => PROBE_TIMEOUT,
                _ => Duration::ZERO,
            };
        match timed_exchange(&mut site.messages, request, timeout) {
            Ok(answer) => {
                site.used = Instant::now();
                Ok(answer)
            }
            Err(error) => {
                let why = error.to_string();
                self.loss.set(&self.site.name, why.clone());
                **open = None;
                Err(why)
            }
        }
    }
}

fn timed_exchange(
    messages: &mut MessageStream<Connection>,
    request: &AgentRequest,
    timeout: Duration,
) -> io::Result<AgentAnswer> {
    messages.get_ref().set_timeout(Some(timeout))?;
    exchange(messages, request)
}

fn exchange(
    messages: &mut MessageStream<Connection>,
    request: &AgentRequest,
) -> io::Result<AgentAnswer> {
    messages.send(&request.to_bytes())?;
    messages.flush()?;
    let answer = messages.receive(MAX_ANSWER_LEN)?;
    let answer = answer.ok_or_else(|| io::Error::other("the agent has ended the connection"))?;
    AgentAnswer::parse(&answer).map_err(|error| io::Error::other(format!("its answer: {error}")))
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
