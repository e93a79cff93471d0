//! Headers of share files, and changed share files of a real split.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use random::RandomGenerator;
use sharing::file::{
    HEADER_LEN, SEGMENT_LEN, ShareFileDecoder, ShareFileEncoder, ShareFileHeader, select_split,
};
use sharing::paper::{PaperShareCollector, has_label};
use sharing::{SharingParameters, tamper};

#[derive(Arbitrary, Debug)]
struct Input {
    headers: Vec<[u8; HEADER_LEN]>,
    k: u8,
    extra: u8,
    secret: Vec<u8>,
    /// The share, the position and the difference.
    changes: Vec<(u8, u16, u8)>,
    /// The shares that join gets, one bit each.
    given: u8,
    /// Lines of text, typed or scanned.
    lines: Vec<String>,
}

fuzz_target!(|input: Input| {
    let parsed: Vec<ShareFileHeader> =
        input.headers.iter().filter_map(|bytes| ShareFileHeader::parse(bytes).ok()).collect();
    for header in &parsed {
        assert_eq!(ShareFileHeader::parse(&header.encode()), Ok(*header));
    }
    let _ = select_split(&parsed);
    split_change_and_join(&input);
    read_lines(&input);
});

fn read_lines(input: &Input) {
    let mut collector = PaperShareCollector::default();
    for line in &input.lines {
        let _ = (has_label(line), collector.add(line));
    }
    for (_, share) in collector.finish() {
        if let Ok(share) = share {
            ShareFileHeader::parse(&share).unwrap();
        }
    }
}

fn split_change_and_join(input: &Input) {
    let k = input.k % 5 + 1;
    let m = k + input.extra % 4;
    let secret = &input.secret[..input.secret.len().min(SEGMENT_LEN - 1)];

    let mut generator = RandomGenerator::seeded().unwrap();
    let mut encoder =
        ShareFileEncoder::new(SharingParameters::shamir(k, m).unwrap(), &mut generator).unwrap();
    let mut segment = [&[0; tamper::OVERHEAD], secret].concat();
    let mut shares = vec![vec![0; segment.len()]; usize::from(m)];
    let mut views: Vec<&mut [u8]> = shares.iter_mut().map(Vec::as_mut_slice).collect();
    encoder.encode(&mut segment, &mut views, &mut generator).unwrap();
    let split = encoder.finish().unwrap();

    // Fewer than k shares are changed, which is the condition of the promise.
    let mut changed = [false; 256];
    for &(share, place, difference) in &input.changes {
        let share = share % (k - 1).max(1);
        let place = usize::from(place) % segment.len();
        if k > 1 && difference != 0 {
            shares[usize::from(share)][place] ^= difference;
            changed[usize::from(share)] = true;
        }
    }
    let given: Vec<u8> = (1..=m).filter(|x| input.given >> (x - 1) & 1 == 1).collect();
    let views: Vec<&[u8]> = given.iter().map(|x| &shares[usize::from(x - 1)][..]).collect();
    let mut joined = vec![0; segment.len()];
    if ShareFileDecoder::new(split).decode(&given, &views, &mut joined).is_ok() {
        assert_eq!(&joined[tamper::OVERHEAD..], secret);
    } else {
        let untouched = given.iter().filter(|&&x| !changed[usize::from(x - 1)]).count();
        assert!(untouched < usize::from(k), "{untouched} right shares of {k} were not enough");
    }
}
