//! Plans the most private use of three channels at a given rate, and prints the schedule.
//!
//! `cargo run --package sunder-model --example plan_channels`

use std::error::Error;
use std::io::{self, Write};

use sunder_model::{
    ChannelModel, ChannelSet, LossProbability, PlanRequest, RiskProbability, ScheduleObjective,
    ScheduleRequirements,
};

fn main() -> Result<(), Box<dyn Error>> {
    run(&mut io::stdout())
}

fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    // Risk, loss, delay in ms, rate in Mbit/s.
    let set = ChannelSet::new(vec![
        ChannelModel::new(RiskProbability(0.1), LossProbability(0.01), 2.5, 100.0)?,
        ChannelModel::new(RiskProbability(0.3), LossProbability(0.005), 9.0, 40.0)?,
        ChannelModel::new(RiskProbability(0.2), LossProbability(0.02), 30.0, 20.0)?,
    ])?;
    let request = PlanRequest::new(ScheduleRequirements {
        max_loss: Some(0.001),
        min_rate: Some(50.0),
        objectives: vec![ScheduleObjective::Risk, ScheduleObjective::Delay],
        ..ScheduleRequirements::default()
    })?;
    let plan = set.plan(&request)?;
    for (selection, proportion) in plan.schedule.entries() {
        let (k, channels) = (selection.k(), selection.channels());
        writeln!(out, "{:5.1} % of symbols: any {k} of channels {channels}", 100.0 * proportion)?;
    }
    let averages = plan.averages;
    let (risk, loss, rate) = (averages.risk, averages.loss, averages.rate);
    writeln!(out, "risk {risk:.4}, loss {loss:.6}, rate {rate:.1}")?;
    Ok(())
}

#[test]
fn the_output_is_as_expected() {
    let mut out = Vec::new();
    run(&mut out).unwrap();
    let expected = "  8.5 % of symbols: any 1 of channels {0}
 51.5 % of symbols: any 1 of channels {0, 1}
 11.5 % of symbols: any 1 of channels {0, 2}
 28.5 % of symbols: any 2 of channels {0, 1, 2}
risk 0.2591, loss 0.001000, rate 50.0
";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}
