//! The gateway between real peers: our doors and clients on loopback, servers over pipes, processes
//! and HTTP.

mod approvals;
mod budget;
mod doors;
mod follow;
mod hostile;
mod lists;
mod many;
mod memory;
mod news;
mod pins;
mod rounds;
mod rules;
mod servers;
mod telling;
mod world;
