//! Which of many globs may match a text? Each is filed under a few literal bytes that it needs.

/// Longest run of bytes that a pattern is filed under.
const LENGTH: usize = 4;

/// Globs that hold literal text somewhere, by a piece of it.
#[derive(Debug, Default)]
pub(crate) struct Grams {
    /// (piece, position), in order.
    filed: Vec<(u64, u32)>,
    /// Bit n is set when some piece has n + 1 bytes.
    lengths: u8,
    /// A bit for the hash of each piece: most places in a text are passed over by it alone.
    seen: Vec<u64>,
}

impl Grams {
    /// Files the globs of (position, text); gives back the positions of those without literal text.
    pub(crate) fn new(globs: &[(u32, &str)]) -> (Self, Vec<u32>) {
        let mut grams = Self::default();
        let mut bare = Vec::new();
        if globs.is_empty() {
            return (grams, bare);
        }
        // How often a piece occurs, roughly: two may share a count. A rare piece files best.
        let mut counts = vec![0_u32; (globs.len() * 8).next_power_of_two().clamp(64, 4096)];
        let mask = counts.len() - 1;
        for (_, glob) in globs {
            for piece in pieces(glob) {
                counts[hash(piece) & mask] += 1;
            }
        }
        let bits = (globs.len() * 16).next_power_of_two().max(64);
        grams.seen = vec![0; bits / 64];
        for (position, glob) in globs {
            // Of equally rare pieces the longest.
            let best = pieces(glob).min_by_key(|piece| {
                (counts[hash(*piece) & mask], std::cmp::Reverse(length(*piece)))
            });
            let Some(piece) = best else {
                bare.push(*position);
                continue;
            };
            grams.filed.push((piece, *position));
            grams.lengths |= 1 << (length(piece) - 1);
            let bit = hash(piece) & (bits - 1);
            grams.seen[bit / 64] |= 1 << (bit % 64);
        }
        grams.filed.sort_unstable();
        (grams, bare)
    }

    /// The lowest position that `matches` among those whose piece the text holds.
    pub(crate) fn first(&self, text: &[u8], matches: impl Fn(u32) -> bool) -> Option<u32> {
        let mut best = None;
        let mask = (self.seen.len() * 64).wrapping_sub(1);
        for length in (1..=LENGTH).filter(|n| self.lengths & (1 << (n - 1)) != 0) {
            for window in text.windows(length) {
                let piece = pack(window);
                let bit = hash(piece) & mask;
                if self.seen[bit / 64] & (1 << (bit % 64)) == 0 {
                    continue;
                }
                let from = self.filed.partition_point(|(filed, _)| *filed < piece);
                for (_, position) in
                    self.filed[from..].iter().take_while(|(filed, _)| *filed == piece)
                {
                    if best.is_some_and(|best| best <= *position) {
                        break;
                    }
                    if matches(*position) {
                        best = Some(*position);
                    }
                }
            }
        }
        best
    }
}

/// The pieces of a glob's literal runs, each as long as its run allows.
fn pieces(glob: &str) -> impl Iterator<Item = u64> + '_ {
    glob.as_bytes()
        .split(|b| matches!(b, b'*' | b'?'))
        .filter(|run| !run.is_empty())
        .flat_map(|run| run.windows(run.len().min(LENGTH)).map(pack))
}

/// Up to four bytes and how many they are, in one number.
fn pack(bytes: &[u8]) -> u64 {
    bytes.iter().fold(bytes.len() as u64, |packed, byte| packed << 8 | u64::from(*byte))
}

fn length(piece: u64) -> usize {
    // The count stands above the bytes: it is the highest byte that is not zero.
    (64 - piece.leading_zeros() as usize).div_ceil(8) - 1
}

fn hash(piece: u64) -> usize {
    usize::try_from(piece.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{Grams, length, pack};

    #[test]
    fn packing_keeps_the_length() {
        for bytes in [&b"a"[..], b"ab", b"abc", b"abcd", b"\0", b"\xff\xff\xff\xff"] {
            assert_eq!(length(pack(bytes)), bytes.len());
        }
        assert_ne!(pack(b"a"), pack(b"\0a"));
    }

    #[test]
    fn candidates_are_those_that_can_match() {
        let globs = [(0, "*abc*"), (1, "*?*"), (2, "x*y"), (3, "*abcdef*")];
        let (grams, bare) = Grams::new(&globs);
        assert_eq!(bare, [1]);
        assert_eq!(grams.first(b"..abcdef..", |_| true), Some(0));
        assert_eq!(grams.first(b"..abcdef..", |at| at == 3), Some(3));
        assert_eq!(grams.first(b"nothing", |_| true), None);
        assert_eq!(Grams::new(&[]).0.first(b"abc", |_| true), None);
    }
}
