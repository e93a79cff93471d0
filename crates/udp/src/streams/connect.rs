//! Connecting.

use std::io;

use super::connection::Connection;
use super::driver::{Driver, ONLY};
use super::stream::Stream;
use crate::socket::Socket;

/// Drives a connection on a socket of its own, and waits until it is open.
///
/// # Errors
/// If the socket fails, or the connection before it is open.
pub fn connect(socket: Socket, connection: Box<dyn Connection>) -> io::Result<Stream> {
    let mut driver = Driver::new(socket, Vec::new())?;
    let stream = driver.add(ONLY, connection);
    driver.spawn()?;
    stream.wait_until_open()?;
    Ok(stream)
}
