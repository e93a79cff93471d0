//! What the ends tell each other about the channels, and what follows from it.
//!
//! The bytes are in `docs/protocols/remicss.md`, section "Control messages". A [`Message`] says when
//! control shares of the other end came on each channel, and what had come there before. The
//! [`Monitor`] puts that together with what was sent: loss, delay and rate of each channel.

mod incoming;
mod message;
mod monitor;
mod outgoing;

pub use message::{Arrival, ControlError, MAX_ARRIVALS, Message, Report};
pub use monitor::{Came, Monitor, Totals};
