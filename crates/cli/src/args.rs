//! What can be typed.

use std::path::PathBuf;
use std::sync::OnceLock;

use clap::{Args as ClapArgs, Parser, Subcommand};

use crate::commands;
use crate::commands::show::Show;

/// One control plane for AI agents: declare what an agent is made of and what it may do, review it
/// once, run it where nothing it can reach switches a rule off, and keep signed evidence.
#[derive(Debug, Parser)]
#[command(name = "ringfence", version, max_term_width = 100, after_help = AFTER)]
pub(crate) struct Args {
    /// The project folder; else the nearest one upwards that has a bundle
    #[arg(short = 'C', long = "project", global = true, value_name = "FOLDER")]
    pub(crate) given: Option<PathBuf>,
    #[arg(skip)]
    pub(crate) found: OnceLock<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER: &str = "\
First steps in a project:
  ringfence init                   write .ringfence/ringfence.toml, with every choice explained
  ringfence validate               check it, all problems at once
  ringfence lock                   pin what it declares
  ringfence trust                  see what it can do, and say yes or no
  ringfence policy use developer   set the rules of this machine, once
  ringfence run                    run it inside the sandbox

Exit status: 0 fine; 1 a file or argument needs mending; 2 wrong usage; 3 refused by trust or
policy; 255 an error of Ringfence or the machine. `run` returns the agent's own status, 124 when a
limit, or an approval that nobody answered, ended it, 128+n when signal n did.

Environment: RINGFENCE_HOME is the machine's state (default ~/.ringfence); NO_COLOR is honoured.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write a first manifest that explains itself
    Init(Init),
    /// Check manifest and overlay, and show every problem at once
    Validate(Json),
    /// Print the manifest that holds, and where each value comes from
    Show(Show),
    /// Pin what the manifest declares, in .ringfence/ringfence.lock
    Lock(Lock),
    /// Bring the bytes that the lock pins and this machine lacks
    Fetch(commands::fetch::Fetch),
    /// Print the manifest's JSON Schema, for editors
    Schema,
    /// See what the bundle can do, and say yes to exactly these bytes
    Trust(commands::trust::Trust),
    /// Show what moved since it was locked, by file and line
    Diff(commands::diff::Diff),
    /// Write a preference in place, and keep the trust that is there
    Set(commands::set::Set),
    /// Keep values for the names that bundles refer to
    Secret(commands::secret::Secret),
    /// Sign in to a remote server of a trusted bundle, with a browser
    Login(commands::login::Login),
    /// Give a server's tokens back, and forget them
    Logout(commands::logout::Logout),
    /// Run an agent in a sandbox: its only ways out are proxy and gates
    Run(Run),
    /// Serve this project's tools to an agent CLI, over stdio
    Mcp(commands::mcp::Mcp),
    /// Serve projects' tools to many clients over HTTP
    Gateway(commands::gateway::Gateway),
    Policy(commands::policy::Policy),
    /// See the calls that wait for you, and say yes or no
    Approvals(commands::approvals::Approvals),
    /// Show what priced calls cost, and what is left of each cap
    Spend(commands::spend::Spend),
    /// Keys for the endpoint that answers approvals elsewhere
    Webhook(commands::webhook::Webhook),
    /// List the runs that are alive
    ///
    /// A row a run: its id, its kind (run, ask, serve), its supervisor's process, its sandbox and what that is
    /// worth, its folder, its command. `ENFORCED` stands there once the sandbox was probed and let nothing
    /// out; before that the sandbox's name does. `stop`, `logs` and `report` take the id or its beginning.
    Ps(Ps),
    /// Stop a run and wait until its evidence is sealed
    ///
    /// Who asked is on record before the agent is ended. The agent is asked first, and killed after five
    /// seconds; a second `stop` kills it at once.
    Stop(Stop),
    /// Show what a run records, line by line, also while it goes on
    ///
    /// With --follow it ends when the run's evidence is sealed; where a run ends without a seal, it says so.
    /// What it shows is not checked: `ringfence audit verify` does that.
    Logs(Logs),
    /// Show what happened in a run, from its record
    Report(Report),
    /// Check the evidence
    Audit(Audit),
    /// Look after the kept copies of everything that is pinned
    Store(commands::store::Store),
    /// Your own folders of skills and the like, for every project
    Library(commands::library::Library),
    /// Take away what a crash left behind
    ///
    /// Says what it was, by kind. What a live run stands on stays, and so does what is in a container engine
    /// that does not answer: then it says so. Every run does the same when it starts.
    Clean(Json),
    /// Sign the lock and the manifest
    Sign(commands::Sign),
    /// Say who signed, if you listed that key, and if the lock holds
    Verify(commands::Verify),
    /// List the keys of people whose bundles you take
    Publisher(commands::Publisher),
    /// Pack the locked bundle into one signed archive for others
    Share(commands::Share),
    /// Take an archive in, verified and inert, and show what it could do
    Receive(commands::Receive),
    /// Find, publish and install bundles through git repositories
    Registry(commands::Registry),
    /// The example's own agent and MCP server
    #[command(hide = true)]
    Example(Example),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Json {
    /// Print JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Init {
    /// Replace nothing, only print what would be written
    #[arg(long)]
    pub(crate) print: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Lock {
    /// Write nothing; status 1 when the lock is missing or no longer holds
    #[arg(long)]
    pub(crate) check: bool,
    /// Ask the git hosts that the manifest names what its revisions are now; says whom it asks
    #[arg(long, conflicts_with = "check")]
    pub(crate) fetch: bool,
    /// Ask these servers, or all, what they offer, and pin that too; needs trust, and asks for it
    /// again where something moved. With --check: say what moved. Without it nobody is contacted
    #[arg(long, num_args = 0.., value_name = "SERVER")]
    pub(crate) tools: Option<Vec<String>>,
    /// Print JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Run {
    /// Print how it would run, and run nothing
    #[arg(long)]
    pub(crate) plan: bool,
    /// The sandbox: `native` (the default), `docker`, `lockdown`; at least as strong as the bundle needs.
    /// `host` is none: the agent's proxy and gate are advice
    #[arg(long, value_name = "BACKEND")]
    pub(crate) sandbox: Option<String>,
    /// End with one line of JSON on stdout (with --plan: print the plan as JSON)
    #[arg(long)]
    pub(crate) json: bool,
    /// Ask nobody on this terminal: calls that need an approval wait for `ringfence approvals` or a
    /// webhook, and the agent has the terminal to itself
    #[arg(long)]
    pub(crate) no_prompt: bool,
    /// The command, instead of the manifest's
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Ps {
    /// List the finished ones too
    #[arg(long)]
    pub(crate) all: bool,
    /// Print JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Stop {
    /// Its id, or as much of its beginning as no other live run has; `ringfence ps` lists them
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Logs {
    /// A run's id, the beginning of it, or `last`
    #[arg(default_value = "last")]
    pub(crate) run: String,
    /// Go on until the run is over
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Print each event as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Report {
    /// A run's id, the beginning of it, or `last`: this project's, or the machine's if it has none
    #[arg(default_value = "last")]
    pub(crate) run: String,
    /// Print every event as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Audit {
    #[command(subcommand)]
    pub(crate) verb: AuditVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditVerb {
    /// Check every record, or one: chain, signatures, seals. Status 1 when something is wrong
    Verify(Verify),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Verify {
    /// Only this run: its id, or the beginning of it
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// Whose signatures must be on it
    #[arg(long, value_name = "DID")]
    pub(crate) did: Option<String>,
    /// Print JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Example {
    #[command(subcommand)]
    pub(crate) which: ExampleKind,
}

#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum ExampleKind {
    /// An agent that tries what it may and what it may not
    Agent,
    /// An MCP server over stdio with a harmless tool and a harmful one
    McpServer,
}

impl Args {
    /// Whether errors are to be JSON too.
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            Command::Validate(Json { json })
            | Command::Clean(Json { json })
            | Command::Show(Show { json, .. })
            | Command::Lock(Lock { json, .. })
            | Command::Trust(commands::trust::Trust { json, .. })
            | Command::Login(commands::login::Login { json, .. })
            | Command::Logout(commands::logout::Logout { json, .. })
            | Command::Diff(commands::diff::Diff { json, .. })
            | Command::Set(commands::set::Set { json, .. })
            | Command::Run(Run { json, .. })
            | Command::Ps(Ps { json, .. })
            | Command::Logs(Logs { json, .. })
            | Command::Report(Report { json, .. })
            | Command::Sign(commands::Sign { json, .. })
            | Command::Verify(commands::Verify { json, .. })
            | Command::Share(commands::Share { json, .. })
            | Command::Receive(commands::Receive { json, .. })
            | Command::Audit(Audit { verb: AuditVerb::Verify(Verify { json, .. }) }) => *json,
            Command::Policy(policy) => policy.json(),
            Command::Gateway(gateway) => gateway.json(),
            Command::Fetch(fetch) => fetch.json,
            Command::Store(store) => store.json(),
            Command::Library(library) => library.json(),
            Command::Publisher(publisher) => publisher.json(),
            Command::Registry(registry) => registry.json(),
            Command::Secret(secret) => secret.json(),
            Command::Approvals(approvals) => approvals.json(),
            Command::Spend(spend) => spend.json,
            Command::Webhook(webhook) => webhook.json(),
            _ => false,
        }
    }
}
