//! From an allowed name to its addresses.

use std::net::IpAddr;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{LookupIpStrategy, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::Name;
use hickory_resolver::system_conf::read_system_conf;
use tokio::sync::OnceCell;
use tokio::time::timeout;

/// A whole resolution, all its attempts included, takes no longer than this.
const TIMEOUT: Duration = Duration::from_secs(5);
/// One attempt, so that a second one fits.
const ATTEMPT: Duration = Duration::from_secs(2);
/// Answers kept, until their time to live is over.
const CACHED: u64 = 256;

/// Why a name has no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// `/etc/resolv.conf` or `/etc/hosts` cannot be used. Mend it; nothing is resolved meanwhile.
    #[error("the system's resolver configuration cannot be used: {0}")]
    Configuration(String),
    /// The name servers know no such name.
    #[error("there is no such name")]
    NoName,
    /// The name is there, and no address is.
    #[error("the name has no address")]
    NoAddress,
    /// The name servers cannot be asked or answer with an error.
    #[error("{0}")]
    Lookup(String),
    /// No answer in 5 seconds.
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    Timeout,
}

/// Resolves names with the system's name servers and hosts file. Search domains are never used: the
/// name that was judged is the name that is asked for. The configuration is read at the first use.
#[derive(Default)]
pub struct Resolver {
    inner: OnceCell<TokioResolver>,
    #[cfg(test)]
    instead: Option<ResolverConfig>,
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolver").field("ready", &self.inner.initialized()).finish()
    }
}

impl Resolver {
    /// A resolver that has read nothing yet.
    #[must_use]
    pub fn system() -> Self {
        Self::default()
    }

    /// With other name servers than the system's.
    #[cfg(test)]
    pub(crate) fn with_config_in_test(config: ResolverConfig) -> Self {
        Self { instead: Some(config), ..Self::default() }
    }

    /// Both families' addresses of a name in canonical form, without a trailing dot.
    ///
    /// # Errors
    /// [`ResolveError`].
    pub async fn lookup(&self, name: &str) -> Result<Vec<IpAddr>, ResolveError> {
        let resolver = self.inner.get_or_try_init(|| async { self.build() }).await?;
        let mut whole =
            Name::from_ascii(name).map_err(|error| ResolveError::Lookup(error.to_string()))?;
        // No search domain is put behind a whole name.
        whole.set_fqdn(true);
        match timeout(TIMEOUT, resolver.lookup_ip(whole)).await {
            Err(_) => Err(ResolveError::Timeout),
            Ok(Err(error)) if error.is_nx_domain() => Err(ResolveError::NoName),
            Ok(Err(error)) if error.is_no_records_found() => Err(ResolveError::NoAddress),
            Ok(Err(error)) => Err(ResolveError::Lookup(error.to_string())),
            Ok(Ok(answer)) => {
                let addresses: Vec<IpAddr> = answer.iter().collect();
                if addresses.is_empty() { Err(ResolveError::NoAddress) } else { Ok(addresses) }
            }
        }
    }

    fn build(&self) -> Result<TokioResolver, ResolveError> {
        let (system, read_options) = self.configuration()?;
        let servers = system.name_servers().to_vec();
        let config = ResolverConfig::from_parts(None, Vec::new(), servers);
        let mut builder =
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        let options = builder.options_mut();
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        options.use_hosts_file = ResolveHosts::Always;
        options.timeout = ATTEMPT;
        options.attempts = 2;
        options.cache_size = CACHED;
        options.edns0 = read_options.edns0;
        builder.build().map_err(|error| ResolveError::Configuration(error.to_string()))
    }

    fn configuration(&self) -> Result<(ResolverConfig, ResolverOpts), ResolveError> {
        #[cfg(test)]
        if let Some(config) = &self.instead {
            return Ok((config.clone(), ResolverOpts::default()));
        }
        read_system_conf().map_err(|error| ResolveError::Configuration(error.to_string()))
    }
}

#[cfg(test)]
mod tests;
