//! Makes a [`Card`] of what was read. Pure: takes what was read, reads nothing.

use std::collections::{BTreeMap, BTreeSet};

use ringfence_bundle::{
    HostRule, Kind, Lock, Manifest, Pattern, SecretName, Server, Source, Template, Transport, Who,
    floor, named, unpinned,
};
use serde::Serialize;

use super::asked::Review;
use super::card::{
    AgentCard, ApprovalCard, Card, Content, HookCard, Limit, NetworkCard, ProgramCard, SecretCard,
    ServerCard, Tools,
};
use super::tools::tools_card;

/// Builds the card of a review.
pub(super) fn card(review: &Review) -> Card {
    let snapshot = review.snapshot();
    let manifest = &snapshot.manifest;
    let ours = project_files(review);
    let mut others = unpinned(manifest, &snapshot.project);
    let program = |it: &ringfence_bundle::Program| ProgramCard {
        whose: whose(&it.who),
        path: it.path.to_string_lossy().into_owned(),
        digest: it.digest.to_string(),
    };
    let files = &manifest.policy.filesystem;
    let agent = manifest.agent.as_ref().map(|agent| AgentCard {
        name: agent.name.clone(),
        version: agent.version.clone(),
        owner: agent.owner.clone(),
        did: agent.did.clone(),
        capabilities: manifest.capabilities.iter().map(word).collect(),
    });
    let require = manifest.approvals.require.iter().map(|rule| {
        let server = rule.server.as_ref().map_or("*", |server| server.as_str());
        let when = rule.when.as_ref().map(|when| format!(", only when {}", json(when)));
        let when = when.unwrap_or_default();
        format!("{server}/{}{when}", rule.tool)
    });
    let peers = manifest.a2a.iter().flat_map(|a2a| &a2a.peers);
    let pins = snapshot.lock.iter().flat_map(|lock| &lock.pins);
    let floor = floor(&manifest.capabilities);
    Card {
        project: snapshot.project.to_string_lossy().into_owned(),
        state: review.state(),
        consent_digest: snapshot.consent_digest().to_string(),
        review_digest: review.digest().to_string(),
        granted: review.granted().map(|grant| grant.at.clone()),
        agent,
        isolation: manifest.sandbox.isolation.map_or(floor, |declared| declared.max(floor)),
        image: manifest.sandbox.image.clone(),
        command: manifest.sandbox.command.clone(),
        keeps_state_of: manifest.sandbox.state.as_ref().map(ToString::to_string),
        network: NetworkCard {
            egress: manifest.sandbox.network.egress,
            hosts: hosts(&manifest.sandbox.network.allowed_hosts),
        },
        agent_unpinned: others.remove(&Who::Agent).into_iter().flatten().collect(),
        agent_files: ours.get("agent").cloned().unwrap_or_default(),
        servers: manifest
            .servers
            .iter()
            .map(|(name, it)| {
                let files = ours.get(&format!("server {name}")).cloned().unwrap_or_default();
                let card = server(name.as_str(), it, files, snapshot.lock.as_ref());
                let others = others.remove(&Who::Server(name.to_string()));
                ServerCard { unpinned_files: others.into_iter().flatten().collect(), ..card }
            })
            .collect(),
        programs: review.programs().found.iter().map(program).collect(),
        missing_programs: review
            .programs()
            .missing
            .iter()
            .map(|(who, reason)| (whose(who), reason.clone()))
            .collect(),
        moved_programs: review.moved(),
        secrets: secrets(manifest),
        credentials: manifest.sandbox.credentials.iter().map(ToString::to_string).collect(),
        read: files.read.as_deref().map(patterns),
        write: files.write.as_deref().map(patterns),
        deny: patterns(&files.deny),
        narrowed: narrowed(manifest),
        limits: limits(manifest),
        approvals: ApprovalCard {
            on_timeout: manifest.approvals.on_timeout,
            require: require.collect(),
            approvers: manifest
                .approvals
                .notify
                .iter()
                .flat_map(|notify| notify.approver_keys.iter().cloned())
                .collect(),
        },
        listen: manifest.a2a.as_ref().and_then(|a2a| a2a.listen.clone()),
        peers: peers.map(|it| (it.name.to_string(), it.did.clone(), it.endpoint.clone())).collect(),
        hooks: manifest
            .hooks
            .iter()
            .map(|(name, hook)| HookCard {
                name: name.to_string(),
                event: hook.event.clone(),
                command: hook.command.clone(),
            })
            .collect(),
        content: content(manifest, review.unseen_origins()),
        pins: pins.cloned().collect(),
        drift: review.drift().to_vec(),
        locked: snapshot.lock.is_some(),
    }
}

fn whose(who: &Who) -> String {
    match who {
        Who::Agent => "agent".to_owned(),
        Who::Server(name) => format!("server {name}"),
        Who::Hook(name) => format!("hook {name}"),
    }
}

/// By whom they are run: files of the project, as far as the lock pins them.
fn project_files(review: &Review) -> BTreeMap<String, Vec<String>> {
    let snapshot = review.snapshot();
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (who, path, _) in named(&snapshot.manifest, &snapshot.project) {
        let Ok(real) = path.canonicalize() else { continue };
        let inside = real.strip_prefix(&snapshot.project).ok().and_then(|path| path.to_str());
        let pinned = |path: &&str| {
            let lock = snapshot.lock.as_ref();
            lock.is_some_and(|lock| lock.pin(Kind::Program, path).is_some())
        };
        if let Some(path) = inside.filter(pinned) {
            found.entry(whose(&who)).or_default().push(path.to_owned());
        }
    }
    found
}

fn server(name: &str, server: &Server, files: Vec<String>, lock: Option<&Lock>) -> ServerCard {
    let tools = match server.tools.as_deref() {
        None => Tools::All,
        Some([]) => Tools::None,
        Some(tools) => Tools::Only(tools.iter().map(ToString::to_string).collect()),
    };
    let mut card = ServerCard {
        name: name.to_owned(),
        command: None,
        url: None,
        headers: BTreeMap::new(),
        env: BTreeMap::new(),
        hosts: Vec::new(),
        tools,
        methods: server.methods.clone(),
        project_files: files,
        unpinned_files: Vec::new(),
        pinned_tools: lock.and_then(|lock| lock.tools_of(name)).map(tools_card),
    };
    match &server.transport {
        Transport::Http { url, headers } => {
            card.url = Some(url.clone());
            card.headers = texts(headers);
        }
        Transport::Stdio { command, args, env, allowed_hosts } => {
            let args = args.iter().map(|arg| arg.as_str().to_owned());
            card.command = Some(std::iter::once(command.clone()).chain(args).collect());
            card.env = texts(env);
            card.hosts = hosts(allowed_hosts);
        }
    }
    card
}

fn texts(templates: &BTreeMap<String, Template>) -> BTreeMap<String, String> {
    templates.iter().map(|(name, value)| (name.clone(), value.as_str().to_owned())).collect()
}

/// Every name that is resolved, and who gets the value.
fn secrets(manifest: &Manifest) -> Vec<SecretCard> {
    let mut goes_to: BTreeMap<SecretName, BTreeSet<String>> = BTreeMap::new();
    let mut add = |template: &Template, to: String| {
        for name in template.references() {
            goes_to.entry(name).or_default().insert(to.clone());
        }
    };
    for (name, server) in &manifest.servers {
        match &server.transport {
            Transport::Http { headers, .. } => {
                for (header, value) in headers {
                    add(value, format!("server {name}, in header {header}"));
                }
            }
            Transport::Stdio { args, env, .. } => {
                for (variable, value) in env {
                    add(value, format!("server {name}, in variable {variable}"));
                }
                for arg in args {
                    add(arg, format!("server {name}, in its arguments"));
                }
            }
        }
    }
    for name in &manifest.sandbox.credentials {
        let to = "the agent, inside its sandbox".to_owned();
        goes_to.entry(name.clone()).or_default().insert(to);
    }
    for notify in &manifest.approvals.notify {
        let to = format!("Ringfence itself, as the address of a {}", notify.channel);
        goes_to.entry(notify.url_ref.clone()).or_default().insert(to);
    }
    let card = |(name, goes_to): (SecretName, BTreeSet<String>)| SecretCard {
        name: name.to_string(),
        goes_to: goes_to.into_iter().collect(),
    };
    goes_to.into_iter().map(card).collect()
}

fn limits(manifest: &Manifest) -> Vec<Limit> {
    let sandbox = &manifest.sandbox;
    let spending = &manifest.spending;
    let number = |number: Option<u64>| number.map(|number| number.to_string());
    let rows = [
        ("limits.max_duration_seconds", number(manifest.limits.max_duration_seconds)),
        ("sandbox.memory_mb", number(sandbox.memory_mb)),
        ("sandbox.disk_mb", number(sandbox.disk_mb)),
        ("sandbox.pids", number(sandbox.pids)),
        ("sandbox.cpus", sandbox.cpus.map(|cpus| cpus.to_string())),
        ("spending.max_per_run_usd", spending.max_per_run_usd.clone()),
        ("spending.max_per_day_usd", spending.max_per_day_usd.clone()),
        ("spending.max_per_month_usd", spending.max_per_month_usd.clone()),
    ];
    rows.into_iter()
        .filter_map(|(key, value)| Some(Limit { key: key.to_owned(), value: value? }))
        .collect()
}

fn content(manifest: &Manifest, unseen: &[(Kind, String)]) -> Vec<Content> {
    let mut content = Vec::new();
    let mut add = |kind: &'static str, name: String, source: String| {
        let unseen_origin = unseen.iter().any(|(its, id)| its.as_str() == kind && *id == name);
        content.push(Content { kind, name, source, unseen_origin });
    };
    for (name, it) in &manifest.instructions {
        add("instruction", name.to_string(), source(it));
    }
    for (name, it) in &manifest.skills {
        add("skill", name.to_string(), source(it));
    }
    for (name, it) in &manifest.workflows {
        add("workflow", name.to_string(), source(it));
    }
    for (name, it) in &manifest.extensions {
        add(
            "extension",
            name.to_string(),
            format!("{} (code for {})", source(&it.source), it.target),
        );
    }
    for (name, settings) in &manifest.settings {
        for (key, value) in settings {
            add("setting", format!("{name}.{key}"), value.to_string());
        }
    }
    content
}

fn narrowed(manifest: &Manifest) -> Vec<(String, Vec<String>)> {
    let policy = &manifest.policy;
    [("tools", &policy.tools), ("egress", &policy.egress), ("secrets", &policy.secrets)]
        .into_iter()
        .flat_map(|(table, lists)| {
            let row = move |(name, list): (&String, &Vec<Pattern>)| {
                (format!("{table} of {name}"), patterns(list))
            };
            lists.iter().map(row)
        })
        .collect()
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| error.to_string())
}

fn source(source: &Source) -> String {
    match source {
        Source::Path { path } => path.clone(),
        Source::Git { git, rev, subpath } => {
            let below = subpath.as_ref().map(|it| format!(", folder {it}")).unwrap_or_default();
            format!("git {git} at {rev}{below}")
        }
        Source::Library { library } => format!("library {library}"),
    }
}

fn hosts(rules: &[HostRule]) -> Vec<String> {
    rules.iter().map(HostRule::described).collect()
}

fn patterns(patterns: &[Pattern]) -> Vec<String> {
    patterns.iter().map(|pattern| pattern.text.clone()).collect()
}

/// A value of a fixed list, as the manifest spells it.
pub(super) fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        other => other.map(|value| value.to_string()).unwrap_or_default(),
    }
}
