//! Where do bytes come from and go to? The content store, repositories, the person's library,
//! archives that are shared and received, registries.

#![forbid(unsafe_code)]

mod archive;
mod error;
mod git;
mod linked;
mod private;
mod publishers;
mod quarantine;
mod registry;
mod resolve;
mod sign;
mod store;

pub use archive::{Fault, Packed, Scan, pack, share};
pub use error::Error;
pub use git::{Change, Commit, Each, Git, Owned, Remote, Rev};
pub use linked::{Added, Entry, Finding, Found, Library, Linked, Piece, Synced, Trashed};
pub use publishers::Publishers;
pub use quarantine::{Kept, Quarantine, Received};
pub use registry::{Listed, Refreshed, Registries, Release, Wanted, read_archive};
pub use resolve::{Brought, CommitMoved, Reach, bring, commits_moved, moved, resolve};
pub use sign::{Flaw, LockSignature, Signed, Verdict, seal, sign_lock, unseal, verify_lock};
pub use store::{Gone, Needed, Object, Pinned, State, Store, needed};
