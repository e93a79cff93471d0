use super::*;
use crate::hello::HELLO_LEN;

const BINS: usize = 300;

fn run() -> PsiRunDigest {
    PsiRunDigest::new(&[1; HELLO_LEN], &[2; HELLO_LEN])
}

/// Both ends, with what transfers would have given them.
fn ends(seed: u64) -> (PrfReceiver, PrfSender, CodeWord) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut block = || Block::from(random.u128(..));
    let secret: CodeWord = std::array::from_fn(|_| block());
    let seeds: [[Block; 2]; CODE_BITS] = std::array::from_fn(|_| [block(), block()]);
    let chosen = std::array::from_fn(|at| seeds[at][usize::from(secret[at / 128].bit(at % 128))]);
    let receiver = PrfReceiver::new(run(), &seeds, block());
    (receiver, PrfSender::new(run(), secret, &chosen), secret)
}

fn items(count: usize) -> Vec<Option<Block>> {
    (0..count).map(|it| (it % 5 > 0).then(|| Block::from(1_000 + it as u128))).collect()
}

#[test]
fn both_compute_the_same_values_of_the_same_items_only() {
    let (mut receiver, mut sender, _) = ends(1);
    for (first, bins) in [(0, BINS), (BINS, PIECE_BINS), (BINS + PIECE_BINS, 1)] {
        let items = items(bins);
        let (values, message) = receiver.values(&items);
        assert_eq!(message.len(), piece_len(bins));
        sender.receive(bins, &message).unwrap();
        for (place, (item, value)) in items.iter().zip(&values).enumerate() {
            let Some(item) = item else {
                assert!(value.is_none());
                continue;
            };
            assert_eq!(Some(sender.value(first, place, *item)), *value);
            let other = *item ^ Block::from(1);
            assert_ne!(Some(sender.value(first, place, other)), *value);
        }
    }
    assert_eq!(message_len(PIECE_BINS + 1), piece_len(PIECE_BINS) + piece_len(1));
    assert_eq!(message_len(PIECE_BINS), piece_len(PIECE_BINS));
}

/// A receiver that changes one bit of a code word: the mask of that bin's item would tell it the
/// sender's bit of the secret there, and with all bits, the masks of any item. It gets the masks
/// only if this bit is 0, so for each bit that it learns it is refused with a probability of 1/2.
#[test]
fn a_receiver_that_uses_no_code_word_is_refused_unless_it_guesses_the_secret() {
    let mut refused = 0;
    for row in 0..CODE_BITS {
        let (mut receiver, mut sender, secret) = ends(row as u64);
        let (_, mut message) = receiver.values(&items(BINS));
        let bin = row % BINS;
        message[16 * width(BINS) * row + bin / 8] ^= 1 << (bin % 8);
        let deviates_visibly = secret[row / 128].bit(row % 128);
        // The challenge depends on the matrix, so the proof has to be made again.
        let honest = receiver_with_matrix(row as u64, &message);
        let result = sender.receive(BINS, &honest);
        assert_eq!(result.is_err(), deviates_visibly, "row {row}");
        refused += usize::from(deviates_visibly);
    }
    assert!((CODE_BITS * 2 / 5..CODE_BITS * 3 / 5).contains(&refused), "{refused}");
}

/// The message with the matrix of another one, and the proof that an honest receiver would make for
/// it.
fn receiver_with_matrix(seed: u64, message: &[u8]) -> Vec<u8> {
    let (mut receiver, _, _) = ends(seed);
    let width = width(BINS);
    let mut matrix = vec![Block::ZERO; CODE_BITS * width];
    let len = 16 * matrix.len();
    Block::bytes_of_mut(&mut matrix).copy_from_slice(&message[..len]);
    let mut of_bins = vec![Block::ZERO; ROWS * width];
    for (bin, item) in of_bins.iter_mut().zip(items(BINS)) {
        *bin = item.unwrap_or_default();
    }
    receiver.hiding.fill(&mut of_bins[BINS..]);
    let a = receiver.rows[0].advance(width);
    let proof = PieceChallenge::new(&receiver.run, 0, &matrix).prove(&of_bins, a);
    [&message[..len], Block::bytes_of(&proof)].concat()
}

/// Any other change of a message is refused too.
#[test]
fn changed_messages_are_refused() {
    let mut random = fastrand::Rng::with_seed(4);
    for _ in 0..200 {
        let (mut receiver, mut sender, _) = ends(7);
        let (_, mut message) = receiver.values(&items(BINS));
        let place = random.usize(..message.len());
        message[place] ^= random.u8(1..);
        assert!(sender.receive(BINS, &message).is_err(), "{place}");
    }
}

/// The hashes of items in a proof are uniform, even if all items are zero.
#[test]
fn the_hashes_of_items_are_uniform() {
    let mut ones = 0;
    let runs = 200;
    for seed in 0..runs {
        let (mut receiver, _, _) = ends(seed);
        let (_, message) = receiver.values(&vec![None; BINS]);
        let begin = 16 * CODE_BITS * width(BINS);
        let of_items = &message[begin..begin + 16 * 128];
        ones += of_items.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
    }
    let bits = runs * 16 * 128 * 8;
    let deviation = 4 * bits.isqrt() / 2;
    assert!(ones.abs_diff(bits / 2) < deviation, "{ones} of {bits}");
}
