//! The progress of a transfer on the terminal, at both ends.

use console::CommandProgress;
use transport::files::FileTransferEvent;

/// What the terminal shows of the transfer.
#[derive(Default)]
pub(super) struct TransferProgress {
    progress: Option<CommandProgress>,
    position: u64,
}

impl TransferProgress {
    pub(super) fn show(&mut self, event: &FileTransferEvent<'_>) {
        match event {
            FileTransferEvent::Offered { length, .. } => {
                self.progress = Some(CommandProgress::new(Some(*length)));
            }
            FileTransferEvent::StreamOffered => self.progress = Some(CommandProgress::new(None)),
            FileTransferEvent::Position(position) => {
                if let Some(progress) = &self.progress {
                    let advanced = position.saturating_sub(self.position);
                    progress.doing("");
                    progress.advance(usize::try_from(advanced).unwrap_or(0));
                }
                self.position = self.position.max(*position);
            }
            FileTransferEvent::Comparing => {
                if let Some(progress) = &self.progress {
                    progress.doing("comparing with what the receiver has");
                }
            }
            FileTransferEvent::Silent { transport, silence } => console::warning(&format!(
                "nothing has arrived from the receiver over {transport} for {:.1} s: connecting \
                 again",
                silence.as_secs_f64()
            )),
            FileTransferEvent::Slow { transport, rate, by } => console::note(&format!(
                "{transport} is slow, {:.1} Mbit/s: continuing by {by}",
                rate * 8e-6
            )),
            FileTransferEvent::Broken { error, pause } => {
                let pause = pause.as_secs_f64();
                console::warning(&format!("{error}; connecting again in {pause} s"));
            }
        }
    }
}
