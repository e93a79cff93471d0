//! Stops and other ends in the middle.

use std::io;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::common::{
    Running, ask, client_toml, drain_sink, server_toml, start_client, start_server,
};
use crate::pattern::pattern;

/// A stream over `n` channels, with both ends of it in the test's hand.
struct Stream {
    client: Running,
    server: Running,
    application: TcpStream,
    service: TcpStream,
}

impl Stream {
    async fn open(n: usize, integrity: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = start_server(&server_toml(n, address, integrity)).await;
        let client = start_client(&client_toml(&server.addresses, integrity)).await;
        let ((application, code), accepted) =
            tokio::join!(ask(client.addresses[0], address), listener.accept());
        assert_eq!(code, 0);
        let mut stream = Self { client, server, application, service: accepted.unwrap().0 };
        stream.say_hello().await;
        stream
    }

    /// Both directions work.
    async fn say_hello(&mut self) {
        let mut heard = [0; 5];
        self.service.write_all(b"hello").await.unwrap();
        self.application.read_exact(&mut heard).await.unwrap();
        self.application.write_all(b"hello").await.unwrap();
        self.service.read_exact(&mut heard).await.unwrap();
    }
}

fn assert_reset(result: &io::Result<u64>, who: &str) {
    let error = result.as_ref().expect_err(who);
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{who}");
}

fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
}

#[tokio::test]
async fn a_stream_under_way_outlasts_the_stop() {
    let Stream { client, server, mut application, mut service } =
        Stream::open(3, "tamper-code").await;
    let proxy = client.addresses[0];
    let stopping = tokio::spawn(async { tokio::join!(client.stop(), server.stop()) });
    // When nobody listens any more, the stop has arrived.
    while TcpStream::connect(proxy).await.is_ok() {}
    let sent = pattern(1_000_000);
    let send = async {
        service.write_all(&sent).await.unwrap();
        service.shutdown().await.unwrap();
    };
    let mut got = Vec::new();
    let ((), result) = tokio::join!(send, application.read_to_end(&mut got));
    result.unwrap();
    assert!(got == sent);
    application.shutdown().await.unwrap();
    assert_eq!(drain_sink(&mut service).await.unwrap(), 0);
    stopping.await.unwrap();
}

/// The grace is over, and the stream is not: neither end may take that for the end of its bytes.
#[tokio::test]
async fn a_stream_that_the_stop_breaks_off_is_reset() {
    for integrity in ["tamper-code", "none"] {
        for stops_client in [true, false] {
            let Stream { client, server, mut application, mut service } =
                Stream::open(2, integrity).await;
            let (stopped, other) = if stops_client { (client, server) } else { (server, client) };
            // From here on, time passes when nothing else happens.
            tokio::time::pause();
            stopped.stop().await;
            tokio::time::resume();
            assert_reset(&drain_sink(&mut application).await, "the application");
            assert_reset(&drain_sink(&mut service).await, "the service");
            drop((application, service));
            other.stop().await;
        }
    }
}

#[tokio::test]
async fn an_application_that_breaks_off_is_a_reset_at_the_other() {
    for integrity in ["tamper-code", "none"] {
        let mut stream = Stream::open(3, integrity).await;
        reset(stream.application);
        assert_reset(&drain_sink(&mut stream.service).await, "the service");
        tokio::join!(stream.client.stop(), stream.server.stop());

        let mut stream = Stream::open(3, integrity).await;
        reset(stream.service);
        assert_reset(&drain_sink(&mut stream.application).await, "the application");
        tokio::join!(stream.client.stop(), stream.server.stop());
    }
}

/// Its last words and the reset are there at the same time, before anybody has read either.
#[tokio::test]
async fn last_words_before_a_break_are_no_end() {
    for integrity in ["tamper-code", "none"] {
        let mut stream = Stream::open(3, integrity).await;
        stream.application.try_write(b"last words").unwrap();
        reset(stream.application);
        assert_reset(&drain_sink(&mut stream.service).await, "the service");
        tokio::join!(stream.client.stop(), stream.server.stop());

        let mut stream = Stream::open(3, integrity).await;
        stream.service.try_write(b"last words").unwrap();
        reset(stream.service);
        assert_reset(&drain_sink(&mut stream.application).await, "the application");
        tokio::join!(stream.client.stop(), stream.server.stop());
    }
}

/// While the other direction is stuck because nobody reads there.
#[tokio::test]
async fn breaking_off_gets_past_a_direction_that_is_blocked() {
    let mut stream = Stream::open(3, "tamper-code").await;
    fill(&stream.service).await;
    reset(stream.application);
    let sent = stream.service.write_all(&pattern(10 << 20)).await;
    sent.expect_err("nobody reads that");
    drop(stream.service);
    tokio::join!(stream.client.stop(), stream.server.stop());
}

/// Writes until nothing more fits in for a while.
async fn fill(stream: &TcpStream) {
    let bytes = pattern(64 << 10);
    let write = async {
        loop {
            stream.writable().await.unwrap();
            let _ = stream.try_write(&bytes);
        }
    };
    let blocked = Duration::from_millis(50);
    let _: Result<(), _> = tokio::time::timeout(blocked, write).await;
}

#[tokio::test]
async fn each_direction_ends_by_itself() {
    for integrity in ["tamper-code", "none"] {
        let Stream { client, server, mut application, mut service } =
            Stream::open(3, integrity).await;
        // The service is the first to have said all, and hears the rest of the other.
        service.write_all(b"all").await.unwrap();
        service.shutdown().await.unwrap();
        assert_eq!(drain_sink(&mut application).await.unwrap(), 3);
        let sent = pattern(500_000);
        let send = async {
            application.write_all(&sent).await.unwrap();
            application.shutdown().await.unwrap();
        };
        let ((), got) = tokio::join!(send, drain_sink(&mut service));
        assert_eq!(got.unwrap(), 500_000);
        drop((application, service));
        tokio::join!(client.stop(), server.stop());
    }
}

/// Half-closed first, then gone: the end that still could speak is told, as over one TCP
/// connection, and does not keep the stream for ever.
#[tokio::test]
async fn an_application_that_is_gone_after_its_last_word() {
    for integrity in ["tamper-code", "none"] {
        let mut stream = Stream::open(3, integrity).await;
        stream.application.shutdown().await.unwrap();
        assert_eq!(drain_sink(&mut stream.service).await.unwrap(), 0);
        reset(stream.application);
        stream.service.ready(tokio::io::Interest::ERROR).await.unwrap();
        drop(stream.service);
        tokio::join!(stream.client.stop(), stream.server.stop());

        let mut stream = Stream::open(3, integrity).await;
        stream.service.shutdown().await.unwrap();
        assert_eq!(drain_sink(&mut stream.application).await.unwrap(), 0);
        reset(stream.service);
        stream.application.ready(tokio::io::Interest::ERROR).await.unwrap();
        drop(stream.application);
        tokio::join!(stream.client.stop(), stream.server.stop());
    }
}
