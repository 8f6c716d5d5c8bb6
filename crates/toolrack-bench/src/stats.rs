//! What many measurements come to.

/// The value below which `share` of the values lie (0.5 is the median). Nothing has no quantile.
pub(crate) fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index into what fits in memory, from a share between 0 and 1"
    )]
    let (below, fraction) = {
        let exact = last as f64 * share.clamp(0.0, 1.0);
        (exact as usize, exact.fract())
    };
    let low = *sorted.get(below)?;
    let high = *sorted.get(below + 1).unwrap_or(&low);
    Some(low + (high - low) * fraction)
}

pub(crate) fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Which end of the scale is the good one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    Higher,
    Lower,
}

impl Better {
    pub(crate) fn best(self, values: &[f64]) -> Option<f64> {
        match self {
            Self::Higher => values.iter().copied().reduce(f64::max),
            Self::Lower => values.iter().copied().reduce(f64::min),
        }
    }

    /// How many times better `value` is than `reference`: above 1 is better, whichever way is good.
    pub(crate) fn advantage(self, value: f64, reference: f64) -> f64 {
        match self {
            Self::Higher => value / reference,
            Self::Lower => reference / value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(values: &[f64], share: f64, expected: Option<f64>) {
        assert_eq!(quantile(values, share), expected);
    }

    #[test]
    fn quantiles_lie_between_their_neighbours() {
        check(&[], 0.5, None);
        check(&[4.0], 0.5, Some(4.0));
        check(&[3.0, 1.0, 2.0], 0.5, Some(2.0));
        check(&[4.0, 1.0, 3.0, 2.0], 0.5, Some(2.5));
        check(&[1.0, 2.0, 3.0, 4.0, 5.0], 1.0, Some(5.0));
        check(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.0, Some(1.0));
        check(&[0.0, 100.0], 0.99, Some(99.0));
    }

    #[test]
    fn advantage_is_above_one_for_the_better_value() {
        assert_eq!(Some(Better::Higher.advantage(300.0, 100.0)), Some(3.0));
        assert_eq!(Some(Better::Lower.advantage(2.0, 8.0)), Some(4.0));
        assert_eq!(Better::Higher.best(&[1.0, 3.0, 2.0]), Some(3.0));
        assert_eq!(Better::Lower.best(&[1.0, 3.0, 2.0]), Some(1.0));
        assert_eq!(Better::Lower.best(&[]), None);
    }
}
