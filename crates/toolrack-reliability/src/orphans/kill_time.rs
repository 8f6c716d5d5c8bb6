//! When an owner is killed.

use std::time::Duration;

use crate::random::Random;

/// A moment in the life of an owner, and how far into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// While it starts itself and its servers.
    Starting(Duration),
    /// While its servers start.
    Soon(Duration),
    /// While it calls its servers.
    InTraffic(Duration),
}

impl Moment {
    /// Three in ten while starting, three soon after, four under traffic.
    pub(super) fn draw(random: &mut Random) -> Self {
        let ms = Duration::from_millis;
        match random.below(10) {
            0..3 => Self::Starting(random.time(ms(0), ms(10))),
            3..6 => Self::Soon(random.time(ms(10), ms(100))),
            _ => Self::InTraffic(random.time(ms(0), ms(100))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_moment_has_its_share_and_its_range() {
        let ms = Duration::from_millis;
        let mut counts = [0; 3];
        for stream in 0..1000 {
            match Moment::draw(&mut Random::new(1, stream)) {
                Moment::Starting(pause) if pause < ms(10) => counts[0] += 1,
                Moment::Soon(pause) if ms(10) <= pause && pause < ms(100) => counts[1] += 1,
                Moment::InTraffic(pause) if pause < ms(100) => counts[2] += 1,
                other => panic!("{other:?}"),
            }
        }
        let near = |count: i32, share: i32| (count - share).abs() < 50;
        assert!(near(counts[0], 300) && near(counts[1], 300) && near(counts[2], 400), "{counts:?}");
    }
}
