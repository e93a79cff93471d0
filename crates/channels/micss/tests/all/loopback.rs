//! The unmodified client and server over loopback, with plain sockets as applications.

use crate::common::drain_sink;
use crate::pattern::pattern;
use crate::testbed::Testbed;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A service that echoes its input, and half-closes after its client.
async fn echo(mut stream: tokio::net::TcpStream) {
    let (mut read, mut write) = stream.split();
    let _ = tokio::io::copy(&mut read, &mut write).await;
    let _ = write.shutdown().await;
}

#[tokio::test]
async fn every_number_of_channels_carries_a_stream_both_ways() {
    for n in 1..=5 {
        for integrity in ["tamper-code", "none"] {
            let testbed = Testbed::new(n, integrity, echo).await;
            let mut application = testbed.connect().await;
            let sent = pattern(3_000_000);
            let (mut read, mut write) = application.split();
            let send = async {
                write.write_all(&sent).await.unwrap();
                write.shutdown().await.unwrap();
            };
            let mut got = Vec::new();
            let ((), result) = tokio::join!(send, read.read_to_end(&mut got));
            result.unwrap();
            drop(application);
            assert!(got == sent, "{n} channels, {integrity}");
            testbed.stop().await;
        }
    }
}

#[tokio::test]
async fn small_messages_are_sent_at_once() {
    let testbed = Testbed::new(3, "tamper-code", echo).await;
    let mut application = testbed.connect().await;
    for i in 0..1000u32 {
        application.write_all(&i.to_be_bytes()).await.unwrap();
        assert_eq!(application.read_u32().await.unwrap(), i);
    }
    drop(application);
    testbed.stop().await;
}

#[tokio::test]
async fn a_reset_by_the_service_is_an_error_for_the_application() {
    let testbed = Testbed::new(3, "tamper-code", |mut stream: tokio::net::TcpStream| async move {
        stream.write_all(b"half of it").await.unwrap();
        // Unread bytes make the system reset the connection.
        stream.peek(&mut [0]).await.unwrap();
    })
    .await;
    let mut application = testbed.connect().await;
    application.write_all(b"request").await.unwrap();
    let error = drain_sink(&mut application).await.expect_err("a reset, not an end");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    drop(application);
    testbed.stop().await;
}
