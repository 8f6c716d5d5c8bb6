//! Network impairments of the chaos proxy: plan parser and sampling. No effects.
//!
//! **Invariant:** the same seed, plan and connection number give the same impairments.

use std::time::Duration;

use crate::harness::splitmix64;
use crate::quantity;

/// Impairments of the network before sampling; the default plan has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProxyPlan {
    /// Least delay, and what may come on top of it.
    delay: (Duration, Duration),
    bytes_per_second: Option<u64>,
    /// Ranges of bytes from the server.
    cut: Option<(u64, u64)>,
    reset: Option<(u64, u64)>,
    corrupt: Option<(u64, u64)>,
    pub(super) refuses: bool,
    black_hole: bool,
    /// Percentage of connections that are impaired.
    percent: Option<u64>,
}

/// Sampled impairments of one connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Impairments {
    pub(super) delay: Duration,
    pub(super) bytes_per_second: Option<u64>,
    /// Numbers of bytes from the server.
    pub(super) cut: Option<u64>,
    pub(super) reset: Option<u64>,
    pub(super) corrupt: Option<u64>,
    pub(super) black_hole: bool,
}

/// An example of each impairment:
///
/// - `delay` delays bytes in both directions, plus up to the second time
/// - `slow` limits bytes per second in both directions
/// - `cut` closes the connection after this many bytes from the server; also a range, as in `cut(100-5000)`
/// - `reset` resets the connection (RST) after this many bytes from the server
/// - `corrupt` flips a bit after this many bytes from the server
/// - `refuse` refuses new connections
/// - `hole` accepts connections and drops everything
/// - `chance` impairs only this percentage of connections; not for `refuse`
const EXAMPLES: [&str; 8] = [
    "delay(20ms,10ms)",
    "slow(1KiB)",
    "cut(1000)",
    "reset(0)",
    "corrupt(100)",
    "refuse",
    "hole",
    "chance(30)",
];

impl ProxyPlan {
    /// Parses impairments separated by `;`, as in `delay(20ms); cut(100-5000)`.
    ///
    /// The error explains an invalid plan.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut plan = Self::default();
        for rule in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, args) = quantity::name_and_arguments(rule)?;
            let args: Vec<&str> =
                args.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
            plan.add(name, &args).map_err(|why| format!("in `{rule}`: {why}"))?;
        }
        Ok(plan)
    }

    fn add(&mut self, name: &str, args: &[&str]) -> Result<(), String> {
        match (name, args) {
            ("delay", [least]) => self.delay = (quantity::time(least)?, Duration::ZERO),
            ("delay", [least, spread]) => {
                self.delay = (quantity::time(least)?, quantity::time(spread)?);
            }
            ("slow", [rate]) => match quantity::bytes(rate)? {
                0 => return Err("a rate of 0 is a `hole`".to_owned()),
                rate => self.bytes_per_second = Some(rate),
            },
            ("cut", args) => self.cut = Some(byte_range(args)?),
            ("reset", args) => self.reset = Some(byte_range(args)?),
            ("corrupt", args) => self.corrupt = Some(byte_range(args)?),
            ("refuse", []) => self.refuses = true,
            ("hole", []) => self.black_hole = true,
            ("chance", [percent]) => match quantity::count(percent)? {
                101.. => return Err("the percentage is at most 100".to_owned()),
                percent => self.percent = Some(percent),
            },
            _ => return Err(format!("write {}", EXAMPLES.join(", "))),
        }
        Ok(())
    }

    /// Samples the impairments of the connection with this number.
    pub(super) fn sample(&self, seed: u64, number: u64) -> Impairments {
        let mut dice = splitmix64(seed ^ splitmix64(number));
        let mut roll = |sides: u64| {
            dice = splitmix64(dice);
            if sides == 0 { 0 } else { dice % sides }
        };
        if self.percent.is_some_and(|percent| roll(100) >= percent) {
            return Impairments::default();
        }
        let (least, spread) = self.delay;
        let micros = u64::try_from(spread.as_micros()).unwrap_or(u64::MAX);
        Impairments {
            delay: least + Duration::from_micros(roll(micros)),
            bytes_per_second: self.bytes_per_second,
            cut: self.cut.map(|range| within(range, &mut roll)),
            reset: self.reset.map(|range| within(range, &mut roll)),
            corrupt: self.corrupt.map(|range| within(range, &mut roll)),
            black_hole: self.black_hole,
        }
    }
}

fn byte_range(args: &[&str]) -> Result<(u64, u64), String> {
    let bytes = match args {
        [] => "0",
        [bytes] => bytes,
        _ => return Err("write a size or a range of sizes".to_owned()),
    };
    let (from, to) = bytes.split_once('-').unwrap_or((bytes, bytes));
    let (from, to) = (quantity::bytes(from)?, quantity::bytes(to)?);
    if to < from { Err(format!("{from}-{to} is reversed")) } else { Ok((from, to)) }
}

fn within((from, to): (u64, u64), roll: &mut impl FnMut(u64) -> u64) -> u64 {
    from + roll((to - from).saturating_add(1))
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
        check("cut(5)", Impairments { cut: Some(5), ..none() });
        check("reset", Impairments { reset: Some(0), ..none() });
        check("corrupt(9)", Impairments { corrupt: Some(9), ..none() });
        check("hole; chance(0)", none());
        check("refuse", none());
        assert!(ProxyPlan::parse("refuse").expect("a plan").refuses);
        for example in EXAMPLES {
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
        let impairment: Vec<u64> = drawn(1).iter().filter_map(|drawn| drawn.cut).collect();
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
