//! A member that stays connected: it connects again with growing waits, has the client's state
//! stored, and has said what happens.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};
use std::{fmt, io};

use keys::{KeyError, SecretKey};
use tracing::debug;
use transport::{Closer, Messages, Options, Security, Writer, connect};
use zeroize::Zeroizing;

use super::super::outbox::{Outbox, STACK_LEN};
use super::super::state::{StateFileError, StateFolder, StateKey};
use super::config::Config;
use super::event::Event;
use super::history::{History, HistoryError, Said};
use super::output::{Done, FILE, Output, Writer as OutputWriter};
use crate::client::{Client, ClientEvent, ClientSendError, ClientSettings, ClientStatus};
use crate::membership::{Invitation, Name};

/// The first wait before connecting again.
const MIN_WAIT: Duration = Duration::from_millis(250);

/// The longest.
const MAX_WAIT: Duration = Duration::from_secs(15);

/// After a connection of this time the next wait is the first one again.
const STABLE: Duration = Duration::from_secs(5);

/// The inputs that wait for the client.
const MAX_INPUTS: usize = 64;

/// Without a message of the proxy for this time the connection is taken for broken. There is one in
/// each round.
const SILENCE: Duration = Duration::from_secs(180);

/// How long what was written last may take when the chat ends.
const LAST_BYTES_TIMEOUT: Duration = Duration::from_secs(1);

/// For how long an invitation is accepted.
const INVITATION_LASTS: Duration = Duration::from_secs(7 * 86_400);

/// The most that waits to be written, besides one message.
const MAX_UNSENT: usize = 1 << 20;

/// How many entries of the history are shown at the start.
const MAX_SHOWN: usize = 1_000;

/// Why a chat cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum ChatError {
    /// The identity key cannot be read.
    #[error("identity: {0}")]
    Identity(#[from] KeyError),
    /// The state cannot be used.
    #[error(transparent)]
    State(#[from] StateFileError),
    /// The state is not one of this program.
    #[error("state: {0}")]
    Client(String),
    /// The history cannot be used.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// The system gives no threads.
    #[error("cannot start threads: {0}")]
    Threads(io::Error),
    /// The system gives no random bytes.
    #[error("the system gives no random bytes: {0}")]
    Random(getrandom::Error),
}

/// What a person asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Sends a message.
    Say {
        /// The receiver.
        to: String,
        /// The text.
        text: String,
    },
    /// Makes an invitation for a person of this name.
    Invite(Name),
    /// Removes a member.
    Remove(Name),
    /// Leaves the group.
    Leave,
    /// Ends the chat.
    Stop,
}

/// A chat that runs in a thread of its own. Dropped, it ends.
pub struct Session {
    inputs: SyncSender<Input>,
    thread: Option<JoinHandle<()>>,
}

enum Input {
    Command(Command),
    /// A connection, by its number, and what lets the next message be read, of this length at most.
    Opened(u64, Writer, Closer, SyncSender<usize>),
    Received(u64, Vec<u8>),
    Ended(u64, String),
    /// The output has done something.
    OutputDone,
}

impl fmt::Debug for Session {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Session").finish_non_exhaustive()
    }
}

impl Session {
    /// Begins a chat: reads the state, and connects. Who is no member yet needs an invitation,
    /// once: it is in the state then. `tell` is called with what happens, from one thread. Also
    /// returns the last messages of the history, if there is one.
    ///
    /// # Errors
    /// When something that the configuration names cannot be used.
    pub fn start(
        config: &Config,
        invitation: Option<Invitation>,
        tell: impl FnMut(Event) + Send + 'static,
    ) -> Result<(Self, Vec<Said>), ChatError> {
        let (inputs, taken) = sync_channel(MAX_INPUTS);
        let to_self = inputs.clone();
        let (driver, said) = Driver::new(config, invitation, tell, inputs.clone())?;
        let builder = thread::Builder::new().name("mix-chat".into());
        let thread = builder.spawn(move || driver.run(&taken, &to_self));
        Ok((Self { inputs, thread: Some(thread.map_err(ChatError::Threads)?) }, said))
    }

    /// Asks for something. What comes of it is told.
    pub fn ask(&self, command: Command) {
        // If it has ended, that was told.
        let _ = self.inputs.send(Input::Command(command));
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.ask(Command::Stop);
        let Some(thread) = self.thread.take() else { return };
        let _ = thread.join();
    }
}

/// The connection to the proxy.
enum Link {
    /// None until then.
    Waiting(Instant),
    /// A thread connects.
    Connecting,
    Open {
        outbox: Outbox,
        next: SyncSender<usize>,
        since: Instant,
    },
}

struct Driver {
    client: Client,
    output: Output,
    has_history: bool,
    /// What a person is told when the state is stored.
    answers: VecDeque<Event>,
    proxy: String,
    options: Options,
    link: Link,
    /// The number of the connection.
    number: u64,
    wait: Duration,
    status: Option<ClientStatus>,
}

/// Why the loop ends.
struct End(Option<String>);

impl Driver {
    fn new(
        config: &Config,
        invitation: Option<Invitation>,
        tell: impl FnMut(Event) + Send + 'static,
        inputs: SyncSender<Input>,
    ) -> Result<(Self, Vec<Said>), ChatError> {
        let in_dir = |path: &std::path::Path| config.config_dir.join(path);
        let identity = Arc::new(SecretKey::read(&in_dir(&config.identity))?);
        let folder = StateFolder::open(&in_dir(&config.state))?;
        let client = open_client(config, &identity, &folder, invitation)?;
        let (history, said) = if config.history {
            let (history, said) = History::open(&folder, StateKey::new(&identity), MAX_SHOWN)?;
            (Some(history), said)
        } else {
            (None, Vec::new())
        };
        let own = SecretKey::read(&in_dir(&config.identity))?;
        let security = Security::pinned(own, vec![config.proxy_key]);
        let options = Options {
            transport: config.transport,
            timeout: Some(SILENCE),
            ..Options::new(security)
        };
        let has_history = history.is_some();
        let writer = OutputWriter { folder, key: StateKey::new(&identity), history, tell };
        // If there is no room, there are inputs, after which the output is asked anyway.
        let wake = move || _ = inputs.try_send(Input::OutputDone);
        let driver = Self {
            client,
            output: Output::start(writer, wake).map_err(ChatError::Threads)?,
            has_history,
            answers: VecDeque::new(),
            proxy: config.proxy.clone(),
            options,
            link: Link::Waiting(Instant::now()),
            number: 0,
            wait: MIN_WAIT,
            status: None,
        };
        Ok((driver, said))
    }

    fn run(mut self, inputs: &Receiver<Input>, to_self: &SyncSender<Input>) {
        let End(mut why) = loop {
            let end = self.drive().and_then(|()| self.step(inputs, to_self));
            if let Err(end) = end {
                break end;
            }
        };
        if let Err(End(error)) = self.settle() {
            why = why.or(error);
        }
        if let Link::Open { outbox, next, .. } = self.link {
            drop(next);
            outbox.finish(LAST_BYTES_TIMEOUT);
        }
        self.output.tell(Event::Ended { why });
        self.output.finish();
    }

    /// Waits until the state is stored, and what depends on it is told.
    fn settle(&mut self) -> Result<(), End> {
        loop {
            if let Some(state) = self.client.poll_store() {
                self.output.store(state);
            }
            if self.client.is_stored() {
                self.answers.drain(..).for_each(|answer| self.output.tell(answer));
                return Ok(());
            }
            let done = self.output.wait();
            self.handle_done(done)?;
        }
    }

    fn handle_done(&mut self, done: Done) -> Result<(), End> {
        match done {
            Done::Stored => self.client.handle_stored(),
            Done::Told => {}
            Done::Failed(why) => return Err(End(Some(why))),
        }
        Ok(())
    }

    /// Waits for the next input or deadline, and handles it.
    fn step(&mut self, inputs: &Receiver<Input>, to_self: &SyncSender<Input>) -> Result<(), End> {
        let now = Instant::now();
        if let Link::Waiting(until) = self.link
            && until <= now
        {
            return self.connect(to_self);
        }
        let until = match self.link {
            Link::Waiting(until) => Some(until),
            _ => None,
        };
        let deadline = [self.client.poll_timeout(), until].into_iter().flatten().min();
        let input = match deadline {
            None => inputs.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(deadline) => inputs.recv_timeout(deadline.saturating_duration_since(now)),
        };
        match input {
            Ok(input) => self.handle(input),
            Err(RecvTimeoutError::Timeout) => {
                self.client.handle_timeout(Instant::now());
                Ok(())
            }
            Err(RecvTimeoutError::Disconnected) => Err(End(None)),
        }
    }

    /// Connects in a thread of its own, which then reads.
    fn connect(&mut self, to_self: &SyncSender<Input>) -> Result<(), End> {
        self.number += 1;
        self.link = Link::Connecting;
        let (number, proxy) = (self.number, self.proxy.clone());
        let (options, inputs) = (self.options.clone(), to_self.clone());
        let work = move || {
            let why = read(number, &proxy, &options, &inputs);
            let _ = inputs.send(Input::Ended(number, why));
        };
        let builder = thread::Builder::new().name("mix-read".into()).stack_size(4 * STACK_LEN);
        let spawned = builder.spawn(work);
        spawned.map(drop).map_err(|error| End(Some(format!("no threads: {error}"))))
    }

    fn handle(&mut self, input: Input) -> Result<(), End> {
        match input {
            Input::Command(command) => return self.obey(command),
            Input::OutputDone => {}
            Input::Opened(number, ..) | Input::Received(number, _) | Input::Ended(number, _)
                if number != self.number => {}
            Input::Opened(_, writer, closer, next) => {
                let outbox = Outbox::start(writer, closer, MAX_UNSENT);
                let outbox = outbox.map_err(|error| End(Some(format!("no threads: {error}"))))?;
                let since = Instant::now();
                self.client.handle_connected(since);
                let _ = next.send(self.client.max_message_len());
                self.link = Link::Open { outbox, next, since };
                self.output.tell(Event::Connected);
            }
            Input::Received(_, message) => {
                let handled = self.client.handle_message(Instant::now(), &message);
                if let Link::Open { next, .. } = &self.link {
                    let _ = next.send(self.client.max_message_len());
                }
                if let Err(error) = handled {
                    if error.is_final() {
                        self.drive()?;
                        return Err(End(Some(error.to_string())));
                    }
                    self.disconnect(&error.to_string());
                }
            }
            Input::Ended(_, why) => self.disconnect(&why),
        }
        Ok(())
    }

    /// Ends the connection, if there is one, and waits before the next.
    fn disconnect(&mut self, why: &str) {
        debug!("{}: {why}", self.proxy);
        let before = std::mem::replace(&mut self.link, Link::Connecting);
        if let Link::Open { outbox, since, .. } = before {
            outbox.close();
            self.client.handle_disconnected(Instant::now());
            if since.elapsed() >= STABLE {
                self.wait = MIN_WAIT;
            }
        }
        self.number += 1;
        let again_in = varied(self.wait);
        self.wait = (2 * self.wait).min(MAX_WAIT);
        self.link = Link::Waiting(Instant::now() + again_in);
        self.output.tell(Event::Disconnected { why: why.to_owned(), again_in });
    }

    fn obey(&mut self, command: Command) -> Result<(), End> {
        let now = Instant::now();
        let answer = match command {
            Command::Stop => return Err(End(None)),
            Command::Say { to, text } => match self.client.send(&to, &text) {
                Ok(id) => {
                    self.remember(true, &to, &text);
                    Event::Queued { id: id.0, to, text }
                }
                Err(error) => {
                    let is_early = matches!(error, ClientSendError::Waiting(_));
                    Event::NotSent { to, text, why: error.to_string(), is_early }
                }
            },
            Command::Invite(name) => match self.client.invite(now, name, INVITATION_LASTS) {
                Ok(invitation) => Event::Invitation(invitation.code().to_string()),
                Err(error) => Event::NotDone(error.to_string()),
            },
            Command::Remove(name) => match self.client.remove(now, &name) {
                Ok(()) => Event::Done(format!("{name} is not in the next epoch")),
                Err(error) => Event::NotDone(error.to_string()),
            },
            Command::Leave => match self.client.leave(now) {
                Ok(()) => Event::Done("the administrator is told that you leave".into()),
                Err(error) => Event::NotDone(error.to_string()),
            },
        };
        // What was promised is stored before it is said.
        self.answers.push_back(answer);
        Ok(())
    }

    /// Has stored, told and sent what the client asks for, in this order: what was not told is in
    /// the stored state.
    fn drive(&mut self) -> Result<(), End> {
        while let Some(done) = self.output.poll_done() {
            self.handle_done(done)?;
        }
        loop {
            if let Some(state) = self.client.poll_store() {
                self.output.store(state);
            } else if self.client.is_stored() && !self.answers.is_empty() {
                self.answers.drain(..).for_each(|answer| self.output.tell(answer));
            } else if self.output.has_told()
                && let Some(event) = self.client.poll_event()
            {
                self.tell_of(event);
            } else if let Some(message) = self.client.poll_transmit() {
                if let Link::Open { outbox, .. } = &self.link {
                    // If that fails, the thread that reads notices.
                    outbox.send(message);
                }
            } else {
                break;
            }
        }
        let status = self.client.status();
        if self.output.has_told() && self.status.as_ref() != Some(&status) {
            self.status = Some(status.clone());
            self.output.tell(Event::Status(status));
        }
        Ok(())
    }

    fn tell_of(&mut self, event: ClientEvent) {
        let event = match event {
            ClientEvent::Message { from, text } => {
                self.remember(false, &from, &text);
                Event::Message { from, text }
            }
            ClientEvent::Delivered { id, to } => Event::Delivered { id: id.0, to },
            other => Event::Note(other.to_string()),
        };
        self.output.tell(event);
    }

    fn remember(&mut self, is_own: bool, name: &str, text: &str) {
        if self.has_history {
            let (name, text) = (name.to_owned(), text.to_owned());
            self.output.remember(Said { at: SystemTime::now(), is_own, name, text });
        }
    }
}

/// The client, with the state of the run before.
fn open_client(
    config: &Config,
    identity: &Arc<SecretKey>,
    folder: &StateFolder,
    invitation: Option<Invitation>,
) -> Result<Client, ChatError> {
    let stored = match folder.read(FILE)? {
        None => None,
        Some(sealed) => {
            let path = folder.path().join(FILE);
            let opened = StateKey::new(identity).open(FILE, &sealed);
            Some(opened.ok_or(StateFileError::Sealed { path })?)
        }
    };
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let settings = ClientSettings {
        group: config.address(),
        name: config.name.clone(),
        invitation,
        least_participants: config.least_anonymity,
        now: Instant::now(),
        since_1970: since_1970.unwrap_or_default(),
    };
    let mut seed = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *seed).map_err(ChatError::Random)?;
    let stored = stored.as_deref().map(|state| &state[..]);
    let client = Client::new(settings, identity.clone(), stored, *seed);
    client.map_err(|error| ChatError::Client(error.to_string()))
}

/// Connects, and passes messages on, each when the one before was handled. Returns why it ends.
fn read(number: u64, proxy: &str, options: &Options, inputs: &SyncSender<Input>) -> String {
    let connection = match connect(proxy, options) {
        Ok(connection) => connection,
        Err(error) => return error.to_string(),
    };
    let closer = connection.closer();
    let (reader, writer) = connection.split();
    let (next, allowed) = sync_channel(1);
    let gone = String::new;
    if inputs.send(Input::Opened(number, writer, closer, next)).is_err() {
        return gone();
    }
    let mut messages = Messages::new(reader);
    while let Ok(max) = allowed.recv() {
        let message = match messages.receive(max) {
            Ok(Some(message)) => message,
            Ok(None) => return "the proxy has ended the connection".into(),
            Err(error) => return error.to_string(),
        };
        if inputs.send(Input::Received(number, message)).is_err() {
            return gone();
        }
    }
    gone()
}

/// About as long, so that the clients of a proxy that was restarted do not come all at once.
fn varied(wait: Duration) -> Duration {
    let random = getrandom::u32().unwrap_or(0);
    wait.mul_f64(0.75 + 0.5 * f64::from(random) / f64::from(u32::MAX))
}
