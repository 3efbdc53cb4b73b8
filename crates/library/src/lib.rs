//! Where do bytes come from and go to? The content store, repositories, the person's library,
//! archives that are shared and received, registries.

#![forbid(unsafe_code)]

mod error;
mod git;
mod linked;
mod resolve;
mod store;

pub use error::Error;
pub use git::{Change, Commit, Each, Git, Owned, Remote, Rev};
pub use linked::{Added, Entry, Finding, Found, Library, Linked, Piece, Scan, Synced, Trashed};
pub use resolve::{Brought, Reach, bring, resolve};
pub use store::{Gone, Kept, Needed, Object, State, Store, needed};
