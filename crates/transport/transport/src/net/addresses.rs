//! Connecting to a name with several addresses: attempts start one after the other, and the first
//! one that succeeds is used ("happy eyeballs", RFC 8305).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// The delay before the next address is tried in addition (RFC 8305, 5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// The maximum number of addresses that are tried.
const MAX_ADDRESSES: usize = 8;

/// Connects to the first address that answers. Attempts that succeed later are dropped.
///
/// # Errors
/// If none answers: the error of the last attempt that got beyond this host.
pub(super) fn connect_first<T: Send + 'static>(
    addresses: &[SocketAddr],
    connect: impl Fn(SocketAddr) -> io::Result<T> + Send + Sync + 'static,
) -> io::Result<T> {
    if let [only] = addresses {
        return connect(*only);
    }
    let connect = Arc::new(connect);
    let (sender, results) = channel();
    let mut waiting = addresses.iter().take(MAX_ADDRESSES);
    let (mut under_way, mut failed) = (0, io::Error::from(io::ErrorKind::AddrNotAvailable));
    loop {
        let next = waiting.next();
        if let Some(&address) = next {
            let (connect, sender) = (Arc::clone(&connect), sender.clone());
            let attempt = move || {
                // The receiver is gone if another attempt was faster.
                let _ = sender.send(connect(address));
            };
            thread::Builder::new().name("connect".into()).spawn(attempt)?;
            under_way += 1;
        }
        if under_way == 0 {
            return Err(failed);
        }
        let limit = if next.is_some() { ATTEMPT_DELAY } else { Duration::MAX };
        match results.recv_timeout(limit) {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => {
                under_way -= 1;
                if !is_of_this_host(&error) || is_of_this_host(&failed) {
                    failed = error;
                }
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
    }
}

/// Whether an attempt has failed because this host has no route to the address, or not such an
/// address.
fn is_of_this_host(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::NetworkUnreachable)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::sync_channel;

    use super::*;

    fn addresses(count: u8) -> Vec<SocketAddr> {
        (0..count).map(|i| SocketAddr::from(([127, 0, 0, i], 9))).collect()
    }

    fn number(address: SocketAddr) -> u8 {
        match address {
            SocketAddr::V4(address) => address.ip().octets()[3],
            SocketAddr::V6(_) => unreachable!(),
        }
    }

    #[test]
    fn an_address_that_does_not_answer_costs_no_more_than_its_time_alone() {
        let (release, wait) = sync_channel::<()>(0);
        let wait = Mutex::new(wait);
        let connected = connect_first(&addresses(3), move |address| match number(address) {
            0 => {
                // Blocks until the test ends.
                let _ = wait.lock().unwrap().recv();
                Err(io::ErrorKind::TimedOut.into())
            }
            1 => Err(io::ErrorKind::ConnectionRefused.into()),
            two => Ok(two),
        });
        assert_eq!(connected.unwrap(), 2);
        drop(release);
    }

    #[test]
    fn the_error_is_of_an_attempt_that_has_left_this_host() {
        let kinds = [io::ErrorKind::NetworkUnreachable, io::ErrorKind::ConnectionRefused];
        for (first, second) in [(0, 1), (1, 0)] {
            let connected = connect_first(&addresses(2), move |address| {
                let kind = if number(address) == 0 { kinds[first] } else { kinds[second] };
                Err::<(), _>(kind.into())
            });
            assert_eq!(connected.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        }
        assert!(connect_first(&[], |_| Ok(())).is_err());
    }
}
