//! Where is shared state kept? One database: SQLite in the machine's folder, or PostgreSQL by URL.

#![forbid(unsafe_code)]

mod error;

pub use error::Error;
