//! Property tests over whole policies.
//!
//! Invariant 2: for every bundle B and machine policy M, effective(B, M) is a subset of M, in every
//! dimension. Its tests are never deleted or weakened.

mod ceilings;
pub(crate) mod generate;
mod naive;
mod narrowing;
mod spelled;
mod subset;
