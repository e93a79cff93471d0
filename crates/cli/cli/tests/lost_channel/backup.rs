//! New streams use a backup server while a channel of the first one is lost without a trace, and
//! return.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use lab::LinkDirection;

use crate::testbed::{End, FAULTY, Service, TOPOLOGY, Testbed, until};

/// The first server needs all three channels. The backup is the same host without the faulty one.
const BACKUP: &str = "switch_back_after_s = 3\n\
    backup_server = [{ channel = [\
    { server = \"<a>\", device = \"a\" }, { server = \"<c>\", device = \"c\" }] }]";

/// The time within which new streams use the backup: 5 s on an idle machine.
const SWITCH_LIMIT: Duration = Duration::from_secs(30);

/// Which of the servers new streams use.
fn used(testbed: &Testbed) -> Option<usize> {
    testbed.status(End::Client)?.servers.iter().position(|server| server.is_used)
}

fn echoes(stream: &mut TcpStream) -> bool {
    let mut heard = [0; 5];
    stream.write_all(b"still").is_ok()
        && stream.read_exact(&mut heard).is_ok()
        && &heard == b"still"
}

pub(crate) fn new_streams_leave_a_silent_server_within_five_seconds() {
    let testbed = Testbed::start(TOPOLOGY, [BACKUP, ""], Service::Echoes);
    let (mut first, code) = testbed.ask();
    assert!(code == 0 && echoes(&mut first));
    until("all channels were heard", || {
        testbed.status(End::Client).is_some_and(|it| it.servers.iter().all(|it| it.gone.is_none()))
    });
    // While a busy machine started the ends, new streams may have left it.
    until("new streams use the first server", || used(&testbed) == Some(0));
    drop(first);

    // No stream uses the channels, so only the proxy itself can notice.
    testbed.cut(FAULTY, &LinkDirection::BOTH, true);
    let cut = Instant::now();
    until("new streams use the backup", || used(&testbed) == Some(1));
    let (mut open, code) = testbed.ask();
    let took = cut.elapsed();
    assert!(code == 0 && echoes(&mut open));
    assert!(took <= SWITCH_LIMIT, "{took:?}");
    let says = |parts: &[&str]| {
        let log = testbed.log(End::Client);
        log.lines().any(|line| parts.iter().all(|part| line.contains(part)))
    };
    let moved = ["new streams use server 2", "channel 2", "no answer"];
    until("the log says why", || says(&moved));

    testbed.cut(FAULTY, &LinkDirection::BOTH, false);
    until("new streams use the first server", || used(&testbed) == Some(0));
    let (mut again, code) = testbed.ask();
    assert!(code == 0 && echoes(&mut again));
    assert!(echoes(&mut open), "an open stream stays");
    let returned = ["has worked for 3 s; new streams use it again"];
    until("the log says that they return", || says(&returned));
}
