//! Every fault: how soon either end names the channel, and what streams do.

use std::thread;
use std::time::{Duration, Instant};

use micss::status::ChannelState;

use crate::faults::Fault;
use crate::testbed::{Download, End, Service, TOPOLOGY, Testbed, until};

/// How soon either end is to name the channel.
const SOON: Duration = Duration::from_secs(3);

/// How soon a new stream is to fail.
const AT_ONCE: Duration = Duration::from_millis(500);

/// How long running streams wait here.
const WAIT: Duration = Duration::from_secs(6);

/// What was seen of a fault.
struct Seen {
    /// How long after it the log, the status and the metrics of either end named the channel.
    named: [Option<[Duration; 3]>; 2],
    /// How long after it the running stream ended.
    ended: Duration,
    /// How long a new stream took to fail.
    failed: Option<Duration>,
}

pub(crate) fn both_ends_name_the_channel_within_three_seconds() {
    let plays = Fault::ALL.map(|fault| (fault, thread::spawn(move || play(fault))));
    println!(
        "| fault | client: log | status | metric | server: log | status | metric | new stream fails after | the download ends after |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (fault, play) in plays {
        let seen = play.join().unwrap_or_else(|_| panic!("{fault:?}"));
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

/// Plays a fault, up to three times, as a busy machine may hold up an attempt or two: what is too
/// slow is so each time.
fn play(fault: Fault) -> Seen {
    let mut late = Vec::new();
    for _ in 0..3 {
        let seen = attempt(fault);
        let times = seen.named.iter().flatten().flatten();
        if times.copied().all(|time| time < SOON) && seen.failed.is_none_or(|time| time < AT_ONCE) {
            return seen;
        }
        late.push((seen.named, seen.failed));
    }
    panic!("{fault:?}, three times: {late:?}");
}

fn attempt(fault: Fault) -> Seen {
    let settings = format!("lost_channel_timeout_s = {}", WAIT.as_secs());
    let serve = format!("{settings}\nmin_channels = 3");
    let mut testbed = Testbed::start(TOPOLOGY, [&settings, &serve], Service::Speaks);
    let download = testbed.download();
    for end in End::BOTH {
        for place in 0..3 {
            let is_up = || testbed.channel(end, place).unwrap().state == ChannelState::Up;
            until("all channels are up", is_up);
            assert!(testbed.page(end, &[]).contains("  up "), "{}", testbed.page(end, &[]));
        }
    }
    let begin = Instant::now();
    fault.happen(&mut testbed);
    let seen = observe(fault, &testbed, &download, begin);
    for end in ends(fault) {
        // The streams' ends and the channel's loss name no other channel.
        let log = testbed.log(end);
        for other in (0..3).filter(|place| !fault.channels().contains(place)) {
            assert!(!log.contains(&format!("channel {}", other + 1)), "{end:?}: {log}");
        }
    }
    seen
}

/// The ends that have something to say.
fn ends(fault: Fault) -> Vec<End> {
    End::BOTH.into_iter().filter(|end| fault != Fault::Killed(*end)).collect()
}

fn observe(fault: Fault, testbed: &Testbed, download: &Download, begin: Instant) -> Seen {
    let named = thread::scope(|scope| {
        let watch = |end| move || names(fault, testbed, end, begin);
        let watched = ends(fault).into_iter().map(|end| (end, scope.spawn(watch(end))));
        let watched: Vec<_> = watched.collect();
        let mut named = [None, None];
        for (end, watching) in watched {
            named[end as usize] = Some(watching.join().unwrap());
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
        let waited = end - begin;
        // It counts from when something was heard last.
        assert!((WAIT * 9 / 10..WAIT * 2).contains(&waited), "{fault:?}: {waited:?}");
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
    Seen { named, ended: end - begin, failed }
}

/// When an end's log, status and metrics name all channels that are lost.
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
                channel.is_some_and(|c| c.state == ChannelState::Down && c.state_s.is_some())
            };
            status = all(&is_down).then(|| begin.elapsed());
        }
        log.is_some() && status.is_some()
    });
    let page = testbed.page(end, &[]);
    let lines = |place: usize| page.contains(&format!("channel {} (", place + 1));
    assert!(page.contains("  DOWN ") && all(&lines), "{page}");
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
