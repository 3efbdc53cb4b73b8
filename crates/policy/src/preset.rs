//! Ready rules for a machine, one file each.

/// A ready `machine.toml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// What a person types.
    pub name: &'static str,
    /// The whole file, comments and all.
    pub text: &'static str,
}

const PRESETS: [Preset; 4] = [
    Preset { name: "compatible", text: include_str!("../presets/compatible.toml") },
    Preset { name: "developer", text: include_str!("../presets/developer.toml") },
    Preset { name: "ci", text: include_str!("../presets/ci.toml") },
    Preset { name: "locked-down", text: include_str!("../presets/locked-down.toml") },
];

/// The presets, the most lenient first.
#[must_use]
pub fn presets() -> &'static [Preset] {
    &PRESETS
}

impl Preset {
    /// The preset of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        PRESETS.iter().find(|preset| preset.name == name)
    }

    /// What it is for, in one line: the first of its file.
    #[must_use]
    pub fn summary(&self) -> &'static str {
        let first = self.text.lines().next().unwrap_or_default();
        first.split_once(": ").map_or(first, |(_, rest)| rest)
    }
}

#[cfg(test)]
mod tests;
