use std::collections::BTreeMap;

use ringfence_bundle::{
    A2a, Capability, HostRule, Id, Isolation, Manifest, Notify, OnTimeout, Pattern, Peer,
    SecretName, Server, Transport,
};
use serde_json::Value;

use crate::{Error, MachinePolicy, Principal, Ruleset};

fn example() -> (MachinePolicy, Manifest) {
    let text = "[policy]\nisolation = \"network\"\ncredentials = [\"DEV_*\"]\n\
        max_per_run_usd = \"0.50\"\nmax_duration_seconds = 60\nallow_proceed = false\n\
        approver_keys = [\"z6MkA\"]\npeers = [\"did:key:z6MkP\"]\n\
        [policy.tools]\n\"*\" = [\"*\", \"!*_delete\"]\n\
        [policy.filesystem]\ndeny = [\".env*\"]\n";
    let machine = MachinePolicy::parse("machine.toml".as_ref(), text).unwrap();
    let mut manifest = Manifest::default();
    let url = "https://mcp.example/mcp".to_owned();
    let transport = Transport::Http { url, headers: BTreeMap::new() };
    let server = Server { transport, tools: None, methods: Vec::new(), pricing: None };
    manifest.servers.insert(Id::parse("bank").unwrap(), server);
    manifest.limits.max_duration_seconds = Some(300);
    manifest.spending.max_per_run_usd = Some("0.5".into());
    manifest.spending.max_per_day_usd = Some("5".into());
    (machine, manifest)
}

#[test]
fn ceilings_fold() {
    let (machine, mut manifest) = example();
    let rules = Ruleset::compile(&machine, &manifest).unwrap();
    assert_eq!(rules.required_isolation(), Isolation::Network, "raised to the machine's");
    assert_eq!(rules.max_duration().unwrap().as_secs(), 60);
    assert_eq!(rules.caps().per_run_usd.as_deref(), Some("0.50"));
    assert_eq!(rules.caps().per_day_usd.as_deref(), Some("5"));
    assert_eq!(rules.caps().per_month_usd, None);
    assert!(rules.may_execute() && !rules.requires_pinned_tools());
    manifest.capabilities = vec![Capability::ReadFile, Capability::ExternalTransfer];
    manifest.limits.max_duration_seconds = Some(10);
    let rules = Ruleset::compile(&machine, &manifest).unwrap();
    assert_eq!(rules.required_isolation(), Isolation::Kernel, "the floor is stronger");
    manifest.sandbox.isolation = Some(Isolation::Process);
    let rules = Ruleset::compile(&machine, &manifest).unwrap();
    assert_eq!(rules.required_isolation(), Isolation::Kernel, "also than what is declared");
    assert_eq!(rules.max_duration().unwrap().as_secs(), 10);
}

#[test]
fn asking_for_more_names_both_places_and_what_to_type() {
    let (machine, mut manifest) = example();
    manifest.sandbox.credentials =
        vec![SecretName::parse("DEV_KEY").unwrap(), SecretName::parse("PROD_KEY").unwrap()];
    manifest.approvals.on_timeout = OnTimeout::Proceed;
    manifest.approvals.notify.push(Notify {
        channel: "webhook".into(),
        url_ref: SecretName::parse("URL").unwrap(),
        approver_keys: vec!["z6MkA".into(), "z6MkB".into()],
    });
    let peer = |name: &str, did: &str| Peer {
        name: Id::parse(name).unwrap(),
        did: did.into(),
        endpoint: format!("https://{name}.example:9443"),
    };
    manifest.a2a = Some(A2a {
        listen: None,
        peers: vec![peer("good", "did:key:z6MkP"), peer("bad", "did:key:z6MkQ")],
    });
    let Err(Error::Exceeds(found)) = Ruleset::compile(&machine, &manifest) else { panic!() };
    let about: Vec<&str> = found.iter().map(|d| d.message.as_str()).collect();
    assert_eq!(about.len(), 4, "{about:?}");
    for (message, parts) in about.iter().zip([
        ["PROD_KEY", "machine.toml:3"],
        ["proceed", "machine.toml:6"],
        ["z6MkB", "machine.toml:7"],
        ["z6MkQ", "machine.toml:8"],
    ]) {
        for part in parts.into_iter().chain([".ringfence/ringfence.toml"]) {
            assert!(message.contains(part), "{message} lacks {part}");
        }
    }
    assert!(found.iter().all(|d| d.next.is_some() && d.help.is_some()));
    // The same bundle on a machine without ceilings compiles.
    assert!(Ruleset::compile(&MachinePolicy::default(), &manifest).is_ok());
}

#[test]
fn survives_its_serialised_form() {
    let (machine, manifest) = example();
    let rules = Ruleset::compile(&machine, &manifest).unwrap();
    let again = Ruleset::from_json(&rules.to_json()).unwrap();
    assert_eq!(again, rules);
    assert_eq!(again.digest(), rules.digest());
    assert_eq!(Ruleset::from_json(&serde_json::to_vec(&rules).unwrap()).unwrap(), rules);
    assert!(rules.digest().starts_with("sha256:") && rules.digest().len() == 71);
    let other = Ruleset::compile(&MachinePolicy::default(), &manifest).unwrap();
    assert_ne!(other.digest(), rules.digest());
}

#[test]
fn a_foreign_ruleset_is_refused() {
    let (machine, manifest) = example();
    let good: Value =
        serde_json::from_slice(&Ruleset::compile(&machine, &manifest).unwrap().to_json()).unwrap();
    let read = |change: &dyn Fn(&mut Value)| {
        let mut value = good.clone();
        change(&mut value);
        Ruleset::from_json(&serde_json::to_vec(&value).unwrap())
    };
    assert!(read(&|_| ()).is_ok());
    let newer = read(&|v| {
        v["version"] = 3.into();
        v["what_version_3_adds"] = true.into();
    });
    assert!(matches!(newer, Err(Error::Newer { found: 3, known: 2 })));
    assert!(matches!(read(&|v| v["version"] = 1.into()), Err(Error::Ruleset(_))));
    assert!(matches!(read(&|v| v["version"] = 0.into()), Err(Error::Ruleset(_))));
    assert!(matches!(read(&|v| v["more"] = 1.into()), Err(Error::Ruleset(_))));
    assert!(matches!(read(&|v| v["machine"]["more"] = 1.into()), Err(Error::Ruleset(_))));
    assert!(matches!(read(&|v| v["ceilings"]["more"] = 1.into()), Err(Error::Ruleset(_))));
    assert!(matches!(
        read(&|v| v["machine"]["tools"]["*"][0]["text"] = "".into()),
        Err(Error::Ruleset(_))
    ));
    assert!(matches!(Ruleset::from_json(b"{}"), Err(Error::Ruleset(_))));
    assert!(matches!(Ruleset::from_json(b"\xff"), Err(Error::Ruleset(_))));
}

#[test]
fn an_opaque_host_survives_and_is_bound_by_the_machine() {
    let (mut machine, mut manifest) = example();
    let database = HostRule::opaque("db.example.com:5432").unwrap();
    let (host, who) = (database.host.clone(), Principal::Agent);
    manifest.sandbox.network.allowed_hosts = vec![database];
    let rules = Ruleset::compile(&machine, &manifest).unwrap();
    assert!(rules.is_opaque(&who, &host, 5432) && rules.egress(&who, &host, 5432).allowed);
    let mut value: Value = serde_json::from_slice(&rules.to_json()).unwrap();
    let written = serde_json::json!([{ "host": "db.example.com:5432", "opaque": true }]);
    assert_eq!(value["declared"]["allowed_hosts"], written);
    assert_eq!(Ruleset::from_json(&rules.to_json()).unwrap(), rules);
    // A ruleset made by hand is bound by its own ceiling, and by what can be opaque at all.
    value["ceilings"]["allow_opaque"] = Value::Bool(false);
    let bound = Ruleset::from_json(&serde_json::to_vec(&value).unwrap()).unwrap();
    assert!(!bound.is_opaque(&who, &host, 5432));
    assert!(bound.egress(&who, &host, 5432).allowed, "looked at, as any other");
    for bad in ["db.example.com", ".example.com:5432"] {
        value["declared"]["allowed_hosts"][0]["host"] = bad.into();
        assert!(Ruleset::from_json(&serde_json::to_vec(&value).unwrap()).is_err(), "{bad}");
    }
    machine.ceilings.allow_opaque = Some(false);
    let Err(Error::Exceeds(found)) = Ruleset::compile(&machine, &manifest) else { panic!() };
    assert_eq!(found.len(), 1);
    assert!(found[0].message.contains("db.example.com:5432"), "{found:?}");
}

#[test]
fn a_bundles_bad_pattern_is_a_finding() {
    let (machine, mut manifest) = example();
    let bad = Pattern { text: "a.example:0".into(), line: 12 };
    manifest.policy.egress.insert("agent".into(), vec![bad]);
    let Err(Error::Exceeds(found)) = Ruleset::compile(&machine, &manifest) else { panic!() };
    assert!(found[0].message.starts_with("ringfence.toml:12 [policy.egress]"), "{found:?}");
}

#[test]
fn a_server_is_not_called_agent() {
    let (machine, mut manifest) = example();
    let server = manifest.servers.remove(&Id::parse("bank").unwrap()).unwrap();
    manifest.servers.insert(Id::parse("agent").unwrap(), server);
    assert!(matches!(Ruleset::compile(&machine, &manifest), Err(Error::Exceeds(_))));
}

#[test]
fn a_ruleset_made_by_hand_is_bound_by_its_own_ceilings() {
    let (machine, mut manifest) = example();
    manifest.sandbox.credentials = vec![SecretName::parse("DEV_KEY").unwrap()];
    let rules = Ruleset::compile(&machine, &manifest).unwrap();
    let mut value: Value = serde_json::from_slice(&rules.to_json()).unwrap();
    let declared = &mut value["declared"];
    declared["credentials"] = serde_json::json!(["DEV_KEY", "PROD_KEY"]);
    declared["proceed_on_timeout"] = Value::Bool(true);
    declared["approver_keys"] = serde_json::json!(["z6MkA", "z6MkB"]);
    declared["peers"] = serde_json::json!(["did:key:z6MkP", "did:key:z6MkQ"]);
    let rules = Ruleset::from_json(&serde_json::to_vec(&value).unwrap()).unwrap();
    let secret = |name: &str| rules.secret(&Principal::Agent, &SecretName::parse(name).unwrap());
    assert!(secret("DEV_KEY").allowed && !secret("PROD_KEY").allowed);
    assert!(!rules.may_proceed_on_timeout());
    assert!(rules.is_approver("z6MkA") && !rules.is_approver("z6MkB"));
    assert!(rules.is_peer("did:key:z6MkP") && !rules.is_peer("did:key:z6MkQ"));
    value["ceilings"]["allow_proceed"] = Value::Bool(true);
    let rules = Ruleset::from_json(&serde_json::to_vec(&value).unwrap()).unwrap();
    assert!(rules.may_proceed_on_timeout(), "control");
}
