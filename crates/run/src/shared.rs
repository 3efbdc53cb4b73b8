//! The database that this machine's runs share.

use std::path::Path;

use ringfence_policy::MachinePolicy;
use ringfence_secrets::{Chain, Environment, Found, Keychain};
use ringfence_state::State;

use crate::Error;

/// The machine's database: the file in its folder, or PostgreSQL at the address that the variable
/// named by `[state] url_ref` in `machine.toml` has, from the environment or the keychain. Opens
/// nothing yet.
///
/// # Errors
/// [`Error::Policy`], [`Error::Variable`], [`Error::State`].
pub async fn shared(home: &Path) -> Result<State, Error> {
    let machine = MachinePolicy::load(home)?;
    let Some(name) = &machine.state_url_ref else { return Ok(State::open(home, None)?) };
    let chain = Chain::new(vec![Box::new(Environment), Box::new(Keychain::new(home))]);
    let wrong = |reason| Error::Variable {
        name: name.to_string(),
        what: "the address of the shared database ([state] url_ref in machine.toml)",
        reason,
    };
    match chain.find(name).await {
        Found::Value { secret, .. } => Ok(State::open(home, Some(secret.expose()))?),
        Found::Nowhere { .. } => Err(wrong("it has no value on this machine".into())),
        Found::Failed { source, reason } => Err(wrong(format!("{source}: {reason}"))),
    }
}
