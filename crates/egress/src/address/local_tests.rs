use std::net::IpAddr;

use super::{Locals, bind_tells, binds};

#[test]
fn every_interface_address_and_all_of_loopback_is_local() {
    let locals = Locals::of_this_machine();
    let interfaces = if_addrs::get_if_addrs().unwrap();
    assert!(!interfaces.is_empty());
    for interface in interfaces {
        // A link-local address needs its zone to be bound; it is refused by the table before.
        let zoned = matches!(interface.ip(), IpAddr::V6(six) if six.is_unicast_link_local());
        assert!(zoned || locals.holds(interface.ip()).unwrap(), "{}", interface.ip());
    }
    // On no interface, yet routed to this machine: only the bind shows it.
    let routed: IpAddr = "127.9.9.9".parse().unwrap();
    assert!(bind_tells(false), "ip_nonlocal_bind is on here: this test cannot tell");
    assert!(binds(routed).unwrap());
    assert!(locals.holds(routed).unwrap());
}

#[test]
fn an_address_elsewhere_is_not_local() {
    let locals = Locals::of_this_machine();
    for elsewhere in ["1.1.1.1", "8.8.8.8", "2606:4700::1111"] {
        assert!(!locals.holds(elsewhere.parse().unwrap()).unwrap(), "{elsewhere}");
    }
}
