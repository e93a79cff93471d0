//! `sunder_listener_*`.

use std::sync::Mutex;

use crate::arguments::{Text, TextBuffer, null};
use crate::connection::Connection;
use crate::error::{Code, run, run_free, try_lock};
use crate::options::Options;

/// `sunder_listener`
#[derive(Debug)]
pub struct Listener {
    listener: Mutex<transport::Listener>,
    address: String,
}

/// `sunder_listen`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_listen(address: Text, options: Option<&Options>) -> Option<Box<Listener>> {
    run(|| {
        let options = options.ok_or_else(|| null("options"))?.build();
        let listener = transport::Listener::bind(address.read("address")?, &options)?;
        let address = listener.local_addr().to_string();
        Ok(Some(Box::new(Listener { listener: Mutex::new(listener), address })))
    })
}

/// `sunder_listener_address`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_listener_address(
    listener: Option<&Listener>,
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
pub extern "C" fn sunder_listener_accept(listener: Option<&Listener>) -> Option<Box<Connection>> {
    run(|| {
        let listener = listener.ok_or_else(|| null("listener"))?;
        let listener = try_lock(&listener.listener, "another thread waits for a connection")?;
        Ok(Some(Box::new(Connection::new(listener.accept()?))))
    })
}

/// `sunder_listener_close`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_listener_close(listener: Option<Box<Listener>>) {
    run_free(|| drop(listener));
}
