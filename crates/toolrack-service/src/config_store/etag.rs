//! Which state of a file somebody has seen: a digest of its bytes, so that a person's edit counts too.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

/// A state of a file. Two files with the same bytes have the same one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Generation([u8; 16]);

impl Generation {
    /// The generation of a file with this text.
    pub fn of(text: &str) -> Self {
        let mut short = [0; 16];
        let digest = Sha256::digest(text.as_bytes());
        short.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
        Self(short)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Generation({self})")
    }
}

/// The text is not a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a generation: 32 hexadecimal digits are expected")]
pub struct NoGeneration;

impl FromStr for Generation {
    type Err = NoGeneration;

    fn from_str(text: &str) -> Result<Self, NoGeneration> {
        if text.len() != 32 || !text.bytes().all(|it| it.is_ascii_hexdigit()) {
            return Err(NoGeneration);
        }
        u128::from_str_radix(text, 16)
            .map(|number| Self(number.to_be_bytes()))
            .map_err(|_malformed| NoGeneration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_survives_being_told() {
        let generation = Generation::of("a");
        assert_eq!(generation.to_string().parse(), Ok(generation));
        assert_ne!(generation, Generation::of("b"));
        for text in ["", "a", &"g".repeat(32), &"+".repeat(32), &"a".repeat(33)] {
            assert_eq!(text.parse::<Generation>(), Err(NoGeneration), "{text:?}");
        }
    }
}
