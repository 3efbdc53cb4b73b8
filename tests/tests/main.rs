//! The black-box suite: one program, so that it links once.
#![forbid(unsafe_code)]

mod support_net;
