//! Invariant 2, the four dimensions: whatever a bundle says, nothing is allowed that the machine's
//! own lists refuse. **Never delete or weaken these tests.**

use std::path::Path;

use proptest::prelude::*;
use ringfence_bundle::Pattern;

use super::{generate, naive};
use crate::{Principal, Ruleset};

/// Whether a machine's list of subtrees has this path.
fn lists(list: &[Pattern], path: &str) -> bool {
    list.iter().any(|p| Path::new(path).starts_with(p.text.trim_end_matches("/**")))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    // Invariant 2. Never delete or weaken.
    #[test]
    fn effective_is_within_the_machine(
        mut machine in generate::machine(),
        // Seldom, for it refuses whole what is opaque.
        allow_opaque in prop::sample::select(vec![None, None, None, Some(true), Some(false)]),
        mut manifest in generate::manifest(),
        who in generate::principal(),
        name in generate::tool(),
        host in generate::host(),
        port in generate::port(),
        variable in generate::secret(),
        asked in any::<bool>(),
        path in generate::path(),
    ) {
        machine.ceilings.allow_opaque = allow_opaque;
        if asked {
            manifest.sandbox.credentials = vec![variable.clone()];
        }
        let Ok(rules) = Ruleset::compile(&machine, &manifest) else {
            // Refused whole: nothing is allowed.
            return Ok(());
        };
        if let Principal::Server(id) = &who {
            prop_assert!(
                !rules.tool(id, &name).allowed
                    || naive::layer_tool(&machine.tables, id.as_str(), &name)
            );
        }
        // The agent's own egress too, under its key.
        for who in [&who, &Principal::Agent] {
            prop_assert!(
                !rules.egress(who, &host, port).allowed
                    || naive::layer_egress(&machine.tables, who.key(), &host, port)
            );
            prop_assert!(
                !rules.is_opaque(who, &host, port) || machine.ceilings.allow_opaque != Some(false)
            );
            prop_assert!(
                !rules.secret(who, &variable).allowed
                    || naive::layer_secret(&machine.tables, who.key(), &variable)
            );
        }
        if let Some(ceiling) = &machine.ceilings.credentials {
            let lines: Vec<Pattern> =
                ceiling.iter().map(|text| Pattern { text: text.clone(), line: 1 }).collect();
            prop_assert!(
                !rules.secret(&Principal::Agent, &variable).allowed
                    || naive::list(crate::pattern::Kind::Secret, &lines, variable.as_str(), 0)
            );
        }
        let files = &machine.tables.filesystem;
        if naive::layer_denied(files, &path) {
            let denied = rules.denied(&path, &format!("/p/{path}")).is_some();
            prop_assert!(denied);
        }
        let scopes = rules.scopes("/home/u".as_ref(), "/home/u/.ringfence".as_ref()).unwrap();
        let (readable, written) = naive::effective(&rules, &path);
        prop_assert!(!written || naive::layer_write(files, &path));
        prop_assert!(!readable || naive::layer_read(files, &path));
        // Nothing is read by being writable.
        prop_assert!(!written || naive::layer_read(files, &path));
        for path in &scopes.read_outside {
            let path = path.to_str().unwrap();
            prop_assert!(files.read.as_ref().is_none_or(|list| lists(list, path)));
            prop_assert!(rules.denied("", path).is_none());
        }
    }
}
