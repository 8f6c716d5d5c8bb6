//! A seeded mix of faults: `ok=80,exit=5,late(50ms)=3`. The same seed gives the same fault to the same call.

use super::{Fault, Moment};
use crate::quantity;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Mix {
    weighted: Vec<(u64, Fault)>,
    total: u64,
    seed: u64,
}

impl Mix {
    pub(crate) fn parse(text: &str, seed: u64) -> Result<Self, String> {
        let mut weighted = Vec::new();
        for entry in split_outside_parentheses(text) {
            let Some((fault, weight)) = entry.rsplit_once('=') else {
                return Err(format!("`{entry}` has no weight, as in `ok=80`"));
            };
            let fault = Fault::parse(fault.trim())?;
            if fault.only_at().is_some_and(|only| !only.contains(&Moment::Call)) {
                return Err(format!("`{}` cannot happen at a call", fault.name()));
            }
            weighted.push((quantity::count(weight.trim())?, fault));
        }
        match weighted.iter().map(|(weight, _)| weight).sum() {
            0 => Err("a mix needs at least one weight above 0".to_owned()),
            total => Ok(Self { weighted, total, seed }),
        }
    }

    /// The fault of the call with this number.
    pub(crate) fn pick(&self, number: u64) -> &Fault {
        let mut at = scatter(self.seed ^ scatter(number)) % self.total;
        for (weight, fault) in &self.weighted {
            if at < *weight {
                return fault;
            }
            at -= weight;
        }
        &Fault::Ok
    }
}

/// A bijection that spreads neighbors far apart (the finalizer of splitmix64).
pub(crate) fn scatter(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn split_outside_parentheses(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    text.split(move |character| {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => (),
        }
        character == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|part| !part.is_empty())
}
