//! `sunder_register_transport`: transports whose functions are those of the caller.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_void};
use std::io;
use std::mem::size_of;
use std::net::SocketAddr;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use transport::{
    ByteStream, ConnectionOptions, ExchangeProfile, NetworkPath, PathStatistics, Transport,
    TransportAcceptor, register,
};

use crate::arguments::null;
use crate::error::{CallFailure, Code, run};

/// `sunder_path`
#[derive(Debug)]
#[repr(C)]
pub struct PathOfExchange {
    round_trip_ns: u64,
    rate_to_server: f64,
    rate_from_server: f64,
    loss: f64,
}

/// `sunder_transport_functions`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TransportFunctions {
    size: usize,
    name: *const c_char,
    about: *const c_char,
    context: *mut c_void,
    connect: Option<extern "C" fn(*mut c_void, *const c_char, u32, *mut *mut c_void) -> i32>,
    listen: Option<extern "C" fn(*mut c_void, *const c_char, *mut *mut c_void) -> i32>,
    accept: Option<extern "C" fn(*mut c_void, *mut *mut c_void) -> i32>,
    stop: Option<extern "C" fn(*mut c_void)>,
    free_acceptor: Option<extern "C" fn(*mut c_void)>,
    read: Option<extern "C" fn(*mut c_void, *mut c_void, usize) -> i64>,
    write: Option<extern "C" fn(*mut c_void, *const c_void, usize) -> i64>,
    finish: Option<extern "C" fn(*mut c_void) -> i32>,
    set_timeout: Option<extern "C" fn(*mut c_void, u32) -> i32>,
    close: Option<extern "C" fn(*mut c_void)>,
    free_stream: Option<extern "C" fn(*mut c_void)>,
    latency_ns: Option<extern "C" fn(*mut c_void, *const PathOfExchange, u64, u64, u32) -> i64>,
}

/// `const sunder_transport_functions *`
#[derive(Debug)]
#[repr(transparent)]
pub struct FunctionTable(*const TransportFunctions);

/// `sunder_register_transport`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_register_transport(functions: FunctionTable) -> i32 {
    run(|| {
        register(Box::new(functions.parse()?))
            .map_err(|error| CallFailure::usage(error.to_string()))?;
        Ok(Code::Ok as i32)
    })
}

impl FunctionTable {
    /// Copies the functions, and checks that all that are needed are there.
    fn parse(&self) -> Result<RegisteredTransport, CallFailure> {
        if self.0.is_null() {
            return Err(null("functions"));
        }
        // SAFETY: the pointer is not null, and the header requires that the structure has at least
        // its first field.
        let size = unsafe { self.0.cast::<usize>().read_unaligned() };
        if size < size_of::<TransportFunctions>() {
            let text = "functions.size is not sizeof(sunder_transport_functions)";
            return Err(CallFailure::usage(text));
        }
        // SAFETY: the caller's structure has all fields.
        let table = unsafe { self.0.read_unaligned() };
        let missing = |what: &str| CallFailure::usage(format!("the function {what} is missing"));
        let listening = match (table.listen, table.accept, table.stop, table.free_acceptor) {
            (None, ..) => None,
            (Some(listen), Some(accept), Some(stop), Some(free)) => {
                Some(ListeningFunctions { listen, accept, stop, free })
            }
            _ => return Err(missing("accept, stop or free_acceptor")),
        };
        let stream = StreamFunctions {
            read: table.read.ok_or_else(|| missing("read"))?,
            write: table.write.ok_or_else(|| missing("write"))?,
            finish: table.finish.ok_or_else(|| missing("finish"))?,
            set_timeout: table.set_timeout.ok_or_else(|| missing("set_timeout"))?,
            close: table.close.ok_or_else(|| missing("close"))?,
            free: table.free_stream.ok_or_else(|| missing("free_stream"))?,
        };
        Ok(RegisteredTransport {
            name: text(table.name, "name")?,
            about: text(table.about, "about")?,
            context: ForeignPointer(table.context),
            connect: table.connect.ok_or_else(|| missing("connect"))?,
            listening,
            stream,
            latency: table.latency_ns,
        })
    }
}

/// The texts of the caller's transports.
static COPIES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// A copy of a text, which stays valid as the transport does. The same text is copied once only, so
/// that a registration that is refused and repeated takes no more memory.
fn text(text: *const c_char, what: &str) -> Result<&'static str, CallFailure> {
    if text.is_null() {
        return Err(null(what));
    }
    // SAFETY: the pointer is not null, and the header requires that it points to bytes that end
    // with a zero byte and do not change during the call.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text.to_str().map_err(|_| CallFailure::usage(format!("the {what} is not UTF-8")))?;
    let mut copies = COPIES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(copy) = copies.get(text) {
        return Ok(copy);
    }
    let copy: &'static str = Box::leak(text.to_owned().into_boxed_str());
    copies.insert(copy);
    Ok(copy)
}

/// A pointer that only the caller's functions use.
#[derive(Clone, Copy)]
struct ForeignPointer(*mut c_void);

// SAFETY: nothing here uses what it points to, and the header requires functions that any thread
// may call.
unsafe impl Send for ForeignPointer {}

// SAFETY: as for `Send`; the header requires functions that several threads may call at once.
unsafe impl Sync for ForeignPointer {}

struct RegisteredTransport {
    name: &'static str,
    about: &'static str,
    context: ForeignPointer,
    connect: extern "C" fn(*mut c_void, *const c_char, u32, *mut *mut c_void) -> i32,
    listening: Option<ListeningFunctions>,
    stream: StreamFunctions,
    latency: Option<extern "C" fn(*mut c_void, *const PathOfExchange, u64, u64, u32) -> i64>,
}

#[derive(Clone, Copy)]
struct ListeningFunctions {
    listen: extern "C" fn(*mut c_void, *const c_char, *mut *mut c_void) -> i32,
    accept: extern "C" fn(*mut c_void, *mut *mut c_void) -> i32,
    stop: extern "C" fn(*mut c_void),
    free: extern "C" fn(*mut c_void),
}

#[derive(Clone, Copy)]
struct StreamFunctions {
    read: extern "C" fn(*mut c_void, *mut c_void, usize) -> i64,
    write: extern "C" fn(*mut c_void, *const c_void, usize) -> i64,
    finish: extern "C" fn(*mut c_void) -> i32,
    set_timeout: extern "C" fn(*mut c_void, u32) -> i32,
    close: extern "C" fn(*mut c_void),
    free: extern "C" fn(*mut c_void),
}

impl Transport for RegisteredTransport {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn connect(
        &self,
        to: SocketAddr,
        options: &ConnectionOptions,
    ) -> io::Result<Arc<dyn ByteStream>> {
        let (address, mut stream) = (c_address(to)?, null_mut());
        let limit = milliseconds(Some(options.connect_timeout));
        check((self.connect)(self.context.0, address.as_ptr(), limit, &raw mut stream))?;
        Ok(Arc::new(self.stream(stream, to)))
    }

    fn listen(
        &self,
        at: SocketAddr,
        _options: &ConnectionOptions,
    ) -> io::Result<Option<Box<dyn TransportAcceptor>>> {
        let Some(functions) = self.listening else { return Ok(None) };
        let (address, mut acceptor) = (c_address(at)?, null_mut());
        check((functions.listen)(self.context.0, address.as_ptr(), &raw mut acceptor))?;
        let (name, stream) = (self.name, self.stream);
        let acceptor = ForeignPointer(acceptor);
        Ok(Some(Box::new(RegisteredAcceptor { acceptor, functions, at, name, stream })))
    }

    fn latency(
        &self,
        path: &NetworkPath,
        exchange: ExchangeProfile,
        _is_secure: bool,
    ) -> Option<Duration> {
        let known = PathOfExchange {
            round_trip_ns: u64::try_from(path.round_trip.as_nanos()).unwrap_or(u64::MAX),
            rate_to_server: path.up.rate,
            rate_from_server: path.down.rate,
            loss: path.loss,
        };
        let ExchangeProfile { sent, received, rounds } = exchange;
        let latency = self.latency?(self.context.0, &raw const known, sent, received, rounds);
        u64::try_from(latency).ok().map(Duration::from_nanos)
    }
}

impl RegisteredTransport {
    fn stream(&self, stream: *mut c_void, peer: SocketAddr) -> RegisteredStream {
        let (name, functions) = (self.name, self.stream);
        RegisteredStream { stream: ForeignPointer(stream), functions, peer, name }
    }
}

struct RegisteredAcceptor {
    acceptor: ForeignPointer,
    functions: ListeningFunctions,
    at: SocketAddr,
    name: &'static str,
    stream: StreamFunctions,
}

impl TransportAcceptor for RegisteredAcceptor {
    fn accept(&self) -> io::Result<Arc<dyn ByteStream>> {
        let mut stream = null_mut();
        check((self.functions.accept)(self.acceptor.0, &raw mut stream))?;
        let (stream, functions) = (ForeignPointer(stream), self.stream);
        Ok(Arc::new(RegisteredStream { stream, functions, peer: self.at, name: self.name }))
    }

    fn close(&self) {
        (self.functions.stop)(self.acceptor.0);
    }
}

impl Drop for RegisteredAcceptor {
    fn drop(&mut self) {
        (self.functions.free)(self.acceptor.0);
    }
}

struct RegisteredStream {
    stream: ForeignPointer,
    functions: StreamFunctions,
    peer: SocketAddr,
    name: &'static str,
}

impl ByteStream for RegisteredStream {
    fn read(&self, to: &mut [u8]) -> io::Result<usize> {
        let (buffer, size) = (to.as_mut_ptr().cast(), to.len());
        count((self.functions.read)(self.stream.0, buffer, size), size)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let (buffer, size) = (bytes.as_ptr().cast(), bytes.len());
        count((self.functions.write)(self.stream.0, buffer, size), size)
    }

    fn finish(&self) -> io::Result<()> {
        check((self.functions.finish)(self.stream.0))
    }

    fn close(&self) {
        (self.functions.close)(self.stream.0);
    }

    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        check((self.functions.set_timeout)(self.stream.0, milliseconds(timeout)))
    }

    fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    fn transport(&self) -> &'static str {
        self.name
    }

    fn statistics(&self) -> PathStatistics {
        PathStatistics::default()
    }
}

impl Drop for RegisteredStream {
    fn drop(&mut self) {
        (self.functions.free)(self.stream.0);
    }
}

fn c_address(address: SocketAddr) -> io::Result<CString> {
    CString::new(address.to_string()).map_err(io::Error::other)
}

/// A time limit for the caller's functions, to which 0 is none.
fn milliseconds(limit: Option<Duration>) -> u32 {
    limit.map_or(0, |limit| u32::try_from(limit.as_millis()).unwrap_or(u32::MAX).max(1))
}

/// The error for what a function of the caller returns.
fn check(code: i32) -> io::Result<()> {
    if code >= 0 { Ok(()) } else { Err(error(code)) }
}

/// The number of bytes that a function of the caller returns.
fn count(returned: i64, size: usize) -> io::Result<usize> {
    match usize::try_from(returned) {
        Ok(count) if count <= size => Ok(count),
        Ok(_) => Err(io::Error::other("the transport has returned more bytes than it was given")),
        Err(_) => Err(error(i32::try_from(returned).unwrap_or(Code::Failed as i32))),
    }
}

fn error(code: i32) -> io::Error {
    let kinds = [
        (Code::TimedOut, io::ErrorKind::TimedOut),
        (Code::Unreachable, io::ErrorKind::ConnectionRefused),
        (Code::Closed, io::ErrorKind::ConnectionReset),
    ];
    let kind = kinds.into_iter().find(|(known, _)| *known as i32 == code);
    kind.map_or_else(
        || io::Error::other(format!("the transport has failed with code {code}")),
        |(_, kind)| kind.into(),
    )
}
