//! A home with a key and a log, for tests.

use std::path::Path;

use ringfence_identity::Signer;

use crate::{Event, MachineLog, Outcome, Recorder, Report, RunId, Step, VerifyOptions, verify};

pub(crate) struct Home {
    folder: tempfile::TempDir,
    pub(crate) log: MachineLog,
}

impl Home {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let signer = Signer::machine(folder.path()).unwrap();
        let log = MachineLog::open(folder.path(), signer).unwrap();
        Self { folder, log }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn signer(&self) -> Signer {
        Signer::machine(self.path()).unwrap()
    }

    pub(crate) fn recorder(&self) -> Recorder {
        Recorder::create(self.path(), &RunId::fresh(), self.signer(), &self.log).unwrap()
    }

    pub(crate) fn verify(&self) -> Report {
        verify(self.path(), &VerifyOptions::default()).unwrap()
    }
}

/// Events of several kinds, each its own.
pub(crate) fn event(n: u64) -> Event {
    let step = |check: &str| Step {
        check: check.to_owned(),
        outcome: Outcome::Allowed,
        rule: "machine.toml:12 [policy.egress] \"*\"".to_owned(),
    };
    match n % 3 {
        0 => Event::EgressDecided {
            principal: "agent".to_owned(),
            connection: n,
            method: "CONNECT".to_owned(),
            host: "api.example.com".to_owned(),
            port: 443,
            outcome: Outcome::Refused,
            steps: vec![step("name"), step("port")],
            address: None,
        },
        1 => {
            Event::EgressClosed { connection: n, sent: 7, received: 9, reason: "closed".to_owned() }
        }
        _ => Event::SandboxStarted {
            principal: format!("server {n} \"\u{1f600}\u{202e}\"\n"),
            mode: None,
        },
    }
}
