//! Secret texts in JSON: read into memory that is zeroed, written from there.

use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};
use zeroize::Zeroizing;

pub(super) fn serialize<S: Serializer>(
    text: &Zeroizing<String>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    text.as_str().serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Zeroizing<String>, D::Error> {
    String::deserialize(deserializer).map(Zeroizing::new)
}

/// The same where there may be none.
pub(super) mod option {
    use super::{Deserializer, Serializer, Zeroizing};
    use serde::{Deserialize as _, Serialize as _};

    pub(in super::super) fn serialize<S: Serializer>(
        text: &Option<Zeroizing<String>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        text.as_deref().map(String::as_str).serialize(serializer)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Zeroizing<String>>, D::Error> {
        Ok(Option::<String>::deserialize(deserializer)?.map(Zeroizing::new))
    }
}
