use std::collections::BTreeSet;

use super::{Restrictions, allowed, filters, refused};

#[test]
fn every_combination_compiles() {
    let mut sizes = BTreeSet::new();
    for (own_affinity, own_group_only) in [(true, false), (false, false), (true, true)] {
        let filters = filters(Restrictions { own_affinity, own_group_only }).unwrap();
        // The kernel takes at most 4096 instructions a filter.
        assert!(filters.iter().all(|filter| (5..4096).contains(&filter.len())));
        sizes.insert(filters.iter().map(Vec::len).sum::<usize>());
    }
    assert_eq!(sizes.len(), 3, "each restriction adds something");
}

#[test]
fn nothing_is_both_allowed_and_refused() {
    let allowed: BTreeSet<i64> = allowed::ALLOWED.iter().copied().flatten().copied().collect();
    let refused: BTreeSet<i64> = refused::REFUSED.iter().copied().flatten().copied().collect();
    assert_eq!(allowed.intersection(&refused).count(), 0);
    assert_eq!(allowed.len(), allowed::ALLOWED.iter().map(|group| group.len()).sum::<usize>());
}
