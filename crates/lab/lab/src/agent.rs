//! The agent: runs the programs of another machine's experiment on this one.
//!
//! `docs/protocols/agent.md` specifies the protocol, and which state each request can change. An
//! agent takes only controllers with certain keys, and one at a time. It has to run in a
//! [sandbox with the machine's network](crate::sandbox::enter_with_network): at the end of a
//! trial, when the controller is lost, and when the agent itself ends, the sandbox's processes end.
//!
//! # Map
//!
//! - `session`: which request may come when, and the bounds of a trial, pure.
//! - `trial`: does what is requested: files, emulated hosts and their links. `program`: the
//!   programs of a trial, contained or not. `ports`: the ports that programs have opened.

mod ports;
mod program;
pub(crate) mod session;
mod trial;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use transport::{Connection, ConnectionOptions, Error, Listener, MessageStream};

use crate::machine::MachineProperties;
use crate::site::{AgentAnswer, AgentRefusal, AgentRequest, MAX_REQUEST_LEN, version};
use session::AgentSession;
use trial::AgentTrial;

/// How many controllers are told at a time that the agent is busy. Others have no answer.
const MAX_REFUSED: usize = 16;

/// The time that a controller has for its first request.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// What an agent reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentEvent {
    /// A controller begins to use it: its address.
    Controller(SocketAddr),
    /// It refuses a controller: its address, and why.
    Refused(SocketAddr, String),
    /// The controller has ended its experiment, or is lost: why. Its programs are ended.
    Free(SocketAddr, String),
}

/// An agent that listens.
#[derive(Debug)]
pub struct LabAgent {
    listener: Listener,
    options: ConnectionOptions,
    silence: Duration,
}

impl LabAgent {
    /// Listens at `HOST:PORT`. A controller that is silent for `silence` counts as lost.
    ///
    /// # Errors
    /// If the system returns an error.
    pub fn bind(
        address: &str,
        options: ConnectionOptions,
        silence: Duration,
    ) -> Result<Self, Error> {
        let listener = Listener::bind(address, &options)?;
        Ok(Self { listener, options, silence })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Serves controllers until the listener fails. Call it in a sandbox.
    ///
    /// # Errors
    /// If the listener has failed, or the directory for files cannot be prepared.
    pub fn run(&self, report: &(dyn Fn(AgentEvent) + Sync)) -> Result<(), Error> {
        let (is_busy, refused) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            loop {
                let connection = self.listener.accept()?;
                let name = "agent".to_owned();
                let thread = thread::Builder::new().name(name);
                if !is_busy.swap(true, Ordering::AcqRel) {
                    let is_busy = &is_busy;
                    let served = thread.spawn_scoped(scope, move || {
                        self.serve(connection, report);
                        is_busy.store(false, Ordering::Release);
                    });
                    if served.is_err() {
                        is_busy.store(false, Ordering::Release);
                    }
                } else if refused.fetch_add(1, Ordering::AcqRel) < MAX_REFUSED {
                    let refused = &refused;
                    let told = thread.spawn_scoped(scope, move || {
                        refuse(connection, report);
                        refused.fetch_sub(1, Ordering::AcqRel);
                    });
                    if told.is_err() {
                        refused.fetch_sub(1, Ordering::AcqRel);
                    }
                } else {
                    refused.fetch_sub(1, Ordering::AcqRel);
                }
            }
        })
    }

    /// Serves one controller to its end.
    fn serve(&self, connection: Connection, report: &(dyn Fn(AgentEvent) + Sync)) {
        let from = connection.peer_addr();
        let mut messages = MessageStream::new(connection);
        match self.greet(&mut messages) {
            Err(why) => {
                report(AgentEvent::Refused(from, why));
                return;
            }
            Ok(()) => report(AgentEvent::Controller(from)),
        }
        let mut trial = AgentTrial::default();
        let why = self.answer_all(&mut messages, &mut trial);
        trial.end();
        report(AgentEvent::Free(from, why));
    }

    /// Reads the first request and answers it.
    fn greet(&self, messages: &mut MessageStream<Connection>) -> Result<(), String> {
        let answer = match hello(messages)? {
            Err(refusal) => AgentAnswer::Refused(refusal),
            Ok(address) => AgentAnswer::Welcome {
                machine: serde_json::to_string(&MachineProperties::current())
                    .map_err(|error| error.to_string())?,
                has_address: UdpSocket::bind((address, 0)).is_ok(),
                silence: self.silence,
            },
        };
        send(messages, &answer)?;
        match answer {
            AgentAnswer::Refused(AgentRefusal::Version(_)) => Err("it has another version".into()),
            AgentAnswer::Refused(_) => Err("its first request is none".into()),
            _ => Ok(()),
        }
    }

    /// Answers all requests. Returns why there are no more.
    fn answer_all(
        &self,
        messages: &mut MessageStream<Connection>,
        trial: &mut AgentTrial,
    ) -> String {
        let mut session = AgentSession::default();
        loop {
            let request = match receive(messages, self.silence) {
                Ok(Some(request)) => request,
                Ok(None) => return "the controller has ended the experiment".into(),
                Err(why) => return format!("the controller is lost: {why}"),
            };
            let answer = match session.admit(&request) {
                Ok(()) => trial.perform(request, &self.options),
                Err(refusal) => AgentAnswer::Refused(refusal),
            };
            if let Err(why) = send(messages, &answer) {
                return format!("the controller is lost: {why}");
            }
        }
    }
}

/// Tells a controller that another one uses the agent.
fn refuse(connection: Connection, report: &(dyn Fn(AgentEvent) + Sync)) {
    let from = connection.peer_addr();
    let mut messages = MessageStream::new(connection);
    let Ok(hello) = hello(&mut messages) else { return };
    let refusal = hello.err().unwrap_or(AgentRefusal::Busy);
    if send(&mut messages, &AgentAnswer::Refused(refusal)).is_ok() {
        report(AgentEvent::Refused(from, "another controller uses this agent".into()));
    }
}

/// Reads the first request. Versions are compared before anything else. Returns the address at
/// which the other sites reach this one.
fn hello(messages: &mut MessageStream<Connection>) -> Result<Result<IpAddr, AgentRefusal>, String> {
    let Some(request) = receive(messages, HELLO_TIMEOUT)? else {
        return Err("it has ended the connection".into());
    };
    Ok(match request {
        AgentRequest::Hello { version: theirs, .. } if theirs != version() => {
            Err(AgentRefusal::Version(version()))
        }
        AgentRequest::Hello { address, .. } => Ok(address),
        _ => Err(AgentRefusal::Request("the first request is a hello".into())),
    })
}

fn receive(
    messages: &mut MessageStream<Connection>,
    silence: Duration,
) -> Result<Option<AgentRequest>, String> {
    let read = |messages: &mut MessageStream<Connection>| {
        messages.get_ref().set_timeout(Some(silence))?;
        messages.receive(MAX_REQUEST_LEN)
    };
    let Some(bytes) = read(messages).map_err(|error| error.to_string())? else { return Ok(None) };
    AgentRequest::parse(&bytes).map(Some).map_err(|error| error.to_string())
}

fn send(messages: &mut MessageStream<Connection>, answer: &AgentAnswer) -> Result<(), String> {
    let sent = messages.send(&answer.to_bytes()).and_then(|()| messages.flush());
    sent.map_err(|error| error.to_string())
}
