use std::path::Path;

use ringfence_bundle::{Host, Id, Isolation, Manifest, SecretName, parse_manifest};

use super::{Preset, presets};
use crate::{Error, MachinePolicy, Principal, Ruleset, lint};

/// A bundle that asks for everything that a ceiling does not refuse whole.
const BUNDLE: &str = r#"version = 1
[sandbox.network]
egress = "open"
[servers.search]
type = "stdio"
command = "x"
allowed_hosts = ["api.x.com"]
[policy.filesystem]
write = ["**"]
"#;

struct Case {
    rules: Ruleset,
}

fn manifest(more: &str) -> Manifest {
    parse_manifest(Path::new("ringfence.toml"), &format!("{BUNDLE}{more}"), None).unwrap().0
}

fn policy(name: &str) -> MachinePolicy {
    let preset = Preset::named(name).unwrap();
    MachinePolicy::parse(Path::new("machine.toml"), preset.text).unwrap()
}

impl Case {
    fn new(name: &str) -> Self {
        Self { rules: Ruleset::compile(&policy(name), &manifest("")).unwrap() }
    }

    fn tool(&self, name: &str) -> bool {
        self.rules.tool(&Id::parse("search").unwrap(), name).allowed
    }

    fn host(&self, port: u16) -> bool {
        self.rules.egress(&Principal::Agent, &Host::parse("a.com").unwrap(), port).allowed
    }

    fn secret(&self, name: &str) -> bool {
        let who = Principal::Server(Id::parse("search").unwrap());
        self.rules.secret(&who, &SecretName::parse(name).unwrap()).allowed
    }

    fn read(&self, path: &str) -> bool {
        let scopes = self.scopes();
        let read =
            scopes.read_inside.is_none_or(|all| all.iter().any(|p| Path::new(path).starts_with(p)));
        read && self.rules.denied(path, &format!("/p/{path}")).is_none()
    }

    fn write(&self, path: &str) -> bool {
        let (scopes, path) = (self.scopes(), Path::new(path));
        scopes.write.iter().any(|p| path.starts_with(p))
            && !scopes.read_only.iter().any(|p| path.starts_with(p))
    }

    fn scopes(&self) -> crate::FsScopes {
        self.rules.scopes("/home/u".as_ref(), "/home/u/.ringfence".as_ref()).unwrap()
    }
}

#[test]
fn each_is_valid_teaches_and_holds_no_dead_rule() {
    for preset in presets() {
        let name = preset.name;
        let machine = policy(name);
        assert!(preset.text.starts_with("# "), "{name}");
        assert!(
            preset.summary().ends_with(['.', 's', 't']) && preset.summary().len() > 20,
            "{name}"
        );
        let comments =
            preset.text.lines().filter(|line| line.trim_start().starts_with('#')).count();
        assert!(comments >= 10, "{name} teaches");
        let homes = (Path::new("/home/u"), Path::new("/home/u/.ringfence"));
        assert_eq!(lint(&machine, None, homes.0, homes.1), [], "{name}");
        // The default bundle may run under it.
        assert!(Ruleset::compile(&machine, &Manifest::default()).is_ok(), "{name}");
    }
    assert_eq!(Preset::named("nonsense"), None);
}

#[test]
fn compatible_lets_the_ordinary_through_and_keeps_keys() {
    let case = Case::new("compatible");
    assert!(case.tool("row_delete") && case.tool("find"));
    assert!(case.host(443) && case.host(80));
    assert!(case.secret("PROD_KEY"));
    assert!(case.write("src/a.rs") && case.read(".env"));
    assert!(!case.read("keys/id_ed25519") && !case.read(".ssh/config") && !case.read(".netrc"));
    assert_eq!(case.rules.required_isolation(), Isolation::None);
    assert!(!case.rules.may_proceed_on_timeout());
}

#[test]
fn developer_lets_work_through_and_keeps_production() {
    let case = Case::new("developer");
    assert!(case.tool("find") && !case.tool("row_delete") && !case.tool("drop_table"));
    assert!(case.host(443) && !case.host(80));
    assert!(case.secret("SEARCH_KEY"));
    for name in ["PROD_KEY", "MY_PROD_DB", "AWS_SECRET_ACCESS_KEY", "SSH_KEY"] {
        assert!(!case.secret(name), "{name}");
    }
    assert!(case.write("src/a.rs") && !case.write(".github/workflows/x.yml"));
    assert!(case.read("src/a.rs") && case.read(".github/workflows/x.yml"));
    assert!(!case.read(".env.local") && !case.read("tls/server.pem"));
    assert_eq!(case.rules.required_isolation(), Isolation::Network);
    assert_eq!(case.rules.caps().per_run_usd.as_deref(), Some("10.00"));
}

#[test]
fn ci_keeps_the_jobs_own_credentials() {
    let case = Case::new("ci");
    assert!(case.tool("find") && case.host(443) && !case.host(80));
    assert!(case.secret("SEARCH_KEY"));
    for name in ["GITHUB_TOKEN", "CI_JOB_TOKEN", "ACTIONS_RUNTIME_TOKEN", "DEPLOY_KEY"] {
        assert!(!case.secret(name), "{name}");
    }
    assert!(case.write("target/a") && !case.write(".gitlab-ci.yml") && !case.write(".github/x"));
    assert!(case.read("src/a.rs") && !case.read(".npmrc"));
    assert!(case.rules.requires_pinned_tools() && !case.rules.may_execute());
    assert_eq!(case.rules.max_duration().map(|d| d.as_secs()), Some(3600));
    let credentials = |name: &str| {
        let asks = format!("[sandbox]\ncredentials = [{name:?}]\n");
        let asks = asks + &BUNDLE["version = 1\n".len()..];
        let text = format!("version = 1\n{asks}");
        let (manifest, _) = parse_manifest(Path::new("r.toml"), &text, None).unwrap();
        Ruleset::compile(&policy("ci"), &manifest)
    };
    assert!(credentials("SEARCH_KEY").is_ok());
    assert!(matches!(credentials("GITHUB_TOKEN"), Err(Error::Exceeds(_))));
}

#[test]
fn locked_down_lets_nothing_through_but_reading() {
    let case = Case::new("locked-down");
    assert!(!case.tool("find") && !case.host(443) && !case.secret("SEARCH_KEY"));
    assert!(case.read("src/a.rs") && !case.write("src/a.rs") && !case.read(".env"));
    assert!(case.rules.requires_pinned_tools() && !case.rules.may_execute());
    assert_eq!(case.rules.caps().per_day_usd.as_deref(), Some("0"));
    // Its own comment says how to open it.
    let opened = Preset::named("locked-down")
        .unwrap()
        .text
        .replace(
            "[policy.tools]\n\"*\" = [\"!*\"]",
            "[policy.tools]\n\"*\" = [\"find\", \"read_page\"]",
        )
        .replace(
            "[policy.egress]\n\"*\" = [\"!*\"]",
            "[policy.egress]\n\"*\" = [\"api.example.com:443\"]",
        );
    let opened = MachinePolicy::parse(Path::new("machine.toml"), &opened).unwrap();
    let rules = Ruleset::compile(&opened, &manifest("")).unwrap();
    let search = Id::parse("search").unwrap();
    assert!(rules.tool(&search, "find").allowed && !rules.tool(&search, "other").allowed);
    let host = |name| rules.egress(&Principal::Agent, &Host::parse(name).unwrap(), 443).allowed;
    assert!(host("api.example.com") && !host("other.example.com"));
}
