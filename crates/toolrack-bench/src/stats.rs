//! Quantiles, and comparison of figures.

/// Interpolated quantile (0.5 is the median); `None` without values.
pub(crate) fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index into a vector, from a share between 0 and 1"
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

/// Whether higher or lower figures are better.
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

    /// How many times better `value` is than `reference`; above 1 is better.
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
    fn quantiles_are_interpolated() {
        check(&[], 0.5, None);
        check(&[4.0], 0.5, Some(4.0));
        check(&[3.0, 1.0, 2.0], 0.5, Some(2.0));
        check(&[4.0, 1.0, 3.0, 2.0], 0.5, Some(2.5));
        check(&[1.0, 2.0, 3.0, 4.0, 5.0], 1.0, Some(5.0));
        check(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.0, Some(1.0));
        check(&[0.0, 100.0], 0.99, Some(99.0));
    }

    #[test]
    fn better_value_has_advantage_above_one() {
        assert_eq!(Some(Better::Higher.advantage(300.0, 100.0)), Some(3.0));
        assert_eq!(Some(Better::Lower.advantage(2.0, 8.0)), Some(4.0));
        assert_eq!(Better::Higher.best(&[1.0, 3.0, 2.0]), Some(3.0));
        assert_eq!(Better::Lower.best(&[1.0, 3.0, 2.0]), Some(1.0));
        assert_eq!(Better::Lower.best(&[]), None);
    }
}
