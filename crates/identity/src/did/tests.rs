use super::{Did, MULTICODEC, PREFIX};
use crate::{Error, base58};

/// The key of the seed 00…00, from the did:key test vectors.
const ZERO_SEED: &str = "did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp";

fn raw(key: [u8; 32]) -> String {
    let mut bytes = [0; base58::BYTES];
    bytes[..2].copy_from_slice(&MULTICODEC);
    bytes[2..].copy_from_slice(&key);
    format!("{PREFIX}{}", base58::encode(&bytes))
}

fn hex<const N: usize>(text: &str) -> [u8; N] {
    let bytes: Vec<u8> =
        (0..N).map(|at| u8::from_str_radix(&text[at * 2..at * 2 + 2], 16).expect("hex")).collect();
    bytes.try_into().expect("length")
}

#[test]
fn the_published_vector_parses_and_prints_the_same() {
    let did = Did::parse(ZERO_SEED).expect("the published vector");
    assert_eq!(did.to_string(), ZERO_SEED);
    let key = ed25519_dalek::SigningKey::from_bytes(&[0; 32]).verifying_key();
    assert_eq!(Did::of(&key), did);
}

#[test]
fn every_other_spelling_is_refused() {
    let long = format!("{ZERO_SEED}{}", "1".repeat(1 << 20));
    let leading = ZERO_SEED.replace("z6Mk", "z16Mk");
    let secp256k1 = "did:key:zQ3shokFTS3brHcDQrn82RUDfCZESWL1ZdCEJwekUDPQiYBme";
    let largest = format!("{PREFIX}{}", "z".repeat(base58::DIGITS));
    let refused = [
        "",
        "did:key:",
        "did:web:example.com",
        &ZERO_SEED[..ZERO_SEED.len() - 1],
        &ZERO_SEED.to_uppercase(),
        &ZERO_SEED.replace("did:key:z", "did:key:m"),
        &ZERO_SEED.replace("6Mk", "6M0"),
        &ZERO_SEED.replace("6Mk", "6é"),
        &format!(" {ZERO_SEED}"),
        &format!("{ZERO_SEED}#key"),
        &long,
        &leading,
        secp256k1,
        &largest,
    ];
    for text in refused {
        let error = Did::parse(text).expect_err(text);
        assert!(matches!(error, Error::Did(shown) if shown.len() < 1000));
    }
}

#[test]
fn small_order_and_non_canonical_keys_are_refused() {
    let mut one = [0; 32];
    one[0] = 1;
    // y = 1 is the neutral element; y = p + 1 is the same point written another way, as is y = 1
    // with the sign bit set; y = 0 has order 4; y = p is y = 0 again.
    let mut p = [0xff; 32];
    p[0] = 0xed;
    p[31] = 0x7f;
    let mut p_and_1 = p;
    p_and_1[0] = 0xee;
    let mut minus_zero = one;
    minus_zero[31] = 0x80;
    // y = p + 3 names a point of large order in a way that is not canonical.
    let mut p_and_3 = p;
    p_and_3[0] = 0xf0;
    let mut three = [0; 32];
    three[0] = 3;
    Did::parse(&raw(three)).expect("control: y = 3 is a point of large order");
    for key in [[0; 32], one, p, p_and_1, minus_zero, p_and_3] {
        assert!(Did::parse(&raw(key)).is_err(), "{key:02x?}");
    }
}

#[test]
fn rfc_8032_test_2_verifies_and_its_malleated_twin_does_not() {
    let key = hex::<32>("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
    let signature = hex::<64>(concat!(
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da",
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    ));
    let did = Did::parse(&raw(key)).expect("the key of the vector");
    did.verify(&[0x72], &signature).expect("the vector verifies");
    assert!(matches!(did.verify(&[0x73], &signature), Err(Error::Signature)));

    // S + L is the same number modulo the group's order: a second spelling of one signature.
    let order = hex::<32>("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010");
    let mut twin = signature;
    let mut carry = 0_u16;
    for (byte, add) in twin[32..].iter_mut().zip(order) {
        carry += u16::from(*byte) + u16::from(add);
        *byte = carry.to_le_bytes()[0];
        carry >>= 8;
    }
    assert!(matches!(did.verify(&[0x72], &twin), Err(Error::Signature)));
    for bit in 0..512 {
        let mut flipped = signature;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(did.verify(&[0x72], &flipped).is_err(), "bit {bit}");
    }
}
