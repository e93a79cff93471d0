//! The thread that plans: the best schedule for what the channels are like now, beside the fast path.

use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};

use model::{Averages, Channel, Subset};
use sharing::Rng;
use tracing::{info, warn};

use super::sending::Command;
use super::shared::lock;
use super::wake::Wake;
use crate::config::Choice;
use crate::endpoint::common::Situation;
use crate::endpoint::outbound::{Means, Order};
use crate::send::plan::{Aim, NoPlan, Plan};
use crate::send::schedule::{Dynamic, Planned, Scheduler};
use crate::wire::keys::Keys;

/// A plan is told of again when its rate is so many times as high or low: rates that are learnt change
/// with each probe.
const TOLD_AGAIN: f64 = 2.0;

/// By how much a plan's kappa may be below what was asked for, as it is rounded.
const ROUNDED: f64 = 1e-6;

/// What a plan is wanted for.
pub(super) struct Request {
    /// The keys of an association that begins.
    pub(super) begins: Option<Keys>,
    pub(super) situation: Situation,
}

/// What the thread works with.
pub(super) struct Planning {
    pub(super) aim: Aim,
    pub(super) choice: Choice,
    pub(super) rng: Rng,
    pub(super) means: Means,
    pub(super) requests: Receiver<Request>,
    pub(super) sending: Sender<Command>,
    pub(super) wake_sending: Wake,
    /// What the model says of the plan in force.
    pub(super) predicted: Arc<Mutex<Option<Averages>>>,
}

impl Planning {
    /// Plans until nobody asks any more.
    pub(super) fn run(self) {
        let mut aim = self.aim;
        let mut told = None;
        while let Ok(mut request) = self.requests.recv() {
            // Only the last situation counts.
            while let Ok(later) = self.requests.try_recv() {
                let begins = later.begins.or(request.begins);
                request = Request { begins, situation: later.situation };
            }
            if let Some(keys) = &request.begins {
                aim = self.aim.agreed(keys.floor);
            }
            let planned = aim.plan(&request.situation.channels, request.situation.up);
            *lock(&self.predicted) = planned.as_ref().ok().map(|plan| plan.averages);
            match self.order(aim, request, planned, &mut told) {
                Ok(order) => {
                    // Whoever does not listen any more needs no orders.
                    let _ = self.sending.send(Command::Order(order));
                    self.wake_sending.wake();
                }
                Err(what) => warn!("{what}"),
            }
        }
    }

    fn order(
        &self,
        aim: Aim,
        request: Request,
        planned: Result<Plan, NoPlan>,
        told: &mut Option<(Subset, f64)>,
    ) -> Result<Order, String> {
        let up = request.situation.up;
        let plan = match planned {
            Ok(plan) => plan,
            Err(error) if request.begins.is_none() => {
                warn!("nothing is sent: {error}");
                return Ok(Order::Hold);
            }
            Err(error) => return Err(error.to_string()),
        };
        tell(aim, &request, &plan.averages, told);
        let scheduler = self.scheduler(aim, &plan, &request.situation.channels)?;
        let Some(keys) = request.begins else { return Ok(Order::Schedule { scheduler, up }) };
        let generator = self.rng.generator().map_err(|error| error.to_string())?;
        let sender = self.means.sender(&keys, scheduler, generator);
        sender.map(|sender| Order::Associate(Box::new(sender))).map_err(|error| error.to_string())
    }

    fn scheduler(
        &self,
        aim: Aim,
        plan: &Plan,
        channels: &[Channel],
    ) -> Result<Box<dyn Scheduler>, String> {
        let mut generator = self.rng.generator().map_err(|error| error.to_string())?;
        let random = generator.array().map_err(|error| error.to_string())?;
        let random = u64::from_le_bytes(random);
        match self.choice {
            Choice::Planned => {
                Ok(Box::new(Planned::new(&plan.schedule, channels).starting_at(random)))
            }
            Choice::Dynamic => {
                let dynamic = Dynamic::new(aim.kappa, aim.mu).map_err(|error| error.to_string())?;
                Ok(Box::new(dynamic.starting_at(random)))
            }
        }
    }
}

/// Logs what a plan promises, unless it was told of one that is much the same.
fn tell(aim: Aim, request: &Request, averages: &Averages, told: &mut Option<(Subset, f64)>) {
    let Situation { channels, up } = &request.situation;
    let is_told = told.is_some_and(|(told, rate)| {
        let times = averages.rate / rate;
        told == *up && (1.0 / TOLD_AGAIN..TOLD_AGAIN).contains(&times)
    });
    if is_told && request.begins.is_none() {
        return;
    }
    *told = Some((*up, averages.rate));
    let has_risks = channels.iter().any(|channel| channel.risk() > 0.0);
    let risk = if has_risks { format!("risk {:.3}, ", averages.risk) } else { String::new() };
    let line = format!(
        "planned: kappa {:.2}, mu {:.2}, {risk}loss {:.2} %, delay {:.1} ms, {:.1} Mbit/s",
        averages.kappa,
        averages.mu,
        100.0 * averages.loss,
        averages.delay_ms,
        averages.rate
    );
    if averages.kappa < aim.kappa - ROUNDED {
        let (up, all, kappa) = (up.len(), channels.len(), aim.kappa);
        warn!("{line}: only {up} of {all} channels are up, too few for kappa = {kappa}");
    } else {
        info!("{line}");
    }
}
