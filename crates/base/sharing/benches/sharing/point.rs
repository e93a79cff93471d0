//! A sharing at one length, with its buffers and all measured tasks.

use random::RandomGenerator;
use sunder_sharing::kernels::FieldKernel;
use sunder_sharing::{Joiner, SharingParameters, Splitter};

use crate::isal::{Isal, Matrix};

/// The measured tasks. Kernels are indices in [`Kernel::available`].
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Task {
    /// The arithmetic of a split.
    Split(usize),
    /// A split with the seeded generator and the best kernel.
    Seeded,
    /// The arithmetic of a split that computes all shares.
    IsalTextbook,
    /// The arithmetic of a split that computes as many shares as our split does.
    IsalSystematic,
    /// A join.
    Join(usize),
    /// The arithmetic of a join.
    IsalJoin,
}

pub(crate) struct Point<'a> {
    sharing: SharingParameters,
    splitters: Vec<Splitter>,
    joiners: Vec<Joiner>,
    generator: RandomGenerator,
    isal: Option<&'a Isal>,
    secret: &'static mut [u8],
    shares: Vec<&'static mut [u8]>,
    /// The coefficients of the textbook split, which stores them apart from the shares.
    coefficients: Vec<&'static mut [u8]>,
}

impl<'a> Point<'a> {
    pub(crate) fn new(sharing: SharingParameters, len: usize, isal: Option<&'a Isal>) -> Self {
        let kernels = FieldKernel::available();
        let (k, m) = (usize::from(sharing.threshold()), usize::from(sharing.shares()));
        let mut generator = RandomGenerator::seeded().expect("random bytes");
        let mut buffers = buffers(m + k, len);
        for buffer in &mut buffers {
            generator.fill(buffer).expect("random bytes");
        }
        let mut buffers = buffers.into_iter();
        Self {
            sharing,
            splitters: kernels.iter().map(|&k| Splitter::new(sharing).with_kernel(k)).collect(),
            joiners: kernels.iter().map(|&k| Joiner::new(sharing).with_kernel(k)).collect(),
            generator,
            isal,
            secret: buffers.next().expect("the first"),
            shares: buffers.by_ref().take(m).collect(),
            coefficients: buffers.collect(),
        }
    }

    pub(crate) fn split_tasks(&self) -> Vec<Task> {
        let ours = (0..self.splitters.len()).map(Task::Split).chain([Task::Seeded]);
        let theirs = self.isal.map(|_| [Task::IsalTextbook, Task::IsalSystematic]);
        ours.chain(theirs.into_iter().flatten()).collect()
    }

    pub(crate) fn join_tasks(&self) -> Vec<Task> {
        let ours = (0..self.joiners.len()).map(Task::Join);
        ours.chain(self.isal.map(|_| Task::IsalJoin)).collect()
    }

    pub(crate) fn run(&mut self, task: Task, times: usize) {
        match task {
            Task::Split(kernel) => self.split(kernel, times),
            Task::Seeded => self.split_seeded(times),
            Task::IsalTextbook => self.isal_textbook(times),
            Task::IsalSystematic => self.isal_systematic(times),
            Task::Join(kernel) => self.join(kernel, times),
            Task::IsalJoin => self.isal_join(times),
        }
    }

    fn split(&mut self, kernel: usize, times: usize) {
        let (splitter, shares) = (&self.splitters[kernel], &mut self.shares[..]);
        for _ in 0..times {
            let done = splitter.danger_split_given_random_shares(self.secret, shares);
            done.expect("valid buffers");
        }
    }

    fn split_seeded(&mut self, times: usize) {
        for _ in 0..times {
            self.splitters[0]
                .split(self.secret, &mut self.shares, &mut self.generator)
                .expect("valid buffers");
        }
    }

    fn isal_textbook(&mut self, times: usize) {
        let Some(isal) = self.isal else { return };
        let mut inputs: Vec<&[u8]> = vec![self.secret];
        inputs.extend(self.coefficients.iter().map(|buffer| &**buffer));
        let matrix = isal.matrix(inputs.len(), self.shares.len());
        isal.apply(&matrix, &inputs, &mut self.shares, times);
    }

    fn isal_systematic(&mut self, times: usize) {
        let Some(isal) = self.isal else { return };
        let (random, computed) = self.shares.split_at_mut(self.coefficients.len());
        let mut inputs: Vec<&[u8]> = vec![self.secret];
        inputs.extend(random.iter().map(|buffer| &**buffer));
        let matrix: Matrix = isal.matrix(inputs.len(), computed.len());
        isal.apply(&matrix, &inputs, computed, times);
    }

    /// Joins the last `k` shares, which have no special weights.
    fn join(&mut self, kernel: usize, times: usize) {
        let first = self.shares.len() - usize::from(self.sharing.threshold());
        let coordinates: Vec<u8> = (1..=self.sharing.shares()).skip(first).collect();
        let shares: Vec<&[u8]> = self.shares[first..].iter().map(|share| &**share).collect();
        let joiner = &mut self.joiners[kernel];
        for _ in 0..times {
            joiner.join(&coordinates, &shares, self.secret).expect("valid shares");
        }
    }

    fn isal_join(&mut self, times: usize) {
        let Some(isal) = self.isal else { return };
        let first = self.shares.len() - usize::from(self.sharing.threshold());
        let shares: Vec<&[u8]> = self.shares[first..].iter().map(|share| &**share).collect();
        let matrix = isal.matrix(shares.len(), 1);
        isal.apply(&matrix, &shares, &mut [self.secret], times);
    }
}

/// Buffers that begin at multiples of 64 bytes, with some cache lines between them, so that they do
/// not all map to the same cache sets. They are never freed, as the program is short.
fn buffers(count: usize, len: usize) -> Vec<&'static mut [u8]> {
    let stride = len.next_multiple_of(64) + 3 * 64;
    let arena = vec![0u8; count * stride + 64].leak();
    let skip = arena.as_ptr().align_offset(64);
    arena[skip..].chunks_exact_mut(stride).take(count).map(|chunk| &mut chunk[..len]).collect()
}
