//! Exchanges of a given size, to measure transports.
//!
//! The client sends a request and then, in each round, its bytes. The server answers each round
//! with its own bytes and one more. So the last byte that the client reads shows that the server's
//! program has read everything. `docs/protocols/transport.md` specifies the protocol.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::model::ExchangeProfile;
use crate::net::{Connection, ConnectionStatistics, connect};
use crate::options::ConnectionOptions;

/// The first bytes of a request.
const MAGIC: [u8; 8] = *b"measure1";
/// The length of a request: the magic, bytes to the server, bytes to the client, rounds.
const REQUEST_LEN: usize = 28;
/// The largest number of bytes in a round, in each direction.
const MAX_BYTES: u64 = 1 << 40;
const MAX_ROUNDS: u32 = 1 << 20;
/// The server ends a measurement after this long without progress.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
static BLOCK: [u8; 64 << 10] = [0x5a; 64 << 10];

/// The times of an exchange, measured from the start of connecting.
#[derive(Clone, Debug, PartialEq)]
pub struct ExchangeTiming {
    /// The transport that was used.
    pub transport: &'static str,
    /// Why the transport was chosen, in one line, if it was not named.
    pub reason: Option<String>,
    /// The time until the connection was open.
    pub connected: Duration,
    /// The time until the first byte of an answer was read.
    pub first_byte: Duration,
    /// The time until the last byte was read, which the server sends after it has read everything.
    pub complete: Duration,
    /// The statistics of the connection at the end.
    pub statistics: ConnectionStatistics,
}

/// Connects to `HOST:PORT`, where [`serve`] answers, and measures one exchange.
///
/// # Errors
/// If no connection can be opened, or it fails before the exchange is complete.
pub fn measure(
    address: &str,
    options: &ConnectionOptions,
    exchange: ExchangeProfile,
) -> Result<ExchangeTiming, Error> {
    let start = Instant::now();
    let options = ConnectionOptions { exchange: Some(exchange), ..options.clone() };
    let mut connection = connect(address, &options)?;
    let connected = start.elapsed();
    let run = run(&mut connection, exchange, start);
    let first_byte = run.map_err(|error| Error::from_io(address, error))?;
    let complete = start.elapsed();
    connection.complete();
    // If the client closes before it has read the end, the server counts the measurement as failed.
    let _ = connection.read(&mut [0]);
    Ok(ExchangeTiming {
        transport: connection.transport(),
        reason: connection.decision().map(|decision| decision.reason.clone()),
        connected,
        first_byte,
        complete,
        statistics: connection.statistics(),
    })
}

/// Runs the client's part on a connection. Returns the time from `start` to the first byte of an
/// answer.
fn run(
    connection: &mut Connection,
    exchange: ExchangeProfile,
    start: Instant,
) -> io::Result<Duration> {
    let rounds = exchange.rounds.clamp(1, MAX_ROUNDS);
    let mut request = MAGIC.to_vec();
    request.extend(exchange.sent.to_be_bytes());
    request.extend(exchange.received.to_be_bytes());
    request.extend(rounds.to_be_bytes());
    connection.write_all(&request)?;
    let mut first_byte = None;
    for round in 0..rounds {
        write(connection, part(exchange.sent, rounds, round))?;
        let mut left = part(exchange.received, rounds, round) + 1;
        connection.read_exact(&mut [0])?;
        first_byte.get_or_insert_with(|| start.elapsed());
        left -= 1;
        read(connection, left)?;
    }
    Ok(first_byte.unwrap_or_else(|| start.elapsed()))
}

/// Answers one measurement on an accepted connection.
///
/// # Errors
/// If the request is invalid, or the connection fails.
pub fn serve(connection: &mut Connection) -> io::Result<ExchangeProfile> {
    connection.set_timeout(Some(SILENCE_TIMEOUT))?;
    let mut request = [0; REQUEST_LEN];
    connection.read_exact(&mut request)?;
    let exchange = parse(&request).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "not a request for a measurement")
    })?;
    for round in 0..exchange.rounds {
        read(connection, part(exchange.sent, exchange.rounds, round))?;
        write(connection, part(exchange.received, exchange.rounds, round) + 1)?;
        connection.flush()?;
    }
    connection.finish()?;
    Ok(exchange)
}

fn parse(request: &[u8; REQUEST_LEN]) -> Option<ExchangeProfile> {
    let rest = request.strip_prefix(&MAGIC)?;
    let (sent, rest) = rest.split_first_chunk()?;
    let (received, rest) = rest.split_first_chunk()?;
    let (sent, received) = (u64::from_be_bytes(*sent), u64::from_be_bytes(*received));
    let rounds = u32::from_be_bytes(rest.try_into().ok()?);
    let is_possible = sent.max(received) <= MAX_BYTES && (1..=MAX_ROUNDS).contains(&rounds);
    is_possible.then_some(ExchangeProfile { sent, received, rounds })
}

/// The bytes of a round: the total is divided evenly, except for one round.
fn part(bytes: u64, rounds: u32, round: u32) -> u64 {
    let rounds = u64::from(rounds);
    bytes / rounds + u64::from(u64::from(round) < bytes % rounds)
}

fn write(to: &mut impl Write, mut bytes: u64) -> io::Result<()> {
    while bytes > 0 {
        let length = usize::try_from(bytes).unwrap_or(usize::MAX).min(BLOCK.len());
        to.write_all(&BLOCK[..length])?;
        bytes -= length as u64;
    }
    Ok(())
}

fn read(from: &mut impl Read, mut bytes: u64) -> io::Result<()> {
    let mut block = vec![0; BLOCK.len()];
    while bytes > 0 {
        let length = usize::try_from(bytes).unwrap_or(usize::MAX).min(block.len());
        from.read_exact(&mut block[..length])?;
        bytes -= length as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Listener;
    use crate::options::{ConnectionSecurity, TransportChoice};

    #[test]
    fn exchanges_are_complete() {
        let options = ConnectionOptions::new(ConnectionSecurity::Insecure);
        let listener = Listener::bind("127.0.0.1:0", &options).unwrap();
        let address = listener.local_addr().to_string();
        let named = ConnectionOptions { transport: TransportChoice::Named("tcp"), ..options };
        let exchanges = [(0, 0, 0), (1, 0, 1), (1_000_000, 77, 10), (3, 300_000, 7)];
        let serving = std::thread::spawn(move || {
            exchanges.map(|_| serve(&mut listener.accept().unwrap()).unwrap())
        });
        for (sent, received, rounds) in exchanges {
            let exchange = ExchangeProfile { sent, received, rounds };
            let timing = measure(&address, &named, exchange).unwrap();
            assert!(timing.connected <= timing.first_byte && timing.first_byte <= timing.complete);
            let rounds = u64::from(rounds.max(1));
            assert_eq!(timing.statistics.bytes_sent, sent + 28);
            assert_eq!(timing.statistics.bytes_received, received + rounds);
        }
        let served = serving.join().unwrap();
        assert_eq!(served[2], ExchangeProfile { sent: 1_000_000, received: 77, rounds: 10 });
    }

    #[test]
    fn impossible_requests_are_refused() {
        let mut request = [0; REQUEST_LEN];
        request[..8].copy_from_slice(&MAGIC);
        assert_eq!(parse(&request), None, "no round");
        request[27] = 1;
        assert!(parse(&request).is_some());
        request[8] = 1;
        assert_eq!(parse(&request), None, "too many bytes");
        request[8] = 0;
        request[0] ^= 1;
        assert_eq!(parse(&request), None, "something else");
    }

    #[test]
    fn parts_add_up() {
        for (bytes, rounds) in [(0, 1), (10, 3), (3, 10), (1 << 40, 7)] {
            assert_eq!((0..rounds).map(|round| part(bytes, rounds, round)).sum::<u64>(), bytes);
        }
    }
}
