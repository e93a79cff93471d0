//! A session that ends, without a proxy.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;

use random::RandomGenerator;
use transport::{ConnectionSecurity, Listener, random_identity};

use super::super::contacts::{self, ContactTrust};
use super::super::output::FILE;
use super::super::shared_file::{self, SharedFile};
use super::*;
use crate::protocol::event::MixClientEvent;

const TIMEOUT: Duration = Duration::from_secs(90);

/// The configuration of a group's administrator whose proxy does not answer.
fn config(place: &Path) -> ChatConfig {
    keys::file::create(&place.join("alice.key"), &[7; 32]).unwrap();
    let own = IdentitySecretKey::new(&[7; 32]).public();
    let text = format!(
        "identity = \"alice.key\"\nname = \"alice\"\nproxy = \"127.0.0.1:1\"\n\
         proxy_key = \"{own}\"\ngroup = \"friends\"\nadministrator = \"{own}\"\n\
         state = \"alice.state\"\n"
    );
    ChatConfig { config_dir: place.to_owned(), ..ChatConfig::from_toml(&text).unwrap() }
}

/// Opens the stored client, and has it changed and stored again.
fn with_client<T>(config: &ChatConfig, change: impl FnOnce(&mut MixClient) -> T) -> T {
    let identity = IdentitySecretKey::read(&config.config_dir.join(&config.identity)).unwrap();
    let identity = Arc::new(identity);
    let folder = StateFolder::open(&config.config_dir.join(&config.state)).unwrap();
    let mut client =
        opening::open_client(config, &identity, &folder, None, Instant::now()).unwrap();
    let result = change(&mut client);
    let state = client.stored();
    drop(folder);
    store(config, FILE, &state);
    result
}

/// Replaces a file of the state.
fn store(config: &ChatConfig, name: &str, content: &[u8]) {
    let identity = IdentitySecretKey::read(&config.config_dir.join(&config.identity)).unwrap();
    let folder = StateFolder::open(&config.config_dir.join(&config.state)).unwrap();
    let mut generator = RandomGenerator::system();
    let sealed = state_key(&identity).seal(name.as_bytes(), content, &mut generator).unwrap();
    folder.replace(name, &sealed).unwrap();
}

/// Puts a directory in the place of a file of the state, which cannot be written then.
fn block(config: &ChatConfig, name: &str) -> PathBuf {
    let path = config.config_dir.join(&config.state).join(name);
    let _ = fs::remove_file(&path);
    fs::create_dir(&path).unwrap();
    path
}

/// Waits for an event. Returns those before it, and it.
fn events_until(
    events: &Receiver<ChatEvent>,
    is_it: impl Fn(&ChatEvent) -> bool,
) -> Vec<ChatEvent> {
    let mut all = Vec::new();
    while !all.last().is_some_and(&is_it) {
        all.push(events.recv_timeout(TIMEOUT).unwrap());
    }
    all
}

/// The warning of a file that cannot be written.
fn is_unwritten(event: &ChatEvent) -> bool {
    matches!(event, ChatEvent::Warning(text) if text.contains("no message is shown"))
}

fn is_written_again(event: &ChatEvent) -> bool {
    *event == ChatEvent::Note("the state can be written again".into())
}

/// The contacts and the offered files of the state.
fn stored_files(config: &ChatConfig) -> (ChatContacts, FileOffers) {
    let identity = IdentitySecretKey::read(&config.config_dir.join(&config.identity)).unwrap();
    let folder = StateFolder::open(&config.config_dir.join(&config.state)).unwrap();
    opening::open_contacts(&identity, &folder).unwrap()
}

/// A proxy may have rounds that are longer than the time limit of a new connection.
#[test]
fn a_read_has_the_time_limit_of_the_terms() {
    let security = ConnectionSecurity::open(random_identity().unwrap());
    let key = security.public_key().unwrap();
    let listener = Listener::bind("127.0.0.1:0", &ConnectionOptions::new(security)).unwrap();
    let address = listener.local_addr().to_string();
    let pinned = ConnectionSecurity::pinned(random_identity().unwrap(), vec![key]);
    let hour = Some(Duration::from_secs(3600));
    let options = ConnectionOptions { timeout: hour, ..ConnectionOptions::new(pinned) };
    let (inputs, taken) = sync_channel(MAX_INPUTS);
    let (end, ended) = channel();
    thread::spawn(move || end.send(opening::read(1, &address, &options, &inputs)));
    // The proxy sends nothing.
    let _proxy = listener.accept().unwrap();
    let Ok(ChatInput::Opened(_, _writer, _, next)) = taken.recv_timeout(TIMEOUT) else {
        panic!("it does not connect");
    };
    next.send(ReceiveLimits { max_len: 100, timeout: Duration::from_millis(20) }).unwrap();
    let why = ended.recv_timeout(TIMEOUT).unwrap();
    assert!(why.contains("nothing for 0.02 s"), "{why}");
}

#[test]
fn an_offered_file_counts_as_shown_only_when_it_is_written() {
    let file = SharedFile { name: "plan.txt".into(), content: b"x".to_vec() }.to_text().unwrap();
    let is_offer = |event: &ChatEvent| matches!(event, ChatEvent::FileOffered { .. });
    for is_mended in [false, true] {
        let place = tempfile::tempdir().unwrap();
        let config = config(place.path());
        with_client(&config, |client| {
            for text in ["first", &*file] {
                let (from, text) = ("bob".to_owned(), text.to_owned());
                client.push_event(MixClientEvent::Message { key: None, from, text });
            }
        });
        // The file is handled only after the message before it was shown.
        let (report, events) = channel();
        let (release, released) = channel::<()>();
        let report = move |event| {
            let is_first = matches!(event, ChatEvent::Message { .. });
            let sent = report.send(event).map_err(|_| "the test has ended".to_owned());
            if is_first {
                let _ = released.recv();
            }
            sent
        };
        let (session, _) = ChatSession::start(&config, None, report).unwrap();
        events_until(&events, |event| matches!(event, ChatEvent::Message { .. }));
        let blocked = block(&config, shared_file::FILE);
        drop(release);
        let mut before = events_until(&events, is_unwritten);
        if is_mended {
            fs::remove_dir(&blocked).unwrap();
            before.extend(events_until(&events, is_written_again));
            assert!(!before.iter().any(is_offer), "{before:?}");
            events_until(&events, is_offer);
            drop(session);
        } else {
            drop(session);
            before.extend(events.try_iter());
            assert!(!before.iter().any(is_offer), "{before:?}");
            assert!(matches!(before.last(), Some(ChatEvent::Ended { why: Some(_) })));
            fs::remove_dir(&blocked).unwrap();
        }
        let left = with_client(&config, |client| client.event().cloned());
        assert_eq!(left.is_none(), is_mended, "{left:?}");
        assert_eq!(stored_files(&config).1.iter().count(), usize::from(is_mended));
    }
}

#[test]
fn a_change_of_contacts_is_done_only_when_it_is_written() {
    for is_mended in [false, true] {
        let place = tempfile::tempdir().unwrap();
        let config = config(place.path());
        let mut contacts = ChatContacts::default();
        let [team, bob] = ["team", "bob"].map(|name| MemberName::new(name).unwrap());
        let key = IdentitySecretKey::new(&[8; 32]).public();
        contacts.update(&[(key, bob)]);
        contacts.set_group(&team, &["bob".into()], &["bob".into()]).unwrap();
        store(&config, contacts::FILE, &contacts.encode());
        let (report, events) = channel();
        let report = move |event| report.send(event).map_err(|_| "the test has ended".to_owned());
        let (session, _) = ChatSession::start(&config, None, report).unwrap();
        let blocked = block(&config, contacts::FILE);
        session.send_command(ChatCommand::SetGroup { name: team, members: Vec::new() });
        let mut before = events_until(&events, is_unwritten);
        let is_done = |event: &ChatEvent| matches!(event, ChatEvent::Done(_));
        if is_mended {
            fs::remove_dir(&blocked).unwrap();
            before.extend(events_until(&events, is_written_again));
            assert!(!before.iter().any(is_done), "{before:?}");
            events_until(&events, is_done);
            drop(session);
            assert!(stored_files(&config).0.list().groups.is_empty());
        } else {
            drop(session);
            before.extend(events.try_iter());
            let is_refused = |event: &ChatEvent| matches!(event, ChatEvent::NotDone(_));
            assert!(before.iter().any(is_refused), "{before:?}");
            assert!(!before.iter().any(is_done), "{before:?}");
        }
    }
}

#[test]
fn a_message_that_is_being_shown_at_the_end_is_not_shown_again() {
    let place = tempfile::tempdir().unwrap();
    let config = config(place.path());
    let texts = ["first", "second"];
    with_client(&config, |client| {
        for text in texts {
            let (from, text) = ("bob".to_owned(), text.to_owned());
            client.push_event(MixClientEvent::Message { key: None, from, text });
        }
    });
    // A terminal that takes the first message only after the chat was told to end.
    let (shown, shows) = channel();
    let (release, released) = channel::<()>();
    let report = move |event| {
        if let ChatEvent::Message { text, .. } = event {
            shown.send(text).unwrap();
            let _ = released.recv();
        }
        Ok(())
    };
    let (session, _) = ChatSession::start(&config, None, report).unwrap();
    assert_eq!(shows.recv_timeout(TIMEOUT).unwrap(), texts[0]);
    let end = thread::spawn(move || drop(session));
    // So that it usually waits for the terminal already. The result does not depend on it.
    thread::park_timeout(Duration::from_millis(100));
    drop(release);
    end.join().unwrap();
    let left = texts.get(1 + shows.try_iter().count()).copied();
    let next = with_client(&config, |client| match client.event() {
        Some(MixClientEvent::Message { text, .. }) => Some(text.clone()),
        _ => None,
    });
    assert_eq!(next.as_deref(), left);
}

#[test]
fn a_chat_for_commands_does_not_connect_and_shows_no_messages() {
    let place = tempfile::tempdir().unwrap();
    let config = config(place.path());
    found_group(&config).unwrap();
    with_client(&config, |client| {
        let (from, text) = ("bob".to_owned(), "unread".to_owned());
        client.push_event(MixClientEvent::Message { key: None, from, text });
    });
    let (report, events) = channel();
    let report = move |event| report.send(event).map_err(|_| "the test has ended".to_owned());
    let session = ChatSession::start_for_commands(&config, report).unwrap();
    session.send_command(ChatCommand::Invite(MemberName::new("carol").unwrap()));
    loop {
        match events.recv_timeout(TIMEOUT).unwrap() {
            ChatEvent::Invitation { .. } => break,
            ChatEvent::NotDone(why) => panic!("{why}"),
            _ => {}
        }
    }
    drop(session);
    let is_other =
        |it: &ChatEvent| matches!(it, ChatEvent::Message { .. } | ChatEvent::Disconnected { .. });
    assert_eq!(events.try_iter().find(is_other), None);
    let unread = with_client(&config, |client| client.event().cloned());
    assert!(matches!(unread, Some(MixClientEvent::Message { .. })), "{unread:?}");
}

/// Bob is verified. While this member was away, another key had his name for an epoch, and wrote.
#[test]
fn a_message_of_a_key_that_had_a_verified_name_for_an_epoch_is_not_shown_as_verified() {
    let place = tempfile::tempdir().unwrap();
    let config = ChatConfig { history: true, ..config(place.path()) };
    let [bob, eve] = [8, 9].map(|number| IdentitySecretKey::new(&[number; 32]).public());
    let file = SharedFile { name: "plan.txt".into(), content: b"x".to_vec() }.to_text().unwrap();
    let sent = [(bob, "of bob"), (eve, "of eve"), (eve, &*file)];
    with_client(&config, |client| {
        for (key, text) in sent {
            let (key, from, text) = (Some(key), "bob".to_owned(), text.to_owned());
            client.push_event(MixClientEvent::Message { key, from, text });
        }
    });
    let mut known = ChatContacts::default();
    known.update(&[(bob, MemberName::new("bob").unwrap())]);
    known.trust("bob", true);
    store(&config, contacts::FILE, &known.encode());

    let (shown, shows) = channel();
    let report = move |event| shown.send(event).map_err(|_| "the test has ended".to_owned());
    let (session, _) = ChatSession::start(&config, None, report).unwrap();
    let mut seen = Vec::new();
    while seen.len() < 5 {
        match shows.recv_timeout(TIMEOUT).unwrap() {
            ChatEvent::Message { from, trust, text } => {
                seen.push((format!("{from}: {text}"), trust));
            }
            ChatEvent::FileOffered { from, trust, name, .. } => {
                seen.push((format!("{from}: {name}"), trust));
            }
            ChatEvent::Warning(text) if text.contains("bob is from ANOTHER KEY") => {
                seen.push(("warning".into(), ContactTrust::Seen));
            }
            _ => {}
        }
    }
    let expected = [
        ("bob: of bob", ContactTrust::Verified),
        ("warning", ContactTrust::Seen),
        ("bob: of eve", ContactTrust::Changed),
        ("warning", ContactTrust::Seen),
        ("bob: plan.txt", ContactTrust::Changed),
    ];
    assert_eq!(seen, expected.map(|(text, trust)| (text.to_owned(), trust)));
    drop(session);
    // The history keeps the trust of that time.
    let (session, entries) = ChatSession::start(&config, None, |_| Ok(())).unwrap();
    drop(session);
    let trusts: Vec<ContactTrust> = entries.iter().map(|entry| entry.trust).collect();
    assert_eq!(trusts, [ContactTrust::Verified, ContactTrust::Changed, ContactTrust::Changed]);
}
