//! A conversation in which members and the proxy are stopped and killed.

use rustix::process::Signal;

use super::members::{Proxy, Room, STOP_SIGNALS};

/// Three members talk in turns, and after some turns the proxy or a member is stopped or killed and
/// started again, until it is enough after so many turns. Checks that each message has arrived
/// once, and in order.
pub(crate) fn talk_with_restarts(
    room: &Room,
    mut proxy: Proxy,
    names: &[&str; 3],
    is_enough: impl Fn(usize) -> bool,
) {
    let mut members = names.map(|name| room.talk(name));
    for member in &mut members {
        member.wait_for("anonymity 3");
    }
    let mut got: [Vec<String>; 3] = Default::default();
    let mut turns = 0;
    while !is_enough(turns) {
        for from in 0..names.len() {
            let to = names[(from + 1 + turns % 2) % names.len()];
            // Once it was taken it is not lost.
            while !members[from].say(to, &format!("{} {turns}", names[from])) {
                members[from].wait_for("anonymity 3");
            }
        }
        let signal = STOP_SIGNALS[turns / 10 % 2];
        match turns % 10 {
            3 => proxy = proxy.restart(room, signal),
            6 => {
                let one = turns / 10 % names.len();
                got[one].extend(members[one].stop(signal));
                members[one] = room.talk(names[one]);
                members[one].wait_for("anonymity 3");
                if signal == Signal::KILL {
                    // What it had written and not yet noted as written, it writes again.
                    let first = members[one].messages(1);
                    if got[one].last() != first.first() {
                        got[one].extend(first);
                    }
                }
            }
            _ => {}
        }
        turns += 1;
    }
    for (to, name) in names.iter().enumerate() {
        let expected = [0, 1, 2].map(|from| sent(names, from, to, turns));
        let missing = expected.concat().len() - got[to].len();
        got[to].extend(members[to].messages(missing));
        for (from, expected) in expected.iter().enumerate() {
            let begin = format!("{} ", names[from]);
            let of: Vec<&str> =
                got[to].iter().filter_map(|line| line.strip_prefix(&begin)).collect();
            assert_eq!(of, *expected, "{} to {name}", names[from]);
        }
    }
}

/// What one says to another.
fn sent(names: &[&str; 3], from: usize, to: usize, turns: usize) -> Vec<String> {
    let is_for = |turn: &usize| from != to && (from + 1 + turn % 2) % names.len() == to;
    (0..turns).filter(is_for).map(|turn| format!("{} {turn}", names[from])).collect()
}
