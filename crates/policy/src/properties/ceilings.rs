//! Invariant 2, the ceilings of `[policy]`. **Never delete or weaken these tests.**

use std::collections::BTreeMap;

use proptest::prelude::*;
use ringfence_bundle::{
    A2a, Capability, HostRule, Id, Isolation, Manifest, Notify, OnTimeout, Peer, SecretName,
    Server, Transport, parse_usd,
};

use crate::{Ceilings, MachinePolicy, Principal, Ruleset};

fn isolation() -> impl Strategy<Value = Option<Isolation>> {
    prop::option::of(prop::sample::select(vec![
        Isolation::None,
        Isolation::Process,
        Isolation::Network,
        Isolation::Kernel,
    ]))
}

fn usd() -> impl Strategy<Value = Option<String>> {
    prop::option::of("(0|[1-9][0-9]{0,2})(\\.[0-9]{1,8})?")
}

fn keys() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("z6Mk[AB]", 0..3)
}

fn database() -> HostRule {
    HostRule::opaque("db.example.com:5432").unwrap()
}

prop_compose! {
    fn ceilings()(
        isolation in isolation(),
        (max_per_run_usd, max_per_day_usd, max_per_month_usd) in (usd(), usd(), usd()),
        max_duration_seconds in prop::option::of(1u64..5),
        allow_proceed in any::<Option<bool>>(),
        approver_keys in prop::option::of(keys()),
        peers in prop::option::of(keys()),
        require_pinned_tools in any::<Option<bool>>(),
        allow_execute in any::<Option<bool>>(),
        allow_opaque in any::<Option<bool>>(),
    ) -> Ceilings {
        Ceilings {
            isolation,
            credentials: None,
            max_per_run_usd,
            max_per_day_usd,
            max_per_month_usd,
            max_duration_seconds,
            allow_proceed,
            approver_keys,
            peers,
            require_pinned_tools,
            allow_execute,
            allow_opaque,
        }
    }
}

prop_compose! {
    fn manifest()(
        isolation in isolation(),
        capabilities in prop::collection::vec(
            prop::sample::select(vec![Capability::ReadFile, Capability::SendEmail]), 0..2),
        (run, day, month) in (usd(), usd(), usd()),
        duration in prop::option::of(1u64..5),
        on_timeout in prop::sample::select(vec![OnTimeout::Deny, OnTimeout::Proceed]),
        approver_keys in keys(),
        dids in keys(),
        opaque in any::<(bool, bool)>(),
    ) -> Manifest {
        let mut manifest = Manifest { capabilities, ..Manifest::default() };
        manifest.sandbox.isolation = isolation;
        manifest.spending.max_per_run_usd = run;
        manifest.spending.max_per_day_usd = day;
        manifest.spending.max_per_month_usd = month;
        manifest.limits.max_duration_seconds = duration;
        manifest.approvals.on_timeout = on_timeout;
        if opaque.0 {
            manifest.sandbox.network.allowed_hosts = vec![database()];
        }
        if opaque.1 {
            let transport = Transport::Stdio {
                command: "x".into(),
                args: Vec::new(),
                env: BTreeMap::new(),
                allowed_hosts: vec![database()],
            };
            let server = Server { transport, tools: None, methods: Vec::new(), pricing: None };
            manifest.servers.insert(Id::parse("s").unwrap(), server);
        }
        let url_ref = SecretName::parse("URL").unwrap();
        let channel = "webhook".to_owned();
        manifest.approvals.notify.push(Notify { channel, url_ref, approver_keys });
        let peer = |did: String| Peer {
            name: Id::parse("p").unwrap(),
            did,
            endpoint: "https://p.example".into(),
        };
        manifest.a2a = Some(A2a { listen: None, peers: dids.into_iter().map(peer).collect() });
        manifest
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    // Invariant 2. Never delete or weaken.
    #[test]
    fn ceilings_hold(ceilings in ceilings(), manifest in manifest()) {
        let machine = MachinePolicy { ceilings, ..MachinePolicy::default() };
        let limits = &machine.ceilings;
        let inside = |list: &Option<Vec<String>>, key: &String| {
            list.as_ref().is_none_or(|list| list.contains(key))
        };
        let keys = &manifest.approvals.notify[0].approver_keys;
        let peers = &manifest.a2a.as_ref().unwrap().peers;
        let fits = keys.iter().all(|key| inside(&limits.approver_keys, key))
            && peers.iter().all(|peer| inside(&limits.peers, &peer.did))
            && !(manifest.approvals.on_timeout == OnTimeout::Proceed
                && limits.allow_proceed == Some(false))
            && !(limits.allow_opaque == Some(false)
                && (!manifest.servers.is_empty()
                    || !manifest.sandbox.network.allowed_hosts.is_empty()));
        let result = Ruleset::compile(&machine, &manifest);
        prop_assert_eq!(result.is_ok(), fits);
        let Ok(rules) = result else { return Ok(()) };

        prop_assert!(rules.required_isolation() >= limits.isolation.unwrap_or_default());
        prop_assert!(
            rules.required_isolation() >= manifest.sandbox.isolation.unwrap_or_default()
        );
        let seconds = rules.max_duration().map(|d| d.as_secs());
        for bound in [limits.max_duration_seconds, manifest.limits.max_duration_seconds] {
            prop_assert!(bound.is_none_or(|bound| seconds.is_some_and(|s| s <= bound)));
        }
        let caps = rules.caps();
        let spending = &manifest.spending;
        for (cap, bounds) in [
            (&caps.per_run_usd, [&limits.max_per_run_usd, &spending.max_per_run_usd]),
            (&caps.per_day_usd, [&limits.max_per_day_usd, &spending.max_per_day_usd]),
            (&caps.per_month_usd, [&limits.max_per_month_usd, &spending.max_per_month_usd]),
        ] {
            for bound in bounds.into_iter().flatten() {
                let cap = cap.as_deref().and_then(parse_usd);
                prop_assert!(cap.is_some_and(|cap| cap <= parse_usd(bound).unwrap()));
            }
            prop_assert_eq!(cap.is_none(), bounds.iter().all(|bound| bound.is_none()));
        }
        prop_assert!(!rules.may_proceed_on_timeout() || limits.allow_proceed != Some(false));
        prop_assert!(!rules.may_execute() || limits.allow_execute != Some(false));
        for who in [Principal::Agent, Principal::Server(Id::parse("s").unwrap())] {
            let host = database().host;
            let opaque = rules.is_opaque(&who, &host, 5432);
            prop_assert!(!opaque || limits.allow_opaque != Some(false));
            // Never of another port, and never of what is not allowed.
            prop_assert!(!rules.is_opaque(&who, &host, 443));
            prop_assert!(!opaque || rules.egress(&who, &host, 5432).allowed);
        }
        prop_assert!(rules.requires_pinned_tools() || limits.require_pinned_tools != Some(true));
        for key in ["z6MkA", "z6MkB"].map(String::from) {
            prop_assert!(!rules.is_approver(&key) || inside(&limits.approver_keys, &key));
            prop_assert!(!rules.is_peer(&key) || inside(&limits.peers, &key));
        }
    }
}
