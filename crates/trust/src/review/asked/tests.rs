use std::path::PathBuf;

use proptest::prelude::{Strategy, any, prop, prop_assert_ne, prop_assume, proptest};
use ringfence_bundle::{Digest, Program, Who, consent_of};

use super::digest;

fn programs() -> impl Strategy<Value = Vec<Program>> {
    let one = (any::<Option<u8>>(), "/[a-z/]{1,12}", any::<u8>()).prop_map(|(who, path, byte)| {
        let who = who.map_or(Who::Agent, |n| Who::Server(format!("s{n}")));
        let digest = Digest::framed("machine-program", &[&[byte]]);
        Program { who, path: PathBuf::from(path), digest }
    });
    proptest::collection::vec(one, 0..6)
}

proptest! {
    #[test]
    fn every_byte_of_the_three_files_counts(
        files in proptest::array::uniform3(proptest::collection::vec(any::<u8>(), 1..80)),
        which in 0_usize..3,
        at in any::<prop::sample::Index>(),
        flip in 1_u8..=255,
    ) {
        let consent = |files: &[Vec<u8>; 3]| consent_of(&files[0], Some(&files[1]), Some(&files[2]));
        let mut other = files.clone();
        let at = at.index(other[which].len());
        other[which][at] ^= flip;
        prop_assert_ne!(consent(&files), consent(&other));
        prop_assert_ne!(digest(consent(&files), &[]), digest(consent(&other), &[]));
        // A byte that moves from one file to its neighbour counts too, and so does an absent file.
        let mut moved = files.clone();
        let byte = moved[0].pop().expect("at least one byte");
        moved[1].insert(0, byte);
        prop_assert_ne!(consent(&files), consent(&moved));
        prop_assert_ne!(
            consent_of(&files[0], None, Some(&files[2])),
            consent_of(&files[0], Some(b""), Some(&files[2]))
        );
    }

    #[test]
    fn every_program_counts(one in programs(), other in programs(), byte in any::<u8>()) {
        let consent = Digest::framed("consent", &[&[byte]]);
        prop_assume!(one != other);
        prop_assert_ne!(digest(consent, &one), digest(consent, &other));
    }
}
