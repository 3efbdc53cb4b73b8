//! Which addresses are this machine's own?

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::sync::OnceLock;

/// The addresses of this machine, asked anew at each check: those of its interfaces, and those that
/// the kernel lets a socket bind to (a local route may cover far more than the interfaces say).
#[derive(Debug, Clone)]
pub struct Locals {
    #[cfg(test)]
    assumed: Vec<IpAddr>,
}

impl Locals {
    /// Of the network namespace that this process is in.
    #[must_use]
    pub fn of_this_machine() -> Self {
        Self {
            #[cfg(test)]
            assumed: Vec::new(),
        }
    }

    /// As if these stood on an interface as well.
    #[cfg(test)]
    pub(crate) fn with_interfaces_in_test(assumed: Vec<IpAddr>) -> Self {
        Self { assumed }
    }

    /// The addresses of this machine's interfaces now.
    ///
    /// # Errors
    /// When the system does not say.
    pub(crate) fn all(&self) -> io::Result<Vec<IpAddr>> {
        Ok(if_addrs::get_if_addrs()?.iter().map(if_addrs::Interface::ip).collect())
    }

    /// Whether this address is one of ours.
    ///
    /// # Errors
    /// When the system does not say; the caller must take that for a yes.
    pub fn holds(&self, address: IpAddr) -> io::Result<bool> {
        #[cfg(test)]
        if self.assumed.contains(&address) {
            return Ok(true);
        }
        if bind_tells(address.is_ipv6()) {
            // Whatever an interface holds can be bound too, so that the list need not be read.
            return binds(address);
        }
        Ok(if_addrs::get_if_addrs()?.iter().any(|interface| interface.ip() == address))
    }
}

/// Binding tells own addresses from others, unless `ip_nonlocal_bind` lets everything be bound.
fn bind_tells(six: bool) -> bool {
    static TELLS: [OnceLock<bool>; 2] = [const { OnceLock::new() }; 2];
    *TELLS[usize::from(six)].get_or_init(|| {
        let family = if six { "ipv6" } else { "ipv4" };
        std::fs::read_to_string(format!("/proc/sys/net/{family}/ip_nonlocal_bind"))
            .map_or(true, |text| text.trim() == "0")
    })
}

/// Whether a socket can be bound to this address. No port is taken for longer than the call.
fn binds(address: IpAddr) -> io::Result<bool> {
    use io::ErrorKind::AddrNotAvailable;
    match UdpSocket::bind((address, 0)) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == AddrNotAvailable => Ok(false),
        // The family is switched off: nothing local has such an address, nor can it be dialled.
        Err(error) if error.raw_os_error() == Some(EAFNOSUPPORT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// `EAFNOSUPPORT` on Linux; the standard library has no kind for it.
const EAFNOSUPPORT: i32 = 97;

#[cfg(test)]
#[path = "address/local_tests.rs"]
mod tests;
