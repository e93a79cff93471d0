//! Every kernel against FIPS 197, and against each other.

use ::aes::Aes128 as Reference;
use ::aes::cipher::{BlockCipherEncrypt, KeyInit};
use proptest::prelude::*;

use crate::Block;
use crate::aes::{Aes128, AesKernel, encrypt_each_with};
use crate::hash::MiTccr;
use crate::lanes::{KernelJob, Lanes};
use crate::prg::Prg;

fn reference(key: Block, block: Block) -> Block {
    let mut bytes = block.to_bytes().into();
    Reference::new(&key.to_bytes().into()).encrypt_block(&mut bytes);
    Block::from_bytes(bytes.into())
}

fn random(seed: u128, count: usize) -> Vec<Block> {
    let mut blocks = vec![Block::ZERO; count];
    Prg::new(Block::from(seed)).fill(&mut blocks);
    blocks
}

fn bytes(blocks: &[Block]) -> Vec<u8> {
    Block::bytes_of(blocks).to_vec()
}

fn sigma(x: Block) -> Block {
    let (high, low) = (u128::from(x) >> 64, u128::from(x) & u128::from(u64::MAX));
    Block::from((high ^ low) << 64 | high)
}

#[test]
fn matches_fips_197() {
    // Appendix B, and appendix C.1.
    let vectors: [[u128; 3]; 2] = [
        [
            0x2b7e_1516_28ae_d2a6_abf7_1588_09cf_4f3c,
            0x3243_f6a8_885a_308d_3131_98a2_e037_0734,
            0x3925_841d_02dc_09fb_dc11_8597_196a_0b32,
        ],
        [
            0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f,
            0x0011_2233_4455_6677_8899_aabb_ccdd_eeff,
            0x69c4_e0d8_6a7b_0430_d8cd_b780_70b4_c55a,
        ],
    ];
    for [key, plain, cipher] in vectors {
        let [key, plain] = [key, plain].map(|value| Block::from_bytes(value.to_be_bytes()));
        for kernel in AesKernel::available() {
            let mut blocks = [plain; 70];
            Aes128::with_kernel(key, kernel).encrypt(&mut blocks);
            assert!(
                blocks.iter().all(|block| block.to_bytes() == cipher.to_be_bytes()),
                "{kernel}"
            );
            let mut blocks = [[plain; 2]; 37];
            encrypt_each_with(kernel, &[key; 37], &mut blocks);
            let all = blocks.as_flattened();
            assert!(all.iter().all(|block| block.to_bytes() == cipher.to_be_bytes()), "{kernel}");
        }
    }
}

#[test]
fn every_kernel_encrypts_any_number_of_blocks() {
    for count in (0..40).chain([63, 64, 65, 200]) {
        let (keys, plain) = (random(1, count), random(2, 3 * count));
        let key = Block::from(0x0123_4567_89AB_CDEF);
        let one: Vec<_> = plain.iter().map(|block| reference(key, *block)).collect();
        let each: Vec<_> =
            plain.iter().enumerate().map(|(j, block)| reference(keys[j / 3], *block)).collect();
        for kernel in AesKernel::available() {
            let mut blocks = plain.clone();
            Aes128::with_kernel(key, kernel).encrypt(&mut blocks);
            assert_eq!(bytes(&blocks), bytes(&one), "{kernel}, {count}");
            let mut blocks = plain.clone();
            encrypt_each_with(kernel, &keys, blocks.as_chunks_mut::<3>().0);
            assert_eq!(bytes(&blocks), bytes(&each), "{kernel}, {count}");
        }
    }
}

#[test]
fn the_hash_is_that_of_the_paper() {
    // The tweaks wrap around.
    let first = u64::MAX - 20;
    let key = Block::from(0xFEDC_BA98_7654_3210 << 50);
    for count in (0..40).chain([100]) {
        let plain = random(3, 2 * count);
        let tweak = |j: usize| Block::from(u128::from(first.wrapping_add(j as u64)));
        let rekeyed: Vec<_> = plain
            .iter()
            .enumerate()
            .map(|(j, x)| reference(key ^ tweak(j / 2), sigma(*x)) ^ sigma(*x))
            .collect();
        for kernel in AesKernel::available() {
            let mut blocks = plain.clone();
            MiTccr::with_kernel(key, kernel).hash(first, blocks.as_chunks_mut::<2>().0);
            assert_eq!(bytes(&blocks), bytes(&rekeyed), "{kernel}, {count}");
        }
    }
}

#[test]
fn a_stream_is_the_same_in_any_pieces_with_any_kernel() {
    let expected: Vec<_> = (0..3000).map(|j| reference(Block::from(9), Block::from(j))).collect();
    for kernel in AesKernel::available() {
        let mut prg = Prg::with_kernel(Block::from(9), kernel);
        let mut blocks = vec![Block::ZERO; 2900];
        prg.fill(&mut blocks);
        blocks.push(prg.block());
        let mut rest = vec![0; 16 * 98 + 5];
        prg.fill_bytes(&mut rest);
        assert_eq!(bytes(&blocks), bytes(&expected[..2901]));
        assert_eq!(rest, bytes(&expected[2901..])[..rest.len()]);
    }
}

/// Applies a function to both halves of each block.
#[allow(clippy::cast_possible_truncation)] // The low half is meant.
fn each_half(values: &[u128], f: fn(u64) -> u64) -> Vec<Block> {
    let halves =
        |value: &u128| (u128::from(f((value >> 64) as u64)) << 64) | u128::from(f(*value as u64));
    values.iter().map(|value| Block::from(halves(value))).collect()
}

/// Shifted down.
const WORD: u64 = 0x8123_4567_89AB_CDEF;
const SHIFTS: [u64; 4] = [0, 8, 3, 63];

/// Applies the operations of lanes to a few blocks.
struct Operations([Block; 8]);

impl KernelJob for Operations {
    type Output = [Vec<Block>; 12];

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) -> Self::Output {
        let mut out: Self::Output = Default::default();
        for at in (0..4).step_by(L::WIDTH) {
            let a = lanes.gather(&self.0, [at, at + 1, at + 2, at + 3]);
            let b = lanes.load(&Block::bytes_of(&self.0)[16 * (4 + at)..]);
            let mixed = lanes.interleave(a, b);
            let [first, second] = lanes.deinterleave(mixed);
            let results = [
                lanes.sigma(a),
                lanes.double(a),
                lanes.lsb_mask(a),
                lanes.xor(a, lanes.splat(self.0[0])),
                lanes.and(first, second),
                lanes.double_halves(a),
                lanes.shl(a, 5),
                lanes.shr(a, 63),
                lanes.high_halves(a, b),
                lanes.load_halves(&Block::bytes_of(&self.0)[8 * at..]),
            ];
            for (out, vector) in out.iter_mut().zip(results) {
                out.extend(&lanes.blocks(vector)[..L::WIDTH]);
            }
            for vector in mixed {
                let mut stored = [0; 64];
                lanes.store(vector, &mut stored);
                for block in &stored.as_chunks::<16>().0[..L::WIDTH] {
                    out[10].push(Block::from_bytes(*block));
                }
            }
            let mut stored = [0; 64];
            let mut shifts = SHIFTS;
            shifts.rotate_left(at);
            let word = lanes.shifted(WORD, shifts);
            lanes.store_low_halves(word, &mut stored);
            for half in &stored.as_chunks::<8>().0[..L::WIDTH] {
                out[11].push(Block::from(u128::from(u64::from_le_bytes(*half))));
            }
        }
        out
    }
}

proptest! {
    #[test]
    fn lanes_do_the_same_in_every_kernel(values: [u128; 8]) {
        let blocks = values.map(Block::from);
        let expected = [
            blocks[..4].iter().map(|x| sigma(*x)).collect::<Vec<_>>(),
            values[..4].iter().map(|x| Block::from((x << 1) ^ ((x >> 127) * 0x87))).collect(),
            blocks[..4].iter().map(|x| Block::mask(x.lsb())).collect(),
            blocks[..4].iter().map(|x| *x ^ blocks[0]).collect(),
            blocks[..4].iter().zip(&blocks[4..]).map(|(a, b)| *a & *b).collect(),
            each_half(&values[..4], |half| (half << 1) ^ ((half >> 63) * 0x1B)),
            each_half(&values[..4], |half| half << 5),
            each_half(&values[..4], |half| half >> 63),
            values[..4]
                .iter()
                .zip(&values[4..])
                .map(|(a, b)| Block::from((a >> 64) | (b >> 64 << 64)))
                .collect(),
            values[..2]
                .iter()
                .flat_map(|value| [value << 64 >> 64, value >> 64])
                .map(|half| Block::from((half << 64) | half))
                .collect(),
            blocks[..4].iter().zip(&blocks[4..]).flat_map(|(a, b)| [*a, *b]).collect(),
            SHIFTS.iter().map(|bits| Block::from(u128::from(WORD >> bits))).collect(),
        ];
        for kernel in AesKernel::available() {
            let found = kernel.run(Operations(blocks));
            for (found, expected) in found.iter().zip(&expected) {
                prop_assert_eq!(bytes(found), bytes(expected), "{}", kernel);
            }
        }
    }
}
