//! base58btc for exactly the 34 bytes of an Ed25519 multikey.

/// The Bitcoin alphabet.
const ALPHABET: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/// Bytes of a multikey: the code 0xed 0x01 and the key.
pub(crate) const BYTES: usize = 34;

/// Digits that 34 bytes beginning with 0xed always take: log58(0xed01 * 256^32) is 46.4.
pub(crate) const DIGITS: usize = 47;

/// Writes the digits. Only right for values that take all 47, as every Ed25519 multikey does.
pub(crate) fn encode(bytes: &[u8; BYTES]) -> String {
    let mut digits = [0_u8; DIGITS];
    for &byte in bytes {
        let mut carry = u32::from(byte);
        for digit in digits.iter_mut().rev() {
            carry += u32::from(*digit) << 8;
            *digit = u8::try_from(carry % 58).expect("a remainder of 58 fits a byte");
            carry /= 58;
        }
    }
    digits.iter().map(|&digit| char::from(ALPHABET[usize::from(digit)])).collect()
}

/// Reads exactly 47 digits; `None` for another length, another character, or a value too large. The
/// length is looked at before any arithmetic.
pub(crate) fn decode(text: &[u8]) -> Option<[u8; BYTES]> {
    let digits: &[u8; DIGITS] = text.try_into().ok()?;
    let mut bytes = [0_u8; BYTES];
    for digit in digits {
        let value = ALPHABET.iter().position(|letter| letter == digit)?;
        let mut carry = u32::try_from(value).ok()?;
        for byte in bytes.iter_mut().rev() {
            carry += u32::from(*byte) * 58;
            *byte = carry.to_le_bytes()[0];
            carry >>= 8;
        }
        if carry != 0 {
            return None;
        }
    }
    Some(bytes)
}
