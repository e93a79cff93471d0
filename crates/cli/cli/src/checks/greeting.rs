//! Whether a server of streams answers at an address: it greets every connection with a cookie.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use association::{AssociationMessage, AssociationMessageError, COOKIE_LEN, HEADER_LEN};
use micss::config::StreamChannelConfig;
use micss::intercept::OWN_MARK;
use service::remote_address::RemoteAddress;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{timeout, timeout_at};

use super::finding::{CheckFinding, FindingSeverity};

/// How long a server may take to accept a connection and send its greeting.
const GREETING_TIMEOUT: Duration = Duration::from_secs(3);

/// The result of an attempt to connect.
#[derive(Debug)]
pub(crate) enum GreetingOutcome {
    /// A greeting, and the time it took.
    Greeted(Duration),
    /// A greeting of a version that this end does not implement.
    Version(u8),
    /// Other data than a greeting.
    Stranger,
    /// A connection on which nothing was received in time.
    Silent,
    /// A connection that was closed before a whole greeting.
    Closed,
    /// No connection, for this reason.
    Unconnected(io::Error),
    /// No connection and no error in time.
    Unreachable,
}

/// Connects all channels at the same time, as a proxy does.
pub(crate) async fn probe_channels(channels: Vec<StreamChannelConfig>) -> Vec<GreetingOutcome> {
    let mut asking = JoinSet::new();
    for (index, channel) in channels.into_iter().enumerate() {
        asking.spawn(async move { (index, probe_channel(&channel).await) });
    }
    let mut answers = asking.join_all().await;
    answers.sort_by_key(|(index, _)| *index);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Connects one channel, and waits for the server's greeting.
pub(crate) async fn probe_channel(channel: &StreamChannelConfig) -> GreetingOutcome {
    let start = Instant::now();
    let deadline = tokio::time::Instant::now() + GREETING_TIMEOUT;
    let mut stream = match timeout(GREETING_TIMEOUT, connect_unintercepted(channel)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return GreetingOutcome::Unconnected(error),
        Err(_) => return GreetingOutcome::Unreachable,
    };
    let mut bytes = [0; HEADER_LEN + COOKIE_LEN];
    let mut len = 0;
    while len < bytes.len() {
        match timeout_at(deadline, stream.read(&mut bytes[len..])).await {
            Ok(Ok(0) | Err(_)) => return GreetingOutcome::Closed,
            Ok(Ok(read)) => len += read,
            Err(_) => return GreetingOutcome::Silent,
        }
        if let Some(answer) = answer_of(&bytes[..len], start) {
            return answer;
        }
    }
    GreetingOutcome::Stranger
}

/// Connects as a proxy does, whose own connections are not intercepted, if this process has the
/// right to do so.
async fn connect_unintercepted(channel: &StreamChannelConfig) -> io::Result<TcpStream> {
    match micss::connect_channel(channel, Some(OWN_MARK)).await {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            micss::connect_channel(channel, None).await
        }
        connected => connected,
    }
}

/// What the first bytes mean. `None` while they may still become a greeting.
fn answer_of(bytes: &[u8], start: Instant) -> Option<GreetingOutcome> {
    match AssociationMessage::parse(bytes) {
        Ok(AssociationMessage::Cookie(_)) => Some(GreetingOutcome::Greeted(start.elapsed())),
        Err(AssociationMessageError::Version(version)) => Some(GreetingOutcome::Version(version)),
        Err(AssociationMessageError::Length { .. }) => None,
        Ok(_) | Err(_) => Some(GreetingOutcome::Stranger),
    }
}

impl GreetingOutcome {
    /// What the result means for a channel to this server.
    pub(crate) fn finding(&self, subject: &str, server: &RemoteAddress) -> CheckFinding {
        let (what, fix) = match self {
            Self::Greeted(after) => {
                return CheckFinding::ok(
                    subject,
                    format!("{server} answers after {} ms", after.as_millis()),
                );
            }
            Self::Version(version) => (
                format!("{server} speaks version {version} of the protocol"),
                "run the same release of sunder at both ends".to_owned(),
            ),
            Self::Stranger => (
                format!("{server} answers, but is not sunder serve"),
                "give an address that is in `listen` at the server".to_owned(),
            ),
            Self::Silent => (
                format!("{server} accepts the connection, but sends nothing"),
                "give an address that is in `listen` at the server, and see the server's log"
                    .to_owned(),
            ),
            Self::Closed => (
                format!("{server} accepts the connection, then closes it"),
                "see the server's log: it reports when too many connections wait".to_owned(),
            ),
            Self::Unreachable => (
                format!("{server} does not answer within {} s", GREETING_TIMEOUT.as_secs()),
                format!("{}, and firewalls on the path and at the server", route_check(server)),
            ),
            Self::Unconnected(error) => match error.kind() {
                ErrorKind::ConnectionRefused => (
                    format!("{server} refuses the connection: nothing listens there"),
                    "start sunder serve there, with this address in `listen`".to_owned(),
                ),
                ErrorKind::PermissionDenied => (
                    format!(
                        "this process has no right to connect to {server} with these settings: \
                             {error}"
                    ),
                    "run it as root, or use Linux 5.7 or newer for `device`".to_owned(),
                ),
                _ => (format!("{server} cannot be reached: {error}"), route_check(server)),
            },
        };
        CheckFinding::new(FindingSeverity::Error, subject, what, fix)
    }
}

/// How to see whether packets find a server.
fn route_check(server: &RemoteAddress) -> String {
    match (server.name(), server.known()) {
        (Some(name), _) => format!("check `getent ahosts {name}`, `ip route get` its addresses"),
        (None, known) => {
            let address = known.map(|known| known.ip().to_string()).unwrap_or_default();
            format!("check `ip route get {address}`")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::thread;

    use association::ConnectionCookie;

    use super::*;

    /// The result of connecting to a listener that sends `sent` and then closes.
    fn answer(sent: &'static [u8]) -> GreetingOutcome {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let speaker = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(sent).unwrap();
        });
        let channel = StreamChannelConfig::to(server);
        let answer = service::runtime().unwrap().block_on(probe_channel(&channel));
        speaker.join().unwrap();
        answer
    }

    #[test]
    fn a_server_is_known_by_its_greeting() {
        let cookie =
            AssociationMessage::Cookie(ConnectionCookie::new([7; COOKIE_LEN])).encode().leak();
        assert!(matches!(answer(cookie), GreetingOutcome::Greeted(_)));
        let mut newer = cookie.to_vec();
        newer[4] = 9;
        assert!(matches!(answer(newer.leak()), GreetingOutcome::Version(9)));
        assert!(matches!(answer(b"SSH-2.0-OpenSSH\r\n"), GreetingOutcome::Stranger));
        assert!(matches!(answer(b""), GreetingOutcome::Closed));
        assert!(matches!(answer(&cookie[..20]), GreetingOutcome::Closed));
    }

    #[test]
    fn a_closed_port_refuses_the_connection() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let channel = StreamChannelConfig::to(server);
        let answers =
            service::runtime().unwrap().block_on(probe_channels(vec![channel.clone(), channel]));
        for answer in answers {
            let finding = answer.finding("channel 1", &server.into());
            assert!(finding.message.contains("refuses the connection"), "{finding:?}");
        }
    }
}
