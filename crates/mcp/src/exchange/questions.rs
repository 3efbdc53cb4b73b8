//! Questions of ours to a client, as requests on its session or connection.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::able;
use crate::{Answer, Id, RpcError, code};

/// Questions that wait for one client at once.
const OPEN: usize = 32;

/// The questions of one session or connection.
#[derive(Default)]
pub(crate) struct Questions(Mutex<Table>);

#[derive(Default)]
struct Table {
    last: i64,
    closed: bool,
    open: HashMap<i64, (String, oneshot::Sender<Answer>)>,
}

impl Questions {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new question: its id, and where the answer comes.
    pub(super) fn open(&self, method: &str) -> Result<(i64, oneshot::Receiver<Answer>), RpcError> {
        let mut table = self.lock();
        if table.closed {
            return Err(crate::door::answer::cancelled());
        }
        if table.open.len() >= OPEN {
            let words = format!("the client has {OPEN} questions to answer already");
            return Err(RpcError::new(code::INTERNAL, words));
        }
        table.last += 1;
        let (id, (sender, receiver)) = (table.last, oneshot::channel());
        table.open.insert(id, (method.to_owned(), sender));
        Ok((id, receiver))
    }

    /// Forgets a question. True when it was open.
    pub(super) fn close(&self, id: i64) -> bool {
        self.lock().open.remove(&id).is_some()
    }

    /// Takes a client's answer. False when nothing like it was ever asked here.
    pub(crate) fn answer(&self, id: Option<&Id>, answer: Answer) -> bool {
        let Some(Id::Number(id)) = id else { return false };
        let mut table = self.lock();
        let asked = (1..=table.last).contains(id);
        let found = table.open.remove(id);
        drop(table);
        if let Some((method, sender)) = found {
            let fits = answer.as_ref().map_or(true, |answer| able::fits(&method, answer));
            let words = "the client's answer does not have the form that was asked for";
            // Whoever asked may have gone meanwhile.
            let _ =
                sender.send(if fits { answer } else { Err(RpcError::new(code::INTERNAL, words)) });
        }
        asked
    }

    /// Nobody answers any more.
    pub(crate) fn end(&self) {
        let mut table = self.lock();
        table.closed = true;
        table.open.clear();
    }
}
