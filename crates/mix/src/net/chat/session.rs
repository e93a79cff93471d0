//! A member that stays connected: it has the client's state stored, has said what happens, and
//! moves messages. [`Presence`] decides when it connects and leaves.

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
use crate::presence::{Action, Presence};

/// The inputs that wait for the client.
const MAX_INPUTS: usize = 64;

/// Without a message of the proxy for this time the connection is taken for broken. There is one in
/// each round.
const SILENCE: Duration = Duration::from_secs(180);

/// How long what was written last may take when the chat ends.
const LAST_BYTES_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the state may take to be written when the chat ends.
const LAST_STATE_TIMEOUT: Duration = Duration::from_secs(5);

/// When a state that could not be written is written again.
const STORE_AGAIN: Duration = Duration::from_secs(1);

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
    /// Ends the chat after the rounds that the configuration says, so that the proxy does not see
    /// when a message has come or arrived.
    Finish,
    /// Ends the chat at once. The proxy sees when: it must not be because of a message.
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
    /// once: it is in the state then. `tell` is called with what happens, from one thread. If it
    /// fails, in words, it is called again with [`Event::Ended`] only: what it was called with
    /// counts as not shown, and the chat ends as by [`Command::Finish`]. Also returns the last
    /// messages of the history, if there is one.
    ///
    /// # Errors
    /// When something that the configuration names cannot be used.
    pub fn start(
        config: &Config,
        invitation: Option<Invitation>,
        tell: impl FnMut(Event) -> Result<(), String> + Send + 'static,
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
struct Link {
    outbox: Outbox,
    next: SyncSender<usize>,
}

struct Driver {
    client: Client,
    presence: Presence,
    /// The rounds until it leaves, if it does so by itself.
    stay: u64,
    output: Output,
    has_history: bool,
    /// What a person is told when the state is stored.
    answers: VecDeque<Event>,
    proxy: String,
    options: Options,
    link: Option<Link>,
    /// The number of the connection.
    number: u64,
    status: Option<ClientStatus>,
    /// When the state is written again, if it could not be.
    store_again: Option<Instant>,
    /// Why it ends, if that is an error.
    why: Option<String>,
}

/// Why the loop ends.
struct End(Option<String>);

impl Driver {
    fn new(
        config: &Config,
        invitation: Option<Invitation>,
        tell: impl FnMut(Event) -> Result<(), String> + Send + 'static,
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
        let writer =
            OutputWriter { folder, key: StateKey::new(&identity), history, is_closed: false, tell };
        // If there is no room, there are inputs, after which the output is asked anyway.
        let wake = move || _ = inputs.try_send(Input::OutputDone);
        let driver = Self {
            client,
            presence: Presence::new(Instant::now()),
            stay: config.stay,
            output: Output::start(writer, wake).map_err(ChatError::Threads)?,
            has_history,
            answers: VecDeque::new(),
            proxy: config.proxy.clone(),
            options,
            link: None,
            number: 0,
            status: None,
            store_again: None,
            why: None,
        };
        Ok((driver, said))
    }

    fn run(mut self, inputs: &Receiver<Input>, to_self: &SyncSender<Input>) {
        let End(why) = loop {
            self.drive();
            if let Err(end) = self.step(inputs, to_self) {
                break end;
            }
        };
        // Before all else: what is to be written must not show in the time of the connection's end.
        if let Some(Link { outbox, next }) = self.link.take() {
            drop(next);
            outbox.finish(LAST_BYTES_TIMEOUT);
        }
        self.settle();
        let why = why.or(self.why.take());
        self.output.tell(Event::Ended { why });
        self.output.finish(LAST_STATE_TIMEOUT);
    }

    /// Waits for some time until the state is stored, and what depends on it is told.
    fn settle(&mut self) {
        let end = Instant::now() + LAST_STATE_TIMEOUT;
        let why = loop {
            if let Some(state) = self.client.poll_store() {
                self.output.store(state);
            }
            if self.client.is_stored() {
                return self.answer();
            }
            match self.output.wait(end) {
                Some(Done::NotStored(why)) => break why,
                Some(done) => self.handle_done(done),
                None => break "the disk does not answer".into(),
            }
        };
        for answer in self.answers.drain(..) {
            self.output.tell(answer.not_stored(&why));
        }
        self.why.get_or_insert(why);
    }

    fn handle_done(&mut self, done: Done) {
        match done {
            Done::Stored => {
                self.client.handle_stored();
                if self.store_again.take().is_some() {
                    self.output.tell(Event::Note("the state can be written again".into()));
                }
            }
            Done::NotStored(why) => {
                self.client.handle_not_stored();
                if self.store_again.is_none() {
                    self.output.tell(Event::Warning(format!(
                        "{why}: until it can be written, nothing is sent, shown or taken"
                    )));
                }
                self.store_again = Some(Instant::now() + STORE_AGAIN);
            }
            Done::NotRemembered(why) => {
                self.output.tell(Event::Warning(format!("{why}: it misses what is said")));
            }
            Done::Shown => self.client.handle_shown(),
            Done::Told => {}
            Done::Closed(why) => {
                // Those who read have gone, perhaps because of a message.
                self.why.get_or_insert(why);
                self.presence.leave_after(self.stay);
            }
        }
    }

    /// Tells what was promised, when it is stored.
    fn answer(&mut self) {
        self.answers.drain(..).for_each(|answer| self.output.tell(answer));
    }

    /// Waits for the next input or deadline, and handles it.
    fn step(&mut self, inputs: &Receiver<Input>, to_self: &SyncSender<Input>) -> Result<(), End> {
        let now = Instant::now();
        match self.presence.poll(now) {
            Some(Action::Leave) => return Err(End(None)),
            Some(Action::Connect) => return self.connect(to_self),
            None => {}
        }
        let presence = self.presence.poll_timeout();
        let deadlines = [self.client.poll_timeout(), presence, self.store_again];
        let deadline = deadlines.into_iter().flatten().min();
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
            Input::Command(command) => self.obey(command),
            Input::OutputDone => {}
            Input::Opened(number, ..) | Input::Received(number, _) | Input::Ended(number, _)
                if number != self.number => {}
            Input::Opened(_, writer, closer, next) => {
                let outbox = Outbox::start(writer, closer, MAX_UNSENT);
                let outbox = outbox.map_err(|error| End(Some(format!("no threads: {error}"))))?;
                let now = Instant::now();
                self.client.handle_connected(now);
                self.presence.handle_opened(now);
                let _ = next.send(self.client.max_message_len());
                self.link = Some(Link { outbox, next });
                self.output.tell(Event::Connected);
            }
            Input::Received(_, message) => {
                let before = self.client.exchanges();
                let handled = self.client.handle_message(Instant::now(), &message);
                if self.client.exchanges() > before {
                    self.presence.handle_round();
                }
                if let Some(Link { next, .. }) = &self.link {
                    let _ = next.send(self.client.max_message_len());
                }
                if let Err(error) = handled {
                    if error.is_final() {
                        self.drive();
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
        let now = Instant::now();
        if let Some(Link { outbox, .. }) = self.link.take() {
            outbox.close();
            self.client.handle_disconnected(now);
        }
        self.number += 1;
        let again_in = self.presence.handle_closed(now, getrandom::u32().unwrap_or(0));
        self.output.tell(Event::Disconnected { why: why.to_owned(), again_in });
    }

    fn obey(&mut self, command: Command) {
        let now = Instant::now();
        let answer = match command {
            Command::Finish => return self.presence.leave_after(self.stay),
            Command::Stop => return self.presence.leave_after(0),
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
    }

    /// Has stored, sent and shown what the client asks for: what was not shown is in the stored
    /// state.
    fn drive(&mut self) {
        while let Some(done) = self.output.poll_done() {
            self.handle_done(done);
        }
        let now = Instant::now();
        let can_store = self.store_again.is_none_or(|at| at <= now);
        if can_store {
            // Also if it takes long: until then there is nothing to do.
            self.store_again = self.store_again.map(|_| now + STORE_AGAIN);
        }
        loop {
            if can_store && let Some(state) = self.client.poll_store() {
                self.output.store(state);
            } else if self.client.is_stored() && !self.answers.is_empty() {
                self.answer();
            } else if let Some(message) = self.client.poll_transmit() {
                if let Some(Link { outbox, .. }) = &self.link {
                    // If that fails, the thread that reads notices.
                    outbox.send(message);
                }
            } else if self.output.has_told()
                && let Some(event) = self.client.event().cloned()
            {
                self.show(event);
            } else {
                break;
            }
        }
        let status = self.client.status();
        if self.output.has_told() && self.status.as_ref() != Some(&status) {
            self.status = Some(status.clone());
            self.output.tell(Event::Status(status));
        }
    }

    fn show(&mut self, event: ClientEvent) {
        let event = match event {
            ClientEvent::Message { from, text } => {
                let (name, said) = (from.clone(), text.clone());
                self.output.show(Event::Message { from, text });
                return self.remember(false, &name, &said);
            }
            ClientEvent::Delivered { id, to } => Event::Delivered { id: id.0, to },
            ClientEvent::GivenUp { id, to, reason } => {
                Event::GivenUp { id: id.0, to, why: reason.to_string() }
            }
            other => Event::Note(other.to_string()),
        };
        self.output.show(event);
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
