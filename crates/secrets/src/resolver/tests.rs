use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::Mutex;

use ringfence_bundle::{Id, Manifest, Pattern, SecretName, Server, Transport};
use ringfence_policy::{MachinePolicy, Principal, Ruleset};
use ringfence_record::{Event, Outcome};

use super::look_up;
use crate::{Environment, Error, ProcessEnvironment, Secret};

#[derive(Debug, Default)]
struct Fixed {
    values: BTreeMap<&'static str, Vec<u8>>,
    asked: Mutex<Vec<String>>,
}

impl Environment for Fixed {
    fn var(&self, name: &SecretName) -> Option<OsString> {
        self.asked.lock().unwrap().push(name.to_string());
        self.values.get(name.as_str()).cloned().map(OsString::from_vec)
    }
}

fn ruleset() -> Ruleset {
    let mut manifest = Manifest::default();
    let transport = Transport::Stdio {
        command: "server".into(),
        args: Vec::new(),
        env: BTreeMap::new(),
        allowed_hosts: Vec::new(),
    };
    let server = Server { transport, tools: None, methods: Vec::new(), pricing: None };
    manifest.servers.insert(Id::parse("bank").unwrap(), server);
    let pattern = Pattern { text: "BANK_*".into(), line: 9 };
    manifest.policy.secrets.insert("bank".into(), vec![pattern]);
    Ruleset::compile(&MachinePolicy::default(), &manifest).unwrap()
}

fn ask(environment: &dyn Environment, name: &str) -> (Outcome, String, Result<Secret, Error>) {
    let who = Principal::Server(Id::parse("bank").unwrap());
    let secret = SecretName::parse(name).unwrap();
    let (event, result) = look_up(&ruleset(), environment, &who, &secret);
    let Event::SecretAccessed { principal, name: recorded, outcome, detail } = event else {
        panic!("{event:?}")
    };
    assert_eq!((&*principal, &*recorded), ("bank", name));
    (outcome, detail, result)
}

#[test]
fn found_missing_not_text_and_denied_are_kept_apart() {
    let mut environment = Fixed::default();
    environment.values.insert("BANK_TOKEN", b"s3cret-value".to_vec());
    environment.values.insert("BANK_BYTES", b"\xff\xfe".to_vec());
    environment.values.insert("OTHER_TOKEN", b"not-for-the-bank".to_vec());

    let (outcome, detail, result) = ask(&environment, "BANK_TOKEN");
    assert_eq!((outcome, &*detail), (Outcome::Allowed, "environment"));
    let secret = result.unwrap();
    assert_eq!(secret.expose(), "s3cret-value");
    assert_eq!(format!("{secret:?}"), "Secret(…)");

    let (_, detail, result) = ask(&environment, "BANK_BYTES");
    assert_eq!(detail, "environment: not valid UTF-8");
    assert!(matches!(result, Err(Error::NotText { .. })));

    let (_, detail, result) = ask(&environment, "BANK_NONE");
    assert_eq!(detail, "environment: not set");
    assert!(matches!(result, Err(Error::Missing { .. })));

    let (outcome, detail, result) = ask(&environment, "OTHER_TOKEN");
    assert_eq!(outcome, Outcome::Refused);
    assert_eq!(detail, "ringfence.toml:9 [policy.secrets] bank: not listed");
    assert!(matches!(result, Err(Error::Denied { .. })));

    let asked = environment.asked.into_inner().unwrap();
    assert_eq!(asked, ["BANK_TOKEN", "BANK_BYTES", "BANK_NONE"], "a refused name is not looked up");
}

#[test]
fn the_process_environment_is_the_real_one() {
    let path = SecretName::parse("PATH").unwrap();
    assert_eq!(ProcessEnvironment.var(&path), std::env::var_os("PATH"));
    assert!(ProcessEnvironment.var(&path).is_some());
    assert_eq!(ProcessEnvironment.var(&SecretName::parse("RINGFENCE_NOT_SET_1").unwrap()), None);
}
