//! `sunder_options_*`: the options of connections and listeners.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use keys::{IdentityPublicKey, IdentityPublicKeyError, IdentitySecretKey, KEY_LEN};
use transport::{
    ConnectionSecurity, ExchangeProfile, PeerKeyPolicy, TransportChoice, random_identity,
};

use crate::arguments::{Input, Text, TextBuffer, null};
use crate::error::{CallFailure, Code, run, run_free};

/// `sunder_options`
#[derive(Debug)]
pub struct Options {
    /// All options except `security`, which follows from the next three fields.
    settings: transport::ConnectionOptions,
    identity: Arc<IdentitySecretKey>,
    peers: Vec<IdentityPublicKey>,
    insecure: bool,
}

impl Options {
    fn new() -> Result<Self, CallFailure> {
        let identity = Arc::new(random_identity()?);
        let others = transport::ConnectionOptions::new(ConnectionSecurity::Insecure);
        Ok(Self { settings: others, identity, peers: Vec::new(), insecure: false })
    }

    /// Converts them for the crate `transport`.
    pub(crate) fn build(&self) -> transport::ConnectionOptions {
        let mut options = self.settings.clone();
        if !self.insecure {
            let peers = match &*self.peers {
                [] => PeerKeyPolicy::Any,
                keys => PeerKeyPolicy::Pinned(keys.to_vec()),
            };
            options.security = ConnectionSecurity::Noise { identity: self.identity.clone(), peers };
        }
        options
    }
}

/// `sunder_options_new`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_options_new() -> Option<Box<Options>> {
    run(|| Ok(Some(Box::new(Options::new()?))))
}

/// `sunder_options_free`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_options_free(options: Option<Box<Options>>) {
    run_free(|| drop(options));
}

/// `sunder_options_set_transport`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_options_set_transport(options: Option<&mut Options>, name: Text) -> i32 {
    set(options, |options| {
        options.settings.transport = name.read("name")?.parse::<TransportChoice>()?;
        Ok(())
    })
}

/// `sunder_options_set_identity_file`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_options_set_identity_file(
    options: Option<&mut Options>,
    path: Text,
) -> i32 {
    set(options, |options| {
        let path = path.read("path")?;
        let key = IdentitySecretKey::read(Path::new(path))
            .map_err(|error| CallFailure::new(Code::Failed, error.to_string()))?;
        options.identity = Arc::new(key);
        Ok(())
    })
}

/// `sunder_options_set_identity`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_options_set_identity(
    options: Option<&mut Options>,
    key: Input,
    size: usize,
) -> i32 {
    set(options, |options| {
        let bytes = key.bytes(size)?;
        let key = bytes.try_into().map_err(|_| {
            CallFailure::usage(format!("a secret key has {KEY_LEN} bytes, and this one {size}"))
        })?;
        options.identity = Arc::new(IdentitySecretKey::new(key));
        Ok(())
    })
}

/// `sunder_options_add_peer_key`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_options_add_peer_key(options: Option<&mut Options>, key: Text) -> i32 {
    set(options, |options| {
        let key = key.read("key")?.parse();
        options.peers.push(
            key.map_err(|error: IdentityPublicKeyError| CallFailure::usage(error.to_string()))?,
        );
        Ok(())
    })
}

/// `sunder_options_set_insecure`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_options_set_insecure(options: Option<&mut Options>) -> i32 {
    set(options, |options| {
        options.insecure = true;
        Ok(())
    })
}

/// `sunder_options_set_accept_loss`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_options_set_accept_loss(options: Option<&mut Options>) -> i32 {
    set(options, |options| {
        options.settings.accept_loss = true;
        Ok(())
    })
}

/// `sunder_options_set_congestion_control`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_options_set_congestion_control(
    options: Option<&mut Options>,
    name: Text,
) -> i32 {
    set(options, |options| {
        options.settings.congestion = Some(name.read("name")?.to_owned());
        Ok(())
    })
}

/// `sunder_options_set_expected_exchange`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_options_set_expected_exchange(
    options: Option<&mut Options>,
    sent: u64,
    received: u64,
    rounds: u32,
) -> i32 {
    set(options, |options| {
        options.settings.exchange = Some(ExchangeProfile { sent, received, rounds });
        Ok(())
    })
}

/// `sunder_options_set_connect_timeout`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_options_set_connect_timeout(
    options: Option<&mut Options>,
    milliseconds: u32,
) -> i32 {
    set(options, |options| {
        let timeout = Duration::from_millis(milliseconds.into());
        options.settings.connect_timeout = timeout;
        options.settings.handshake_timeout = timeout;
        Ok(())
    })
}

/// `sunder_options_set_timeout`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_options_set_timeout(
    options: Option<&mut Options>,
    milliseconds: u32,
) -> i32 {
    set(options, |options| {
        let timeout = Duration::from_millis(milliseconds.into());
        options.settings.timeout = Some(timeout).filter(|timeout| !timeout.is_zero());
        Ok(())
    })
}

/// `sunder_options_public_key`
#[unsafe(no_mangle)]
pub extern "C" fn sunder_options_public_key(
    options: Option<&Options>,
    text: TextBuffer,
    size: usize,
) -> i32 {
    run(|| {
        let options = options.ok_or_else(|| null("options"))?;
        text.write(size, &options.identity.public().to_string())?;
        Ok(Code::Ok as i32)
    })
}

fn set(
    options: Option<&mut Options>,
    change: impl FnOnce(&mut Options) -> Result<(), CallFailure>,
) -> i32 {
    run(|| {
        change(options.ok_or_else(|| null("options"))?)?;
        Ok(Code::Ok as i32)
    })
}
