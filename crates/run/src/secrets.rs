//! Which names a bundle refers to, and where their values come from on this machine.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use ringfence_bundle::{Manifest, SecretName, Snapshot, Transport};
use ringfence_policy::{FsScopes, MachinePolicy, Principal, Ruleset};
use ringfence_secrets::{
    Answer, Chain, DotEnv, Environment, Found, Keychain, Reach, Reached, Source, Varlock,
};
use ringfence_trust::{Error as Trust, Store, TrustedBundle};
use serde::Serialize;

use crate::Error;
use crate::plan::{real, scopes};

/// The sources that lie in the project: asked after trust, and no sooner.
const OF_THE_PROJECT: [&str; 2] = ["varlock", ".env"];

/// The one order of sources: environment, varlock, keychain, `.env`. Without a trusted bundle
/// nothing of the project is among them. Asks nobody.
pub(crate) fn chain(
    home: &Path,
    trusted: Option<&TrustedBundle>,
    ruleset: &Ruleset,
    scopes: &FsScopes,
    path: Option<OsString>,
) -> Chain {
    let mut sources: Vec<Box<dyn Source>> = vec![Box::new(Environment)];
    let keychain = Box::new(Keychain::new(home));
    match trusted {
        None => sources.push(keychain),
        Some(bundle) => {
            let project = &bundle.snapshot().project;
            let reach = reach(project, ruleset, scopes);
            sources.push(Box::new(Varlock::new(project, path, Arc::clone(&reach))));
            sources.push(keychain);
            sources.push(Box::new(DotEnv::new(project, reach)));
        }
    }
    Chain::new(sources)
}

/// What the agent can do with a file of the project folder. It could have made one in an earlier run
/// even where it is denied: a pattern with a wildcard denies what is there when a run starts, a plain
/// name denies always.
fn reach(project: &Path, ruleset: &Ruleset, scopes: &FsScopes) -> Reach {
    let (project, ruleset, scopes) = (project.to_owned(), ruleset.clone(), scopes.clone());
    let never = ruleset.denied_literals();
    Arc::new(move |name| {
        let file = Path::new(name);
        let absolute = project.join(name);
        let denied = ruleset.denied(name, &absolute.to_string_lossy()).is_some();
        let shown = scopes
            .read_inside
            .as_ref()
            .is_none_or(|inside| inside.iter().any(|scope| file.starts_with(scope)));
        Reached {
            read: shown && !denied,
            write: scopes.write.iter().any(|scope| file.starts_with(scope))
                && !never.iter().any(|denied| file.starts_with(denied)),
        }
    })
}

/// Who refers to which name: servers by headers and environment, the agent by `credentials`.
pub(crate) fn wanted(manifest: &Manifest) -> Vec<(Principal, SecretName)> {
    let mut found: Vec<(Principal, SecretName)> = Vec::new();
    let mut add = |who: &Principal, name: SecretName| {
        let pair = (who.clone(), name);
        if !found.contains(&pair) {
            found.push(pair);
        }
    };
    for name in &manifest.sandbox.credentials {
        add(&Principal::Agent, name.clone());
    }
    for (id, server) in &manifest.servers {
        let who = Principal::Server(id.clone());
        let templates = match &server.transport {
            Transport::Http { headers, .. } => headers,
            Transport::Stdio { env, .. } => env,
        };
        for name in templates.values().flat_map(ringfence_bundle::Template::references) {
            add(&who, name);
        }
    }
    found
}

/// What became of looking for a name. Four different things.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It has a value.
    Found,
    /// No source has it.
    Missing,
    /// A source could not say.
    Failed,
    /// Policy refuses it to everyone who refers to it; no source was asked.
    Denied,
}

/// Who refers to a name, and whether they may have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Wanting {
    /// `agent` or a server's name.
    pub principal: String,
    /// Whether policy lets them.
    pub allowed: bool,
    /// By which rule.
    pub rule: String,
}

/// What one source said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Answered {
    /// The source.
    pub source: &'static str,
    /// What it said.
    pub state: State,
    /// Why it failed.
    pub detail: Option<String>,
}

/// One name. Never a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SecretRow {
    /// The name.
    pub name: String,
    /// Who refers to it; empty when nobody does.
    pub wanted_by: Vec<Wanting>,
    /// What a run would find.
    pub state: State,
    /// The source that has it, or failed.
    pub source: Option<&'static str>,
    /// Why it failed.
    pub detail: Option<String>,
    /// Every source by itself, in their order; only when one name was asked for.
    pub sources: Vec<Answered>,
}

/// The names of a bundle, and where each would come from. Version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Survey {
    /// Format of this document.
    pub version: u32,
    /// Whether the bundle is trusted.
    pub trusted: bool,
    /// Why not.
    pub untrusted: Option<String>,
    /// Sources that were not asked because it is not.
    pub not_asked: Vec<&'static str>,
    /// The names, in order.
    pub secrets: Vec<SecretRow>,
}

/// Looks for every name that a project's bundle refers to, or for the one that is given, and says
/// where each would come from. Of an untrusted bundle nothing but manifest and lock is read.
///
/// # Errors
/// [`Error`]: the bundle or the machine's rules are not valid.
pub fn survey(
    project: &Path,
    home: &Path,
    user_home: &Path,
    path: Option<OsString>,
    only: Option<&SecretName>,
) -> Result<Survey, Error> {
    let (home, user_home) = (real(home), real(user_home));
    let snapshot = Snapshot::read(project)?;
    let manifest = snapshot.manifest.clone();
    let ruleset = Ruleset::compile(&MachinePolicy::load(&home)?, &manifest)?;
    let scopes = scopes(&ruleset, &user_home, &home)?;
    let (trusted, untrusted) = match Store::new(&home).check(snapshot) {
        Ok(bundle) => (Some(bundle), None),
        Err(
            no @ (Trust::Untrusted { .. }
            | Trust::Changed { .. }
            | Trust::Drifted(_)
            | Trust::Unlocked(_)),
        ) => (None, Some(no.to_string())),
        Err(error) => return Err(error.into()),
    };
    let chain = chain(&home, trusted.as_ref(), &ruleset, &scopes, path);
    let mut names: BTreeMap<SecretName, Vec<Wanting>> = BTreeMap::new();
    names.extend(only.map(|name| (name.clone(), Vec::new())));
    for (who, name) in wanted(&manifest) {
        if only.is_none_or(|only| *only == name) {
            let decision = ruleset.secret(&who, &name);
            names.entry(name).or_default().push(Wanting {
                principal: who.to_string(),
                allowed: decision.allowed,
                rule: decision.rule,
            });
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| Error::Io { path: "(runtime)".into(), source })?;
    let secrets = runtime.block_on(async {
        let mut rows = Vec::new();
        for (name, wanted_by) in names {
            rows.push(row(&chain, &name, wanted_by, only.is_some()).await);
        }
        rows
    });
    let not_asked = if trusted.is_some() { Vec::new() } else { OF_THE_PROJECT.to_vec() };
    Ok(Survey { version: 1, trusted: trusted.is_some(), untrusted, not_asked, secrets })
}

async fn row(chain: &Chain, name: &SecretName, wanted_by: Vec<Wanting>, each: bool) -> SecretRow {
    let denied = !wanted_by.is_empty() && wanted_by.iter().all(|wanting| !wanting.allowed);
    let (state, source, detail) = if denied {
        (State::Denied, None, None)
    } else {
        match chain.find(name).await {
            Found::Value { source, .. } => (State::Found, Some(source), None),
            Found::Nowhere { .. } => (State::Missing, None, None),
            Found::Failed { source, reason } => (State::Failed, Some(source), Some(reason)),
        }
    };
    let answers = if each && !denied { chain.each(name).await } else { Vec::new() };
    let sources = answers
        .into_iter()
        .map(|(source, answer)| {
            let (state, detail) = match answer {
                Answer::Found(_) => (State::Found, None),
                Answer::Missing => (State::Missing, None),
                Answer::Failed(why) => (State::Failed, Some(why)),
            };
            Answered { source, state, detail }
        })
        .collect();
    SecretRow { name: name.to_string(), wanted_by, state, source, detail, sources }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ringfence_bundle::parse_manifest;
    use ringfence_policy::{MachinePolicy, Ruleset};

    use super::{reach, wanted};

    #[test]
    fn what_an_agent_could_have_made_is_no_source() {
        let reached = |rules: &str, name: &str| {
            let text = format!("version = 1\n[policy.filesystem]\n{rules}\n");
            let (manifest, _) = parse_manifest("m".as_ref(), &text, None).unwrap();
            let ruleset = Ruleset::compile(&MachinePolicy::default(), &manifest).unwrap();
            let (home, state) = (Path::new("/home/x"), Path::new("/home/x/.ringfence"));
            let scopes = ruleset.scopes(home, state).unwrap();
            reach("/p".as_ref(), &ruleset, &scopes)(name)
        };
        let writable = |write: &str, deny: &str, name: &str| {
            reached(&format!("write = {write}\ndeny = {deny}"), name).write
        };
        assert!(writable("[\"**\"]", "[]", ".env"), "control");
        assert!(writable("[\".env\"]", "[]", ".env"), "control");
        assert!(!writable("[\"src/**\"]", "[]", ".env"));
        assert!(!writable("[\"**\"]", "[\".env\"]", ".env"));
        // It denies what is there when a run starts, and not what is made during one.
        assert!(writable("[\"**\"]", "[\".env*\"]", ".env"));
        assert!(writable("[\"**\"]", "[\".env\"]", ".env.local"));
        assert!(writable("[\"**\", \"!.env\"]", "[]", ".env"));

        assert!(reached("deny = []", ".env").read, "control");
        assert!(!reached("deny = [\".env*\"]", ".env.local").read);
        assert!(!reached("read = [\"src/**\"]", ".env").read);
        assert!(reached("read = [\"**\"]", ".env").read);
    }

    #[test]
    fn everything_that_refers_to_a_name_is_found_once() {
        let text = "version = 1\n[sandbox]\ncredentials = [\"C\"]\n[servers.h]\ntype = \"http\"\n\
                    url = \"https://a.example\"\nheaders = { Authorization = \"Bearer ${A}\", X = \"${A}${B}\" }\n\
                    [servers.s]\ntype = \"stdio\"\ncommand = \"x\"\nenv = { Y = \"${A}\" }\n";
        let (manifest, _) = parse_manifest("m".as_ref(), text, None).unwrap();
        let found: Vec<String> =
            wanted(&manifest).iter().map(|(who, name)| format!("{who}:{name}")).collect();
        assert_eq!(found, ["agent:C", "h:A", "h:B", "s:A"]);
    }
}
