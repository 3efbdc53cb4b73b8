use proptest::prelude::*;

use super::*;

fn usd(units: u64) -> Usd {
    Usd::from_units(units)
}

fn cap(units: u64) -> Option<Cap> {
    Some(Cap { amount: usd(units), rule: "max".to_owned() })
}

#[test]
fn the_call_that_crosses_is_the_last_one_through() {
    let caps = Caps { per_run: cap(100), ..Caps::default() };
    let mut scopes = Scopes::default();
    let Admission::Admitted { amount, .. } = admit(&caps, &mut scopes, Some(usd(60))) else {
        panic!()
    };
    assert_eq!(amount, usd(60));
    assert_eq!(charge(&caps, &mut scopes, amount, usd(90)), (None, None));
    // 90 is below the cap, so one more goes, though it may cross.
    assert!(matches!(admit(&caps, &mut scopes, Some(usd(60))), Admission::Admitted { .. }));
    // And not a second one beside it.
    assert!(matches!(admit(&caps, &mut scopes, Some(usd(1))), Admission::Held { .. }));
    let (stop, _) = charge(&caps, &mut scopes, usd(60), usd(60));
    assert!(stop.is_some());
    assert!(matches!(admit(&caps, &mut scopes, Some(usd(0))), Admission::Spent { .. }));
}

#[test]
fn without_a_price_of_a_call_all_that_is_left_is_set_aside() {
    let caps = Caps { per_run: cap(100), per_day: cap(70), ..Caps::default() };
    let mut scopes = Scopes::default();
    scopes[1].spent = usd(20);
    let Admission::Admitted { amount, .. } = admit(&caps, &mut scopes, None) else { panic!() };
    assert_eq!(amount, usd(50), "the tightest cap");
    assert!(matches!(admit(&caps, &mut scopes, None), Admission::Held { .. }));
    charge(&caps, &mut scopes, amount, usd(1));
    assert!(
        matches!(admit(&caps, &mut scopes, None), Admission::Admitted { amount, .. } if amount == usd(49))
    );
}

#[test]
fn a_warning_comes_once_for_each_scope() {
    let caps =
        Caps { per_run: cap(100), per_day: cap(200), warn_at_percent: Some(80), ..Caps::default() };
    let mut scopes = Scopes::default();
    let mut warnings = Vec::new();
    for _ in 0..9 {
        let (_, warning) = charge(&caps, &mut scopes, usd(0), usd(20));
        warnings.push(warning.is_some());
    }
    assert_eq!(warnings, [false, false, false, true, false, false, false, true, false]);
}

#[test]
fn a_ledger_that_can_hold_no_more_admits_nothing() {
    let caps =
        Caps { per_run: Some(Cap { amount: Usd::MAX, rule: String::new() }), ..Caps::default() };
    let mut scopes = Scopes::default();
    scopes[2].spent = Usd::MAX;
    assert!(matches!(admit(&caps, &mut scopes, Some(usd(1))), Admission::Held { .. }));
}

#[derive(Debug, Clone)]
enum Step {
    Ask(Option<u64>),
    Settle(usize, u64),
    Release(usize),
    Lose(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => proptest::option::of(0_u64..40).prop_map(Step::Ask),
        3 => (0_usize..8, 0_u64..60).prop_map(|(at, cost)| Step::Settle(at, cost)),
        1 => (0_usize..8).prop_map(Step::Release),
        1 => (0_usize..8).prop_map(Step::Lose),
    ]
}

proptest! {
    /// Against plain sums: money is where it was put, and whatever the order, the last call that was
    /// admitted found every cap unreached.
    #[test]
    fn admission_keeps_to_the_caps(
        run in proptest::option::of(1_u64..300),
        day in proptest::option::of(1_u64..300),
        month in proptest::option::of(1_u64..300),
        steps in proptest::collection::vec(step(), 0..80),
    ) {
        let caps = Caps {
            per_run: run.and_then(cap),
            per_day: day.and_then(cap),
            per_month: month.and_then(cap),
            warn_at_percent: None,
        };
        let least = [run, day, month].into_iter().flatten().min();
        let mut scopes = Scopes::default();
        let (mut spent, mut open): (u64, Vec<u64>) = (0, Vec::new());
        let mut lost = 0_u64;
        for step in steps {
            let used = spent + lost + open.iter().sum::<u64>();
            match step {
                // Without caps nobody asks for all that is left.
                Step::Ask(None) if least.is_none() => {}
                Step::Ask(wanted) => match admit(&caps, &mut scopes, wanted.map(usd)) {
                    Admission::Admitted { amount, .. } => {
                        prop_assert!(least.is_none_or(|cap| used < cap), "{used} {least:?}");
                        if let Some(wanted) = wanted {
                            prop_assert_eq!(amount.units(), wanted);
                        } else {
                            prop_assert_eq!(Some(amount.units()), least.map(|cap| cap - used));
                        }
                        open.push(amount.units());
                    }
                    Admission::Held { .. } => {
                        prop_assert!(least.is_some_and(|cap| used >= cap && spent < cap));
                    }
                    Admission::Spent { .. } => {
                        prop_assert!(least.is_some_and(|cap| spent >= cap));
                    }
                },
                Step::Settle(at, cost) if at < open.len() => {
                    let reserved = open.remove(at);
                    let (stop, _) = charge(&caps, &mut scopes, usd(reserved), usd(cost));
                    spent += cost;
                    prop_assert_eq!(stop.is_some(), least.is_some_and(|cap| spent >= cap));
                }
                Step::Release(at) if at < open.len() => release(&mut scopes, usd(open.remove(at))),
                // A process that dies: nobody gives back what it had set aside.
                Step::Lose(at) if at < open.len() => lost += open.remove(at),
                _ => {}
            }
            for scope in &scopes {
                prop_assert_eq!(scope.spent.units(), spent);
                prop_assert_eq!(scope.reserved.units(), lost + open.iter().sum::<u64>());
            }
        }
    }
}
