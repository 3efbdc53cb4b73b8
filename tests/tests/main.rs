//! The black-box suite: one program, so that it links once. A file that is not named here fails a test.
#![forbid(unsafe_code)]

mod bad_input;
mod bundles;
mod cmd_audit;
mod cmd_clean;
mod cmd_fetch;
mod cmd_init;
mod cmd_library;
mod cmd_lock;
mod cmd_ps;
mod cmd_report;
mod cmd_run;
mod cmd_schema;
mod cmd_stop;
mod cmd_store;
mod cmd_trust;
mod cmd_validate;
mod house;
mod real_agent;
mod redteam_clone;
mod redteam_content;
mod redteam_denied_files;
mod redteam_environment;
mod redteam_evidence;
mod redteam_exhaustion;
mod redteam_git;
mod redteam_hosts;
mod redteam_killed;
mod redteam_limits;
mod redteam_own_policy;
mod redteam_raw_network;
mod redteam_requests;
mod redteam_resolve;
mod redteam_secrets;
mod support_net;
