//! A chat session: the driver of a member's client. It stores the client's state, reports events
//! and moves messages. [`Presence`] decides when it connects and leaves.

mod arrivals;
mod commands;
mod opening;
mod storing;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fmt, io};

use keys::{IdentityPublicKey, IdentitySecretKey, KeyFileError};
use tracing::debug;
use transport::{ConnectionCloser, ConnectionOptions, ConnectionWriter};

use super::super::outbox::{ConnectionOutbox, STACK_LEN};
use super::super::state::{StateFileError, StateFolder, state_key};
use super::config::ChatConfig;
use super::contacts::ChatContacts;
use super::event::ChatEvent;
use super::history::{ChatHistory, ChatHistoryEntry, ChatHistoryError};
use super::output::{ChatOutput, ChatOutputResult, ChatOutputWriter as OutputWriter};
use super::shared_file::FileOffers;
use crate::protocol::client::{MixClient, MixClientStatus};
use crate::protocol::membership::{Invitation, MemberName, ProxyAddress};
use crate::protocol::presence::{Presence, PresenceAction};
use arrivals::PreparedEvent;
pub use commands::ChatCommand;
use opening::ReceiveLimits;
pub use opening::found_group;
use storing::{ChatAnswer, StateWrites};

/// The maximum number of queued inputs.
const MAX_INPUTS: usize = 64;

/// The time from the receipt of a message until its reply is sent: longer than the work for the
/// reply takes, so that somebody who measures it learns nothing about the member.
const REPLY_DELAY: Duration = Duration::from_millis(3);

/// The time limit for sending the last bytes when the chat ends.
const LAST_BYTES_TIMEOUT: Duration = Duration::from_secs(1);

/// The time limit for writing the state when the chat ends.
const LAST_STATE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a chat that ends waits until its notice for the next epoch is sent.
const LAST_NOTICE_TIMEOUT: Duration = Duration::from_secs(10);

/// The validity of an invitation.
const INVITATION_LASTS: Duration = Duration::from_secs(7 * 86_400);

/// The maximum number of queued bytes to the proxy, plus one message.
const MAX_UNSENT: usize = 1 << 20;

/// The number of history entries that are shown at the start.
const MAX_SHOWN: usize = 1_000;

/// Why a chat cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum ChatError {
    /// The identity key cannot be read.
    #[error("identity: {0}")]
    Identity(#[from] KeyFileError),
    /// The state cannot be used.
    #[error(transparent)]
    State(#[from] StateFileError),
    /// The state is not one of this program.
    #[error("state: {0}")]
    Client(String),
    /// The history cannot be used.
    #[error(transparent)]
    History(#[from] ChatHistoryError),
    /// The system gives no threads.
    #[error("cannot start threads: {0}")]
    Threads(io::Error),
    /// The system gives no random bytes.
    #[error("the system gives no random bytes: {0}")]
    Random(getrandom::Error),
}

/// A chat that runs in its own thread. It ends when this is dropped.
pub struct ChatSession {
    inputs: SyncSender<ChatInput>,
    thread: Option<JoinHandle<()>>,
}

enum ChatInput {
    Command(ChatCommand),
    /// A new connection: its number, its two halves, and the channel that allows reading the next
    /// message.
    Opened(u64, ConnectionWriter, ConnectionCloser, SyncSender<ReceiveLimits>),
    /// A message, and when it was received.
    Received(u64, Vec<u8>, Instant),
    Ended(u64, String),
    /// The output thread has a result.
    OutputDone,
}

impl fmt::Debug for ChatSession {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ChatSession").finish_non_exhaustive()
    }
}

impl ChatSession {
    /// Starts a chat: reads the state and connects. A client that is not a member yet needs an
    /// invitation at its first start; it is then stored in the state. `report` is called with each
    /// event, from one thread. If it returns an error, that event counts as not shown, the chat
    /// ends as with [`ChatCommand::Finish`], and `report` is called again only with
    /// [`ChatEvent::Ended`]. Also returns the last messages of the history, if there is one.
    ///
    /// # Errors
    /// When something that the configuration names cannot be used.
    pub fn start(
        config: &ChatConfig,
        invitation: Option<Invitation>,
        report: impl FnMut(ChatEvent) -> Result<(), String> + Send + 'static,
    ) -> Result<(Self, Vec<ChatHistoryEntry>), ChatError> {
        let (inputs, taken) = sync_channel(MAX_INPUTS);
        let (driver, entries) = ChatDriver::new(config, invitation, report, inputs.clone())?;
        Ok((Self::run(driver, inputs, taken)?, entries))
    }

    /// Starts a chat for a few commands, which does not connect. Messages that were not shown yet
    /// stay in the state.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_for_commands(
        config: &ChatConfig,
        report: impl FnMut(ChatEvent) -> Result<(), String> + Send + 'static,
    ) -> Result<Self, ChatError> {
        let (inputs, taken) = sync_channel(MAX_INPUTS);
        let (driver, _) = ChatDriver::new(config, None, report, inputs.clone())?;
        Self::run(ChatDriver { is_offline: true, ..driver }, inputs, taken)
    }

    fn run(
        driver: ChatDriver,
        inputs: SyncSender<ChatInput>,
        taken: Receiver<ChatInput>,
    ) -> Result<Self, ChatError> {
        let to_self = inputs.clone();
        let builder = thread::Builder::new().name("mix-chat".into());
        let thread = builder.spawn(move || driver.run(&taken, &to_self));
        Ok(Self { inputs, thread: Some(thread.map_err(ChatError::Threads)?) })
    }

    /// Sends a command. Events report its effect.
    pub fn send_command(&self, command: ChatCommand) {
        // If the chat has ended, an event has reported it.
        let _ = self.inputs.send(ChatInput::Command(command));
    }
}

impl Drop for ChatSession {
    fn drop(&mut self) {
        self.send_command(ChatCommand::Stop);
        let Some(thread) = self.thread.take() else { return };
        let _ = thread.join();
    }
}

/// The connection to the proxy.
struct ChatProxyConnection {
    outbox: ConnectionOutbox,
    next: SyncSender<ReceiveLimits>,
}

struct ChatDriver {
    client: MixClient,
    presence: Presence,
    /// The number of rounds that the member stays after [`ChatCommand::Finish`].
    stay: u64,
    output: ChatOutput,
    has_history: bool,
    answers: VecDeque<ChatAnswer>,
    /// The address of the last connection, and the options of all.
    proxy: String,
    options: ConnectionOptions,
    link: Option<ChatProxyConnection>,
    /// When a chat that ends waits no longer for its notices to be sent.
    leaves_by: Option<Duration>,
    /// The number of the connection.
    number: u64,
    status: Option<MixClientStatus>,
    contacts: ChatContacts,
    /// The other members with which the contacts were compared; `None` before an epoch.
    compared: Option<Vec<(IdentityPublicKey, MemberName)>>,
    offers: FileOffers,
    /// When the proxy has last sent something, and whether its silence was reported.
    heard: Duration,
    is_silent: bool,
    /// When replies to the last received message may be sent at the earliest.
    replies_at: Instant,
    writes: StateWrites,
    /// An event of the client, which is shown when the contacts and the offered files are written.
    prepared: Option<PreparedEvent>,
    /// Whether it runs for a few commands: it does not connect, and leaves messages unshown.
    is_offline: bool,
    /// Why the chat ends, if because of an error.
    why: Option<String>,
    /// The times of the client, of `presence` and of `writes` are since then.
    start: Instant,
}

/// Why the loop ends.
struct ChatEnd(Option<String>);

impl ChatDriver {
    fn new(
        config: &ChatConfig,
        invitation: Option<Invitation>,
        report: impl FnMut(ChatEvent) -> Result<(), String> + Send + 'static,
        inputs: SyncSender<ChatInput>,
    ) -> Result<(Self, Vec<ChatHistoryEntry>), ChatError> {
        let in_dir = |path: &std::path::Path| config.config_dir.join(path);
        let identity = Arc::new(IdentitySecretKey::read(&in_dir(&config.identity))?);
        let folder = StateFolder::open(&in_dir(&config.state))?;
        let start = Instant::now();
        let client = opening::open_client(config, &identity, &folder, invitation, start)?;
        let (contacts, offers) = opening::open_contacts(&identity, &folder)?;
        let (history, entries) = if config.history {
            let (history, entries) = ChatHistory::open(&folder, state_key(&identity), MAX_SHOWN)?;
            (Some(history), entries)
        } else {
            (None, Vec::new())
        };
        let own = IdentitySecretKey::read(&in_dir(&config.identity))?;
        let options = opening::connection_options(config, own);
        let has_history = history.is_some();
        let writer = OutputWriter {
            folder,
            files: in_dir(&config.files),
            key: state_key(&identity),
            history,
            is_closed: false,
            report,
        };
        // If the queue is full, the output is polled after the queued inputs anyway.
        let wake = move || _ = inputs.try_send(ChatInput::OutputDone);
        let driver = Self {
            client,
            presence: Presence::new(start.elapsed()),
            stay: config.stay,
            output: ChatOutput::start(writer, wake).map_err(ChatError::Threads)?,
            has_history,
            answers: VecDeque::new(),
            proxy: config.proxy.clone(),
            options,
            link: None,
            leaves_by: None,
            number: 0,
            status: None,
            contacts,
            compared: None,
            offers,
            heard: Duration::ZERO,
            is_silent: false,
            replies_at: start,
            writes: StateWrites::default(),
            prepared: None,
            is_offline: false,
            why: None,
            start,
        };
        Ok((driver, entries))
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn run(mut self, inputs: &Receiver<ChatInput>, to_self: &SyncSender<ChatInput>) {
        let ChatEnd(why) = loop {
            self.drive();
            if let Err(end) = self.step(inputs, to_self) {
                break end;
            }
        };
        // First of all, so that the time of the connection's end does not depend on pending writes.
        if let Some(ChatProxyConnection { outbox, next }) = self.link.take() {
            drop(next);
            outbox.finish(LAST_BYTES_TIMEOUT);
        }
        self.wait_until_stored();
        let why = why.or(self.why.take());
        self.output.report(ChatEvent::Ended { why });
        self.output.finish(LAST_STATE_TIMEOUT);
    }

    fn handle_done(&mut self, done: ChatOutputResult) {
        match done {
            ChatOutputResult::Stored => self.handle_state_written(),
            ChatOutputResult::NotStored(why) => self.handle_state_not_written(why),
            ChatOutputResult::NotRemembered(why) => {
                self.output
                    .report(ChatEvent::Warning(format!("{why}: messages are missing from it")));
            }
            ChatOutputResult::FileDone(name, failure) => self.handle_file_done(name, failure),
            ChatOutputResult::Shown => self.client.handle_shown(),
            ChatOutputResult::Saved(number, path) => {
                self.offers.handle_saved(number);
                self.write_offers();
                let text = format!("file {number} is saved as {}", path.display());
                self.output.report(ChatEvent::Note(text));
            }
            ChatOutputResult::NotSaved(number, why) => {
                self.offers.handle_not_saved(number);
                self.output.report(ChatEvent::Warning(why));
            }
            ChatOutputResult::Reported => {}
            ChatOutputResult::Closed(why) => {
                // The reader of the output has gone, perhaps because of a message.
                self.why.get_or_insert(why);
                self.presence.leave_after(self.stay);
            }
        }
    }

    /// Waits for the next input or deadline, and handles it.
    fn step(
        &mut self,
        inputs: &Receiver<ChatInput>,
        to_self: &SyncSender<ChatInput>,
    ) -> Result<(), ChatEnd> {
        let now = self.now();
        match self.presence.poll(now) {
            Some(PresenceAction::Connect) if self.is_offline => {}
            Some(PresenceAction::Connect) => return self.connect(to_self),
            Some(PresenceAction::Leave) if !self.must_send_notices(now) => {
                return Err(ChatEnd(None));
            }
            Some(PresenceAction::Leave) | None => {}
        }
        let presence = self.presence.poll_timeout();
        let silence = self.silence_limit().filter(|_| !self.is_silent);
        let silence = silence.map(|limit| self.heard + limit);
        let client = self.client.poll_timeout();
        let deadlines = [client, presence, self.writes.again_at(), silence, self.leaves_by];
        let deadline = deadlines.into_iter().flatten().min();
        let input = match deadline {
            None => inputs.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(deadline) => inputs.recv_timeout(deadline.saturating_sub(now)),
        };
        match input {
            Ok(input) => self.handle(input),
            Err(RecvTimeoutError::Timeout) => {
                let now = self.now();
                self.client.handle_timeout(now);
                self.notice_silence(now);
                Ok(())
            }
            Err(RecvTimeoutError::Disconnected) => Err(ChatEnd(None)),
        }
    }

    /// Whether a chat that ends waits for its notices to be sent: without the one with its prekey,
    /// this member could not read the rounds of the next epochs. An epoch has then begun just now.
    fn must_send_notices(&mut self, now: Duration) -> bool {
        let status = self.client.status();
        if self.link.is_none() || !status.has_notices_waiting {
            return false;
        }
        let is_first = self.leaves_by.is_none();
        let until = *self.leaves_by.get_or_insert(now + LAST_NOTICE_TIMEOUT);
        if is_first {
            let text = if status.is_leaving {
                "the chat ends as soon as the proxy has been told that you leave"
            } else {
                "an epoch has just begun: the chat ends as soon as your key for the next one is \
                 sent"
            };
            self.output.report(ChatEvent::Note(text.into()));
        }
        now < until
    }

    /// Connects in a new thread, which then reads.
    fn connect(&mut self, to_self: &SyncSender<ChatInput>) -> Result<(), ChatEnd> {
        self.number += 1;
        let ProxyAddress { address, key } = self.client.begin_connection();
        self.proxy.clone_from(&address);
        let (number, options) = (self.number, opening::options_for(&self.options, key));
        let inputs = to_self.clone();
        let work = move || {
            let why = opening::read(number, &address, &options, &inputs);
            let _ = inputs.send(ChatInput::Ended(number, why));
        };
        let builder = thread::Builder::new().name("mix-read".into()).stack_size(4 * STACK_LEN);
        let spawned = builder.spawn(work);
        spawned.map(drop).map_err(|error| ChatEnd(Some(format!("cannot start a thread: {error}"))))
    }

    fn handle(&mut self, input: ChatInput) -> Result<(), ChatEnd> {
        match input {
            ChatInput::Command(command) => self.run_command(command),
            ChatInput::OutputDone => {}
            ChatInput::Opened(number, ..)
            | ChatInput::Received(number, ..)
            | ChatInput::Ended(number, _)
                if number != self.number => {}
            ChatInput::Opened(_, writer, closer, next) => {
                let outbox = ConnectionOutbox::start(writer, closer, MAX_UNSENT);
                let outbox = outbox
                    .map_err(|error| ChatEnd(Some(format!("cannot start a thread: {error}"))))?;
                let now = self.now();
                self.hear(now);
                self.client.handle_connected(now);
                self.presence.handle_opened(now);
                let _ = next.send(self.receive_limits());
                self.link = Some(ChatProxyConnection { outbox, next });
                self.output.report(ChatEvent::Connected);
            }
            ChatInput::Received(_, message, at) => {
                self.replies_at = at + REPLY_DELAY;
                let before = self.client.exchanges();
                let now = self.now();
                self.hear(now);
                let handled = self.client.handle_message(now, &message);
                if self.client.exchanges() > before {
                    self.presence.handle_round();
                }
                if let Some(ChatProxyConnection { next, .. }) = &self.link {
                    let _ = next.send(self.receive_limits());
                }
                if let Err(error) = handled {
                    if error.is_final() {
                        self.drive();
                        return Err(ChatEnd(Some(error.to_string())));
                    }
                    self.disconnect(&error.to_string());
                }
            }
            ChatInput::Ended(_, why) => self.disconnect(&why),
        }
        Ok(())
    }

    /// Ends the connection, if there is one, and waits before the next.
    fn disconnect(&mut self, why: &str) {
        debug!("{}: {why}", self.proxy);
        let now = self.now();
        if let Some(ChatProxyConnection { outbox, .. }) = self.link.take() {
            outbox.close();
        }
        self.client.handle_disconnected(now);
        self.number += 1;
        self.is_silent = false;
        let again_in = self.presence.handle_closed(now, getrandom::u32().unwrap_or(0));
        self.output.report(ChatEvent::Disconnected { why: why.to_owned(), again_in });
    }

    /// Stores, sends and shows what the client returns. Messages that were not shown yet are in the
    /// stored state.
    fn drive(&mut self) {
        while let Some(done) = self.output.poll_done() {
            self.handle_done(done);
        }
        let now = self.now();
        let is_again = self.writes.poll(now);
        let can_store = is_again || !self.writes.has_state_failed();
        if is_again {
            self.write_files_again();
        }
        // Before messages are shown, because their senders are compared with the contacts.
        self.update_contacts();
        loop {
            if can_store && let Some(state) = self.client.poll_store() {
                self.output.store(state);
            } else if self.is_answer_due() {
                self.answer();
            } else if let Some(message) = self.client.poll_transmit(now) {
                if let Some(ChatProxyConnection { outbox, .. }) = &self.link {
                    // If this fails, the reading thread notices.
                    outbox.send_at(message, self.replies_at);
                }
            } else if self.prepared.is_none()
                && self.output.is_idle()
                && !self.is_offline
                && let Some(event) = self.client.event().cloned()
            {
                self.prepare(event);
            } else if self.output.is_idle()
                && self.writes.has_files()
                && let Some(event) = self.prepared.take()
            {
                self.show(event);
            } else if !self.client.read_round() {
                break;
            }
        }
        let status = self.client.status();
        if self.output.is_idle() && self.status.as_ref() != Some(&status) {
            self.status = Some(status.clone());
            self.output.report(ChatEvent::Status(status));
        }
    }

    /// The limits of the next message of the proxy.
    fn receive_limits(&self) -> ReceiveLimits {
        let (max_len, timeout) = (self.client.max_message_len(), self.client.read_timeout());
        ReceiveLimits { max_len, timeout }
    }

    /// How long the proxy may send nothing until that is reported.
    fn silence_limit(&self) -> Option<Duration> {
        self.link.as_ref().and_then(|_| self.client.silence_limit())
    }

    /// The proxy has sent something.
    fn hear(&mut self, now: Duration) {
        self.heard = now;
        if std::mem::take(&mut self.is_silent) {
            self.output.report(ChatEvent::ProxyAnswers);
        }
    }

    fn notice_silence(&mut self, now: Duration) {
        let is_over = self.silence_limit().is_some_and(|limit| now >= self.heard + limit);
        if is_over && !self.is_silent {
            self.is_silent = true;
            let since = now.saturating_sub(self.heard);
            self.output.report(ChatEvent::ProxySilent { since });
        }
    }
}

#[cfg(test)]
mod tests;
