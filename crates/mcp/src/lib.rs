//! What is on the wire?
