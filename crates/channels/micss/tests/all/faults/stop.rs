//! Stops and other ends during a stream.

use std::io;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::common::{
    Running, ask, client_toml, drain_sink, server_toml, start_client, start_server,
};
use crate::pattern::pattern;

/// A stream over `n` channels whose two applications the test controls.
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
        stream.check_both_directions().await;
        stream
    }

    /// Checks that both directions work.
    async fn check_both_directions(&mut self) {
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
async fn an_open_stream_outlasts_the_stop() {
    let Stream { client, server, mut application, mut service } =
        Stream::open(3, "tamper-code").await;
    let proxy = client.addresses[0];
    let stopping = tokio::spawn(async { tokio::join!(client.stop(), server.stop()) });
    // The listener is closed as soon as the stop has begun.
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

/// After the grace period the stream is still open: neither end may take that for a regular end.
#[tokio::test]
async fn a_stream_that_the_stop_breaks_off_is_reset() {
    for integrity in ["tamper-code", "none"] {
        for stops_client in [true, false] {
            let Stream { client, server, mut application, mut service } =
                Stream::open(2, integrity).await;
            let (stopped, other) = if stops_client { (client, server) } else { (server, client) };
            // From here on, time advances when nothing else happens.
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
async fn a_reset_by_the_application_is_a_reset_for_the_service() {
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

/// Its last bytes and the reset are there at the same time, before either was read.
#[tokio::test]
async fn bytes_before_a_reset_are_not_an_orderly_end() {
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

/// The other direction is stuck because the application does not read.
#[tokio::test]
async fn an_abort_passes_a_blocked_direction() {
    let mut stream = Stream::open(3, "tamper-code").await;
    fill(&stream.service).await;
    reset(stream.application);
    let sent = stream.service.write_all(&pattern(10 << 20)).await;
    sent.expect_err("nobody reads that");
    drop(stream.service);
    tokio::join!(stream.client.stop(), stream.server.stop());
}

/// Writes until nothing more is accepted for a while.
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
async fn each_direction_ends_separately() {
    for integrity in ["tamper-code", "none"] {
        let Stream { client, server, mut application, mut service } =
            Stream::open(3, integrity).await;
        // The service ends its direction first, and receives the rest of the other one.
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

/// Half-closed first, then closed: the end that could still send gets an error, as over a TCP
/// connection, and does not keep the stream open forever.
#[tokio::test]
async fn an_application_that_closes_after_its_last_byte() {
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
