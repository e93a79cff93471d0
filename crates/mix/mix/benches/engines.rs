//! Measures an exchange with each engine: the time at both ends, one after the other on one core,
//! and the bytes.
//!
//! `cargo bench -p sunder-mix --bench engines` prints milliseconds of elapsed time, medians with
//! the least and the most, and the lengths of the messages. An argument is the number of exchanges,
//! by default 30.

use std::time::Instant;

use blocks::aes::AesKernel;
use sunder_mix::engine::{MemberEngine, MixEngineName, ProxyEngine, member, message_lens, proxy};
use sunder_mix::{Mailbox, MailboxShape};

/// The steps of an exchange, in order.
const STEPS: usize = 4;

fn main() {
    let exchanges = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(30);
    println!("AES: {:?}", AesKernel::best());
    println!(
        "engine, slots, reads, bytes: both ends and their set-up; opening, request, answer, slots \
         in ms; bytes of opening, request, answer"
    );
    let small = MailboxShape::new(100, 2, 1, 12, 256).expect("a shape");
    let large = MailboxShape::new(1_000, 10, 1, 12, 256).expect("a shape");
    for name in MixEngineName::ALL {
        measure(name, &small, exchanges);
    }
    for name in [MixEngineName::Ot, MixEngineName::Bdd] {
        measure(name, &large, exchanges);
    }
}

fn measure(name: MixEngineName, shape: &MailboxShape, exchanges: u64) {
    let begun = Instant::now();
    let (mut member, mut proxy) = set_up(name, shape);
    let begun = milliseconds(begun);

    let mut random = fastrand::Rng::with_seed(1);
    let mut mailbox = || {
        let bytes = std::iter::repeat_with(|| random.u8(..)).take(shape.mailbox_len()).collect();
        Mailbox::from_bytes(shape, bytes).expect("as long as a mailbox")
    };
    let (read, update) = (mailbox(), mailbox());
    let mut times: [Vec<f64>; STEPS] = Default::default();
    for _ in 0..exchanges {
        let reads: Vec<usize> = (0..shape.reads()).map(|_| random.usize(..shape.slots())).collect();
        let start = Instant::now();
        let opening = proxy.opening(&read).expect("an opening");
        times[0].push(milliseconds(start));
        let start = Instant::now();
        let request = member.request(&opening, &update, &reads).expect("a request");
        times[1].push(milliseconds(start));
        let start = Instant::now();
        let (_, answer) = proxy.answer(&request, &read).expect("an answer");
        times[2].push(milliseconds(start));
        let start = Instant::now();
        let slots = member.slots(&answer).expect("slots");
        times[3].push(milliseconds(start));
        assert!(reads.iter().zip(&slots).all(|(&slot, bytes)| read.slot(slot) == bytes));
    }
    let times = times.map(|mut times| {
        times.sort_unstable_by(f64::total_cmp);
        let (least, most) = (times[0], times[times.len() - 1]);
        format!("{:.2} ({least:.2} to {most:.2})", times[times.len() / 2])
    });
    let lens = message_lens(name, shape);
    println!(
        "{name:7} {:5} {:2} {:4}: {begun:.1}; {}; {} {} {}",
        shape.slots(),
        shape.reads(),
        shape.slot_len(),
        times.join(", "),
        lens.opening,
        lens.request,
        lens.answer
    );
}

fn set_up(
    name: MixEngineName,
    shape: &MailboxShape,
) -> (Box<dyn MemberEngine>, Box<dyn ProxyEngine>) {
    let mut member = member(name, shape, [1; 32]).expect("the member's end");
    let mut proxy = proxy(name, shape, [2; 32]).expect("the proxy's end");
    while !(member.is_ready() && proxy.is_ready()) {
        if let Some(message) = member.poll_set_up() {
            proxy.handle_set_up(&message).expect("a message of the set-up");
        }
        if let Some(message) = proxy.poll_set_up() {
            member.handle_set_up(&message).expect("a message of the set-up");
        }
    }
    (member, proxy)
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
