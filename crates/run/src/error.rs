//! Why a run did not start or did not go well.

use std::borrow::Cow;
use std::path::PathBuf;

use ringfence_gateway::LoginError;
use ringfence_mcp::oauth::OAuthError;

/// Whose matter an error is; the program's exit status follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The person's: a file, a command, an argument. Status 1.
    User,
    /// Refused by trust or policy. Status 3.
    Refused,
    /// Ours or the machine's. Status 255.
    Internal,
}

/// Why a run did not start or did not go well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bundle could not be read.
    #[error(transparent)]
    Bundle(#[from] ringfence_bundle::Error),
    /// Trust refuses it.
    #[error(transparent)]
    Trust(#[from] ringfence_trust::Error),
    /// The machine's rules refuse it, or are not valid.
    #[error(transparent)]
    Policy(#[from] ringfence_policy::Error),
    /// The sandbox could not be built, or is not tight.
    #[error(transparent)]
    Sandbox(#[from] ringfence_sandbox::Error),
    /// Evidence could not be written: nothing goes on.
    #[error(transparent)]
    Record(#[from] ringfence_record::Error),
    /// The signing key is not usable.
    #[error(transparent)]
    Identity(#[from] ringfence_identity::Error),
    /// A secret has no value or is refused.
    #[error(transparent)]
    Secret(#[from] ringfence_secrets::Error),
    /// The proxy could not start.
    #[error(transparent)]
    Egress(#[from] ringfence_egress::Error),
    /// The shared database cannot be used: what needs it does not go on.
    #[error(transparent)]
    State(#[from] ringfence_state::Error),
    /// Questions cannot be kept or answered.
    #[error(transparent)]
    Approval(#[from] ringfence_approval::Error),
    /// A variable that Ringfence itself needs has no value that can be used.
    #[error("{name}, {what}: {reason}")]
    Variable {
        /// Its name.
        name: String,
        /// What it is for.
        what: &'static str,
        /// Why. Never the value.
        reason: String,
    },
    /// No command was given and the manifest has none.
    #[error("nothing to run: the manifest has no `sandbox.command`, and none was given")]
    NoCommand,
    /// A container needs an image, and the bundle names none.
    #[error("the sandbox `{backend}` needs an image, and the bundle names none")]
    NoImage {
        /// The sandbox's name.
        backend: &'static str,
    },
    /// Under lockdown the gate is the one place where servers are declared. Take the file away, or deny it
    /// in `[policy.filesystem]`, which hides it.
    #[error(
        "{}: an agent program would find MCP servers there that are not the gate's: not under lockdown",
        .path.display()
    )]
    Shadowed {
        /// Relative to the project.
        path: PathBuf,
    },
    /// The machine's rules want every server's tools pinned. `ringfence lock --tools` pins them.
    #[error(
        "the tools of every server must be pinned, and those of {} are not: {rule}",
        .servers.join(", ")
    )]
    UnpinnedTools {
        /// The servers without pins.
        servers: Vec<String>,
        /// Which rule, in which file and line.
        rule: String,
    },
    /// A server was named that the manifest does not declare.
    #[error("there is no server `{name}`; declared: {}", .declared.join(", "))]
    NoServer {
        /// As it was given.
        name: String,
        /// What there is.
        declared: Vec<String>,
    },
    /// The manifest declares no server.
    #[error("the manifest declares no server, so there are no tools to pin")]
    NoServers,
    /// Servers could not be asked for their tools, each with why. Nothing was written.
    #[error("{} of the servers could not be asked, so nothing is pinned:\n{}", .problems.len(), .problems.join("\n"))]
    NotAsked {
        /// One line a server.
        problems: Vec<String>,
        /// Whether a rule, and not the server, said no.
        refused: bool,
    },
    /// A person ended it before it was done. Nothing was written.
    #[error("stopped before every server was asked: nothing is pinned")]
    Stopped,
    /// Nobody is signed in, or out, and why.
    #[error("{server}: {error}")]
    Login {
        /// The server's name.
        server: String,
        /// Why.
        error: LoginError,
    },
    /// A person ended it before they were signed in.
    #[error("stopped before anybody was signed in")]
    StoppedLogin,
    /// The bundle is no longer what was trusted when the servers were asked. Nothing was written.
    #[error("the bundle changed while the servers were asked: nothing is pinned")]
    Overtaken,
    /// What the servers offer does not fit into a lock.
    #[error("what the servers offer does not fit into a lock: {0}")]
    Unlockable(String),
    /// The backend named is weaker than what the run needs, or is not there.
    #[error("{0}")]
    Backend(String),
    /// The project folder cannot be used as one.
    #[error("{path}: {reason}")]
    Project {
        /// The folder or file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A protected file could be read by another name.
    #[error(
        "{path} is denied but has {links} names, of which {masked} are denied; the others would still show it"
    )]
    HardLink {
        /// The denied file.
        path: PathBuf,
        /// How many names it has.
        links: u64,
        /// How many of them are masked.
        masked: u64,
    },
    /// A price or a cap is none. A manifest that was parsed has none of these.
    #[error("{0}")]
    Spending(String),
    /// The file of gateway tokens cannot be used as it is.
    #[error("{path}: {reason}")]
    Tokens {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A certificate or its key cannot be used.
    #[error("{path}: {reason}")]
    Tls {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The gateway cannot listen there, or not so.
    #[error("cannot listen on {address}: {reason}")]
    Listen {
        /// As it was given.
        address: String,
        /// Why.
        reason: String,
    },
    /// A file of the machine's state could not be used.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl Error {
    /// Whose matter it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Bundle(_)
            | Self::NoServer { .. }
            | Self::NoServers
            | Self::NotAsked { refused: false, .. }
            | Self::Stopped
            | Self::StoppedLogin
            | Self::Overtaken
            | Self::Unlockable(_)
            | Self::NoCommand
            | Self::NoImage { .. }
            | Self::Variable { .. }
            | Self::Approval(
                ringfence_approval::Error::Unknown(_) | ringfence_approval::Error::Settled { .. },
            )
            | Self::Project { .. }
            | Self::Spending(_)
            | Self::Tokens { .. }
            | Self::Tls { .. }
            | Self::Listen { .. }
            | Self::Identity(_)
            | Self::Secret(
                ringfence_secrets::Error::Missing { .. }
                | ringfence_secrets::Error::Failed { .. }
                | ringfence_secrets::Error::Keychain(_)
                | ringfence_secrets::Error::NoKeychain(_)
                | ringfence_secrets::Error::SignIn(_)
                | ringfence_secrets::Error::NoValue(_),
            )
            | Self::Record(
                ringfence_record::Error::NoSuchRun(_)
                | ringfence_record::Error::Ambiguous { .. }
                | ringfence_record::Error::Folder(_),
            )
            | Self::Trust(ringfence_trust::Error::Record(ringfence_record::Error::Folder(_)))
            | Self::Policy(
                ringfence_policy::Error::Machine(_) | ringfence_policy::Error::Replace { .. },
            ) => Kind::User,
            Self::Trust(
                ringfence_trust::Error::Bundle(_) | ringfence_trust::Error::Missing { .. },
            ) => Kind::User,
            Self::Trust(
                ringfence_trust::Error::Write { .. } | ringfence_trust::Error::Record(_),
            ) => Kind::Internal,
            Self::Login { error, .. } => match error {
                LoginError::Secret(ringfence_secrets::Error::Denied { .. }) => Kind::Refused,
                LoginError::Record(_) => Kind::Internal,
                // What came from elsewhere is not what it must be.
                LoginError::OAuth(
                    OAuthError::Place { .. }
                    | OAuthError::Redirected { .. }
                    | OAuthError::Resource { .. }
                    | OAuthError::Issuer { .. }
                    | OAuthError::Mixed(_)
                    | OAuthError::OtherIssuer { .. }
                    | OAuthError::NoPkce,
                ) => Kind::Refused,
                _ => Kind::User,
            },
            Self::Egress(
                ringfence_egress::Error::Rule(_) | ringfence_egress::Error::Squid { .. },
            )
            | Self::Trust(_)
            | Self::Policy(_)
            | Self::UnpinnedTools { .. }
            | Self::NotAsked { refused: true, .. }
            | Self::Backend(_)
            | Self::Shadowed { .. }
            | Self::HardLink { .. }
            | Self::Approval(
                ringfence_approval::Error::Expired(_)
                | ringfence_approval::Error::OtherDigest { .. },
            )
            | Self::Sandbox(ringfence_sandbox::Error::Leaky(_))
            | Self::Secret(ringfence_secrets::Error::Denied { .. }) => Kind::Refused,
            Self::Sandbox(_)
            | Self::Record(_)
            | Self::Egress(_)
            | Self::Io { .. }
            | Self::State(_)
            | Self::Approval(_)
            | Self::Secret(_) => Kind::Internal,
        }
    }

    /// What to type next, where there is one thing.
    #[must_use]
    pub fn next(&self) -> Option<Cow<'static, str>> {
        if let Self::Secret(error) = self {
            return error.next().map(Cow::Owned);
        }
        if let Self::Login { server, error } = self {
            return login_next(server, error).map(Cow::Owned);
        }
        if let Self::Trust(ringfence_trust::Error::Store { path, .. }) = self {
            // The folder itself holds the machine's rules, keys and evidence: that stays.
            let is_file = path.file_name().is_some_and(|name| name == "trust.json");
            let path = path.display();
            let text = match is_file {
                true => format!("mv {path} {path}.broken && ringfence trust"),
                false => format!("ls -ld {path}"),
            };
            return Some(text.into());
        }
        if let Self::Variable { name, .. } = self {
            return Some(format!("ringfence secret set {name}").into());
        }
        self.next_fixed().map(Cow::Borrowed)
    }

    fn next_fixed(&self) -> Option<&'static str> {
        use ringfence_record::Error as Record;
        use ringfence_trust::Error as Trust;
        Some(match self {
            Self::Bundle(ringfence_bundle::Error::Program { .. })
            | Self::Trust(Trust::Missing { .. }) => "ringfence trust --preview",
            Self::Bundle(ringfence_bundle::Error::Missing(_)) => "ringfence init",
            Self::Bundle(_) | Self::Trust(Trust::Bundle(_)) => "ringfence validate",
            Self::Trust(
                Trust::Untrusted { .. }
                | Trust::Changed { .. }
                | Trust::Programs(_)
                | Trust::Unrecorded { .. },
            ) => "ringfence trust",
            Self::Trust(Trust::Unlocked(_) | Trust::Drifted(_)) => {
                "ringfence lock && ringfence trust"
            }
            Self::Trust(Trust::WrongDigest { .. }) => "ringfence trust --preview",
            Self::Record(ringfence_record::Error::Write { .. }) => {
                "df -h ~/.ringfence   # make room, then run again"
            }
            Self::Approval(ringfence_approval::Error::OtherDigest { .. }) => {
                "ringfence approvals show <id>"
            }
            Self::Approval(_) => "ringfence approvals list",
            Self::Egress(ringfence_egress::Error::Squid { next, .. }) => return *next,
            Self::Egress(ringfence_egress::Error::Rule(_)) => "ringfence policy explain",
            Self::NoCommand => "ringfence run -- <command>",
            Self::NoImage { .. } => {
                "write `image = \"name:tag\"` under [sandbox] in .ringfence/ringfence.toml"
            }
            Self::Shadowed { .. } => "remove it, or write it into `deny` under [policy.filesystem]",
            Self::UnpinnedTools { .. } | Self::Stopped => "ringfence lock --tools",
            Self::NoServers => "ringfence lock",
            Self::Overtaken => "ringfence trust",
            Self::NotAsked { .. } => "ringfence report last",
            Self::Tokens { .. } => "ringfence gateway token list",
            Self::Listen { .. } => "ringfence gateway serve --help",
            Self::Record(Record::NoSuchRun(_) | Record::Ambiguous { .. }) => "ringfence ps --all",
            Self::Record(Record::Damaged { .. })
            | Self::Trust(Trust::Record(Record::Damaged { .. })) => "ringfence audit verify",
            _ => return None,
        })
    }
}

fn login_next(server: &str, error: &LoginError) -> Option<String> {
    Some(match error {
        LoginError::Secret(ringfence_secrets::Error::NoKeychain(_)) => {
            format!("ringfence login {server} --store file   # a file that only you can read")
        }
        LoginError::Secret(error) => return error.next(),
        LoginError::OAuth(OAuthError::NoRegistration) => {
            format!("ringfence login {server} --client-id <ID>")
        }
        LoginError::NotSignedIn(_) => "ringfence login --list".to_owned(),
        LoginError::OAuth(_) | LoginError::Server(_) | LoginError::NotTaken(_) => {
            "ringfence report last".to_owned()
        }
        _ => return None,
    })
}
