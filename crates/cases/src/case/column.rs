//! Columns of a case: the policies to run it with.

use std::path::PathBuf;

use altq_config::Language;
use altq_engine::link::Overhead;
use altq_engine::spec::Timer;

use super::Case;
use crate::world::World;

/// A policy to run the case with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name; `None` where the case has only one policy, named at its top.
    pub name: Option<String>,
    /// Where the policy is.
    pub policy: PolicySource,
    /// Its language; `None`: told by the file's name, and native for a text.
    pub language: Option<Language>,
    /// When the scheduler's timers can fire.
    pub timer: Timer,
    /// Stretches of the policy's text that give way to others: each is there exactly once.
    pub replace: Vec<(String, String)>,
    /// The MTU of the policy's links, where its language cannot state one.
    pub mtu: Option<u32>,
    /// Bytes that they charge beyond a packet's length at layer 3, where its language cannot state
    /// them.
    pub overhead: Option<i32>,
    /// The world in which alone it makes sense.
    pub only: Option<Only>,
}

/// The world in which alone a case or a column makes sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Only {
    /// The world.
    pub world: World,
    /// Why not in the other one.
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
            PolicySource::File(file) if self.replace.is_empty() => {
                return Ok(self.dress(altq_config::load(&case.folder.join(file), self.language)?));
            }
            PolicySource::File(file) => {
                let path = case.folder.join(file);
                let shown = path.display().to_string();
                let text =
                    std::fs::read_to_string(&path).map_err(|error| PolicyError::Text(format!("{shown}: {error}")))?;
                let Some(language) = self.language.or_else(|| Language::of(&path, &text)) else {
                    return Err(PolicyError::Text(format!(
                        "{shown}: its name does not tell its language; write language"
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
                return Err(format!("{find:?} is to be replaced, and is there {times} times, not once"));
            }
            text = text.replacen(find.as_str(), with, 1);
        }
        Ok(text)
    }

    /// What the policy's language cannot say.
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

/// Why a column's policy cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// It is refused.
    #[error("{0}")]
    Refused(#[from] Box<altq_config::Failed>),
    /// Its text is not there, or not what the case takes it for.
    #[error("{0}")]
    Text(String),
}
