//! The run's emergency brake: a decision can end the run that it is part of.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, watch};

/// Why a run is to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Halt {
    /// `spending` or `approval`, as in the record's `limit_reached`.
    pub limit: &'static str,
    /// In words.
    pub detail: String,
}

/// Ends a run from within. Clones share it; the first reason stays.
#[derive(Debug, Clone)]
pub struct Stop(Arc<watch::Sender<Option<Halt>>>, Arc<Warnings>);

/// What a person is to be told, until somebody tells it.
#[derive(Debug, Default)]
struct Warnings {
    words: Mutex<VecDeque<String>>,
    more: Notify,
}

/// Warnings that wait: each cap gives one.
const WARNINGS: usize = 16;

impl Default for Stop {
    fn default() -> Self {
        Self(Arc::new(watch::channel(None).0), Arc::default())
    }
}

impl Stop {
    /// From now on no call goes through, and whoever supervises the run ends it.
    pub fn now(&self, limit: &'static str, detail: impl Into<String>) {
        self.0.send_if_modified(|halt| {
            let first = halt.is_none();
            halt.get_or_insert_with(|| Halt { limit, detail: detail.into() });
            first
        });
    }

    /// A person is to be told, and the run goes on.
    pub fn warn(&self, words: String) {
        let mut waiting = self.1.words.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < WARNINGS {
            waiting.push_back(words);
        }
        self.1.more.notify_one();
    }

    /// Waits for the next warning.
    pub async fn warning(&self) -> String {
        loop {
            let next = {
                let mut waiting = self.1.words.lock().unwrap_or_else(PoisonError::into_inner);
                waiting.pop_front()
            };
            match next {
                Some(words) => return words,
                None => self.1.more.notified().await,
            }
        }
    }

    /// Why it is to end, if it is.
    #[must_use]
    pub fn asked(&self) -> Option<Halt> {
        self.0.borrow().clone()
    }

    /// Waits until it is to end.
    pub async fn wait(&self) -> Halt {
        let mut told = self.0.subscribe();
        let halt = told.wait_for(Option::is_some).await.ok().and_then(|halt| halt.clone());
        match halt {
            Some(halt) => halt,
            // This value holds the sender.
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Stop;

    #[tokio::test]
    async fn the_first_reason_stays_and_everybody_hears_of_it() {
        let stop = Stop::default();
        assert!(stop.asked().is_none());
        let waiting = tokio::spawn({
            let stop = stop.clone();
            async move { stop.wait().await }
        });
        stop.now("spending", "first");
        stop.now("approval", "second");
        assert_eq!(waiting.await.unwrap().detail, "first");
        assert_eq!(stop.wait().await.limit, "spending");
    }

    #[tokio::test]
    async fn each_warning_is_told_once_and_in_order() {
        let stop = Stop::default();
        let waiting = tokio::spawn({
            let stop = stop.clone();
            async move { [stop.warning().await, stop.warning().await] }
        });
        stop.warn("80%".into());
        stop.warn("of the month, too".into());
        assert_eq!(waiting.await.unwrap(), ["80%", "of the month, too"]);
        for n in 0..100 {
            stop.warn(n.to_string());
        }
        assert_eq!(stop.warning().await, "0");
        assert!(stop.asked().is_none());
    }
}
