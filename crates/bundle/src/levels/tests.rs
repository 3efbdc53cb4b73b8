use super::{Capability, Isolation};
use crate::floor;

#[test]
fn the_floor_is_the_strongest_that_any_capability_needs() {
    for (capabilities, expected) in [
        (&[][..], Isolation::None),
        (&[Capability::ReadFile], Isolation::Process),
        (&[Capability::WriteFile, Capability::ReadFile], Isolation::Process),
        (&[Capability::WebSearch, Capability::ReadFile], Isolation::Network),
        (&[Capability::ExternalApi], Isolation::Network),
        (&[Capability::SendEmail], Isolation::Network),
        (&[Capability::SpawnSubagent], Isolation::Kernel),
        (&[Capability::ExternalTransfer, Capability::ReadFile], Isolation::Kernel),
        (&[Capability::DeleteRecords], Isolation::Kernel),
    ] {
        assert_eq!(floor(capabilities), expected, "{capabilities:?}");
    }
}

#[test]
fn words_and_serde_spell_alike() {
    for level in Isolation::ALL {
        assert_eq!(serde_json::to_value(level).expect("plain"), level.as_str());
    }
    for capability in Capability::ALL {
        assert_eq!(serde_json::to_value(capability).expect("plain"), capability.as_str());
    }
}
