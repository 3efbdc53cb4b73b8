//! What is spelled out for another engine decides as `Ruleset::egress` does, by a reader of its own.

use proptest::prelude::*;
use ringfence_bundle::Host;

use super::generate::{host, machine, manifest, port, principal};
use crate::{EgressPattern, EgressPorts, EgressRules, Ruleset};

/// A glob, by trying everything.
fn fits(glob: &[u8], text: &[u8]) -> bool {
    match (glob, text) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => {
            fits(rest, text) || text.split_first().is_some_and(|(_, text)| fits(glob, text))
        }
        ([b'?', rest @ ..], [_, text @ ..]) => fits(rest, text),
        ([a, rest @ ..], [b, text @ ..]) => a == b && fits(rest, text),
        _ => false,
    }
}

fn allows(rules: &EgressRules, host: &Host, port: u16) -> bool {
    let name = host.to_string();
    let names = |pattern: &EgressPattern| {
        let port = match pattern.ports {
            EgressPorts::Any => true,
            EgressPorts::Web => port == 80 || port == 443,
            EgressPorts::One(one) => one == port,
        };
        port && fits(pattern.glob.as_bytes(), name.as_bytes())
    };
    !rules.never.contains(host)
        && rules.lists.iter().all(|list| {
            let (denials, grants): (Vec<_>, Vec<_>) =
                list.patterns.iter().partition(|pattern| pattern.denies);
            let granted = grants.iter().any(|pattern| names(pattern));
            let denied = denials.iter().any(|pattern| names(pattern));
            !denied && (granted || (grants.is_empty() && !denials.is_empty()))
        })
}

proptest! {
    #[test]
    fn spelled_out_the_rules_are_the_same(
        machine in machine(),
        manifest in manifest(),
        who in principal(),
        host in host(),
        port in port(),
    ) {
        let Ok(ruleset) = Ruleset::compile(&machine, &manifest) else { return Ok(()) };
        let expected = ruleset.egress(&who, &host, port).allowed;
        prop_assert_eq!(allows(&ruleset.egress_rules(&who), &host, port), expected);
    }
}
