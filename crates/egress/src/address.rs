//! The proof that an address may be dialled.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use crate::local::Locals;
use crate::registry::special;

/// Addresses of one answer that are dialled at most.
pub(crate) const MAX_ADDRESSES: usize = 16;

/// An address that was checked: globally routable unicast, and not one of this machine's own. Made
/// only by [`check_addresses`]; nothing else can be dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CheckedAddr(IpAddr);

impl CheckedAddr {
    /// The address.
    #[must_use]
    pub fn ip(self) -> IpAddr {
        self.0
    }

    /// Lets a test dial its own listener. Not in the program.
    #[cfg(test)]
    pub(crate) fn unchecked_in_test(address: IpAddr) -> Self {
        Self(address)
    }
}

impl fmt::Display for CheckedAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why an answer was refused, whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// There was no address in it.
    #[error("there is no address in the answer")]
    Empty,
    /// One of its addresses is in a special-purpose block. Likely a name that points into a private
    /// network, or an attempt to reach one through an allowed name.
    #[error("{address} is not globally routable: {block}")]
    Special {
        /// The first such address.
        address: IpAddr,
        /// The block it is in.
        block: &'static str,
    },
    /// One of its addresses is this machine's own.
    #[error("{0} is an address of this machine")]
    Local(IpAddr),
    /// It could not be found out whether an address is this machine's own.
    #[error("cannot tell whether {0} is an address of this machine: {1}")]
    Unknown(IpAddr, String),
}

/// Checks every address of an answer. One bad address refuses the whole answer (a resolver that mixes
/// a private address in is not to be believed about the others). Duplicates are dropped; of what is
/// good the first 16 are kept, the families in turn (RFC 8305, section 4).
///
/// # Errors
/// [`AddressError`], naming the first bad address.
pub fn check_addresses(
    answers: &[IpAddr],
    locals: &Locals,
) -> Result<Vec<CheckedAddr>, AddressError> {
    let distinct: BTreeSet<IpAddr> = answers.iter().copied().collect();
    for &address in answers {
        if let Some(block) = special(address) {
            return Err(AddressError::Special { address, block });
        }
    }
    for &address in &distinct {
        match locals.holds(address) {
            Ok(false) => {}
            Ok(true) => return Err(AddressError::Local(address)),
            Err(error) => return Err(AddressError::Unknown(address, error.to_string())),
        }
    }
    let order = in_turn(answers);
    if order.is_empty() {
        return Err(AddressError::Empty);
    }
    Ok(order.into_iter().map(CheckedAddr).collect())
}

/// The distinct answers in their order, the families in turn, IPv6 first.
fn in_turn(answers: &[IpAddr]) -> Vec<IpAddr> {
    let mut seen = BTreeSet::new();
    let (six, four): (Vec<IpAddr>, Vec<IpAddr>) =
        answers.iter().copied().filter(|address| seen.insert(*address)).partition(IpAddr::is_ipv6);
    let (mut six, mut four) = (six.into_iter(), four.into_iter());
    let mut order = Vec::new();
    while order.len() < MAX_ADDRESSES {
        let before = order.len();
        order.extend(six.next());
        order.extend(four.next());
        if order.len() == before {
            break;
        }
    }
    order.truncate(MAX_ADDRESSES);
    order
}

#[cfg(test)]
mod tests;
