//! Measures several tasks in turns, so that disturbances affect all of them alike.

use std::time::{Duration, Instant};

/// How long and how often each task is measured.
#[derive(Clone, Copy)]
pub(crate) struct Stopwatch {
    /// The number of measurements from which the median is taken.
    pub(crate) rounds: usize,
    /// The approximate duration of a measurement.
    pub(crate) slice: Duration,
}

impl Stopwatch {
    /// Returns the median speed of each task in GB/s. When called, a task does `bytes` of work
    /// `times` times.
    pub(crate) fn compare<T: Copy>(
        self,
        bytes: usize,
        tasks: &[T],
        mut run: impl FnMut(T, usize),
    ) -> Vec<f64> {
        let times: Vec<usize> = tasks.iter().map(|&task| self.calibrate(task, &mut run)).collect();
        let mut speeds = vec![vec![]; tasks.len()];
        for _ in 0..self.rounds {
            for ((&task, &times), speeds) in tasks.iter().zip(&times).zip(&mut speeds) {
                let took = time(task, times, &mut run);
                #[allow(clippy::cast_precision_loss)] // A figure of three digits.
                speeds.push((bytes * times) as f64 / took.as_secs_f64() / 1e9);
            }
        }
        speeds.into_iter().map(median).collect()
    }

    /// How often the task must be repeated to fill a slice.
    fn calibrate<T: Copy>(self, task: T, run: &mut impl FnMut(T, usize)) -> usize {
        let mut times = 1;
        while time(task, times, run) < self.slice {
            times *= 2;
        }
        times
    }
}

fn time<T>(task: T, times: usize, run: &mut impl FnMut(T, usize)) -> Duration {
    let start = Instant::now();
    run(task, times);
    start.elapsed()
}

fn median(mut speeds: Vec<f64>) -> f64 {
    speeds.sort_by(f64::total_cmp);
    speeds[speeds.len() / 2]
}
