//! The addresses that Squid must not connect to, as blocks: the same table that the built-in proxy
//! judges by, in Squid's form. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::registry::{V4, V6};

/// A block of addresses. An IPv4 one is never written as an IPv6 one, nor the other way round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) base: IpAddr,
    pub(crate) prefix: u8,
}

impl std::fmt::Display for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

/// All of them, each once and none within another: Squid warns about a block that lies in another.
///
/// Squid keeps an IPv4 address as `::ffff:a.b.c.d`, so that a block which holds `::ffff:0:0/96` would
/// refuse every IPv4 address. Around it the space is cut into what lies beside.
pub(crate) fn refused() -> Vec<Block> {
    let four = V4.iter().map(|(base, prefix, _)| Block { base: (*base).into(), prefix: *prefix });
    let six = V6
        .iter()
        .map(|(base, prefix, _)| Block { base: (*base).into(), prefix: *prefix })
        .filter(|block| !holds(*block, MAPPED));
    // Only 2000::/3 is given out (RFC 4291, section 2.4).
    let beyond = [(0x4000, 2), (0x8000, 1)].map(|(first, prefix)| Block {
        base: Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, 0).into(),
        prefix,
    });
    let below = beside_mapped();
    let mut all: Vec<Block> = four.chain(six).chain(beyond).chain(below).collect();
    let whole = all.clone();
    let mut seen = Vec::new();
    all.retain(|block| {
        let inside = whole.iter().any(|other| other != block && holds(*other, *block));
        let new = !seen.contains(block);
        seen.push(*block);
        new && !inside
    });
    all
}

/// `::ffff:0:0/96`, where Squid has its IPv4 addresses.
const MAPPED: Block =
    Block { base: IpAddr::V6(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0)), prefix: 96 };

/// `::/3` without [`MAPPED`]: at each length from 4 to 96 the half that it is not in.
fn beside_mapped() -> Vec<Block> {
    let mapped = 0xffff_u128 << 32;
    (4..=96_u8)
        .map(|prefix| {
            let bit = 1_u128 << (128 - u32::from(prefix));
            let other = (mapped ^ bit) & !(bit - 1);
            Block { base: Ipv6Addr::from_bits(other).into(), prefix }
        })
        .collect()
}

fn holds(outer: Block, inner: Block) -> bool {
    let within = |outer_bits: u128, inner_bits: u128, width: u8| {
        outer.prefix <= inner.prefix
            && (outer.prefix == 0 || (outer_bits ^ inner_bits) >> (width - outer.prefix) == 0)
    };
    match (outer.base, inner.base) {
        (IpAddr::V4(a), IpAddr::V4(b)) => within(bits4(a), bits4(b), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => within(a.to_bits(), b.to_bits(), 128),
        _ => false,
    }
}

fn bits4(address: Ipv4Addr) -> u128 {
    u128::from(address.to_bits())
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::{Block, holds, refused};
    use crate::registry::{V4, V6, special};

    fn covered(address: IpAddr) -> bool {
        let prefix = if address.is_ipv4() { 32 } else { 128 };
        refused().iter().any(|block| holds(*block, Block { base: address, prefix }))
    }

    /// As the table says, but for what Squid takes for IPv4.
    fn expected(address: IpAddr) -> bool {
        match address {
            IpAddr::V6(six) if six.to_ipv4_mapped().is_some() => false,
            _ => special(address).is_some(),
        }
    }

    #[test]
    fn each_block_ends_where_the_table_says() {
        for (base, prefix, what) in V4 {
            let (first, size) = (base.to_bits(), 1_u64 << (32 - prefix));
            let last = first + u32::try_from(size - 1).unwrap();
            for bits in [first.saturating_sub(1), first, last, last.saturating_add(1)] {
                let address = Ipv4Addr::from_bits(bits).into();
                assert_eq!(covered(address), expected(address), "{address} at {what}");
            }
        }
        for (base, prefix, what) in V6 {
            let first = base.to_bits();
            let last = first | (u128::MAX.checked_shr(u32::from(*prefix)).unwrap_or(0));
            for bits in [first.wrapping_sub(1), first, last, last.wrapping_add(1)] {
                let address = Ipv6Addr::from_bits(bits).into();
                assert_eq!(covered(address), expected(address), "{address} at {what}");
            }
        }
    }

    #[test]
    fn none_lies_in_another() {
        let all = refused();
        for (n, a) in all.iter().enumerate() {
            for (m, b) in all.iter().enumerate() {
                assert!(n == m || !holds(*a, *b), "{b} lies in {a}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_ipv4_address_is_as_the_table_says(bits: u32) {
            let address = IpAddr::from(Ipv4Addr::from_bits(bits));
            prop_assert_eq!(covered(address), expected(address));
        }

        #[test]
        fn any_ipv6_address_is_as_the_table_says(bits: u128, high in 0_u16..0x4000) {
            let low = bits & (u128::MAX >> 16);
            for bits in [bits, low | (u128::from(high) << 112), low] {
                let address = IpAddr::from(Ipv6Addr::from_bits(bits));
                prop_assert_eq!(covered(address), expected(address));
            }
        }
    }
}
