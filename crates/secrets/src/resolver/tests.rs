use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ringfence_bundle::{Id, Manifest, Pattern, SecretName, Server, Transport};
use ringfence_policy::{MachinePolicy, Principal, Ruleset};
use ringfence_record::{Event, Outcome};
use zeroize::Zeroizing;

use super::look_up;
use crate::{Answer, Asked, Chain, Environment, Error, Secret, Source};

/// Fixed answers, and what was asked for.
#[derive(Debug)]
struct Fixed {
    name: &'static str,
    values: BTreeMap<&'static str, Result<Vec<u8>, &'static str>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Source for Fixed {
    fn name(&self) -> &'static str {
        self.name
    }
    fn find<'a>(&'a self, name: &'a SecretName) -> Asked<'a> {
        self.asked.lock().unwrap().push(format!("{}:{name}", self.name));
        let answer = match self.values.get(name.as_str()) {
            None => Answer::Missing,
            Some(Ok(bytes)) => Answer::found(Zeroizing::new(bytes.clone())),
            Some(Err(why)) => Answer::Failed((*why).to_owned()),
        };
        Box::pin(std::future::ready(answer))
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

async fn ask(chain: &Chain, name: &str) -> (Outcome, String, Result<Secret, Error>) {
    let who = Principal::Server(Id::parse("bank").unwrap());
    let secret = SecretName::parse(name).unwrap();
    let (event, result) = look_up(&ruleset(), chain, &who, &secret).await;
    let Event::SecretAccessed { principal, name: recorded, outcome, detail } = event else {
        panic!("{event:?}")
    };
    assert_eq!((&*principal, &*recorded), ("bank", name));
    (outcome, detail, result)
}

#[tokio::test]
async fn found_missing_failed_and_denied_are_kept_apart() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let source = |name, values: &[(&'static str, Result<&[u8], &'static str>)]| {
        let values = values.iter().map(|(k, v)| (*k, v.map(<[u8]>::to_vec))).collect();
        Box::new(Fixed { name, values, asked: Arc::clone(&asked) }) as Box<dyn Source>
    };
    let chain = Chain::new(vec![
        source(
            "first",
            &[
                ("BANK_TOKEN", Ok(b"s3cret-value")),
                ("BANK_BYTES", Ok(b"\xff\xfe")),
                ("BANK_NUL", Ok(b"a\0b")),
                ("BANK_EMPTY", Ok(b"")),
                ("OTHER_TOKEN", Ok(b"not-for-the-bank")),
            ],
        ),
        source("second", &[("BANK_LOCKED", Err("it is locked")), ("BANK_TOKEN", Ok(b"weaker"))]),
        source("third", &[("BANK_LOCKED", Ok(b"weaker")), ("BANK_LAST", Ok(b"last-value"))]),
    ]);

    let (outcome, detail, result) = ask(&chain, "BANK_TOKEN").await;
    assert_eq!((outcome, &*detail), (Outcome::Allowed, "first"));
    let secret = result.unwrap();
    assert_eq!(secret.expose(), "s3cret-value");
    assert_eq!(format!("{secret:?}"), "Secret(…)");
    assert_eq!(std::mem::take(&mut *asked.lock().unwrap()), ["first:BANK_TOKEN"]);

    let (_, detail, result) = ask(&chain, "BANK_LAST").await;
    assert_eq!((&*detail, result.unwrap().expose()), ("third", "last-value"));

    for (name, why) in [
        ("BANK_BYTES", "it is not valid UTF-8"),
        ("BANK_NUL", "it holds a NUL byte"),
        ("BANK_EMPTY", "it is empty"),
    ] {
        let (outcome, detail, result) = ask(&chain, name).await;
        assert_eq!((outcome, detail), (Outcome::Refused, format!("failed: first: {why}")));
        assert!(matches!(result, Err(Error::Failed { origin: "first", .. })));
    }

    asked.lock().unwrap().clear();
    let (outcome, detail, result) = ask(&chain, "BANK_LOCKED").await;
    assert_eq!((outcome, &*detail), (Outcome::Refused, "failed: second: it is locked"));
    let error = result.unwrap_err();
    assert_eq!(error.next().as_deref(), Some("ringfence secret where BANK_LOCKED"));
    assert!(error.to_string().contains("server `bank`"), "{error}");
    assert_eq!(
        std::mem::take(&mut *asked.lock().unwrap()),
        ["first:BANK_LOCKED", "second:BANK_LOCKED"],
        "no weaker source stands in for one that failed"
    );

    let (outcome, detail, result) = ask(&chain, "BANK_NONE").await;
    assert_eq!((outcome, &*detail), (Outcome::Refused, "missing: asked first, second, third"));
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Missing { .. }));
    assert_eq!(error.next().as_deref(), Some("ringfence secret set BANK_NONE"));

    asked.lock().unwrap().clear();
    let (outcome, detail, result) = ask(&chain, "OTHER_TOKEN").await;
    assert_eq!(outcome, Outcome::Refused);
    assert_eq!(detail, "ringfence.toml:9 [policy.secrets] bank: not listed");
    assert!(matches!(result, Err(Error::Denied { .. })));
    assert!(asked.lock().unwrap().is_empty(), "a refused name is not looked up");
}

#[tokio::test]
async fn a_value_is_bounded() {
    let long = Zeroizing::new(vec![b'x'; crate::MAX_BYTES]);
    assert!(Secret::from_bytes(long).is_ok(), "control");
    let long = Zeroizing::new(vec![b'x'; crate::MAX_BYTES + 1]);
    assert_eq!(Secret::from_bytes(long).err(), Some("it is longer than 64 KiB"));
}

#[tokio::test]
async fn the_environment_is_the_real_one() {
    let path = SecretName::parse("PATH").unwrap();
    let Answer::Found(value) = Environment.find(&path).await else { panic!("PATH is set") };
    assert_eq!(Some(value.expose()), std::env::var("PATH").ok().as_deref());
    let none = SecretName::parse("RINGFENCE_NOT_SET_1").unwrap();
    assert!(matches!(Environment.find(&none).await, Answer::Missing));
}
