//! `sunder_listener_*`.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::arguments::{Text, TextBuffer, null};
use crate::connection::ConnectionHandle;
use crate::error::{CallFailure, Code, run, run_free, try_lock};
use crate::options::Options;

/// `sunder_listener`
#[derive(Debug)]
pub struct ListenerHandle {
    listener: Mutex<transport::Listener>,
    address: String,
}

impl ListenerHandle {
    fn lock(&self) -> Result<MutexGuard<'_, transport::Listener>, CallFailure> {
        try_lock(&self.listener, "another thread waits for a connection")
    }
}

/// `sunder_listen`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_listen(
    address: Text,
    options: Option<&Options>,
) -> Option<Box<ListenerHandle>> {
    run(|| {
        let options = options.ok_or_else(|| null("options"))?.build();
        let listener = transport::Listener::bind(address.read("address")?, &options)?;
        let address = listener.local_addr().to_string();
        Ok(Some(Box::new(ListenerHandle { listener: Mutex::new(listener), address })))
    })
}

/// `sunder_listen_via`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_listen_via(
    relay: Text,
    options: Option<&Options>,
) -> Option<Box<ListenerHandle>> {
    run(|| {
        let options = options.ok_or_else(|| null("options"))?.build();
        let relay = relay.read("relay")?;
        let (listener, token) = transport::Listener::via(relay, &options)?;
        let address = format!("{token}@{relay}");
        Ok(Some(Box::new(ListenerHandle { listener: Mutex::new(listener), address })))
    })
}

/// `sunder_listener_address`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_listener_address(
    listener: Option<&ListenerHandle>,
    text: TextBuffer,
    size: usize,
) -> i32 {
    run(|| {
        let listener = listener.ok_or_else(|| null("listener"))?;
        text.write(size, &listener.address)?;
        Ok(Code::Ok as i32)
    })
}

/// `sunder_listener_accept`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_listener_accept(
    listener: Option<&ListenerHandle>,
) -> Option<Box<ConnectionHandle>> {
    run(|| {
        let listener = listener.ok_or_else(|| null("listener"))?.lock()?;
        Ok(Some(Box::new(ConnectionHandle::new(listener.accept()?))))
    })
}

/// `sunder_listener_accept_timeout`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_listener_accept_timeout(
    listener: Option<&ListenerHandle>,
    milliseconds: u32,
) -> Option<Box<ConnectionHandle>> {
    run(|| {
        let listener = listener.ok_or_else(|| null("listener"))?.lock()?;
        let accepted = listener.accept_timeout(Duration::from_millis(milliseconds.into()))?;
        let none = || CallFailure::new(Code::TimedOut, "no connection has come in time");
        Ok(Some(Box::new(ConnectionHandle::new(accepted.ok_or_else(none)?))))
    })
}

/// `sunder_listener_close`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_listener_close(listener: Option<Box<ListenerHandle>>) {
    run_free(|| drop(listener));
}
