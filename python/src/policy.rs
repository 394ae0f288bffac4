//! A policy, read and checked.

use std::path::PathBuf;
use std::sync::Arc;

use altq_config::document::CheckReport;
use altq_config::{Language, Link, advice, load, parse_str, print, render};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors;

/// A policy. `altq.Policy` adds to it what its document says.
#[pyclass(frozen, subclass, module = "altq._altq")]
#[derive(Debug)]
pub struct Policy {
    pub policy: Arc<altq_config::Policy>,
}

fn language(word: Option<&str>) -> PyResult<Option<Language>> {
    word.map(|word| word.parse().map_err(PyValueError::new_err)).transpose()
}

impl Policy {
    /// The link of this name; without a name the only one.
    pub fn link(&self, name: Option<&str>) -> PyResult<&Link> {
        let names = || self.policy.links.iter().map(|link| link.name.as_str()).collect::<Vec<_>>().join(", ");
        match (name, self.policy.links.as_slice()) {
            (None, [link]) => Ok(link),
            (None, _) => {
                Err(errors::policy_use(format!("the policy has several links; say which with link=: {}", names())))
            }
            (Some(name), _) => self
                .policy
                .link(name)
                .ok_or_else(|| errors::policy_use(format!("the policy has no link {name:?}; its links: {}", names()))),
        }
    }
}

#[pymethods]
impl Policy {
    #[new]
    #[pyo3(signature = (source, *, language=None, name="policy.altq"))]
    fn new(py: Python<'_>, source: &Bound<'_, PyAny>, language: Option<&str>, name: &str) -> PyResult<Policy> {
        let language = self::language(language)?;
        let read = match source.extract::<String>() {
            Ok(text) => {
                if !text.trim().is_empty() && !text.contains(char::is_whitespace) {
                    return Err(errors::policy_use(format!(
                        "{text:?} looks like the name of a file, and a str is the text of a policy; \
                         altq.Policy(pathlib.Path({text:?})) reads the file"
                    )));
                }
                parse_str(&text, name, language.unwrap_or(Language::Native))
            }
            Err(_) => load(&source.extract::<PathBuf>()?, language),
        };
        match read {
            Ok(policy) => Ok(Policy { policy: Arc::new(policy) }),
            Err(failed) => Err(errors::policy(py, &failed)),
        }
    }

    /// The document `altq.check/1` as JSON: findings, links, classes, and what they are promised.
    fn document(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| {
            let mut findings = self.policy.warnings.clone();
            findings.extend(self.policy.links.iter().flat_map(advice));
            let report = CheckReport::of(Some(&self.policy), &findings, &self.policy.sources, altq_kernel::fits);
            serde_json::to_string(&report).map_err(|error| PyValueError::new_err(error.to_string()))
        })
    }

    /// The policy in the native language, whichever it was read from.
    fn text(&self) -> String {
        print(&self.policy).text
    }

    /// Warnings as a text, each with its line and a caret; empty if there are none.
    fn warnings(&self) -> String {
        render(&self.policy.warnings, &self.policy.sources, false)
    }

    fn __repr__(&self) -> String {
        let one = |link: &Link| format!("{} {}", link.name, link.spec.rate);
        format!("<altq.Policy {}>", self.policy.links.iter().map(one).collect::<Vec<_>>().join(", "))
    }
}
