//! `receive --out -`: one stream, written to standard output.

use std::fs::File;
use std::io;
use std::io::ErrorKind::UnexpectedEof;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;

use console::{CommandFailure, signals};
use transport::files::{FileReceiveError, ReceivedStream, StreamReceiver, TransferLimiter};
use transport::{Connection, FileTransferFailureReason, Listener};

use super::{MAX_REFUSALS, TransferProgress};

/// Receives one stream, and ends with it.
///
/// # Errors
/// When the stream is not complete, or cannot be written.
pub(super) fn run(listener: Listener) -> Result<(), CommandFailure> {
    // Not the buffer of lines that the library puts before standard output.
    let output = io::stdout().as_fd().try_clone_to_owned();
    let output = output.map_err(|error| {
        CommandFailure::Failed(format!("cannot write to standard output: {error}"))
    })?;
    let receiver = Arc::new(StreamReceiver::new(File::from(output)));
    let closed = receiver.clone();
    signals::run_on_signal(move || closed.close())
        .map_err(|error| CommandFailure::Failed(format!("cannot handle signals: {error}")))?;
    let (end, ended) = sync_channel(1);
    let accepting = move || {
        let places = TransferLimiter::new(MAX_REFUSALS);
        while let Ok(connection) = listener.accept() {
            let Some(place) = places.take(&connection) else { continue };
            let (receiver, end) = (receiver.clone(), end.clone());
            super::in_thread(move || {
                let received = receive(connection, &receiver);
                drop(place);
                match received {
                    // A sender connects again before it knows whether it has to.
                    Err(FileReceiveError::NoOffer(error)) if error.kind() == UnexpectedEof => {}
                    Err(error @ (FileReceiveError::NoOffer(_) | FileReceiveError::Rejected(_))) => {
                        console::warning(&error.to_string());
                    }
                    received => _ = end.try_send(received),
                }
            });
        }
    };
    thread::Builder::new()
        .name("receive".into())
        .spawn(accepting)
        .map_err(|error| CommandFailure::Failed(format!("no threads: {error}")))?;
    let received = ended
        .recv()
        .map_err(|_| CommandFailure::Failed("the listener has failed".into()))?
        .map_err(|error| failure(&error))?;
    let ReceivedStream { bytes, sha256, elapsed } = received;
    let seconds = elapsed.as_secs_f64();
    console::note(&format!("{bytes} bytes, in {seconds:.1} s, SHA-256 {sha256}"));
    Ok(())
}

fn receive(
    connection: Connection,
    receiver: &StreamReceiver,
) -> Result<ReceivedStream, FileReceiveError> {
    let mut shown = TransferProgress::default();
    receiver.receive(connection, |event| shown.show(&event))
}

fn failure(error: &FileReceiveError) -> CommandFailure {
    let message = error.to_string();
    let is_changed = match error {
        FileReceiveError::Failed(failure) => matches!(
            failure.reason,
            FileTransferFailureReason::Digest | FileTransferFailureReason::Changed
        ),
        FileReceiveError::Incomplete { source, .. } => {
            transport::Error::of(source).is_some_and(transport::Error::is_security)
        }
        _ => false,
    };
    if is_changed { CommandFailure::Refused(message) } else { CommandFailure::Failed(message) }
}
