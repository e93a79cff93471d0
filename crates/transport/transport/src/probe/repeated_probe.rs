//! Repeated probes of a path, if there is time.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::net::PathProbe;
use super::prober::ProbeMeasurement;
use super::rate::MeasuredRate;

/// The number of probes, and the time after which no further probe may end.
const PROBES: usize = 5;
const LIMIT: Duration = Duration::from_secs(3);

/// Measures a path several times. If a host was busy during a train, one probe alone may measure a
/// third of the rate. `None` if UDP does not pass.
///
/// # Errors
/// If no socket can be opened, or the system cannot wait or receive.
pub(crate) fn measure_several(to: SocketAddr) -> io::Result<Option<ProbeMeasurement>> {
    let start = Instant::now();
    let mut all = Vec::new();
    loop {
        let began = Instant::now();
        let Some(measured) = PathProbe::start(to)?.run(|_| true, || true)? else { break };
        all.push(measured);
        let next_ends = start.elapsed() + began.elapsed();
        if all.len() == PROBES || next_ends > LIMIT {
            break;
        }
    }
    Ok(combined(&all))
}

/// Combines probes: the min RTT, all packets, and the latest capabilities of the host. `None`
/// without a probe.
fn combined(all: &[ProbeMeasurement]) -> Option<ProbeMeasurement> {
    let last = *all.last()?;
    let count = u32::try_from(all.len()).unwrap_or(u32::MAX);
    Some(ProbeMeasurement {
        round_trip: all.iter().map(|it| it.round_trip).min()?,
        variation: all.iter().map(|it| it.variation).sum::<Duration>() / count,
        sent: all.iter().map(|it| it.sent).sum(),
        lost: all.iter().map(|it| it.lost).sum(),
        up: high(all.iter().filter_map(|it| it.up)),
        down: high(all.iter().filter_map(|it| it.down)),
        host: last.host,
    })
}

/// The highest of up to three rates, or the second highest of more. Delayed packets make a rate too
/// low, which is frequent. Rates that are too high are rare: on a short path, packets of a train
/// may arrive in batches.
fn high(rates: impl Iterator<Item = MeasuredRate>) -> Option<MeasuredRate> {
    let mut rates: Vec<MeasuredRate> = rates.collect();
    rates.sort_by(|one, other| other.rate.total_cmp(&one.rate));
    rates.get(usize::from(rates.len() > 3)).copied()
}

#[cfg(test)]
mod tests {
    use super::super::host;
    use super::*;

    fn measured(rate: f64, round_trip: u64, lost: u32) -> ProbeMeasurement {
        let rate = Some(MeasuredRate { rate, low: rate / 2.0, high: rate * 2.0 });
        ProbeMeasurement {
            round_trip: Duration::from_millis(round_trip),
            variation: Duration::from_millis(1),
            sent: 100,
            lost,
            up: rate,
            down: None,
            host: host::info(None),
        }
    }

    #[test]
    fn one_probe_that_is_far_off_does_not_count() {
        let rates = [9e6, 1e6, 8e6, 90e6, 2e6];
        let all: Vec<ProbeMeasurement> =
            (20..).zip(rates).map(|(at, rate)| measured(rate, at, 1)).collect();
        let of_all = combined(&all).unwrap();
        assert_eq!((of_all.up, of_all.down), (all[0].up, None));
        assert_eq!(of_all.round_trip, Duration::from_millis(20));
        assert_eq!((of_all.sent, of_all.lost), (500, 5));
        assert_eq!(combined(&all[1..3]).unwrap().up, all[2].up);
        assert_eq!(combined(&all[1..2]), Some(all[1]));
        assert_eq!(combined(&[]), None);
    }
}
