//! An application: what it says, and whether what it hears is what the other says.

use std::time::Duration;

use sim::SeededRng;

use super::ms;
use super::scenario::StreamEndScenario;

/// An application that says so many bytes, and expects as many as the other says.
pub(super) struct SimulatedApplication {
    /// How many bytes it has sent, of how many.
    sent: usize,
    says: usize,
    /// How many it has heard, and whether they were those that the other has sent.
    heard: usize,
    is_exact: bool,
    has_heard_all: bool,
    /// It says nothing until then.
    speaks_at: Duration,
    /// It says a little all the time.
    is_steady: bool,
    /// When it last heard something.
    heard_at: Duration,
    /// It takes nothing in that time.
    pause: Option<(Duration, Duration)>,
}

impl SimulatedApplication {
    pub(super) fn new(end: &StreamEndScenario, is_steady: bool) -> Self {
        Self {
            sent: 0,
            says: end.says,
            heard: 0,
            is_exact: true,
            has_heard_all: false,
            speaks_at: end.begins_at,
            is_steady,
            heard_at: Duration::ZERO,
            pause: end.pauses.map(|(from, lasts)| (from, from + lasts)),
        }
    }

    /// How many bytes it would say at once, or nothing while it says nothing. Zero: it has ended.
    pub(super) fn available(&self, now: Duration) -> Option<usize> {
        (now >= self.speaks_at).then_some((self.says - self.sent).min(1 << 20))
    }

    /// Says something into `space`. Returns how many bytes, and whether it has ended behind them.
    pub(super) fn say(
        &mut self,
        space: &mut [u8],
        rng: &mut SeededRng,
        now: Duration,
    ) -> (usize, bool) {
        let piece = if self.is_steady { 300 } else { usize::MAX };
        let most = space.len().min(self.says - self.sent).min(piece);
        let len = if most == 0 || rng.chance(50) { most } else { 1 + rng.index(most) };
        for (place, byte) in space[..len].iter_mut().enumerate() {
            *byte = byte_at(self.sent + place);
        }
        self.sent += len;
        if self.is_steady {
            self.speaks_at = now + ms(100);
        } else if rng.chance(20) {
            self.speaks_at = now + ms([1, 30, 1_500, 15_000][rng.index(4)]);
        }
        (len, self.sent == self.says && rng.chance(50))
    }

    /// When it goes on, if it says or takes nothing now.
    pub(super) fn wakes_at(&self, now: Duration) -> Option<Duration> {
        let takes_at = self.pause.map(|(_, until)| until);
        [Some(self.speaks_at), takes_at].into_iter().flatten().filter(|&at| at > now).min()
    }

    /// Whether it takes what it is given.
    pub(super) fn takes(&self, now: Duration) -> bool {
        self.pause.is_none_or(|(from, until)| now < from || now >= until)
    }

    /// Hears the first of these bytes. Returns how many.
    pub(super) fn hear(&mut self, bytes: &[u8], rng: &mut SeededRng, now: Duration) -> usize {
        let len = if rng.chance(70) { bytes.len() } else { 1 + rng.index(bytes.len()) };
        let mut places = self.heard..;
        self.is_exact &= bytes[..len].iter().all(|&byte| places.next().map(byte_at) == Some(byte));
        self.is_exact &= !self.has_heard_all;
        (self.heard, self.heard_at) = (self.heard + len, now);
        len
    }

    /// Hears that the other has ended.
    pub(super) fn hear_end(&mut self) {
        self.has_heard_all = true;
    }

    pub(super) fn heard(&self) -> usize {
        self.heard
    }

    pub(super) fn heard_at(&self) -> Duration {
        self.heard_at
    }

    pub(super) fn is_exact(&self) -> bool {
        self.is_exact
    }

    pub(super) fn has_heard_all(&self) -> bool {
        self.has_heard_all
    }
}

/// What both applications say at a place.
fn byte_at(place: usize) -> u8 {
    (place * 7 + place / 251).to_le_bytes()[0]
}
