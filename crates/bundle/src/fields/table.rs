//! The table itself.

use super::FieldType::{
    Amount, Any, Boolean, BooleanOrTexts, Integer, ManyOf, Names, Number, OneOf, Table, Tables,
    Text, Texts, TextsOrTables, Values,
};
use super::Label::{Declared, Enforced, Informational, Validated};
use super::{Field, FieldType, Label};

const SANDBOX: Label = Enforced("sandbox");
/// `run --plan` says which of the two it is on this machine.
const WEIGHED: Label = Enforced("sandbox; watched where the kernel gives no cgroup");
const SCRATCH: Label = Enforced("sandbox, for its scratch space and for each file");
const EGRESS: Label = Enforced("egress proxy");
const UNSEEN: Label = Enforced("egress proxy, without a look inside");
const GATE: Label = Enforced("MCP gate");
/// Who keeps questions and takes answers.
const DESK: Label = Enforced("approval desk");
const BUDGET: Label = Enforced("MCP gate, by the ledger");
const RESOLVER: Label = Enforced("secret resolver");
const SUPERVISOR: Label = Enforced("supervisor");
const PLAN: Label = Enforced("run plan");
const RECORD: Label = Enforced("record signature");

const MANY: u64 = 4_194_304;

const fn holder(path: &'static str, kind: FieldType, doc: &'static str) -> Field {
    Field { path, kind, label: Validated, doc, default: None, required: false }
}

const fn leaf(path: &'static str, kind: FieldType, label: Label, doc: &'static str) -> Field {
    Field { path, kind, label, doc, default: None, required: false }
}

impl Field {
    const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    const fn or(mut self, default: &'static str) -> Self {
        self.default = Some(default);
        self
    }
}

const CAPABILITIES: FieldType = ManyOf(&[
    "read_file",
    "write_file",
    "web_search",
    "external_api",
    "send_email",
    "spawn_subagent",
    "external_transfer",
    "delete_records",
]);

#[rustfmt::skip]
pub(super) const FIELDS: &[Field] = &[
    leaf("version", Integer(1, 1), Validated, "Format of this file").required(),

    holder("meta", Table, "About the bundle itself"),
    leaf("meta.gitignore", Boolean, Declared, "Keep rendered files out of git").or("false"),

    holder("agent", Table, "Who the agent is; needed for an autonomous run and for A2A"),
    leaf("agent.name", Text, Informational, "1 to 63 of a-z, 0-9 and `-`").required(),
    leaf("agent.version", Text, Informational, "Free text, at most 64 characters"),
    leaf("agent.owner", Text, Informational, "Who answers for it"),
    leaf("agent.did", Text, RECORD, "`did:key:z6Mk…`: signs the record; a run fails without its key on this machine"),
    leaf("agent.capabilities", CAPABILITIES, PLAN, "What the agent does; sets the isolation floor and grants nothing").or("none"),
    leaf("capabilities", CAPABILITIES, PLAN, "As `agent.capabilities`, for a bundle without `[agent]`").or("none"),

    holder("sandbox", Table, "What the agent's process can touch"),
    leaf("sandbox.isolation", OneOf(&["none", "process", "network", "kernel"]), PLAN, "Least strength of the wall; may only strengthen the floor").or("the floor of the capabilities"),
    leaf("sandbox.image", Text, SANDBOX, "Image for the sandboxes `docker` and `lockdown`; must be in the engine, nothing is pulled"),
    leaf("sandbox.runtime", Text, SANDBOX, "OCI runtime for the sandboxes `docker` and `lockdown`, as the engine calls it: `runc`, `runsc`, `kata`").or("the engine's default"),
    leaf("sandbox.command", Texts, SANDBOX, "Program and arguments, without a shell").or("from the command line"),
    leaf("sandbox.memory_mb", Integer(4, MANY), WEIGHED, "Memory, MiB"),
    leaf("sandbox.disk_mb", Integer(1, 16_777_216), SCRATCH, "Writable space, MiB"),
    leaf("sandbox.pids", Integer(1, MANY), SANDBOX, "Processes and threads"),
    leaf("sandbox.cpus", Number(0.01, 1024.0), WEIGHED, "CPUs"),
    leaf("sandbox.credentials", Texts, SANDBOX, "The only host variables that enter the sandbox; readable by the agent, and may go anywhere that is allowed").or("none"),
    leaf("sandbox.state", Text, Declared, "Adapter whose listed files are kept between runs"),
    holder("sandbox.network", Table, "What may leave; absent means restricted with nothing allowed"),
    leaf("sandbox.network.egress", OneOf(&["none", "restricted", "open"]), EGRESS, "How wide: nothing, `allowed_hosts`, or any public address").or("restricted"),
    leaf("sandbox.network.allowed_hosts", TextsOrTables, EGRESS, "Exact host or `.suffix`, optionally `:port`; without one, 443 and 80").or("none"),
    leaf("sandbox.network.allowed_hosts[].host", Text, EGRESS, "The same, where there is more to say").required(),
    leaf("sandbox.network.allowed_hosts[].opaque", Boolean, UNSEEN, "What goes through is not looked at: it may be no TLS, name no server or hide the name. One host and one port; no suffix").or("false"),
    leaf("sandbox.network.engine", OneOf(&["builtin", "squid"]), EGRESS, "Which proxy enforces it").or("builtin"),

    holder("limits", Table, "What ends a run"),
    leaf("limits.max_duration_seconds", Integer(1, 31_536_000), SUPERVISOR, "Seconds until the run is stopped"),

    holder("servers", Names, "MCP servers, called through the gateway"),
    holder("servers.*", Table, "One server"),
    leaf("servers.*.type", OneOf(&["http", "stdio"]), Validated, "Streamable HTTP, or a program that the gateway starts").required(),
    leaf("servers.*.url", Text, GATE, "Address, `https` or `http` to a private host; never in the sandbox"),
    holder("servers.*.headers", Names, "Headers that the gateway adds"),
    leaf("servers.*.headers.*", Text, GATE, "Value; `${NAME}` is a host variable, resolved on the host"),
    leaf("servers.*.command", Text, GATE, "Program"),
    leaf("servers.*.args", Texts, GATE, "Arguments; `${NAME}` is a host variable").or("none"),
    holder("servers.*.env", Names, "The server's environment"),
    leaf("servers.*.env.*", Text, GATE, "Value; `${NAME}` is a host variable"),
    leaf("servers.*.allowed_hosts", TextsOrTables, EGRESS, "Where this server itself may connect to").or("none"),
    leaf("servers.*.allowed_hosts[].host", Text, EGRESS, "The same, where there is more to say").required(),
    leaf("servers.*.allowed_hosts[].opaque", Boolean, UNSEEN, "What goes through is not looked at: it may be no TLS, name no server or hide the name. One host and one port; no suffix").or("false"),
    leaf("servers.*.tools", Texts, GATE, "Tools that may be called; `[]` is none").or("all"),
    leaf("servers.*.methods", Texts, GATE, "Methods beyond tools, ping and the handshake that may pass").or("none"),
    holder("servers.*.pricing", Table, "What its calls cost"),
    leaf("servers.*.pricing.max_usd_per_call", Amount, BUDGET, "USD reserved while a call is in flight"),
    holder("servers.*.pricing.meters", Tables, "At least one meter"),
    leaf("servers.*.pricing.meters[].usage_path", Text, BUDGET, "Path into the JSON-RPC response").required(),
    leaf("servers.*.pricing.meters[].usd_per_unit", Amount, BUDGET, "USD for one unit").required(),

    holder("skills", Names, "Skills, each a folder"),
    holder("skills.*", Table, "One skill"),
    leaf("skills.*.path", Text, Declared, "Folder beside the manifest, `./…`; pinned"),
    leaf("skills.*.git", Text, Declared, "Repository, `https://` or `ssh://`"),
    leaf("skills.*.rev", Text, Declared, "Commit, tag or branch"),
    leaf("skills.*.subpath", Text, Declared, "Folder in the repository"),
    leaf("skills.*.library", Text, Declared, "`<source>:<name>` of the library"),

    holder("instructions", Names, "Instructions for the agent"),
    holder("instructions.*", Table, "One file"),
    leaf("instructions.*.path", Text, Declared, "File beside the manifest, `./…`; pinned"),
    leaf("instructions.*.git", Text, Declared, "Repository, `https://` or `ssh://`"),
    leaf("instructions.*.rev", Text, Declared, "Commit, tag or branch"),
    leaf("instructions.*.subpath", Text, Declared, "File in the repository"),
    leaf("instructions.*.library", Text, Declared, "`<source>:<name>` of the library"),

    holder("settings", Names, "Settings for agent CLIs"),
    holder("settings.*", Names, "One CLI, by its adapter's name"),
    leaf("settings.*.*", Any, Declared, "As the CLI spells it; pinned"),

    holder("hooks", Names, "Hooks of agent CLIs"),
    holder("hooks.*", Table, "One hook"),
    leaf("hooks.*.event", Text, Declared, "For example `post_tool_use`").required(),
    leaf("hooks.*.command", Text, Declared, "Shell command that the CLI runs; pinned").required(),

    holder("extensions", Names, "Code that an agent CLI loads"),
    holder("extensions.*", Table, "One extension"),
    leaf("extensions.*.path", Text, Declared, "File or folder beside the manifest, `./…`; pinned"),
    leaf("extensions.*.git", Text, Declared, "Repository, `https://` or `ssh://`"),
    leaf("extensions.*.rev", Text, Declared, "Commit, tag or branch"),
    leaf("extensions.*.subpath", Text, Declared, "File or folder in the repository"),
    leaf("extensions.*.library", Text, Declared, "`<source>:<name>` of the library"),
    leaf("extensions.*.target", Text, Declared, "The CLI it is for").required(),

    holder("workflows", Names, "Scripts over agents"),
    holder("workflows.*", Table, "One workflow"),
    leaf("workflows.*.path", Text, Declared, "File beside the manifest, `./…`; pinned"),
    leaf("workflows.*.git", Text, Declared, "Repository, `https://` or `ssh://`"),
    leaf("workflows.*.rev", Text, Declared, "Commit, tag or branch"),
    leaf("workflows.*.subpath", Text, Declared, "File in the repository"),
    leaf("workflows.*.library", Text, Declared, "`<source>:<name>` of the library"),

    holder("toolsets", Names, "What a task selects"),
    holder("toolsets.*", Table, "One toolset"),
    leaf("toolsets.*.servers", Texts, Declared, "Declared servers").or("none"),
    leaf("toolsets.*.skills", Texts, Declared, "Declared skills").or("none"),
    leaf("toolsets.*.default", Boolean, Declared, "Used when a task names none; one at most").or("false"),

    holder("delivery", Table, "How things reach agent CLIs"),
    leaf("delivery.render_locally", BooleanOrTexts, Declared, "CLIs that get files where the live channel would have worked, or true for all").or("false"),

    holder("approvals", Table, "Calls that need a person's yes"),
    leaf("approvals.timeout_seconds", Integer(1, 86_400), DESK, "Seconds to wait for an answer").or("300"),
    leaf("approvals.on_timeout", OneOf(&["deny", "abort", "proceed"]), DESK, "What no answer means").or("deny"),
    holder("approvals.require", Tables, "Rules; a call that one matches waits for a person"),
    leaf("approvals.require[].server", Text, GATE, "A server, or `*`").required(),
    leaf("approvals.require[].tool", Text, GATE, "Exact tool name").required(),
    holder("approvals.require[].when", Table, "Only when the arguments say so; absent means always"),
    leaf("approvals.require[].when.pointer", Text, GATE, "JSON pointer into the arguments (RFC 6901)").required(),
    leaf("approvals.require[].when.equals", Any, GATE, "The same JSON value; no floats"),
    leaf("approvals.require[].when.prefix", Text, GATE, "A string that begins so"),
    leaf("approvals.require[].when.matches", Text, GATE, "A string that this regular expression matches"),
    leaf("approvals.require[].when.greater_than", Text, GATE, "A number greater than this decimal"),
    leaf("approvals.require[].when.one_of", Values, GATE, "One of these JSON values; no floats"),
    holder("approvals.notify", Tables, "Who is asked"),
    leaf("approvals.notify[].channel", OneOf(&["webhook"]), DESK, "How").required(),
    leaf("approvals.notify[].url_ref", Text, DESK, "Name of the host variable that holds the address").required(),
    leaf("approvals.notify[].approver_keys", Texts, DESK, "Keys that may sign a decision, `z6Mk…`").required(),

    holder("spending", Table, "Caps on what priced calls cost"),
    leaf("spending.max_per_run_usd", Amount, BUDGET, "USD, one run"),
    leaf("spending.max_per_day_usd", Amount, BUDGET, "USD, one UTC day, across runs"),
    leaf("spending.max_per_month_usd", Amount, BUDGET, "USD, one UTC month, across runs"),
    leaf("spending.warn_at_percent", Integer(1, 100), BUDGET, "Percent of a cap at which to warn"),

    holder("a2a", Table, "Agents that this one may talk to"),
    leaf("a2a.listen", Text, Declared, "`address:port`"),
    holder("a2a.peers", Tables, "Declared peers"),
    leaf("a2a.peers[].name", Text, Declared, "What the agent calls it").required(),
    leaf("a2a.peers[].did", Text, Declared, "`did:key:z6Mk…`").required(),
    leaf("a2a.peers[].endpoint", Text, Declared, "`https` address; never in the sandbox").required(),

    holder("policy", Table, "What the bundle asks to be held to; the machine's own policy is intersected"),
    holder("policy.tools", Names, "By server, or `*`"),
    leaf("policy.tools.*", Texts, GATE, "Tool patterns; `!` denies"),
    holder("policy.egress", Names, "By server, `agent`, or `*`"),
    leaf("policy.egress.*", Texts, EGRESS, "Host patterns, optionally `:port`; `!` denies"),
    holder("policy.secrets", Names, "By server, `agent`, or `*`"),
    leaf("policy.secrets.*", Texts, RESOLVER, "Variable-name patterns; `!` denies"),
    holder("policy.filesystem", Table, "Paths in the project, absolute, or `~/`"),
    leaf("policy.filesystem.read", Texts, SANDBOX, "Readable").or("the project"),
    leaf("policy.filesystem.write", Texts, SANDBOX, "Writable").or("nothing"),
    leaf("policy.filesystem.deny", Texts, SANDBOX, "Neither, whatever the rest says").or("nothing"),
];
