//! AES-128 (FIPS 197) on many blocks at a time, by the widest instructions of the processor.
//!
//! Combined operations that are faster than separate calls are generic over [`crate::lanes::Lanes`]
//! and run by [`AesKernel::run`].
#![allow(unsafe_code)]

use std::fmt;
use std::sync::OnceLock;

use zeroize::Zeroizing;

use crate::block::Block;
#[cfg(target_arch = "x86_64")]
use crate::lanes::{Aesni, Vaes256, Vaes512, X86Lanes};
use crate::lanes::{KEY_VECTORS, KernelJob, Lanes, MAX_WIDTH, PortableLanes};

/// The environment variable that names the kernel to use instead of the fastest: `vaes512`,
/// `vaes256`, `aesni` or `portable`. One that this processor cannot run is ignored.
pub const KERNEL_VARIABLE: &str = "SUNDER_AES";

/// An implementation for one instruction set. All kernels compute the same results, in time that
/// depends only on the number of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AesKernel {
    /// VAES with AVX-512: four blocks per vector.
    #[cfg(target_arch = "x86_64")]
    Vaes512,
    /// VAES with AVX2: two blocks per vector.
    #[cfg(target_arch = "x86_64")]
    Vaes256,
    /// AES-NI with AVX: one block per vector.
    #[cfg(target_arch = "x86_64")]
    Aesni,
    /// The `aes` crate.
    Portable,
}

impl AesKernel {
    /// Returns the kernels that this processor can run, fastest first. Never empty.
    pub fn available() -> Vec<Self> {
        #[cfg(target_arch = "x86_64")]
        let special = {
            use std::arch::is_x86_feature_detected as has;
            // AVX: its instructions have three operands, which saves moves between registers.
            let aesni = has!("aes") && has!("avx");
            let vaes = aesni && has!("vaes") && has!("avx2");
            let wide = vaes && has!("avx512f") && has!("avx512bw") && has!("avx512vl");
            [(wide, Self::Vaes512), (vaes, Self::Vaes256), (aesni, Self::Aesni)]
        };
        #[cfg(not(target_arch = "x86_64"))]
        let special: [(bool, Self); 0] = [];
        let detected = special.into_iter().filter_map(|(has, kernel)| has.then_some(kernel));
        detected.chain([Self::Portable]).collect()
    }

    /// Returns the fastest kernel, or the one that [`KERNEL_VARIABLE`] names. Decided once.
    pub fn best() -> Self {
        static BEST: OnceLock<AesKernel> = OnceLock::new();
        *BEST.get_or_init(|| {
            let named = std::env::var(KERNEL_VARIABLE).unwrap_or_default();
            let available = Self::available();
            let chosen = available.iter().find(|kernel| kernel.name() == named);
            *chosen.unwrap_or(&available[0])
        })
    }

    /// Returns the name by which [`KERNEL_VARIABLE`] chooses the kernel.
    pub const fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Vaes512 => "vaes512",
            #[cfg(target_arch = "x86_64")]
            Self::Vaes256 => "vaes256",
            #[cfg(target_arch = "x86_64")]
            Self::Aesni => "aesni",
            Self::Portable => "portable",
        }
    }

    /// Runs a job with this kernel's vectors, or with the portable ones if the processor does not
    /// support the kernel.
    pub fn run<J: KernelJob>(self, job: J) -> J::Output {
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "aes,avx")]
            unsafe fn aesni<J: KernelJob>(job: J) -> J::Output {
                // SAFETY: the caller's processor has the instructions.
                job.run(X86Lanes(unsafe { Aesni::new() }))
            }

            #[target_feature(enable = "aes,vaes,avx2")]
            unsafe fn vaes256<J: KernelJob>(job: J) -> J::Output {
                // SAFETY: the caller's processor has the instructions.
                job.run(X86Lanes(unsafe { Vaes256::new() }))
            }

            #[target_feature(enable = "aes,vaes,avx512f,avx512bw,avx512vl")]
            unsafe fn vaes512<J: KernelJob>(job: J) -> J::Output {
                // SAFETY: the caller's processor has the instructions.
                job.run(X86Lanes(unsafe { Vaes512::new() }))
            }

            if self != Self::Portable && available_kernels().contains(&self) {
                // SAFETY: the processor can run the kernel.
                return unsafe {
                    match self {
                        Self::Vaes512 => vaes512(job),
                        Self::Vaes256 => vaes256(job),
                        Self::Aesni | Self::Portable => aesni(job),
                    }
                };
            }
        }
        job.run(PortableLanes)
    }
}

/// [`AesKernel::available`], detected once.
#[cfg(target_arch = "x86_64")]
fn available_kernels() -> &'static [AesKernel] {
    static RUNNABLE: OnceLock<Vec<AesKernel>> = OnceLock::new();
    RUNNABLE.get_or_init(AesKernel::available)
}

impl fmt::Display for AesKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A key under which many blocks are encrypted. Wiped on drop.
pub struct Aes128 {
    key: Zeroizing<Block>,
    kernel: AesKernel,
}

impl Aes128 {
    /// A cipher with this key, for the best kernel.
    pub fn new(key: Block) -> Self {
        Self::with_kernel(key, AesKernel::best())
    }

    /// A cipher with this key, for the given kernel.
    pub fn with_kernel(key: Block, kernel: AesKernel) -> Self {
        Self { key: Zeroizing::new(key), kernel }
    }

    /// Encrypts blocks in place. The key is scheduled for each call, which takes as long as some
    /// twenty blocks.
    pub fn encrypt(&self, blocks: &mut [Block]) {
        self.kernel.run(AesEncryptJob { key: *self.key, blocks });
    }

    /// Overwrites `blocks` with the encryptions of the integers from `first`.
    pub(crate) fn encrypt_counter(&self, first: u64, blocks: &mut [Block]) {
        self.kernel.run(AesCounterJob { key: *self.key, first, blocks });
    }
}

/// Encrypts `blocks[j]` under `keys[j]`, in place.
///
/// # Panics
/// When there is not one key for each array of blocks.
pub fn encrypt_each<const N: usize>(keys: &[Block], blocks: &mut [[Block; N]]) {
    encrypt_each_with(AesKernel::best(), keys, blocks);
}

/// Like [`encrypt_each`], with the given kernel.
///
/// # Panics
/// When there is not one key for each array of blocks.
pub fn encrypt_each_with<const N: usize>(
    kernel: AesKernel,
    keys: &[Block],
    blocks: &mut [[Block; N]],
) {
    assert!(keys.len() == blocks.len(), "one key for each array of blocks");
    kernel.run(AesMultiKeyJob { keys, blocks });
}

struct AesEncryptJob<'a> {
    key: Block,
    blocks: &'a mut [Block],
}

impl KernelJob for AesEncryptJob<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        const UNROLLED: usize = 8;
        let key = lanes.schedule(self.key);
        let bytes = Block::bytes_of_mut(self.blocks);
        let mut wide = bytes.chunks_exact_mut(16 * L::WIDTH * UNROLLED);
        for chunk in &mut wide {
            let mut vectors = [lanes.load(chunk); UNROLLED];
            for (i, vector) in vectors.iter_mut().enumerate() {
                *vector = lanes.load(&chunk[16 * L::WIDTH * i..]);
            }
            vectors = lanes.encrypt(&key, vectors);
            for (i, vector) in vectors.into_iter().enumerate() {
                lanes.store(vector, &mut chunk[16 * L::WIDTH * i..]);
            }
        }
        let mut vectors = wide.into_remainder().chunks_exact_mut(16 * L::WIDTH);
        for chunk in &mut vectors {
            let [vector] = lanes.encrypt(&key, [lanes.load(chunk)]);
            lanes.store(vector, chunk);
        }
        let rest = vectors.into_remainder();
        if !rest.is_empty() {
            let mut last = Zeroizing::new([0; 64]);
            last[..rest.len()].copy_from_slice(rest);
            let [vector] = lanes.encrypt(&key, [lanes.load(&*last)]);
            lanes.store(vector, &mut *last);
            rest.copy_from_slice(&last[..rest.len()]);
        }
    }
}

struct AesCounterJob<'a> {
    key: Block,
    first: u64,
    blocks: &'a mut [Block],
}

impl KernelJob for AesCounterJob<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        const UNROLLED: usize = 8;
        let key = lanes.schedule(self.key);
        let mut first = self.first;
        let bytes = Block::bytes_of_mut(self.blocks);
        let mut wide = bytes.chunks_exact_mut(16 * L::WIDTH * UNROLLED);
        for chunk in &mut wide {
            let mut vectors = [lanes.splat(Block::ZERO); UNROLLED];
            for vector in &mut vectors {
                *vector = lanes.counters(first, [0, 1, 2, 3]);
                first = first.wrapping_add(L::WIDTH as u64);
            }
            vectors = lanes.encrypt(&key, vectors);
            for (i, vector) in vectors.into_iter().enumerate() {
                lanes.store(vector, &mut chunk[16 * L::WIDTH * i..]);
            }
        }
        for chunk in wide.into_remainder().chunks_mut(16 * L::WIDTH) {
            let [vector] = lanes.encrypt(&key, [lanes.counters(first, [0, 1, 2, 3])]);
            first = first.wrapping_add(L::WIDTH as u64);
            let mut last = Zeroizing::new([0; 16 * MAX_WIDTH]);
            lanes.store(vector, &mut *last);
            chunk.copy_from_slice(&last[..chunk.len()]);
        }
    }
}

struct AesMultiKeyJob<'a, const N: usize> {
    keys: &'a [Block],
    blocks: &'a mut [[Block; N]],
}

impl<const N: usize> KernelJob for AesMultiKeyJob<'_, N> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let group = KEY_VECTORS * L::WIDTH;
        for (keys, blocks) in self.keys.chunks(group).zip(self.blocks.chunks_mut(group)) {
            let places = places::<L>(keys.len());
            let mut key_vectors = [lanes.splat(Block::ZERO); KEY_VECTORS];
            let mut vectors = [[lanes.splat(Block::ZERO); N]; KEY_VECTORS];
            for k in 0..KEY_VECTORS {
                key_vectors[k] = lanes.gather(keys, places[k]);
                vectors[k] = gather(lanes, blocks, places[k]);
            }
            let encrypted = lanes.encrypt_keyed(key_vectors, vectors);
            scatter(lanes, encrypted, blocks);
        }
    }
}

/// The places of the lanes of a group among `count`; a short group is filled up with its last.
#[inline(always)]
pub(crate) fn places<L: Lanes>(count: usize) -> [[usize; MAX_WIDTH]; KEY_VECTORS] {
    let mut places = [[0; MAX_WIDTH]; KEY_VECTORS];
    for (k, places) in places.iter_mut().enumerate() {
        for (l, place) in places.iter_mut().enumerate() {
            *place = (k * L::WIDTH + l).min(count - 1);
        }
    }
    places
}

/// Reads block `n` of arrays at the places, for each `n`.
#[inline(always)]
pub(crate) fn gather<L: Lanes, const N: usize>(
    lanes: L,
    arrays: &[[Block; N]],
    places: [usize; MAX_WIDTH],
) -> [L::Vector; N] {
    let mut vectors = [lanes.splat(Block::ZERO); N];
    for (n, vector) in vectors.iter_mut().enumerate() {
        let mut flat = [0; MAX_WIDTH];
        for (flat, place) in flat.iter_mut().zip(places) {
            *flat = N * place + n;
        }
        *vector = lanes.gather(arrays.as_flattened(), flat);
    }
    vectors
}

/// Writes the lanes of a group to as many arrays as there are.
#[inline(always)]
pub(crate) fn scatter<L: Lanes, const N: usize>(
    lanes: L,
    vectors: [[L::Vector; N]; KEY_VECTORS],
    arrays: &mut [[Block; N]],
) {
    for (k, vectors) in vectors.into_iter().enumerate() {
        for (n, vector) in vectors.into_iter().enumerate() {
            let blocks = lanes.blocks(vector);
            for (l, block) in blocks.into_iter().take(L::WIDTH).enumerate() {
                if let Some(out) = arrays.get_mut(k * L::WIDTH + l) {
                    out[n] = block;
                }
            }
        }
    }
}
