//! The two worlds in which a case can run.

use serde::{Deserialize, Serialize};

/// Where a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum World {
    /// In the simulator, in virtual time.
    Sim,
    /// In the lab, in network namespaces with the kernel's own TCP.
    Lab,
}

impl World {
    /// Its word in case files, commands, file names and tables.
    pub const fn name(self) -> &'static str {
        match self {
            World::Sim => "sim",
            World::Lab => "lab",
        }
    }
}
