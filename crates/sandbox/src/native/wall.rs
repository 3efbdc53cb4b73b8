//! The native backend as one of several.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::{Prepared, Running};
use crate::backend::{self, Boxed, Doors};
use crate::error::Result;
use crate::{Exit, Guard, Probe, Usage};

/// The probe and the start block their thread: the doors are served by others.
impl backend::Prepared for Prepared {
    fn doors(&mut self) -> Option<Doors> {
        Some(Doors::Inside(self.listeners()))
    }

    fn probe(&mut self) -> Boxed<'_, Result<Vec<Probe>>> {
        Box::pin(async { Prepared::probe(self) })
    }

    fn release(self: Box<Self>) -> Boxed<'static, Result<Box<dyn backend::Running>>> {
        Box::pin(async {
            let running: Box<dyn backend::Running> = Box::new(Prepared::release(*self)?);
            Ok(running)
        })
    }
}

impl backend::Running for Running {
    fn take_terminal(&mut self) -> Option<OwnedFd> {
        Running::take_terminal(self)
    }

    fn wait(&mut self) -> Boxed<'_, Result<Exit>> {
        Box::pin(Running::wait(self))
    }

    fn kill(&self) {
        Running::kill(self);
    }

    fn signal(&self, signal: i32) {
        Running::signal(self, signal);
    }

    fn usage(&self) -> Usage {
        Running::usage(self)
    }

    fn keeps_memory(&self) -> bool {
        Running::keeps_memory(self)
    }

    fn guard(&self) -> Option<Arc<Guard>> {
        Some(Running::guard(self))
    }

    fn limit(&self) -> Option<(&'static str, String)> {
        self.out_of_memory().then(backend::out_of_memory)
    }
}
