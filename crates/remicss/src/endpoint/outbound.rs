//! The half of an end that sends: symbols at the scheduler's choice, control messages when they are
//! due.

use std::time::Duration;

use model::{Subset, Threshold};
use sharing::Generator;

use crate::control::outgoing::Totals;
use crate::endpoint::common::Common;
use crate::send::batch::Batch;
use crate::send::pace::Pace;
use crate::send::schedule::Scheduler;
use crate::send::sender::{Counts, NotSent, Sender, SenderError, Sent};
use crate::wire::datagram::Kind;
use crate::wire::keys::Keys;

/// What the half that receives, or the planner, wants of the half that sends.
pub enum Order {
    /// Send under these keys from now on.
    Associate(Box<Sender>),
    /// Choose thresholds so from now on, over channels that are up.
    Schedule {
        /// The scheduler.
        scheduler: Box<dyn Scheduler>,
        /// The channels that are up.
        up: Subset,
    },
    /// Fewer channels are up than the privacy floor: send nothing.
    Hold,
    /// The peer is gone: send nothing until there is another association.
    Dissociate,
}

/// The half of an end that sends.
#[derive(Default)]
pub struct Outbound {
    sender: Option<Sender>,
    /// How many bytes a datagram has at most, where that is known.
    room: Option<usize>,
}

/// What a sender is made of, besides its keys.
pub struct Means {
    /// The rates of the channels in bit/s of IP packets, as far as they are known.
    pub rates_bps: Vec<Option<u64>>,
    /// The longest IP packet on each channel.
    pub mtus: Vec<usize>,
    /// The length of IP's and UDP's headers on each channel.
    pub headers: Vec<usize>,
}

impl Means {
    /// A sender under the keys of an association.
    ///
    /// # Errors
    /// As [`Sender::new`].
    pub fn sender(
        &self,
        keys: &Keys,
        scheduler: Box<dyn Scheduler>,
        generator: Generator,
    ) -> Result<Sender, SenderError> {
        let channels = self.rates_bps.iter().zip(&self.mtus).zip(&self.headers);
        let paces = channels.map(|((rate, mtu), headers)| Pace::new(*rate, *mtu, *headers));
        let (outgoing, floor) = (&keys.outgoing, keys.floor);
        let sender = Sender::new(outgoing, floor, paces.collect(), scheduler, generator)?;
        let mut sender = sender.over(keys.members);
        let longest = self.mtus.iter().zip(&self.headers).map(|(mtu, headers)| mtu - headers);
        sender.set_max_datagram_len(longest.min().unwrap_or(0));
        Ok(sender)
    }
}

impl Outbound {
    /// Does what is ordered.
    pub fn handle_order(&mut self, order: Order) {
        match (order, &mut self.sender) {
            (Order::Associate(mut sender), before) => {
                if let Some(room) = self.room {
                    sender.set_max_datagram_len(room);
                }
                // Where one association follows another, no packet is lost in between.
                if let Some(before) = before {
                    sender.adopt(before);
                }
                self.sender = Some(*sender);
            }
            (Order::Schedule { scheduler, up }, Some(sender)) => {
                sender.set_up(up);
                // It was planned for the floor.
                let _ = sender.set_scheduler(scheduler);
            }
            (Order::Hold, Some(sender)) => sender.set_up(Subset::EMPTY),
            (Order::Dissociate, _) => self.sender = None,
            // There is nobody to send to.
            (Order::Schedule { .. } | Order::Hold, None) => {}
        }
    }

    /// Begins a symbol, to which the caller appends packets. `None` if there is no association: then
    /// packets are dropped.
    pub fn begin(&mut self) -> Option<&mut Vec<u8>> {
        self.sender.as_mut().map(Sender::begin)
    }

    /// The symbol under way, and how many more bytes fit it; `None` if there is none.
    pub fn symbol(&mut self) -> Option<(&mut Vec<u8>, usize)> {
        self.sender.as_mut().and_then(Sender::symbol)
    }

    /// Sends the symbol under way: see [`Sender::finish`].
    ///
    /// # Errors
    /// As there.
    pub fn finish(
        &mut self,
        kind: Kind,
        flow: u16,
        now: Duration,
        batches: &mut [Batch],
    ) -> Result<Sent, NotSent> {
        self.sender
            .as_mut()
            .map_or(Err(NotSent::Nothing), |sender| sender.finish(kind, flow, now, batches))
    }

    /// Sends a control message if one is due, and goes on at the rates that the monitor says.
    /// Returns when to be called again, at the latest; `None` if there is nothing to be done before
    /// the next order.
    pub fn tend(
        &mut self,
        common: &mut Common,
        now: Duration,
        batches: &mut [Batch],
    ) -> Option<Duration> {
        // The sender of the association before this one has nothing to say about it.
        let sender =
            self.sender.as_mut().filter(|sender| Some(sender.key_id()) == common.key_id)?;
        let monitor = common.monitor.as_mut()?;
        let counts = sender.counts();
        let totals = counts.datagrams.iter().zip(&counts.ip_bytes);
        let totals: Vec<Totals> = totals
            .take(batches.len())
            .map(|(datagrams, bytes)| Totals { datagrams: *datagrams, bytes: *bytes })
            .collect();
        let packets = counts.symbols + common.packets;
        let message = monitor.poll_message(now, &totals, &common.came, common.quarantined, packets);
        if let Some(message) = message {
            // A message that is not sent is one that was lost.
            let _ = sender.control(&message, now, batches);
            for channel in 0..batches.len() {
                sender.set_limit(channel, monitor.limit(channel), now);
            }
        }
        Some(monitor.poll_timeout())
    }

    /// Sets how many bytes a datagram has at most, as UDP's payload.
    pub fn set_room(&mut self, datagram: usize) {
        self.room = Some(datagram);
        if let Some(sender) = &mut self.sender {
            sender.set_max_datagram_len(datagram);
        }
    }

    /// There is nothing left to send for now.
    pub fn rest(&mut self) {
        if let Some(sender) = &mut self.sender {
            sender.rest();
        }
    }

    /// What was done so far under the keys of now.
    pub fn counts(&self) -> Option<&Counts> {
        self.sender.as_ref().map(Sender::counts)
    }

    /// How often each threshold was used under the keys of now: see [`Sender::uses`].
    pub fn uses(&self) -> Vec<(Threshold, u64)> {
        self.sender.iter().flat_map(Sender::uses).collect()
    }
}
