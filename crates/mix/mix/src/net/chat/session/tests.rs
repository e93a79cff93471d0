//! A session that ends, without a proxy.

use std::path::Path;
use std::sync::mpsc::channel;

use random::RandomGenerator;

use super::super::output::FILE;
use super::*;

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
    let mut generator = RandomGenerator::system();
    let sealed = state_key(&identity).seal(FILE.as_bytes(), &client.stored(), &mut generator);
    let sealed = sealed.unwrap();
    folder.replace(FILE, &sealed).unwrap();
    result
}

#[test]
fn a_message_that_is_being_shown_at_the_end_is_not_shown_again() {
    let place = tempfile::tempdir().unwrap();
    let config = config(place.path());
    let texts = ["first", "second"];
    with_client(&config, |client| {
        for text in texts {
            client.push_event(MixClientEvent::Message { from: "bob".into(), text: text.into() });
        }
    });
    // A terminal that takes the first message only after the chat was told to end.
    let (shown, shows) = channel();
    let (release, released) = channel::<()>();
    let report = move |event| {
        if let ChatEvent::Client(MixClientEvent::Message { text, .. }) = event {
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
