//! Both ends perform random operations on a changing path: the stream is always exact or an error,
//! and a connection that no program uses ends.

use std::time::Duration;

use sim::{SeededRng, SimulationEvent};

use super::super::{SabulConfig, SabulConnection, SabulConnectionError, SabulReadOutcome};
use super::hostile::{forge, mutate};
use super::pair::{Pair, Path};

/// All pauses and changes of the path happen before this time.
const ACTIVE: Duration = Duration::from_secs(60);

/// After that a connection ends within this time. A stream of [`MAX_LEN`] bytes at 1 Mbit/s takes
/// three seconds without loss; with 30 % of it, resent packets are lost again and again.
const BOUND: Duration = Duration::from_secs(240);

/// The longest stream of one direction.
const MAX_LEN: u64 = 400_000;

/// An attacker's datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attack {
    None,
    /// Datagrams of an attacker who does not know the socket identifiers.
    Outsider,
    /// Modified datagrams of the connection itself. The content of the stream is then unspecified.
    OnPath,
}

/// The program at one end, and its progress.
#[derive(Debug)]
struct Program {
    rng: SeededRng,
    /// The number of bytes to write, and how many are written.
    len: u64,
    written: u64,
    read: u64,
    /// It does nothing until then.
    paused_until: Duration,
    /// It closes when it has written this many bytes, whatever it has read; `None`: when it has
    /// read and written everything.
    closes_after: Option<u64>,
    is_closed: bool,
    ended: Option<Result<(), SabulConnectionError>>,
}

impl Program {
    fn new(seed: u64, end: usize) -> Self {
        let mut rng = SeededRng::new(seed ^ 0x00c0_ffee ^ (end as u64) << 40);
        let len = [0, 1, rng.below(5000), rng.below(MAX_LEN)][rng.index(4)];
        let closes_after = (rng.below(8) == 0).then(|| rng.below(len + 1));
        Self {
            rng,
            len,
            written: 0,
            read: 0,
            paused_until: Duration::ZERO,
            closes_after,
            is_closed: false,
            ended: None,
        }
    }

    /// Draws the next pause: mostly none, sometimes longer than the peer's silence limit.
    fn pause(&mut self, now: Duration) {
        let longest = match self.rng.below(400) {
            0 => Duration::from_secs(30),
            1..10 => Duration::from_millis(500),
            10..40 => Duration::from_millis(20),
            _ => return,
        };
        if now < ACTIVE {
            self.paused_until = now + self.rng.duration_between(Duration::ZERO, longest);
        }
    }
}

/// The byte at a position of the stream from an end.
fn byte(end: usize, position: u64) -> u8 {
    let mixed = (position + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ end as u64);
    (mixed >> 56).to_le_bytes()[0]
}

struct Run {
    seed: u64,
    rng: SeededRng,
    path: Path,
    attack: Attack,
    pair: Pair,
    programs: [Program; 2],
    /// Whether the path was ever cut, or so lossy that a peer's last packets may all be lost.
    was_bad: bool,
    changes_at: Duration,
}

/// More steps than any run takes.
const MAX_STEPS: u64 = 1_000_000;

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = SeededRng::new(seed ^ 0x5ab1);
        let path = Path::drawn(seed);
        let sizes = [3000, 20_000, 200_000, 1 << 20];
        let config = SabulConfig {
            mss: [576, 1000, 1500][rng.index(3)],
            send_buffer: sizes[rng.index(4)],
            receive_buffer: sizes[rng.index(4)],
            ..SabulConfig::default()
        };
        let attack = [Attack::None, Attack::None, Attack::Outsider, Attack::OnPath][rng.index(4)];
        let pair = Pair::connect_with(seed, path, config);
        let changes_at = pair.now() + rng.duration_between(Duration::ZERO, Duration::from_secs(5));
        let programs = [0, 1].map(|end| Program::new(seed, end));
        Self {
            seed,
            rng,
            path,
            attack,
            pair,
            programs,
            was_bad: path.loss_permille >= 300,
            changes_at,
        }
    }

    fn run(&mut self) {
        let mut steps = 0_u64;
        while self.pair.ends.iter().any(|end| !end.is_over()) {
            let now = self.pair.now();
            if self.attack == Attack::OnPath && now > ACTIVE {
                // An attacker who changes acknowledgements can make it wait forever.
                return;
            }
            assert!(now < ACTIVE + BOUND, "seed {}: {:?}", self.seed, self.programs);
            steps += 1;
            assert!(steps < MAX_STEPS, "seed {}: ever more datagrams at {now:?}", self.seed);
            self.change_path(now);
            for end in 0..2 {
                self.act(end, now);
                self.send(end);
            }
            self.step();
        }
        let now = self.pair.now();
        for end in 0..2 {
            self.programs[end].paused_until = Duration::ZERO;
            self.read(end, now, u64::MAX);
        }
        self.check_end();
    }

    /// The path is cut, becomes better or worse, or moves packets behind others.
    fn change_path(&mut self, now: Duration) {
        if now < self.changes_at {
            return;
        }
        let cut = now < ACTIVE && self.rng.below(6) == 0;
        let permille = if cut { 1000 } else { [0, 1, 10, 100, 300][self.rng.index(5)] };
        let long = self.rng.below(3) == 0;
        let lasts = if long { Duration::from_secs(25) } else { Duration::from_secs(4) };
        for link in self.pair.links {
            let mut changed = self.path.conditions();
            // No time limit holds while much is lost, so the path is good in the end.
            changed.loss_permille = if now < ACTIVE { permille } else { 10 };
            *self.pair.network.conditions_mut(link) = changed;
        }
        self.was_bad |= permille >= 300;
        let lasts = self.rng.duration_between(Duration::ZERO, lasts);
        self.changes_at = if now < ACTIVE { now + lasts } else { Duration::MAX };
    }

    fn act(&mut self, end: usize, now: Duration) {
        if now < self.programs[end].paused_until {
            return;
        }
        let longest = [1, 100, 3000, 100_000][self.programs[end].rng.index(4)];
        self.write(end, longest);
        self.read(end, now, longest);
        let other = self.programs[1 - end].len;
        let program = &mut self.programs[end];
        let connection = &mut self.pair.ends[end];
        let is_done = match program.closes_after {
            Some(after) => program.written >= after,
            None => {
                program.written == program.len && program.read == other && connection.is_flushed()
            }
        };
        let is_left = program.ended.is_some();
        if (is_done || is_left) && !program.is_closed {
            program.is_closed = true;
            connection.close(now);
        }
        program.pause(now);
    }

    fn write(&mut self, end: usize, longest: u64) {
        let program = &mut self.programs[end];
        let limit = program.closes_after.unwrap_or(program.len);
        let count = program.rng.below(longest + 1).min(limit - program.written);
        if program.is_closed || count == 0 {
            return;
        }
        let bytes: Vec<u8> =
            (program.written..program.written + count).map(|at| byte(end, at)).collect();
        match self.pair.ends[end].write(&bytes) {
            Ok(taken) => program.written += taken as u64,
            Err(_) => assert!(self.pair.ends[end].has_ended(), "seed {}", self.seed),
        }
    }

    fn read(&mut self, end: usize, now: Duration, longest: u64) {
        let mut buffer = vec![0; usize::try_from(longest.min(1 << 16)).unwrap()];
        loop {
            let program = &mut self.programs[end];
            match self.pair.ends[end].read(&mut buffer, now) {
                Ok(SabulReadOutcome::Bytes(count)) => {
                    if self.attack != Attack::OnPath {
                        for (index, &is) in buffer[..count].iter().enumerate() {
                            let at = program.read + index as u64;
                            assert_eq!(is, byte(1 - end, at), "seed {}: at {at}", self.seed);
                        }
                    }
                    program.read += count as u64;
                }
                Ok(SabulReadOutcome::Nothing) => return,
                Ok(SabulReadOutcome::End) => {
                    program.ended = Some(Ok(()));
                    return;
                }
                Err(error) => {
                    program.ended = Some(Err(error));
                    return;
                }
            }
            if longest != u64::MAX {
                return;
            }
        }
    }

    fn send(&mut self, end: usize) {
        let link = self.pair.links[end];
        loop {
            let (mut datagram, now) = (Vec::new(), self.pair.now());
            if !self.pair.ends[end].poll_transmit(now, &mut datagram) {
                return;
            }
            self.pair.network.send_datagram(link, datagram);
        }
    }

    fn step(&mut self) {
        let now = self.pair.now();
        let deadlines = self.pair.ends.iter().filter_map(SabulConnection::poll_timeout);
        // A program with work left acts again at most one millisecond later.
        let resumes = self
            .programs
            .iter()
            .map(|program| program.paused_until.max(now + Duration::from_millis(1)));
        let deadline = deadlines.chain(resumes).chain([self.changes_at]).min().unwrap_or(now);
        match self.pair.network.next_event_until(deadline.max(now)) {
            Some(SimulationEvent::Arrived { link, bytes }) => {
                let end = usize::from(link == self.pair.links[0]);
                let now = self.pair.now();
                if self.rng.below(20) == 0 {
                    // This datagram is reordered.
                    let later =
                        self.rng.duration_between(Duration::ZERO, Duration::from_millis(10));
                    self.pair.network.inject(link, bytes, later);
                    return;
                }
                let extra = match self.attack {
                    Attack::None => None,
                    Attack::Outsider => Some(forge(&mut self.rng, &bytes)),
                    Attack::OnPath => {
                        (self.rng.below(10) == 0).then(|| mutate(&mut self.rng, &bytes))
                    }
                };
                if let Some(extra) = extra {
                    self.pair.ends[end].handle_datagram(now, &extra);
                }
                self.pair.ends[end].handle_datagram(now, &bytes);
            }
            Some(_) => {}
            None => {
                let now = self.pair.now();
                for end in &mut self.pair.ends {
                    end.handle_timeout(now);
                }
            }
        }
    }

    /// Checks that what the program was told is true.
    fn check_end(&self) {
        if self.attack == Attack::OnPath {
            return;
        }
        for end in 0..2 {
            let (own, other) = (&self.programs[end], &self.programs[1 - end]);
            if own.ended == Some(Ok(())) {
                assert_eq!(own.read, other.written, "seed {}: an end before the end", self.seed);
            }
            if self.pair.ends[end].is_flushed() {
                assert_eq!(other.read, own.written, "seed {}: not all has arrived", self.seed);
            }
            let is_failed = matches!(own.ended, Some(Err(SabulConnectionError::Silent(_))));
            assert!(!is_failed || self.was_bad, "seed {}: {:?}", self.seed, self.programs);
        }
    }
}

#[test]
fn whatever_both_ends_do_the_stream_is_exact_or_an_error() {
    sim::run_seeds(300, |seed| Run::new(seed).run());
}

/// Regressions: two ends that closed at the same time answered each other more and more often; an
/// end that received keepalives never sent one, and was taken for dead.
#[test]
fn runs_that_have_failed_before() {
    for seed in [4657, 17_118] {
        Run::new(seed).run();
    }
}
