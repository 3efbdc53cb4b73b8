//! The black-box suite: one program, so that it links once. A file that is not named here fails a test.
#![forbid(unsafe_code)]

mod bundles;
mod redteam_clone;
mod redteam_denied_files;
mod redteam_environment;
mod redteam_evidence;
mod redteam_git;
mod redteam_hosts;
mod redteam_killed;
mod redteam_own_policy;
mod redteam_raw_network;
mod redteam_requests;
mod redteam_resolve;
mod redteam_secrets;
mod support_net;
