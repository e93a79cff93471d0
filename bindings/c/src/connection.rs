//! `sunder_connection_*`.

use std::ffi::c_char;
use std::io::{Read, Write};
use std::os::fd::IntoRawFd;
use std::sync::{Mutex, MutexGuard};

use keys::IdentityPublicKey;
use transport::forward::into_socket;
use transport::{ConnectionCloser, ConnectionReader, ConnectionWriter, MessageStream};

use crate::arguments::{Input, Message, Output, StatisticsBuffer, Text, TextBuffer, null};
use crate::error::{CallFailure, Code, run, run_free, try_lock};
use crate::library::static_name;
use crate::options::Options;

/// `sunder_connection`
#[derive(Debug)]
pub struct ConnectionHandle {
    half: Mutex<HandleSplitState>,
    closer: ConnectionCloser,
    transport: &'static str,
    peer: Option<IdentityPublicKey>,
}

#[derive(Debug)]
enum HandleSplitState {
    Both(transport::Connection),
    Reads(ConnectionReader),
    Writes(ConnectionWriter),
    /// The split has failed, or a socket has the connection.
    Gone,
}

impl ConnectionHandle {
    pub(crate) fn new(connection: transport::Connection) -> Self {
        let (transport, peer) = (connection.transport(), connection.peer());
        let closer = connection.closer();
        Self { half: Mutex::new(HandleSplitState::Both(connection)), closer, transport, peer }
    }

    /// The same connection with the other state.
    fn with(&self, half: HandleSplitState) -> Self {
        let closer = self.closer.clone();
        Self { half: Mutex::new(half), closer, transport: self.transport, peer: self.peer }
    }

    fn lock(&self) -> Result<MutexGuard<'_, HandleSplitState>, CallFailure> {
        try_lock(&self.half, "another thread uses the connection: split it to use two threads")
    }
}

impl HandleSplitState {
    fn reader(&mut self) -> Result<&mut dyn Read, CallFailure> {
        match self {
            Self::Both(connection) => Ok(connection),
            Self::Reads(reader) => Ok(reader),
            Self::Writes(_) | Self::Gone => Err(CallFailure::usage("this half only writes")),
        }
    }

    fn writer(&mut self) -> Result<&mut dyn Write, CallFailure> {
        match self {
            Self::Both(connection) => Ok(connection),
            Self::Writes(writer) => Ok(writer),
            Self::Reads(_) | Self::Gone => Err(CallFailure::usage("this half only reads")),
        }
    }
}

/// `sunder_connect`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_connect(
    address: Text,
    options: Option<&Options>,
) -> Option<Box<ConnectionHandle>> {
    run(|| {
        let options = options.ok_or_else(|| null("options"))?.build();
        let connection = transport::connect(address.read("address")?, &options)?;
        Ok(Some(Box::new(ConnectionHandle::new(connection))))
    })
}

/// `sunder_connection_read`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_connection_read(
    connection: Option<&ConnectionHandle>,
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
    connection: Option<&ConnectionHandle>,
    mut buffer: Output,
    size: usize,
) -> i32 {
    with(connection, |half| Ok(half.reader()?.read_exact(buffer.bytes(size)?)?))
}

/// `sunder_connection_write`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_connection_write(
    connection: Option<&ConnectionHandle>,
    bytes: Input,
    size: usize,
) -> i32 {
    with(connection, |half| Ok(half.writer()?.write_all(bytes.bytes(size)?)?))
}

/// `sunder_connection_flush`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_connection_flush(connection: Option<&ConnectionHandle>) -> i32 {
    with(connection, |half| Ok(half.writer()?.flush()?))
}

/// `sunder_connection_send`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_connection_send(
    connection: Option<&ConnectionHandle>,
    message: Input,
    size: usize,
) -> i32 {
    with(connection, |half| Ok(MessageStream::new(half.writer()?).send(message.bytes(size)?)?))
}

/// `sunder_connection_receive`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_connection_receive(
    connection: Option<&ConnectionHandle>,
    max: usize,
    message: Option<&mut Message>,
    size: Option<&mut usize>,
) -> i32 {
    run(|| {
        let (message, size) = message.zip(size).ok_or_else(|| null("message or size"))?;
        let mut half = lock(connection)?;
        let Some(received) = MessageStream::new(half.reader()?).receive(max)? else { return Ok(0) };
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
    connection: Option<&ConnectionHandle>,
) -> Option<Box<ConnectionHandle>> {
    run(|| {
        let whole = connection.ok_or_else(|| null("connection"))?;
        let mut half = whole.lock()?;
        if !matches!(*half, HandleSplitState::Both(_)) {
            return Err(CallFailure::usage("the connection is split already"));
        }
        let HandleSplitState::Both(both) = std::mem::replace(&mut *half, HandleSplitState::Gone)
        else {
            unreachable!()
        };
        let (reader, writer) = both.split();
        *half = HandleSplitState::Reads(reader);
        Ok(Some(Box::new(whole.with(HandleSplitState::Writes(writer)))))
    })
}

/// `sunder_connection_finish`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_connection_finish(connection: Option<&ConnectionHandle>) -> i32 {
    with(connection, |half| match half {
        HandleSplitState::Both(connection) => Ok(connection.finish()?),
        HandleSplitState::Writes(writer) => Ok(writer.finish()?),
        HandleSplitState::Reads(_) | HandleSplitState::Gone => {
            Err(CallFailure::usage("this half only reads"))
        }
    })
}

/// `sunder_connection_complete`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_connection_complete(connection: Option<&ConnectionHandle>) -> i32 {
    with(connection, |half| {
        match half {
            HandleSplitState::Both(connection) => connection.complete(),
            HandleSplitState::Writes(writer) => writer.complete(),
            HandleSplitState::Reads(_) | HandleSplitState::Gone => {
                return Err(CallFailure::usage("this half only reads"));
            }
        }
        Ok(())
    })
}

/// `sunder_connection_statistics`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_connection_statistics(
    connection: Option<&ConnectionHandle>,
    statistics: StatisticsBuffer,
) -> i32 {
    with(connection, |half| {
        let now = match half {
            HandleSplitState::Both(connection) => connection.statistics(),
            HandleSplitState::Reads(reader) => reader.statistics(),
            HandleSplitState::Writes(writer) => writer.statistics(),
            HandleSplitState::Gone => return Err(CallFailure::usage("the connection is closed")),
        };
        statistics.write(&now.into())
    })
}

/// `sunder_connection_transport`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_connection_transport(
    connection: Option<&ConnectionHandle>,
) -> *const c_char {
    run(|| Ok(static_name(connection.ok_or_else(|| null("connection"))?.transport)))
}

/// `sunder_connection_peer_key`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_connection_peer_key(
    connection: Option<&ConnectionHandle>,
    text: TextBuffer,
    size: usize,
) -> i32 {
    run(|| {
        let connection = connection.ok_or_else(|| null("connection"))?;
        text.write(size, &connection.peer.map(|key| key.to_string()).unwrap_or_default())?;
        Ok(Code::Ok as i32)
    })
}

/// `sunder_connection_into_socket`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_connection_into_socket(connection: Option<&ConnectionHandle>) -> i32 {
    run(|| {
        let mut half = lock(connection)?;
        if !matches!(*half, HandleSplitState::Both(_)) {
            return Err(CallFailure::usage("the connection is split, or a socket already"));
        }
        let HandleSplitState::Both(both) = std::mem::replace(&mut *half, HandleSplitState::Gone)
        else {
            unreachable!()
        };
        Ok(into_socket(both)?.into_raw_fd())
    })
}

/// `sunder_connection_abort`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_connection_abort(connection: Option<&ConnectionHandle>) -> i32 {
    run(|| {
        connection.ok_or_else(|| null("connection"))?.closer.close();
        Ok(Code::Ok as i32)
    })
}

/// `sunder_connection_close`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_connection_close(connection: Option<Box<ConnectionHandle>>) {
    run_free(|| drop(connection));
}

fn lock(
    connection: Option<&ConnectionHandle>,
) -> Result<MutexGuard<'_, HandleSplitState>, CallFailure> {
    connection.ok_or_else(|| null("connection"))?.lock()
}

fn with(
    connection: Option<&ConnectionHandle>,
    call: impl FnOnce(&mut HandleSplitState) -> Result<(), CallFailure>,
) -> i32 {
    run(|| {
        call(&mut *lock(connection)?)?;
        Ok(Code::Ok as i32)
    })
}
