//! A conversation in which members and the proxy are stopped and killed.

use rustix::process::Signal;

use super::members::{Proxy, Room, STOP_SIGNALS};

/// Three members talk in turns, and after some turns the proxy or a member is stopped or killed and
/// started again, until it is enough after so many turns and rounds. Checks that each message has
/// arrived once, and in order.
pub(crate) fn talk_with_restarts(
    room: &Room,
    mut proxy: Proxy,
    names: &[&str; 3],
    is_enough: impl Fn(usize, u64) -> bool,
) {
    let mut members = names.map(|name| room.talk(name));
    for member in &mut members {
        member.wait_for("anonymity 3");
    }
    let mut got: [Vec<String>; 3] = Default::default();
    // How many messages each had when it was killed.
    let mut killed: [Vec<usize>; 3] = Default::default();
    let mut turns = 0;
    // Of the proxies before, which begin anew to count.
    let mut rounds = 0;
    while !is_enough(turns, rounds + room.rounds()) {
        for from in 0..names.len() {
            let to = names[(from + 1 + turns % 2) % names.len()];
            // Once it was taken it is not lost.
            while !members[from].say(to, &format!("{} {turns}", names[from])) {
                members[from].wait_for("anonymity 3");
            }
        }
        let signal = STOP_SIGNALS[turns / 10 % 2];
        match turns % 10 {
            3 => {
                rounds += room.rounds();
                proxy = proxy.restart(room, signal);
            }
            6 => {
                let one = turns / 10 % names.len();
                got[one].extend(members[one].stop(signal));
                if signal == Signal::KILL {
                    killed[one].push(got[one].len());
                }
                members[one] = room.talk(names[one]);
                members[one].wait_for("anonymity 3");
            }
            _ => {}
        }
        turns += 1;
    }
    let expected = [0, 1, 2].map(|to| [0, 1, 2].map(|from| sent(names, from, to, turns)));
    for (to, member) in members.iter_mut().enumerate() {
        for (from, texts) in names.iter().zip(&expected[to]) {
            let last = texts.last().map(|text| format!("{from} {text}"));
            while last.as_ref().is_some_and(|last| !got[to].contains(last)) {
                got[to].extend(member.messages(1));
            }
        }
    }
    for (to, name) in names.iter().enumerate() {
        got[to].extend(members[to].stop(Signal::TERM));
        for (from, expected) in expected[to].iter().enumerate() {
            let begin = format!("{} ", names[from]);
            let texts = |lines: &[String]| -> Vec<String> {
                let texts = lines.iter().filter_map(|line| line.strip_prefix(&begin));
                texts.map(str::to_owned).collect()
            };
            let mut of = texts(&got[to]);
            // What it had written and not yet noted as written, it writes again: all that was
            // complete after the same exchange.
            for at in killed[to].iter().rev().map(|&at| texts(&got[to][..at]).len()) {
                let is_again = |count: &usize| of[at..].starts_with(&of[at - count..at]);
                let again = (0..=at).rev().find(is_again).unwrap_or(0);
                of.drain(at..at + again);
            }
            assert_eq!(of, *expected, "{} to {name}", names[from]);
        }
    }
}

/// What one says to another.
fn sent(names: &[&str; 3], from: usize, to: usize, turns: usize) -> Vec<String> {
    let is_for = |turn: &usize| from != to && (from + 1 + turn % 2) % names.len() == to;
    (0..turns).filter(is_for).map(|turn| format!("{} {turn}", names[from])).collect()
}
