//! Symbols that arrive out of order, are lost, or are too many.

use super::*;

const WINDOW: Duration = Duration::from_millis(20);
const NOTHING: [u64; 0] = [];

/// The released numbers in order: the packets are the numbers.
#[derive(Default)]
struct Left(Vec<u64>);

impl SymbolSink for Left {
    fn packets(&mut self, _: SymbolKind, packets: &[u8]) {
        self.0.push(u64::from_be_bytes(packets[..8].try_into().unwrap()));
    }

    fn control(&mut self, _: u64, _: &[u8]) {}

    fn control_share(&mut self, _: crate::protocol::recv::symbol_sink::ControlShare) {}
}

struct Scenario {
    reorder_buffer: ReorderBuffer,
    verified: SequenceWindow,
    left: Left,
    now: Duration,
}

impl Scenario {
    /// Two channels, both heard.
    fn new() -> Self {
        let mut reorder_buffer = ReorderBuffer::new(2, 1 << 10, 1 << 17);
        reorder_buffer.set_window(WINDOW);
        let verified = SequenceWindow::new(1 << 10);
        Self { reorder_buffer, verified, left: Left::default(), now: Duration::ZERO }
    }

    /// A symbol of `len` bytes arrives on a channel. Returns what is released.
    fn take(&mut self, channel: usize, number: u64, previous: u8, len: usize) -> Vec<u64> {
        self.take_delayed(channel, number, previous, len, Duration::ZERO)
    }

    /// The same, but it is delayed.
    fn take_delayed(
        &mut self,
        channel: usize,
        number: u64,
        previous: u8,
        len: usize,
        delay: Duration,
    ) -> Vec<u64> {
        self.verified.insert(number);
        let packets = [&number.to_be_bytes()[..], &vec![0; len.max(8) - 8]].concat();
        let symbol =
            VerifiedSymbol { number, previous, kind: SymbolKind::Packet, packets: &packets, delay };
        self.reorder_buffer.insert(symbol, self.now, &self.verified, &mut self.left);
        self.reorder_buffer.record_arrival(channel, number);
        self.reorder_buffer.handle_losses(0b11, &self.verified, &mut self.left);
        std::mem::take(&mut self.left.0)
    }

    /// Time passes. Returns what is released.
    fn wait(&mut self, time: Duration) -> Vec<u64> {
        self.now += time;
        self.reorder_buffer.handle_timeout(self.now, &self.verified, &mut self.left);
        std::mem::take(&mut self.left.0)
    }
}

#[test]
fn each_flow_stays_in_order_and_does_not_wait_for_others() {
    let mut scenario = Scenario::new();
    assert_eq!(scenario.take(0, 10, 0, 8), [10]);
    // 12 after 11 after 10, and a flow of 13 and 14.
    assert_eq!(scenario.take(0, 12, 1, 8), NOTHING);
    assert_eq!(scenario.take(0, 13, 0, 8), [13]);
    assert_eq!(scenario.take(0, 15, 3, 8), NOTHING);
    assert_eq!(scenario.take(0, 14, 1, 8), [14]);
    assert_eq!(scenario.take(1, 11, 1, 8), [11, 12, 15]);
    assert_eq!(scenario.reorder_buffer.poll_timeout(), None);
    let counts = scenario.reorder_buffer.counts();
    assert_eq!((counts.held, counts.in_order), (2, 2));
}

#[test]
fn lost_symbols_are_not_waited_for() {
    let mut scenario = Scenario::new();
    assert_eq!(scenario.take(0, 1, 0, 8), [1]);
    // 2 is lost. Channel 0 shows it soon, channel 1 with its third later one.
    for number in [3, 4, 5, 6] {
        assert_eq!(scenario.take(0, number, 1, 8), NOTHING);
    }
    assert_eq!(scenario.take(1, 7, 1, 8), NOTHING);
    assert_eq!(scenario.take(1, 8, 0, 8), [8]);
    assert_eq!(scenario.take(1, 9, 0, 8), [9, 3, 4, 5, 6, 7]);
    assert_eq!(scenario.reorder_buffer.counts().after_loss, 1);
    // It arrives late, and no symbol waits any more for those before it.
    assert_eq!(scenario.take(1, 2, 1, 8), [2]);
    assert_eq!(scenario.take(1, 10, 10, 8), [10]);
}

#[test]
fn nothing_waits_longer_than_the_window_and_then_the_flow_leaves_in_order() {
    let mut scenario = Scenario::new();
    assert_eq!(scenario.take(0, 5, 1, 8), NOTHING);
    scenario.now += WINDOW / 2;
    // 3 waits for 2, 4 for 3, and they came after 5.
    assert_eq!(scenario.take(0, 3, 1, 8), NOTHING);
    assert_eq!(scenario.take(0, 4, 1, 8), NOTHING);
    assert_eq!(scenario.reorder_buffer.poll_timeout(), Some(WINDOW));
    assert_eq!(scenario.wait(WINDOW / 4), NOTHING);
    assert_eq!(scenario.wait(WINDOW / 4), [3, 4, 5]);
    assert_eq!(scenario.reorder_buffer.poll_timeout(), None);
    let counts = scenario.reorder_buffer.counts();
    assert_eq!((counts.after_time, counts.in_order), (1, 2));
}

#[test]
fn a_flow_with_a_distant_predecessor_waits_for_all_numbers_before() {
    let mut scenario = Scenario::new();
    for number in (0..300).filter(|number| ![5, 40].contains(number)) {
        assert_eq!(scenario.take(0, number, 0, 8), [number]);
    }
    // The last but 255 is 45, so that 5 and 40 are waited for.
    assert_eq!(scenario.take(0, 300, FAR_BACK, 8), NOTHING);
    assert_eq!(scenario.take(1, 40, 0, 8), [40]);
    assert_eq!(scenario.take(1, 5, 0, 8), [5, 300]);
    assert_eq!(scenario.take(0, 301, FAR_BACK, 8), [301]);
    // One that was waited for in vain is not waited for again.
    assert_eq!(scenario.take(0, 700, FAR_BACK, 8), NOTHING);
    assert_eq!(scenario.wait(WINDOW), [700]);
    assert_eq!(scenario.take(0, 701, FAR_BACK, 8).len(), 0, "446 is one more");
    assert_eq!(scenario.wait(WINDOW), [701]);
    assert_eq!(scenario.take(0, 600, FAR_BACK, 8), [600]);
}

#[test]
fn invented_numbers_end_waiting_only_if_no_other_channel_is_active() {
    let mut scenario = Scenario::new();
    for number in 1 << 40..(1 << 40) + 3 {
        scenario.reorder_buffer.record_arrival(0, number);
    }
    scenario.reorder_buffer.handle_losses(0b01, &scenario.verified, &mut scenario.left);
    assert_eq!(scenario.take(0, 300, FAR_BACK, 8), NOTHING);
    assert_eq!(scenario.take(0, 302, 1, 8), NOTHING);
    // There are more to look at than in one go.
    for _ in 0..2 {
        scenario.reorder_buffer.handle_losses(0b01, &scenario.verified, &mut scenario.left);
    }
    assert_eq!(scenario.left.0, [300, 302]);
    scenario.left.0.clear();
    assert_eq!(scenario.take(1, 304, 1, 8), NOTHING);
    assert_eq!(scenario.take(1, 600, FAR_BACK, 8), NOTHING);
}

#[test]
fn jumping_numbers_are_processed_in_limited_steps() {
    let mut scenario = Scenario::new();
    assert_eq!(scenario.take(0, 1, 0, 8), [1]);
    assert_eq!(scenario.take(0, 700, 1, 8), NOTHING);
    assert_eq!(scenario.take(0, 800, FAR_BACK, 8), NOTHING);
    for (channel, number) in [(0, 801), (0, 802), (1, 803), (1, 804)] {
        assert_eq!(scenario.take(channel, number, 0, 8), [number]);
    }
    // Now all below 800 are lost, and those that wait for 699 and for all up to 545 will hear it.
    for (number, step) in (805..).zip(1..3) {
        assert_eq!(scenario.take(1, number, 0, 8), [number]);
        assert_eq!(scenario.reorder_buffer.lost_below, step * MAX_STEPS);
        assert_eq!(scenario.reorder_buffer.frontier, step * MAX_STEPS);
    }
    assert_eq!(scenario.take(1, 807, 0, 8), [807, 700, 800]);
}

#[test]
fn symbols_are_released_early_to_make_room() {
    let mut scenario = Scenario::new();
    // 128 KiB: four of 32 KiB.
    for number in 1..5 {
        assert_eq!(scenario.take(0, 10 * number, 1, 1 << 15), NOTHING);
    }
    assert_eq!(scenario.take(0, 50, 1, 1 << 15), [10]);
    assert_eq!(scenario.take(0, 60, 1, 1), [20]);
    assert_eq!(scenario.reorder_buffer.counts().released_early, 2);
    assert_eq!(scenario.wait(WINDOW), [30, 40, 50, 60]);
    // And by their number.
    let most = scenario.reorder_buffer.queue.capacity() as u64;
    let left: Vec<u64> = (0..2 * most).flat_map(|i| scenario.take(0, 100 + 2 * i, 1, 8)).collect();
    assert_eq!(left.len() as u64, most);
    assert_eq!(
        (scenario.reorder_buffer.queue.capacity() as u64, scenario.reorder_buffer.waiting as u64),
        (most, most)
    );
}

#[test]
fn a_delayed_symbol_is_released_at_its_time_and_those_of_its_flow_after_it() {
    let mut scenario = Scenario::new();
    let ms = Duration::from_millis;
    assert_eq!(scenario.take_delayed(0, 1, 0, 8, ms(10)), NOTHING);
    scenario.now += ms(4);
    // 2 follows 1 with a delay of its own, 3 without; 4 is of another flow.
    assert_eq!(scenario.take_delayed(0, 2, 1, 8, ms(10)), NOTHING);
    assert_eq!(scenario.take(1, 3, 1, 8), NOTHING);
    assert_eq!(scenario.take(1, 4, 0, 8), [4]);
    assert_eq!(scenario.reorder_buffer.poll_timeout(), Some(ms(10)));
    assert_eq!(scenario.wait(ms(5)), NOTHING);
    assert_eq!(scenario.wait(ms(1)), [1]);
    assert_eq!(scenario.reorder_buffer.poll_timeout(), Some(ms(14)));
    assert_eq!(scenario.wait(ms(4)), [2, 3]);
    assert_eq!(scenario.reorder_buffer.poll_timeout(), None);
    let counts = scenario.reorder_buffer.counts();
    assert_eq!((counts.held, counts.delayed, counts.in_order), (3, 2, 1));
}

#[test]
fn a_delayed_symbol_waits_for_its_predecessor_too() {
    let mut scenario = Scenario::new();
    let ms = Duration::from_millis;
    assert_eq!(scenario.take_delayed(0, 2, 1, 8, ms(5)), NOTHING);
    assert_eq!(scenario.take_delayed(0, 300, FAR_BACK, 8, ms(5)), NOTHING);
    assert_eq!(scenario.wait(ms(5)), NOTHING);
    assert_eq!(scenario.take(1, 1, 0, 8), [1, 2]);
    // 300 waits for all up to 45, of which most never come.
    assert_eq!(scenario.wait(ms(15)), [300]);
    // The predecessor of 402 is there before its delay ends, and that of 405 is lost.
    assert_eq!(scenario.take_delayed(0, 402, 1, 8, ms(5)), NOTHING);
    assert_eq!(scenario.take(1, 401, 0, 8), [401]);
    assert_eq!(scenario.take_delayed(0, 405, 1, 8, ms(8)), NOTHING);
    for (channel, number) in [(0, 406), (0, 407), (0, 408), (1, 409), (1, 410), (1, 411)] {
        assert_eq!(scenario.take(channel, number, 0, 8), [number]);
    }
    assert_eq!(scenario.wait(ms(5)), [402]);
    assert_eq!(scenario.wait(ms(3)), [405]);
}

#[test]
fn no_delay_is_longer_than_the_window() {
    let mut scenario = Scenario::new();
    assert_eq!(scenario.take_delayed(0, 1, 0, 8, 10 * WINDOW), NOTHING);
    // It follows 1, and its own delay would end later.
    assert_eq!(scenario.take_delayed(0, 2, 1, 8, WINDOW), NOTHING);
    assert_eq!(scenario.take_delayed(0, 3, 0, 8, Duration::from_micros(900)), [3]);
    assert_eq!(scenario.wait(WINDOW), [1, 2]);
    assert_eq!(scenario.take_delayed(0, 4, 0, 8, WINDOW), NOTHING);
    scenario.reorder_buffer.set_window(Duration::ZERO);
    assert_eq!(scenario.wait(Duration::ZERO), [4]);
    assert_eq!(scenario.reorder_buffer.poll_timeout(), None);
}

#[test]
fn without_a_window_nothing_waits() {
    let mut scenario = Scenario::new();
    assert_eq!(scenario.take(0, 2, 1, 8), NOTHING);
    scenario.reorder_buffer.set_window(Duration::ZERO);
    assert_eq!(scenario.reorder_buffer.poll_timeout(), Some(Duration::ZERO));
    assert_eq!(scenario.take(0, 7, 1, 8), [2, 7]);
    assert_eq!(scenario.reorder_buffer.poll_timeout(), None);
}
