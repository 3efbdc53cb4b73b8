//! Notifications on their way to one client, bounded in number and bytes.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use tokio::sync::Notify;

/// Notifications that may wait for one client.
const NOTES: usize = 64;
/// What they may weigh together. One alone may weigh more: it is within the bound of a message.
const WEIGHT: usize = 1024 * 1024;
/// What one JSON value weighs beside its text.
const VALUE: usize = 64;

/// One notification.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Told {
    pub(crate) method: String,
    pub(crate) params: Option<Value>,
    /// Bytes of memory, about.
    pub(crate) weight: usize,
}

impl Told {
    /// `text` is the message that it came in.
    pub(crate) fn new(method: String, params: Option<Value>, text: &[u8]) -> Self {
        let weight = text.len() + VALUE * crate::strict::values(text);
        Self { method, params, weight }
    }
}

#[derive(Default)]
struct Queue {
    told: VecDeque<Told>,
    weight: usize,
    closed: bool,
}

/// Many put in, one takes out.
#[derive(Default)]
pub(crate) struct Mailbox {
    queue: Mutex<Queue>,
    filled: Notify,
    emptied: Notify,
}

impl Mailbox {
    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts one in. Gives it back when there is no room; a closed box takes everything and keeps
    /// nothing.
    pub(crate) fn offer(&self, told: Told) -> Result<(), Told> {
        let mut queue = self.lock();
        if queue.closed {
            return Ok(());
        }
        let full = queue.told.len() >= NOTES || queue.weight + told.weight > WEIGHT;
        if full && !queue.told.is_empty() {
            return Err(told);
        }
        queue.weight += told.weight;
        queue.told.push_back(told);
        drop(queue);
        self.filled.notify_one();
        Ok(())
    }

    /// Puts one in, and waits for room.
    pub(crate) async fn put(&self, mut told: Told) {
        loop {
            let emptied = self.emptied.notified();
            match self.offer(told) {
                Ok(()) => return,
                Err(back) => told = back,
            }
            emptied.await;
        }
    }

    /// Takes the oldest out, and waits for one. `None` when it is closed and empty.
    pub(crate) async fn take(&self) -> Option<Told> {
        loop {
            let filled = self.filled.notified();
            {
                let mut queue = self.lock();
                if let Some(told) = queue.told.pop_front() {
                    queue.weight -= told.weight;
                    drop(queue);
                    self.emptied.notify_one();
                    return Some(told);
                }
                if queue.closed {
                    return None;
                }
            }
            filled.await;
        }
    }

    /// Nothing more goes in.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_one();
        self.emptied.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::{Mailbox, NOTES, Told, WEIGHT};

    fn told(weight: usize) -> Told {
        Told { method: "m".into(), params: None, weight }
    }

    #[tokio::test]
    async fn holds_so_many_and_no_more() {
        let mailbox = Mailbox::default();
        assert!((0..NOTES).all(|_| mailbox.offer(told(1)).is_ok()));
        assert_eq!(mailbox.offer(told(1)), Err(told(1)));
        assert!(mailbox.take().await.is_some());
        assert_eq!(mailbox.offer(told(1)), Ok(()));
        mailbox.close();
        for _ in 0..NOTES {
            assert!(mailbox.take().await.is_some());
        }
        assert_eq!(mailbox.take().await, None);
    }

    #[tokio::test]
    async fn holds_so_much_and_no_more() {
        let mailbox = Mailbox::default();
        assert_eq!(mailbox.offer(told(2 * WEIGHT)), Ok(()), "one alone is let in");
        assert_eq!(mailbox.offer(told(1)), Err(told(1)));
        let (put, taken) = tokio::join!(mailbox.put(told(1)), mailbox.take());
        assert_eq!(((), Some(told(2 * WEIGHT))), (put, taken));
        assert_eq!(mailbox.take().await, Some(told(1)));
    }
}
