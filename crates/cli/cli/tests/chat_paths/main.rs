//! A chat of three members between emulated hosts whose links lose packets. Without user namespaces
//! and `/dev/net/tun`, prints that the tests were skipped.

#[path = "../emulation/mod.rs"]
#[expect(dead_code, reason = "programs are started by `members`")]
mod emulation;
#[path = "../all/chat/members.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod members;
#[path = "../all/chat/restarts.rs"]
mod restarts;
#[path = "../all/chat/terminal.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod terminal;

use std::process::{Command, ExitCode};

use lab::sandbox;
use libtest_mimic::{Arguments, Trial as Test};

use members::{Proxy, Room};
use restarts::talk_with_restarts;
use terminal::Terminal;

/// The members, of which the first is the administrator. Each has a link to the proxy.
const NAMES: [&str; 3] = ["alice", "bob", "carol"];

/// An address of the proxy that all members have a route to.
const PROXY: &str = "10.99.0.1";

/// Each way: 2 % of packets are lost.
const CONDITIONS: &str = "rate_mbit = 100, delay_ms = 2, loss = 0.02";

fn main() -> ExitCode {
    if let Err(end) = sandbox::enter_for_tests() {
        return end;
    }
    let test = |name: &str, run: fn()| {
        Test::test(name, move || {
            run();
            Ok(())
        })
    };
    let tests = vec![
        test("no_message_is_lost_or_doubled_in_1000_rounds", thousand_rounds),
        test("a_person_talks_in_a_terminal", person_in_a_terminal),
    ];
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}

/// The proxy and the members, each on a host of its own.
fn open() -> (Room, Proxy) {
    let directory = tempfile::tempdir().unwrap();
    let links = NAMES.map(|name| {
        format!(
            "[hosts.{name}]\n[links.{name}]\nhosts = [\"{name}\", \"proxy\"]\n\
             both = {{ {CONDITIONS} }}\n"
        )
    });
    let topology = format!(
        "measure = {{ driver = \"accuracy\", values = {{}} }}\n[hosts.proxy]\n{}",
        links.concat()
    );
    let network = emulation::network(&topology, directory.path());
    let ip = |host: &str, arguments: String| {
        let mut command = Command::new("ip");
        command.args(arguments.split(' '));
        let status = network.host(host).unwrap().run(|| command.status()).unwrap().unwrap();
        assert!(status.success(), "{arguments}");
    };
    ip("proxy", format!("address add {PROXY}/32 dev lo"));
    for name in NAMES {
        let next = network.address("proxy", name).unwrap();
        ip(name, format!("route add {PROXY}/32 via {next}"));
    }
    Room::open_on(Some(network), &format!("{PROXY}:7000"), &NAMES)
}

fn thousand_rounds() {
    let (room, proxy) = open();
    talk_with_restarts(&room, proxy, &NAMES, |_, rounds| rounds >= 1000);
}

fn person_in_a_terminal() {
    let (room, _proxy) = open();
    let mut alice = Terminal::start(&room, "alice", [24, 80]);
    let [mut bob, carol] = ["bob", "carol"].map(|name| room.talk(name));
    alice.wait_for("3 take part");
    for at in 0..10 {
        alice.press(&format!("@bob question {at}\r"));
        assert_eq!(bob.wait_for("message"), format!("message alice question {at}"));
        bob.enter(&format!("@alice answer {at}"));
        alice.wait_for(&format!("bob: answer {at}"));
        carol.enter(&format!("@alice aside {at}"));
        alice.wait_for(&format!("carol: aside {at}"));
    }
    alice.press("\x03");
    alice.check_restored();
}
