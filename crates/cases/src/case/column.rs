//! Columns of a case: the policies to run it with.

use std::path::PathBuf;

use altq_config::Language;
use altq_engine::link::Overhead;
use altq_engine::spec::Timer;

use super::Case;
use crate::built_in;
use crate::world::World;

/// A policy to run the case with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name; `None` if the case has only one policy, given at its top.
    pub name: Option<String>,
    /// Where the policy is.
    pub policy: PolicySource,
    /// Its language; `None`: the file's name tells it, and a text is in the native language.
    pub language: Option<Language>,
    /// When the scheduler's timers can fire.
    pub timer: Timer,
    /// What sets the rates that adapt.
    pub controller: Controls,
    /// Pieces of the policy's text, and what replaces them. Each piece occurs exactly once.
    pub replace: Vec<(String, String)>,
    /// The MTU of the policy's links, if the policy's language cannot state one.
    pub mtu: Option<u32>,
    /// Bytes that the links charge in addition to a packet's length at layer 3, if the policy's
    /// language cannot state them.
    pub overhead: Option<i32>,
    /// The only world in which the column makes sense; `None`: both.
    pub only: Option<Only>,
}

/// What sets the rate of a link whose rate adapts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Controls {
    /// altq's own controller.
    #[default]
    Altq,
    /// The published rules of cake-autorate, to compare with.
    CakeAutorate,
}

impl Controls {
    /// All, with the words for them.
    pub const ALL: [(&'static str, Controls); 2] =
        [("altq", Controls::Altq), ("cake-autorate", Controls::CakeAutorate)];
}

/// The only world in which a case or a column makes sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Only {
    /// The world.
    pub world: World,
    /// Why it makes no sense in the other world.
    pub reason: String,
}

/// Where a policy is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicySource {
    /// In the case itself.
    Text(String),
    /// In this file.
    File(PathBuf),
}

impl Column {
    /// Reads its policy.
    pub fn load(&self, case: &Case) -> Result<altq_config::Policy, PolicyError> {
        let name = case.folder.join(format!("{} (policy)", case.name.replace('/', "_"))).to_string_lossy().into_owned();
        let (text, name, language) = match &self.policy {
            PolicySource::Text(text) => (text.clone(), name, self.language.unwrap_or(Language::Native)),
            PolicySource::File(file) if self.replace.is_empty() && !built_in::is_inside(&case.folder) => {
                return Ok(self.dress(altq_config::load(&case.folder.join(file), self.language)?));
            }
            PolicySource::File(file) => {
                let path = case.folder.join(file);
                let shown = path.display().to_string();
                let text =
                    built_in::read_to_string(&path).map_err(|error| PolicyError::Text(format!("{shown}: {error}")))?;
                let Some(language) = self.language.or_else(|| Language::of(&path, &text)) else {
                    return Err(PolicyError::Text(format!(
                        "{shown}: its name does not tell its language; give the key language"
                    )));
                };
                (text, shown, language)
            }
        };
        let text = self.replaced(text).map_err(|error| PolicyError::Text(format!("{name}: {error}")))?;
        Ok(self.dress(altq_config::parse_str(&text, &name, language)?))
    }

    fn replaced(&self, mut text: String) -> Result<String, String> {
        for (find, with) in &self.replace {
            let times = text.matches(find.as_str()).count();
            if times != 1 {
                return Err(format!("{find:?} is to be replaced, but is there {times} times, not once"));
            }
            text = text.replacen(find.as_str(), with, 1);
        }
        Ok(text)
    }

    /// Sets what the policy's language cannot state.
    fn dress(&self, mut policy: altq_config::Policy) -> altq_config::Policy {
        for link in &mut policy.links {
            if let Some(mtu) = self.mtu {
                link.spec.mtu = mtu;
            }
            if let Some(bytes) = self.overhead {
                link.spec.overhead = Overhead { bytes, ..link.spec.overhead };
            }
        }
        policy
    }
}

/// Why a column's policy cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The policy is refused.
    #[error("{0}")]
    Refused(#[from] Box<altq_config::Failed>),
    /// Its text cannot be read, or does not have the pieces that the case replaces.
    #[error("{0}")]
    Text(String),
}
