//! Capabilities, isolation levels, and the floor that the first sets for the second.

use crate::manifest::{Capability, Isolation};

#[cfg(test)]
mod tests;

impl Isolation {
    /// All levels, weakest first.
    pub const ALL: [Self; 4] = [Self::None, Self::Process, Self::Network, Self::Kernel];

    /// As the manifest spells it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Process => "process",
            Self::Network => "network",
            Self::Kernel => "kernel",
        }
    }
}

impl std::fmt::Display for Isolation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Capability {
    /// All capabilities.
    pub const ALL: [Self; 8] = [
        Self::ReadFile,
        Self::WriteFile,
        Self::WebSearch,
        Self::ExternalApi,
        Self::SendEmail,
        Self::SpawnSubagent,
        Self::ExternalTransfer,
        Self::DeleteRecords,
    ];

    /// As the manifest spells it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReadFile => "read_file",
            Self::WriteFile => "write_file",
            Self::WebSearch => "web_search",
            Self::ExternalApi => "external_api",
            Self::SendEmail => "send_email",
            Self::SpawnSubagent => "spawn_subagent",
            Self::ExternalTransfer => "external_transfer",
            Self::DeleteRecords => "delete_records",
        }
    }

    /// The weakest isolation that an agent with this capability may run at.
    #[must_use]
    pub const fn floor(self) -> Isolation {
        match self {
            Self::ReadFile | Self::WriteFile => Isolation::Process,
            Self::WebSearch | Self::ExternalApi | Self::SendEmail => Isolation::Network,
            Self::SpawnSubagent | Self::ExternalTransfer | Self::DeleteRecords => Isolation::Kernel,
        }
    }

    /// Whether what it does cannot be taken back, so that it wants an approval rule. Advice only.
    #[must_use]
    pub const fn wants_approval(self) -> bool {
        matches!(
            self,
            Self::SendEmail | Self::SpawnSubagent | Self::ExternalTransfer | Self::DeleteRecords
        )
    }
}

/// The weakest isolation that an agent with these capabilities may run at.
///
/// ```
/// use ringfence_bundle::{Capability, Isolation, floor};
/// assert_eq!(floor(&[Capability::ReadFile, Capability::SendEmail]), Isolation::Network);
/// assert_eq!(floor(&[]), Isolation::None);
/// ```
#[must_use]
pub fn floor(capabilities: &[Capability]) -> Isolation {
    capabilities.iter().map(|capability| capability.floor()).max().unwrap_or_default()
}
