//! The run's emergency brake: a decision can end the run that it is part of.

use std::sync::Arc;

use tokio::sync::watch;

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
pub struct Stop(Arc<watch::Sender<Option<Halt>>>);

impl Default for Stop {
    fn default() -> Self {
        Self(Arc::new(watch::channel(None).0))
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
}
