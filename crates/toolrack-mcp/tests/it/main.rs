//! Integration tests: official schemas and random input.

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
