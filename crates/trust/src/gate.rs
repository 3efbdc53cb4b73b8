//! What a pin that does not hold means: refusal, or a word to the person.

use ringfence_bundle::{Drift, Kind, Reason};

use crate::Error;

/// What follows from a pin that does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Nothing starts, is delivered or is granted.
    Refuse,
    /// The person is told, and it goes on.
    Warn,
}

/// What follows from a pin of this kind that does not hold for this reason. Settings are values that
/// stand in the manifest, which consent covers, and start nothing: their pins are for the eye. All
/// other kinds are code, or text that an agent acts on.
#[must_use]
pub const fn gate(kind: Kind, reason: Reason) -> Gate {
    match (kind, reason) {
        (Kind::Setting, Reason::Unpinned | Reason::Changed | Reason::Undeclared) => Gate::Warn,
        _ => Gate::Refuse,
    }
}

/// Refuses when one of these does.
pub(crate) fn refused(drift: &[Drift]) -> Result<(), Error> {
    let refuses = |row: &&Drift| gate(row.kind, row.reason) == Gate::Refuse;
    let refused: Vec<Drift> = drift.iter().filter(refuses).cloned().collect();
    if refused.is_empty() { Ok(()) } else { Err(Error::Drifted(refused)) }
}

#[cfg(test)]
mod tests {
    use ringfence_bundle::{Kind, Reason};

    use super::{Gate, gate};

    #[test]
    fn only_settings_warn() {
        let reasons = [
            Reason::Unpinned,
            Reason::Changed,
            Reason::Redeclared,
            Reason::Missing,
            Reason::NotFetched,
            Reason::Undeclared,
        ];
        for kind in Kind::ALL {
            for reason in reasons {
                let warns = kind == Kind::Setting
                    && !matches!(reason, Reason::Redeclared | Reason::Missing | Reason::NotFetched);
                assert_eq!(gate(kind, reason) == Gate::Warn, warns, "{kind} {reason:?}");
            }
        }
    }
}
