use std::net::IpAddr;

use super::{AddressError, MAX_ADDRESSES, check_addresses};
use crate::local::Locals;

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn checked(texts: &[&str]) -> Result<Vec<String>, AddressError> {
    let locals = Locals::of_this_machine();
    check_addresses(&ips(texts), &locals).map(|good| good.iter().map(ToString::to_string).collect())
}

#[test]
fn families_take_turns_and_duplicates_go() {
    assert_eq!(
        checked(&["1.1.1.1", "1.0.0.1", "1.1.1.1", "2606:4700::1", "2606:4700::1"]),
        Ok(vec!["2606:4700::1".into(), "1.1.1.1".into(), "1.0.0.1".into()])
    );
}

#[test]
fn one_bad_address_refuses_the_whole_answer() {
    assert!(checked(&["1.1.1.1", "8.8.8.8"]).is_ok());
    for bad in
        ["10.0.0.1", "127.0.0.1", "169.254.169.254", "::1", "::ffff:1.1.1.1", "64:ff9b::101:101"]
    {
        for answer in [[bad, "1.1.1.1"], ["1.1.1.1", bad]] {
            let refused = checked(&answer);
            assert!(
                matches!(&refused, Err(AddressError::Special { address, .. }) if *address == bad.parse::<IpAddr>().unwrap()),
                "{refused:?}"
            );
        }
    }
    assert_eq!(checked(&[]), Err(AddressError::Empty));
}

#[test]
fn a_bad_address_behind_many_good_ones_is_still_seen() {
    let mut many: Vec<String> = (1..=40).map(|last| format!("1.1.1.{last}")).collect();
    let texts =
        |many: &[String]| many.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
    let locals = Locals::of_this_machine();
    assert_eq!(check_addresses(&texts(&many), &locals).unwrap().len(), MAX_ADDRESSES);
    many.push("192.168.1.1".into());
    assert!(check_addresses(&texts(&many), &locals).is_err());
}

#[test]
fn an_address_of_this_machine_is_refused_however_public_it_looks() {
    let (own, other) = ("8.8.8.8", "8.8.4.4");
    let locals = Locals::with_interfaces_in_test(ips(&[own]));
    assert_eq!(check_addresses(&ips(&[own]), &locals), Err(AddressError::Local(ips(&[own])[0])));
    assert!(check_addresses(&ips(&[other]), &locals).is_ok());
}
