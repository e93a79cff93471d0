use tokio::net::TcpListener;
use tokio::time::timeout;

use super::*;

/// A set returns from a stream to a pool that is no longer used.
#[tokio::test]
async fn an_unused_pool_closes_what_returns_and_connects_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let remote =
        RemoteServerConfig { channels: vec![StreamChannelConfig::to(server)], threshold: 1 };
    let hour = Duration::from_secs(3600);
    let config = ConnectionPoolConfig { size: 1, keep: 1, idle: hour };
    let policy = LostChannelPolicy { new_streams: LostChannelAction::Fail, timeout: hour };
    let pool = Arc::new(ConnectionPool::new(remote, None, config, policy));
    let filler = Arc::clone(&pool);
    // Every use counts as too long ago.
    let filler = tokio::spawn(async move { filler.keep_full(Duration::ZERO).await });
    for _ in 0..3 {
        let stream = TcpStream::connect(server).await.unwrap();
        let (mut accepted, peer) = listener.accept().await.unwrap();
        assert_eq!(peer, stream.local_addr().unwrap(), "the pool has connected");
        // The server's next cookie was read together with the end of the stream.
        let rest =
            AssociationMessage::Cookie(ConnectionCookie::new([7; COOKIE_LEN])).encode().into();
        let metrics = Arc::clone(&pool.channel_metrics[0]);
        pool.put_back(vec![ReusableConnection { stream, metrics, rest }]).await;
        let closed = timeout(Duration::from_secs(90), accepted.read(&mut [0])).await;
        assert_eq!(closed.expect("it is closed").unwrap(), 0);
    }
    filler.abort();
}
