use std::collections::VecDeque;
use std::path::Path;

use super::{MAX_QUEUED, Refused, Shared, Waiter};

#[test]
fn what_waits_when_the_queue_overruns_is_still_written() {
    let shared = Shared::new();
    for n in 0..MAX_QUEUED {
        assert!(shared.push(n.to_string().into_bytes(), Waiter::Nobody).is_ok());
    }
    let refused = shared.push(b"one more".to_vec(), Waiter::Nobody);
    assert!(matches!(refused, Err(Refused::Full(..))));
    shared.overrun(Path::new("events.jsonl"));
    // It is told at once, and nothing is taken any more.
    let told = shared.failures().borrow().as_ref().unwrap().error().to_string();
    assert!(told.contains("events.jsonl"), "{told}");
    assert!(matches!(shared.push(b"x".to_vec(), Waiter::Nobody), Err(Refused::Closed)));
    let mut group = VecDeque::new();
    assert!(shared.take(&mut group, &mut 0).is_some());
    assert_eq!(group.len(), MAX_QUEUED);
    assert!(shared.take(&mut group, &mut 0).is_none());
}
