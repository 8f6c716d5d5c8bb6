//! Network impairments of the chaos proxy: plan parser and sampling. No effects.
//!
//! **Invariant:** the same seed, plan and connection number give the same impairments.

use std::time::Duration;

use crate::plan::splitmix64;
use crate::quantity;

/// Impairments of the network; the default plan has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProxyPlan {
    impairments: Vec<Impairment>,
    /// Percentage of connections that are impaired.
    percent: Option<u64>,
}

/// One impairment before sampling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Impairment {
    Delay { least: Duration, spread: Duration },
    Slow(u64),
    Cut(ByteOffset),
    Reset(ByteOffset),
    Corrupt(ByteOffset),
    Refuse,
    BlackHole,
}

/// Byte range and direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ByteOffset {
    from: u64,
    to: u64,
    direction: Direction,
}

/// Direction of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// From the server to the client.
    Downstream,
    Upstream,
}

/// Sampled impairments of one connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Impairments {
    pub(super) delay: Duration,
    pub(super) bytes_per_second: Option<u64>,
    pub(super) cut: Option<(u64, Direction)>,
    pub(super) reset: Option<(u64, Direction)>,
    pub(super) corrupt: Option<(u64, Direction)>,
    pub(super) black_hole: bool,
}

/// Example of each impairment, and its effect.
pub(super) const IMPAIRMENTS: &[(&str, &str)] = &[
    ("delay(20ms,10ms)", "delays bytes in both directions, plus up to the second time"),
    ("slow(1KiB)", "limits bytes per second in both directions"),
    ("cut(1000)", "closes the connection after this many bytes from the server"),
    ("reset(0)", "resets the connection (RST) after this many bytes from the server"),
    ("corrupt(100)", "flips a bit after this many bytes from the server"),
    ("refuse", "refuses new connections"),
    ("hole", "accepts connections and drops everything"),
    ("chance(30)", "impairs only this percentage of connections; not for `refuse`"),
];

impl ProxyPlan {
    /// Parses impairments separated by `;`, as in `delay(20ms); cut(100-5000)`.
    ///
    /// The error explains an invalid plan.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut plan = Self::default();
        for rule in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, args) = match rule.split_once('(') {
                None => (rule, ""),
                Some((name, rest)) => {
                    let args = rest.strip_suffix(')');
                    (name, args.ok_or_else(|| format!("`{rule}` has no closing parenthesis"))?)
                }
            };
            let args: Vec<&str> =
                args.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
            plan.add(name, &args).map_err(|why| format!("in `{rule}`: {why}"))?;
        }
        Ok(plan)
    }

    fn add(&mut self, name: &str, args: &[&str]) -> Result<(), String> {
        let impairment = match (name, args) {
            ("delay", [least]) => {
                Impairment::Delay { least: quantity::time(least)?, spread: Duration::ZERO }
            }
            ("delay", [least, spread]) => {
                Impairment::Delay { least: quantity::time(least)?, spread: quantity::time(spread)? }
            }
            ("slow", [rate]) => match quantity::bytes(rate)? {
                0 => return Err("a rate of 0 is a `hole`".to_owned()),
                rate => Impairment::Slow(rate),
            },
            ("cut", args) => Impairment::Cut(ByteOffset::parse(args)?),
            ("reset", args) => Impairment::Reset(ByteOffset::parse(args)?),
            ("corrupt", args) => Impairment::Corrupt(ByteOffset::parse(args)?),
            ("refuse", []) => Impairment::Refuse,
            ("hole", []) => Impairment::BlackHole,
            ("chance", [percent]) => {
                let percent = quantity::count(percent)?;
                if percent > 100 {
                    return Err("the percentage is at most 100".to_owned());
                }
                self.percent = Some(percent);
                return Ok(());
            }
            _ => {
                let known: Vec<&str> = IMPAIRMENTS.iter().map(|(example, _)| *example).collect();
                return Err(format!("write {}", known.join(", ")));
            }
        };
        self.impairments.push(impairment);
        Ok(())
    }

    pub(super) fn refuses(&self) -> bool {
        self.impairments.contains(&Impairment::Refuse)
    }

    /// Samples the impairments of the connection with this number.
    pub(super) fn sample(&self, seed: u64, number: u64) -> Impairments {
        let mut impairments = Impairments::default();
        let mut dice = splitmix64(seed ^ splitmix64(number));
        let mut roll = |sides: u64| {
            dice = splitmix64(dice);
            if sides == 0 { 0 } else { dice % sides }
        };
        if self.percent.is_some_and(|percent| roll(100) >= percent) {
            return impairments;
        }
        for impairment in &self.impairments {
            match impairment {
                Impairment::Delay { least, spread } => {
                    let micros = u64::try_from(spread.as_micros()).unwrap_or(u64::MAX);
                    impairments.delay = *least + Duration::from_micros(roll(micros));
                }
                Impairment::Slow(rate) => impairments.bytes_per_second = Some(*rate),
                Impairment::Cut(at) => impairments.cut = Some(at.sample(&mut roll)),
                Impairment::Reset(at) => impairments.reset = Some(at.sample(&mut roll)),
                Impairment::Corrupt(at) => impairments.corrupt = Some(at.sample(&mut roll)),
                Impairment::BlackHole => impairments.black_hole = true,
                Impairment::Refuse => (),
            }
        }
        impairments
    }
}

impl ByteOffset {
    fn parse(args: &[&str]) -> Result<Self, String> {
        let (bytes, direction) = match args {
            [] => ("0", Direction::Downstream),
            [bytes] | [bytes, "down"] => (*bytes, Direction::Downstream),
            [bytes, "up"] => (*bytes, Direction::Upstream),
            _ => return Err("write a size or a range of sizes, then `up` or `down`".to_owned()),
        };
        let (from, to) = bytes.split_once('-').unwrap_or((bytes, bytes));
        let (from, to) = (quantity::bytes(from)?, quantity::bytes(to)?);
        if to < from {
            Err(format!("{from}-{to} is reversed"))
        } else {
            Ok(Self { from, to, direction })
        }
    }

    fn sample(self, roll: &mut impl FnMut(u64) -> u64) -> (u64, Direction) {
        (self.from + roll((self.to - self.from).saturating_add(1)), self.direction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impairments_are_sampled_per_connection() {
        let check = |plan: &str, expected: Impairments| {
            assert_eq!(ProxyPlan::parse(plan).expect(plan).sample(7, 1), expected, "{plan}");
        };
        let none = Impairments::default;
        check("", none());
        check("delay(20ms)", Impairments { delay: Duration::from_millis(20), ..none() });
        check(
            "slow(1KiB); hole",
            Impairments { bytes_per_second: Some(1024), black_hole: true, ..none() },
        );
        check("cut(5)", Impairments { cut: Some((5, Direction::Downstream)), ..none() });
        check("reset", Impairments { reset: Some((0, Direction::Downstream)), ..none() });
        check("corrupt(9,up)", Impairments { corrupt: Some((9, Direction::Upstream)), ..none() });
        check("hole; chance(0)", none());
        check("refuse", none());
        assert!(ProxyPlan::parse("refuse").expect("a plan").refuses());
        for (example, _) in IMPAIRMENTS {
            ProxyPlan::parse(example).expect(example);
        }
    }

    #[test]
    fn sampling_depends_on_connection_and_seed_only() {
        let plan = ProxyPlan::parse("cut(10-1000); delay(0ms,50ms); chance(50)").expect("a plan");
        let drawn = |seed| -> Vec<Impairments> {
            (0..200).map(|number| plan.sample(seed, number)).collect()
        };
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
        let impairment: Vec<u64> =
            drawn(1).iter().filter_map(|drawn| drawn.cut).map(|(at, _)| at).collect();
        assert!((60..140).contains(&impairment.len()), "{} of 200", impairment.len());
        assert!(impairment.iter().all(|offset| (10..=1000).contains(offset)), "{impairment:?}");
    }

    #[test]
    fn invalid_proxy_plan_is_explained() {
        let check = |plan: &str, expected: &str| {
            assert_eq!(ProxyPlan::parse(plan), Err(expected.to_owned()));
        };
        check("cut(1", "`cut(1` has no closing parenthesis");
        check("cut(9-3)", "in `cut(9-3)`: 9-3 is reversed");
        check("slow(0)", "in `slow(0)`: a rate of 0 is a `hole`");
        check("chance(101)", "in `chance(101)`: the percentage is at most 100");
        assert!(
            ProxyPlan::parse("explode").expect_err("no plan").starts_with("in `explode`: write")
        );
    }
}
