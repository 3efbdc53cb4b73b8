//! The special-purpose blocks of both address families, as a table. Pure.
//!
//! Sources: IANA IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890 and its updates), the
//! multicast and reserved blocks (RFC 1112, RFC 4291), and IPv6 forms that carry an IPv4 address.
//! Blocks which the registries call globally reachable (AS112, AMT, anycast services) are here too:
//! no server that an agent may need lives in one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A block of IPv4 addresses: first address, prefix length, what it is.
pub(crate) const V4: &[(Ipv4Addr, u8, &str)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8, "this network (RFC 791)"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "private use (RFC 1918)"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "shared address space (RFC 6598)"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "loopback (RFC 1122)"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link local, cloud metadata (RFC 3927)"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "private use (RFC 1918)"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "IETF protocol assignments (RFC 6890)"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "documentation (RFC 5737)"),
    (Ipv4Addr::new(192, 31, 196, 0), 24, "AS112 (RFC 7535)"),
    (Ipv4Addr::new(192, 52, 193, 0), 24, "AMT (RFC 7450)"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "6to4 relay (RFC 7526)"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "private use (RFC 1918)"),
    (Ipv4Addr::new(192, 175, 48, 0), 24, "AS112 (RFC 7534)"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "benchmarking (RFC 2544)"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "documentation (RFC 5737)"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "documentation (RFC 5737)"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast (RFC 1112)"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved and broadcast (RFC 1112, RFC 919)"),
];

/// A block of IPv6 addresses: first address, prefix length, what it is. A block comes before the
/// wider one that holds it, so that the name given is the nearest.
pub(crate) const V6: &[(Ipv6Addr, u8, &str)] = &[
    (v6([0, 0, 0, 0, 0, 0, 0, 0]), 128, "unspecified (RFC 4291)"),
    (v6([0, 0, 0, 0, 0, 0, 0, 1]), 128, "loopback (RFC 4291)"),
    (v6([0, 0, 0, 0, 0, 0, 0, 0]), 96, "IPv4-compatible (RFC 4291)"),
    (v6([0, 0, 0, 0, 0, 0xffff, 0, 0]), 96, "IPv4-mapped (RFC 4291)"),
    (v6([0, 0, 0, 0, 0xffff, 0, 0, 0]), 96, "IPv4-translated (RFC 2765)"),
    (v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0]), 96, "IPv4/IPv6 translation (RFC 6052)"),
    (v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0]), 48, "IPv4/IPv6 translation (RFC 8215)"),
    (v6([0x100, 0, 0, 0, 0, 0, 0, 0]), 64, "discard only (RFC 6666)"),
    (v6([0x100, 0, 0, 1, 0, 0, 0, 0]), 64, "dummy prefix (RFC 9780)"),
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0]), 32, "Teredo (RFC 4380)"),
    (v6([0x2001, 2, 0, 0, 0, 0, 0, 0]), 48, "benchmarking (RFC 5180)"),
    (v6([0x2001, 0x10, 0, 0, 0, 0, 0, 0]), 28, "ORCHID (RFC 4843)"),
    (v6([0x2001, 0x20, 0, 0, 0, 0, 0, 0]), 28, "ORCHIDv2 (RFC 7343)"),
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0]), 23, "IETF protocol assignments (RFC 2928)"),
    (v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0]), 32, "documentation (RFC 3849)"),
    (v6([0x2002, 0, 0, 0, 0, 0, 0, 0]), 16, "6to4 (RFC 3056)"),
    (v6([0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0]), 48, "AS112 (RFC 7534)"),
    (v6([0x3fff, 0, 0, 0, 0, 0, 0, 0]), 20, "documentation (RFC 9637)"),
    (v6([0x5f00, 0, 0, 0, 0, 0, 0, 0]), 16, "segment routing (RFC 9602)"),
    (v6([0xfc00, 0, 0, 0, 0, 0, 0, 0]), 7, "unique local (RFC 4193)"),
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0]), 10, "link local (RFC 4291)"),
    (v6([0xfec0, 0, 0, 0, 0, 0, 0, 0]), 10, "site local (RFC 3879)"),
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0]), 8, "multicast (RFC 4291)"),
];

const fn v6(groups: [u16; 8]) -> Ipv6Addr {
    let [a, b, c, d, e, f, g, h] = groups;
    Ipv6Addr::new(a, b, c, d, e, f, g, h)
}

/// What an address is, when it is anything but globally routable unicast.
pub(crate) fn special(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => {
            let bits = address.to_bits();
            V4.iter()
                .find(|(base, prefix, _)| (bits ^ base.to_bits()) >> (32 - prefix) == 0)
                .map(|(_, _, what)| *what)
        }
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            V6.iter()
                .find(|(base, prefix, _)| (bits ^ base.to_bits()) >> (128 - prefix) == 0)
                .map(|(_, _, what)| *what)
                // Only 2000::/3 has been given out for global unicast (RFC 4291, section 2.4).
                .or((bits >> 125 != 1).then_some("outside global unicast, 2000::/3 (RFC 4291)"))
        }
    }
}

#[cfg(test)]
#[path = "address/registry_tests.rs"]
mod tests;
