//! For fuzz targets and tests: the messages between a controller and an agent.

use crate::agent::session::AgentSession;
use crate::site::{AgentAnswer, AgentRequest, version};

/// Parses bytes as a request and as an answer, and writes again what they are. With the bytes split
/// at zeros, makes requests of an agent's session.
///
/// # Panics
/// If something is not what was parsed.
pub fn exchange_with_agent(bytes: &[u8]) {
    if let Ok(request) = AgentRequest::parse(bytes) {
        let is_other =
            matches!(&request, AgentRequest::Hello { version: it, .. } if *it != version());
        // Of another version's hello, only the version is read.
        if !is_other {
            assert_eq!(AgentRequest::parse(&request.to_bytes()), Ok(request));
        }
    }
    if let Ok(answer) = AgentAnswer::parse(bytes) {
        assert_eq!(AgentAnswer::parse(&answer.to_bytes()), Ok(answer));
    }
    let mut session = AgentSession::default();
    for part in bytes.split(|byte| *byte == 0xff) {
        if let Ok(request) = AgentRequest::parse(part) {
            let _ = session.admit(&request);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use containment::{ContainmentLimit, ContainmentLimits};
    use proptest::prelude::*;

    use super::*;
    use crate::link::{LinkEndOptions, LinkEndReport, StretchedLinkKey};
    use crate::site::{
        AgentRefusal, ContainedStart, FilePiece, PathReading, ProgramReadiness, ProgramSignal,
        ProgramStart, SiteHost, SiteLinkEnd, TrialFilePath,
    };

    fn requests() -> Vec<AgentRequest> {
        let path = TrialFilePath::new("pair/page").unwrap();
        let piece =
            FilePiece { path: path.clone(), is_executable: true, offset: 7, bytes: vec![0, 255] };
        let start = ProgramStart {
            name: "program-0".into(),
            host: Some("client".into()),
            run: vec!["sh".into(), "-c".into(), String::new(), "\u{e4}".repeat(200)],
            environment: vec![("A".into(), "b=c".into())],
            directory: Some(TrialFilePath::new("pair").unwrap()),
            has_errors: true,
        };
        let (program, wait) = (3, Duration::from_millis(1500));
        let text = ProgramReadiness::Text("ready".into());
        vec![
            AgentRequest::Hello { version: version(), address: [192, 0, 2, 1].into() },
            AgentRequest::Hello { version: version(), address: [0xfd; 16].into() },
            AgentRequest::Begin,
            AgentRequest::Put(piece),
            AgentRequest::Zeros { path, length: u32::MAX },
            AgentRequest::Start(ProgramStart { directory: None, host: None, ..start.clone() }),
            AgentRequest::Start(start.clone()),
            AgentRequest::Contain(ContainedStart {
                program: start,
                limits: ContainmentLimits::default(),
            }),
            AgentRequest::Host(SiteHost {
                name: "client".into(),
                sysctl: vec![("net/ipv4/tcp_rmem".into(), "1 2 3".into())],
            }),
            AgentRequest::Link(Box::new(link("192.0.2.1:7101"))),
            AgentRequest::Link(Box::new(link("[fd00::1]:7101"))),
            AgentRequest::Links,
            AgentRequest::Await { program, readiness: ProgramReadiness::Port(80), wait },
            AgentRequest::Await { program, readiness: text, wait },
            AgentRequest::Ports { host: None },
            AgentRequest::Ports { host: Some("server".into()) },
            AgentRequest::Wait { program, wait },
            AgentRequest::Signal { program, signal: ProgramSignal::Terminate },
            AgentRequest::Signal { program, signal: ProgramSignal::Kill },
            AgentRequest::Check { program },
            AgentRequest::Explain { program, what: "ended".into() },
            AgentRequest::Output { program, offset: u64::MAX },
            AgentRequest::Probe { address: "192.0.2.1:7100".parse().unwrap() },
            AgentRequest::Keepalive,
            AgentRequest::End,
        ]
    }

    fn link(other: &str) -> SiteLinkEnd {
        let conditions = crate::EmulatedLinkConditions {
            rate_mbit: Some(10.5),
            delay_ms: 0.1,
            ..crate::EmulatedLinkConditions::default()
        };
        let options = LinkEndOptions {
            name: "a".into(),
            address: [10, 0, 0, 1].into(),
            mtu: 1500,
            congestion: Some("bbr".into()),
            conditions,
            seed: u64::MAX,
            port: 7101,
            other: other.parse().unwrap(),
            keys: [StretchedLinkKey([1; 32]), StretchedLinkKey([2; 32])],
        };
        SiteLinkEnd { host: "client".into(), options }
    }

    fn answers() -> Vec<AgentAnswer> {
        let reading = PathReading {
            round_trip_ms: 1.5,
            sent: 10,
            lost: 3,
            up_mbit: Some(2.5),
            down_mbit: None,
        };
        let time = Duration::from_micros(7);
        let report = LinkEndReport {
            is_joined: true,
            sent_bytes: 5,
            late_ms: 0.5,
            path_late_ms: 1.5,
            missed: 2,
            lost: u64::MAX,
        };
        vec![
            AgentAnswer::Welcome { machine: "{}".into(), has_address: true, silence: time },
            AgentAnswer::Refused(AgentRefusal::Version("9".into())),
            AgentAnswer::Refused(AgentRefusal::Busy),
            AgentAnswer::Refused(AgentRefusal::Request("no".into())),
            AgentAnswer::Done,
            AgentAnswer::Failed("why".into()),
            AgentAnswer::Started(9),
            AgentAnswer::NotYet,
            AgentAnswer::Ready,
            AgentAnswer::Ended { status: -1, time, limit: None },
            AgentAnswer::Ended { status: 9, time, limit: Some(ContainmentLimit::Time) },
            AgentAnswer::Links(vec![report, LinkEndReport::default()]),
            AgentAnswer::Contained { program: 3, means: "control groups".into() },
            AgentAnswer::Line("it".into()),
            AgentAnswer::Piece(vec![1, 2]),
            AgentAnswer::Ports(vec![(0, 80), (1, 65535)]),
            AgentAnswer::Path(reading),
            AgentAnswer::Over { was_full: true },
        ]
    }

    #[test]
    fn agent_messages_are_read_as_they_were_written_and_not_if_they_are_cut() {
        let requests = requests().into_iter().map(|it| (it.to_bytes(), Some(it), None));
        let answers = answers().into_iter().map(|it| (it.to_bytes(), None, Some(it)));
        for (bytes, request, answer) in requests.chain(answers) {
            for end in 0..=bytes.len() {
                exchange_with_agent(&bytes[..end]);
            }
            if let Some(request) = request {
                assert_eq!(AgentRequest::parse(&bytes), Ok(request.clone()));
                let is_open = matches!(request, AgentRequest::Put(_));
                assert_eq!(AgentRequest::parse(&[&bytes[..], &[0]].concat()).is_ok(), is_open);
            }
            if let Some(answer) = answer {
                assert_eq!(AgentAnswer::parse(&bytes), Ok(answer));
            }
        }
    }

    #[test]
    fn long_texts_of_agent_answers_are_cut() {
        let answer = AgentAnswer::Failed("\u{e4}".repeat(10_000));
        let AgentAnswer::Failed(cut) = AgentAnswer::parse(&answer.to_bytes()).unwrap() else {
            panic!("another answer")
        };
        assert_eq!(cut, "\u{e4}".repeat(2000));
    }

    proptest! {
        #[test]
        fn any_bytes_may_come_from_an_agent_or_a_controller(
            kind in 0_u8..24,
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            exchange_with_agent(&bytes);
            exchange_with_agent(&[&[kind], &bytes[..]].concat());
        }
    }
}
