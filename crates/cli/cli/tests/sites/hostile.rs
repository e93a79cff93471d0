//! An agent that has the right key and answers wrongly.

use std::fs;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use transport::{Listener, MessageStream};

use super::emulation::until;
use super::peer::{options, welcomed};
use super::refused::SPOKEN;
use super::testbed::SiteTestbed;

/// What an agent does after the hello.
#[derive(Clone, Copy)]
enum WrongAnswer {
    /// It answers each request with these bytes.
    Bytes(&'static [u8]),
    /// It begins an answer of 2^60 bytes.
    Endless,
    /// It ends the connection.
    Nothing,
}

pub(crate) fn wrong_answers() {
    let mut testbed = SiteTestbed::new();
    let (messages, welcome) = welcomed(&testbed);
    drop(messages);
    testbed.syd = None;
    for (what, wrong, expected) in [
        ("unknown", WrongAnswer::Bytes(&[200]), "a site was lost in each of 11 attempts"),
        ("empty", WrongAnswer::Bytes(&[]), "a site was lost in each of 11 attempts"),
        ("endless", WrongAnswer::Endless, "a site was lost in each of 11 attempts"),
        ("nothing", WrongAnswer::Nothing, "a site was lost in each of 11 attempts"),
        ("other", WrongAnswer::Bytes(&[5]), "site syd: its answer does not belong to the request"),
        // An output as the answer to a request that has none.
        ("piece", WrongAnswer::Bytes(b"\x09../../out"), "site syd: its answer does not belong"),
        // A text for a terminal.
        ("text", WrongAnswer::Bytes(b"\x03\0\0\0\x04\x1b[2J"), "site syd: "),
    ] {
        let agent = listener(&testbed);
        let output = thread::scope(|scope| {
            let serving = scope.spawn(|| serve(&agent, &welcome, wrong));
            let run = testbed.run(what, SPOKEN, &["--reconnect", "1"]);
            let output = run.wait_with_output().unwrap();
            agent.stop();
            serving.join().unwrap();
            output
        });
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{what}: {stderr}");
        let last = stderr.lines().last().unwrap();
        assert!(last.contains(expected) && !last.contains('\x1b'), "{what}: {stderr}");
        assert_eq!(testbed.trials(what).len(), 0);
    }
    assert!(fs::read_dir(testbed.path("")).unwrap().flatten().all(|it| it.file_name() != "out"));
}

/// The wrong agent.
struct WrongAgent(Listener, AtomicBool);

impl WrongAgent {
    fn stop(&self) {
        self.1.store(true, Ordering::Relaxed);
    }
}

fn listener(testbed: &SiteTestbed) -> WrongAgent {
    let (address, options) = (testbed.address("syd"), options(testbed, "syd", "controller"));
    let mut listener = None;
    // The agent before may still have the port.
    until("the port is free", || {
        listener = testbed.at_site("syd", || Listener::bind(&address, &options)).ok();
        listener.is_some()
    });
    WrongAgent(listener.unwrap(), AtomicBool::new(false))
}

fn serve(agent: &WrongAgent, welcome: &[u8], wrong: WrongAnswer) {
    while !agent.1.load(Ordering::Relaxed) {
        let limit = Duration::from_millis(100);
        let Some(connection) = agent.0.accept_timeout(limit).unwrap() else { continue };
        let mut messages = MessageStream::new(connection);
        let Ok(Some(_)) = messages.receive(1 << 20) else { continue };
        if messages.send(welcome).and_then(|()| messages.flush()).is_err() {
            continue;
        }
        while let Ok(Some(_)) = messages.receive(2 << 20) {
            let answered = match wrong {
                WrongAnswer::Bytes(bytes) => messages.send(bytes).and_then(|()| messages.flush()),
                WrongAnswer::Endless => {
                    let mut connection = messages.into_inner();
                    let length = (1_u64 << 60).to_be_bytes();
                    let sent = connection.write_all(&length).and_then(|()| connection.flush());
                    messages = MessageStream::new(connection);
                    sent
                }
                WrongAnswer::Nothing => break,
            };
            if answered.is_err() {
                break;
            }
        }
    }
}
