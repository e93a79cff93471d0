//! The throughput of making repair packets and of recovering lost packets: GB/s of protected
//! packets, on one core, as the median of many runs.
//!
//! `cargo bench -p sunder-burst --bench repair`

use std::hint::black_box;
use std::time::{Duration, Instant};

use sunder_burst::repair::{MAX_PACKETS, RepairDecoder, RepairEncoder};

const LEN: usize = 1408;
const RUNS: usize = 301;

fn main() {
    println!("GB/s of packets of {LEN} bytes, {MAX_PACKETS} in a generation");
    println!("{:>15} {:>8} {:>8}", "repair packets", "made", "used");
    let packets: Vec<Vec<u8>> = (0..MAX_PACKETS)
        .map(|i| (0..LEN).map(|j| (i * 31 + j * 7).to_le_bytes()[0]).collect())
        .collect();
    for m in [1, 2, 4, 8, 16, 64] {
        let mut repairs = Vec::new();
        let made = median(|| {
            let mut encoder = RepairEncoder::new(MAX_PACKETS, m);
            for (index, packet) in packets.iter().enumerate() {
                encoder.add(index, packet);
            }
            repairs = black_box(encoder.packets());
        });
        // The first m packets are lost.
        let used = median(|| {
            let mut decoder = RepairDecoder::new(MAX_PACKETS, m, LEN);
            for (index, packet) in packets.iter().enumerate().skip(m) {
                decoder.add_source(index, packet);
            }
            for (index, packet) in repairs.iter().enumerate() {
                decoder.add_repair(index, packet);
            }
            assert_eq!(black_box(decoder.recovered()).len(), m);
        });
        println!("{m:>15} {:>8.2} {:>8.2}", rate(made), rate(used));
    }
}

fn median(mut run: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[RUNS / 2]
}

#[allow(clippy::cast_precision_loss, reason = "a number of bytes")]
fn rate(time: Duration) -> f64 {
    (MAX_PACKETS * LEN) as f64 / time.as_secs_f64() / 1e9
}
