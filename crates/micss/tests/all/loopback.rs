//! The client and the server as they are, over loopback, against plain sockets as applications.

use crate::common::drain_sink;
use crate::house::House;
use crate::pattern::pattern;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A service that sends back what it gets, and half-closes when its client does.
async fn echo(mut stream: tokio::net::TcpStream) {
    let (mut read, mut write) = stream.split();
    let _ = tokio::io::copy(&mut read, &mut write).await;
    let _ = write.shutdown().await;
}

#[tokio::test]
async fn every_number_of_channels_carries_a_stream_both_ways() {
    for n in 1..=5 {
        for integrity in ["tamper-code", "none"] {
            let house = House::new(n, integrity, echo).await;
            let mut application = house.connect().await;
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
            house.stop().await;
        }
    }
}

#[tokio::test]
async fn small_messages_are_not_held_back() {
    let house = House::new(3, "tamper-code", echo).await;
    let mut application = house.connect().await;
    for i in 0..1000u32 {
        application.write_all(&i.to_be_bytes()).await.unwrap();
        assert_eq!(application.read_u32().await.unwrap(), i);
    }
    drop(application);
    house.stop().await;
}

#[tokio::test]
async fn a_service_that_breaks_off_is_an_error_at_the_application() {
    let house = House::new(3, "tamper-code", |mut stream: tokio::net::TcpStream| async move {
        stream.write_all(b"half of it").await.unwrap();
        // Bytes that are there and that nobody read make the system reset the connection.
        stream.peek(&mut [0]).await.unwrap();
    })
    .await;
    let mut application = house.connect().await;
    application.write_all(b"request").await.unwrap();
    let error = drain_sink(&mut application).await.expect_err("a reset, not an end");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    drop(application);
    house.stop().await;
}
