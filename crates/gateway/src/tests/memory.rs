//! A journal in memory, which can be full.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringfence_record::{Event, Outcome};
use tokio::sync::Notify;

use crate::permit::Evidence;
use crate::seams::{Boxed, Journal};

#[derive(Default)]
pub(super) struct Memory {
    pub(super) events: Mutex<Vec<Event>>,
    pub(super) full: AtomicBool,
    /// Nobody hears that an event is durable.
    pub(super) stuck: AtomicBool,
    pub(super) noted: Notify,
}

impl Memory {
    fn add(&self, event: Event) -> Result<(), String> {
        if self.full.load(Ordering::SeqCst) {
            return Err("no space left on device".into());
        }
        self.events.lock().unwrap().push(event);
        self.noted.notify_one();
        Ok(())
    }

    /// Method or tool, outcome and the last step, of every decision but the gateway's own listings.
    pub(super) fn decisions(&self) -> Vec<(String, Outcome, String, String)> {
        let events = self.events.lock().unwrap();
        let decided = events.iter().filter_map(|event| match event {
            Event::CallDecided { principal, method, tool, outcome, steps, .. }
                if principal == "agent" =>
            {
                let last = steps.last().unwrap();
                let what = tool.clone().unwrap_or_else(|| method.clone());
                Some((what, *outcome, last.check.clone(), last.rule.clone()))
            }
            _ => None,
        });
        decided.collect()
    }

    pub(super) fn settled(&self) -> Vec<(u64, String, String)> {
        let events = self.events.lock().unwrap();
        let settled = events.iter().filter_map(|event| match event {
            Event::CallSettled { call, result, detail, .. } => {
                Some((*call, result.clone(), detail.clone().unwrap_or_default()))
            }
            _ => None,
        });
        settled.collect()
    }

    pub(super) async fn until(&self, done: impl Fn(&Self) -> bool) {
        let wait = async {
            while !done(self) {
                self.noted.notified().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), wait).await.expect("it is in the record");
    }
}

impl Journal for Memory {
    fn commit(&self, event: Event) -> Boxed<'_, Result<Evidence, String>> {
        Box::pin(async move {
            self.add(event)?;
            if self.stuck.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            Ok(Evidence::test())
        })
    }
    fn note(&self, event: Event) -> Result<(), String> {
        self.add(event)
    }
}
