//! From the ruleset to the configuration of one run's Squid. Pure.
//!
//! The order of the rules is the point of it: who asks, then the form, then the name and the port, and
//! only then the addresses, since a rule about addresses makes Squid look the name up.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;

use ringfence_bundle::Host;
use ringfence_policy::{EgressList, EgressPattern, EgressPorts, Principal, Ruleset};

use super::blocks;

/// A rule that Squid cannot be told exactly. It is told nothing that is wider instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Squid cannot express this rule, and nothing wider is put in its place: {rule}")]
pub(crate) struct Inexpressible {
    /// The rule, with its place.
    pub(crate) rule: String,
}

/// Where one principal's connections come in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Door {
    pub(crate) who: Principal,
    /// On loopback.
    pub(crate) port: u16,
}

/// What is of the run and not of its rules.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    pub(crate) doors: &'a [Door],
    /// Squid's own program that compares passwords.
    pub(crate) checker: &'a Path,
    /// The file that it compares with: one line a principal.
    pub(crate) passwords: &'a Path,
    /// A pipe with a name, out of which the log is read.
    pub(crate) log: &'a Path,
    /// Addresses of this machine.
    pub(crate) own: &'a [IpAddr],
    /// Another hosts file than the system's.
    pub(crate) hosts: Option<&'a Path>,
}

/// The annotation that says which step refused. [`super::log`] reads it back.
pub(crate) const FORM: &str = "request";
pub(crate) const RULES: &str = "ruleset";
pub(crate) const ADDRESS: &str = "address";

/// What is the same for every run. Limits are those of the built-in proxy.
const FIXED: &str = "\
visible_hostname ringfence
pid_filename none
cache_log /dev/null
cache_store_log none
cache deny all
cache_mem 0 MB
memory_pools off
icp_port 0
client_db off
global_internal_static off
request_header_access Via deny all
reply_header_access Via deny all
forwarded_for delete
follow_x_forwarded_for deny all
httpd_suppress_version_string on
strip_query_terms on
log_mime_hdrs off
buffered_logs off
logfile_rotate 0
umask 077
shutdown_lifetime 0 seconds
client_persistent_connections off
server_persistent_connections off
pipeline_prefetch 0
half_closed_clients off
retry_on_error off
quick_abort_min 0 KB
quick_abort_max 0 KB
relaxed_header_parser off
uri_whitespace deny
request_header_max_size 64 KB
reply_header_max_size 64 KB
request_start_timeout 60 seconds
request_timeout 10 seconds
connect_timeout 10 seconds
forward_timeout 10 seconds
read_timeout 600 seconds
client_lifetime 24 hours
dns_defnames off
ignore_unknown_nameservers on
dns_timeout 5 seconds
dns_retransmit_interval 2 seconds
negative_dns_ttl 1 minute
positive_dns_ttl 1 hour
pinger_enable off
";

/// One line of the log: see [`super::log`]. Never a path or a query, where secrets stand.
const LOG: &str = "logformat ringfence %ts%03tu %>lp %>p %un %rm %#>rd %>rP %>Hs %Ss %Sh %<a %err_code \
                   %err_detail %{check}note\n";

/// The configuration.
///
/// # Errors
/// [`Inexpressible`].
pub(crate) fn render(ruleset: &Ruleset, place: &Place<'_>) -> Result<String, Inexpressible> {
    let mut out = Config(String::from("# Rendered by ringfence for one run. Do not edit.\n"));
    for (n, door) in place.doors.iter().enumerate() {
        out.line(format_args!("# {n} is {}", door.who));
        out.line(format_args!("http_port 127.0.0.1:{} name=d{n}", door.port));
    }
    out.0.push_str(FIXED);
    if let Some(hosts) = place.hosts {
        out.line(format_args!("hosts_file {}", hosts.display()));
    }
    out.0.push_str(LOG);
    out.line(format_args!("access_log stdio:{} logformat=ringfence", place.log.display()));
    out.line(format_args!(
        "auth_param basic program {} {}",
        place.checker.display(),
        place.passwords.display()
    ));
    out.0.push_str(
        "auth_param basic children 2 startup=1 idle=1\n\
         auth_param basic realm ringfence\n\
         auth_param basic casesensitive on\n\
         auth_param basic credentialsttl 24 hours\n",
    );

    out.0.push_str("acl tunnel method CONNECT\nacl plain proto HTTP\n");
    for check in [FORM, RULES, ADDRESS] {
        out.line(format_args!("acl by_{check} annotate_transaction check={check}"));
    }
    for (n, door) in place.doors.iter().enumerate() {
        out.line(format_args!("acl d{n} myportname d{n}"));
        out.line(format_args!("acl u{n} proxy_auth {}", door.who));
        // Without the run's token, or with another principal's, the answer is 407.
        out.line(format_args!("http_access deny d{n} !u{n}"));
    }
    out.line(format_args!("http_access deny manager by_{FORM}"));
    out.line(format_args!("http_access deny !tunnel !plain by_{FORM}"));

    let mut never: Vec<String> = Vec::new();
    for (n, door) in place.doors.iter().enumerate() {
        let rules = ruleset.egress_rules(&door.who);
        if never.is_empty() {
            never = rules.never.iter().map(Host::to_string).collect();
            if !never.is_empty() {
                out.values("never", "dstdomain -n", &never);
                out.line(format_args!("http_access deny never by_{RULES}"));
            }
        }
        for (m, list) in rules.lists.iter().enumerate() {
            out.list(n, &format!("l{n}_{m}"), list)?;
        }
    }

    let blocks: Vec<String> = blocks::refused().iter().map(ToString::to_string).collect();
    out.values("special", "dst", &blocks);
    out.line(format_args!("http_access deny special by_{ADDRESS}"));
    let own: Vec<String> = place
        .own
        .iter()
        .filter(|address| crate::registry::special(**address).is_none())
        .map(ToString::to_string)
        .collect();
    if !own.is_empty() {
        out.values("own", "dst", &own);
        out.line(format_args!("http_access deny own by_{ADDRESS}"));
    }
    for n in 0..place.doors.len() {
        out.line(format_args!("http_access allow d{n}"));
    }
    out.0.push_str("http_access deny all\n");
    Ok(out.0)
}

struct Config(String);

/// What a set of patterns comes to.
enum Set {
    Nothing,
    Everything,
    /// The access list that holds it.
    Named(String),
}

/// Hosts of one set of ports.
#[derive(Default)]
struct Group<'a> {
    all: bool,
    exact: Vec<&'a str>,
    /// Without `*.`
    below: Vec<&'a str>,
    others: Vec<String>,
}

impl Config {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.0, "{line}");
    }

    /// An access list with these values, a few a line.
    fn values(&mut self, name: &str, kind: &str, values: &[impl AsRef<str>]) {
        for some in values.chunks(8) {
            let some: Vec<&str> = some.iter().map(AsRef::as_ref).collect();
            self.line(format_args!("acl {name} {kind} {}", some.join(" ")));
        }
    }

    /// The rules of one list for one door.
    fn list(&mut self, door: usize, name: &str, list: &EgressList) -> Result<(), Inexpressible> {
        self.line(format_args!("# {}", comment(&list.place)));
        let (denials, grants): (Vec<&EgressPattern>, Vec<&EgressPattern>) =
            list.patterns.iter().partition(|pattern| pattern.denies);
        match self.set(&format!("{name}n"), &denials)? {
            Set::Nothing => {}
            Set::Everything => self.line(format_args!("http_access deny d{door} by_{RULES}")),
            Set::Named(set) => {
                self.line(format_args!("http_access deny d{door} {set} by_{RULES}"));
            }
        }
        match self.set(&format!("{name}p"), &grants)? {
            Set::Everything => {}
            // Of denials alone, what none of them names is allowed.
            Set::Nothing if !denials.is_empty() => {}
            Set::Nothing => self.line(format_args!("http_access deny d{door} by_{RULES}")),
            Set::Named(set) => {
                self.line(format_args!("http_access deny d{door} !{set} by_{RULES}"));
            }
        }
        Ok(())
    }

    /// An access list that holds exactly what one of these patterns names.
    fn set(&mut self, name: &str, patterns: &[&EgressPattern]) -> Result<Set, Inexpressible> {
        let mut groups: BTreeMap<EgressPorts, Group<'_>> = BTreeMap::new();
        for pattern in patterns {
            groups.entry(pattern.ports).or_default().add(pattern)?;
        }
        if groups.get(&EgressPorts::Any).is_some_and(|group| group.all) {
            return Ok(Set::Everything);
        }
        let mut parts = Vec::new();
        for (n, (ports, group)) in groups.into_iter().enumerate() {
            parts.push(self.group(&format!("{name}{n}"), ports, group));
        }
        Ok(match &parts[..] {
            [] => Set::Nothing,
            [one] => Set::Named(one.clone()),
            _ => {
                self.line(format_args!("acl {name} any-of {}", parts.join(" ")));
                Set::Named(name.to_owned())
            }
        })
    }

    fn group(&mut self, name: &str, ports: EgressPorts, mut group: Group<'_>) -> String {
        let mut parts = Vec::new();
        if !group.all {
            group.exact.sort_unstable();
            group.exact.dedup();
            let below = outermost(group.below);
            if !group.exact.is_empty() {
                let exact = format!("{name}e");
                self.values(&exact, "dstdomain -n", &group.exact);
                parts.push(exact);
            }
            if !below.is_empty() {
                // `.example.com` is `example.com` too for Squid, which no `*.example.com` is here.
                let dotted: Vec<String> = below.iter().map(|name| format!(".{name}")).collect();
                self.values(&format!("{name}s"), "dstdomain -n", &dotted);
                self.values(&format!("{name}a"), "dstdomain -n", &below);
                self.line(format_args!("acl {name}b all-of {name}s !{name}a"));
                parts.push(format!("{name}b"));
            }
            group.others.sort_unstable();
            group.others.dedup();
            if !group.others.is_empty() {
                let others = format!("{name}g");
                self.values(&others, "dstdom_regex -n", &group.others);
                parts.push(others);
            }
        }
        let hosts = match &parts[..] {
            [] => None,
            [one] => Some(one.clone()),
            _ => {
                self.line(format_args!("acl {name}h any-of {}", parts.join(" ")));
                Some(format!("{name}h"))
            }
        };
        let ports = match ports {
            EgressPorts::Any => None,
            EgressPorts::Web => Some("80 443".to_owned()),
            EgressPorts::One(port) => Some(port.to_string()),
        };
        let port = ports.map(|ports| {
            self.line(format_args!("acl {name}o port {ports}"));
            format!("{name}o")
        });
        match (hosts, port) {
            (Some(hosts), Some(port)) => {
                self.line(format_args!("acl {name} all-of {port} {hosts}"));
                name.to_owned()
            }
            (Some(one), None) | (None, Some(one)) => one,
            // Everything on every port has been seen to before.
            (None, None) => "all".to_owned(),
        }
    }
}

impl<'a> Group<'a> {
    fn add(&mut self, pattern: &'a EgressPattern) -> Result<(), Inexpressible> {
        let glob = pattern.glob.as_str();
        let known =
            |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.*?[]:".contains(c);
        // A host is in lower case, and short; nothing else can be part of one.
        if glob.is_empty() || glob.len() > 512 || !glob.chars().all(known) {
            return Err(Inexpressible { rule: pattern.rule.clone() });
        }
        let wild = |text: &str| text.contains(['*', '?']);
        if glob.bytes().all(|byte| byte == b'*') {
            self.all = true;
        } else if !wild(glob) && !glob.starts_with('-') {
            self.exact.push(glob);
        } else if let Some(name) = glob.strip_prefix("*.").filter(|name| plain(name)) {
            self.below.push(name);
        } else {
            self.others.push(regex(glob));
        }
        Ok(())
    }
}

/// Whether a suffix is that of names, in whole labels. `*.44` also names `11.22.33.44`, and what ends in
/// a number is no name: Squid is shown such a glob as a regular expression.
fn plain(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    !name.contains(['*', '?', '[', ']', ':'])
        && !name.starts_with('-')
        && name.split('.').all(|label| !label.is_empty())
        && last.starts_with(|c: char| c.is_ascii_lowercase())
}

/// A glob as a POSIX extended regular expression. Where the glob begins or ends in `*` the expression is
/// not bound to the host's begin or end: Squid warns about a wildcard that it need not have.
fn regex(glob: &str) -> String {
    let middle = glob.trim_matches('*');
    let mut out = String::from(if glob.starts_with('*') { "" } else { "^" });
    for c in middle.chars() {
        match c {
            '*' if out.ends_with(".*") => {}
            '*' => out.push_str(".*"),
            '?' => out.push('.'),
            '.' | '[' | ']' => {
                out.push('\\');
                out.push(c);
            }
            // Squid would take it for an option.
            '-' if out.is_empty() => out.push_str("[-]"),
            c => out.push(c),
        }
    }
    if !glob.ends_with('*') {
        out.push('$');
    }
    out
}

/// The names that lie below none of the others.
fn outermost(mut names: Vec<&str>) -> Vec<&str> {
    names.sort_unstable();
    names.dedup();
    let all = names.clone();
    names.retain(|name| {
        !all.iter().any(|other| name.strip_suffix(other).is_some_and(|front| front.ends_with('.')))
    });
    names
}

/// A place in one line.
fn comment(place: &str) -> String {
    place.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests;
