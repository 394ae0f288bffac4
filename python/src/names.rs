//! The names of a link's classes: to find a class by what Python gives, and to say which it is.

use std::collections::HashMap;
use std::sync::Arc;

use altq_config::Link;
use altq_config::suggest::nearest;
use altq_engine::spec::ClassId;
use arrow_array::StringArray;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::errors;

/// The classes of a link by name and by number.
#[derive(Debug)]
pub struct Names {
    link: String,
    by_name: HashMap<String, ClassId>,
    by_number: Vec<Py<PyString>>,
    /// The same names as a column of a table.
    pub texts: Arc<StringArray>,
}

impl Names {
    /// The names of a link's classes.
    pub fn new(py: Python<'_>, link: &Link) -> Names {
        let names = || link.classes.iter().map(|class| class.name.as_str());
        let by_name = names().zip(0..).map(|(name, class)| (name.to_owned(), class)).collect();
        let by_number = names().map(|name| PyString::new(py, name).unbind()).collect();
        Names { link: link.name.clone(), by_name, by_number, texts: Arc::new(names().map(Some).collect()) }
    }

    /// The number of classes, the link itself included.
    pub fn count(&self) -> usize {
        self.by_number.len()
    }

    /// The name of a class, as Python has it.
    pub fn python(&self, class: ClassId) -> Option<&Py<PyString>> {
        self.by_number.get(class as usize)
    }

    /// The class of a name, or an error that names the nearest.
    pub fn find(&self, name: &str) -> PyResult<ClassId> {
        self.by_name.get(name).copied().ok_or_else(|| self.unknown(name))
    }

    /// A number, if a class has it.
    pub fn number(&self, class: u64) -> PyResult<ClassId> {
        match ClassId::try_from(class) {
            Ok(id) if (id as usize) < self.by_number.len() => Ok(id),
            _ => {
                let (link, most) = (&self.link, self.by_number.len().saturating_sub(1));
                Err(errors::packet(format!("there is no class {class}; link {link} has classes 0 to {most}")))
            }
        }
    }

    #[cold]
    fn unknown(&self, name: &str) -> PyErr {
        let shown: String = name.chars().take(40).collect();
        let mut names: Vec<&str> = self.by_name.keys().map(String::as_str).collect();
        names.sort_unstable();
        let hint = match nearest(&shown, names.iter().copied()) {
            Some(name) => format!("did you mean {name:?}?"),
            None => format!("it has {}", names.iter().take(20).copied().collect::<Vec<_>>().join(", ")),
        };
        errors::packet(format!("link {} has no class {shown:?}; {hint}", self.link))
    }

    /// The class that Python means: by name or by number.
    #[inline]
    pub fn class(&self, given: &Bound<'_, PyAny>) -> PyResult<ClassId> {
        if let Ok(name) = given.cast::<PyString>() {
            return self.find(name.to_str()?);
        }
        match given.extract::<u64>() {
            Ok(number) => self.number(number),
            Err(_) => Err(errors::packet(format!(
                "a class is given by its name or its number, and not by {}; .classes has the names",
                given.repr()?
            ))),
        }
    }
}
