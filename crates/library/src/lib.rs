//! Where do bytes come from and go to? The content store, repositories, the person's library,
//! archives that are shared and received, registries.

#![forbid(unsafe_code)]

mod error;
mod store;

pub use error::Error;
pub use store::Store;
