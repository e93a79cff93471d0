//! `sunder_connection_*`.

use std::ffi::c_char;
use std::io::{Read, Write};
use std::sync::{Mutex, MutexGuard};

use keys::PublicKey;
use transport::{Closer, Messages, Reader, Writer};

use crate::arguments::{Input, Message, Output, StatisticsBuffer, Text, TextBuffer, null};
use crate::error::{Code, Failure, run, run_free, try_lock};
use crate::library::static_name;
use crate::options::Options;

/// `sunder_connection`
#[derive(Debug)]
pub struct Connection {
    half: Mutex<Half>,
    closer: Closer,
    transport: &'static str,
    peer: Option<PublicKey>,
}

#[derive(Debug)]
enum Half {
    Both(transport::Connection),
    Reads(Reader),
    Writes(Writer),
    /// A split did not return.
    Gone,
}

impl Connection {
    pub(crate) fn new(connection: transport::Connection) -> Self {
        let (transport, peer) = (connection.transport(), connection.peer());
        let closer = connection.closer();
        Self { half: Mutex::new(Half::Both(connection)), closer, transport, peer }
    }

    /// The same connection, with a half of it.
    fn with(&self, half: Half) -> Self {
        let closer = self.closer.clone();
        Self { half: Mutex::new(half), closer, transport: self.transport, peer: self.peer }
    }

    fn lock(&self) -> Result<MutexGuard<'_, Half>, Failure> {
        try_lock(&self.half, "another thread uses the connection: split it to use two threads")
    }
}

impl Half {
    fn reader(&mut self) -> Result<&mut dyn Read, Failure> {
        match self {
            Self::Both(connection) => Ok(connection),
            Self::Reads(reader) => Ok(reader),
            Self::Writes(_) | Self::Gone => Err(Failure::usage("this half only writes")),
        }
    }

    fn writer(&mut self) -> Result<&mut dyn Write, Failure> {
        match self {
            Self::Both(connection) => Ok(connection),
            Self::Writes(writer) => Ok(writer),
            Self::Reads(_) | Self::Gone => Err(Failure::usage("this half only reads")),
        }
    }
}

/// `sunder_connect`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_connect(
    address: Text,
    options: Option<&Options>,
) -> Option<Box<Connection>> {
    run(|| {
        let options = options.ok_or_else(|| null("options"))?.build();
        let connection = transport::connect(address.read("address")?, &options)?;
        Ok(Some(Box::new(Connection::new(connection))))
    })
}

/// `sunder_connection_read`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_connection_read(
    connection: Option<&Connection>,
    mut buffer: Output,
    size: usize,
) -> i64 {
    run(|| {
        let mut half = lock(connection)?;
        let count = half.reader()?.read(buffer.bytes(size)?)?;
        Ok(i64::try_from(count).unwrap_or(i64::MAX))
    })
}

/// `sunder_connection_read_exact`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_connection_read_exact(
    connection: Option<&Connection>,
    mut buffer: Output,
    size: usize,
) -> i32 {
    with(connection, |half| Ok(half.reader()?.read_exact(buffer.bytes(size)?)?))
}

/// `sunder_connection_write`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_connection_write(
    connection: Option<&Connection>,
    bytes: Input,
    size: usize,
) -> i32 {
    with(connection, |half| Ok(half.writer()?.write_all(bytes.bytes(size)?)?))
}

/// `sunder_connection_flush`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_connection_flush(connection: Option<&Connection>) -> i32 {
    with(connection, |half| Ok(half.writer()?.flush()?))
}

/// `sunder_connection_send`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_connection_send(
    connection: Option<&Connection>,
    message: Input,
    size: usize,
) -> i32 {
    with(connection, |half| Ok(Messages::new(half.writer()?).send(message.bytes(size)?)?))
}

/// `sunder_connection_receive`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_connection_receive(
    connection: Option<&Connection>,
    max: usize,
    message: Option<&mut Message>,
    size: Option<&mut usize>,
) -> i32 {
    run(|| {
        let (message, size) = message.zip(size).ok_or_else(|| null("message or size"))?;
        let mut half = lock(connection)?;
        let Some(received) = Messages::new(half.reader()?).receive(max)? else { return Ok(0) };
        (*message, *size) = Message::give(received);
        Ok(1)
    })
}

/// `sunder_message_free`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_message_free(message: Message, size: usize) {
    run_free(|| message.free(size));
}

/// `sunder_connection_split`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_connection_split(
    connection: Option<&Connection>,
) -> Option<Box<Connection>> {
    run(|| {
        let whole = connection.ok_or_else(|| null("connection"))?;
        let mut half = whole.lock()?;
        if !matches!(*half, Half::Both(_)) {
            return Err(Failure::usage("the connection is split already"));
        }
        let Half::Both(both) = std::mem::replace(&mut *half, Half::Gone) else { unreachable!() };
        let (reader, writer) = both.split();
        *half = Half::Reads(reader);
        Ok(Some(Box::new(whole.with(Half::Writes(writer)))))
    })
}

/// `sunder_connection_finish`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_connection_finish(connection: Option<&Connection>) -> i32 {
    with(connection, |half| match half {
        Half::Both(connection) => Ok(connection.finish()?),
        Half::Writes(writer) => Ok(writer.finish()?),
        Half::Reads(_) | Half::Gone => Err(Failure::usage("this half only reads")),
    })
}

/// `sunder_connection_complete`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_connection_complete(connection: Option<&Connection>) -> i32 {
    with(connection, |half| {
        match half {
            Half::Both(connection) => connection.complete(),
            Half::Writes(writer) => writer.complete(),
            Half::Reads(_) | Half::Gone => return Err(Failure::usage("this half only reads")),
        }
        Ok(())
    })
}

/// `sunder_connection_statistics`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_connection_statistics(
    connection: Option<&Connection>,
    statistics: StatisticsBuffer,
) -> i32 {
    with(connection, |half| {
        let now = match half {
            Half::Both(connection) => connection.statistics(),
            Half::Reads(reader) => reader.statistics(),
            Half::Writes(writer) => writer.statistics(),
            Half::Gone => return Err(Failure::usage("the connection is closed")),
        };
        statistics.write(&now.into())
    })
}

/// `sunder_connection_transport`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_connection_transport(connection: Option<&Connection>) -> *const c_char {
    run(|| Ok(static_name(connection.ok_or_else(|| null("connection"))?.transport)))
}

/// `sunder_connection_peer_key`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_connection_peer_key(
    connection: Option<&Connection>,
    text: TextBuffer,
    size: usize,
) -> i32 {
    run(|| {
        let connection = connection.ok_or_else(|| null("connection"))?;
        text.write(size, &connection.peer.map(|key| key.to_string()).unwrap_or_default())?;
        Ok(Code::Ok as i32)
    })
}

/// `sunder_connection_abort`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_connection_abort(connection: Option<&Connection>) -> i32 {
    run(|| {
        connection.ok_or_else(|| null("connection"))?.closer.close();
        Ok(Code::Ok as i32)
    })
}

/// `sunder_connection_close`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_connection_close(connection: Option<Box<Connection>>) {
    run_free(|| drop(connection));
}

fn lock(connection: Option<&Connection>) -> Result<MutexGuard<'_, Half>, Failure> {
    connection.ok_or_else(|| null("connection"))?.lock()
}

fn with(
    connection: Option<&Connection>,
    call: impl FnOnce(&mut Half) -> Result<(), Failure>,
) -> i32 {
    run(|| {
        call(&mut *lock(connection)?)?;
        Ok(Code::Ok as i32)
    })
}
