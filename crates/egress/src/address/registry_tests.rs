use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{V4, V6, special};
use proptest::prelude::proptest;
use proptest::prop_assert;

/// One row a registry block: first and last address, and the nearest addresses on either side that
/// are globally routable, where there are any. Written out by hand, not derived from the table.
const ROWS: &[(&str, &str, &[&str])] = &[
    ("0.0.0.0", "0.255.255.255", &["1.0.0.0"]),
    ("10.0.0.0", "10.255.255.255", &["9.255.255.255", "11.0.0.0"]),
    ("100.64.0.0", "100.127.255.255", &["100.63.255.255", "100.128.0.0"]),
    ("127.0.0.0", "127.255.255.255", &["126.255.255.255", "128.0.0.0"]),
    ("169.254.0.0", "169.254.255.255", &["169.253.255.255", "169.255.0.0"]),
    ("172.16.0.0", "172.31.255.255", &["172.15.255.255", "172.32.0.0"]),
    ("192.0.0.0", "192.0.0.255", &["191.255.255.255", "192.0.1.0"]),
    ("192.0.2.0", "192.0.2.255", &["192.0.1.255", "192.0.3.0"]),
    ("192.31.196.0", "192.31.196.255", &["192.31.195.255", "192.31.197.0"]),
    ("192.52.193.0", "192.52.193.255", &["192.52.192.255", "192.52.194.0"]),
    ("192.88.99.0", "192.88.99.255", &["192.88.98.255", "192.88.100.0"]),
    ("192.168.0.0", "192.168.255.255", &["192.167.255.255", "192.169.0.0"]),
    ("192.175.48.0", "192.175.48.255", &["192.175.47.255", "192.175.49.0"]),
    ("198.18.0.0", "198.19.255.255", &["198.17.255.255", "198.20.0.0"]),
    ("198.51.100.0", "198.51.100.255", &["198.51.99.255", "198.51.101.0"]),
    ("203.0.113.0", "203.0.113.255", &["203.0.112.255", "203.0.114.0"]),
    ("224.0.0.0", "239.255.255.255", &["223.255.255.255"]),
    ("240.0.0.0", "255.255.255.255", &[]),
    ("::", "::", &[]),
    ("::1", "::1", &[]),
    ("::0.0.0.0", "::255.255.255.255", &[]),
    ("::ffff:0.0.0.0", "::ffff:255.255.255.255", &[]),
    ("::ffff:0:0.0.0.0", "::ffff:0:255.255.255.255", &[]),
    ("64:ff9b::", "64:ff9b::255.255.255.255", &[]),
    ("64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", &[]),
    ("100::", "100::ffff:ffff:ffff:ffff", &[]),
    ("100:0:0:1::", "100:0:0:1:ffff:ffff:ffff:ffff", &[]),
    (
        "2001::",
        "2001:0:ffff:ffff:ffff:ffff:ffff:ffff",
        &["2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff"],
    ),
    ("2001:2::", "2001:2:0:ffff:ffff:ffff:ffff:ffff", &[]),
    ("2001:10::", "2001:1f:ffff:ffff:ffff:ffff:ffff:ffff", &[]),
    ("2001:20::", "2001:2f:ffff:ffff:ffff:ffff:ffff:ffff", &[]),
    ("2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", &["2001:200::"]),
    (
        "2001:db8::",
        "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
        &["2001:db7:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db9::"],
    ),
    (
        "2002::",
        "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        &["2001:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2003::"],
    ),
    (
        "2620:4f:8000::",
        "2620:4f:8000:ffff:ffff:ffff:ffff:ffff",
        &["2620:4f:7fff:ffff:ffff:ffff:ffff:ffff", "2620:4f:8001::"],
    ),
    (
        "3fff::",
        "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff",
        &["3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "3fff:1000::"],
    ),
    ("5f00::", "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff", &[]),
    ("fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", &[]),
    ("fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", &[]),
    ("fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", &[]),
    ("ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", &[]),
];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn every_block_is_refused_at_both_ends_and_its_neighbours_are_not() {
    for (first, last, outside) in ROWS {
        assert!(special(ip(first)).is_some(), "{first}");
        assert!(special(ip(last)).is_some(), "{last}");
        for neighbour in *outside {
            assert_eq!(special(ip(neighbour)), None, "{neighbour}");
        }
    }
}

#[test]
fn every_row_of_the_table_has_a_row_here() {
    let firsts: Vec<(IpAddr, IpAddr)> = ROWS.iter().map(|(a, b, _)| (ip(a), ip(b))).collect();
    for (base, prefix, what) in V4 {
        let last = Ipv4Addr::from_bits(
            base.to_bits() | u32::MAX.checked_shr((*prefix).into()).unwrap_or(0),
        );
        assert!(firsts.contains(&((*base).into(), last.into())), "{base}/{prefix} {what}");
    }
    for (base, prefix, what) in V6 {
        let last = Ipv6Addr::from_bits(
            base.to_bits() | u128::MAX.checked_shr((*prefix).into()).unwrap_or(0),
        );
        assert!(firsts.contains(&((*base).into(), last.into())), "{base}/{prefix} {what}");
    }
    assert_eq!(ROWS.len(), V4.len() + V6.len());
}

#[test]
fn ordinary_servers_are_reachable_and_the_metadata_address_is_not() {
    for address in
        ["1.1.1.1", "8.8.8.8", "93.184.215.14", "2606:4700::1111", "2a00:1450::1", "2000::"]
    {
        assert_eq!(special(ip(address)), None, "{address}");
    }
    for address in [
        "169.254.169.254",
        "fd00:ec2::254",
        "::ffff:8.8.8.8",
        "2002:a00::1",
        "1fff:ffff::",
        "4000::",
    ] {
        assert!(special(ip(address)).is_some(), "{address}");
    }
}

proptest! {
    #[test]
    fn outside_2000_3_nothing_is_routable(bits: u128) {
        let address = Ipv6Addr::from_bits(bits);
        prop_assert!(bits >> 125 == 1 || special(address.into()).is_some());
    }
}
