//! The gateway between real peers: our doors and clients on loopback, servers over pipes, processes
//! and HTTP.

mod doors;
mod hostile;
mod memory;
mod pins;
mod rules;
mod servers;
mod world;
