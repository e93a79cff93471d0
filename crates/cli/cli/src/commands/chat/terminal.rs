//! The chat in a terminal: draws the screen, and passes keys and events to it.

use std::io::{self, stdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;
use std::{mem, panic};

use console::CommandFailure;
use mix::chat::{ChatConfig, ChatEvent};
use ratatui::DefaultTerminal;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{
    self, DisableBracketedPaste, DisableFocusChange, EnableBracketedPaste, EnableFocusChange,
    KeyEventKind,
};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{DisableLineWrap, EnableLineWrap, disable_raw_mode};

use super::draw::{draw, rewrite_changed_rows};
use super::person::PersonalChat;
use super::screen::KeyAction;
use super::{ChatUiEvent, spawn};

/// How often the countdown to the next connection attempt is updated.
const TICK: Duration = Duration::from_secs(1);

/// The time limit for restoring a terminal that may take no output.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(1);

/// Whether the terminal is to be restored.
static IS_DRAWN: AtomicBool = AtomicBool::new(false);

/// Runs the chat until the user or a signal ends it. Then the terminal is restored, even after a
/// panic.
///
/// # Errors
/// If the chat cannot begin, or fails.
pub(super) fn run(config: &ChatConfig) -> Result<(), CommandFailure> {
    let (sender, inputs) = channel();
    let mut chat = PersonalChat::start(config, &sender)?;
    let mut terminal = RestoredTerminal::new().map_err(|error| broken(&error))?;
    spawn("keys", move || read_keys(&sender))?;
    let ended = talk(&mut chat, &mut terminal.0, &inputs);
    drop(terminal);
    ended
}

/// A terminal that is restored when this is dropped, and in a panic. It wraps no rows: if it draws
/// a text wider than this program expects, the text must not go on in the row below.
struct RestoredTerminal(DefaultTerminal);

impl RestoredTerminal {
    fn new() -> io::Result<Self> {
        IS_DRAWN.store(true, Ordering::Relaxed);
        let terminal = Self(ratatui::try_init()?);
        // The library's own hook restores the rest, and lets the message be printed.
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            leave();
            hook(panic);
        }));
        execute!(stdout(), EnableBracketedPaste, EnableFocusChange, DisableLineWrap)?;
        Ok(terminal)
    }
}

impl Drop for RestoredTerminal {
    fn drop(&mut self) {
        leave();
        ratatui::restore();
        IS_DRAWN.store(false, Ordering::Relaxed);
    }
}

/// Restores the terminal if the chat draws in it, before the process is ended from another thread.
/// From then on nothing more is drawn. A terminal that takes no output gets only its modes back.
pub(super) fn restore_before_exit() {
    if !IS_DRAWN.load(Ordering::Relaxed) {
        return;
    }
    let _ = disable_raw_mode();
    let (restored, is_restored) = channel();
    let work = move || {
        // The thread that draws may hold it.
        let output = stdout().lock();
        leave();
        ratatui::restore();
        mem::forget(output);
        let _ = restored.send(());
    };
    if thread::Builder::new().name("restore".into()).spawn(work).is_ok() {
        let _ = is_restored.recv_timeout(RESTORE_TIMEOUT);
    }
}

fn leave() {
    let _ = execute!(stdout(), DisableBracketedPaste, DisableFocusChange, EnableLineWrap);
}

fn read_keys(inputs: &Sender<ChatUiEvent<event::Event>>) {
    while let Ok(event) = event::read() {
        if inputs.send(ChatUiEvent::Person(event)).is_err() {
            return;
        }
    }
    // The terminal is gone.
    let _ = inputs.send(ChatUiEvent::Stop);
}

fn talk(
    chat: &mut PersonalChat,
    terminal: &mut DefaultTerminal,
    inputs: &Receiver<ChatUiEvent<event::Event>>,
) -> Result<(), CommandFailure> {
    let mut shown = Buffer::default();
    loop {
        chat.screen.status.connection = chat.connection();
        let mut view = chat.screen.view;
        let drawn = terminal.draw(|frame| {
            view = draw(frame, &chat.screen);
            rewrite_changed_rows(frame.buffer_mut(), &shown);
        });
        drawn.map_err(|error| broken(&error))?.buffer.clone_into(&mut shown);
        chat.screen.view = view;
        let first = match inputs.recv_timeout(TICK) {
            Ok(input) => input,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        // What has come at once is drawn at once.
        for input in std::iter::once(first).chain(inputs.try_iter()) {
            match input {
                ChatUiEvent::Stop | ChatUiEvent::Event(ChatEvent::Ended { why: None }) => {
                    return Ok(());
                }
                ChatUiEvent::Event(ChatEvent::Ended { why: Some(why) }) => {
                    return Err(CommandFailure::Failed(why));
                }
                ChatUiEvent::Event(event) => chat.handle_event(event),
                ChatUiEvent::Person(event) => match pressed(chat, &event) {
                    KeyAction::Nothing => {}
                    KeyAction::Redraw => terminal.clear().map_err(|error| broken(&error))?,
                    KeyAction::Stop => return Ok(()),
                    KeyAction::Command(command) => chat.run_command(command),
                },
            }
        }
    }
}

fn pressed(chat: &mut PersonalChat, event: &event::Event) -> KeyAction {
    match event {
        event::Event::Key(key) if key.kind != KeyEventKind::Release => {
            return chat.screen.key(*key);
        }
        event::Event::Paste(text) => chat.screen.paste(text),
        event::Event::FocusGained => chat.screen.focus(true),
        event::Event::FocusLost => chat.screen.focus(false),
        _ => {}
    }
    KeyAction::Nothing
}

fn broken(error: &io::Error) -> CommandFailure {
    CommandFailure::Failed(format!("the terminal: {error}"))
}
