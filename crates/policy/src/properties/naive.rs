//! The rules said again, as plainly as they can be: no index, no shared code but the glob and the
//! form of a pattern. What is compiled must say the same.

use proptest::prelude::*;
use ringfence_bundle::{
    Egress, Filesystem, Host, Manifest, Pattern, PolicyTables, SecretName, Transport,
};

use super::generate;
use crate::pattern::{Kind, NamePattern};
use crate::{MachinePolicy, Principal, Ruleset, glob};

/// Does this list allow this name?
pub(super) fn list(kind: Kind, list: &[Pattern], name: &str, port: u16) -> bool {
    let patterns: Vec<NamePattern> =
        list.iter().map(|p| NamePattern::parse(kind, &p.text).unwrap()).collect();
    let matches = |p: &&NamePattern| p.ports.cover(port) && glob::matches(&p.glob, name);
    let denied = patterns.iter().filter(|p| p.negative).any(|p| matches(&p));
    let listed = patterns.iter().filter(|p| !p.negative).any(|p| matches(&p));
    let only_denials = !patterns.is_empty() && patterns.iter().all(|p| p.negative);
    !denied && (listed || only_denials)
}

/// Does this table allow it, for this key and for everyone?
fn table(
    kind: Kind,
    table: &std::collections::BTreeMap<String, Vec<Pattern>>,
    key: &str,
    name: &str,
    port: u16,
) -> bool {
    ["*", key].iter().filter_map(|key| table.get(*key)).all(|l| list(kind, l, name, port))
}

pub(super) fn layer_tool(tables: &PolicyTables, server: &str, tool: &str) -> bool {
    table(Kind::Tool, &tables.tools, server, tool, 0)
}

pub(super) fn layer_egress(tables: &PolicyTables, who: &str, host: &Host, port: u16) -> bool {
    table(Kind::Egress, &tables.egress, who, &host.to_string(), port)
}

pub(super) fn layer_secret(tables: &PolicyTables, who: &str, name: &SecretName) -> bool {
    table(Kind::Secret, &tables.secrets, who, name.as_str(), 0)
}

/// Does a layer's `deny` cover this relative path?
pub(super) fn layer_denied(files: &Filesystem, path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    files.deny.iter().any(|pattern| {
        let text = pattern.text.trim_end_matches("/**");
        if text.bytes().all(|b| b == b'*') {
            return true;
        }
        let matches = |candidate: &str| {
            crate::path_glob::naive(
                &text.chars().collect::<Vec<_>>(),
                &candidate.chars().collect::<Vec<_>>(),
                true,
            )
        };
        (1..=parts.len()).any(|n| matches(&parts[..n].join("/")) || matches(parts[n - 1]))
    })
}

/// Whether one list of folders and files lets a relative path through. `None`, a list that is not
/// there, adds no bound.
fn layer_scope(list: Option<&Vec<Pattern>>, path: &str) -> bool {
    let Some(list) = list else { return true };
    let under = |p: &Pattern| {
        let folder = p.text.trim_start_matches('!').trim_end_matches("/**");
        path == folder || path.starts_with(&format!("{folder}/"))
    };
    let (no, yes): (Vec<_>, Vec<_>) = list.iter().partition(|p| p.text.starts_with('!'));
    !no.iter().any(|p| under(p))
        && (yes.iter().any(|p| under(p)) || (yes.is_empty() && !no.is_empty()))
}

/// Whether the machine's list alone lets it through.
pub(crate) fn layer_read(files: &Filesystem, path: &str) -> bool {
    layer_scope(files.read.as_ref(), path)
}

/// As [`layer_read`], for writing.
pub(crate) fn layer_write(files: &Filesystem, path: &str) -> bool {
    layer_scope(files.write.as_ref(), path)
}

/// Whether a list of a layer grants at all: one of denials alone does not.
pub(crate) fn grants(files: &Filesystem) -> bool {
    files.write.as_ref().is_some_and(|list| {
        list.is_empty() || list.iter().any(|pattern| !pattern.text.starts_with('!'))
    })
}

/// What may be read of the project, and what written.
fn scopes(machine: &MachinePolicy, manifest: &Manifest, path: &str) -> (bool, bool) {
    let layers = [&machine.tables.filesystem, &manifest.policy.filesystem];
    let read = layers.iter().all(|files| layer_read(files, path));
    let write = read
        && layers.iter().all(|files| layer_write(files, path))
        && layers.iter().any(|files| grants(files));
    (read, write)
}

fn tool(machine: &MachinePolicy, manifest: &Manifest, server: &str, tool: &str) -> bool {
    let Some(declared) = manifest.servers.get(&generate::id(server)) else { return false };
    layer_tool(&machine.tables, server, tool)
        && layer_tool(&manifest.policy, server, tool)
        && declared.tools.as_ref().is_none_or(|tools| tools.iter().any(|t| t.as_str() == tool))
}

fn egress(
    machine: &MachinePolicy,
    manifest: &Manifest,
    who: &Principal,
    host: &Host,
    port: u16,
) -> bool {
    let fenced = manifest.servers.values().any(|server| match &server.transport {
        Transport::Http { url, .. } => *url == format!("https://{host}/mcp"),
        Transport::Stdio { .. } => false,
    });
    let declared = match who {
        Principal::Agent => match manifest.sandbox.network.egress {
            Egress::None => false,
            Egress::Open => port == 443 || port == 80,
            Egress::Restricted => {
                manifest.sandbox.network.allowed_hosts.iter().any(|r| r.covers(host, port))
            }
        },
        Principal::Server(id) => manifest.servers.get(id).is_some_and(|s| match &s.transport {
            Transport::Stdio { allowed_hosts, .. } => {
                allowed_hosts.iter().any(|rule| rule.covers(host, port))
            }
            Transport::Http { .. } => false,
        }),
    };
    !fenced
        && declared
        && layer_egress(&machine.tables, who.key(), host, port)
        && layer_egress(&manifest.policy, who.key(), host, port)
}

fn secret(
    machine: &MachinePolicy,
    manifest: &Manifest,
    who: &Principal,
    name: &SecretName,
) -> bool {
    let declared = match who {
        Principal::Agent => manifest.sandbox.credentials.contains(name),
        Principal::Server(id) => manifest.servers.contains_key(id),
    };
    declared
        && layer_secret(&machine.tables, who.key(), name)
        && layer_secret(&manifest.policy, who.key(), name)
}

/// What the compiled scopes let be read of the project, and written.
pub(crate) fn effective(rules: &Ruleset, path: &str) -> (bool, bool) {
    let scopes = rules.scopes("/home/u".as_ref(), "/home/u/.ringfence".as_ref()).unwrap();
    let under = |set: &[std::path::PathBuf]| {
        set.iter().any(|folder| std::path::Path::new(path).starts_with(folder))
    };
    let read = scopes.read_inside.as_deref().is_none_or(under);
    (read, under(&scopes.write) && !under(&scopes.read_only))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]
    #[test]
    fn compiled_equals_interpreted(
        mut machine in generate::machine(),
        mut manifest in generate::manifest(),
        who in generate::principal(),
        name in generate::tool(),
        host in generate::host(),
        port in generate::port(),
        variable in generate::secret(),
        granted in any::<bool>(),
        path in generate::path(),
    ) {
        // The ceiling refuses at compile time; see the tests of ceilings.
        machine.ceilings.credentials = None;
        if granted {
            manifest.sandbox.credentials = vec![variable.clone()];
        }
        let rules = Ruleset::compile(&machine, &manifest).unwrap();
        let again = Ruleset::from_json(&rules.to_json()).unwrap();
        for rules in [&rules, &again] {
            if let Principal::Server(id) = &who {
                prop_assert_eq!(
                    rules.tool(id, &name).allowed,
                    tool(&machine, &manifest, id.as_str(), &name)
                );
            }
            prop_assert_eq!(
                rules.egress(&who, &host, port).allowed,
                egress(&machine, &manifest, &who, &host, port)
            );
            prop_assert_eq!(
                rules.secret(&who, &variable).allowed,
                secret(&machine, &manifest, &who, &variable)
            );
            prop_assert_eq!(effective(rules, &path), scopes(&machine, &manifest, &path));
            let denied = rules.denied(&path, &format!("/p/{path}")).is_some();
            prop_assert_eq!(
                denied,
                layer_denied(&machine.tables.filesystem, &path)
                    || layer_denied(&manifest.policy.filesystem, &path)
            );
        }
    }
}
