//! All faults: how soon either end reports the channel, and what streams do.

use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use micss::status::StreamChannelState;

use crate::faults::Fault;
use crate::testbed::{Download, End, Service, TOPOLOGY, Testbed, until};

/// The time within which either end must report the channel.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(3);

/// The time within which a new stream must fail.
const FAIL_TIMEOUT: Duration = Duration::from_millis(500);

/// The time for which open streams wait in these tests.
const STREAM_TIMEOUT: Duration = Duration::from_secs(6);

/// The times after the last data at which an open stream may end.
const END_TIMES: Range<Duration> = Duration::from_millis(STREAM_TIMEOUT.as_secs() * 900)
    ..Duration::from_secs(STREAM_TIMEOUT.as_secs() * 2);

/// The observations of a fault.
struct Observation {
    /// The time until the log, the status and the metrics of either end reported the channel.
    named: [Option<[Duration; 3]>; 2],
    /// The time from the last data until the open stream ended.
    ended: Duration,
    /// The time until a new stream failed.
    failed: Option<Duration>,
}

pub(crate) fn both_ends_name_the_channel_within_three_seconds() {
    println!(
        "| fault | client: log | status | metric | server: log | status | metric | new stream fails after | the download ends after |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    // Not all at a time: they would keep each other waiting.
    let observations = Fault::ALL.chunks(4).flat_map(|faults| {
        let observing = |&fault| (fault, thread::spawn(move || observe_fault(fault)));
        let observations: Vec<_> = faults.iter().map(observing).collect();
        let seen = |(fault, observation): (Fault, thread::JoinHandle<Observation>)| {
            (fault, observation.join().unwrap_or_else(|_| panic!("{fault:?}")))
        };
        observations.into_iter().map(seen).collect::<Vec<_>>()
    });
    for (fault, seen) in observations {
        let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
        let named = seen.named.map(|times| {
            let cells = times.map(|times| times.map(seconds).join(" | "));
            cells.unwrap_or_else(|| "– | – | –".into())
        });
        let failed =
            seen.failed.map_or_else(|| "–".into(), |time| format!("{} ms", time.as_millis()));
        println!(
            "| {} | {} | {} | {failed} | {} |",
            fault.name(),
            named[0],
            named[1],
            seconds(seen.ended)
        );
    }
}

/// Injects a fault and observes it, up to three times, because a busy machine may delay some
/// attempts.
fn observe_fault(fault: Fault) -> Observation {
    let mut late = Vec::new();
    for _ in 0..3 {
        let seen = match attempt(fault) {
            Ok(seen) => seen,
            Err(why) => {
                late.push(why);
                continue;
            }
        };
        let times = seen.named.iter().flatten().flatten();
        if times.copied().all(|time| time < NOTICE_TIMEOUT)
            && seen.failed.is_none_or(|time| time < FAIL_TIMEOUT)
            && (matches!(fault, Fault::Killed(_)) || END_TIMES.contains(&seen.ended))
        {
            return seen;
        }
        late.push(format!("{:?}", (seen.named, seen.failed, seen.ended)));
    }
    panic!("{fault:?}, three times: {late:#?}");
}

/// What is seen of a fault. An error if an end has named another channel, as it may if a busy
/// machine stops the other end.
fn attempt(fault: Fault) -> Result<Observation, String> {
    let settings = format!("lost_channel_timeout_s = {}", STREAM_TIMEOUT.as_secs());
    let serve = format!("{settings}\nmin_channels = 3");
    let mut testbed = Testbed::start(TOPOLOGY, [&settings, &serve], Service::Speaks);
    let (download, writer) = testbed.conversation();
    for end in End::BOTH {
        for place in 0..3 {
            let is_up = || testbed.channel(end, place).unwrap().state == StreamChannelState::Up;
            until("all channels are up", is_up);
            // A busy machine may answer too late.
            until("the page says so", || testbed.page(end, &[]).contains("  up "));
        }
    }
    // A dead process resets its streams at once, and a write would take the error.
    let writer = (!matches!(fault, Fault::Killed(_))).then_some(writer);
    // The channel is lost when the injection begins or when it has ended.
    let before = Instant::now();
    fault.inject(&mut testbed);
    let begin = Instant::now();
    drop(writer);
    let mut seen = observe(fault, &testbed, &download, begin);
    seen.ended += begin - before.min(download.last());
    for end in ends(fault) {
        // The streams' errors and the loss name no other channel. On a busy machine another one may
        // be silent for too long, too.
        let log = testbed.log(end);
        for other in (0..3).filter(|place| !fault.channels().contains(place)) {
            let name = format!("channel {}", other + 1);
            let (silent, wrong): (Vec<_>, Vec<_>) = log
                .lines()
                .filter(|line| line.contains(&name))
                .partition(|line| line.contains("no answer") || line.contains("again"));
            assert!(wrong.is_empty(), "{end:?}: {wrong:?}");
            if !silent.is_empty() {
                return Err(format!("{end:?}: {silent:?}"));
            }
        }
    }
    Ok(seen)
}

/// The ends that can report the fault.
fn ends(fault: Fault) -> Vec<End> {
    End::BOTH.into_iter().filter(|end| fault != Fault::Killed(*end)).collect()
}

fn observe(fault: Fault, testbed: &Testbed, download: &Download, begin: Instant) -> Observation {
    let named = thread::scope(|scope| {
        let watch = |end| move || names(fault, testbed, end, begin);
        let watched = ends(fault).into_iter().map(|end| (end, scope.spawn(watch(end))));
        let watched: Vec<_> = watched.collect();
        let mut named = [None, None];
        for (end, watching) in watched {
            let times = watching.join();
            let logs = || panic!("{fault:?}: {}", End::BOTH.map(|end| testbed.log(end)).join("\n"));
            named[end as usize] = Some(times.unwrap_or_else(|_| logs()));
        }
        named
    });
    let asked = Instant::now();
    let (_, code) = testbed.ask();
    assert_ne!(code, 0, "a new stream fails");
    let failed = Some(asked.elapsed());
    until("the download ends", || download.end().is_some());
    let (end, how) = download.end().unwrap();
    assert_eq!(how, "connection reset", "no end that could be taken for one");
    if !matches!(fault, Fault::Killed(_)) {
        for own in ends(fault) {
            let is_named = |line: &str| {
                line.contains("stream aborted")
                    && fault.channels().iter().any(|place| {
                        line.contains(&format!("channel {} (", place + 1))
                            && line.contains(" is lost: ")
                    })
            };
            until(
                &format!("the {own:?} says why the download ended: {}", testbed.log(own)),
                || testbed.log(own).lines().any(is_named),
            );
        }
    }
    Observation { named, ended: end - begin, failed }
}

/// The times at which an end's log, status and metrics report all lost channels.
fn names(fault: Fault, testbed: &Testbed, end: End, begin: Instant) -> [Duration; 3] {
    let all = |is_named: &dyn Fn(usize) -> bool| fault.channels().iter().all(|p| is_named(*p));
    let (mut log, mut status) = (None, None);
    until(&format!("{end:?} names the channel, {fault:?}"), || {
        if log.is_none() {
            let text = testbed.log(end);
            let says = |place: usize| {
                let name = format!("channel {} (", place + 1);
                text.lines()
                    .any(|l| l.contains("WARN") && l.contains(&name) && l.contains(" is lost: "))
            };
            log = all(&says).then(|| begin.elapsed());
        }
        if status.is_none() {
            let is_down = |place: usize| {
                let channel = testbed.channel(end, place);
                channel.is_some_and(|c| c.state == StreamChannelState::Down && c.state_s.is_some())
            };
            status = all(&is_down).then(|| begin.elapsed());
        }
        log.is_some() && status.is_some()
    });
    until("the page says so", || {
        let page = testbed.page(end, &[]);
        let lines = |place: usize| page.contains(&format!("channel {} (", place + 1));
        page.contains("  DOWN ") && all(&lines)
    });
    let has_zero = |place: usize| {
        let metrics = testbed.page(end, &["--metrics"]);
        let label = format!("channel=\"{}\"", place + 1);
        metrics.lines().any(|line| {
            line.starts_with("sunder_channel_up{") && line.contains(&label) && line.ends_with("} 0")
        })
    };
    until("the metrics say so", || all(&has_zero));
    [log.unwrap(), status.unwrap(), begin.elapsed()]
}
