//! The crate from outside: against the official schemas, and against noise.

#[cfg(test)]
mod json;
#[cfg(test)]
mod noise;
#[cfg(test)]
mod official;
#[cfg(test)]
mod page;
#[cfg(test)]
mod schema;
#[cfg(test)]
mod table;
