//! The rules of the budget, as values alone: what is admitted, and what a settlement does.

#[cfg(test)]
mod tests;

use serde::Serialize;

use crate::Usd;

/// Over what a cap counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// One run.
    Run,
    /// One UTC day, across runs.
    Day,
    /// One UTC month, across runs.
    Month,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Run, Self::Day, Self::Month];

    /// As the ledger spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Day => "day",
            Self::Month => "month",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// A cap, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cap {
    /// How much.
    pub amount: Usd,
    /// As a person reads it: `ringfence.toml:40 [spending] max_per_day_usd`.
    pub rule: String,
}

/// The caps of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Caps {
    /// One run.
    pub per_run: Option<Cap>,
    /// One UTC day.
    pub per_day: Option<Cap>,
    /// One UTC month.
    pub per_month: Option<Cap>,
    /// Percent of a cap, 1 to 100, at which a person is warned.
    pub warn_at_percent: Option<u8>,
}

impl Caps {
    /// The cap of a kind.
    #[must_use]
    pub fn of(&self, kind: Kind) -> Option<&Cap> {
        match kind {
            Kind::Run => self.per_run.as_ref(),
            Kind::Day => self.per_day.as_ref(),
            Kind::Month => self.per_month.as_ref(),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        Kind::ALL.iter().all(|kind| self.of(*kind).is_none())
    }
}

/// What is used in one scope: a run, a day or a month.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Scope {
    pub(crate) spent: Usd,
    pub(crate) reserved: Usd,
    pub(crate) warned: bool,
}

impl Scope {
    /// What is spent and what may yet be.
    pub(crate) fn used(&self) -> Usd {
        self.spent.saturating_add(self.reserved)
    }
}

/// The three scopes that a call counts in, in the order of [`Kind::ALL`].
pub(crate) type Scopes = [Scope; 3];

/// What the caps say to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Admission {
    /// So much is set aside, in every scope.
    Admitted { amount: Usd, rule: String },
    /// What is spent leaves room, what is set aside for calls in flight does not.
    Held { rule: String },
    /// A cap is spent: nothing more can be paid for.
    Spent { rule: String },
}

/// Admits a call, or not. It is refused when what is spent and set aside has reached a cap in any
/// scope; else `wanted` is set aside, or all that is left of the tightest cap. So at most one call at
/// a time can cross a cap.
pub(crate) fn admit(caps: &Caps, scopes: &mut Scopes, wanted: Option<Usd>) -> Admission {
    let mut left = Usd::MAX;
    let mut rules = Vec::new();
    let mut held = None;
    for (kind, scope) in Kind::ALL.into_iter().zip(scopes.iter()) {
        let Some(cap) = caps.of(kind) else { continue };
        let said = said(cap, scope);
        if scope.spent >= cap.amount {
            return Admission::Spent { rule: said };
        }
        if scope.used() >= cap.amount {
            held.get_or_insert(said.clone());
        }
        left = left.min(cap.amount.saturating_sub(scope.used()));
        rules.push(said);
    }
    if let Some(rule) = held {
        return Admission::Held { rule };
    }
    let amount = wanted.unwrap_or(left);
    for scope in scopes.iter() {
        // Beyond what a ledger can hold: nothing is known any more.
        if scope.spent.checked_add(scope.reserved).and_then(|u| u.checked_add(amount)).is_none() {
            return Admission::Held { rule: "the ledger can hold no more".to_owned() };
        }
    }
    for scope in scopes.iter_mut() {
        scope.reserved = scope.reserved.saturating_add(amount);
    }
    Admission::Admitted { amount, rule: rules.join("; ") }
}

/// Takes what was set aside back.
pub(crate) fn release(scopes: &mut Scopes, amount: Usd) {
    for scope in scopes.iter_mut() {
        scope.reserved = scope.reserved.saturating_sub(amount);
    }
}

/// Charges a call for which `reserved` was set aside. What it says: why nothing more can be paid for,
/// and that a person is to be warned.
pub(crate) fn charge(
    caps: &Caps,
    scopes: &mut Scopes,
    reserved: Usd,
    cost: Usd,
) -> (Option<String>, Option<String>) {
    release(scopes, reserved);
    let (mut stop, mut warning) = (None, None);
    for (kind, scope) in Kind::ALL.into_iter().zip(scopes.iter_mut()) {
        scope.spent = scope.spent.saturating_add(cost);
        let Some(cap) = caps.of(kind) else { continue };
        if scope.spent >= cap.amount {
            stop.get_or_insert_with(|| said(cap, scope));
        }
        if let Some(percent) = caps.warn_at_percent
            && !scope.warned
            && scope.spent.reaches(percent, cap.amount)
        {
            scope.warned = true;
            let words = format!("{percent}% of a cap: {}", said(cap, scope));
            warning = Some(warning.map_or(words.clone(), |other| format!("{other}; {words}")));
        }
    }
    (stop, warning)
}

fn said(cap: &Cap, scope: &Scope) -> String {
    let Scope { spent, reserved, .. } = scope;
    let aside =
        if *reserved == Usd::ZERO { String::new() } else { format!(", {reserved} set aside") };
    format!("{} {}: {spent} spent{aside}", cap.rule, cap.amount)
}
