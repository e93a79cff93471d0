//! The end that shows a code.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use random::RandomGenerator;
use tracing::warn;

use super::{ACCEPTED, EXCHANGE_TIMEOUT, PairedEnd, PairingError, REFUSED, check_roles, seed};
use crate::address::resolve;
use crate::error::{ConnectionStep, Error};
use crate::net::listener::bind_shared_port;
use crate::net::pending::{HandshakeAdmission, PendingHandshakes};
use crate::net::refusals::RefusalLog;
use crate::net::timed::TimedStream;
use crate::options::{ConnectionOptions, ConnectionSecurity};
use crate::protocol::code::{
    CONFIRMATION_LEN, GREETING_LEN, PairingOffer, RANDOM_LEN, SEALED_OFFER_LEN, TransferCode,
    answer,
};
use crate::relay::RelayRegistration;
use crate::stream::ByteStream;
use crate::transports::tcp::TcpTransportListener;

/// The pause after an error of the system or of the relay.
const PAUSE: Duration = Duration::from_millis(500);

/// Shows a code, and waits for the end at which it is typed. The first wrong code ends it.
#[derive(Debug)]
pub struct CodeListener {
    code: TransferCode,
    place: Arc<CodeMeetingPlace>,
}

/// Where the other end connects.
enum CodeMeetingPlace {
    /// A TCP socket, and a UDP socket that keeps the port number free for the transfer.
    Sockets(TcpTransportListener, #[expect(dead_code, reason = "it keeps the port")] UdpSocket),
    /// A relay.
    Relay(RelayRegistration),
}

impl std::fmt::Debug for CodeMeetingPlace {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("CodeMeetingPlace").finish_non_exhaustive()
    }
}

impl CodeListener {
    /// Listens at `HOST:PORT`; port 0 chooses one that is free for TCP and UDP.
    ///
    /// # Errors
    /// If the system returns an error.
    pub fn bind(address: &str) -> Result<Self, Error> {
        let failed = |error| Error::at(ConnectionStep::Listen, address, error, None);
        let code = random_code(false)?;
        let options = ConnectionOptions::new(ConnectionSecurity::Insecure);
        let mut last = io::ErrorKind::AddrNotAvailable.into();
        for candidate in resolve(address)? {
            match bind_shared_port(candidate, &options, UdpSocket::bind) {
                Ok((tcp, udp)) => {
                    let place = Arc::new(CodeMeetingPlace::Sockets(tcp, udp));
                    return Ok(Self { code, place });
                }
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }

    /// Waits at a relay.
    ///
    /// # Errors
    /// If the address is invalid. A relay that does not answer is contacted again and again.
    pub fn via(relay: &str) -> Result<Self, Error> {
        let code = random_code(true)?;
        let secret = code.relay_secret().ok_or(Error::Closed)?;
        let registration = RelayRegistration::with_secret(resolve(relay)?, secret);
        Ok(Self { code, place: Arc::new(CodeMeetingPlace::Relay(registration)) })
    }

    /// The code to show.
    pub fn code(&self) -> &TransferCode {
        &self.code
    }

    /// The address where it listens, if it does not wait at a relay.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        match &*self.place {
            CodeMeetingPlace::Sockets(tcp, _) => tcp.local_addr().ok(),
            CodeMeetingPlace::Relay(_) => None,
        }
    }

    /// Waits for the other end. Afterwards, the address is free again.
    ///
    /// # Errors
    /// [`PairingError::WrongCode`] for the first wrong code; also if the end that has typed the
    /// right one has gone since.
    pub fn pair(self, own: PairingOffer) -> Result<PairedEnd, PairingError> {
        let (report, reported) = sync_channel(1);
        let core = Arc::new(CodeListenerCore {
            code: self.code,
            own,
            pending: PendingHandshakes::default(),
            refusals: RefusalLog::default(),
            is_used: Mutex::new(false),
            is_closed: AtomicBool::new(false),
            report,
        });
        let accepting = accept_in_thread(self.place.clone(), core.clone())
            .map_err(|error| Error::at(ConnectionStep::Listen, "", error, None))?;
        wait(&self.place, &core, accepting, &reported)
    }
}

fn random_code(is_at_relay: bool) -> Result<TransferCode, Error> {
    let random = zeroize::Zeroizing::new(RandomGenerator::system().array::<RANDOM_LEN>()?);
    Ok(TransferCode::of_random(&random, is_at_relay))
}

/// Waits for the result, and ends the thread that accepts.
fn wait(
    place: &CodeMeetingPlace,
    core: &CodeListenerCore,
    accepting: JoinHandle<()>,
    reported: &Receiver<Result<PairedEnd, PairingError>>,
) -> Result<PairedEnd, PairingError> {
    let result = reported.recv().unwrap_or(Err(PairingError::Connect(Error::Closed)));
    core.is_closed.store(true, Ordering::Relaxed);
    match place {
        CodeMeetingPlace::Sockets(tcp, _) => tcp.close(),
        CodeMeetingPlace::Relay(registration) => registration.close(),
    }
    core.pending.close();
    // It owns the listening socket, too, whose port must be free for the transfer. At a relay, it
    // could be in a pause.
    if matches!(place, CodeMeetingPlace::Sockets(..)) {
        let _ = accepting.join();
    }
    result
}

struct CodeListenerCore {
    code: TransferCode,
    own: PairingOffer,
    pending: PendingHandshakes,
    refusals: RefusalLog,
    /// Whether a confirmation was checked, right or wrong: no other one is checked.
    is_used: Mutex<bool>,
    is_closed: AtomicBool,
    report: SyncSender<Result<PairedEnd, PairingError>>,
}

fn accept_in_thread(
    place: Arc<CodeMeetingPlace>,
    core: Arc<CodeListenerCore>,
) -> io::Result<JoinHandle<()>> {
    let options = ConnectionOptions::new(ConnectionSecurity::Insecure);
    thread::Builder::new().name("transport-code".into()).spawn(move || {
        while !core.is_closed.load(Ordering::Relaxed) {
            let accepted: io::Result<Arc<dyn ByteStream>> = match &*place {
                CodeMeetingPlace::Sockets(tcp, _) => {
                    tcp.accept(&options).map(|stream| Arc::new(stream) as Arc<dyn ByteStream>)
                }
                CodeMeetingPlace::Relay(registration) => {
                    registration.accept(&options).map(|relayed| relayed.stream)
                }
            };
            match accepted {
                Ok(stream) => core.begin(&stream),
                Err(_) if core.is_closed.load(Ordering::Relaxed) => return,
                Err(error) => {
                    warn!("cannot accept a connection: {error}; trying again in {PAUSE:?}");
                    thread::sleep(PAUSE);
                }
            }
        }
    })
}

impl CodeListenerCore {
    /// Performs the exchange on a connection in its own thread.
    fn begin(self: &Arc<Self>, stream: &Arc<dyn ByteStream>) {
        match self.pending.add(stream) {
            HandshakeAdmission::Admitted => {}
            refused => {
                if refused == HandshakeAdmission::Busy {
                    self.pending.refused();
                }
                self.refusals.log_busy(&**stream);
                return stream.close();
            }
        }
        let (core, begun) = (self.clone(), stream.clone());
        let spawned = thread::Builder::new().name("transport-code".into()).spawn(move || {
            let result = core.exchange(&begun);
            let was_pending = core.pending.remove(&begun);
            if let Some(result) = result {
                let _ = core.report.try_send(result);
                return;
            }
            if !was_pending && !core.is_closed.load(Ordering::Relaxed) {
                // It was evicted.
                core.refusals.log_busy(&*begun);
            }
            let _ = begun.finish();
        });
        if spawned.is_err() {
            self.pending.remove(stream);
            stream.close();
        }
    }

    /// The exchange with an end that types a code. `None` if it has not come to a check of the code
    /// on this connection.
    fn exchange(&self, stream: &Arc<dyn ByteStream>) -> Option<Result<PairedEnd, PairingError>> {
        let timed = TimedStream::new(&**stream, EXCHANGE_TIMEOUT);
        let greeting = timed.receive::<GREETING_LEN>().ok()?;
        let (keys, reply) = answer(&self.code, &greeting, seed().ok()?)?;
        self.pending.requested(stream);
        timed.send(&[&[ACCEPTED][..], &reply].concat()).ok()?;
        let confirmation = timed.receive::<CONFIRMATION_LEN>().ok()?;
        if std::mem::replace(
            &mut *self.is_used.lock().unwrap_or_else(PoisonError::into_inner),
            true,
        ) {
            timed.send(&[REFUSED]).ok()?;
            return None;
        }
        let from = stream.peer_addr();
        if !keys.is_confirmed_by(&confirmation) {
            let _ = timed.send(&[REFUSED]).and_then(|()| stream.finish());
            return Some(Err(PairingError::WrongCode { from }));
        }
        let name = from.to_string();
        let finished = || -> Result<PairingOffer, PairingError> {
            let broken = |source| PairingError::Broken { peer: name.clone(), source };
            let offer = keys.seal_offer(&self.own)?;
            let answer = [&[ACCEPTED][..], &keys.confirmation(), &offer].concat();
            timed.send(&answer).map_err(broken)?;
            let sealed = timed.receive::<SEALED_OFFER_LEN>().map_err(broken)?;
            let peer = keys.open_offer(&sealed);
            let peer = peer.ok_or_else(|| PairingError::NotProven { peer: name.clone() })?;
            check_roles(&self.own, &peer)?;
            Ok(peer)
        };
        let finished = finished();
        Some(finished.map(|peer| PairedEnd { peer, stream: stream.clone(), keys, own: None, name }))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use keys::IdentitySecretKey;

    use super::*;
    use crate::protocol::code::{CodeKeys, CodeTyper, REPLY_LEN, TransferRole};

    /// Begins an exchange, without the confirmation.
    fn begun(address: SocketAddr, code: &TransferCode) -> (TcpStream, CodeKeys) {
        let (typer, greeting) = CodeTyper::new(code, seed().unwrap());
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&greeting).unwrap();
        let mut answer = [0; 1 + REPLY_LEN];
        stream.read_exact(&mut answer).unwrap();
        (stream, typer.keys(answer.last_chunk().unwrap()).unwrap())
    }

    /// Connections at the same time are no second try.
    #[test]
    fn after_a_wrong_code_no_exchange_that_has_begun_is_confirmed() {
        let listener = CodeListener::bind("127.0.0.1:0").unwrap();
        let (address, code) = (listener.local_addr().unwrap(), listener.code().clone());
        let identity = IdentitySecretKey::new(&[7; 32]);
        let own = PairingOffer::new(&identity, TransferRole::Receiver, false);
        let pairing = thread::spawn(move || listener.pair(own));
        let mut right: Vec<_> = (0..10).map(|_| begun(address, &code)).collect();
        let (mut wrong, keys) = begun(address, &"zoo-zoo-zoo-zoo".parse().unwrap());
        wrong.write_all(&keys.confirmation()).unwrap();
        let mut answer = [ACCEPTED];
        wrong.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [REFUSED]);
        for (stream, keys) in &mut right {
            // The listener may have closed it already.
            let _ = stream.write_all(&keys.confirmation());
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            assert!(answer.is_empty() || answer == [REFUSED], "{answer:?}");
        }
        assert!(matches!(pairing.join().unwrap(), Err(PairingError::WrongCode { .. })));
    }
}
