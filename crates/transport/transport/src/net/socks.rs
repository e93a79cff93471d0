//! Connections through a SOCKS5 proxy (RFC 1928), such as Tor's. The proxy resolves the name of the
//! destination, so this host asks no name server for it.
//!
//! Each connection offers a random user name and password (RFC 1929). Tor accepts any, and puts
//! connections with different ones on different circuits, so that a destination cannot link two
//! identities of one host by the address from which Tor connects.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use super::addresses::connect_first;
use super::timed::TimedStream;
use crate::address::{resolve, split};
use crate::error::{ConnectionStep, Error};
use crate::options::{ConnectionOptions, TransportChoice};
use crate::stream::ByteStream;
use crate::transports::tcp;

/// The time limit for all answers of the proxy: Tor tries several circuits.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

const VERSION: u8 = 5;
/// Methods of authentication.
const NO_AUTHENTICATION: u8 = 0;
const PASSWORD: u8 = 2;
/// The version of the message with the user name and the password.
const PASSWORD_VERSION: u8 = 1;
const CONNECT: u8 = 1;
/// Kinds of addresses.
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Connects to `HOST:PORT` over TCP, through the SOCKS5 proxy at `proxy`.
///
/// # Errors
/// If the transport is not TCP, an address is invalid, or the proxy does not connect.
pub(super) fn open(
    address: &str,
    proxy: &str,
    options: &ConnectionOptions,
) -> Result<Arc<dyn ByteStream>, Error> {
    let wrong = |reason| Error::Address { address: address.to_owned(), reason };
    if options.transport != TransportChoice::Named("tcp") || address.contains([',', '@']) {
        return Err(wrong("through a SOCKS proxy, only one address and the transport tcp work"));
    }
    let (host, port) = split(address).ok_or_else(|| wrong("no address: give HOST:PORT"))?;
    let request = request(host, port).ok_or_else(|| wrong("the name is too long"))?;
    let of_attempt = options.clone();
    let proxy_addresses = resolve(proxy)?;
    let failed = |error, limit| Error::at(ConnectionStep::Socks, proxy, error, limit);
    let stream = connect_first(&proxy_addresses, move |to: SocketAddr| tcp::open(to, &of_attempt))
        .map_err(|error| failed(error, Some(options.connect_timeout)))?;
    ask(&*stream, &request, ANSWER_TIMEOUT).map_err(|error| failed(error, Some(ANSWER_TIMEOUT)))?;
    Ok(stream)
}

/// The request to connect to a host; `None` if its name has more than 255 bytes.
fn request(host: &str, port: u16) -> Option<Vec<u8>> {
    let mut request = vec![VERSION, CONNECT, 0];
    match host.parse() {
        Ok(IpAddr::V4(address)) => {
            request.push(IPV4);
            request.extend(address.octets());
        }
        Ok(IpAddr::V6(address)) => {
            request.push(IPV6);
            request.extend(address.octets());
        }
        Err(_) => {
            request.extend([NAME, u8::try_from(host.len()).ok()?]);
            request.extend(host.as_bytes());
        }
    }
    request.extend(port.to_be_bytes());
    Some(request)
}

/// A random user name and a random password, as they are sent.
fn random_login() -> io::Result<Vec<u8>> {
    let mut login = vec![PASSWORD_VERSION];
    for _ in 0..2 {
        let random = getrandom::u64().map_err(io::Error::other)?;
        login.push(16);
        login.extend(format!("{random:016x}").as_bytes());
    }
    Ok(login)
}

/// Sends the greeting, the user name and the password if the proxy wants them, and the request.
/// Reads the answers, and no byte beyond them. `limit` is for all of this together.
fn ask(stream: &dyn ByteStream, request: &[u8], limit: Duration) -> io::Result<()> {
    let stream = &TimedStream::new(stream, limit);
    let asks_for_password = || {
        io::Error::other(
            "it asks for a user and a password, which Sunder does not have: allow this host without",
        )
    };
    stream.send(&[VERSION, 2, NO_AUTHENTICATION, PASSWORD])?;
    match read(stream)? {
        [VERSION, NO_AUTHENTICATION] => {}
        [VERSION, PASSWORD] => {
            stream.send(&random_login()?)?;
            let [_, answer] = read(stream)?;
            if answer != 0 {
                return Err(asks_for_password());
            }
        }
        [VERSION, _] => return Err(asks_for_password()),
        _ => return Err(io::Error::other("it is not a SOCKS5 proxy")),
    }
    stream.send(request)?;
    let [version, answer, _, kind] = read(stream)?;
    if version != VERSION {
        return Err(io::Error::other("its answer is invalid"));
    }
    if answer != 0 {
        return Err(io::Error::other(reason(answer)));
    }
    // The address from which it has connected, and the port.
    match kind {
        IPV4 => read::<6>(stream).map(drop),
        IPV6 => read::<18>(stream).map(drop),
        NAME => {
            let [len] = read(stream)?;
            (0..usize::from(len) + 2).try_for_each(|_| read::<1>(stream).map(drop))
        }
        _ => Err(io::Error::other("its answer is invalid")),
    }
}

/// Why the proxy has not connected (RFC 1928, 6).
fn reason(answer: u8) -> &'static str {
    match answer {
        2 => "its rules do not allow the connection",
        3 => "the network of the destination cannot be reached",
        4 => "the destination does not answer, or its name is unknown",
        5 => "nobody listens at the destination: check the address and the port",
        6 => "the connection has timed out",
        7 | 8 => "it does not support such connections",
        _ => "it could not connect to the destination",
    }
}

fn read<const N: usize>(stream: &TimedStream<'_>) -> io::Result<[u8; N]> {
    stream.receive().map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::other("it has ended the connection"),
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::options::ConnectionSecurity;

    /// What a proxy is sent that answers in this way, and the result.
    fn through(address: &str, answers: [&'static [u8]; 2]) -> (Vec<u8>, Result<(), String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = listener.local_addr().unwrap().to_string();
        let serving = thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut greeting = [0; 4];
            client.read_exact(&mut greeting).unwrap();
            assert_eq!(greeting, [5, 2, 0, 2]);
            client.write_all(answers[0]).unwrap();
            let mut request = vec![0; 300];
            let count = client.read(&mut request).unwrap();
            let _ = client.write_all(answers[1]);
            request.truncate(count);
            request
        });
        let mut options = ConnectionOptions::new(ConnectionSecurity::Insecure);
        options.transport = TransportChoice::Named("tcp");
        let opened = open(address, &proxy, &options);
        let result = opened.map(|stream| {
            let mut byte = [0];
            let read = stream.read(&mut byte);
            assert_eq!((read.ok(), byte), (Some(1), *b"x"), "the first byte of the destination");
        });
        (serving.join().unwrap(), result.map_err(|error| error.to_string()))
    }

    #[test]
    fn the_socks_proxy_resolves_names_and_no_byte_is_lost() {
        let accepted: [&[u8]; 2] = [&[5, 0], &[5, 0, 0, 1, 1, 2, 3, 4, 0, 80, b'x']];
        let (request, result) = through("mix.example:6700", accepted);
        assert_eq!(result, Ok(()));
        assert_eq!(request, [&[5, 1, 0, 3, 11][..], b"mix.example", &[0x1A, 0x2C]].concat());
        let (request, result) = through("127.0.0.1:258", accepted);
        assert_eq!((request, result), (vec![5, 1, 0, 1, 127, 0, 0, 1, 1, 2], Ok(())));
        let named: [&[u8]; 2] = [&[5, 0], b"\x05\x00\x00\x03\x02ab\x00\x50x"];
        assert_eq!(through("[::1]:1", named).1, Ok(()));
    }

    #[test]
    fn what_the_socks_proxy_answers_is_explained() {
        let refused = through("mix.example:1", [&[5, 0], &[5, 5, 0, 1]]).1.unwrap_err();
        assert!(refused.contains("nobody listens at the destination"), "{refused}");
        let password = through("mix.example:1", [&[5, 0xFF], &[]]).1.unwrap_err();
        assert!(password.contains("password"), "{password}");
        let other = through("mix.example:1", [b"HT", &[]]).1.unwrap_err();
        assert!(other.contains("not a SOCKS5 proxy"), "{other}");
        let gone = through("mix.example:1", [&[5, 0], &[]]).1.unwrap_err();
        assert!(gone.contains("ended the connection"), "{gone}");
    }

    /// The user and the password that a connection sends to a proxy that asks for them and gives
    /// this answer, and the result.
    fn login(answer: u8) -> ([Vec<u8>; 2], Result<(), String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = listener.local_addr().unwrap().to_string();
        let serving = thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            client.read_exact(&mut [0; 4]).unwrap();
            client.write_all(&[5, 2]).unwrap();
            let mut version = [0];
            client.read_exact(&mut version).unwrap();
            assert_eq!(version, [1]);
            let login = [(); 2].map(|()| {
                let mut len = [0];
                client.read_exact(&mut len).unwrap();
                let mut part = vec![0; len[0].into()];
                client.read_exact(&mut part).unwrap();
                part
            });
            client.write_all(&[1, answer]).unwrap();
            if answer == 0 {
                client.read_exact(&mut [0; 7 + "mix.example".len()]).unwrap();
                client.write_all(&[5, 0, 0, 1, 1, 2, 3, 4, 0, 80]).unwrap();
            }
            login
        });
        let mut options = ConnectionOptions::new(ConnectionSecurity::Insecure);
        options.transport = TransportChoice::Named("tcp");
        let result = open("mix.example:6700", &proxy, &options);
        (serving.join().unwrap(), result.map(drop).map_err(|error| error.to_string()))
    }

    #[test]
    fn each_connection_has_a_user_and_a_password_of_its_own() {
        let [(first, accepted), (second, again)] = [(); 2].map(|()| login(0));
        assert_eq!((accepted, again), (Ok(()), Ok(())));
        for part in first.iter().chain(&second) {
            assert!(part.len() == 16 && part.iter().all(u8::is_ascii_hexdigit), "{part:?}");
        }
        let all: std::collections::BTreeSet<_> = first.iter().chain(&second).collect();
        assert_eq!(all.len(), 4, "{all:?}");
        let refused = login(1).1.unwrap_err();
        assert!(refused.contains("asks for a user and a password"), "{refused}");
    }

    #[test]
    fn a_proxy_that_sends_a_byte_now_and_then_does_not_hold_the_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = listener.local_addr().unwrap();
        let serving = thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            client.read_exact(&mut [0; 4]).unwrap();
            client.write_all(&[5, 0, 5, 0, 0, 3, 255]).unwrap();
            // The longest name and the port take more than 5 s.
            for _ in 0..257 {
                thread::sleep(Duration::from_millis(20));
                if client.write_all(b"a").is_err() {
                    break;
                }
            }
        });
        let options = ConnectionOptions::new(ConnectionSecurity::Insecure);
        let stream = tcp::open(proxy, &options).unwrap();
        let error = ask(&*stream, b"request", Duration::from_millis(300)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        stream.close();
        drop(stream);
        serving.join().unwrap();
    }
}
