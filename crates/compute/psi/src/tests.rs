//! Runs of both parties.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;

use blocks::Block;
use proptest::prelude::*;

use crate::{
    Error, MAX_SUM, PsiFunction, PsiLearners, PsiNumbers, PsiOutcome, PsiProgress, PsiRole,
    PsiSession, PsiSum, PsiTerms, PsiTraffic, find_common,
};

fn items(numbers: impl IntoIterator<Item = u128>) -> Vec<Block> {
    numbers.into_iter().map(Block::from).collect()
}

fn terms(role: PsiRole) -> PsiTerms {
    PsiTerms { role, learners: PsiLearners::Both, hidden_size: None, comparison: [7; 32] }
}

fn run(
    receiver: (PsiTerms, Vec<Block>),
    sender: (PsiTerms, Vec<Block>),
) -> [Result<PsiOutcome, Error>; 2] {
    run_functions([PsiFunction::Common; 2], receiver, sender)
}

/// Runs the receiver and the sender, each with what it says is computed.
fn run_functions(
    [of_receiver, of_sender]: [PsiFunction<'_>; 2],
    receiver: (PsiTerms, Vec<Block>),
    sender: (PsiTerms, Vec<Block>),
) -> [Result<PsiOutcome, Error>; 2] {
    let (here, there) = UnixStream::pair().unwrap();
    let party = |stream: UnixStream, (terms, items): (PsiTerms, Vec<Block>), function| {
        let reader = stream.try_clone().unwrap();
        let mut last = None;
        let mut progress = |now: PsiProgress| {
            assert!(now.done <= now.of && last.is_none_or(|last| last <= now.done));
            last = Some(now.done);
        };
        PsiSession::agree(reader, ShutDown(stream), &terms, &items, function)?.run(&mut progress)
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| party(there, sender, of_sender));
        let ours = party(here, receiver, of_receiver);
        [ours, other.join().unwrap()]
    })
}

fn numbers(values: &[i64], decimals: u8) -> PsiFunction<'_> {
    PsiFunction::Sum(PsiNumbers { column: [5; 32], values, decimals })
}

/// Ends its direction when it is dropped.
struct ShutDown(UnixStream);

impl Write for ShutDown {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl Drop for ShutDown {
    fn drop(&mut self) {
        let _ = self.0.shutdown(std::net::Shutdown::Write);
    }
}

/// Which of a party's numbers the other one has too.
fn expected(own: &[u128], others: &[u128]) -> Vec<usize> {
    let others: HashSet<&u128> = others.iter().collect();
    let places = own.iter().enumerate().filter(|(_, number)| others.contains(number));
    places.map(|(place, _)| place).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn both_find_what_both_have(
        a in prop::collection::hash_set(0..400_u128, 0..300),
        b in prop::collection::hash_set(0..400_u128, 0..300),
        hides in any::<bool>(),
    ) {
        let [a, b]: [Vec<u128>; 2] = [a, b].map(|set| set.into_iter().collect());
        let hidden_size = hides.then_some(300);
        let terms = |role| PsiTerms { hidden_size, ..terms(role) };
        let receiver = (terms(PsiRole::Receiver), items(a.clone()));
        let sender = (terms(PsiRole::Sender), items(b.clone()));
        let [receiver, sender] = run(receiver, sender).map(Result::unwrap);
        prop_assert_eq!(receiver.common, Some(expected(&a, &b)));
        prop_assert_eq!(sender.common, Some(expected(&b, &a)));
        let shown = |own: usize| u32::try_from(if hides { 300 } else { own }).unwrap();
        prop_assert_eq!(receiver.other_size, shown(b.len()));
        prop_assert_eq!(sender.other_size, shown(a.len()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn counts_and_sums_are_those_of_the_common_items(
        a in prop::collection::hash_set(0..100_u128, 0..60),
        b in prop::collection::hash_map(0..100_u128, -1_000_000..1_000_000_i64, 0..60),
        hides in any::<bool>(),
        sums in any::<bool>(),
        both in any::<bool>(),
    ) {
        let hidden_size = hides.then_some(70);
        let learners = if both { PsiLearners::Both } else { PsiLearners::Receiver };
        let terms = |role| PsiTerms { learners, hidden_size, ..terms(role) };
        let (others, values): (Vec<u128>, Vec<i64>) = b.iter().unzip();
        let functions =
            if sums { [numbers(&[], 0), numbers(&values, 2)] } else { [PsiFunction::Count; 2] };
        let common: Vec<&u128> = a.iter().filter(|number| b.contains_key(*number)).collect();
        let sum = common.iter().map(|number| b[*number]).sum();
        let expected = (Some(common.len()), sums.then_some(PsiSum { value: sum, decimals: 2 }));
        let receiver = (terms(PsiRole::Receiver), items(a.iter().copied()));
        let sender = (terms(PsiRole::Sender), items(others));
        let [receiver, sender] = run_functions(functions, receiver, sender).map(Result::unwrap);
        prop_assert_eq!((receiver.count, receiver.sum), expected);
        prop_assert_eq!((sender.count, sender.sum), if both { expected } else { (None, None) });
        prop_assert_eq!((receiver.common, sender.common), (None, None));
    }
}

#[test]
fn counts_of_several_pieces_and_unequal_sizes() {
    for (a, b) in [(9_000, 1), (1, 9_000), (5_000, 6_000), (0, 3)] {
        let receiver = (terms(PsiRole::Receiver), items(0..a));
        let sender = (terms(PsiRole::Sender), items((0..b).map(|it| 3 * it)));
        let expected = Some((0..b).filter(|it| 3 * it < a).count());
        let functions = [PsiFunction::Count; 2];
        for outcome in run_functions(functions, receiver, sender) {
            assert_eq!(outcome.unwrap().count, expected);
        }
    }
}

/// A party that shows few items, or none, can still ask: a budget that counted what it shows would
/// never end.
#[test]
fn guesses_are_what_the_other_party_can_test() {
    let guesses = |learners, role: PsiRole, function: PsiFunction<'_>, other_size: u128| {
        let (here, there) = UnixStream::pair().unwrap();
        let (set, terms) = (items(0..2), |role| PsiTerms { learners, ..terms(role) });
        thread::scope(|scope| {
            let other = scope.spawn(move || {
                let (reader, set) = (there.try_clone().unwrap(), items(0..other_size));
                let values = vec![1; set.len()];
                let function = match function {
                    PsiFunction::Sum(_) => numbers(&values, 0),
                    other => other,
                };
                PsiSession::agree(reader, there, &terms(role.other()), &set, function).map(drop)
            });
            let reader = here.try_clone().unwrap();
            let session = PsiSession::agree(reader, here, &terms(role), &set, function);
            other.join().unwrap().unwrap();
            let session = session.unwrap();
            let guesses = session.other_guesses();
            assert!(session.limit_guesses(guesses).is_ok());
            if let Some(fewer) = guesses.checked_sub(1) {
                let error = session.limit_guesses(fewer).unwrap_err().to_string();
                assert!(error.contains(&format!("could ask with {guesses} values")), "{error}");
            }
            guesses
        })
    };
    let (sum, both) = (numbers(&[1, 1], 0), PsiLearners::Both);
    assert_eq!(guesses(both, PsiRole::Sender, PsiFunction::Common, 0), 512);
    assert_eq!(guesses(both, PsiRole::Sender, PsiFunction::Common, 1_000), 1_270);
    assert_eq!(guesses(both, PsiRole::Sender, PsiFunction::Count, 7), 7);
    assert_eq!(guesses(both, PsiRole::Sender, sum, 0), 1);
    assert_eq!(guesses(both, PsiRole::Receiver, PsiFunction::Common, 7), 7);
    assert_eq!(guesses(both, PsiRole::Receiver, PsiFunction::Count, 0), 1);
    let one = PsiLearners::Receiver;
    assert_eq!(guesses(one, PsiRole::Receiver, PsiFunction::Common, 7), 0);
    assert_eq!(guesses(one, PsiRole::Sender, PsiFunction::Common, 7), 512);
}

#[test]
fn numbers_that_are_too_large_are_refused_before_anything_is_sent() {
    let (set, values) = (items([1, 2]), [MAX_SUM, -1]);
    let refused = PsiSession::agree(
        std::io::empty(),
        std::io::sink(),
        &terms(PsiRole::Sender),
        &set,
        numbers(&values, 0),
    );
    assert!(matches!(refused.err(), Some(Error::TooLarge { most: MAX_SUM })));
}

/// A receiver that sends the same point twice would see from the number of equal masks which of its
/// items they belong to, and a sender would see from a refusal that its item is common.
#[test]
fn equal_points_show_nothing() {
    let receiver = (terms(PsiRole::Receiver), items([1, 1]));
    let sender = (terms(PsiRole::Sender), items([1, 2]));
    let [_, sender] = run_functions([PsiFunction::Count; 2], receiver, sender);
    assert!(sender.unwrap_err().to_string().contains("equal points"));
    for (own, count) in [([1, 3], 1), ([2, 3], 0)] {
        let receiver = (terms(PsiRole::Receiver), items(own));
        let sender = (terms(PsiRole::Sender), items([1, 1]));
        for outcome in run_functions([PsiFunction::Count; 2], receiver, sender) {
            assert_eq!(outcome.unwrap().count, Some(count));
        }
    }
}

#[test]
fn sets_of_several_pieces_and_unequal_sizes() {
    for (a, b) in [(20_000, 1), (1, 20_000), (30_000, 30_000)] {
        let (a, b): (Vec<u128>, Vec<u128>) = ((0..a).collect(), (0..b).map(|it| 3 * it).collect());
        let receiver = (terms(PsiRole::Receiver), items(a.clone()));
        let sender = (terms(PsiRole::Sender), items(b.clone()));
        let [receiver, sender] = run(receiver, sender).map(Result::unwrap);
        assert_eq!(receiver.common, Some(expected(&a, &b)));
        assert_eq!(sender.common, Some(expected(&b, &a)));
    }
}

#[test]
fn only_the_receiver_learns_if_that_is_agreed() {
    let terms = |role| PsiTerms { learners: PsiLearners::Receiver, ..terms(role) };
    let [receiver, sender] =
        run((terms(PsiRole::Receiver), items([1, 2])), (terms(PsiRole::Sender), items([2, 3])))
            .map(Result::unwrap);
    assert_eq!((receiver.common, sender.common), (Some(vec![1]), None));
}

#[test]
fn nothing_is_computed_on_different_terms() {
    let functions = [PsiFunction::Common, PsiFunction::Count, numbers(&[0], 0)];
    for (ours, others) in [(0, 1), (1, 0), (1, 2), (2, 0)] {
        let results = run_functions(
            [functions[ours], functions[others]],
            (terms(PsiRole::Receiver), items([1])),
            (terms(PsiRole::Sender), items([1])),
        );
        for result in results {
            assert!(result.unwrap_err().to_string().contains("(--count, --sum)"));
        }
    }
    let other = [
        PsiTerms { learners: PsiLearners::Receiver, ..terms(PsiRole::Sender) },
        PsiTerms { comparison: [8; 32], ..terms(PsiRole::Sender) },
        terms(PsiRole::Receiver),
    ];
    for (other, expected) in other.into_iter().zip(["--output-to", "--normalize", "receiver"]) {
        let results = run((terms(PsiRole::Receiver), items([1])), (other, items([1])));
        for result in results {
            let error = result.unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}

#[test]
fn more_items_than_are_shown_are_refused() {
    let terms = PsiTerms { hidden_size: Some(1), ..terms(PsiRole::Receiver) };
    let refused =
        find_common(std::io::empty(), std::io::sink(), &terms, &items([1, 2]), &mut |_| {});
    assert!(matches!(refused, Err(Error::TooMany { given: 2, most: 1 })));
    let terms = PsiTerms { hidden_size: Some(u32::MAX), ..terms };
    let refused = find_common(std::io::empty(), std::io::sink(), &terms, &items([1]), &mut |_| {});
    assert!(matches!(refused, Err(Error::TooMany { .. })));
}

/// What is sent, as it is predicted.
#[test]
fn traffic_is_as_predicted() {
    struct Counted<'a>(UnixStream, &'a mut u64);
    impl Write for Counted<'_> {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let count = self.0.write(bytes)?;
            *self.1 += count as u64;
            Ok(count)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            self.0.flush()
        }
    }
    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            let _ = self.0.shutdown(std::net::Shutdown::Write);
        }
    }
    let counting = |stream: UnixStream, role, count, function| {
        let terms = PsiTerms { learners: PsiLearners::Receiver, ..terms(role) };
        let mut sent = 0;
        let reader = stream.try_clone().unwrap();
        let writer = Counted(stream, &mut sent);
        let items = items(0..count);
        let session = PsiSession::agree(reader, writer, &terms, &items, function).unwrap();
        session.run(&mut |_| {}).unwrap();
        sent
    };
    let values = [1; 2_000];
    for function in [PsiFunction::Common, PsiFunction::Count, numbers(&values, 0)] {
        let (here, there) = UnixStream::pair().unwrap();
        thread::scope(|scope| {
            let other = scope.spawn(|| counting(there, PsiRole::Sender, 2_000, function));
            let receiver = counting(here, PsiRole::Receiver, 1_000, function);
            let sender = other.join().unwrap();
            let predicted = PsiTraffic::of_function(&function, 1_000, 2_000);
            assert_eq!(PsiTraffic { receiver, sender }, predicted, "{function:?}");
        });
    }
    assert_eq!(PsiTraffic::of(5, 6), PsiTraffic::of_function(&PsiFunction::Common, 5, 6));
}

/// Whatever the other party sends, there is an error, and no panic.
#[test]
fn changed_and_cut_messages_are_errors() {
    let mut random = fastrand::Rng::with_seed(3);
    for round in 0..100_u64 {
        let role = if round % 2 == 0 { PsiRole::Receiver } else { PsiRole::Sender };
        let (here, there) = UnixStream::pair().unwrap();
        let (inner, outer) = UnixStream::pair().unwrap();
        // With another size in its first message, each party waits for the other.
        let limit = Some(std::time::Duration::from_secs(1));
        there.set_read_timeout(limit).unwrap();
        inner.set_read_timeout(limit).unwrap();
        let honest = thread::spawn(move || {
            let reader = there.try_clone().unwrap();
            let set = items(0..50);
            find_common(reader, ShutDown(there), &terms(role), &set, &mut |_| {})
        });
        let attacked = thread::spawn(move || {
            let reader = inner.try_clone().unwrap();
            let set = items(25..75);
            find_common(reader, ShutDown(inner), &terms(role.other()), &set, &mut |_| {})
        });
        // One byte from the honest party to the other is changed, or the stream is cut there.
        let (mut from, mut to) = (here.try_clone().unwrap(), outer.try_clone().unwrap());
        let (mut back_from, mut back_to) = (outer, here);
        let back = thread::spawn(move || {
            let _ = std::io::copy(&mut back_from, &mut back_to);
            let _ = back_to.shutdown(std::net::Shutdown::Write);
        });
        let place = random.u64(..if role == PsiRole::Receiver { 60_000 } else { 3_000 });
        let cuts = random.bool();
        let _ = std::io::copy(&mut (&from).take(place), &mut to);
        let mut byte = [0];
        if !cuts && from.read_exact(&mut byte).is_ok() {
            let _ = to.write_all(&[byte[0] ^ random.u8(1..)]);
            let _ = std::io::copy(&mut from, &mut to);
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
        let _ = from.shutdown(std::net::Shutdown::Both);
        // A changed mask or row changes what is found, which only the connection's authentication
        // prevents.
        if let Ok(outcome) = attacked.join().unwrap() {
            assert!(!cuts && outcome.common.unwrap().len() <= 50, "{round}");
        }
        let _ = honest.join().unwrap();
        back.join().unwrap();
    }
}
