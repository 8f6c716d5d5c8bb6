//! Seeded random numbers (splitmix64).
//!
//! **Invariant:** the same seed and cycle give the same numbers on every machine, because nothing here comes from a
//! clock or from a library of others.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use toolrack_testkit::harness::splitmix64;

/// Seeds of every run, so that runs are comparable.
const FIXED: [u64; 2] = [1, 2];

/// Short, because people type seeds.
const MAX_SEED: u64 = 1_000_000;

/// The seeds of a run, used by the cycles in turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seeds(Vec<u64>);

/// A stream of random numbers.
#[derive(Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Seeds {
    /// The given seed, or the fixed ones and a new one.
    pub(crate) fn choose(asked: Option<u64>) -> Self {
        match asked {
            Some(seed) => Self(vec![seed]),
            None => {
                let new = RandomState::new().build_hasher().finish() % MAX_SEED;
                Self(FIXED.into_iter().chain([new]).collect())
            }
        }
    }

    pub(crate) fn from_list(seeds: Vec<u64>) -> Option<Self> {
        (!seeds.is_empty()).then_some(Self(seeds))
    }

    pub(crate) fn all(&self) -> &[u64] {
        &self.0
    }

    pub(crate) fn first(&self) -> u64 {
        self.0.first().copied().unwrap_or_default()
    }

    /// Returns the seed and the random stream of a cycle. Seeds take turns.
    pub(crate) fn for_cycle(&self, cycle: u64) -> (u64, Random) {
        let n_seeds = self.0.len() as u64;
        let index = usize::try_from(cycle % n_seeds).unwrap_or_default();
        let seed = self.0.get(index).copied().unwrap_or_default();
        (seed, Random::new(seed, cycle / n_seeds))
    }
}

impl Random {
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Self { state: splitmix64(seed ^ splitmix64(stream)) }
    }

    pub(crate) fn draw(&mut self) -> u64 {
        let drawn = splitmix64(self.state);
        self.state = self.state.wrapping_add(STEP);
        drawn
    }

    /// A number below `end`, or 0 if `end` is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.draw().checked_rem(end).unwrap_or_default()
    }

    /// A duration in `from..to`, in whole microseconds.
    pub(crate) fn time(&mut self, from: Duration, to: Duration) -> Duration {
        let width = to.saturating_sub(from).as_micros();
        from + Duration::from_micros(self.below(u64::try_from(width).unwrap_or(u64::MAX)))
    }
}

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(seed: u64, stream: u64) -> Vec<u64> {
        let mut random = Random::new(seed, stream);
        (0..4).map(|_| random.below(1000)).collect()
    }

    #[test]
    fn same_seed_gives_the_same_numbers() {
        assert_eq!(draws(7, 3), draws(7, 3));
        assert_ne!(draws(7, 3), draws(8, 3));
        assert_ne!(draws(7, 3), draws(7, 4));
    }

    /// The first outputs for state 0, as its author publishes them.
    #[test]
    fn the_stream_is_splitmix64() {
        let mut random = Random { state: 0 };
        let drawn = [random.draw(), random.draw()];
        assert_eq!(drawn, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
    }

    #[test]
    fn numbers_stay_in_their_range() {
        let mut random = Random::new(1, 1);
        let (from, to) = (Duration::from_millis(10), Duration::from_millis(12));
        for _ in 0..1000 {
            let time = random.time(from, to);
            assert!(from <= time && time < to, "{time:?}");
            assert!(random.below(3) < 3);
        }
        assert_eq!(random.below(0), 0);
        assert_eq!(random.time(to, to), to);
    }

    #[test]
    fn seeds_take_turns() {
        let seeds = Seeds::from_list(vec![5, 9]).unwrap();
        let turns: Vec<(u64, u64)> = (0..4)
            .map(|cycle| seeds.for_cycle(cycle))
            .map(|(seed, mut random)| (seed, random.draw()))
            .collect();
        let expected: Vec<(u64, u64)> = [(5, 0), (9, 0), (5, 1), (9, 1)]
            .map(|(seed, stream)| (seed, Random::new(seed, stream).draw()))
            .to_vec();
        assert_eq!(turns, expected);
    }

    #[test]
    fn given_seed_is_the_only_one() {
        assert_eq!(Seeds::choose(Some(123)), Seeds(vec![123]));
        let chosen = Seeds::choose(None);
        assert_eq!(chosen.all().first_chunk(), Some(&FIXED));
        assert_eq!(chosen.all().len(), FIXED.len() + 1);
        assert_eq!(Seeds::from_list(Vec::new()), None);
    }
}
